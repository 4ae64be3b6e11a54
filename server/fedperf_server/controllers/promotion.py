"""The promotion controller decides once per window about the newest candidate.

It decides when the window's reports have arrived and before the window's rounds. Rounds wait a
while for the decision, and never start from an undecided candidate (`state.round_calendar`).

A decision is stored in one transaction. A controller that was killed before it decides again, with
the same result. Older candidates are steps towards the newest one and are settled with it. If it is
promoted, they keep their status. If it is rejected, they are rejected too, because repeating the
test on each of them would promote one by chance. If the decision is inconclusive, rounds continue
from the candidate and the next window decides about their result.

Three criteria count. Reports must show a gain. Public plans and the buffer must not show a loss.
Without a loss and without a significant gain the decision is inconclusive. The gain of one window's
rounds is often too small to be significant.

- Reports: the posterior of mu, the error of the reference in each cell, is N(m, S). A version that
  differs from the reference by d has the error mu - d. So version c is better than version p by
  sum_c w_c [(mu - d_p)^2 - (mu - d_c)^2], which is linear in mu: mean and standard error follow.
  w_c is the estimated share of workloads. d is computed on public plans, on the machine that they
  ran on and in a small container (`public_plans.anchors_of`). A candidate is promoted only if the
  lower bound of its gain, `CONFIDENCE_SDS` standard errors below the mean, is above 0. So a
  candidate made of noise alone is promoted in at most 1 of 100 decisions, unless it is better. A
  round cannot detect such a candidate, because noise looks like any reply.
- Public measured plans: the median q-error is at most `PUBLIC_SLACK` times the best one's.
- Buffer: on the synthetic rows of each segment of earlier regimes, the mean log error is at most
  `MAX_FORGETTING` above the best one's. Otherwise the candidate has forgotten.

The best is taken over the versions promoted in the regime, including its reference, so that small
losses do not add up from window to window.

Without reports of the regime the decision is inconclusive, because public plans are no
organization's workloads.

The reports are not a fresh sample. They cover the window in which the candidate was made. As far as
that window was over, the candidate was trained on the same executions, and workloads recur. But
training is private. The budget's epsilon bounds the influence of any single workload on a model. So
it also bounds how much lower the error on these workloads can be than on unseen ones (Dwork et al.
2015, "Preserving statistical validity in adaptive data analysis"). No model is trained on the run
times of the public plans.

Everything here is public or was released, so it costs no privacy. One organization's influence is
that of its reports (`corrections`) and of its update.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from fedperf_server.controllers.snapshot import RegimeReleases, Snapshot
from fedperf_server.rehearsal import buffer
from fedperf_server.rehearsal.synthetic_batch import PredictLog, cell_shares
from fedperf_server.state import registry, round_calendar
from fedperf_server.state.database import (
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
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]

# Maximum factor on the best version's error on public plans, which differ from private ones.
PUBLIC_SLACK = 1.05

# Maximum increase of the mean absolute error on a segment's rows over the best, log seconds.
MAX_FORGETTING = math.log(1.1)

# Standard errors between the gain and its lower bound: 99 % one-sided, for a normal distribution. A
# year has 13 decisions, so that with noise alone one of eight years has a false promotion. At 95 %
# it would be every second year. A better candidate without significance has another chance later.
CONFIDENCE_SDS = 2.326


@dataclass(frozen=True, slots=True)
class PromotionMetrics:
    """The metrics of one version."""

    # Median q-error on public measured plans; None if it was not measured.
    public_error: float | None
    # Its log prediction minus the reference's, mean per cell over the public catalogue, float64
    # [CELLS].
    offsets: Floats
    # Mean absolute log error on the rows of each segment of the buffer.
    by_segment: Mapping[Platform, float]


@dataclass(frozen=True, slots=True)
class BestErrors:
    """The smallest errors over the versions that were promoted in a regime."""

    public_error: float | None  # minimum of `PromotionMetrics.public_error`
    by_segment: Mapping[Platform, float]  # minimum of `PromotionMetrics.by_segment`, by segment

    @classmethod
    def over(
        cls, public_errors: Iterable[float | None], by_segment: Iterable[Mapping[Platform, float]]
    ) -> "BestErrors":
        """Return the smallest errors of any version on the same plans and rows."""
        smallest: dict[Platform, float] = {}
        for segments in by_segment:
            for segment, error in segments.items():
                smallest[segment] = min(error, smallest.get(segment, math.inf))
        measured = (each for each in public_errors if each is not None)
        return cls(min(measured, default=None), smallest)


@dataclass(frozen=True, slots=True)
class ReportedOffset:
    """The error of the reference in each cell, estimated from the regime's reports."""

    mean: Floats  # error, log seconds, float64 [CELLS]
    covariance: Floats  # covariance of the error, float64 [CELLS, CELLS]
    shares: Floats  # share of the workloads in each cell, float64 [CELLS], sum 1


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The decision about a candidate, and its reason."""

    status: VersionStatus  # its status from now on. An inconclusive candidate stays a candidate.
    reason: str  # text for the operator
    # Reduction in mean squared log error against the promoted version, estimated from reports; None
    # without reports.
    gain: float | None = None
    gain_error: float | None = None  # standard error of the gain


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """The candidate to decide about, and the evidence."""

    steps: tuple[int, ...]  # older candidates that are settled with it
    candidate: ModelVersion  # the newest candidate
    promoted: ModelVersion  # the current version
    # Other versions promoted in the regime, including its reference.
    earlier: tuple[ModelVersion, ...]
    reference: ModelVersion  # reference version of the regime
    reported: ReportedOffset | None  # offsets estimated from the regime's releases
    rows: Sequence[SyntheticRow]  # rows of the buffer


def roll_back(session: Session, reason: str, *, at: datetime) -> tuple[int, int]:
    """Reject the promoted version for an operator; return its number and the current one.

    All candidates newer than the version promoted before are rejected too: the steps towards the
    rejected version, and everything that was trained from it.

    Raises:
        InvalidInputError: no other version was promoted.
    """
    versions = [each.version for each in registry.versions(session) if each.promoted]
    if len(versions) < 2:  # noqa: PLR2004
        raise InvalidInputError(
            f"version {registry.current_version(session)} cannot be rolled back: no other version "
            "was promoted before it"
        )
    current, rejected = versions[-2:]
    registry.reject(session, rejected, f"taken back: {reason}", at=at)
    for each in round_calendar.candidates_after(session, current):
        reason = f"goes with version {rejected}, which was taken back"
        registry.reject(session, each, reason, at=at)
    record_event(session, "version_taken_back", at=at, version=rejected)
    return rejected, current


class PromotionController:
    """Decides about the candidates of a period."""

    def __init__(
        self, catalogue: Sequence[MeasuredPlan], predict_with: Callable[[bytes], PredictLog]
    ) -> None:
        """Make a controller that compares versions on the anchors of `catalogue`.

        Anchors include several machines, so that learning about other machines than the one that
        the catalogue was measured on is visible. `predict_with` maps the bytes of a checkpoint to
        its predictions on them.
        """
        self._predict_with = predict_with
        self._entries = anchors_of(catalogue)
        self._cells = np.array([cell_of(each.plan).index for each in self._entries], dtype=np.int64)

    def run_once(self, snapshot: Snapshot) -> tuple[PromotionRecord, ...]:
        """Decide about the waiting candidate, if there is one and the reports have arrived."""
        if snapshot.reported_window < 0:
            return ()
        with snapshot.database.transaction() as session:
            case = _find_case(session, snapshot)
        if case is None:
            return ()
        decision = self._decide(case, at=snapshot.at)
        with snapshot.database.transaction() as session:
            # An operator may have rolled back a version during the decision.
            if (*case.steps, case.candidate.version) != _waiting(session, snapshot):
                return ()
            if case.promoted.version != registry.current_version(session):
                return ()
            _settle(session, case, decision)
        return (decision,)

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
            by_segment=candidate.by_segment,
            decided_at=at,
            **asdict(decision),
        )

    def _metrics(
        self,
        version: ModelVersion,
        predict_log: PredictLog,
        rows: Sequence[SyntheticRow],
        reference: Floats,
    ) -> PromotionMetrics:
        sums = np.bincount(self._cells, predict_log(self._entries) - reference, minlength=CELLS)
        offsets = sums / np.maximum(np.bincount(self._cells, minlength=CELLS), 1)
        return PromotionMetrics(version.public_error, offsets, _by_segment(predict_log, rows))


def _find_case(session: Session, snapshot: Snapshot) -> _Case | None:
    """Return the newest candidate that waits for the reports, with the evidence."""
    waiting = _waiting(session, snapshot)
    if not waiting:
        return None
    evidence = snapshot.evidence(snapshot.reported_window)
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


def _waiting(session: Session, snapshot: Snapshot) -> tuple[int, ...]:
    return round_calendar.undecided(
        session, snapshot.calendar, window=snapshot.reported_window, grace=snapshot.grace
    )


def _settle(session: Session, case: _Case, decision: PromotionRecord) -> None:
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


def _by_segment(predict_log: PredictLog, rows: Sequence[SyntheticRow]) -> dict[Platform, float]:
    """Return a version's mean absolute log error on the rows of each segment of the buffer."""
    if not rows:
        return {}
    plans = [PlanOnCluster(row.plan, row.cluster) for row in rows]
    errors = np.abs(predict_log(plans) - np.array([row.log_seconds for row in rows])).tolist()
    by_segment: dict[Platform, list[float]] = defaultdict(list)
    for row, error in zip(rows, errors, strict=True):
        by_segment[row.segment].append(error)
    return {segment: float(np.mean(by_segment[segment])) for segment in sorted(by_segment)}


