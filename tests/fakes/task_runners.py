"""Fakes of processes and threads that run work in the test's own thread, step by step."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fedperf_memory.memory_federation import run_at_once as at_once

__all__ = ["Held", "at_once", "in_this_process"]

T = TypeVar("T")


def in_this_process(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
    """Run the task in this process. Replaces `TaskRunner`."""
    del seconds
    return task()


class Held:
    """A background runner that defers all work until the test calls `run`."""

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
        """Run all deferred work."""
        begun, self.begun = self.begun, []
        for work in begun:
            work()
