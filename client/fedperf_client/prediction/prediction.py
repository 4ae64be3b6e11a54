"""Predicted run times, and the distributions of how far off they may be.

A `Prediction` is a log run time with the `Distribution` of its error. Median, interval, upper end
and the probability of meeting a deadline are all read off that distribution, so that they cannot
contradict each other: `quantile` and `cdf` are inverse to each other up to the steps between
observed errors, and neither ever falls. Everything is computed on the natural log of wall seconds.
Only properties with a unit in their name return seconds.

An `ErrorDistribution` is estimated from errors in cross-validation folds that imitate the query.
*Finite-sample guarantee* (conformal prediction): let the error of a new workload be exchangeable
with those of n workloads. Then every rank among them is equally likely, and the error stays at or
below the k-th smallest with probability at least k / (n + 1). From 79 workloads on, a 90 % interval
ends at ranks of signed errors, ceil(0.95 (n + 1)) from either side, and covers at least 90 %. From
9 on it ends at ranks of absolute errors, taken as equally likely on either side. With fewer
workloads the interval contains all observed errors, and is at least as wide as a Student t whose
prior is the usual error; then nothing is guaranteed. Every *workload* weighs the same, however
often it ran.

Failed and stopped runs are right-censored. If runs of a configuration were cut off above its
predicted median, the probability of ending by then is at most Laplace's rule of succession:
(runs that did + 1) / (all runs + 2). The mass that this removes moves above the bound, as far as
errors usually go, because the excess of a run over its limit is unobserved. Bounds
below the median add no information.

Two predictions about one job share a part of their errors (`Evidence.error_correlation`). It
cancels in their ratio (`probability_faster`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS

Floats = NDArray[np.float64]

# Log seconds of every model are clipped to this on either side of 0.
LOG_SECONDS_LIMIT = math.log(MAX_RUNTIME_SECONDS)

# Workloads from which on both ends of a 90 % interval are ranks of signed errors. From 39 on the
# end is not the largest error. With 79, three errors lie beyond each end, so that one workload
# hardly moves it.
SIGNED_FROM = 79

CLAIMED_LEVEL = 0.9  # confidence level of published half-widths
USUAL_HALF_WIDTH = math.log(4.0)  # prior half-width of a 90 % interval, log seconds: a factor of 4
# Weight of that prior in workloads, and the degrees of freedom of its Student t. It is the smallest
# number for which the variance exists, so that local errors soon outweigh the prior.
USUAL_DEGREES = 3.0

MEDIAN = 0.5
UPPER_LEVEL = 0.9  # share of executions that stay below the upper end of a prediction
_ONE_SIGMA = 0.8413  # share of a normal distribution below one standard deviation
WIDENING = 2.0  # factor on the width of local error distributions outside the training support
MOST_COMMON = 0.99  # upper limit of the error correlation between predictions for one job
# Probability from which on one plan is called faster than another: odds of three to one.
SURE = 0.75

_ROUNDING = 1e-9


class InvalidPredictionError(InvalidInputError):
    """Raised when a prediction or distribution has impossible values."""


class PredictorFailedError(FedperfError):
    """Raised when a predictor returns a wrong number of values, or values that are not finite."""

    def __init__(self, name: str, expected: int, values: Floats) -> None:
        wrong = int(np.count_nonzero(~np.isfinite(values)))
        super().__init__(
            f"predictor {name!r} returned values of shape {values.shape} for {expected} queries, "
            f"{wrong} of them not finite"
        )
        self.name = name


# Maps plans to the natural log of wall seconds, [plans]; the interface of pretrained models.
PredictLog = Callable[[Sequence[PlanOnCluster]], Floats]


def checked_log(name: str, values: Floats, expected: int) -> Floats:
    """Return `values` as float64 [expected], clipped to `LOG_SECONDS_LIMIT`.

    Raises:
        PredictorFailedError: The shape is wrong, or a value is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (expected,) or not np.isfinite(values).all():
        raise PredictorFailedError(name, expected, values)
    return np.clip(values, -LOG_SECONDS_LIMIT, LOG_SECONDS_LIMIT)


