"""What stands for processes and threads where a test wants one thing after the other."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fedperf_memory.memory_federation import run_at_once as at_once

__all__ = ["Held", "at_once", "in_this_process"]

T = TypeVar("T")


def in_this_process(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
    """As `TaskRunner`."""
    del seconds
    return task()


class Held:
    """As `in_thread`, where the work is done when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self.begun.append(run)
        return future

    def run(self) -> None:
        """Do everything that was begun."""
        begun, self.begun = self.begun, []
        for work in begun:
            work()
