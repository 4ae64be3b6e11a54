"""The coordinator runs its controllers and the model round in ticks, in one thread.

A tick reads the stored evidence once. Then it runs every controller on it, each after those whose
results it needs. At the end it advances the model round that is due. A tick may compute but never
waits. A controller stores its results in one transaction, so that a killed coordinator loses
nothing: the next tick computes them again.

If a controller or the round fails, the others continue.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from fedperf_server.controllers.regime_releases import Snapshot, SnapshotReader
from fedperf_server.rounds.model_rounds import ModelRounds
from fedperf_server.state.database import DATABASE, DatabaseError
from fedperf_shared.runtime.failure_tracker import FailureTracker

T = TypeVar("T")


class Controller(Protocol):
    """A periodic step of the coordinator."""

    def run_once(self, snapshot: Snapshot, /) -> Sequence[object]:
        """Do what is due at the snapshot's time, and return events for the operator."""


class Coordinator:
    """Runs the controllers and the rounds, tick by tick."""

    def __init__(
        self,
        snapshots: SnapshotReader,
        controllers: Mapping[str, Controller],
        rounds: ModelRounds,
        *,
        failures: FailureTracker | None = None,
    ) -> None:
        """Make a coordinator of `controllers`, run in their order. Failures are tracked by key."""
        self._snapshots = snapshots
        self._controllers = controllers
        self._rounds = rounds
        self._failures = failures or FailureTracker()

    def tick(self, now: datetime) -> Sequence[object]:
        """Do what is due at `now`, and return events for the operator in order."""
        if self._failures.in_backoff(DATABASE):
            return ()
        events: list[object] = []
        try:
            snapshots = self._try("reading releases", lambda: [self._snapshots.read(at=now)])
            for snapshot in snapshots:
                for name, controller in self._controllers.items():
                    events += self._try(name, partial(controller.run_once, snapshot))
            events += self._try("holding rounds", partial(self._rounds.run_once, at=now))
        except DatabaseError as error:
            self._failures.failed(DATABASE, error)
        else:
            self._failures.worked(DATABASE)
        return events

    def stop(self) -> None:
        """Interrupt the open round, which is run again after the next start."""
        self._rounds.interrupt()

    def _try(self, name: str, step: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return the result of `step`, nothing if it failed now or is in backoff."""
        if self._failures.in_backoff(name):
            return ()
        try:
            result = step()
        except DatabaseError:
            raise
        except Exception as error:
            self._failures.failed(name, error)
            return ()
        self._failures.worked(name)
        return result