def _reported(evidence: RegimeReleases) -> ReportedOffset | None:
    """Return the offsets estimated from a regime's releases, or None without any."""
    if not evidence.reports:
        return None
    correction = evidence.posterior.correction
    shares = cell_shares(evidence.plain, reference_version=evidence.reference_version)
    return ReportedOffset(correction.mean, correction.covariance, shares)


def decide_promotion(
    candidate: PromotionMetrics,
    promoted: PromotionMetrics,
    *,
    best: BestErrors,
    reported: ReportedOffset | None,
) -> PromotionDecision:
    """Decide whether a candidate replaces the promoted version.

    The criteria are public plans, forgetting, and reports. The first that fails gives the reason.
    Without reports nothing is promoted.

    Args:
        candidate: metrics of the candidate.
        promoted: metrics of the current version.
        best: smallest errors of the regime's promoted versions.
        reported: offsets estimated from the regime's reports; None without any.
    """
    gain, error = (None, None) if reported is None else compute_gain(candidate, promoted, reported)
    forgotten = _most_forgotten(candidate, best)
    if not _is_at_most(candidate.public_error, best.public_error, PUBLIC_SLACK):
        return PromotionDecision(VersionStatus.REJECTED, "worse on public plans", gain, error)
    if forgotten is not None:
        return PromotionDecision(
            VersionStatus.REJECTED, f"forgets {forgotten.name.lower()}", gain, error
        )
    if gain is None or error is None:
        return PromotionDecision(VersionStatus.CANDIDATE, "no report supports it yet")
    if not gain + CONFIDENCE_SDS * error >= 0:
        return PromotionDecision(
            VersionStatus.REJECTED, "worse by the reports of the next window", gain, error
        )
    if not gain - CONFIDENCE_SDS * error > 0:
        return PromotionDecision(
            VersionStatus.CANDIDATE, "no sure gain by reports yet", gain, error
        )
    reason = "better by reports, no worse on public plans and on the buffer"
    return PromotionDecision(VersionStatus.PROMOTED, reason, gain, error)


