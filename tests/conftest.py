"""What holds for all tests.

Examples of hypothesis may be slow to draw when other tests use the machine, which says
nothing about the code.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")


LONG = ("slow", "statistical", "fault")
"""Marks of tests that `make test` leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make check` and `make nightly` need."""
    parser.addoption(
        "--first-of-each",
        action="store_true",
        help="of slow, statistical and fault tests run the first of each file",
    )
    parser.addoption(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out tests whose names FILE holds, and append each that passes",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the two options leave out."""
    file: Path | None = config.getoption("--resume")
    passed = set(file.read_text().splitlines()) if file is not None and file.exists() else set()
    files_with_long_tests, selected, deselected = set(), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_long = any(item.get_closest_marker(mark) for mark in LONG)
        is_later = is_long and item.path in files_with_long_tests
        if is_long:
            files_with_long_tests.add(item.path)
        is_left_out = item.nodeid in passed or (is_later and config.getoption("--first-of-each"))
        (deselected if is_left_out else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


class PassedTests:
    """Appends the name of every test that passes, or that skips, to a file."""

    def __init__(self, file: Path) -> None:
        """Make the folder of the file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._failed = set[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Append a test after its last phase."""
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self._failed:
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Write what passes in the process that sees all reports: that of no worker of xdist."""
    file: Path | None = config.getoption("--resume")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PassedTests(file))


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
