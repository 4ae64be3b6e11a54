"""The controllers of report slots: linear queries, publications, missing reports.

`design_queries` designs the linear query of a directed slot, once, when the slot opens. A query
depends on the reports that were accepted until then. It is stored before it is sent and never
changed, so that a coordinator that was killed sends the same query again. The first report slot of
a window is plain. A later slot has a query if an organization declared a directed report.

`PublicationController` publishes the correction and the synthetic rows. Both are post-processing of
accepted reports of the period and cost no privacy. They are computed again whenever a report has
arrived, from all reports of the regime in this period. So repeating the work after a crash changes
nothing. The last publication of a regime goes into the buffer (`rehearsal.buffer`) when the
regime's last reports have arrived, and in any case before the next regime publishes.

`MissingReportController` lists missing reports once a slot and its grace period are over. A report
is missing if a member declared the slot before it was due and has no receipt for it. Every slot is
checked once, after its end. Slots that ended before the coordinator started are skipped, because
members could not submit while it was down and may still send late reports. Directed slots without a
linear query are skipped too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.controllers.snapshot import RegimeReleases, Snapshot
from fedperf_server.inference.cell_directions import CHANGE, design_cell_query
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog, SyntheticBatch, cross_clusters
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Member, ReceiptRow, ScheduleRow, record_event
from fedperf_shared.exchange import Correction
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.kinds import DIRECTED_REPORT, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import DirectedParameters, ReleaseKind, SlotKey

SYNTHETIC_ROWS = 512  # number of rows of the published batch, a public constant


def design_queries(snapshot: Snapshot) -> tuple[CellQuery, ...]:
    """Design the missing queries of the current window, and return them."""
    period, times = snapshot.period, snapshot.calendar.report_slots
    window = period.window_at(snapshot.at)
    if window is None:
        return ()
    start = period.window_start(window)
    queries = [
        _design(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index), snapshot)
        for index in range(1, len(times))  # the first report is plain
        if start + times[index].opens_after <= snapshot.at
    ]
    return tuple(each for each in queries if each is not None)


def _design(slot: SlotKey, snapshot: Snapshot) -> CellQuery | None:
    """Design and store the query, if it is missing and an organization declared the slot."""
    period = snapshot.period
    with snapshot.database.transaction() as session:
        if releases.has_query(session, period, slot):
            return None
        senders = _find_senders(session, period, slot)
        version = releases.newest_query_version(session) + 1
    if not senders:
        return None
    evidence = snapshot.evidence(slot.window)
    posterior = evidence.posterior
    query = design_cell_query(
        posterior.correction,
        [(posterior.organization_posterior(name, each), each) for name, each in senders],
        slot=slot,
        version=version,
        change=CHANGE if evidence.has_releases_before(slot.window) else 0.0,
    )
    with snapshot.database.transaction() as session:
        releases.store_query(session, period, query, at=snapshot.at)
        record_event(
            session,
            "question_asked",
            at=snapshot.at,
            window=slot.window,
            slot=slot.index,
            version=version,
            reports=evidence.reports,
        )
    return query


def _find_senders(
    session: Session, period: Period, slot: SlotKey
) -> list[tuple[str, DirectedParameters]]:
    senders = []
    for organization_id, schedule in releases.declared_schedules(session, period):
        planned = schedule.slot(slot)
        if planned is not None and kind_of(planned.parameters) is DIRECTED_REPORT:
            senders.append(
                (organization_id.hex(), DIRECTED_REPORT.as_parameters(planned.parameters))
            )
    return senders


@dataclass(frozen=True, slots=True)
class PublicationCounts:
    """The counts of one publication."""

    reports: int
    organizations: int
    rows: int


class PublicationController:
    """Publishes correction and synthetic rows when reports of a period arrive."""

    def __init__(
        self, catalogue: Sequence[MeasuredPlan], predict_with: Callable[[bytes], PredictLog]
    ) -> None:
        """Make a controller for rows on plans and clusters of `catalogue`.

        `predict_with` maps the bytes of a checkpoint to its predictions on catalogue entries.
        """
        self._predict_with = predict_with
        self._catalogue = cross_clusters(
            [PlanOnCluster(each.plan, each.cluster) for each in catalogue]
        )
        self._processed = 0

    def run_once(self, snapshot: Snapshot) -> tuple[PublicationCounts, ...]:
        """Publish again if reports have arrived since the last call."""
        stored = len(snapshot.reports)
        self._fill_buffer(snapshot)
        if stored == self._processed:
            return ()
        window = snapshot.period.nearest_window(snapshot.at)
        evidence = snapshot.evidence(window)
        published = (self._publish(snapshot, window, evidence),) if evidence.reports else ()
        self._processed = stored
        return published

    def _publish(
        self, snapshot: Snapshot, window: int, evidence: RegimeReleases
    ) -> PublicationCounts:
        at, correction = snapshot.at, evidence.posterior.correction
        with snapshot.database.transaction() as session:
            checkpoint = registry.get_version(session, evidence.reference_version).checkpoint
        batch = SyntheticBatch.from_reports(
            evidence.plain,
            correction,
            self._catalogue,
            rows=SYNTHETIC_ROWS,
            predict=self._predict_with(checkpoint),
            seed=len(snapshot.reports),
        )
        with snapshot.database.transaction() as session:
            published = Correction(
                BASIS_VERSION, evidence.reference_version, correction.mean, correction.covariance
            )
            registry.publish_correction(session, published, at=at)
            about = snapshot.regime(window).begins_at
            buffer.publish(session, batch.rows, about=about, at=at)
        return PublicationCounts(evidence.reports, correction.organizations, len(batch.rows))

    def _fill_buffer(self, snapshot: Snapshot) -> None:
        """Store the rows of ended regimes, whose reports have arrived or are not used any more."""
        at, period = snapshot.at, snapshot.period
        window = max(snapshot.reported_window, period.nearest_window(at) - 1)
        while True:
            with snapshot.database.transaction() as session:
                ended = buffer.find_unstored(session, period, window=window)
            if ended is None:
                return
            labelled = ended.labelled(self._predict_with)
            with snapshot.database.transaction() as session:
                buffer.store(session, labelled, at=at)


@dataclass(frozen=True, slots=True)
class MissingReport:
    """A declared report that did not arrive in time, and the name of its organization."""

    organization: str
    slot: SlotKey

    @property
    def slot_name(self) -> str:
        """Return the slot's name in the organization's own programs."""
        return f"report-{self.slot.window}-{self.slot.index}"


class MissingReportController:
    """Lists missing reports of a calendar as its slots end."""

    def __init__(self, *, since: datetime) -> None:
        """Make a controller that skips slots which were over by `since`."""
        self._checked_until = since

    def run_once(self, snapshot: Snapshot) -> tuple[MissingReport, ...]:
        """Return the missing reports of slots that ended since the last call, slot by slot."""
        ended = sorted(self._ended(snapshot))
        missing: tuple[MissingReport, ...] = ()
        if ended:
            with snapshot.database.transaction() as session:
                missing = tuple(
                    each
                    for due, slot in ended
                    for each in _missing(session, snapshot.period, slot, due)
                )
        self._checked_until = max(snapshot.at, self._checked_until)
        return missing

    def _ended(self, snapshot: Snapshot) -> Iterator[tuple[datetime, SlotKey]]:
        """Yield report slots that ended since the last call, with the time when they were due."""
        period, grace = snapshot.period, snapshot.grace
        first = period.nearest_window(self._checked_until - grace) - 1
        last = period.nearest_window(snapshot.at - grace)
        for window in range(max(first, 0), min(last + 1, period.windows)):
            for index, times in enumerate(snapshot.calendar.report_times):
                due = period.window_start(window) + times.replies_after
                if self._checked_until < due + grace <= snapshot.at:
                    yield due, SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)


def _missing(
    session: Session, period: Period, key: SlotKey, due: datetime
) -> Iterator[MissingReport]:
    release_id, has_query = key.release_id(period), releases.has_query(session, period, key)
    for organization_id, schedule in releases.declared_schedules(session, period):
        slot = schedule.slot(key)
        if slot is None or (kind_of(slot.parameters).has_query and not has_query):
            continue
        row = session.get_one(ScheduleRow, (organization_id, period.start))
        receipt = releases.find_receipt(session, organization_id, release_id)
        if row.declared_at < due and receipt is None:
            yield MissingReport(session.get_one(Member, organization_id).name, key)


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
