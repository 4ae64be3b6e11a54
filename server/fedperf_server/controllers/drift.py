"""The desk that reads drift when a window's reports are in; where it is shared, an epoch begins.

What was found is written down together with the epoch that it begins, in one transaction, and
counts as known from then on. Reading is a function of the releases (`drift_evidence`): a
coordinator that was killed before reads again and finds the same; killed after, nothing is new.
So it reads again as often as it likes, and what came late, or was found while it was away,
is still found.

A drift lies in the windows before the reports that show it. So a shared one begins no epoch
where one began since then, with the window of these reports or later, announced or for another
drift: that one parts it from what comes next. What a single organization shows begins nothing
and is shown to the operator; what it means is refitted at home (`fedperf_client.drift`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import Snapshot
from fedperf_server.inference.drift_evidence import DriftReader, PlatformDrift
from fedperf_server.state import audit
from fedperf_server.state.database import Database, DriftRow
from fedperf_server.state.drift_regimes import DriftRegime, RegimeTrigger, declare, epoch_at
from fedperf_shared.releases.period import Period, ReleaseCalendar, from_unix_ms, to_unix_ms
from fedperf_shared.workflow.vocabulary import Platform


@dataclass(frozen=True, slots=True)
class DetectedDrift:
    """A drift that was found in a period's reports about an epoch.

    Attributes:
        drift: what was found.
        epoch_begins_at: start of that epoch.
        seen_at: when.
    """

    drift: PlatformDrift
    epoch_begins_at: datetime
    seen_at: datetime


def seen_drifts(session: Session, period: Period) -> tuple[DetectedDrift, ...]:
    """All that were found in the reports of the period, oldest first."""
    query = (
        select(DriftRow)
        .where(DriftRow.period_start == to_unix_ms(period.start))
        .order_by(DriftRow.number)
    )
    return tuple(map(_seen, session.scalars(query)))


class DriftController:
    """Reads the drifts of a calendar."""

    def __init__(self, database: Database, calendar: ReleaseCalendar, *, grace: timedelta) -> None:
        """Reports may be `grace` late."""
        self._database = database
        self._calendar = calendar
        self._grace = grace
        self._heard: tuple[int, int] | None = None
        self._reader: tuple[int, DriftReader] = (0, DriftReader())

    def look(self, snapshot: Snapshot) -> tuple[PlatformDrift, ...]:
        """Read drifts if reports have arrived since the last look; those that are new."""
        at = snapshot.at
        if not at < self._calendar.period.end:
            return ()
        window = self._calendar.reported_window(at - self._grace)
        heard = (window, snapshot.count(until=window))
        if heard == self._heard:
            return ()
        epoch, known = snapshot.epoch(window), snapshot.evidence(window).until(window)
        if self._reader[0] != epoch.number:
            self._reader = epoch.number, DriftReader()
        found = self._reader[1].read(known.plain, known.answered)
        with self._database.transaction() as session:
            news = self._store(session, epoch, found, at=at)
            shared = [each for each in news if each.shared]
            if shared and epoch_at(session, at) == epoch:
                self._declare(session, shared, at=at)
        self._heard = heard
        return news

    def _store(
        self, session: Session, epoch: DriftRegime, found: Sequence[PlatformDrift], *, at: datetime
    ) -> tuple[PlatformDrift, ...]:
        """Write down what is new of it."""
        period = self._calendar.period
        known = [
            each.drift
            for each in seen_drifts(session, period)
            if each.epoch_begins_at == epoch.begins_at
        ]
        news = tuple(each for each in found if not any(_same(each, other) for other in known))
        for drift in news:
            session.add(_row(session, period, epoch, drift, at=at))
            session.flush()
            detail: audit.Detail = {
                "platform": drift.platform.name,
                "since": drift.since,
                "found": drift.found,
                "log_factor": drift.log_factor,
                "organizations": len(drift.organizations),
                "shared": drift.shared,
            }
            audit.record(session, "drift_seen", detail, at=at)
        return news

    def _declare(self, session: Session, shared: Sequence[PlatformDrift], *, at: datetime) -> None:
        platforms = sorted({each.platform for each in shared})
        declare(
            session, self._calendar.period, RegimeTrigger.SHARED_DRIFT, platforms=platforms, at=at
        )


def _same(one: PlatformDrift, other: PlatformDrift) -> bool:
    """Whether both say the same, though one may know more reports."""
    same_who = one.shared == other.shared and (
        one.shared or one.organizations == other.organizations
    )
    return same_who and one.like(other) and one.near(other)


def _row(
    session: Session, period: Period, epoch: DriftRegime, drift: PlatformDrift, *, at: datetime
) -> DriftRow:
    return DriftRow(
        number=(session.scalar(select(func.max(DriftRow.number))) or 0) + 1,
        period_start=to_unix_ms(period.start),
        epoch_begins_at=to_unix_ms(epoch.begins_at),
        platform=drift.platform.name,
        since=drift.since,
        found=drift.found,
        log_factor=drift.log_factor,
        standard_error=drift.standard_error,
        organizations=" ".join(drift.organizations),
        shared=drift.shared,
        seen_at=to_unix_ms(at),
    )


def _seen(row: DriftRow) -> DetectedDrift:
    drift = PlatformDrift(
        Platform[row.platform],
        row.since,
        row.found,
        row.log_factor,
        row.standard_error,
        tuple(row.organizations.split()),
        row.shared,
    )
    return DetectedDrift(drift, from_unix_ms(row.epoch_begins_at), from_unix_ms(row.seen_at))
