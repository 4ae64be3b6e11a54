"""What stands for threads where everything happens in one, in order."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[], T], /) -> Future[T]:
    """As `workers.background.Start`, done when it returns."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # judged by whoever reads the future
        future.set_exception(error)
    return future
