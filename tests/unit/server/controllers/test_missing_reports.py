"""Tests of missing reports: each is logged once with its organization, after slot and grace."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fedperf_server.app.process import log_event
from fedperf_server.controllers.reports import MissingReportController
from fedperf_server.controllers.snapshot import Snapshot
from fedperf_server.state import releases
from fedperf_server.state.database import Database, Member, QueryRow
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.period import ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    Parameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from tests.unit.client.release.periods import START, calendar

DAY = timedelta(days=1)
WINDOW = 28 * DAY
GRACE = timedelta(hours=2)
TABLE = calendar(4, reports=2)
OVER = START + 21 * DAY + GRACE
"""End of the first report slot and its grace period."""

Said = list[tuple[str, str]]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    yield database
    database.close()


def join(
    database: Database,
    organization: bytes,
    name: str,
    *,
    at: datetime = START,
    schedule: Schedule | None = None,
) -> None:
    """Add a member that declares a plain and a directed report per window, or `schedule`."""
    declared: tuple[Parameters, ...] = ReportParameters(1.4, 3.0), DirectedParameters(1.4, 2000.0)
    slots = tuple(
        Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index), parameters)
        for window in range(4)
        for index, parameters in enumerate(declared)
    )
    with database.transaction() as session:
        session.add(
            Member(
                organization_id=organization,
                name=name,
                public_key=new_private_key().public_key(),
                joined_at=START,
                revoked_at=None,
            )
        )
        session.flush()
        releases.declare_schedule(session, organization, schedule or Schedule(TABLE, slots), at=at)


def said(
    database: Database, *moments: datetime, since: datetime = START, table: ReleaseCalendar = TABLE
) -> Said:
    """Run the controller at these timestamps and return logged organizations and slots."""
    desk = MissingReportController(since=since)
    with capture_logs() as logs:
        for at in moments:
            for absence in desk.run_once(Snapshot(database, table, GRACE, at, (), (), ())):
                log_event(absence)
    assert all((each["log_level"], each["event"]) == ("warning", "report missing") for each in logs)
    return [(each["organization"], each["slot"]) for each in logs]


def test_missing_report_is_logged_once_after_slot_and_grace(database: Database) -> None:
    join(database, b"1", "Acme")
    join(database, b"2", "Birch")
    release_id = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0).release_id(TABLE.period)
    signed = SignedRelease(b"a report", b"")
    with database.transaction() as session:
        releases.give_receipt(session, b"2", release_id, signed, key=new_private_key(), at=START)
    before, after = OVER - timedelta(seconds=1), OVER + timedelta(seconds=1)
    assert said(database, before) == []
    assert said(database, before, OVER, after, OVER + DAY / 2) == [("Acme", "report-0-0")]


def test_missing_reports_of_every_window_are_logged_at_any_polling_interval(
    database: Database,
) -> None:
    join(database, b"1", "Acme")
    every = [("Acme", f"report-{window}-0") for window in range(4)]
    assert said(database, START + 5 * WINDOW, START + 6 * WINDOW) == every
    assert said(database, *(START + days * DAY for days in range(150))) == every


def test_missing_reports_before_coordinator_start_are_not_logged(database: Database) -> None:
    join(database, b"1", "Acme")
    assert said(database, OVER + DAY, since=OVER) == []
    assert said(database, OVER + WINDOW, since=OVER) == [("Acme", "report-1-0")]


def test_report_of_late_or_revoked_organization_is_not_missing(database: Database) -> None:
    join(database, b"1", "Late", at=START + 21 * DAY)
    join(database, b"2", "Gone")
    with database.transaction() as session:
        session.get_one(Member, b"2").revoked_at = START
    assert said(database, OVER) == []
    assert said(database, OVER + WINDOW) == [("Late", "report-1-0")]


def test_directed_report_is_missing_only_if_a_linear_query_was_published(
    database: Database,
) -> None:
    join(database, b"1", "Acme")
    assert said(database, OVER + DAY, since=OVER) == []
    with database.transaction() as session:
        key = {"period_start": START, "window": 0, "index": 1}
        session.add(QueryRow(**key, version=1, payload=b"a question", designed_at=START))
    assert said(database, OVER + DAY, since=OVER) == [("Acme", "report-0-1")]


def test_missing_first_report_is_logged_like_any_other(database: Database) -> None:
    table = replace(TABLE, first_slots=(SlotTimes(2 * DAY, 3 * DAY), SlotTimes(9 * DAY, 10 * DAY)))
    first = Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 3), ReportParameters(1.4, 3.0))
    join(database, b"1", "Acme", schedule=Schedule(table, (first,)))
    over = START + 10 * DAY + GRACE
    assert said(database, over - DAY, table=table) == []
    assert said(database, over, table=table) == [("Acme", "report-0-3")]
