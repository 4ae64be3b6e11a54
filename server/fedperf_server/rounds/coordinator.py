"""The coordinator's main step, the tick; ticks follow each other in one thread.

A tick reads the stored evidence once. Then every desk looks at it, each one after those whose
results it needs. At the end the tick moves the model round on that is due. A tick may compute,
but it waits for nobody. A desk stores its results in one transaction, so a coordinator that is
killed loses nothing: its next tick finds the same again.

When a desk or the round fails, the others go on.
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
    """One thing that a coordinator does at every tick."""

    def look(self, snapshot: Snapshot, /) -> Sequence[object]:
        """Do what is due at the snapshot's moment; what is new for the operator."""


class Coordinator:
    """Moves a coordinator on, tick by tick."""

    def __init__(
        self,
        snapshots: SnapshotReader,
        desks: Mapping[str, Controller],
        rounds: ModelRounds,
        *,
        troubles: FailureTracker | None = None,
    ) -> None:
        """Desks look in their order, under the names by which their troubles are called."""
        self._snapshots = snapshots
        self._desks = desks
        self._rounds = rounds
        self._troubles = troubles or FailureTracker()

    def tick(self, now: datetime) -> Sequence[object]:
        """Do what is due at `now`; what is new for the operator, in order."""
        if self._troubles.rests(DATABASE):
            return ()
        news: list[object] = []
        try:
            found = self._tried("reading releases", lambda: [self._snapshots.read(at=now)])
            for snapshot in found:
                for what, desk in self._desks.items():
                    news += self._tried(what, partial(desk.look, snapshot))
            news += self._tried("holding rounds", partial(self._rounds.look, at=now))
        except DatabaseError as error:
            self._troubles.failed(DATABASE, error)
        else:
            self._troubles.worked(DATABASE)
        return news

    def stop(self) -> None:
        """Leave the round that is under way, which is run again after the next start."""
        self._rounds.interrupt()

    def _tried(self, what: str, work: Callable[[], Sequence[T]]) -> Sequence[T]:
        """What `work` gives; nothing where it failed now or a moment ago."""
        if self._troubles.rests(what):
            return ()
        try:
            found = work()
        except DatabaseError:
            raise
        except Exception as error:
            self._troubles.failed(what, error)
            return ()
        self._troubles.worked(what)
        return found