class Distribution(ABC):
    """The distribution of the error of a predicted log run time, in log seconds."""

    __slots__ = ()

    @abstractmethod
    def quantile(self, share: float) -> float:
        """Return the error that is not exceeded with probability `share`, in (0, 1)."""

    @abstractmethod
    def cdf(self, log_seconds: float) -> float:
        """Return the probability of an error of at most `log_seconds`.

        It is never 0 or 1 where only ranks are available.
        """

    def half_width(self, level: float) -> float:
        """Return half of the length of the interval with that confidence level, in (0, 1)."""
        tail = (1 - _checked(level)) / 2
        return (self.quantile(1 - tail) - self.quantile(tail)) / 2

    def scaled(self, factor: float = 1.0, *, added: float = 0.0) -> "Distribution":
        """Return a distribution `factor` times as wide, plus an independent error.

        Args:
            factor: on the width.
            added: half-width of the 90 % interval of the independent error, log seconds.
        """
        if added > 0:
            return _ScaledDistribution(self, factor, StudentT.within(added))
        return self if factor == 1 else _ScaledDistribution(self, factor)


@dataclass(frozen=True, slots=True)
class StudentT(Distribution):
    """A Student t centred at 0."""

    scale: float  # log seconds
    degrees: float  # of freedom, not necessarily a whole number

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.degrees < math.inf):
            raise InvalidPredictionError(
                f"a Student t has positive finite scale and degrees, got {self.scale!r} and "
                f"{self.degrees!r}"
            )

    @classmethod
    def within(cls, half_width: float = USUAL_HALF_WIDTH, degrees: float = USUAL_DEGREES) -> Self:
        """Return the Student t whose 90 % interval has this half-width."""
        return cls(half_width / cls(1.0, degrees).quantile(0.95), degrees)

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        from scipy.special import stdtrit

        return self.scale * float(stdtrit(self.degrees, _checked(share)))

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        from scipy.special import stdtr

        return float(stdtr(self.degrees, log_seconds / self.scale))


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """The ranks of errors on one side of the median, and a Student t beyond them."""

    # Away from the median, ascending, [executions]. Errors on the other side are negative.
    errors: Floats
    probability: Floats  # that a new error is at most as large, ascending, [executions]
    beyond: StudentT  # the distribution beyond the last rank

    def quantile(self, share: float) -> float:
        if share <= MEDIAN:
            return 0.0
        if len(self.errors) and share <= self.probability[-1] + _ROUNDING:
            rank = np.searchsorted(self.probability, share - _ROUNDING)
            return max(0.0, float(self.errors[rank]))
        largest = float(self.errors[-1]) if len(self.errors) else 0.0
        return max(largest, self.beyond.quantile(share))

    def cdf(self, error: float) -> float:
        rank = int(np.searchsorted(self.errors, error, side="right"))
        by_rank = max(MEDIAN, float(self.probability[rank - 1])) if rank else MEDIAN
        return max(by_rank, self.beyond.cdf(error)) if rank == len(self.errors) else by_rank


@dataclass(frozen=True, slots=True, eq=False)
class ErrorDistribution(Distribution):
    """The empirical distribution of the errors of new workloads; see the module docstring."""

    workloads: int  # how many the errors are of
    student: StudentT  # the distribution beyond the observed ranks
    _above: _Tail
    _below: _Tail

    @classmethod
    def from_errors(cls, errors: Floats, groups: NDArray[np.int64]) -> Self:
        """Estimate the distribution.

        Args:
            errors: measured minus predicted log seconds, [executions].
            groups: workload of each, [executions].
        """
        usual = StudentT.within()
        count, shares = len(np.unique(groups)), shares_of(groups)
        degrees = usual.degrees + count
        squares = usual.degrees * usual.scale**2 + float((shares * errors**2).sum())
        student = StudentT(math.sqrt(squares / degrees), degrees)
        is_signed = count >= SIGNED_FROM

        def tail(sizes: Floats) -> _Tail:
            order = np.argsort(sizes, kind="stable")
            probability = np.cumsum(shares[order]) / (shares.sum() + 1)
            return _Tail(
                sizes[order], probability if is_signed else MEDIAN + MEDIAN * probability, student
            )

        if is_signed:
            return cls(count, student, tail(errors), tail(-errors))
        either = tail(np.abs(errors))
        return cls(count, student, either, either)

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        if _checked(share) >= MEDIAN:
            return self._above.quantile(share)
        return -self._below.quantile(1 - share)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        if log_seconds >= 0:
            return self._above.cdf(log_seconds)
        return 1 - self._below.cdf(-log_seconds)


