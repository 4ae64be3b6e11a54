"""What an epoch left is kept once, labelled by its teacher, before anything of the next one."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_server import buffered, registry
from fedperf_server.database import Database
from fedperf_server.epochs import Cause, declare
from fedperf_server.questions import evidence
from fedperf_server.registry import GgfnFormat
from fedperf_server.rehearsal import PredictLog
from fedperf_server.reports import ReportDesk
from fedperf_shared.model.checkpoint import decode_checkpoint
from fedperf_shared.wire.codec import decode_synthetic_rows
from tests.unit.client.public import seeded_checkpoint
from tests.unit.server.test_reports import CATALOGUE, SLOTS_WINDOWS, TABLE, hand_in

PERIOD = TABLE.period
GRACE = timedelta(days=1)
REPORTED = TABLE.report_slots[-1].replies_after + GRACE
"""After the start of a window, when its reports are in."""


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
    """With the newest promoted version as its reference."""
    with database.transaction() as session:
        declared = declare(session, PERIOD, Cause.ANNOUNCED, at=moment(window - 1))
        assert declared.begins_at == moment(window)


def predict_with(checkpoint: bytes) -> PredictLog:
    """A model that predicts the number of its version."""
    version = decode_checkpoint(checkpoint).model_version
    return lambda entries: np.full(len(entries), float(version))


def look(database: Database, at: datetime) -> int:
    """A coordinator that was just started; how many rows it rehearses."""
    ReportDesk(database, TABLE, CATALOGUE, grace=GRACE).look(predict_with, at=at)
    with database.transaction() as session:
        return len(buffered.rows(session))


def reports_about(database: Database, window: int) -> int:
    with database.transaction() as session:
        return evidence(session, PERIOD, window=window).reports


def test_reports_of_an_epochs_first_window_are_evidence_of_the_epoch_before(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    hand_in(database, b"1", window=1)
    hand_in(database, b"1", window=2, reference_version=2)
    hand_in(database, b"2", window=2)  # it did not know of the epoch
    assert [reports_about(database, window) for window in range(SLOTS_WINDOWS)] == [2, 2, 1, 1]
    with database.transaction() as session:
        found = evidence(session, PERIOD, window=1)
        assert [found.until(window).reports for window in range(-1, 2)] == [0, 1, 2]


def test_rows_are_kept_with_the_last_reports_of_their_epoch_and_once(database: Database) -> None:
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
        assert {row.log_runtime_seconds for row in buffered.rows(session)} == {2.0}


def test_a_coordinator_that_was_away_keeps_them_before_the_next_epoch_publishes(
    database: Database,
) -> None:
    begin_epoch(database, 1)
    hand_in(database, b"1", window=0)
    look(database, moment(0, REPORTED))
    hand_in(database, b"1", window=2, reference_version=2)
    assert look(database, moment(2, timedelta(days=2))) > 0
    with database.transaction() as session:
        batch = decode_synthetic_rows(registry.publication(session, registry.SYNTHETIC_ROWS))
        labels = {row.log_runtime_seconds for row in buffered.rows(session)}
    assert labels == {2.0}
    assert not {row.log_runtime_seconds for row in batch} & labels  # they were corrected


def test_an_epoch_about_which_nobody_reported_leaves_nothing(database: Database) -> None:
    """Else the rows of the one before it would be rehearsed twice."""
    for window in (1, 2, 3):
        begin_epoch(database, window)
    hand_in(database, b"1", window=1)
    assert look(database, moment(1, timedelta(days=2))) == 0
    kept = look(database, moment(1, REPORTED))
    assert kept > 0
    for window in (2, 3):
        assert look(database, moment(window, REPORTED)) == kept
