"""The drift controller detects drifts once a window's reports have arrived.

A shared drift begins a regime. The drift and its regime are stored in one transaction. Detection is
a function of the releases (`drift_evidence`), so it can be repeated: a coordinator that was killed
before storing detects the same drift again, and one that was killed after storing finds nothing
new. Late reports are included in the next detection.

A drift happened in the windows before the reports that show it. So a shared drift begins no regime
if another one, declared or detected, began with the window of these reports or later: that regime
separates the drift from later data already. A drift of a single organization begins no regime and
is listed for the operator. The organization adjusts its predictions locally
(`fedperf_client.prediction.ensemble.changes`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.controllers.snapshot import Snapshot
from fedperf_server.inference.drift_evidence import DriftReader, PlatformDrift
from fedperf_server.state.database import DriftRow, RegimeTrigger, record_event
from fedperf_server.state.drift_regimes import DriftRegime, declare, regime_at
from fedperf_shared.releases.period import Period


@dataclass(frozen=True, slots=True)
class DetectedDrift:
    """A drift that was detected in a period's reports about a regime."""

    drift: PlatformDrift  # the drift
    regime_begins_at: datetime  # start of that regime
    detected_at: datetime  # time of detection


def stored_drifts(session: Session, period: Period) -> tuple[DetectedDrift, ...]:
    """Return all drifts detected in the reports of the period, oldest first."""
    query = select(DriftRow).where(DriftRow.period_start == period.start).order_by(DriftRow.number)
    return tuple(
        DetectedDrift(
            PlatformDrift(**{each.name: getattr(row, each.name) for each in fields(PlatformDrift)}),
            row.regime_begins_at,
            row.seen_at,
        )
        for row in session.scalars(query)
    )


class DriftController:
    """Detects and stores the drifts of a period."""

    def __init__(self) -> None:
        self._processed: tuple[int, int] | None = None
        self._detector: tuple[int, DriftReader] = (0, DriftReader())

    def run_once(self, snapshot: Snapshot) -> tuple[PlatformDrift, ...]:
        """Detect drifts if reports have arrived since the last call, and return the new ones."""
        at, period, window = snapshot.at, snapshot.period, snapshot.reported_window
        if not at < period.end:
            return ()
        arrived = (window, snapshot.count(until=window))
        if arrived == self._processed:
            return ()
        regime, evidence = snapshot.regime(window), snapshot.evidence(window).until(window)
        if self._detector[0] != regime.number:
            self._detector = regime.number, DriftReader()
        drifts = self._detector[1].read(evidence.plain, evidence.query_responses)
        with snapshot.database.transaction() as session:
            new = _store(session, period, regime, drifts, at=at)
            shared = sorted({each.platform for each in new if each.shared})
            if shared and regime_at(session, at) == regime:
                declare(session, period, RegimeTrigger.SHARED_DRIFT, platforms=shared, at=at)
        self._processed = arrived
        return new


def _store(
    session: Session,
    period: Period,
    regime: DriftRegime,
    drifts: Sequence[PlatformDrift],
    *,
    at: datetime,
) -> tuple[PlatformDrift, ...]:
    """Store the drifts that are new, and return them."""
    stored = [
        each.drift
        for each in stored_drifts(session, period)
        if each.regime_begins_at == regime.begins_at
    ]
    new = tuple(each for each in drifts if not any(_same(each, other) for other in stored))
    for drift in new:
        session.add(
            DriftRow(
                number=(session.scalar(select(func.max(DriftRow.number))) or 0) + 1,
                period_start=period.start,
                regime_begins_at=regime.begins_at,
                seen_at=at,
                **asdict(drift),
            )
        )
        session.flush()
        record_event(
            session,
            "drift_seen",
            at=at,
            platform=drift.platform.name,
            since=drift.since,
            found=drift.detected_in,
            log_factor=drift.log_factor,
            organizations=len(drift.organizations),
            shared=drift.shared,
        )
    return new


def _same(one: PlatformDrift, other: PlatformDrift) -> bool:
    """Return whether both are the same drift, estimated from different numbers of reports."""
    same_organizations = one.shared == other.shared and (
        one.shared or one.organizations == other.organizations
    )
    return same_organizations and one.same_direction(other) and one.near(other)
