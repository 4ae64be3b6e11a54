"""The promotion controller decides once per window about the newest candidate.

It decides when the window's reports have arrived and before the window's rounds. Rounds wait a
while for the decision, and never start from an undecided candidate (`state.round_calendar`).

A decision is stored in one transaction. A controller that was killed before it decides again, with
the same result. Older candidates are steps towards the newest one and are settled with it. If it is
promoted, they keep their status. If it is rejected, they are rejected too, because repeating the
test on each of them would promote one by chance. If the decision is inconclusive, rounds continue
from the candidate and the next window decides about their result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import RegimeReleases, Snapshot
from fedperf_server.inference.promotion_rules import (
    BestErrors,
    Floats,
    PromotionMetrics,
    PromotionOutcome,
    ReportedOffset,
    decide_promotion,
    errors_by_segment,
)
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog, cell_shares
from fedperf_server.state import registry, round_calendar
from fedperf_server.state.database import (
    Database,
    PromotionRecord,
    VersionStatus,
    record_event,
)
from fedperf_server.state.registry import ModelVersion
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.public_plans import anchors_of
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.workflow.vocabulary import Platform

_STATUSES = {
    PromotionOutcome.PROMOTE: VersionStatus.PROMOTED,
    PromotionOutcome.INCONCLUSIVE: VersionStatus.CANDIDATE,
    PromotionOutcome.REJECT: VersionStatus.REJECTED,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """The candidate to decide about, and the evidence.

    Attributes:
        steps: older candidates that are settled with it.
        candidate: the newest candidate.
        promoted: the current version.
        earlier: other versions promoted in the regime, including its reference.
        reference: reference version of the regime.
        reported: offsets estimated from the regime's releases.
        rows: rows of the buffer.
    """

    steps: tuple[int, ...]
    candidate: ModelVersion
    promoted: ModelVersion
    earlier: tuple[ModelVersion, ...]
    reference: ModelVersion
    reported: ReportedOffset | None
    rows: Sequence[SyntheticRow]


class NothingToRollBackError(InvalidInputError):
    """Raised when the first version is to be rolled back."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"version {version} cannot be rolled back: no other version was promoted before it"
        )


def roll_back(session: Session, reason: str, *, at: datetime) -> tuple[int, int]:
    """Reject the promoted version for an operator; return its number and the current one.

    All candidates newer than the version promoted before are rejected too: the steps towards the
    rejected version, and everything that was trained from it.

    Raises:
        NothingToRollBackError: no other version was promoted.
    """
    versions = [each.version for each in registry.versions(session) if each.promoted]
    if len(versions) < 2:  # noqa: PLR2004
        raise NothingToRollBackError(registry.current_version(session))
    current, rejected = versions[-2:]
    registry.reject(session, rejected, f"taken back: {reason}", at=at)
    for each in round_calendar.candidates_after(session, current):
        reason = f"goes with version {rejected}, which was taken back"
        registry.reject(session, each, reason, at=at)
    record_event(session, "version_taken_back", at=at, version=rejected)
    return rejected, current


