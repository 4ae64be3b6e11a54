"""Rules that say whether a candidate replaces the promoted model, by reports, plans and buffer.

A candidate is made by the rounds of one window. Three yardsticks judge it in the next window, once
the reports of its own have arrived and before more rounds. The first has to speak for it, with
evidence; the others only must not speak against it. Where nothing speaks against it and the first
is not sure yet, it stays open: rounds go on from it, and the next window judges the result. A
window's rounds alone gain less than its reports can tell.

- reports: mu, how far the reference is off in each cell, is believed to be N(m, S). A version that
  differs from the reference by d is off by mu - d. So of two versions p and c the second is better
  by sum_c w_c [(mu - d_p)^2 - (mu - d_c)^2], which is linear in mu: mean and standard error follow.
  w_c is the believed share of workloads. d is computed on public plans, on the machine that they
  ran on and in a small container (`public_plans.anchors_of`). A candidate is promoted only if the
  lower end of its gain, `SURE` standard errors below the mean, is above 0. So a candidate that
  noise alone made passes in at most 1 of 100 verdicts, unless it is truly better. A round cannot
  recognise such a candidate: noise looks like any reply.
- public measured plans: its median q-error is at most `PUBLIC_SLACK` times the best one's.
- the buffer: on the synthetic rows of earlier epochs, segment by segment, its mean log error is at
  most `MOST_FORGOTTEN` above the best one's; else it has forgotten.

The best is taken over the versions that were promoted in the epoch, its reference included, so that
small losses do not add up from window to window.

Without reports of the epoch nothing speaks for a candidate, and it stays open: public plans are
nobody's workloads.

The reports are no fresh sample. They are about the window in which the candidate was made. As far
as that window was over, the candidate's training saw the same executions, and workloads recur. But
it saw them privately. The budget's epsilon bounds what a model can owe to any single workload. So
it also bounds how much better the model can look on them than on workloads that it never saw (Dwork
et al. 2015, "Preserving statistical validity in adaptive data analysis"). And no model is trained
on the run times of the public plans.

Everything here is public or was released: it costs no privacy. One organization's influence is that
of its reports (`corrections.influence_bound`) and of its update.
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
"""Factor on the best version's error on public plans: what organizations changed may differ."""

MOST_FORGOTTEN = math.log(1.1)
"""By so much the mean absolute error on a segment's rows may be above the best, log seconds."""

SURE = 2.326
"""Standard errors from the gain to its lower end: 99 % one-sided, of a normal distribution. A year
has 13 verdicts, so that with nothing but noise one of eight years sees a false promotion; at 95 %
it would be every second year. What is truly better and not sure yet has the next window."""


@dataclass(frozen=True, slots=True)
class PromotionMetrics:
    """The figures by which one version is judged.

    Attributes:
        public_error: median q-error on public measured plans; None where it was not measured.
        apart: its log prediction minus the reference's, mean per cell over the public
            catalogue, float64 [CELLS].
        by_segment: mean absolute log error on the rows of each segment of the buffer.
    """

    public_error: float | None
    apart: Floats
    by_segment: Mapping[Platform, float]


@dataclass(frozen=True, slots=True)
class BestErrors:
    """The least errors of the versions that were promoted in an epoch, each for itself.

    Attributes:
        public_error: as in `PromotionMetrics`.
        by_segment: as in `PromotionMetrics`.
    """

    public_error: float | None
    by_segment: Mapping[Platform, float]

    @classmethod
    def of(
        cls, public_errors: Iterable[float | None], by_segment: Iterable[Mapping[Platform, float]]
    ) -> "BestErrors":
        """The least errors that any version reaches on the same plans and rows."""
        least: dict[Platform, float] = {}
        for segments in by_segment:
            for segment, error in segments.items():
                least[segment] = min(error, least.get(segment, math.inf))
        measured = (each for each in public_errors if each is not None)
        return cls(min(measured, default=None), least)


