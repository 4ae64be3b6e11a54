"""Tests of the promotion controller: each candidate is decided once, even after a kill."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import inspect

from fedperf_server.controllers import promotion
from fedperf_server.controllers.promotion import (
    PromotionController,
    ReportedOffset,
    roll_back,
)
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.state import registry, round_calendar
from fedperf_server.state.database import (
    Database,
    ModelRound,
    PromotionRecord,
    RegimeTrigger,
    VersionStatus,
)
from fedperf_server.state.drift_regimes import declare
from fedperf_server.state.registry import UnknownVersionError
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.audit_log import verify_events
from tests.fakes.linearized_queries import few_plans
from tests.fakes.rounds import newest_version
from tests.fakes.snapshots import snapshot
from tests.unit.server.rounds.test_model_rounds import TinyFormat

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = ReleaseCalendar(
    Period(START, 28 * DAY, 4), (SlotTimes(4 * DAY, 5 * DAY),), (SlotTimes(10 * DAY, 11 * DAY),)
)
GRACE = timedelta(hours=1)
PLANS = few_plans()
PASSED = "better by reports, no worse on public plans and on the buffer"
REPORTED = promotion._reported
SPEAKING = ReportedOffset(np.ones(CELLS), 1e-6 * np.eye(CELLS), np.full(CELLS, 1 / CELLS))
"""Reports that favour every version with longer predictions, up to 1 log second longer."""
ROW = SyntheticRow(PLANS[0].plan, PLANS[0].cluster, 9.0, Platform.POLARS)


def predict_with(checkpoint: bytes) -> PredictLog:
    """Return a predictor that returns the one number of the checkpoint for every plan."""
    value = float(np.frombuffer(checkpoint, dtype=np.float32)[0])

    def predict(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
        return np.full(len(entries), value)

    return predict


@pytest.fixture(autouse=True)
def _reports_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedperf_server.controllers.promotion._reported", lambda known: SPEAKING)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'coordinator.sqlite'}")
    add(found, 0.0, public_error=2.0, at=START, promoted=True)
    yield found
    found.close()


def add(
    database: Database,
    value: float | None,
    *,
    public_error: float,
    at: datetime,
    promoted: bool = False,
) -> int:
    """Store a promoted version, or a candidate of a round in the window of `at`.

    If `value` is None, it is better than all versions before it.
    """
    with database.transaction() as session:
        best = 0.01 * len(registry.versions(session))
        arrays = [np.full(2, best if value is None else value, dtype=np.float32)]
        version = registry.add_version(
            session, TinyFormat(), arrays, at=at, public_error=public_error, promoted=promoted
        )
        if not promoted:
            session.add(made_by_round(version, TABLE.period.nearest_window(at)))
    return version


def made_by_round(version: int, window: int, *, period: Period = TABLE.period) -> ModelRound:
    return ModelRound(
        period_start=period.start,
        window=window,
        index=version,
        number=version,
        base_version=1,
        opened_at=period.start,
        new_version=version,
    )


def look(
    database: Database,
    at: datetime,
    *,
    table: ReleaseCalendar = TABLE,
    grace: timedelta = GRACE,
    predict: Callable[[bytes], PredictLog] = predict_with,
) -> PromotionRecord | None:
    desk = PromotionController(PLANS, predict)
    found = desk.run_once(snapshot(database, table, at, grace=grace))
    return found[0] if found else None


def vars_of(row: PromotionRecord | None) -> dict[str, object]:
    """Return the values of a row by column name."""
    assert row is not None
    return {each.key: each.value for each in inspect(row).attrs}


def standings(database: Database) -> list[VersionStatus]:
    with database.transaction() as session:
        return [each.status for each in registry.versions(session)]


def reasons(database: Database) -> dict[int, str]:
    """Return the reason of the latest decision about each version."""
    with database.transaction() as session:
        return {each.version: each.reason for each in registry.decisions(session)}


def test_candidate_is_decided_after_reports_of_the_next_window(database: Database) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    in_time = START + 33 * DAY + GRACE
    for early in (START + 12 * DAY, START + 28 * DAY, in_time - timedelta(minutes=1)):
        assert look(database, early) is None
    verdict = look(database, in_time)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (2, True)
    assert look(database, in_time) is None
    assert standings(database) == [VersionStatus.PROMOTED] * 2
    with database.transaction() as session:
        assert registry.get_version(session, 0).version == 2
        assert verify_events(session) == 1


def test_promotion_counts_changed_predictions_outside_catalogue_machines(
    database: Database,
) -> None:
    measured_on = {each.cluster for each in PLANS}

    def predict_elsewhere(checkpoint: bytes) -> PredictLog:
        everywhere = predict_with(checkpoint)

        def predict(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
            return everywhere(entries) * [each.cluster not in measured_on for each in entries]

        return predict

    add(database, 0.5, public_error=1.0, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY, predict=predict_elsewhere)
    assert verdict is not None
    assert verdict.promoted


def test_promotion_gain_averages_plans_within_cells_and_counts_each_cell_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchors = [*PLANS, PLANS[0]]
    monkeypatch.setattr(promotion, "anchors_of", lambda _: anchors)
    plans = Counter(cell_of(each.plan).index for each in anchors)
    assert {*plans.values()} == {1, 2}
    add(database, 0.5, public_error=1.0, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.gain == pytest.approx((2 * 0.5 - 0.5**2) * len(plans) / CELLS)


def test_candidate_without_reports_stays_open_and_the_next_round_continues_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedperf_server.controllers.promotion._reported", REPORTED)
    add(database, None, public_error=1.0, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.status is VersionStatus.CANDIDATE
    assert verdict.reason == "no report supports it yet"
    assert look(database, START + 35 * DAY) is None
    with database.transaction() as session:
        assert round_calendar.find_round_start(session, TABLE, window=1).version.version == 2


def test_successor_of_an_open_candidate_is_decided_with_later_reports(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedperf_server.controllers.promotion._reported", lambda _: None)
    add(database, None, public_error=1.0, at=START + 11 * DAY)
    assert look(database, START + 34 * DAY) is not None
    add(database, None, public_error=1.0, at=START + 39 * DAY)
    monkeypatch.setattr("fedperf_server.controllers.promotion._reported", lambda _: SPEAKING)
    verdict = look(database, START + 62 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (3, True)
    assert standings(database)[1] is VersionStatus.CANDIDATE  # skipped in favour of version 3


def test_newest_candidate_of_a_window_is_decided_and_later_ones_stay_open(
    database: Database,
) -> None:
    add(database, None, public_error=2.1, at=START + 11 * DAY)
    add(database, None, public_error=2.2, at=START + 12 * DAY)
    later = add(database, None, public_error=1.0, at=START + 29 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted, verdict.reason) == (
        3,
        False,
        "worse on public plans",
    )
    with database.transaction() as session:
        assert registry.get_version(session, 0).version == 1
        assert newest_version(session).version == later
    assert standings(database) == [
        VersionStatus.PROMOTED,
        VersionStatus.REJECTED,
        VersionStatus.REJECTED,
        VersionStatus.CANDIDATE,
    ]


def test_rejected_newest_candidate_rejects_earlier_steps_of_its_window(
    database: Database,
) -> None:
    for public_error in (1.9, 2.2):
        add(database, None, public_error=public_error, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (3, False)
    assert look(database, START + 34 * DAY) is None
    assert standings(database) == [
        VersionStatus.PROMOTED,
        VersionStatus.REJECTED,
        VersionStatus.REJECTED,
    ]
    assert reasons(database)[2] == "goes with version 3, which was rejected"


def test_earlier_steps_to_a_promoted_version_are_not_decided(database: Database) -> None:
    for _ in range(3):
        add(database, None, public_error=1.9, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (4, True)
    assert look(database, START + 62 * DAY) is None
    with database.transaction() as session:
        assert len(registry.decisions(session)) == 1


def test_promotion_detects_forgetting_on_rows_of_previous_drift_regimes(database: Database) -> None:
    row = replace(ROW, log_seconds=0.0)
    with database.transaction() as session:
        registry.publish_synthetic_rows(session, [row] * 3, at=START)
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + DAY)
        assert buffer.find_unstored(session, TABLE.period, window=0) is None
        assert buffer.rows(session) == ()
        ended = buffer.find_unstored(session, TABLE.period, window=1)
        assert ended is not None
        buffer.store(session, ended.labelled(predict_with), at=START + 28 * DAY)
        buffer.store(session, replace(ended, rows=()), at=START + 29 * DAY)
        assert buffer.find_unstored(session, TABLE.period, window=1) is None
        assert buffer.rows(session) == (row,) * 3
    add(database, 0.5, public_error=1.9, at=START + 12 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.reason == "forgets polars"
    assert verdict.by_segment == {Platform.POLARS: pytest.approx(0.5)}
    with database.transaction() as session:
        (stored,) = registry.decisions(session)
    assert vars_of(stored) == vars_of(verdict)


def keep_rows(database: Database, at: datetime) -> None:
    """Store three rehearsal rows with label 0 in the buffer."""
    with database.transaction() as session:
        rows = (replace(ROW, log_seconds=0.0),) * 3
        buffer.store(session, buffer.PreviousRegimeRows(at, rows, b"", 0), at=at)


def test_promotion_rejects_gradual_forgetting(database: Database) -> None:
    keep_rows(database, START)
    found = []
    for window, value in enumerate((0.06, 0.09, 0.12, 0.095)):
        at = START + (28 * min(window, 2) + 11) * DAY
        add(database, value, public_error=1.9, at=at)
        found.append(look(database, at + 23 * DAY))
    assert [each and (each.promoted, each.reason) for each in found] == [
        (True, PASSED), (True, PASSED), (False, "forgets polars"), (True, PASSED)
    ]  # fmt: skip


def test_promotion_rejects_accumulated_losses_on_public_plans(database: Database) -> None:
    found = []
    for window, public_error in enumerate((2.09, 2.19)):
        at = START + (28 * window + 11) * DAY
        add(database, None, public_error=public_error, at=at)
        found.append(look(database, at + 23 * DAY))
    assert [each and each.reason for each in found] == [PASSED, "worse on public plans"]


def test_promotion_in_new_drift_regime_compares_with_its_own_reference(database: Database) -> None:
    keep_rows(database, START)
    add(database, 0.09, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    with database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + 35 * DAY)
    add(database, 0.18, public_error=1.9, at=START + 67 * DAY)
    verdict = look(database, START + 90 * DAY)
    assert verdict is not None
    assert verdict.promoted


def test_promotion_ignores_a_rolled_back_reference(database: Database) -> None:
    keep_rows(database, START)
    add(database, 0.09, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    with database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + 35 * DAY)
        roll_back(session, "slow", at=START + 36 * DAY)
        assert [each.version for each in registry.promoted_since(session, 2)] == [1]
    add(database, 0.18, public_error=1.9, at=START + 67 * DAY)
    verdict = look(database, START + 90 * DAY)
    assert verdict is not None
    assert verdict.reason == "forgets polars"


def test_concurrent_promotion_decisions_are_stored_once(database: Database) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    at = START + 34 * DAY

    judged: list[PromotionRecord | None] = []

    def judged_meanwhile(checkpoint: bytes) -> PredictLog:
        if not judged:
            judged.append(look(database, at))
        return predict_with(checkpoint)

    assert look(database, at, predict=judged_meanwhile) is None
    assert judged[0] is not None
    with database.transaction() as session:
        assert len(registry.decisions(session)) == 1


def test_promotion_decision_is_discarded_if_another_version_was_promoted(
    database: Database,
) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    add(database, None, public_error=1.8, at=START + 39 * DAY)
    judged: list[PromotionRecord | None] = []

    def newer_one_meanwhile(checkpoint: bytes) -> PredictLog:
        if not judged:
            judged.append(look(database, START + 62 * DAY))
        return predict_with(checkpoint)

    assert look(database, START + 34 * DAY, predict=newer_one_meanwhile) is None
    assert standings(database) == [
        VersionStatus.PROMOTED,
        VersionStatus.CANDIDATE,
        VersionStatus.PROMOTED,
    ]


def test_promotion_decision_during_a_rollback_is_discarded(database: Database) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    add(database, None, public_error=1.9, at=START + 39 * DAY)
    at = START + 62 * DAY
    taken: list[tuple[int, int]] = []

    def taken_back_meanwhile(checkpoint: bytes) -> PredictLog:
        if not taken:
            with database.transaction() as session:
                taken.append(roll_back(session, "slow", at=at))
        return predict_with(checkpoint)

    assert look(database, at, predict=taken_back_meanwhile) is None
    assert standings(database) == [
        VersionStatus.PROMOTED,
        VersionStatus.REJECTED,
        VersionStatus.REJECTED,
    ]


def test_promotion_decision_is_discarded_if_a_round_of_its_window_closes(
    database: Database,
) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    late: list[int] = []

    def closes_late(checkpoint: bytes) -> PredictLog:
        if not late:
            late.append(add(database, None, public_error=1.9, at=START + 12 * DAY))
        return predict_with(checkpoint)

    assert look(database, START + 34 * DAY, predict=closes_late) is None
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.version == late[0]


def test_promotion_without_report_slots_decides_when_next_window_begins(database: Database) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    table = replace(TABLE, report_slots=())
    assert look(database, START + 28 * DAY, table=table) is None
    assert look(database, START + 28 * DAY + GRACE, table=table) is not None


@pytest.mark.parametrize("late", [timedelta(0), 20 * DAY])
def test_promotion_controller_after_downtime_decides_even_after_the_period(
    database: Database, late: timedelta
) -> None:
    """The candidate of the last window waits for the reports of the next calendar."""
    add(database, None, public_error=1.9, at=START + 80 * DAY)
    add(database, None, public_error=1.8, at=START + 100 * DAY)
    verdict = look(database, TABLE.period.end + late)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (2, True)
    assert look(database, TABLE.period.end + late) is None
    assert standings(database)[-1] is VersionStatus.CANDIDATE


def test_candidate_belongs_to_the_window_of_its_round_however_late_it_closed(
    database: Database,
) -> None:
    with database.transaction() as session:
        for days, window in ((29, 0), (30, 1)):
            arrays = [np.zeros(2, dtype=np.float32)]
            at = START + days * DAY
            made = registry.add_version(session, TinyFormat(), arrays, at=at, public_error=1.9)
            session.add(made_by_round(made, window))
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.version == 2
    assert standings(database)[-1] is VersionStatus.CANDIDATE


def test_candidate_of_previous_period_is_decided_in_the_first_window(database: Database) -> None:
    before = Period(START - 28 * DAY, 28 * DAY, 1)
    with database.transaction() as session:
        arrays = [np.zeros(2, dtype=np.float32)]
        made = registry.add_version(session, TinyFormat(), arrays, at=START, public_error=1.9)
        session.add(made_by_round(made, 0, period=before))
    assert look(database, START + 5 * DAY) is None
    assert look(database, START + 5 * DAY + GRACE) is not None


def test_promotion_waits_for_a_grace_longer_than_the_window(
    database: Database,
) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    grace = 25 * DAY
    assert look(database, START + 57 * DAY, grace=grace) is None
    assert look(database, START + 58 * DAY, grace=grace) is not None


def test_roll_back_restores_previous_version_and_records_the_reason(database: Database) -> None:
    with database.transaction() as session, pytest.raises(InvalidInputError, match="no other"):
        roll_back(session, "slow", at=START)
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    with database.transaction() as session:
        assert roll_back(session, "slow on Spark", at=START + 40 * DAY) == (2, 1)
        assert registry.get_version(session, 0).version == 1
        assert newest_version(session).version == 1
        assert [each.reason for each in registry.decisions(session)][
            -1
        ] == "taken back: slow on Spark"
        assert registry.get_version(session, 2).status is VersionStatus.REJECTED
        with pytest.raises(UnknownVersionError):
            registry.decide(
                session,
                PromotionRecord(
                    version=9,
                    status=VersionStatus.PROMOTED,
                    reason="",
                    by_segment={},
                    decided_at=START,
                ),
            )


def test_roll_back_rejects_earlier_steps_and_later_candidates(
    database: Database,
) -> None:
    for _ in range(3):
        add(database, None, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    add(database, None, public_error=1.9, at=START + 39 * DAY)
    with database.transaction() as session:
        assert roll_back(session, "slow", at=START + 40 * DAY) == (4, 1)
    for days in (40, 62, 90):
        assert look(database, START + days * DAY) is None
    assert standings(database) == [VersionStatus.PROMOTED, *[VersionStatus.REJECTED] * 4]
    goes_with = "goes with version 4, which was taken back"
    assert reasons(database) == {
        2: goes_with, 3: goes_with, 4: "taken back: slow", 5: goes_with
    }  # fmt: skip
    with database.transaction() as session:
        assert newest_version(session).version == 1


def test_roll_back_keeps_undecided_steps_of_earlier_versions(
    database: Database,
) -> None:
    for days in (11, 11, 39):
        add(database, None, public_error=1.9, at=START + days * DAY)
    for days in (34, 62):
        look(database, START + days * DAY)
    with database.transaction() as session:
        assert roll_back(session, "slow", at=START + 70 * DAY) == (4, 3)
    assert look(database, START + 70 * DAY) is None
    assert standings(database)[1:] == [
        VersionStatus.CANDIDATE,
        VersionStatus.PROMOTED,
        VersionStatus.REJECTED,
    ]
