"""Private training in a process of its own, warm before the first slot is due.

The daemon's thread that talks to the coordinator shares an interpreter with whatever
else the daemon does. Training there would stretch its rhythm by an amount that depends
on the number of workloads, so it happens in a child: only the weights to start from,
the slot's parameters and the weights that came of it pass through a pipe; the child
reads the organization's executions itself. Ledger, gate, signature and the moment of
leaving stay in the daemon.

Noise: the child draws from a copy of the source that the gate gave. A copy of
`release.noise.SystemNoise` in another process starts a keystream of its own, so that
no number is drawn twice.

A child that is killed or fails makes its slot fail: it was charged, is wasted, and
nothing leaves. The next slot finds a new child. The child ends when the daemon does.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.errors import FedperfError
from fedperf_shared.release import TrainingParameters

Arrays = tuple[NDArray[np.float32], ...]

NEEDED_MODULES = ("fedperf_client.learning.private_update", "fedperf_client.store")
"""What training imports, which takes seconds."""

_PATIENCE_SECONDS = 5.0
"""For a child that was told to end."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingTask:
    """One slot's model update, to be computed.

    Attributes:
        store: the organization's database of executions.
        arrays: weights to start from, in the order of the architecture.
        parameters: of the slot, from the schedule.
        noise: of sampling and of the gradient.
    """

    store: Path
    arrays: Sequence[NDArray[np.float32]]
    parameters: TrainingParameters
    noise: NoiseSource


Training = Callable[[TrainingTask], Arrays]
"""Weights after private training minus those before."""


class TrainingFailedError(FedperfError):
    """Private training ended without an update; its slot is wasted."""


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str


class TrainingProcess:
    """Runs one task at a time in a warm child process; use it as a context manager."""

    def __init__(
        self, training: Training | None = None, *, needs: Sequence[str] = NEEDED_MODULES
    ) -> None:
        """Start nothing yet.

        Args:
            training: a function that a child can import; by default `train_from_store`.
            needs: modules that a child imports before its first task.
        """
        self._training = training or train_from_store
        self._needs = tuple(needs)
        self._one_at_a_time = threading.Lock()
        self._child: tuple[BaseProcess, Connection] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def warm(self) -> None:
        """Start the child and return at once; without this, the first task starts it."""
        with self._one_at_a_time:
            self._alive()

    def close(self) -> None:
        """End the child, whatever it does; a task in it fails."""
        self._closed = True
        if self._child is not None:
            _end(self._child[0])

    def __call__(self, task: TrainingTask) -> Arrays:
        """The update of `task`.

        Raises:
            TrainingFailedError: the child failed or was lost.
        """
        with self._one_at_a_time:
            process, pipe = self._alive()
            try:
                pipe.send(task)
                outcome: Arrays | _Failure = pipe.recv()
            except (EOFError, OSError) as error:
                _end(process)
                if not self._closed:
                    self._begin()  # warm before the next slot
                raise TrainingFailedError(
                    f"the training process was lost (exit code {process.exitcode})"
                ) from error
        if isinstance(outcome, _Failure):
            raise TrainingFailedError(f"training failed: {outcome.reason}")
        return outcome

    def _alive(self) -> tuple[BaseProcess, Connection]:
        """The child; a new one where it ended between two slots."""
        if self._closed:
            raise TrainingFailedError("the training process is closed")
        if self._child is None or not self._child[0].is_alive():
            return self._begin()
        return self._child

    def _begin(self) -> tuple[BaseProcess, Connection]:
        """Start a child and return before it is warm."""
        if self._child is not None:
            self._child[1].close()
        spawning = multiprocessing.get_context("spawn")
        here, there = spawning.Pipe()
        process = spawning.Process(
            target=_serve, args=(there, self._training, self._needs), name="training", daemon=True
        )
        process.start()
        there.close()  # so that its end is seen here
        self._child = (process, here)
        return self._child


def train_from_store(task: TrainingTask) -> Arrays:
    """Private training on the executions of the store.

    Raises:
        StorageError: the store cannot be read.
        InvalidModelStateError: the task's arrays are not weights of this architecture.
    """
    from fedperf_client.learning.private_update import private_update
    from fedperf_client.learning.residuals import labelled_graphs
    from fedperf_client.store import ExecutionStore

    with ExecutionStore.open(task.store) as store:
        labelled = labelled_graphs(store.executions())
    return private_update(task.arrays, labelled, task.parameters, task.noise)


def _serve(pipe: Connection, training: Training, needs: Sequence[str]) -> None:
    """The child's life: get warm, then answer tasks until the daemon closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the daemon's
    for module in needs:
        import_module(module)
    while True:
        try:
            pipe.send(_outcome(training, pipe.recv()))
        except (EOFError, OSError):  # the daemon ended
            return


def _outcome(training: Training, task: TrainingTask) -> Arrays | _Failure:
    try:
        return training(task)
    except Exception as error:  # whatever it is, the daemon is told and this child goes on
        return _Failure(f"{type(error).__name__}: {error}")


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(_PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(_PATIENCE_SECONDS)
