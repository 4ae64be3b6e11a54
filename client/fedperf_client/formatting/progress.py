"""Progress bars on the standard error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE_SECONDS = 1.0  # time before a bar appears


@contextmanager
def progress_bar(title: str, *, json: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal if the work takes longer than `PATIENCE_SECONDS`.

    Args:
        title: title of the bar.
        json: whether the command prints JSON, which shows no bar.

    Yields:
        A function of the completed and the total amount of work.
    """
    from rich.progress import Progress

    console = _console()
    progress = Progress(console=console, transient=True, disable=json or not console.is_terminal)
    task = progress.add_task(title, total=None)
    timer = threading.Timer(PATIENCE_SECONDS, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: progress.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar just now
        progress.stop()


@contextmanager
def counting_bar(title: str, total: int, *, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Show a bar of things that each take a while, with the remaining time.

    The bar appears with the first completed thing, so that refused arguments show none.

    Yields:
        A function of the number of newly completed things and a word about the last one.
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
    """Return the console of all bars, so that nested bars are shown below each other."""
    from rich.console import Console

    return Console(stderr=True)
