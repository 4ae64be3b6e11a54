"""A standard error that counts as a terminal, for what is shown on one alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedperf_client.formatting import progress


@contextmanager
def on_a_terminal() -> Iterator[None]:
    """Commands that run in the block show their bars, into what the test reads."""
    progress._console.cache_clear()  # it looks at the environment once
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FORCE_COLOR", "1")
            yield
    finally:
        progress._console.cache_clear()
