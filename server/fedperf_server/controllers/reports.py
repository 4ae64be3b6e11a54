"""The publication controller publishes the correction and the synthetic rows.

Both are post-processing of accepted reports of the period and cost no privacy. They are computed
again whenever a report has arrived, from all reports of the regime in this period. So repeating the
work after a crash changes nothing. The last publication of a regime goes into the buffer
(`rehearsal.buffer`) when the regime's last reports have arrived, and in any case before the next
regime publishes. The module also counts the accepted and refused releases of every organization.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import RegimeReleases, Snapshot
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog, SyntheticBatch, cross_clusters
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, ReceiptRow
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.period import ReleaseCalendar

SYNTHETIC_ROWS = 512
"""Number of rows of the published batch, a public constant."""


@dataclass(frozen=True, slots=True)
class PublicationCounts:
    """The counts of one publication."""

    reports: int
    organizations: int
    rows: int


class PublicationController:
    """Publishes correction and synthetic rows when reports of a period arrive."""

    def __init__(
        self,
        database: Database,
        calendar: ReleaseCalendar,
        catalogue: Sequence[MeasuredPlan],
        predict_with: Callable[[bytes], PredictLog],
        *,
        grace: timedelta,
    ) -> None:
        """Make a controller for rows on plans and clusters of `catalogue`.

        Reports may be `grace` late. `predict_with` maps the bytes of a checkpoint to its
        predictions on catalogue entries.
        """
        self._predict_with = predict_with
        self._database = database
        self._calendar = calendar
        self._grace = grace
        self._catalogue = cross_clusters(
            [PlanOnCluster(each.plan, each.cluster) for each in catalogue]
        )
        self._processed = 0

    def run_once(self, snapshot: Snapshot) -> tuple[PublicationCounts, ...]:
        """Publish again if reports have arrived since the last call."""
        at, stored = snapshot.at, len(snapshot.reports)
        self._fill_buffer(at)
        if stored == self._processed:
            return ()
        window = self._calendar.period.nearest_window(at)
        evidence = snapshot.evidence(window)
        published = (self._publish(snapshot, window, evidence),) if evidence.reports else ()
        self._processed = stored
        return published

    def _publish(
        self, snapshot: Snapshot, window: int, evidence: RegimeReleases
    ) -> PublicationCounts:
        at, correction = snapshot.at, evidence.posterior.correction
        with self._database.transaction() as session:
            checkpoint = registry.get_version(session, evidence.reference_version).checkpoint
        batch = SyntheticBatch.from_reports(
            evidence.plain,
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
                reference_version=evidence.reference_version,
                mean=correction.mean,
                covariance=correction.covariance,
                at=at,
            )
            about = snapshot.regime(window).begins_at
            buffer.publish(session, batch.rows, about=about, at=at)
        return PublicationCounts(evidence.reports, correction.organizations, len(batch.rows))

    def _fill_buffer(self, at: datetime) -> None:
        """Store the rows of ended regimes, whose reports have arrived or are not used any more."""
        period = self._calendar.period
        reported_window = self._calendar.reported_window(at - self._grace)
        window = max(reported_window, period.nearest_window(at) - 1)
        while (ended := self._find_unstored(window)) is not None:
            labelled = ended.labelled(self._predict_with)
            with self._database.transaction() as session:
                buffer.store(session, labelled, at=at)

    def _find_unstored(self, window: int) -> buffer.PreviousRegimeRows | None:
        with self._database.transaction() as session:
            return buffer.find_unstored(session, self._calendar.period, window=window)


@dataclass(slots=True)
class OrganizationCounts:
    """Numbers of an organization's accepted releases, and of refused ones by kind and reason."""

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def count_releases(session: Session) -> "defaultdict[bytes, OrganizationCounts]":
    """Return the counts of every organization by its id, zero if it sent nothing."""
    counts: defaultdict[bytes, OrganizationCounts] = defaultdict(OrganizationCounts)
    query = select(ReceiptRow.organization_id, func.count()).group_by(ReceiptRow.organization_id)
    for organization_id, count in session.execute(query):
        counts[organization_id].accepted = count
    for (organization_id, kind, reason), count in releases.rejections(session).items():
        counts[organization_id].refused[f"{kind}/{reason}"] = count
    return counts
