"""Work beside the thread that asks for it, in threads that do not keep a program from ending."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")


class BackgroundRunner(Protocol):
    """Begins work and returns its future at once: `in_thread` in real life."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """What `work` will have given, or raised."""


def in_thread(work: Callable[[], T], /) -> Future[T]:
    """As `BackgroundRunner`, in a new thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # judged by whoever reads the future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
