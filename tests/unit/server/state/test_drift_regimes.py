"""Drift regimes begin with windows, are declared once, and fix the reference of residuals."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_server.state import registry
from fedperf_server.state.database import Database, RegimeTrigger
from fedperf_server.state.drift_regimes import (
    DriftRegime,
    declare,
    find_reported_regime,
    regime_at,
    regime_starts,
    regimes,
)
from fedperf_server.state.registry import UnknownVersionError
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.audit_log import verify_events
from tests.unit.server.rounds.test_model_rounds import TinyFormat

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PERIOD = Period(START, 28 * DAY, 13)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'coordinator.sqlite'}")
    with found.transaction() as session:
        add_version(session)
    yield found
    found.close()


def add_version(session: object) -> int:
    arrays = [np.zeros(2, dtype=np.float32)]
    return registry.add_version(session, TinyFormat(), arrays, at=START, promoted=True)  # type: ignore[arg-type]


def test_undeclared_drift_regime_refers_to_first_promoted_version(
    database: Database,
) -> None:
    with database.transaction() as session:
        add_version(session)
        (first,) = regimes(session)
        assert (first.number, first.reference_version, first.cause) == (1, 1, RegimeTrigger.START)
        assert regime_at(session, START) == regime_at(session, PERIOD.end) == first
        assert regime_starts(session) == frozenset()


def test_drift_regime_starts_at_next_window_with_newest_promoted_version(
    database: Database,
) -> None:
    with database.transaction() as session:
        add_version(session)
        declared = declare(
            session,
            PERIOD,
            RegimeTrigger.DECLARED,
            platforms=[Platform.DUCKDB, Platform.SPARK],
            note="DuckDB 3",
            at=START + 30 * DAY,
        )
        begins_at = START + 56 * DAY
        expected = DriftRegime(
            2, begins_at, 2, RegimeTrigger.DECLARED, (Platform.DUCKDB, Platform.SPARK), "DuckDB 3"
        )
        assert declared == expected
        add_version(session)  # a later version changes no reference
        assert regime_at(session, begins_at) == expected
        assert regime_at(session, begins_at - DAY).number == 1
        assert regime_starts(session) == {begins_at}


def test_drift_regime_declared_twice_for_one_window_is_stored_once(database: Database) -> None:
    with database.transaction() as session:
        first = declare(session, PERIOD, RegimeTrigger.SHARED_DRIFT, at=START + DAY)
    with database.transaction() as session:
        assert (
            declare(session, PERIOD, RegimeTrigger.DECLARED, note="late", at=START + 2 * DAY)
            == first
        )
        assert len(regimes(session)) == 2
        assert verify_events(session) == 1


@pytest.mark.parametrize(
    ("days", "begins"), [(-3, 0), (0, 28), (27.9, 28), (28, 56), (28 * 13 - 1, 28 * 13)]
)
def test_drift_regime_start_may_be_first_window_of_this_or_the_next_period(
    database: Database, days: float, begins: float
) -> None:
    with database.transaction() as session:
        declared = declare(session, PERIOD, RegimeTrigger.DECLARED, at=START + days * DAY)
        assert declared.begins_at == START + begins * DAY


def test_drift_regime_after_calendar_end_or_without_model_is_refused(
    database: Database, tmp_path: Path
) -> None:
    with database.transaction() as session, pytest.raises(InvalidInputError, match="next period"):
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=PERIOD.end)
    empty = Database(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    with empty.transaction() as session, pytest.raises(UnknownVersionError):
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=START)
    empty.close()


def test_reports_of_first_window_belong_to_the_previous_drift_regime(database: Database) -> None:
    with database.transaction() as session:
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=START - DAY)  # with the first window
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=START + 30 * DAY)  # with window 2
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=START + 57 * DAY)  # with window 3
        about = [
            find_reported_regime(regimes(session), PERIOD, window=window).number
            for window in range(6)
        ]
    assert about == [1, 2, 2, 3, 4, 4]


def test_drift_regime_declared_before_calendar_gap_starts_at_next_first_window(
    database: Database,
) -> None:
    """Thirteen windows of four weeks end one day before the year."""
    next_period = Period(START + 365 * DAY, 28 * DAY, 13)
    with database.transaction() as session:
        declared = declare(session, PERIOD, RegimeTrigger.DECLARED, at=PERIOD.end - DAY)
        assert declared.begins_at == PERIOD.end < next_period.start
        about = [
            find_reported_regime(regimes(session), next_period, window=window).number
            for window in range(3)
        ]
        assert about == [1, 2, 2]
        assert find_reported_regime(regimes(session), PERIOD, window=12).number == 1
