"""One distribution per answer: of how far an execution may lie from its predicted median.

Median, interval, upper end and the chance to keep a deadline are all read off the same
`Distribution` of log seconds, so that they cannot contradict each other: `quantile` and `cdf`
are inverse to each other up to the steps between errors, neither ever falls, and half of the
mass lies on either side of the median.

A `Spread` is told by errors of folds that mimic the question, by weights that had not seen them.
*Finite-sample promise*: let a new workload's error be exchangeable with those of n workloads. Then
it is as likely to have any rank among them, and stays at or below the k-th smallest with chance at
least k / (n + 1). From 79 workloads on a 90 % interval ends at ranks of signed errors, ceil(0.95
(n + 1)) from either side, and covers at least 90 %. From 9 on it does at ranks of absolute errors,
as likely on either side. Of fewer the interval holds at least all errors there were, and as much
as a Student t says that begins at what is usual: a guess, no promise. Each *workload* weighs the
same however often it ran.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from fedperf_client.prediction.mixture.learner_weights import shares_of
from fedperf_client.prediction.prediction import Floats, InvalidPredictionError

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
class Student:
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

    def quantile(self, share: float, beyond: Student) -> float:
        """Of a share of at least a half; `beyond` all ranks the t has the say."""
        if share <= MIDDLE:
            return 0.0
        if len(self.errors) and share <= self.chance[-1] + _ROUNDING:
            place = np.searchsorted(self.chance, share - _ROUNDING)
            return max(0.0, float(self.errors[place]))
        return max(float(self.errors[-1]) if len(self.errors) else 0.0, beyond.quantile(share))

    def cdf(self, away: float, beyond: Student) -> float:
        """Of at least 0."""
        place = int(np.searchsorted(self.errors, away, side="right"))
        of_rank = max(MIDDLE, float(self.chance[place - 1])) if place else MIDDLE
        return max(of_rank, beyond.cdf(away)) if place == len(self.errors) else of_rank


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How far executions of new workloads lie from predicted medians, see the module.

    Attributes:
        workloads: how many tell it.
        student: what is said beyond the ranks that they have.
    """

    workloads: int
    student: Student
    _above: _Side
    _below: _Side

    @classmethod
    def of(cls, errors: Floats, groups: NDArray[np.int64]) -> Self:
        """The spread that errors tell.

        Args:
            errors: signed, measured less predicted, [executions].
            groups: workload of each.
        """
        usual = Student.within()
        count, share = len(np.unique(groups)), shares_of(groups)
        degrees = usual.degrees + count
        squares = usual.degrees * usual.scale**2 + float((share * errors**2).sum())
        student = Student(math.sqrt(squares / degrees), degrees)
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
class WidenedDistribution:
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
    more: Student | None = None

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
    """As `WidenedDistribution`.

    Args:
        base: as it is.
        added: half width of the 90 % interval of what is independent of it, log seconds.
        factor: on the width of `base`.
    """
    if added > 0:
        return WidenedDistribution(base, factor, Student.within(added))
    return base if factor == 1 else WidenedDistribution(base, factor)


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
