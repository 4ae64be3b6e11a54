"""The promotion rules decide whether a candidate replaces the promoted model.

A candidate is made by the rounds of one window. It is decided in the next window, when the reports
about its own window have arrived, and before more rounds. Three criteria count. Reports must show a
gain. Public plans and the buffer must not show a loss. Without a loss and without a significant
gain the decision is inconclusive: rounds continue from the candidate, and the next window decides
about the result. The gain of one window's rounds is often too small to be significant.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto, unique

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]

PUBLIC_SLACK = 1.05
"""Maximum factor on the best version's error on public plans, which differ from private ones."""

MAX_FORGETTING = math.log(1.1)
"""Maximum increase of the mean absolute error on a segment's rows over the best, log seconds."""

CONFIDENCE_SDS = 2.326
"""Standard errors between the gain and its lower bound: 99 % one-sided, for a normal distribution.
A year has 13 decisions, so that with noise alone one of eight years has a false promotion. At 95 %
it would be every second year. A better candidate without significance has another chance later."""


@dataclass(frozen=True, slots=True)
class PromotionMetrics:
    """The metrics of one version.

    Attributes:
        public_error: median q-error on public measured plans; None if it was not measured.
        offsets: its log prediction minus the reference's, mean per cell over the public
            catalogue, float64 [CELLS].
        by_segment: mean absolute log error on the rows of each segment of the buffer.
    """

    public_error: float | None
    offsets: Floats
    by_segment: Mapping[Platform, float]


@dataclass(frozen=True, slots=True)
class BestErrors:
    """The smallest errors over the versions that were promoted in a regime.

    Attributes:
        public_error: minimum of `PromotionMetrics.public_error`.
        by_segment: minimum of `PromotionMetrics.by_segment`, by segment.
    """

    public_error: float | None
    by_segment: Mapping[Platform, float]

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
    """The error of the reference in each cell, estimated from the regime's reports.

    Attributes:
        mean: error, log seconds, float64 [CELLS].
        covariance: covariance of the error, float64 [CELLS, CELLS].
        shares: share of the workloads in each cell, float64 [CELLS], sum 1.
    """

    mean: Floats
    covariance: Floats
    shares: Floats


@unique
class PromotionOutcome(Enum):
    """The three outcomes for a candidate."""

    PROMOTE = auto()
    """The candidate replaces the promoted version."""

    INCONCLUSIVE = auto()
    """There is no loss and no significant gain."""

    REJECT = auto()


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The decision about a candidate, and its reason.

    Attributes:
        outcome: the outcome.
        reason: text for the operator.
        gain: reduction in mean squared log error against the promoted version, estimated from
            reports; None without reports.
        gain_error: standard error of the gain.
    """

    outcome: PromotionOutcome
    reason: str
    gain: float | None = None
    gain_error: float | None = None


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
        return PromotionDecision(PromotionOutcome.REJECT, "worse on public plans", gain, error)
    if forgotten is not None:
        return PromotionDecision(
            PromotionOutcome.REJECT, f"forgets {forgotten.name.lower()}", gain, error
        )
    if gain is None or error is None:
        return PromotionDecision(PromotionOutcome.INCONCLUSIVE, "no report speaks for it yet")
    if not gain + CONFIDENCE_SDS * error >= 0:
        return PromotionDecision(
            PromotionOutcome.REJECT, "worse by the reports of the next window", gain, error
        )
    if not gain - CONFIDENCE_SDS * error > 0:
        return PromotionDecision(
            PromotionOutcome.INCONCLUSIVE, "no sure gain by reports yet", gain, error
        )
    reason = "better by reports, no worse on public plans and on the buffer"
    return PromotionDecision(PromotionOutcome.PROMOTE, reason, gain, error)


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


def errors_by_segment(segments: Sequence[Platform], errors: Floats) -> dict[Platform, float]:
    """Return the mean absolute log error of each segment's rows.

    Args:
        segments: segment of every row of the buffer.
        errors: log prediction minus label of each, [rows].
    """
    by_segment: dict[Platform, list[float]] = defaultdict(list)
    for segment, error in zip(segments, np.abs(errors).tolist(), strict=True):
        by_segment[segment].append(error)
    return {segment: float(np.mean(by_segment[segment])) for segment in sorted(by_segment)}


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