@dataclass(frozen=True, slots=True)
class _ScaledDistribution(Distribution):
    """A distribution `factor` times as wide, plus an independent error: squared quantiles add.

    They add on either side of the median. So an error that was always on one side does not keep
    the other side from growing.
    """

    base: Distribution
    factor: float = 1.0
    added: StudentT | None = None

    def quantile(self, share: float) -> float:
        error = self.factor * self.base.quantile(share)
        if self.added is None:
            return error
        return math.copysign(math.hypot(error, self.added.quantile(share)), share - MEDIAN)

    def cdf(self, log_seconds: float) -> float:
        if self.added is None:
            return self.base.cdf(log_seconds / self.factor)
        low, high = _ROUNDING, 1 - _ROUNDING
        while high - low > _ROUNDING:
            middle = (low + high) / 2
            is_below = self.quantile(middle) <= log_seconds
            low, high = (middle, high) if is_below else (low, middle)
        return low


@dataclass(frozen=True, slots=True)
class _CensoredDistribution(Distribution):
    """A distribution with at most `most` of its mass below `bound`."""

    base: Distribution  # the distribution without the bound; more than `most` of it lies below
    bound: float  # log seconds from the predicted median
    most: float  # probability, in (0, 1)
    beyond: StudentT  # how far above the bound the rest lies

    def quantile(self, share: float) -> float:
        if share <= self.most:
            return self.base.quantile(share)
        passed = (share - self.most) / (1 - self.most)
        above = self.bound + self.beyond.quantile(MEDIAN + MEDIAN * passed)
        return max(self.base.quantile(share), above)

    def cdf(self, log_seconds: float) -> float:
        probability = self.base.cdf(log_seconds)
        if log_seconds <= self.bound:
            return min(probability, self.most)
        passed = (self.beyond.cdf(log_seconds - self.bound) - MEDIAN) / MEDIAN
        return min(probability, self.most + (1 - self.most) * passed)


@dataclass(frozen=True, slots=True)
class _MedianCentred(Distribution):
    """The distribution of log seconds around the median of a prediction."""

    prediction: "Prediction"

    def quantile(self, share: float) -> float:
        return math.log(self.prediction.seconds_at(share) / self.prediction.median_seconds)

    def cdf(self, log_seconds: float) -> float:
        median = self.prediction.median_seconds
        return self.prediction.probability_within(median * math.exp(log_seconds))


def widest(distributions: Iterable[Distribution], level: float) -> Distribution:
    """Return the first distribution whose interval of that level is longest."""
    return max(distributions, key=lambda each: each.half_width(level))


def narrowest(distributions: Iterable[Distribution], level: float) -> Distribution:
    """Return the first distribution whose interval of that level is shortest."""
    return min(distributions, key=lambda each: each.half_width(level))


