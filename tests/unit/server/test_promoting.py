"""The desk judges each window's candidate once, in the next window, and may be killed anywhere."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_server import audit, buffered, registry
from fedperf_server.database import Database
from fedperf_server.epochs import Cause, declare
from fedperf_server.promoting import NothingToTakeBackError, PromotionDesk, take_back
from fedperf_server.registry import Standing, UnknownVersionError, Verdict
from fedperf_server.rehearsal import CatalogueEntry, PredictLog
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.period import Period, SlotTimes, Timetable
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.tangents import few_plans
from tests.unit.server.test_coordinator import TinyFormat

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = Timetable(
    Period(START, 28 * DAY, 4), (SlotTimes(4 * DAY, 5 * DAY),), (SlotTimes(10 * DAY, 11 * DAY),)
)
GRACE = timedelta(hours=1)
PLANS = few_plans()
ROW = SyntheticRow(PLANS[0].plan, PLANS[0].cluster, 9.0, Platform.POLARS)


def predict_with(checkpoint: bytes) -> PredictLog:
    """A model of one number, which it predicts everywhere."""
    value = float(np.frombuffer(checkpoint, dtype=np.float32)[0])

    def predict(entries: Sequence[CatalogueEntry]) -> NDArray[np.float64]:
        return np.full(len(entries), value)

    return predict


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'coordinator.sqlite'}")
    add(found, 0.0, public_error=2.0, at=START, promoted=True)
    yield found
    found.close()


def add(
    database: Database,
    value: float,
    *,
    public_error: float,
    at: datetime,
    promoted: bool = False,
) -> int:
    arrays = [np.full(2, value, dtype=np.float32)]
    with database.transaction() as session:
        return registry.add_version(
            session, TinyFormat(), arrays, at=at, public_error=public_error, promoted=promoted
        )


def look(database: Database, at: datetime) -> Verdict | None:
    desk = PromotionDesk(database, TABLE, PLANS, grace=GRACE)
    return desk.look(predict_with, at=at)


def standings(database: Database) -> list[Standing]:
    with database.transaction() as session:
        return [each.standing for each in registry.versions(session)]


def test_a_candidate_waits_for_the_reports_of_the_next_window(database: Database) -> None:
    add(database, 0.0, public_error=1.9, at=START + 11 * DAY)
    in_time = START + 33 * DAY + GRACE
    for early in (START + 12 * DAY, START + 28 * DAY, in_time - timedelta(minutes=1)):
        assert look(database, early) is None
    verdict = look(database, in_time)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (2, True)
    assert look(database, in_time) is None
    assert standings(database) == [Standing.PROMOTED] * 2
    with database.transaction() as session:
        assert registry.get_version(session, 0).version == 2
        assert audit.verify(session) == 1


def test_the_newest_candidate_of_a_window_is_judged_and_rounds_leave_a_rejected_one(
    database: Database,
) -> None:
    add(database, 0.0, public_error=2.1, at=START + 11 * DAY)
    add(database, 0.0, public_error=2.2, at=START + 12 * DAY)
    later = add(database, 0.0, public_error=1.0, at=START + 29 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted, verdict.reason) == (
        3,
        False,
        "worse on public plans",
    )
    with database.transaction() as session:
        assert registry.get_version(session, 0).version == 1
        assert registry.newest_version(session).version == later
    assert standings(database) == [
        Standing.PROMOTED, Standing.CANDIDATE, Standing.REJECTED, Standing.CANDIDATE
    ]  # fmt: skip


def test_what_was_forgotten_is_seen_on_the_rows_of_the_epochs_before(database: Database) -> None:
    with database.transaction() as session:
        registry.publish_synthetic_rows(session, [ROW] * 3, at=START)
        declare(session, TABLE.period, Cause.ANNOUNCED, at=START + DAY)
        assert buffered.waiting(session, at=START + 2 * DAY) is None
        assert buffered.rows(session) == ()
        ended = buffered.waiting(session, at=START + 28 * DAY)
        assert ended is not None
        buffered.keep(session, ended.labelled(predict_with), at=START + 28 * DAY)
        buffered.keep(session, replace(ended, rows=()), at=START + 29 * DAY)
        assert buffered.waiting(session, at=START + 29 * DAY) is None
        assert buffered.rows(session) == (replace(ROW, log_runtime_seconds=0.0),) * 3
    add(database, 0.5, public_error=1.9, at=START + 12 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.reason == "forgets polars"
    assert verdict.by_segment == {Platform.POLARS: pytest.approx(0.5)}
    with database.transaction() as session:
        assert registry.verdicts(session) == (verdict,)


def test_judged_twice_at_once_one_verdict_counts(database: Database) -> None:
    add(database, 0.0, public_error=1.9, at=START + 11 * DAY)
    desk = PromotionDesk(database, TABLE, PLANS, grace=GRACE)
    at = START + 34 * DAY

    judged: list[Verdict | None] = []

    def judged_meanwhile(checkpoint: bytes) -> PredictLog:
        if not judged:
            judged.append(look(database, at))
        return predict_with(checkpoint)

    assert desk.look(judged_meanwhile, at=at) is None
    assert judged[0] is not None
    with database.transaction() as session:
        assert len(registry.verdicts(session)) == 1


def test_a_calendar_without_reports_judges_when_the_next_window_begins(database: Database) -> None:
    add(database, 0.0, public_error=1.9, at=START + 11 * DAY)
    desk = PromotionDesk(database, replace(TABLE, report_slots=()), PLANS, grace=GRACE)
    assert desk.look(predict_with, at=START + 27 * DAY) is None
    assert desk.look(predict_with, at=START + 28 * DAY) is not None


def test_an_operator_takes_the_promoted_version_back(database: Database) -> None:
    with database.transaction() as session, pytest.raises(NothingToTakeBackError, match="no other"):
        take_back(session, "slow", at=START)
    add(database, 0.0, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    with database.transaction() as session:
        assert take_back(session, "slow on Spark", at=START + 40 * DAY) == (2, 1)
        assert registry.get_version(session, 0).version == 1
        assert registry.newest_version(session).version == 1
        assert [each.reason for each in registry.verdicts(session)][
            -1
        ] == "taken back: slow on Spark"
        assert registry.get_version(session, 2).standing is Standing.REJECTED
        with pytest.raises(UnknownVersionError):
            registry.decide(session, Verdict(9, True, "", None, None, {}, START))
