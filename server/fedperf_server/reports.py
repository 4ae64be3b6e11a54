"""What the coordinator makes of reports: the correction and the synthetic rows, published.

Both are post-processing of accepted reports of the period and cost no privacy. They are
made anew whenever a report has arrived, from all reports of the epoch in this period, so that
repeating the work after a crash changes nothing. What the epoch before published last goes
into the buffer (`buffered`) before this one publishes anything. Whose releases were taken
and refused, and why, is counted here for the operator.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server import buffered, registry, releases
from fedperf_server.database import Database, ReceiptRow, ReportRow
from fedperf_server.questions import evidence
from fedperf_server.rehearsal import CatalogueEntry, PredictLog, on_grid
from fedperf_server.synthetic import SyntheticBatch
from fedperf_shared.basis import BASIS_VERSION
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.period import Period, to_unix_ms

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
        self, database: Database, period: Period, catalogue: Sequence[MeasuredPlan]
    ) -> None:
        """Publish for `period`; synthetic rows are on plans and clusters of `catalogue`."""
        self._database = database
        self._period = period
        self._catalogue = on_grid([CatalogueEntry(each.plan, each.cluster) for each in catalogue])
        self._seen = 0

    def look(
        self, predict_with: Callable[[bytes], PredictLog], *, at: datetime
    ) -> Published | None:
        """Publish anew if reports have arrived since the last look; None if none have.

        Args:
            predict_with: from a checkpoint's bytes to its predictions on catalogue entries.
            at: now.
        """
        with self._database.transaction() as session:
            stored = self._count(session)
            if stored == self._seen:
                return None
            known = evidence(session, self._period, at=at)
            reference = known.reference_version
            checkpoint = registry.get_version(session, reference).checkpoint
            ended = buffered.waiting(session, at=at)
        earlier = None if ended is None else ended.labelled(predict_with)
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
            if earlier is not None:
                buffered.keep(session, earlier, at=at)
            registry.publish_correction(
                session,
                basis_version=BASIS_VERSION,
                reference_version=reference,
                mean=correction.mean,
                covariance=correction.covariance,
                at=at,
            )
            registry.publish_synthetic_rows(session, batch.rows, at=at)
        self._seen = stored
        return Published(known.reports, correction.organizations, len(batch.rows))

    def _count(self, session: Session) -> int:
        period_start = to_unix_ms(self._period.start)
        query = select(func.count()).where(ReportRow.period_start == period_start)
        return session.scalar(query) or 0


@dataclass(slots=True)
class Standing:
    """How many releases of an organization were accepted, and refused by kind and reason."""

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def standings(session: Session) -> "defaultdict[bytes, Standing]":
    """The standing of every organization, by its id; an empty one for those that sent nothing."""
    found: defaultdict[bytes, Standing] = defaultdict(Standing)
    query = select(ReceiptRow.organization_id, func.count()).group_by(ReceiptRow.organization_id)
    for organization_id, count in session.execute(query):
        found[organization_id].accepted = count
    for (organization_id, kind, reason), count in releases.rejections(session).items():
        found[organization_id].refused[f"{kind}/{reason}"] = count
    return found