def shares_of(groups: NDArray[np.int64], most: float = 1.0) -> Floats:
    """Return the weight of each execution if a group counts as at most `most` executions."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.minimum(1.0, most / counts)[number], dtype=np.float64)


@unique
class QueryRegime(StrEnum):
    """The relation of a query to the training runs: repeat, interpolation or extrapolation.

    A scale is a cluster size (cores or machines), a size is an input size.
    """

    SEEN = "observed"
    BETWEEN_SCALES = "interpolated cluster"
    BETWEEN_SIZES = "interpolated input"
    BEYOND_SCALES = "extrapolated cluster"
    BEYOND_SIZES = "extrapolated input"

    @property
    def is_beyond(self) -> bool:
        """Return whether the query extrapolates."""
        return self in {QueryRegime.BEYOND_SCALES, QueryRegime.BEYOND_SIZES}

    @property
    def is_of_scales(self) -> bool:
        """Return whether the query has a new scale; its size may be new as well."""
        return self in {QueryRegime.BETWEEN_SCALES, QueryRegime.BEYOND_SCALES}


@unique
class EvidenceSource(StrEnum):
    """The main source of a prediction."""

    OWN_RUNS = "own runs of it"
    OTHER_RESOURCES = "own runs of it on other resources"
    OTHER_SIZE = "own runs of it at other sizes"
    OWN_JOBS = "own jobs of its kind"
    OWN_JOBS_AND_PRETRAINED = "own jobs of its kind and the pretrained model"
    PRETRAINED = "the pretrained model"
    SHARED = "the shared model"
    UNKNOWN_ROWS = "no own run of it there, and rows unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The data behind a prediction."""

    source: EvidenceSource = EvidenceSource.OWN_JOBS  # main source
    runs: int = 0  # local runs of the same configuration, or of the plan on other resources
    # Share of the squared error in common with other predictions about the same job; 0 if the
    # prediction rests on runs of the same configuration.
    error_correlation: float = 0.0

    def with_common_error(self, half_width: float, distribution: Distribution) -> Self:
        """Return the evidence if a part of the error is common to all predictions about a job.

        Args:
            half_width: of the 90 % interval of the common part, log seconds.
            distribution: of the whole error, that part included; squares add.
        """
        if not half_width > 0:
            return self
        share = min((half_width / distribution.half_width(CLAIMED_LEVEL)) ** 2, MOST_COMMON)
        return replace(self, error_correlation=1 - (1 - self.error_correlation) * (1 - share))

    @property
    def is_local(self) -> bool:
        """Return whether local runs contribute."""
        return self.source not in {
            EvidenceSource.PRETRAINED,
            EvidenceSource.SHARED,
            EvidenceSource.UNKNOWN_ROWS,
        }

    @property
    def supports_deadlines(self) -> bool:
        """Return whether a deadline may be called met; False if the size of the job is unknown."""
        return self.source not in {EvidenceSource.OTHER_SIZE, EvidenceSource.UNKNOWN_ROWS}

    @property
    def text(self) -> str:
        """The source and the number of runs, for people."""
        words = self.source.value
        if self.runs == 0:
            return words
        return f"{self.runs} {words if self.runs > 1 else words.replace('runs', 'run')}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted run time with the distribution of its error."""

    log_seconds: float  # natural log of the predicted wall seconds
    # Of measured minus predicted log seconds. Its median is 0, except where right-censored runs
    # moved it.
    distribution: Distribution
    confidence_level: float = 0.9  # share of executions that the interval should cover
    regime: QueryRegime = QueryRegime.SEEN  # relation of the query to the training runs
    evidence: Evidence = Evidence()  # the data behind it
    # Whether the query lies outside the training support; then the interval is widened, and its
    # level is not guaranteed.
    extrapolating: bool = False

    def __post_init__(self) -> None:
        if not abs(self.log_seconds) < math.inf:
            raise InvalidPredictionError(f"log seconds must be finite, got {self.log_seconds!r}")
        _checked(self.confidence_level)

    @property
    def median_seconds(self) -> float:
        """Run time that half of such executions exceed."""
        return self.seconds_at(MEDIAN)

    @property
    def lower_seconds(self) -> float:
        """Lower end of the interval."""
        return self.seconds_at((1 - self.confidence_level) / 2)

    @property
    def upper_seconds(self) -> float:
        """Upper end of the interval."""
        return self.seconds_at(1 - (1 - self.confidence_level) / 2)

    @property
    def p90_seconds(self) -> float:
        """Run time that 90 % of such executions do not exceed."""
        return self.seconds_at(UPPER_LEVEL)

    @property
    def deviation(self) -> float:
        """Half of the length of the interval that covers one standard deviation, log seconds."""
        quantile = self.distribution.quantile
        return (quantile(_ONE_SIGMA) - quantile(1 - _ONE_SIGMA)) / 2

    def seconds_at(self, share: float) -> float:
        """Return the run time that this share of such executions does not exceed.

        It is clipped to exp(-2 limit) and exp(2 limit), see `LOG_SECONDS_LIMIT`.
        """
        log_seconds = self.log_seconds + self.distribution.quantile(share)
        return math.exp(min(2 * LOG_SECONDS_LIMIT, max(-2 * LOG_SECONDS_LIMIT, log_seconds)))

    def covers(self, seconds: float) -> bool:
        """Return whether the interval contains a measured run time."""
        return self.lower_seconds <= seconds <= self.upper_seconds

    def probability_within(self, deadline_seconds: float) -> float:
        """Return the probability of meeting a deadline.

        It is at most one half for a job of unknown size.

        Raises:
            InvalidPredictionError: The deadline is not positive and finite.
        """
        if not 0 < deadline_seconds < math.inf:
            raise InvalidPredictionError(
                f"a deadline must be positive and finite, got {deadline_seconds!r}"
            )
        probability = self.distribution.cdf(math.log(deadline_seconds) - self.log_seconds)
        return probability if self.evidence.supports_deadlines else min(probability, MEDIAN)

    def as_extrapolation(self) -> Self:
        """Return the prediction widened as one outside the training support."""
        if self.extrapolating:
            return self
        return replace(self, distribution=self.distribution.scaled(WIDENING), extrapolating=True)

    def shifted(
        self,
        by: float = 0.0,
        *,
        added: float = 0.0,
        regime: QueryRegime | None = None,
        extrapolating: bool = False,
    ) -> Self:
        """Return the prediction for a query that takes longer than this one.

        Args:
            by: log seconds.
            added: half-width of the 90 % interval of the error of `by`, log seconds.
            regime: of the new query; unchanged by default.
            extrapolating: whether the new query is outside the training support, even if this
                one is not.
        """
        return replace(
            self,
            log_seconds=math.log(self.median_seconds) + by,
            distribution=_MedianCentred(self).scaled(added=added),
            regime=regime or self.regime,
            extrapolating=extrapolating or self.extrapolating,
        )

    def with_censored_runs(self, censored: Floats, ended: Floats) -> Self:
        """Return the prediction with the lower bounds that censored runs give.

        Args:
            censored: log seconds after which runs of the same configuration were cut off.
            ended: log seconds of the runs of it that ended well.
        """
        censored = censored[censored > self.log_seconds]
        if len(censored) == 0:
            return self
        bound = float(censored.min())
        ended_by_then = np.count_nonzero(ended <= bound)
        most = (ended_by_then + 1) / (len(ended) + len(censored) + 2)
        error = bound - self.log_seconds
        if self.distribution.cdf(error) <= most:
            return self
        return replace(
            self,
            distribution=_CensoredDistribution(
                self.distribution, error, float(most), StudentT.within()
            ),
        )


