"""Tests of round starts: a promoted or inconclusive version, or steps of the same window."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_server.state import registry, round_calendar
from fedperf_server.state.database import (
    Database,
    ModelRound,
    PromotionRecord,
    RegimeTrigger,
    VersionStatus,
)
from fedperf_server.state.drift_regimes import declare
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from tests.unit.server.rounds.test_model_rounds import TinyFormat

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = ReleaseCalendar(
    Period(START, 28 * DAY, 3), (SlotTimes(4 * DAY, 5 * DAY),), (SlotTimes(10 * DAY, 14 * DAY),)
)
GRACE = timedelta(hours=1)
ARRAYS = [np.zeros(2, dtype=np.float32)]
OPENS, LATEST = START + 38 * DAY, START + 39 * DAY
"""Opening time of the round of window 1, and the time until which it waits."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'coordinator.sqlite'}")
    with found.transaction() as session:
        registry.add_version(session, TinyFormat(), ARRAYS, at=START, promoted=True)
    yield found
    found.close()


def make(database: Database, *, window: int, base: int) -> int:
    """Store the version that a round trained from `base`."""
    with database.transaction() as session:
        version = registry.add_version(session, TinyFormat(), ARRAYS, at=START)
        session.add(
            ModelRound(
                period_start=START,
                window=window,
                index=version,
                number=version,
                base_version=base,
                opened_at=START,
                new_version=version,
            )
        )
    return version


def decide(database: Database, version: int, standing: VersionStatus, at: datetime = START) -> None:
    with database.transaction() as session:
        registry.decide(
            session,
            PromotionRecord(
                version=version, status=standing, reason="", by_segment={}, decided_at=at
            ),
        )


def promote(database: Database, version: int) -> None:
    decide(database, version, VersionStatus.PROMOTED)


def leave_open(database: Database, version: int, at: datetime = START + 34 * DAY) -> None:
    decide(database, version, VersionStatus.CANDIDATE, at)


def reject(database: Database, version: int) -> None:
    with database.transaction() as session:
        registry.reject(session, version, "bad", at=START)


def start_of(database: Database, window: int) -> tuple[int, int]:
    with database.transaction() as session:
        found = round_calendar.find_round_start(session, TABLE, window=window)
    return found.version.version, found.steps_made


def undecided(database: Database, window: int) -> tuple[int, ...]:
    with database.transaction() as session:
        return round_calendar.undecided(session, TABLE, window=window, grace=GRACE)


def waits(
    database: Database,
    now: datetime,
    *,
    window: int = 1,
    table: ReleaseCalendar = TABLE,
    grace: timedelta = GRACE,
) -> bool:
    slot = SlotKey(ReleaseKind.MODEL_UPDATE, window, 0)
    with database.transaction() as session:
        return round_calendar.must_wait(session, table, slot, grace=grace, now=now)


def test_round_start_in_same_window_continues_from_previous_round(database: Database) -> None:
    for step in range(3):
        assert start_of(database, 0) == (1 + step, step)
        make(database, window=0, base=1 + step)


def test_round_start_skips_undecided_candidates_of_earlier_windows(
    database: Database,
) -> None:
    make(database, window=0, base=1)
    assert start_of(database, 1) == (1, 0)
    promote(database, 2)
    assert start_of(database, 1) == (2, 1)


def test_round_start_uses_inconclusive_candidate_until_it_is_rejected(database: Database) -> None:
    make(database, window=0, base=1)
    make(database, window=0, base=2)
    leave_open(database, 3)
    assert start_of(database, 1) == (3, 2)
    make(database, window=1, base=3)
    assert start_of(database, 1) == (4, 3)
    assert start_of(database, 2) == (3, 2)  # the candidate of window 1 awaits its decision
    leave_open(database, 4, at=START + 62 * DAY)
    assert start_of(database, 2) == (4, 3)
    reject(database, 4)
    reject(database, 3)
    assert start_of(database, 2) == (1, 0)


def test_round_start_ignores_inconclusive_candidate_after_another_promotion(
    database: Database,
) -> None:
    make(database, window=0, base=1)
    leave_open(database, 2)
    make(database, window=1, base=1)
    promote(database, 3)
    assert start_of(database, 1) == (3, 1)


def test_undecided_candidates_are_evaluated_at_most_once_per_window(database: Database) -> None:
    make(database, window=0, base=1)
    make(database, window=0, base=2)
    assert undecided(database, 1) == (2, 3)
    leave_open(database, 3)
    assert undecided(database, 1) == ()
    assert undecided(database, 2) == (2, 3)
    assert not waits(database, OPENS)
    make(database, window=1, base=3)
    assert undecided(database, 2) == (2, 3, 4)


def test_step_count_excludes_rejected_versions_and_other_branches(database: Database) -> None:
    make(database, window=0, base=1)
    make(database, window=0, base=2)
    promote(database, 3)
    make(database, window=1, base=3)
    reject(database, 4)
    assert start_of(database, 1) == (3, 2)
    make(database, window=1, base=3)
    assert start_of(database, 1) == (5, 3)
    assert start_of(database, 2) == (3, 2)


def test_step_count_restarts_in_new_drift_regime(database: Database) -> None:
    make(database, window=0, base=1)
    promote(database, 2)
    with database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + DAY)
    assert start_of(database, 1) == (2, 0)
    make(database, window=1, base=2)
    assert start_of(database, 1) == (3, 1)


def test_round_start_after_late_promotion_uses_promoted_version(
    database: Database,
) -> None:
    make(database, window=0, base=1)
    make(database, window=1, base=1)
    promote(database, 2)
    assert start_of(database, 1) == (2, 1)


def test_round_start_after_rejection_of_base_version_discards_its_steps(database: Database) -> None:
    make(database, window=0, base=1)
    promote(database, 2)
    make(database, window=1, base=2)
    reject(database, 2)
    assert start_of(database, 1) == (1, 0)


def test_round_waits_for_promotion_decision_while_most_of_its_slot_remains(
    database: Database,
) -> None:
    assert not waits(database, OPENS)
    make(database, window=0, base=1)
    assert waits(database, OPENS)
    assert waits(database, LATEST - timedelta(seconds=1))
    assert not waits(database, LATEST)
    assert waits(database, OPENS + 28 * DAY, window=2)


@pytest.mark.parametrize("verdict", [promote, reject])
def test_round_after_promotion_decision_does_not_wait(
    database: Database, verdict: Callable[[Database, int], None]
) -> None:
    make(database, window=0, base=1)
    verdict(database, 2)
    assert not waits(database, OPENS)


def test_round_does_not_wait_for_candidates_of_its_own_window(database: Database) -> None:
    make(database, window=1, base=1)
    assert not waits(database, OPENS)


def test_round_does_not_wait_for_reports_that_arrive_too_late(database: Database) -> None:
    make(database, window=0, base=1)
    assert waits(database, OPENS, grace=6 * DAY)
    assert not waits(database, OPENS, grace=6 * DAY + timedelta(seconds=1))
    late = replace(TABLE, report_slots=(SlotTimes(20 * DAY, 21 * DAY),))
    assert not waits(database, OPENS, table=late)
    assert waits(database, OPENS, table=replace(TABLE, report_slots=()))
