"""Distributions of errors, and estimates with all that is known about how far off they may be.

Median, interval, upper end and the chance to keep a deadline are all read off one `Distribution` of
log seconds, so that they cannot contradict each other: `quantile` and `cdf` are inverse to each
other up to the steps between errors, neither ever falls, and half of the mass lies on either side
of the median.

A `ErrorDistribution` is told by errors of folds that mimic the question, by weights that had not
seen them. *Finite-sample promise*: let a new workload's error be exchangeable with those of n
workloads. Then it is as likely to have any rank among them, and stays at or below the k-th smallest
with chance at least k / (n + 1). From 79 workloads on a 90 % interval ends at ranks of signed
errors, ceil(0.95 (n + 1)) from either side, and covers at least 90 %. From 9 on it does at ranks of
absolute errors, as likely on either side. Of fewer the interval holds at least all errors there
were, and as much as a Student t says that begins at what is usual: a guess, no promise. Each
*workload* weighs the same however often it ran.

Outside of the hull (`support`) what own executions tell is doubled in width and the prediction says
`extrapolating`; what is claimed of the start is claimed of jobs that nobody has seen, and stays as
wide as it is. What questions of a kind get is never narrower than what those inside get, whose
folds know nothing of the workload.

Failed and stopped runs are right-censored. Of a configuration whose runs were cut above its
predicted median, the chance to end by then is at most what Laplace's rule makes of its runs: (those
that did + 1) / (all + 2). What is taken away lies above the bound, as far as errors usually go:
nobody knows by how much a run would have passed its limit. Bounds below the median say nothing new.

Two estimates about one job have a part of their errors in common (`Basis.error_correlation`), which
cancels in their ratio (`chance_faster`). An estimate by own runs of the very configuration has
nothing in common with another.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from fedperf_client.prediction.ensemble.weighting import QueryRegime, shares_of
from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    InvalidPredictionError,
    Prediction,
)
from fedperf_shared.execution import PlanOnCluster

SIGNED_FROM = 79
"""Workloads from which on both ends of a 90 % interval are ranks of signed errors: so many that one
workload hardly moves them. From 19 on the largest absolute error is no end of it."""

CLAIMED_LEVEL = 0.9
"""Of intervals whose half width is claimed."""

USUAL_HALF_WIDTH = math.log(4.0)
"""90 % half width of a predictor's errors in log seconds before any tell: a factor of 4."""

USUAL_DEGREES = 3.0
"""As so many workloads it counts beside own errors, and the degrees of freedom of its Student t.
The fewest that still have a variance: it says that a home's errors are within about a factor of
2 of it, and own errors soon say better."""

MIDDLE = 0.5
UPPER_LEVEL = 0.9
"""Share of executions that the upper end of a prediction is to be longer than."""

_ROUNDING = 1e-9


class Distribution(Protocol):
    """Of how far an execution lies from a predicted median, log seconds."""

    def quantile(self, share: float) -> float:
        """What it stays at or below with chance `share`, in (0, 1)."""
        ...

    def cdf(self, log_seconds: float) -> float:
        """Chance that it is at most so much, never 0 nor 1 where only a rank is known."""
        ...


