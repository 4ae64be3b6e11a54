"""The desk that judges candidates: once a window, when its reports are in, before its rounds.

Rounds wait a while for a verdict, and never start from what has none (`state.promotion_graph`).

A durable step like the others: the candidate is found by how it stands in the registry, and
its verdict is one transaction. Killed before it, the desk judges again and finds the same;
killed after it, there is no candidate left. A window has one verdict: the newest candidate is
judged, and the ones before it, steps on its way, are settled with it. Where it is promoted they
are passed over and stay what they are; where it is rejected they are rejected with it, since
a test that is repeated on each of them would let one through by chance. Where it is left open
rounds go on from it, and the next window judges what they made of it.
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
from fedperf_server.state import audit, promotion_graph, registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import ModelVersion, PromotionRecord, VersionStatus
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.public_plans import anchors_of
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.workflow.vocabulary import Platform

_STANDINGS = {
    PromotionOutcome.PROMOTE: VersionStatus.PROMOTED,
    PromotionOutcome.LEAVE_OPEN: VersionStatus.CANDIDATE,
    PromotionOutcome.REJECT: VersionStatus.REJECTED,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """What is judged, and by what.

    Attributes:
        steps: candidates that are settled with it.
        candidate: that is judged.
        promoted: the version in force.
        earlier: other versions that were promoted in the epoch, its reference included.
        reference: of the epoch.
        reported: what its releases tell.
        rows: the buffer.
    """

    steps: tuple[int, ...]
    candidate: ModelVersion
    promoted: ModelVersion
    earlier: tuple[ModelVersion, ...]
    reference: ModelVersion
    reported: ReportedOffset | None
    rows: Sequence[SyntheticRow]


class NothingToTakeBackError(InvalidInputError):
    """The promoted version is the first one, which everything is measured by."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} is promoted and no other was before it")


def take_back(session: Session, reason: str, *, at: datetime) -> tuple[int, int]:
    """Reject the promoted version, as the operator wants; its number and the one in force now.

    With it go all candidates that are newer than the latter: steps on the way to what is taken
    back, and what was trained from it.

    Raises:
        NothingToTakeBackError: no other version was promoted.
    """
    versions = [each.version for each in registry.versions(session) if each.promoted]
    if len(versions) < 2:  # noqa: PLR2004
        raise NothingToTakeBackError(registry.in_force(session))
    now, taken = versions[-2:]
    registry.reject(session, taken, f"taken back: {reason}", at=at)
    for each in promotion_graph.candidates_after(session, now):
        registry.reject(session, each, f"goes with version {taken}, which was taken back", at=at)
    audit.record(session, "version_taken_back", {"version": taken}, at=at)
    return taken, now


