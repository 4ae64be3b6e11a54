"""Tests of the rehearsal buffer: rows of an ended drift regime are labelled and stored once."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete, select

from fedperf_server.controllers.promotion import roll_back
from fedperf_server.controllers.reports import PublicationController
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.state import registry
from fedperf_server.state.database import (
    BufferTeacherRow,
    Database,
    PublishedRegimeRow,
    RegimeTrigger,
)
from fedperf_server.state.drift_regimes import declare, regimes
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.model.checkpoint import decode_checkpoint
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.snapshots import evidence, snapshot
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.server.controllers.test_reports import CATALOGUE, SLOTS_WINDOWS, TABLE, hand_in

PERIOD = TABLE.period
GRACE = timedelta(days=1)
REPORTED = TABLE.report_slots[-1].replies_after + GRACE
"""Time after the start of a window when its reports have arrived."""


def moment(window: int, after: timedelta = timedelta(0)) -> datetime:
    return PERIOD.window_start(window) + after


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    for _ in range(2):
        promote(database)
    yield database
    database.close()


def promote(database: Database) -> int:
    arrays = [*seeded_checkpoint(1).arrays.values()]
    with database.transaction() as session:
        return registry.add_version(session, GgfnFormat(), arrays, at=moment(0), promoted=True)


def begin_epoch(database: Database, window: int) -> None:
    """Declare a drift regime with the newest promoted version as its reference."""
    with database.transaction() as session:
        declared = declare(session, PERIOD, RegimeTrigger.DECLARED, at=moment(window - 1))
        assert declared.begins_at == moment(window)


def predict_with(checkpoint: bytes) -> PredictLog:
    """Return a model that predicts the number of its version."""
    version = decode_checkpoint(checkpoint).model_version
    return lambda entries: np.full(len(entries), float(version))


def look(database: Database, at: datetime, *, grace: timedelta = GRACE) -> int:
    """Run a newly started coordinator and return its number of rehearsal rows."""
    desk = PublicationController(CATALOGUE, predict_with)
    desk.run_once(snapshot(database, TABLE, at, grace=grace))
    with database.transaction() as session:
        return len(buffer.rows(session))


def configurations(rows: Sequence[SyntheticRow]) -> list[tuple[Plan, ClusterConfig]]:
    return [(row.plan, row.cluster) for row in rows]


def published(database: Database) -> list[tuple[Plan, ClusterConfig]]:
    with database.transaction() as session:
        return configurations(registry.published_rows(session))


def rehearsed(database: Database) -> list[tuple[Plan, ClusterConfig]]:
    with database.transaction() as session:
        return configurations(buffer.rows(session))


def reports_about(database: Database, window: int) -> int:
    return evidence(database, TABLE, window=window).reports


def test_reports_of_first_window_belong_to_the_previous_drift_regime(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    hand_in(database, b"1", window=1)
    hand_in(database, b"1", window=2, reference_version=2)
    hand_in(database, b"2", window=2)  # sent without knowledge of the new regime
    assert [reports_about(database, window) for window in range(SLOTS_WINDOWS)] == [2, 2, 1, 1]
    found = evidence(database, TABLE, window=1)
    assert [found.until(window).reports for window in range(-1, 2)] == [0, 1, 2]


def test_late_report_of_an_ended_drift_regime_changes_no_stored_rows(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=1)
    look(database, moment(1, timedelta(days=6)))
    hand_in(database, b"1", window=2, reference_version=2)
    kept, now = look(database, moment(2, REPORTED)), reports_about(database, 2)
    hand_in(database, b"2", window=0)  # months late
    hand_in(database, b"2", window=1)
    assert look(database, moment(2, REPORTED)) == kept > 0
    assert reports_about(database, 2) == now == 1


@pytest.mark.slow
def test_rehearsal_rows_are_stored_once_after_last_reports_of_a_drift_regime(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    assert look(database, moment(0, REPORTED)) == 0
    assert look(database, moment(1, REPORTED - timedelta(seconds=1))) == 0
    hand_in(database, b"1", window=1)
    look(database, moment(1, timedelta(days=2)))
    kept = look(database, moment(1, REPORTED))
    assert kept > 0
    hand_in(database, b"2", window=1)  # too late for the buffer
    assert look(database, moment(1, REPORTED)) == kept
    with database.transaction() as session:
        assert {row.log_seconds for row in buffer.rows(session)} == {2.0}


def test_coordinator_after_downtime_stores_rehearsal_rows_before_publishing(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED))
    hand_in(database, b"1", window=2, reference_version=2)
    assert look(database, moment(2, timedelta(days=2))) > 0
    with database.transaction() as session:
        batch = registry.published_rows(session)
        labels = {row.log_seconds for row in buffer.rows(session)}
    assert labels == {2.0}
    assert not {row.log_seconds for row in batch} & labels  # published rows include the correction


@pytest.mark.slow
def test_rehearsal_rows_without_promotion_keep_their_corrected_labels(
    database: Database,
) -> None:
    with database.transaction() as session:
        roll_back(session, "astray", at=moment(0))  # keeps the reference running
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED))
    hand_in(database, b"1", window=1)
    look(database, moment(1, timedelta(days=2)))
    with database.transaction() as session:
        batch = {row.log_seconds for row in registry.published_rows(session)}
    look(database, moment(1, REPORTED))
    assert labels(database)
    assert labels(database) <= batch
    assert labels(database) != {1.0}  # the label of the reference without correction


def test_drift_regime_without_reports_stores_no_rehearsal_rows(database: Database) -> None:
    """Otherwise the rows of the previous regime would be rehearsed twice."""
    for window in (1, 2, 3):
        begin_epoch(database, window)
    hand_in(database, b"1", window=1)
    assert look(database, moment(1, timedelta(days=2))) == 0
    kept = look(database, moment(1, REPORTED))
    assert kept > 0
    for window in (2, 3):
        assert look(database, moment(window, REPORTED)) == kept


def labels(database: Database) -> set[float]:
    with database.transaction() as session:
        return {row.log_seconds for row in buffer.rows(session)}


def teachers(database: Database) -> set[int]:
    """Return teacher versions, which are integer parts of labels. A correction is below 1."""
    return {int(each) for each in labels(database)}


def test_rehearsal_rows_are_not_labelled_by_a_rolled_back_model(database: Database) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED))
    with database.transaction() as session:
        assert roll_back(session, "astray", at=moment(1)) == (2, 1)
    promote(database)  # a version of the next regime
    look(database, moment(1, REPORTED))
    assert teachers(database) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_rehearsal_rows_are_relabelled_after_rollback_of_their_teacher(
    database: Database, known: bool
) -> None:
    """This includes rows that were stored before their teacher was recorded."""
    begin_epoch(database, 1)
    begin_epoch(database, 2)
    for window, reference in ((1, 1), (2, 2)):
        hand_in(database, b"1", window=window, reference_version=reference)
        look(database, moment(window, timedelta(days=2)))
        look(database, moment(window, REPORTED))
    kept = rehearsed(database)
    assert teachers(database) == {2}
    with database.transaction() as session:
        assert len(session.scalars(select(BufferTeacherRow)).all()) == 2
        roll_back(session, "astray", at=moment(3))
        if not known:
            session.execute(delete(BufferTeacherRow))
    look(database, moment(3))
    assert teachers(database) == {1}
    assert rehearsed(database) == kept


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_rehearsal_rows_persist_over_two_drift_regimes_during_downtime(
    database: Database, known: bool
) -> None:
    """This includes rows that were published before their drift regime was recorded."""
    begin_epoch(database, 1)
    begin_epoch(database, 2)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED))
    before = published(database)
    if not known:
        with database.transaction() as session:
            session.execute(delete(PublishedRegimeRow))
    look(database, moment(2, REPORTED))
    assert rehearsed(database)
    assert set(rehearsed(database)) <= set(before)


@pytest.mark.slow
def test_rehearsal_rows_with_long_grace_are_of_the_previous_drift_regime(
    database: Database,
) -> None:
    grace = PERIOD.window - timedelta(hours=1)
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED), grace=grace)
    before = published(database)
    hand_in(database, b"1", window=2, reference_version=2)
    early = TABLE.report_slots[-1].replies_after - timedelta(hours=2)
    look(database, moment(2, early), grace=grace)  # reports of window 1 may still arrive
    assert published(database) != before
    kept = rehearsed(database)
    assert kept
    assert all(each in before for each in kept)
    with database.transaction() as session:
        assert (
            buffer.find_unstored(session, PERIOD, window=0) is None
        )  # rows published by the next regime
    for at in (moment(2, PERIOD.window * 0.75), moment(3, PERIOD.window - timedelta(hours=1))):
        look(database, at, grace=grace)
        assert rehearsed(database) == kept


def test_rehearsal_rows_of_an_ended_period_are_stored_before_publishing(
    database: Database,
) -> None:
    """A drift regime began with its last window, whose reports cover the previous regime."""
    earlier = Period(PERIOD.start - 5 * PERIOD.window, PERIOD.window, 4)  # one window earlier
    with database.transaction() as session:
        declare(session, earlier, RegimeTrigger.DECLARED, at=earlier.window_start(2))
        (start, _) = regimes(session)
        rows = [SyntheticRow(each.plan, each.cluster, 0.0, Platform.POLARS) for each in CATALOGUE]
        buffer.publish(session, rows, about=start.begins_at, at=earlier.window_start(3))
    hand_in(database, b"1", window=0, reference_version=2)
    look(database, moment(0, timedelta(hours=1)))
    assert rehearsed(database) == configurations(rows)
    assert published(database) != configurations(rows)
