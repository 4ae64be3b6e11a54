"""What the coordinator makes of reports: the correction and the synthetic rows, published.

Both are post-processing of accepted reports of the period and cost no privacy. They are
made anew whenever a report has arrived, from all reports of the epoch in this period, so that
repeating the work after a crash changes nothing. What an epoch published last goes into the
buffer (`buffered`) when its last reports are in, and in any case before the next one publishes
anything. Whose releases were taken and refused, and why, is counted here for the operator.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.desks.questions import evidence
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import SyntheticBatch
from fedperf_server.rehearsal.synthetic_rows import PredictLog, on_grid
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, ReceiptRow
from fedperf_server.state.epochs import reported
from fedperf_shared.execution import MeasuredPlan, SizedPlan
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.period import Timetable

SYNTHETIC_ROWS = 512
"""Rows of the published batch; a public number."""


@dataclass(frozen=True, slots=True)
class Published:
    """What one pass published."""

    reports: int
    organizations: int
    rows: int


class ReportDesk:
    """Watches the accepted reports of a period and publishes what follows from them."""

    def __init__(
        self,
        database: Database,
        timetable: Timetable,
        catalogue: Sequence[MeasuredPlan],
        *,
        grace: timedelta,
    ) -> None:
        """Publish rows on plans and clusters of `catalogue`; reports may be `grace` late."""
        self._database = database
        self._timetable = timetable
        self._grace = grace
        self._catalogue = on_grid([SizedPlan(each.plan, each.cluster) for each in catalogue])
        self._seen = 0

    def look(
        self, predict_with: Callable[[bytes], PredictLog], *, at: datetime
    ) -> Published | None:
        """Publish anew if reports have arrived since the last look; None if none have.

        Args:
            predict_with: from a checkpoint's bytes to its predictions on catalogue entries.
            at: now.
        """
        self._keep(predict_with, at=at)
        period = self._timetable.period
        with self._database.transaction() as session:
            stored = releases.count_reports(session, period)
            if stored == self._seen:
                return None
            window = period.nearest_window(at)
            about = reported(session, period, window=window).begins_at
            known = evidence(session, period, window=window)
            reference = known.reference_version
            checkpoint = registry.get_version(session, reference).checkpoint
        if not known.reports:
            self._seen = stored
            return None
        correction = known.learned().correction
        batch = SyntheticBatch.from_reports(
            known.plain,
            correction,
            self._catalogue,
            rows=SYNTHETIC_ROWS,
            predict=predict_with(checkpoint),
            seed=stored,
        )
        with self._database.transaction() as session:
            registry.publish_correction(
                session,
                basis_version=BASIS_VERSION,
                reference_version=reference,
                mean=correction.mean,
                covariance=correction.covariance,
                at=at,
            )
            buffer.publish(session, batch.rows, about=about, at=at)
        self._seen = stored
        return Published(known.reports, correction.organizations, len(batch.rows))

    def _keep(self, predict_with: Callable[[bytes], PredictLog], *, at: datetime) -> None:
        """Put into the buffer what an epoch left whose reports are all in, or count no more."""
        period = self._timetable.period
        reported_window = self._timetable.reported_window(at - self._grace)
        window = max(reported_window, period.nearest_window(at) - 1)
        while (ended := self._waiting(window)) is not None:
            earlier = ended.labelled(predict_with)
            with self._database.transaction() as session:
                buffer.keep(session, earlier, at=at)

    def _waiting(self, window: int) -> buffer.Earlier | None:
        with self._database.transaction() as session:
            return buffer.waiting(session, self._timetable.period, window=window)


@dataclass(slots=True)
class OrganizationStanding:
    """How many releases of an organization were accepted, and refused by kind and reason."""

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def standings(session: Session) -> "defaultdict[bytes, OrganizationStanding]":
    """The standing of every organization, by its id; an empty one for those that sent nothing."""
    found: defaultdict[bytes, OrganizationStanding] = defaultdict(OrganizationStanding)
    query = select(ReceiptRow.organization_id, func.count()).group_by(ReceiptRow.organization_id)
    for organization_id, count in session.execute(query):
        found[organization_id].accepted = count
    for (organization_id, kind, reason), count in releases.rejections(session).items():
        found[organization_id].refused[f"{kind}/{reason}"] = count
    return found
