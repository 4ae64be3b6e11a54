"""What a coordinator reads at one tick, for tests that look with a desk alone."""

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
    """What is stored of the calendar's period, read at that moment, or at its start."""
    reader = SnapshotReader(database, calendar, grace=grace)
    return reader.read(at=at or calendar.period.start)


def evidence(database: Database, calendar: ReleaseCalendar, *, window: int) -> RegimeReleases:
    """What is known of the epoch that reports of `window` are about."""
    return snapshot(database, calendar).evidence(window)