@dataclass(frozen=True, slots=True)
class StudentT:
    """A Student t around 0.

    Attributes:
        scale: log seconds.
        degrees: of freedom, may be no whole number.
    """

    scale: float
    degrees: float

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.degrees < math.inf):
            raise InvalidPredictionError(
                f"a Student t has positive finite scale and degrees, got {self.scale!r} and "
                f"{self.degrees!r}"
            )

    @classmethod
    def within(cls, half_width: float = USUAL_HALF_WIDTH, degrees: float = USUAL_DEGREES) -> Self:
        """Whose 90 % interval is the median and so much on either side."""
        return cls(half_width / cls(1.0, degrees).quantile(0.95), degrees)

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        return self.scale * float(stdtrit(self.degrees, _checked(share)))

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        return float(stdtr(self.degrees, log_seconds / self.scale))


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Ranks on one side of the median.

    Attributes:
        errors: away from the median, ascending, [executions]; those on the other side are
            negative.
        chance: that a new error is at most so much, ascending.
    """

    errors: Floats
    chance: Floats

    def quantile(self, share: float, beyond: StudentT) -> float:
        """Of a share of at least a half; `beyond` all ranks the t has the say."""
        if share <= MIDDLE:
            return 0.0
        if len(self.errors) and share <= self.chance[-1] + _ROUNDING:
            place = np.searchsorted(self.chance, share - _ROUNDING)
            return max(0.0, float(self.errors[place]))
        return max(float(self.errors[-1]) if len(self.errors) else 0.0, beyond.quantile(share))

    def cdf(self, away: float, beyond: StudentT) -> float:
        """Of at least 0."""
        place = int(np.searchsorted(self.errors, away, side="right"))
        of_rank = max(MIDDLE, float(self.chance[place - 1])) if place else MIDDLE
        return max(of_rank, beyond.cdf(away)) if place == len(self.errors) else of_rank


@dataclass(frozen=True, slots=True, eq=False)
class ErrorDistribution:
    """How far executions of new workloads lie from predicted medians, see the module.

    Attributes:
        workloads: how many tell it.
        student: what is said beyond the ranks that they have.
    """

    workloads: int
    student: StudentT
    _above: _Side
    _below: _Side

    @classmethod
    def of(cls, errors: Floats, groups: NDArray[np.int64]) -> Self:
        """The spread that errors tell.

        Args:
            errors: signed, measured less predicted, [executions].
            groups: workload of each.
        """
        usual = StudentT.within()
        count, share = len(np.unique(groups)), shares_of(groups)
        degrees = usual.degrees + count
        squares = usual.degrees * usual.scale**2 + float((share * errors**2).sum())
        student = StudentT(math.sqrt(squares / degrees), degrees)
        if count >= SIGNED_FROM:
            return cls(count, student, _signed(errors, share), _signed(-errors, share))
        sizes = _signed(np.abs(errors), share)
        either = _Side(sizes.errors, MIDDLE + MIDDLE * sizes.chance)
        return cls(count, student, either, either)

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        if _checked(share) >= MIDDLE:
            return self._above.quantile(share, self.student)
        return -self._below.quantile(1 - share, self.student)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        if log_seconds >= 0:
            return self._above.cdf(log_seconds, self.student)
        return 1 - self._below.cdf(-log_seconds, self.student)

    def half_width(self, level: float) -> float:
        """Half of the length of the interval of such a level, in (0, 1)."""
        return half_width(self, level)


@dataclass(frozen=True, slots=True)
class ScaledDistribution:
    """A distribution `factor` times as wide, with what is independent of it: squares add.

    They add on either side of the median, so that an error that was always on one side does not
    keep the other from growing.

    Attributes:
        base: as it is.
        factor: on its width.
        more: independent of it; None adds nothing.
    """

    base: Distribution
    factor: float = 1.0
    more: StudentT | None = None

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        of_base = self.factor * self.base.quantile(share)
        if self.more is None:
            return of_base
        return math.copysign(math.hypot(of_base, self.more.quantile(share)), share - MIDDLE)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        if self.more is None:
            return self.base.cdf(log_seconds / self.factor)
        low, high = _ROUNDING, 1 - _ROUNDING
        while high - low > _ROUNDING:
            middle = (low + high) / 2
            is_below = self.quantile(middle) <= log_seconds
            low, high = (middle, high) if is_below else (low, middle)
        return low


def with_more(base: Distribution, added: float, factor: float = 1.0) -> Distribution:
    """As `ScaledDistribution`.

    Args:
        base: as it is.
        added: half width of the 90 % interval of what is independent of it, log seconds.
        factor: on the width of `base`.
    """
    if added > 0:
        return ScaledDistribution(base, factor, StudentT.within(added))
    return base if factor == 1 else ScaledDistribution(base, factor)


def half_width(spread: Distribution, level: float) -> float:
    """Half of the length of the interval of such a level, in (0, 1)."""
    tail = (1 - _checked(level)) / 2
    return (spread.quantile(1 - tail) - spread.quantile(tail)) / 2


def widest(spreads: Iterable[Distribution], level: float) -> Distribution:
    """The one whose interval of that level is longest; of equal ones the first."""
    return max(spreads, key=lambda each: half_width(each, level))


def narrowest(spreads: Iterable[Distribution], level: float) -> Distribution:
    """The one whose interval of that level is shortest; of equal ones the first."""
    return min(spreads, key=lambda each: half_width(each, level))


def _signed(errors: Floats, share: Floats) -> _Side:
    order = np.argsort(errors, kind="stable")
    return _Side(errors[order], np.cumsum(share[order]) / (share.sum() + 1))


def _checked(share: float) -> float:
    if not 0 < share < 1:
        raise InvalidPredictionError(f"a share or level must be in (0, 1), got {share!r}")
    return share


@dataclass(frozen=True, slots=True)
class BoundedDistribution:
    """A distribution of which no more than `most` lies below `bound`.

    Attributes:
        base: what is said without the bound; more than `most` of it lies below.
        bound: log seconds from the predicted median.
        most: chance, in (0, 1).
        beyond: how far above the bound the rest lies.
    """

    base: Distribution
    bound: float
    most: float
    beyond: StudentT

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        if share <= self.most:
            return self.base.quantile(share)
        passed = (share - self.most) / (1 - self.most)
        above = self.bound + self.beyond.quantile(MIDDLE + MIDDLE * passed)
        return max(self.base.quantile(share), above)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        of_base = self.base.cdf(log_seconds)
        if log_seconds <= self.bound:
            return min(of_base, self.most)
        passed = (self.beyond.cdf(log_seconds - self.bound) - MIDDLE) / MIDDLE
        return min(of_base, self.most + (1 - self.most) * passed)


def least_log_seconds(question: PlanOnCluster) -> float:
    """What the processor time of its job needs on all cores at once; -inf where it is unknown."""
    job, cores = question.job, question.cluster.cores
    return math.log(job.cpu_seconds / cores) if job and job.cpu_seconds > 0 else -math.inf


def with_lower_bound(
    log_seconds: float, spread: Distribution, *, cut: Floats, ended: Floats
) -> Distribution:
    """The spread of an answer with what is known of runs that were cut.

    Args:
        log_seconds: predicted median.
        spread: around it.
        cut: log seconds of the runs of what is asked about that were cut.
        ended: of those that ended well.
    """
    cut = cut[cut > log_seconds]
    if len(cut) == 0:
        return spread
    bound = float(cut.min())
    most = (np.count_nonzero(ended <= bound) + 1) / (len(ended) + len(cut) + 2)
    if spread.cdf(bound - log_seconds) <= most:
        return spread
    return BoundedDistribution(spread, bound - log_seconds, float(most), StudentT.within())


WIDENING = 2.0
"""Factor on the width of what own executions tell, outside of the hull."""

USUAL_CORRELATION = 0.5
"""Of the squared error, what two answers about one job have in common before own executions tell:
half, as work that a job brings is misjudged on all platforms and sizes alike, and what each of
these adds is not."""

CORRELATION_COUNTS = 10
"""As so many workloads that were measured in several ways it counts."""

MOST_COMMON = 0.99
"""Of the squared error, what answers about one job may have in common: never all."""

_SIGMA = 0.8413
"""Share of a normal distribution below one standard deviation."""


@unique
class EvidenceSource(StrEnum):
    """What an answer rests on for the most part."""

    OWN_RUNS = "own runs of it"
    OTHER_RESOURCES = "own runs of it on other resources"
    OTHER_SIZE = "own runs of it at other sizes"
    OWN_JOBS = "own jobs of its kind"
    OWN_JOBS_AND_START = "own jobs of its kind and the start"
    START = "the start that ships"
    SHARED = "the shared model"
    UNKNOWN_ROWS = "no own run of it there, and rows unknown"


@dataclass(frozen=True, slots=True)
class Basis:
    """Why an answer is worth something.

    Attributes:
        rests_on: what it rests on.
        runs: own runs of the very configuration, or of the plan on other resources.
        error_correlation: share of the squared error that it has in common with other answers about
            the same job, see `estimate_error_correlation`; 0 where it rests on own runs of the
            very configuration.
    """

    rests_on: EvidenceSource = EvidenceSource.OWN_JOBS
    runs: int = 0
    error_correlation: float = 0.0

    def sharing(self, common: float, spread: Distribution) -> Self:
        """The basis where a part of the error is common to all answers about a job.

        Args:
            common: half width of the 90 % interval of that part alone.
            spread: of the answer, with that part; squares add.
        """
        if not common > 0:
            return self
        share = (common / half_width(spread, CLAIMED_LEVEL)) ** 2
        return replace(
            self, error_correlation=1 - (1 - self.error_correlation) * (1 - min(share, MOST_COMMON))
        )

    @property
    def is_own(self) -> bool:
        """Whether own executions tell a part of it."""
        return self.rests_on not in {
            EvidenceSource.START,
            EvidenceSource.SHARED,
            EvidenceSource.UNKNOWN_ROWS,
        }

    @property
    def is_promise(self) -> bool:
        """Whether a deadline may be said to hold: not where the size of the job is unknown."""
        return self.rests_on not in {EvidenceSource.OTHER_SIZE, EvidenceSource.UNKNOWN_ROWS}

    @property
    def words(self) -> str:
        """For people."""
        words = self.rests_on.value
        if self.runs == 0:
            return words
        return f"{self.runs} {words if self.runs > 1 else words.replace('runs', 'run')}"


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A prediction with all that is known about how far off it may be.

    Attributes:
        prediction: median and interval.
        kind: what the question asks of the executions that are known.
        basis: what it rests on.
    """

    prediction: Prediction
    kind: QueryRegime
    basis: Basis
    _center: float
    _spread: Distribution

    @classmethod
    def around(
        cls,
        log_seconds: float,
        spread: Distribution,
        *,
        kind: QueryRegime,
        level: float,
        inside: bool,
        basis: Basis | None = None,
    ) -> Self:
        """The estimate around exp(`log_seconds`), its median where `spread` has its own at 0.

        Raises:
            InvalidPredictionError: `log_seconds` is not finite.
        """
        if not abs(log_seconds) < math.inf:
            raise InvalidPredictionError(f"a run time is some log seconds, got {log_seconds!r}")
        tail = (1 - level) / 2
        median, lower, upper = (
            _seconds(log_seconds + spread.quantile(share)) for share in (MIDDLE, tail, 1 - tail)
        )
        prediction = Prediction(median, lower, upper, level, extrapolating=not inside)
        return cls(prediction, kind, basis or Basis(), log_seconds, spread)

    @property
    def p90_seconds(self) -> float:
        """What 90 % of such executions stay below."""
        return self.seconds_at(UPPER_LEVEL)

    def seconds_at(self, share: float) -> float:
        """What such a share of such executions stays below."""
        return _seconds(self._center + self._spread.quantile(share))

    @property
    def deviation(self) -> float:
        """Half of the way between the ends that hold as much as one standard deviation does."""
        return (self._spread.quantile(_SIGMA) - self._spread.quantile(1 - _SIGMA)) / 2

    def widened(self) -> Self:
        """The same as extrapolating, for whoever knows that the hull promises too much."""
        if self.prediction.extrapolating:
            return self
        return type(self).around(
            self._center,
            ScaledDistribution(self._spread, WIDENING),
            kind=self.kind,
            level=self.prediction.level,
            inside=False,
            basis=self.basis,
        )

    def chance_within(self, deadline_seconds: float) -> float:
        """Chance that such an execution takes at most so long.

        Of a job of unknown size it is never more than even.

        Raises:
            InvalidPredictionError: the deadline is not positive and finite.
        """
        if not 0 < deadline_seconds < math.inf:
            raise InvalidPredictionError(f"a deadline is some seconds, got {deadline_seconds!r}")
        chance = self._spread.cdf(math.log(deadline_seconds) - self._center)
        return chance if self.basis.is_promise else min(chance, MIDDLE)


