"""A replacement for threads: work that is done when the call returns."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[], T], /) -> Future[T]:
    """As `workers.worker_process.BackgroundRunner`, done when it returns."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # judged by whoever reads the future
        future.set_exception(error)
    return future
