"""What holds for all tests.

Examples of hypothesis may be slow to draw when other tests use the machine, which says
nothing about the code.
"""

import gc
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: nobody looks for garbage in it, now or in the tests.

    Some 800,000 objects, which take a quarter of the time of importing them to look through.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """What is left is looked through once more, or libraries tell of leaks that are none."""
    gc.unfreeze()
