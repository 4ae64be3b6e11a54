"""What a coordinator reads at one tick, for tests that look with a desk alone."""

from datetime import datetime

from fedperf_server.controllers.regime_releases import RegimeReleases, Snapshot, SnapshotReader
from fedperf_server.state.database import Database
from fedperf_shared.releases.period import Period


def snapshot(database: Database, period: Period, at: datetime | None = None) -> Snapshot:
    """What is stored of the period, read at that moment, or at its start."""
    return SnapshotReader(database, period).read(at=at or period.start)


def evidence(database: Database, period: Period, *, window: int) -> RegimeReleases:
    """What is known of the epoch that reports of `window` are about."""
    return snapshot(database, period).evidence(window)