def probability_faster(
    one: Prediction,
    other: Prediction,
    *,
    startup_seconds: tuple[float, float] = (0.0, 0.0),
    rates: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return the probability that `one` takes less time than `other`, in [0, 1].

    Args:
        one: a prediction.
        other: of the same job by the same predictor.
        startup_seconds: fixed seconds that are added to each, such as the start of a platform.
        rates: cost of a second of each. The result is then the probability of a lower cost.
    """
    seconds = [one.median_seconds, other.median_seconds]
    whole = [each + startup for each, startup in zip(seconds, startup_seconds, strict=True)]
    first, second = (
        prediction.deviation * each / total
        for prediction, each, total in zip((one, other), seconds, whole, strict=True)
    )
    correlation = min(one.evidence.error_correlation, other.evidence.error_correlation)
    scale = math.sqrt(first**2 + second**2 - 2 * correlation * first * second)
    log_ratio = math.log(whole[1] * rates[1] / (whole[0] * rates[0]))
    if scale == 0:
        return 0.5 + 0.5 * math.copysign(1.0, log_ratio) * (log_ratio != 0)
    return StudentT(scale, USUAL_DEGREES).cdf(log_ratio)


def _checked(share: float) -> float:
    if not 0 < share < 1:
        raise InvalidPredictionError(f"a share or level must be in (0, 1), got {share!r}")
    return share
