"""A coordinator's snapshot at one tick, for tests of a single controller."""

from datetime import datetime, timedelta

from fedperf_server.controllers.snapshot import RegimeReleases, Snapshot, SnapshotReader
from fedperf_server.state.database import Database
from fedperf_shared.releases.period import ReleaseCalendar


def snapshot(
    database: Database,
    calendar: ReleaseCalendar,
    at: datetime | None = None,
    *,
    grace: timedelta = timedelta(0),
) -> Snapshot:
    """Return the stored state of the calendar's period, read at a time or at its start."""
    reader = SnapshotReader(database, calendar, grace=grace)
    return reader.read(at=at or calendar.period.start)


def evidence(database: Database, calendar: ReleaseCalendar, *, window: int) -> RegimeReleases:
    """Return the releases of the drift regime that reports of `window` refer to."""
    return snapshot(database, calendar).evidence(window)