@dataclass(frozen=True, slots=True)
class ReportedOffset:
    """The error of the reference in each cell, as the epoch's reports tell it.

    Attributes:
        mean: log seconds it is off by, float64 [CELLS].
        covariance: of that, float64 [CELLS, CELLS].
        shares: of the workloads in each cell, float64 [CELLS], sum 1.
    """

    mean: Floats
    covariance: Floats
    shares: Floats


@unique
class PromotionOutcome(Enum):
    """The three verdicts on a candidate."""

    PROMOTE = auto()
    """It takes the promoted version's place."""

    LEAVE_OPEN = auto()
    """Nothing speaks against it, nothing surely for it."""

    REJECT = auto()


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The verdict on a candidate, and its reason.

    Attributes:
        ruling: the verdict.
        reason: in words, for the operator.
        gain: how much smaller the mean squared log error is than the promoted version's, by
            reports; None without reports.
        gain_error: its standard error.
    """

    ruling: PromotionOutcome
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
    """Whether a candidate takes the promoted version's place.

    Three yardsticks are asked: public plans, what was forgotten, and reports. The first that
    holds it back gives the reason. Without reports nothing is promoted.

    Args:
        candidate: what is known of it.
        promoted: what is known of the version in force.
        best: least errors of the epoch's promoted versions.
        reported: what the epoch's reports tell; None without any.
    """
    gain, error = (None, None) if reported is None else gain_of(candidate, promoted, reported)
    forgotten = _most_forgotten(candidate, best)
    if not _is_at_most(candidate.public_error, best.public_error, PUBLIC_SLACK):
        return PromotionDecision(PromotionOutcome.REJECT, "worse on public plans", gain, error)
    if forgotten is not None:
        return PromotionDecision(
            PromotionOutcome.REJECT, f"forgets {forgotten.name.lower()}", gain, error
        )
    if gain is None or error is None:
        return PromotionDecision(PromotionOutcome.LEAVE_OPEN, "no report speaks for it yet")
    if not gain + SURE * error >= 0:
        return PromotionDecision(
            PromotionOutcome.REJECT, "worse by the reports of the next window", gain, error
        )
    if not gain - SURE * error > 0:
        return PromotionDecision(
            PromotionOutcome.LEAVE_OPEN, "no sure gain by reports yet", gain, error
        )
    reason = "better by reports, no worse on public plans and on the buffer"
    return PromotionDecision(PromotionOutcome.PROMOTE, reason, gain, error)


def gain_of(
    candidate: PromotionMetrics, promoted: PromotionMetrics, reported: ReportedOffset
) -> tuple[float, float]:
    """The candidate's gain in mean squared log error, and the standard error of that.

    Args:
        candidate: with its differences from the reference, log seconds [CELLS].
        promoted: likewise.
        reported: where workloads lie, and how far the reference is off there.
    """
    step = candidate.apart - promoted.apart
    towards = 2 * reported.shares * step
    gain = float(
        towards @ reported.mean - reported.shares @ (candidate.apart**2 - promoted.apart**2)
    )
    return gain, math.sqrt(max(float(towards @ reported.covariance @ towards), 0.0))


def errors_by_segment(segments: Sequence[Platform], errors: Floats) -> dict[Platform, float]:
    """Mean absolute log error of each segment's rows.

    Args:
        segments: of every row of the buffer.
        errors: log prediction minus label of each, [rows].
    """
    found: dict[Platform, list[float]] = defaultdict(list)
    for segment, error in zip(segments, np.abs(errors).tolist(), strict=True):
        found[segment].append(error)
    return {segment: float(np.mean(found[segment])) for segment in sorted(found)}


def _most_forgotten(candidate: PromotionMetrics, best: BestErrors) -> Platform | None:
    """The segment on which the candidate lost most beside the best, if it lost too much."""
    lost = {
        segment: error - best.by_segment.get(segment, math.inf)
        for segment, error in candidate.by_segment.items()
    }
    too_much = [segment for segment, each in lost.items() if not each <= MOST_FORGOTTEN]
    return max(too_much, key=lambda segment: lost[segment], default=None)


def _is_at_most(error: float | None, other: float | None, slack: float) -> bool:
    """Whether an error was measured and is at most `slack` times another one; NaN never is."""
    return error is not None and other is not None and error <= slack * other