def estimate_error_correlation(
    errors: Floats, workloads: NDArray[np.int64], configurations: NDArray[np.int64]
) -> float:
    """Share of the squared error that answers about one workload have in common, in [0, 1).

    Whoever compares two plans or sizes of one job gains by it: what both are off by together
    is no difference. Before own executions say better it is `USUAL_CORRELATION`.

    Args:
        errors: of a mix in folds, signed, [executions].
        workloads: of each.
        configurations: of each; repeats of one count once.
    """
    places, first, group = np.unique(configurations, return_index=True, return_inverse=True)
    mean = np.bincount(group, errors) / np.bincount(group) if len(places) else np.zeros(0)
    of_workload = np.unique(workloads[first], return_inverse=True)[1]
    sizes = np.bincount(of_workload)
    several = sizes[of_workload] > 1
    squared = float((mean[several] ** 2).mean()) if several.any() else 0.0
    if not squared > 0:
        return USUAL_CORRELATION
    level = np.bincount(of_workload, mean) / np.maximum(sizes, 1)
    count = int(np.count_nonzero(sizes > 1))
    apart = ((mean - level[of_workload])[several] ** 2).sum() / (several.sum() - count)
    own = 1 - min(1.0, float(apart) / squared)
    return (CORRELATION_COUNTS * USUAL_CORRELATION + count * own) / (CORRELATION_COUNTS + count)