class PromotionController:
    """Decides about the candidates of a calendar."""

    def __init__(
        self,
        database: Database,
        calendar: ReleaseCalendar,
        catalogue: Sequence[MeasuredPlan],
        predict_with: Callable[[bytes], PredictLog],
        *,
        grace: timedelta,
    ) -> None:
        """Make a controller that compares versions on the anchors of `catalogue`.

        Anchors include several machines, so that learning about other machines than the one that
        the catalogue was measured on is visible. `predict_with` maps the bytes of a checkpoint to
        its predictions on them. Reports may be `grace` late.
        """
        self._predict_with = predict_with
        self._database = database
        self._calendar = calendar
        self._entries = anchors_of(catalogue)
        self._cells = np.array([cell_of(each.plan).index for each in self._entries], dtype=np.int64)
        self._grace = grace

    def run_once(self, snapshot: Snapshot) -> tuple[PromotionRecord, ...]:
        """Decide about the waiting candidate, if there is one and the reports have arrived."""
        window = self._calendar.reported_window(snapshot.at - self._grace)
        if window < 0:
            return ()
        with self._database.transaction() as session:
            case = self._case(session, snapshot, window)
        if case is None:
            return ()
        decision = self._decide(case, at=snapshot.at)
        with self._database.transaction() as session:
            if not self._is_unchanged(session, window, case):
                return ()
            self._settle(session, case, decision)
        return (decision,)

    def _case(self, session: Session, snapshot: Snapshot, window: int) -> _Case | None:
        """Return the newest candidate from before `window`, with the evidence."""
        waiting = self._waiting(session, window)
        if not waiting:
            return None
        evidence = snapshot.evidence(window)
        *earlier, promoted = registry.promoted_since(session, evidence.reference_version)
        return _Case(
            waiting[:-1],
            registry.get_version(session, waiting[-1]),
            promoted,
            tuple(earlier),
            registry.get_version(session, evidence.reference_version),
            _reported(evidence),
            buffer.rows(session),
        )

    def _waiting(self, session: Session, window: int) -> tuple[int, ...]:
        return round_calendar.undecided(session, self._calendar, window=window, grace=self._grace)

    def _is_unchanged(self, session: Session, window: int, case: _Case) -> bool:
        """Return whether no operator rolled back a version during the decision."""
        waiting = self._waiting(session, window)
        current = registry.current_version(session)
        return (*case.steps, case.candidate.version) == waiting and (
            case.promoted.version == current
        )

    def _settle(self, session: Session, case: _Case, decision: PromotionRecord) -> None:
        at = decision.decided_at
        registry.decide(session, decision)
        is_rejected = decision.status is VersionStatus.REJECTED
        for step in case.steps if is_rejected else ():
            reason = f"goes with version {decision.version}, which was rejected"
            registry.reject(session, step, reason, at=at)
        record_event(
            session,
            "version_judged",
            at=at,
            version=decision.version,
            standing=str(decision.status),
            reason=decision.reason,
        )

    def _decide(self, case: _Case, *, at: datetime) -> PromotionRecord:
        predict_with = self._predict_with
        reference = predict_with(case.reference.checkpoint)(self._entries)
        candidate, promoted = (
            self._metrics(each, predict_with(each.checkpoint), case.rows, reference)
            for each in (case.candidate, case.promoted)
        )
        earlier = (_by_segment(predict_with(e.checkpoint), case.rows) for e in case.earlier)
        best = BestErrors.over(
            (each.public_error for each in (case.promoted, *case.earlier)),
            (promoted.by_segment, *earlier),
        )
        decision = decide_promotion(candidate, promoted, best=best, reported=case.reported)
        return PromotionRecord(
            version=case.candidate.version,
            status=_STATUSES[decision.outcome],
            reason=decision.reason,
            gain=decision.gain,
            gain_error=decision.gain_error,
            by_segment=candidate.by_segment,
            decided_at=at,
        )

    def _metrics(
        self,
        version: ModelVersion,
        predict_log: PredictLog,
        rows: Sequence[SyntheticRow],
        reference: Floats,
    ) -> PromotionMetrics:
        offsets = self._by_cell(predict_log(self._entries) - reference)
        return PromotionMetrics(version.public_error, offsets, _by_segment(predict_log, rows))

    def _by_cell(self, values: Floats) -> Floats:
        """Return the mean over the entries of each cell, 0 without any, float64 [CELLS]."""
        sums = np.bincount(self._cells, values, minlength=CELLS)
        return np.asarray(sums / np.maximum(np.bincount(self._cells, minlength=CELLS), 1))


def _by_segment(predict_log: PredictLog, rows: Sequence[SyntheticRow]) -> dict[Platform, float]:
    """Return a version's mean absolute log error on the rows of each segment of the buffer."""
    if not rows:
        return {}
    plans = [PlanOnCluster(row.plan, row.cluster) for row in rows]
    errors = predict_log(plans) - np.array([row.log_seconds for row in rows])
    return errors_by_segment([row.segment for row in rows], errors)


def _reported(evidence: RegimeReleases) -> ReportedOffset | None:
    """Return the offsets estimated from a regime's releases, or None without any."""
    if not evidence.reports:
        return None
    correction = evidence.posterior.correction
    shares = cell_shares(evidence.plain, reference_version=evidence.reference_version)
    return ReportedOffset(correction.mean, correction.covariance, shares)
