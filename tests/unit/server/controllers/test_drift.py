"""Tests of the drift controller: shared drift begins a regime once, other drift is reported."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from fedperf_server.controllers.drift import DriftController, stored_drifts
from fedperf_server.inference.drift_evidence import SHIFT, PlatformDrift
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, Member, QueryRow, RegimeTrigger
from fedperf_server.state.drift_regimes import DriftRegime, declare, regimes
from fedperf_server.state.registry import UnknownVersionError
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import DirectedReport, ResidualReport, SignedRelease
from fedperf_shared.wire.codec import encode_cell_query, encode_release
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.experiments.drift.report_detection import PlatformShift, schedule_of
from tests.fakes.audit_log import verify_events
from tests.fakes.report_years import Year, read_drifts, year_of_reports
from tests.fakes.snapshots import snapshot
from tests.unit.server.rounds.test_model_rounds import TinyFormat

SCHEDULE = schedule_of(200)
TABLE = SCHEDULE.calendar
PERIOD = TABLE.period
GRACE = timedelta(hours=1)
SLOWER = PlatformShift(Platform.POLARS, 5.2, SHIFT)
LATE_ENOUGH = TABLE.report_slots[-1].replies_after + GRACE


@lru_cache(maxsize=4)
def year(*shifts: PlatformShift, organizations: int = 3) -> Year:
    return year_of_reports(200, organizations, shifts, [1])


@lru_cache(maxsize=1)
def shared_drift() -> PlatformDrift:
    """Return the drift that all reports of the year with `SLOWER` show together."""
    (found,) = (
        e for e in read_drifts(year(SLOWER).plain, year(SLOWER).query_responses) if e.shared
    )
    return found


def reports_are_in(window: int) -> datetime:
    return PERIOD.window_start(window) + LATE_ENOUGH


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    with database.transaction() as session:
        arrays = [np.zeros(2, dtype=np.float32)]
        registry.add_version(session, TinyFormat(), arrays, at=PERIOD.start, promoted=True)
        for number in range(3):
            identity = bytes([number])
            session.add(
                Member(
                    organization_id=identity,
                    name=str(number),
                    public_key=new_private_key().public_key(),
                    joined_at=PERIOD.start,
                    revoked_at=None,
                )
            )
            session.flush()
            releases.declare_schedule(session, identity, SCHEDULE, at=PERIOD.start)
    yield database
    database.close()


def hand_in(database: Database, reports: Year, windows: Sequence[int]) -> None:
    for plain in reports.plain:
        if plain.report.slot.window in windows:
            store(database, plain.organization, plain.report)
    for version, query_responses in enumerate(reports.query_responses, 1):
        slot = query_responses.query.slot
        if slot.window not in windows:
            continue
        with database.transaction() as session:
            session.add(
                QueryRow(
                    period_start=PERIOD.start,
                    window=slot.window,
                    index=slot.index,
                    version=version,
                    payload=encode_cell_query(query_responses.query),
                    designed_at=PERIOD.start,
                )
            )
        for answer in query_responses.responses:
            store(database, answer.organization, answer.report)


def store(database: Database, organization: str, report: ResidualReport | DirectedReport) -> None:
    with database.transaction() as session:
        releases.store_report(
            session,
            bytes([int(organization)]),
            report,
            SignedRelease(encode_release(report), b""),
            reference_version=1,
            period=PERIOD,
            at=PERIOD.start,
        )


def desk(database: Database) -> DriftController:
    return DriftController()


def look(
    database: Database, at: datetime, watching: DriftController | None = None
) -> tuple[PlatformDrift, ...]:
    """Run the controller once and return its drifts. By default it was just started."""
    return (watching or DriftController()).run_once(snapshot(database, TABLE, at, grace=GRACE))


def live(
    database: Database, reports: Year, windows: Sequence[int], *, quiet: int = 6
) -> list[tuple[int, PlatformDrift]]:
    """Run a newly started coordinator in each window and return its drifts by window.

    It does not run in the first `quiet` windows.
    """
    news = []
    for window in windows:
        hand_in(database, reports, [window])
        if window >= quiet:
            news += [(window, each) for each in look(database, reports_are_in(window))]
    return news


def declared(database: Database) -> tuple[DriftRegime, ...]:
    with database.transaction() as session:
        assert verify_events(session) >= 0
        return regimes(session)[1:]


@pytest.mark.slow
def test_shared_drift_begins_a_drift_regime_with_the_next_window(
    database: Database,
) -> None:
    """The first reports of the new regime cover the previous one, whose drift is already known."""
    news = live(database, year(SLOWER), range(shared_drift().detected_in + 3))
    ((window, drift),) = [each for each in news if each[1].shared]
    assert window == shared_drift().detected_in
    assert drift == replace(shared_drift(), organizations=drift.organizations)
    (epoch,) = declared(database)
    assert epoch.begins_at == PERIOD.window_start(window + 1)
    assert (epoch.cause, epoch.platforms) == (RegimeTrigger.SHARED_DRIFT, (Platform.POLARS,))
    with database.transaction() as session:
        seen = stored_drifts(session, PERIOD)
    assert [each.detected_at for each in seen] == [reports_are_in(window) for window, _ in news]
    assert [each.drift for each in seen] == [each for _, each in news]


@pytest.mark.slow
def test_drift_controller_ignores_a_window_until_its_reports_are_complete(
    database: Database,
) -> None:
    hand_in(database, year(SLOWER), range(shared_drift().detected_in + 1))
    early = reports_are_in(shared_drift().detected_in) - timedelta(seconds=1)
    watching = desk(database)
    assert not any(each.shared for each in look(database, early, watching))
    assert declared(database) == ()
    assert any(e.shared for e in look(database, early + timedelta(seconds=1), watching))
    assert look(database, early + timedelta(days=1), watching) == ()


@pytest.mark.slow
def test_drift_of_one_organization_is_reported_and_begins_no_drift_regime(
    database: Database,
) -> None:
    alone = PlatformShift(Platform.POLARS, 5.2, 0.8, only="1")
    news = live(database, year(alone), range(10), quiet=9)
    assert [(each.platform, each.organizations, each.shared) for _, each in news] == [
        (Platform.POLARS, ("01",), False)
    ]
    assert declared(database) == ()


@pytest.mark.slow
def test_drift_found_by_first_reports_of_a_drift_regime_begins_no_other(database: Database) -> None:
    """These reports cover earlier windows, so the drift is older than the regime."""
    window = shared_drift().detected_in
    with database.transaction() as session:
        declare(session, PERIOD, RegimeTrigger.DECLARED, at=PERIOD.window_start(window - 1))
    news = live(database, year(SLOWER), range(window + 1), quiet=window)
    assert any(each.shared for _, each in news)
    assert [each.cause for each in declared(database)] == [RegimeTrigger.DECLARED]


@pytest.mark.slow
def test_drift_controller_after_downtime_declares_the_regime_once(database: Database) -> None:
    hand_in(database, year(SLOWER), range(10))
    news = look(database, reports_are_in(9))
    assert [each.shared for each in news].count(True) == 1
    (epoch,) = declared(database)
    assert epoch.begins_at == PERIOD.window_start(10)
    assert look(database, reports_are_in(9)) == ()
    assert len(declared(database)) == 1


def test_drift_controller_after_period_returns_none_and_without_model_raises(
    database: Database, tmp_path: Path
) -> None:
    hand_in(database, year(SLOWER), range(PERIOD.windows))
    assert look(database, PERIOD.end) == ()
    empty = Database(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    with pytest.raises(UnknownVersionError):
        look(empty, reports_are_in(1))
    empty.close()
