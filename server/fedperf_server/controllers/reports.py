"""The desk that publishes what follows from reports: the correction and the synthetic rows.

Both are post-processing of accepted reports of the period and cost no privacy. They are made anew
whenever a report has arrived, from all reports of the epoch in this period. So repeating the work
after a crash changes nothing. What an epoch published last goes into the buffer
(`rehearsal.buffer`) when its last reports are in, and in any case before the next epoch publishes
anything. For the operator, the accepted releases of every organization are counted here, and the
refused ones by reason.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import RegimeReleases, Snapshot
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog, SyntheticBatch, on_grid
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, ReceiptRow
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.period import ReleaseCalendar

SYNTHETIC_ROWS = 512
"""Rows of the published batch; a public number."""


@dataclass(frozen=True, slots=True)
class PublicationCounts:
    """The counts of one publication."""

    reports: int
    organizations: int
    rows: int


class PublicationController:
    """Watches the accepted reports of a period and publishes what follows from them."""

    def __init__(
        self,
        database: Database,
        calendar: ReleaseCalendar,
        catalogue: Sequence[MeasuredPlan],
        predict_with: Callable[[bytes], PredictLog],
        *,
        grace: timedelta,
    ) -> None:
        """Publish rows on plans and clusters of `catalogue`; reports may be `grace` late.

        `predict_with` goes from a checkpoint's bytes to its predictions on catalogue entries.
        """
        self._predict_with = predict_with
        self._database = database
        self._calendar = calendar
        self._grace = grace
        self._catalogue = on_grid([PlanOnCluster(each.plan, each.cluster) for each in catalogue])
        self._seen = 0

    def look(self, snapshot: Snapshot) -> tuple[PublicationCounts, ...]:
        """Publish anew if reports have arrived since the last look."""
        at, stored = snapshot.at, len(snapshot.reports)
        self._keep(at)
        if stored == self._seen:
            return ()
        window = self._calendar.period.nearest_window(at)
        known = snapshot.evidence(window)
        published = (self._publish(snapshot, window, known),) if known.reports else ()
        self._seen = stored
        return published

    def _publish(self, snapshot: Snapshot, window: int, known: RegimeReleases) -> PublicationCounts:
        at, correction = snapshot.at, known.learned.correction
        with self._database.transaction() as session:
            checkpoint = registry.get_version(session, known.reference_version).checkpoint
        batch = SyntheticBatch.from_reports(
            known.plain,
            correction,
            self._catalogue,
            rows=SYNTHETIC_ROWS,
            predict=self._predict_with(checkpoint),
            seed=len(snapshot.reports),
        )
        with self._database.transaction() as session:
            registry.publish_correction(
                session,
                basis_version=BASIS_VERSION,
                reference_version=known.reference_version,
                mean=correction.mean,
                covariance=correction.covariance,
                at=at,
            )
            about = snapshot.epoch(window).begins_at
            buffer.publish(session, batch.rows, about=about, at=at)
        return PublicationCounts(known.reports, correction.organizations, len(batch.rows))

    def _keep(self, at: datetime) -> None:
        """Put into the buffer what an epoch left whose reports are all in, or count no more."""
        period = self._calendar.period
        reported_window = self._calendar.reported_window(at - self._grace)
        window = max(reported_window, period.nearest_window(at) - 1)
        while (ended := self._waiting(window)) is not None:
            earlier = ended.labelled(self._predict_with)
            with self._database.transaction() as session:
                buffer.keep(session, earlier, at=at)

    def _waiting(self, window: int) -> buffer.PreviousRegimeRows | None:
        with self._database.transaction() as session:
            return buffer.waiting(session, self._calendar.period, window=window)


@dataclass(slots=True)
class OrganizationCounts:
    """Counts of an organization's accepted releases, and of refused ones by kind and reason."""

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def standings(session: Session) -> "defaultdict[bytes, OrganizationCounts]":
    """The standing of every organization, by its id; an empty one for those that sent nothing."""
    found: defaultdict[bytes, OrganizationCounts] = defaultdict(OrganizationCounts)
    query = select(ReceiptRow.organization_id, func.count()).group_by(ReceiptRow.organization_id)
    for organization_id, count in session.execute(query):
        found[organization_id].accepted = count
    for (organization_id, kind, reason), count in releases.rejections(session).items():
        found[organization_id].refused[f"{kind}/{reason}"] = count
    return found