def compute_gain(
    candidate: PromotionMetrics, promoted: PromotionMetrics, reported: ReportedOffset
) -> tuple[float, float]:
    """Return the candidate's gain in mean squared log error, and its standard error.

    Args:
        candidate: with its offsets from the reference, log seconds [CELLS].
        promoted: likewise.
        reported: shares of workloads, and errors of the reference.
    """
    step = candidate.offsets - promoted.offsets
    weights = 2 * reported.shares * step
    gain = float(
        weights @ reported.mean - reported.shares @ (candidate.offsets**2 - promoted.offsets**2)
    )
    return gain, math.sqrt(max(float(weights @ reported.covariance @ weights), 0.0))


def _most_forgotten(candidate: PromotionMetrics, best: BestErrors) -> Platform | None:
    """Return the segment with the largest excessive loss against the best, or None."""
    losses = {
        segment: error - best.by_segment.get(segment, math.inf)
        for segment, error in candidate.by_segment.items()
    }
    excessive = [segment for segment, each in losses.items() if not each <= MAX_FORGETTING]
    return max(excessive, key=lambda segment: losses[segment], default=None)


def _is_at_most(error: float | None, other: float | None, slack: float) -> bool:
    """Return whether both errors are measured and `error <= slack * other`, False for NaN."""
    return error is not None and other is not None and error <= slack * other
