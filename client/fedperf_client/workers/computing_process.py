"""A child process that computes what goes into releases; it is warm before a slot is due.

The daemon's threads that talk to the coordinator share one interpreter. Work on executions in that
interpreter would delay them by an amount that depends on the number of workloads. So a task (see
`tasks`) goes to a child through a pipe, and its result comes back. The child reads the
organization's executions itself. Ledger, gate, signature and the moment of leaving stay in the
daemon.

A task fails when its child is killed, fails or takes too long. The caller is told at once and
decides what that means for the slot; the child is ended meanwhile, and the next task finds a new
one. The child ends when the daemon does, at the latest after the task that it is at.
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol, TypeVar

from fedperf_client.workers.background import in_thread
from fedperf_shared.errors import FedperfError
from fedperf_shared.programs.resources import Closing

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
"""For a child that was told to end."""


class ComputationFailedError(FedperfError):
    """A task ended without a result."""


class Compute(Protocol):
    """Runs a task where it holds up nobody: a `ComputingProcess` in real life."""

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """What `task` gives.

        Args:
            task: can be pickled, as its result can.
            seconds: how long it may take; None for as long as it takes.

        Raises:
            ComputationFailedError: it failed, was lost or took too long.
        """


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    pipe: Connection
    is_warm: bool = False

    def warm_up(self, until: float | None) -> None:
        """Wait until it has said that it is warm, so that a task sent to it is read at once."""
        if not self.is_warm:
            if not self.pipe.poll(_left(until)):
                raise ComputationFailedError("its process was not warm in time")
            self.pipe.recv()
            self.is_warm = True


class ComputingProcess(Closing):
    """Runs one task at a time in a warm child process; use it as a context manager."""

    def __init__(self, needs: Sequence[str]) -> None:
        """Start nothing yet; a child imports the modules `needs` before its first task."""
        self._needs = tuple(needs)
        self._one_at_a_time = threading.Lock()
        self._child: _Child | None = None
        self._closed = False

    def warm(self) -> None:
        """Start the child and return at once; without this, the first task starts it."""
        with self._one_at_a_time:
            self._alive()

    def close(self) -> None:
        """End the child, whatever it does; a task in it fails."""
        self._closed = True
        if self._child is not None:
            _end(self._child.process)

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """As `Compute`; tasks that are given at the same time wait for each other."""
        until = None if seconds is None else time.monotonic() + seconds
        left = _left(until)
        if not self._one_at_a_time.acquire(timeout=-1 if left is None else left):
            raise ComputationFailedError("the task before was not done in time")
        try:
            outcome = self._outcome(task, until)
        finally:
            self._one_at_a_time.release()
        if isinstance(outcome, _Failure):
            raise ComputationFailedError(f"it failed: {outcome.reason}")
        return outcome

    def _outcome(self, task: Callable[[], T], until: float | None) -> T | _Failure:
        child = self._alive()
        try:
            child.warm_up(until)
            child.pipe.send(task)
            if child.pipe.poll(_left(until)):
                outcome: T | _Failure = child.pipe.recv()
                return outcome
        except (EOFError, OSError) as error:
            child.process.join(_PATIENCE_SECONDS)
            code = child.process.exitcode
            self._replace(child)
            raise ComputationFailedError(f"its process was lost (exit code {code})") from error
        self._replace(child)
        raise ComputationFailedError("it was not done in time")

    def _alive(self) -> _Child:
        """The child; a new one where it ended between two slots."""
        if self._closed:
            raise ComputationFailedError("its process is closed")
        if self._child is None or not self._child.process.is_alive():
            return self._begin()
        return self._child

    def _replace(self, child: _Child) -> None:
        """End a child that is of no use, and have another one warm before the next slot.

        Beside whoever waits: a loaded machine takes its time for both.
        """
        self._child = None

        def renew() -> None:
            _end(child.process)
            child.pipe.close()
            if not self._closed:
                self.warm()

        in_thread(renew)

    def _begin(self) -> _Child:
        """Start a child and return before it is warm; where it was closed meanwhile, end it."""
        if self._child is not None:
            self._child.pipe.close()
        spawning = multiprocessing.get_context("spawn")
        here, there = spawning.Pipe()
        process = spawning.Process(
            target=_serve, args=(there, self._needs), name="computing", daemon=True
        )
        process.start()
        there.close()  # so that its end is seen here
        self._child = _Child(process, here)
        if self._closed:  # `close` may have looked for a child before this one was there
            self.close()
            return self._alive()  # which says so
        return self._child


def _serve(pipe: Connection, needs: Sequence[str]) -> None:
    """The child's life: get warm and say so, then do tasks until the daemon closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the daemon's
    for module in needs:
        import_module(module)
    try:
        pipe.send(None)
        while True:
            pipe.send(_done(pipe.recv()))
    except (EOFError, OSError):  # the daemon ended
        return


def _done(task: Callable[[], object]) -> object:
    try:
        return task()
    except Exception as error:  # whatever it is, the daemon is told and this child goes on
        return _Failure(f"{type(error).__name__}: {error}")


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - time.monotonic(), 0.0)


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(_PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(_PATIENCE_SECONDS)
