"""What stands for processes and threads where a test wants one thing after the other."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_this_process(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
    """As `learning.computing_process.Compute`."""
    del seconds
    return task()


def at_once(work: Callable[[], T], /) -> Future[T]:
    """As `background.in_thread`, done when it returns."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # judged by whoever reads the future
        future.set_exception(error)
    return future