def _seconds(log_seconds: float) -> float:
    """Within what a prediction may hold, however far an end lies."""
    return math.exp(min(2 * LOG_SECONDS_LIMIT, max(-2 * LOG_SECONDS_LIMIT, log_seconds)))


def carried(
    estimate: Estimate,
    *,
    by: float = 0.0,
    added: float = 0.0,
    kind: QueryRegime | None = None,
    extrapolating: bool = False,
) -> Estimate:
    """The estimate of what takes longer than another.

    Args:
        estimate: of the other.
        by: log seconds.
        added: half width of the 90 % interval of the error of `by`, log seconds.
        kind: of the question; that of the estimate by default.
        extrapolating: whether it lies outside of what was seen, wherever the other does.
    """
    prediction = estimate.prediction
    return Estimate.around(
        math.log(prediction.median_seconds) + by,
        with_more(_Around(estimate), added),
        kind=kind or estimate.kind,
        level=prediction.level,
        inside=not (extrapolating or prediction.extrapolating),
        basis=estimate.basis,
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """The distribution around the median of an estimate, log seconds."""

    estimate: Estimate

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        median = self.estimate.prediction.median_seconds
        return math.log(self.estimate.seconds_at(share) / median)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        median = self.estimate.prediction.median_seconds
        return self.estimate.chance_within(median * math.exp(log_seconds))


SURE = 0.75
"""Chance from which on one is said to be faster: three to one. Below, none is said to be."""


def chance_faster(
    one: Estimate,
    other: Estimate,
    *,
    starts: tuple[float, float] = (0.0, 0.0),
    rates: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Chance that `one` takes less time than `other`, both about the same job, in (0, 1).

    Args:
        one: an answer.
        other: of the same predictor.
        starts: seconds that are added to each for sure, such as starting a platform.
        rates: what a second of each costs; the chance is then that `one` costs less.
    """
    seconds = [each.prediction.median_seconds for each in (one, other)]
    whole = [each + start for each, start in zip(seconds, starts, strict=True)]
    first, second = (
        answer.deviation * each / both
        for answer, each, both in zip((one, other), seconds, whole, strict=True)
    )
    common = 2 * min(one.basis.error_correlation, other.basis.error_correlation) * first * second
    apart = math.sqrt(first**2 + second**2 - common)
    ratio = math.log(whole[1] * rates[1] / (whole[0] * rates[0]))
    if apart == 0:
        return 0.5 + 0.5 * math.copysign(1.0, ratio) * (ratio != 0)
    return StudentT(apart, USUAL_DEGREES).cdf(ratio)