class PromotionController:
    """Judges the candidates of a calendar."""

    def __init__(
        self,
        database: Database,
        calendar: ReleaseCalendar,
        catalogue: Sequence[MeasuredPlan],
        predict_with: Callable[[bytes], PredictLog],
        *,
        grace: timedelta,
    ) -> None:
        """Look at differences on the anchors of `catalogue`; reports may be `grace` late.

        Anchors tell machines apart: what a candidate learned of others than the one that the
        catalogue was measured on would not be seen. `predict_with` goes from a checkpoint's
        bytes to its predictions on them.
        """
        self._predict_with = predict_with
        self._database = database
        self._calendar = calendar
        self._entries = anchors_of(catalogue)
        self._cells = np.array([cell_of(each.plan).index for each in self._entries], dtype=np.int64)
        self._grace = grace

    def look(self, snapshot: Snapshot) -> tuple[PromotionRecord, ...]:
        """Judge the candidate that waits, if there is one and the window's reports are in."""
        window = self._calendar.reported_window(snapshot.at - self._grace)
        if window < 0:
            return ()
        with self._database.transaction() as session:
            case = self._case(session, snapshot, window)
        if case is None:
            return ()
        verdict = self._verdict(case, at=snapshot.at)
        with self._database.transaction() as session:
            if not self._is_as_it_was(session, window, case):
                return ()
            self._settle(session, case, verdict)
        return (verdict,)

    def _case(self, session: Session, snapshot: Snapshot, window: int) -> _Case | None:
        """What the reports of `window` judge: the newest candidate from before it."""
        waiting = self._waiting(session, window)
        if not waiting:
            return None
        known = snapshot.evidence(window)
        *earlier, promoted = registry.promoted_since(session, known.reference_version)
        return _Case(
            waiting[:-1],
            registry.get_version(session, waiting[-1]),
            promoted,
            tuple(earlier),
            registry.get_version(session, known.reference_version),
            _reported(known),
            buffer.rows(session),
        )

    def _waiting(self, session: Session, window: int) -> tuple[int, ...]:
        return promotion_graph.undecided(session, self._calendar, window=window, grace=self._grace)

    def _is_as_it_was(self, session: Session, window: int, case: _Case) -> bool:
        """Whether no operator took the version in force back while its candidate was judged."""
        waiting = self._waiting(session, window)
        in_force = registry.in_force(session)
        return (*case.steps, case.candidate.version) == waiting and (
            case.promoted.version == in_force
        )

    def _settle(self, session: Session, case: _Case, verdict: PromotionRecord) -> None:
        at = verdict.decided_at
        registry.decide(session, verdict)
        is_rejected = verdict.standing is VersionStatus.REJECTED
        for step in case.steps if is_rejected else ():
            said = f"goes with version {verdict.version}, which was rejected"
            registry.reject(session, step, said, at=at)
        detail: audit.Detail = {
            "version": verdict.version,
            "standing": str(verdict.standing),
            "reason": verdict.reason,
        }
        audit.record(session, "version_judged", detail, at=at)

    def _verdict(self, case: _Case, *, at: datetime) -> PromotionRecord:
        predict_with = self._predict_with
        reference = predict_with(case.reference.checkpoint)(self._entries)
        candidate, promoted = (
            self._merits(each, predict_with(each.checkpoint), case.rows, reference)
            for each in (case.candidate, case.promoted)
        )
        earlier = (_by_segment(predict_with(e.checkpoint), case.rows) for e in case.earlier)
        best = BestErrors.of(
            (each.public_error for each in (case.promoted, *case.earlier)),
            (promoted.by_segment, *earlier),
        )
        found = decide_promotion(candidate, promoted, best=best, reported=case.reported)
        return PromotionRecord(
            case.candidate.version,
            _STANDINGS[found.ruling],
            found.reason,
            found.gain,
            found.gain_error,
            candidate.by_segment,
            at,
        )

    def _merits(
        self,
        version: ModelVersion,
        predict_log: PredictLog,
        rows: Sequence[SyntheticRow],
        reference: Floats,
    ) -> PromotionMetrics:
        apart = self._by_cell(predict_log(self._entries) - reference)
        return PromotionMetrics(version.public_error, apart, _by_segment(predict_log, rows))

    def _by_cell(self, values: Floats) -> Floats:
        """Mean of the entries of each cell, 0 where there is none, float64 [CELLS]."""
        sums = np.bincount(self._cells, values, minlength=CELLS)
        return np.asarray(sums / np.maximum(np.bincount(self._cells, minlength=CELLS), 1))


def _by_segment(predict_log: PredictLog, rows: Sequence[SyntheticRow]) -> dict[Platform, float]:
    """A version's mean absolute log error on the rows of each segment of the buffer."""
    if not rows:
        return {}
    asked = [PlanOnCluster(row.plan, row.cluster) for row in rows]
    errors = predict_log(asked) - np.array([row.log_seconds for row in rows])
    return errors_by_segment([row.segment for row in rows], errors)


def _reported(known: RegimeReleases) -> ReportedOffset | None:
    """What an epoch's releases tell; None where there are none."""
    if not known.reports:
        return None
    correction = known.learned.correction
    shares = cell_shares(known.plain, reference_version=known.reference_version)
    return ReportedOffset(correction.mean, correction.covariance, shares)
