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


@contextmanager
def counting_bar(title: str, total: int, *, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Show a bar of things that each take a while, and the time that is left.

    It appears with the first that is done, so that arguments which are refused show no bar.

    Yields:
        What is to be told how many more are done, and a word about the last one.
    """
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *Progress.get_default_columns()[:2],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", markup=False),
    )
    progress = Progress(*columns, console=_console())
    task = progress.add_task(title, total=total, completed=done, last="")

    def advance(more: int, last: str) -> None:
        progress.start()
        progress.update(task, advance=more, last=last)

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()


@cache
def _console() -> "Console":
    """One for all, so that a bar within another's time is shown below it."""
    from rich.console import Console

    return Console(stderr=True)
