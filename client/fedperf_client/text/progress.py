"""A bar on the standard error for work that may take more than a moment."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE_SECONDS = 1.0
"""Before a bar appears."""


@contextmanager
def progress_bar(title: str, *, json: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal once the work took a moment; it vanishes in the end.

    Args:
        title: of the bar.
        json: whether the command prints for programs; they are shown no bar.

    Yields:
        What may be told how much of the work is done, and of how much.
    """
    from rich.progress import Progress

    console = _console()
    progress = Progress(console=console, transient=True, disable=json or not console.is_terminal)
    task = progress.add_task(title, total=None)
    begins = threading.Timer(PATIENCE_SECONDS, progress.start)
    begins.daemon = True
    begins.start()
    try:
        yield lambda done, total: progress.update(task, completed=done, total=total)
    finally:
        begins.cancel()
        begins.join()  # it may be starting the bar just now
        progress.stop()


@cache
def _console() -> "Console":
    """One for all, so that a bar within another's time is shown below it."""
    from rich.console import Console

    return Console(stderr=True)
