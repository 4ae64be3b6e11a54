"""Fixture of a standard error that counts as a terminal, for output shown on terminals only."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedperf_client.formatting import progress


@contextmanager
def on_a_terminal() -> Iterator[None]:
    """Make commands in the block show their progress bars."""
    progress._console.cache_clear()  # the environment is read once
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FORCE_COLOR", "1")
            yield
    finally:
        progress._console.cache_clear()
