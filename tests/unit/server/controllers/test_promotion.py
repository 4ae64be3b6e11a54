"""The desk judges each window's candidate once, in the next window, and may be killed anywhere."""

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
from tests.fakes.rounds import newest_version
from tests.fakes.snapshots import snapshot
from tests.fakes.tangents import few_plans
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
"""Reports for every version that predicts more than the one in force, up to 1 log second more."""
ROW = SyntheticRow(PLANS[0].plan, PLANS[0].cluster, 9.0, Platform.POLARS)


def predict_with(checkpoint: bytes) -> PredictLog:
    """A model of one number, which it predicts everywhere."""
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
    """Promoted, or a candidate that a round of the window of `at` made; None: better than all."""
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
    """The values of a row by its columns."""
    assert row is not None
    return {each.key: each.value for each in inspect(row).attrs}


def standings(database: Database) -> list[VersionStatus]:
    with database.transaction() as session:
        return [each.status for each in registry.versions(session)]


def reasons(database: Database) -> dict[int, str]:
    """Of the latest verdict about each version."""
    with database.transaction() as session:
        return {each.version: each.reason for each in registry.decisions(session)}


def test_a_candidate_waits_for_the_reports_of_the_next_window(database: Database) -> None:
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


def test_what_a_candidate_changes_on_other_machines_than_the_catalogues_counts(
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


def test_a_gain_is_the_mean_over_a_cells_plans_and_counts_each_cell_once(
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


def test_a_candidate_for_which_no_report_speaks_is_left_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedperf_server.controllers.promotion._reported", REPORTED)
    add(database, None, public_error=1.0, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert verdict.status is VersionStatus.CANDIDATE
    assert verdict.reason == "no report speaks for it yet"
    assert look(database, START + 35 * DAY) is None
    with database.transaction() as session:
        assert round_calendar.find_round_start(session, TABLE, window=1).version.version == 2


def test_what_was_left_open_is_judged_again_with_what_was_made_of_it(
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
    assert standings(database)[1] is VersionStatus.CANDIDATE  # passed over


def test_the_newest_candidate_of_a_window_is_judged_and_rounds_leave_a_rejected_one(
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


def test_a_window_has_one_verdict_and_its_steps_are_rejected_with_the_newest(
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


def test_steps_to_a_promoted_version_are_passed_over(database: Database) -> None:
    for _ in range(3):
        add(database, None, public_error=1.9, at=START + 11 * DAY)
    verdict = look(database, START + 34 * DAY)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (4, True)
    assert look(database, START + 62 * DAY) is None
    with database.transaction() as session:
        assert len(registry.decisions(session)) == 1


def test_what_was_forgotten_is_seen_on_the_rows_of_the_epochs_before(database: Database) -> None:
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
    """Into the buffer, labelled 0."""
    with database.transaction() as session:
        rows = (replace(ROW, log_seconds=0.0),) * 3
        buffer.store(session, buffer.PreviousRegimeRows(at, rows, b"", 0), at=at)


def test_what_is_forgotten_little_by_little_is_forgotten(database: Database) -> None:
    keep_rows(database, START)
    found = []
    for window, value in enumerate((0.06, 0.09, 0.12, 0.095)):
        at = START + (28 * min(window, 2) + 11) * DAY
        add(database, value, public_error=1.9, at=at)
        found.append(look(database, at + 23 * DAY))
    assert [each and (each.promoted, each.reason) for each in found] == [
        (True, PASSED), (True, PASSED), (False, "forgets polars"), (True, PASSED)
    ]  # fmt: skip


def test_small_losses_on_public_plans_do_not_add_up(database: Database) -> None:
    found = []
    for window, public_error in enumerate((2.09, 2.19)):
        at = START + (28 * window + 11) * DAY
        add(database, None, public_error=public_error, at=at)
        found.append(look(database, at + 23 * DAY))
    assert [each and each.reason for each in found] == [PASSED, "worse on public plans"]


def test_in_a_new_epoch_its_reference_is_what_must_not_be_forgotten(database: Database) -> None:
    keep_rows(database, START)
    add(database, 0.09, public_error=1.9, at=START + 11 * DAY)
    look(database, START + 34 * DAY)
    with database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + 35 * DAY)
    add(database, 0.18, public_error=1.9, at=START + 67 * DAY)
    verdict = look(database, START + 90 * DAY)
    assert verdict is not None
    assert verdict.promoted


def test_a_reference_that_was_taken_back_is_no_yardstick(database: Database) -> None:
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


def test_judged_twice_at_once_one_verdict_counts(database: Database) -> None:
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


def test_a_verdict_does_not_count_where_another_version_came_into_force_meanwhile(
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


def test_what_is_judged_during_a_rollback_is_not_promoted(database: Database) -> None:
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


def test_a_round_that_ends_while_its_window_is_judged_has_its_step_judged_instead(
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


def test_a_calendar_without_reports_judges_when_the_next_window_began(database: Database) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    table = replace(TABLE, report_slots=())
    assert look(database, START + 28 * DAY, table=table) is None
    assert look(database, START + 28 * DAY + GRACE, table=table) is not None


@pytest.mark.parametrize("late", [timedelta(0), 20 * DAY])
def test_a_coordinator_that_was_away_judges_when_it_is_back_and_after_the_calendar_too(
    database: Database, late: timedelta
) -> None:
    """What the last window made waits for the reports of the next calendar."""
    add(database, None, public_error=1.9, at=START + 80 * DAY)
    add(database, None, public_error=1.8, at=START + 100 * DAY)
    verdict = look(database, TABLE.period.end + late)
    assert verdict is not None
    assert (verdict.version, verdict.promoted) == (2, True)
    assert look(database, TABLE.period.end + late) is None
    assert standings(database)[-1] is VersionStatus.CANDIDATE


def test_it_is_the_rounds_window_that_counts_however_late_it_closed(database: Database) -> None:
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


def test_what_the_last_period_made_is_judged_in_this_ones_first_window(database: Database) -> None:
    before = Period(START - 28 * DAY, 28 * DAY, 1)
    with database.transaction() as session:
        arrays = [np.zeros(2, dtype=np.float32)]
        made = registry.add_version(session, TinyFormat(), arrays, at=START, public_error=1.9)
        session.add(made_by_round(made, 0, period=before))
    assert look(database, START + 5 * DAY) is None
    assert look(database, START + 5 * DAY + GRACE) is not None


def test_a_grace_that_is_longer_than_the_rest_of_the_window_is_waited_for(
    database: Database,
) -> None:
    add(database, None, public_error=1.9, at=START + 11 * DAY)
    grace = 25 * DAY
    assert look(database, START + 57 * DAY, grace=grace) is None
    assert look(database, START + 58 * DAY, grace=grace) is not None


def test_an_operator_takes_the_promoted_version_back(database: Database) -> None:
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


def test_what_was_taken_back_takes_its_steps_and_what_was_trained_from_it_along(
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


def test_what_was_passed_over_before_the_version_in_force_stays_so_in_a_rollback(
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
