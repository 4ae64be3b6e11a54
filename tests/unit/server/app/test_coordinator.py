"""Tests of a coordinator tick: the order of its parts and the isolation of their failures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from fedperf_server.app.composition import Coordinator
from fedperf_server.controllers.snapshot import Snapshot, SnapshotReader
from fedperf_server.state.database import DatabaseError
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.runtime.failure_tracker import FailureTracker

if TYPE_CHECKING:
    from fedperf_server.rounds.model_rounds import ModelRounds
    from fedperf_server.state.database import Database

AT = datetime(2027, 1, 1, tzinfo=UTC)
CALENDAR = default_calendar(AT)


@dataclass
class Life:
    """Coordinator whose parts record that they ran and fail on request."""

    looked: list[str] = field(default_factory=list)
    broken: dict[str, Exception] = field(default_factory=dict)
    seconds: float = 0.0
    moments: set[datetime] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(
            cast("SnapshotReader", self),
            {each: Looking(self, each).run_once for each in ("first", "second")},
            cast("ModelRounds", Looking(self, "rounds")),
            failures=FailureTracker(timer=lambda: self.seconds),
        )

    def read(self, *, at: datetime) -> Snapshot:
        self.does("reader")
        return Snapshot(cast("Database", self), CALENDAR, timedelta(0), at, (), (), ())

    def does(self, what: str) -> tuple[str]:
        if what in self.broken:
            raise self.broken[what]
        self.looked.append(what)
        return (what,)

    def tick(self) -> list[str]:
        """Run one tick and return the names of the parts that ran."""
        self.looked.clear()
        self.coordinator.tick(AT)
        return [*self.looked]


@dataclass
class Looking:
    life: Life
    name: str

    def run_once(self, snapshot: Snapshot | None = None, *, at: datetime = AT) -> Sequence[object]:
        self.life.moments.add(at if snapshot is None else snapshot.at)
        return self.life.does(self.name)


def test_coordinator_tick_shares_one_snapshot_and_runs_rounds_last() -> None:
    life = Life()
    assert life.coordinator.tick(AT) == ["first", "second", "rounds"]
    assert life.looked == ["reader", "first", "second", "rounds"]
    assert life.moments == {AT}


@pytest.mark.parametrize("error", [StorageError("full"), np.linalg.LinAlgError("singular")])
@pytest.mark.parametrize(
    ("broken", "others"),
    [
        ("first", ["reader", "second", "rounds"]),
        ("rounds", ["reader", "first", "second"]),
        ("reader", ["rounds"]),
    ],
)
def test_failing_controller_delays_no_other_and_is_retried_after_backoff(
    broken: str, others: list[str], error: Exception
) -> None:
    life = Life(broken={broken: error})
    assert life.tick() == others
    life.broken.clear()
    assert life.tick() == others  # in backoff
    life.seconds = 1.5
    assert life.tick() == ["reader", "first", "second", "rounds"]


@pytest.mark.parametrize("broken", ["reader", "second", "rounds"])
def test_failing_database_puts_all_controllers_into_backoff(broken: str) -> None:
    life = Life(broken={broken: DatabaseError("disk I/O error")})
    life.tick()
    life.broken.clear()
    assert life.tick() == []
    life.seconds = 1.5
    assert life.tick() == ["reader", "first", "second", "rounds"]


def test_coordinator_tick_returns_events_before_a_database_failure() -> None:
    life = Life(broken={"rounds": DatabaseError("disk I/O error")})
    assert life.coordinator.tick(AT) == ["first", "second"]
