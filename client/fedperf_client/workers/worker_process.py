"""A worker process computes the sums of releases; it is warm before a slot is due.

The daemon's threads that communicate with the coordinator share one interpreter. Work on executions
in that interpreter would delay them by an amount that depends on the number of workloads. So a task
(`contributions.local_sums`) goes to a child process, and its result comes back. The child reads the
organization's executions itself. Ledger, gate, signature and the time of sending stay in the
daemon.

A task fails when its child is killed, fails or takes too long. The caller learns this at once and
decides what it means for the slot; the child is ended meanwhile, and the next task gets a new one.
The child ends when the daemon does.
"""

import contextlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Protocol, TypeVar

from fedperf_client.workers.child_process import ChildFailedError, ChildProcess
from fedperf_client.workers.child_side import channel_to_parent, requests_of_parent
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.process import Closing

COMMAND = (sys.executable, "-P", "-m", "fedperf_client.workers.worker_process")

T = TypeVar("T")


class ComputationFailedError(FedperfError):
    """Raised when a task ended without a result."""


class BackgroundRunner(Protocol):
    """Begins work and returns its future at once: `in_thread` in production."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """Return the future of what `work` returns or raises."""


class TaskRunner(Protocol):
    """Runs a task outside of the caller's interpreter: a `WorkerProcess` in production."""

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """Return the result of `task`.

        Args:
            task: can be pickled, as its result can.
            seconds: how long it may take; None for any time.

        Raises:
            ComputationFailedError: it failed, was lost or took too long.
        """


def in_thread(work: Callable[[], T], /) -> Future[T]:
    """Run `work` in a new thread, which does not keep the program from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # the reader of the future decides about it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class WorkerProcess(Closing):
    """Runs one task at a time in a warm child process; use it as a context manager."""

    def __init__(self, needs: Sequence[str]) -> None:
        """Start nothing yet; a child imports the modules `needs` before its first task."""
        self._needs = tuple(needs)
        self._one_at_a_time = threading.Lock()
        self._child: ChildProcess | None = None
        self._is_warm = False
        self._closed = False

    def warm(self) -> None:
        """Start the child and return at once; without this, the first task starts it."""
        with self._one_at_a_time:
            self._alive()

    def close(self) -> None:
        """End the child at once; a task in it fails."""
        self._closed = True
        if self._child is not None:
            self._child.kill()

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """Run a task as `TaskRunner`; tasks of several threads run one after the other."""
        until = None if seconds is None else time.monotonic() + seconds
        left = _left(until)
        if not self._one_at_a_time.acquire(timeout=-1 if left is None else left):
            raise ComputationFailedError("the task before was not done in time")
        try:
            is_done, result = self._run(task, until)
        finally:
            self._one_at_a_time.release()
        if not is_done:
            raise ComputationFailedError(f"it failed: {result}")
        return result

    def _run(self, task: Callable[[], T], until: float | None) -> tuple[bool, T]:
        child = self._alive()
        try:
            if not self._is_warm:  # a task that is sent to a warm child is read at once
                child.receive(_left(until))
                self._is_warm = True
            child.send(pickle.dumps(task))
            reply: tuple[bool, T] = pickle.loads(child.receive(_left(until)))
        except ChildFailedError as failed:
            is_late = failed.status == "timeout"
            if is_late and not self._is_warm:
                raise ComputationFailedError("its process was not warm in time") from failed
            self._replace(child)
            reason = "it was not done in time" if is_late else failed.reason
            raise ComputationFailedError(reason) from failed
        return reply

    def _alive(self) -> ChildProcess:
        """Return the child, or a new one where it ended between two slots."""
        if self._closed:
            raise ComputationFailedError("its process is closed")
        if self._child is None or not self._child.is_alive():
            return self._begin()
        return self._child

    def _replace(self, child: ChildProcess) -> None:
        """End a useless child, and have another one warm before the next slot.

        It runs in the background: on a loaded machine both take long.
        """
        self._child = None

        def renew() -> None:
            child.close()
            if not self._closed:
                self.warm()

        in_thread(renew)

    def _begin(self) -> ChildProcess:
        """Start a child and return before it is warm; where it was closed meanwhile, end it."""
        if self._child is not None:
            self._child.close()
        self._child = ChildProcess(COMMAND)
        self._is_warm = False
        with contextlib.suppress(ChildFailedError):  # the first task finds it lost
            self._child.send(pickle.dumps((sys.path, self._needs)))
        if self._closed:  # `close` may have looked for a child before this one was there
            self.close()
            return self._alive()  # which raises
        return self._child


def _serve() -> None:
    """Run the child: import modules, report readiness, then run tasks until the daemon is gone."""
    channel = channel_to_parent()
    requests = requests_of_parent(channel)
    sys.path[:], needs = pickle.loads(requests.get())
    for module in needs:
        import_module(module)
    channel.send(b"ready")
    while True:
        task = pickle.loads(requests.get())
        try:
            outcome = True, task()
        except Exception as error:  # the daemon gets any failure, and this child goes on
            outcome = False, f"{type(error).__name__}: {error}"
        channel.send(pickle.dumps(outcome))


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - time.monotonic(), 0.0)


if __name__ == "__main__":
    _serve()
