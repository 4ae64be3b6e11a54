"""Conformal intervals on errors of folds, and the hull outside of which they do not hold.

Errors are those of folds that mimic the question, by weights that had not seen them. The
half width of an interval is the finite-sample conformal quantile of their absolute values,
the upper end that 90 % stay below that of the signed ones; each *workload* weighs the
same however often it ran. Where workloads are too few for the level, a public half width
is the least. Outside of the hull widths are doubled and the prediction says
`extrapolating`. What questions of a kind get is never narrower than what those inside get,
whose folds know nothing of the workload.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    InvalidPredictionError,
    Prediction,
)
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

DEFAULT_HALF_WIDTH = math.log(4.0)
"""Half width in log seconds before own executions say better: a factor of 4 each way."""

WIDENING = 2.0
"""Factor on all widths outside of the hull."""

HULL_MARGIN = math.log(2.0)
"""Sizes up to twice, or down to half, of what was seen count as inside."""

KNOWN_ROWS = math.log(10.0)
STRANGE_ROWS = math.log(100.0)
"""Own executions know a kind on a platform at up to ten times the source rows that it was seen at,
or a tenth, and nothing of it at a hundred times: that far other costs are the largest (starts,
memory, disks), and a line through what was seen is a guess. Between, ever less."""

LEAST_SHARE = 0.5
"""Of the operators that must be known on their platforms, for a question to lie inside."""

UPPER_LEVEL = 0.9
"""Share of executions that the upper end of a prediction is to be longer than."""

Pair = tuple[OperatorKind, Platform]
"""A kind of operator on a platform."""

_NOWHERE = (math.inf, -math.inf)
_NORMAL = NormalDist()
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How far executions of new workloads lie from predicted medians, log seconds.

    Attributes:
        errors: of folds, signed, float64 [executions], ascending.
        sizes: their absolute values, ascending.
        error_mass: share of workloads up to each error, counted in workloads, ascending.
        size_mass: the same of `sizes`.
        workloads: how many there are.
    """

    errors: Floats
    sizes: Floats
    error_mass: Floats
    size_mass: Floats
    workloads: int

    @classmethod
    def of(cls, errors: Floats, groups: NDArray[np.int64]) -> Self:
        """The spread of `errors` [executions], whose workloads are `groups`."""
        if len(errors) == 0:
            nothing = np.zeros(0)
            return cls(nothing, nothing, nothing, nothing, 0)
        executions_of = np.bincount(groups)
        share = 1.0 / executions_of[groups]
        by_error = np.argsort(errors, kind="stable")
        sizes = np.abs(errors)
        by_size = np.argsort(sizes, kind="stable")
        return cls(
            errors[by_error],
            sizes[by_size],
            np.cumsum(share[by_error]),
            np.cumsum(share[by_size]),
            int(np.count_nonzero(executions_of)),
        )

    @classmethod
    def of_start(cls, *, widened: bool) -> Self:
        """Of a start without any own execution; `widened` as outside of what was seen."""
        width = DEFAULT_HALF_WIDTH * (WIDENING if widened else 1.0)
        return cls.of(np.full(1, width), np.zeros(1, dtype=np.int64))

    def half_width(self, level: float) -> float:
        """What covers the error of a *new* workload with chance >= `level`, in (0, 1)."""
        if not 0 < level < 1:
            raise InvalidPredictionError(f"level must be in (0, 1), got {level!r}")
        rank = (self.workloads + 1) * level
        if not rank <= self.workloads:
            return max(float(self.sizes.max(initial=0.0)), DEFAULT_HALF_WIDTH)
        return float(self.sizes[np.searchsorted(self.size_mass, rank - _ROUNDING)])

    def upper(self, level: float = UPPER_LEVEL) -> float:
        """What the error of a new workload stays below with chance >= `level`; at least 0."""
        rank = (self.workloads + 1) * level
        if not rank <= self.workloads:
            return self._guess_sd(level) * _NORMAL.inv_cdf(level)
        place = np.searchsorted(self.error_mass, rank - _ROUNDING)
        return max(0.0, float(self.errors[place]))

    def chance_below(self, log_seconds: float) -> float:
        """Chance that the error of a new workload is at most so much, never 0 nor 1."""
        if not (self.workloads + 1) * UPPER_LEVEL <= self.workloads:
            return _NORMAL.cdf(log_seconds / self._guess_sd(UPPER_LEVEL))
        place = int(np.searchsorted(self.errors, log_seconds, side="right"))
        mass = float(self.error_mass[place - 1]) if place else 0.0
        return max(mass, 0.5) / (self.workloads + 1)

    def _guess_sd(self, level: float) -> float:
        """Of a normal distribution with the public half width, for very few workloads."""
        return self.half_width(level) / _NORMAL.inv_cdf((1 + level) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A prediction with all that is known about how far off it may be.

    Attributes:
        prediction: median and interval.
        kind: what the question asks of the executions that are known.
        p90_seconds: what 90 % of such executions stay below.
    """

    prediction: Prediction
    kind: Asks
    p90_seconds: float
    _spreads: tuple[Spread, ...]
    _factor: float

    @classmethod
    def around(
        cls,
        log_seconds: float,
        spreads: tuple[Spread, ...],
        *,
        kind: Asks,
        level: float,
        inside: bool,
    ) -> Self:
        """The estimate of median exp(`log_seconds`); the widest of `spreads` counts."""
        factor = 1.0 if inside else WIDENING
        width = max(spread.half_width(level) for spread in spreads)
        upper = factor * max(spread.upper() for spread in spreads)
        prediction = with_interval(log_seconds, width, level=level, inside=inside)
        p90_seconds = math.exp(min(2 * LOG_SECONDS_LIMIT, log_seconds + upper))
        return cls(prediction, kind, p90_seconds, spreads, factor)

    def widened(self) -> Self:
        """The same as extrapolating, for whoever knows that the hull promises too much."""
        if self.prediction.extrapolating:
            return self
        return type(self).around(
            math.log(self.prediction.median_seconds),
            self._spreads,
            kind=self.kind,
            level=self.prediction.level,
            inside=False,
        )

    def chance_within(self, deadline_seconds: float) -> float:
        """Chance that such an execution takes at most so long.

        Raises:
            InvalidPredictionError: the deadline is not positive and finite.
        """
        if not 0 < deadline_seconds < math.inf:
            raise InvalidPredictionError(f"a deadline is some seconds, got {deadline_seconds!r}")
        left = math.log(deadline_seconds / self.prediction.median_seconds) / self._factor
        return min(spread.chance_below(left) for spread in self._spreads)


@dataclass(frozen=True, slots=True)
class Hull:
    """A box around the questions seen, and which kinds ran on which platforms in them.

    A kind seen on one platform and a platform seen with another kind say nothing of both
    together, so pairs are kept.

    Attributes:
        lowest: log source rows, log largest output, log cores, log nodes, log operators.
        highest: the same, upper ends.
        pairs: of every kind on a platform, log source rows of the smallest and of the largest
            plan that it was seen in.
        cores_on_node: the most cores that a node had.
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    pairs: Mapping[Pair, tuple[float, float]]
    cores_on_node: float

    @classmethod
    def around(cls, questions: Sequence[SizedPlan]) -> Self:
        """The hull of `questions`; without any, everything lies outside."""
        if not questions:
            return cls((), (), {}, 0.0)
        sizes = np.array([_sizes(question) for question in questions])
        seen: dict[Pair, list[float]] = defaultdict(list)
        for question in questions:
            for pair in set(_pairs(question.plan)):
                seen[pair].append(_log_rows(question.plan))
        return cls(
            tuple(sizes.min(axis=0).tolist()),
            tuple(sizes.max(axis=0).tolist()),
            {pair: (min(rows), max(rows)) for pair, rows in seen.items()},
            max(cores_per_node(question.cluster) for question in questions),
        )

    @property
    def platforms(self) -> frozenset[Platform]:
        """Platforms seen."""
        return frozenset(platform for _, platform in self.pairs)

    def contains(self, question: SizedPlan) -> bool:
        """Whether `question` lies inside, and most of it is known on its platforms.

        More cores on a node than any had is another machine, however many all nodes had together.
        """
        if not self.pairs:
            return False
        inside = all(
            low - HULL_MARGIN <= size <= high + HULL_MARGIN
            for low, size, high in zip(self.lowest, _sizes(question), self.highest, strict=True)
        )
        plan = question.plan
        return (
            inside
            and self.share_seen_apart(plan) == 1
            and self.share_seen(plan) >= LEAST_SHARE
            and cores_per_node(question.cluster) <= self.cores_on_node
        )

    def share_seen(self, plan: Plan) -> float:
        """Share of the operators whose kind was seen on their platform at such rows, in [0, 1].

        Sources count only where a plan has nothing else: every plan has them, so that having
        seen one says nothing of the work behind it. Rows that nothing at all had are no reason
        to know less: they are a question of sizes, which folds mimic.
        """
        known = self._known(plan)
        work = [each for each, o in zip(known, plan.workflow.operators, strict=True) if o.inputs]
        counted = work or known
        return sum(counted) / len(counted)

    def share_seen_apart(self, plan: Plan) -> float:
        """Share of the operators whose kind and platform were both seen, be it in others."""
        kinds = {kind for kind, _ in self.pairs}
        seen = [kind in kinds and where in self.platforms for kind, where in _pairs(plan)]
        return sum(seen) / len(seen)

    def _known(self, plan: Plan) -> list[float]:
        """How far each operator is known, in [0, 1]."""
        if not self.pairs:
            return [0.0] * len(plan.platforms)
        rows = min(max(_log_rows(plan), self.lowest[0]), self.highest[0])
        apart = [_apart(rows, self.pairs.get(pair, _NOWHERE)) for pair in _pairs(plan)]
        fading = STRANGE_ROWS - KNOWN_ROWS
        return [min(1.0, max(0.0, (STRANGE_ROWS - each) / fading)) for each in apart]


def with_interval(
    log_seconds: float, half_width: float, *, level: float, inside: bool
) -> Prediction:
    """The prediction of median exp(`log_seconds`), widened where the hull does not hold it."""
    width = half_width if inside else WIDENING * half_width
    lower, upper = (
        max(-2 * LOG_SECONDS_LIMIT, log_seconds - width),
        min(2 * LOG_SECONDS_LIMIT, log_seconds + width),
    )
    return Prediction(
        math.exp(log_seconds), math.exp(lower), math.exp(upper), level, extrapolating=not inside
    )


def source_rows(plan: Plan) -> float:
    """Rows of all sources: the size of a plan."""
    return sum(each.output_rows for each in plan.workflow.operators if not each.inputs)


def cores_per_node(cluster: ClusterConfig) -> float:
    """Cores that a node has, where all have as many."""
    return cluster.cores / cluster.nodes


def _pairs(plan: Plan) -> list[Pair]:
    kinds = (operator.kind for operator in plan.workflow.operators)
    return list(zip(kinds, plan.platforms, strict=True))


def _apart(rows: float, ends: tuple[float, float]) -> float:
    """How far from what was seen, log rows; 0 between."""
    return max(ends[0] - rows, rows - ends[1], 0.0)


def _log_rows(plan: Plan) -> float:
    return math.log1p(source_rows(plan))


def _sizes(question: SizedPlan) -> tuple[float, ...]:
    operators = question.plan.workflow.operators
    largest = max(operator.output_rows for operator in operators)
    return (
        _log_rows(question.plan),
        math.log1p(largest),
        math.log(question.cluster.cores),
        math.log(question.cluster.nodes),
        math.log(len(operators)),
    )
