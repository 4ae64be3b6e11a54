"""How learners are weighed: folds that mimic the question, and weights by the errors in them.

A question may lie between known scales (machines, cores) or beyond them, between known sizes or
beyond them. Random folds would ask everybody to interpolate and would prefer those who remember;
these folds hold out whole levels:

* between: each inner level in turn;
* beyond: the highest levels, as many as make it most alike how far the question reaches beyond what
  is known, as a share of the span that is known;
* neither, or nothing to mimic it with: workloads are left out, one by one or some at a time.

No fold splits a level in the first two cases and a workload in the last, so none splits repeats of
a configuration.

Learners are weighted, not selected: with few errors the learner that looks best is often best by
chance, and a mix costs less where that happens. Every workload weighs the same, however many
executions it has: in means of errors, and in how many pieces of evidence there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.ridge import ROUNDING, varying_columns
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import number_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import PlanOnCluster

Mask = NDArray[np.bool_]

LEVEL_STEP = 0.01
"""Log scale or size within which two executions are at the same level."""

MOST_LEVELS = 8
"""Of more levels, neighbours are put together."""

LEAST_KEPT = 2
"""Levels that a fold keeps; from fewer nobody can tell how run time grows."""

LEAVE_ONE_OUT_UP_TO = 20
MANY_GROUPS = 300
FOLDS, FOLDS_OF_MANY = 10, 5
"""Of workloads: one by one up to 20, in 10 folds beyond, in 5 where they are many."""


@unique
class QueryRegime(StrEnum):
    """What a question asks of those who know some executions."""

    SEEN = "scale and size seen"
    BETWEEN_SCALES = "between scales"
    BETWEEN_SIZES = "between sizes"
    BEYOND_SCALES = "beyond scales"
    BEYOND_SIZES = "beyond sizes"

    @property
    def is_beyond(self) -> bool:
        """Whether it reaches outside of the scales or sizes that are known."""
        return self in {QueryRegime.BEYOND_SCALES, QueryRegime.BEYOND_SIZES}

    @property
    def is_of_scales(self) -> bool:
        """Whether it differs in scale from what is known; a size may differ as well."""
        return self in {QueryRegime.BETWEEN_SCALES, QueryRegime.BEYOND_SCALES}


@dataclass(frozen=True, eq=False)
class ScaleAndSize:
    """Where executions or questions lie.

    Attributes:
        scale: log machines or cores, float64 [rows].
        size: log of the input size, float64 [rows].
    """

    scale: Floats
    size: Floats

    def __post_init__(self) -> None:
        if self.scale.ndim != 1 or self.scale.shape != self.size.shape:
            shapes = f"{self.scale.shape} and {self.size.shape}"
            raise InvalidInputError(f"a place has one scale and one size, got shapes {shapes}")
        if not (np.isfinite(self.scale).all() and np.isfinite(self.size).all()):
            raise InvalidInputError("the places of executions and questions are finite")

    @classmethod
    def of(cls, questions: Sequence[PlanOnCluster]) -> Self:
        """By cores over all nodes, and rows of all sources."""
        cores = np.array([each.cluster.cores for each in questions], np.float64)
        rows = np.array([each.plan.workflow.source_rows for each in questions], np.float64)
        return cls(np.log(cores), np.log1p(rows))

    @cached_property
    def scales(self) -> Floats:
        """The distinct ones, ascending."""
        return np.unique(self.scale)

    @cached_property
    def sizes(self) -> Floats:
        """The distinct ones, ascending."""
        return np.unique(self.size)


def asks(
    known: ScaleAndSize, asked: ScaleAndSize, *, size_step: float = LEVEL_STEP
) -> list[QueryRegime]:
    """What each of the `asked` asks of those who know `known`; scale counts before size.

    Args:
        known: places of the executions.
        asked: places of the questions.
        size_step: log size up to which the nearest known one counts as the same, unless
            the question lies beyond all of them.
    """
    beyond_scale = _beyond(known.scales, asked.scale)
    beyond_size = _beyond(known.sizes, asked.size)
    new_scale = _apart(known.scales, asked.scale) > LEVEL_STEP
    new_size = _apart(known.sizes, asked.size) > size_step
    chosen = np.select(
        [beyond_scale, beyond_size, new_scale, new_size],
        [
            QueryRegime.BEYOND_SCALES,
            QueryRegime.BEYOND_SIZES,
            QueryRegime.BETWEEN_SCALES,
            QueryRegime.BETWEEN_SIZES,
        ],
        QueryRegime.SEEN,
    )
    return [QueryRegime(each) for each in chosen.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Executions to learn from and executions to be asked about; some may be neither.

    Attributes:
        kept: rows, int64.
        held: rows, int64, at least one.
    """

    kept: NDArray[np.int64]
    held: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HoldoutSplit:
    """Folds of the known executions that resemble questions of a kind.

    Attributes:
        kind: of the questions.
        cut: how many of the highest levels are held out at once; 0 where each is in turn.
        reach: log of how far the held out levels lie beyond the kept ones, as a share of
            the span of those; 0 where they lie between.
        folds: at least one.
    """

    kind: QueryRegime
    cut: int
    reach: float
    folds: tuple[Fold, ...]


def holdout_splits(known: ScaleAndSize, kind: QueryRegime, features: Floats) -> list[HoldoutSplit]:
    """The ways to mimic questions of that `kind`; several where they reach beyond.

    Args:
        known: places of the executions.
        kind: one of `asks`.
        features: of the executions, [executions, columns]. Nobody is asked about a column in
            which all kept executions are alike and the one held out is not: a machine type,
            say, that only one size ran on.

    Returns:
        None where there are too few levels to mimic the question, or nothing to mimic.
    """
    if kind is QueryRegime.SEEN:
        return []
    values = _along(known, kind)
    levels = _levels(values)
    count = int(levels.max(initial=-1)) + 1
    if not kind.is_beyond:
        inner = [_fold(levels == level, features) for level in range(1, count - 1)]
        folds = tuple(each for each in inner if len(each.held))
        return [HoldoutSplit(kind, 0, 0.0, folds)] if folds else []
    cuts = range(1, count - LEAST_KEPT + 1)
    held = [(cut, _fold(levels >= count - cut, features)) for cut in cuts]
    return [
        HoldoutSplit(kind, cut, _reach(values[each.kept], values[each.held]), (each,))
        for cut, each in held
        if len(each.held)
    ]


def closest_scheme(
    ways: Sequence[HoldoutSplit], known: ScaleAndSize, asked: ScaleAndSize
) -> HoldoutSplit | None:
    """Of the `ways` the one that reaches as far as the `asked` do; None where there is none."""
    if not ways:
        return None
    kind = ways[0].kind
    reach = _reach(_distinct(known, kind), _along(asked, kind)) if kind.is_beyond else 0.0
    return min(ways, key=lambda way: abs(way.reach - reach))


def deepest(known: ScaleAndSize, kind: QueryRegime, folds: Sequence[Fold]) -> float:
    """How far any execution held out lies from all kept ones, in what that kind differs in."""
    values = _along(known, kind)
    return max(
        (float(_apart(np.unique(values[f.kept]), values[f.held]).max()) for f in folds),
        default=0.0,
    )


def depth(known: ScaleAndSize, asked: ScaleAndSize, kind: QueryRegime) -> float:
    """How far the asked lie from all that is known, in what that kind differs in."""
    return float(_apart(_distinct(known, kind), _along(asked, kind)).max())


def grouped_folds(groups: NDArray[np.int64], seed: int) -> list[Fold]:
    """Folds that split no group; none of no executions.

    Args:
        groups: workload or configuration of each execution, [executions].
        seed: of who is left out together.
    """
    folds = fold_of(groups, seed)
    return [
        Fold(np.flatnonzero(folds != each), np.flatnonzero(folds == each))
        for each in range(int(folds.max(initial=-1)) + 1)
    ]


def fold_of(groups: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The fold of each execution; executions of one group share it.

    That of many groups follows from a hash of each, so that no group moves another.
    """
    found, number = np.unique(groups, return_inverse=True)
    if len(found) > LEAVE_ONE_OUT_UP_TO:
        folds = FOLDS_OF_MANY if len(found) > MANY_GROUPS else FOLDS
        drawn = [number_of(f"{seed} {group}".encode()) % folds for group in found.tolist()]
        number = np.unique(drawn, return_inverse=True)[1][number]
    return np.asarray(number, np.int64)


def _fold(held: Mask, features: Floats) -> Fold:
    kept = np.flatnonzero(~held)
    rest = np.flatnonzero(held)
    alike = np.setdiff1d(np.arange(features.shape[1]), varying_columns(features[kept]))
    new = np.abs(features[np.ix_(rest, alike)] - features[kept[:1]][:, alike])
    fair = (new <= ROUNDING * np.abs(features[:, alike]).max(axis=0, initial=0.0)).all(axis=1)
    return Fold(kept, rest[fair])


def _along(places: ScaleAndSize, kind: QueryRegime) -> Floats:
    """What questions of that kind differ in."""
    return places.scale if kind.is_of_scales else places.size


def _distinct(places: ScaleAndSize, kind: QueryRegime) -> Floats:
    """The same, each once and ascending."""
    return places.scales if kind.is_of_scales else places.sizes


def _reach(seen: Floats, wanted: Floats) -> float:
    """Log of how far beyond what was seen, as a share of the span that was seen."""
    above, below = wanted - seen.max(), seen.min() - wanted
    beyond = float(np.maximum(np.maximum(above, below), 0.0).mean())
    return float(np.log(max(beyond, LEVEL_STEP) / max(float(np.ptp(seen)), LEVEL_STEP)))


def _beyond(known: Floats, asked: Floats) -> Mask:
    """Which of the asked lie outside of the known ones, which ascend."""
    if len(known) == 0:
        return np.ones(len(asked), bool)
    outside = (asked > known[-1] + LEVEL_STEP) | (asked < known[0] - LEVEL_STEP)
    return np.asarray(outside)


def _apart(known: Floats, asked: Floats) -> Floats:
    """How far the nearest known value is from each of the asked; infinite without any.

    The known ones ascend.
    """
    if len(known) == 0:
        return np.full(len(asked), np.inf)
    place = np.searchsorted(known, asked)
    below, above = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    return np.minimum(np.abs(asked - below), np.abs(asked - above))


def _levels(values: Floats) -> NDArray[np.int64]:
    """The level of each value, counted from the lowest, at most `MOST_LEVELS` of them."""
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order], prepend=values[order][:1]) > LEVEL_STEP
    levels = np.empty(len(values), np.int64)
    levels[order] = np.cumsum(steps)
    count = int(levels.max(initial=-1)) + 1
    return levels if count <= MOST_LEVELS else levels * MOST_LEVELS // count


Ints = NDArray[np.int64]

STACKED_FROM = 100
"""Workloads from which on the weights are those whose mix would have had the least error."""

SMALLEST_WEIGHT = 0.01
"""Members below this are left out: they cost time and change nothing."""

_SMALLEST_ERROR = 0.02
"""Errors below this, in log seconds, are no reason to prefer a learner: clocks differ by more."""

_OUTLIER = 5.0
"""Times its learner's typical error: what an error counts at most for stacked weights."""


def mixing_weights(
    errors: Floats,
    groups: Ints,
    evidence: Ints | None = None,
    *,
    ready: Floats | None = None,
) -> Floats:
    """Weights of the members, not negative, of sum 1; small ones are 0.

    With few pieces of evidence in proportion to error**-p: p grows with their number, so that few
    errors decide little. With many, the weights of the mix that would have erred least.
    Without errors the first member has all.

    Args:
        errors: out-of-fold log errors, [members, executions].
        groups: workload that each error belongs to, [executions].
        evidence: piece of evidence that it belongs to, [executions]; the workload by default.
        ready: part of its weight that each member has, [members]; 1 by default.
    """
    if errors.shape[1] == 0:
        return np.asarray(np.eye(len(errors))[0], dtype=np.float64)
    typical = np.array([typical_error(row, groups) for row in np.abs(errors)])
    pieces = len(np.unique(groups if evidence is None else evidence))
    weights = _weights_by_error(typical, pieces)
    if pieces > STACKED_FROM:
        stacked = _stacked_weights(errors, weights, typical, shares_of(groups))
        weights += min(1.0, pieces / STACKED_FROM - 1) * (stacked - weights)
    weights = weights if ready is None else weights * ready / (weights @ ready)
    weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mixed_errors(
    errors: Floats, groups: Ints, evidence: Ints, folds: Ints, *, ready: Floats | None = None
) -> Floats:
    """Errors of the mix, where the weights of each fold have not seen that fold's errors."""
    mixed = np.zeros(errors.shape[1])
    for fold in np.unique(folds).tolist():
        others, held = folds != fold, folds == fold
        weights = mixing_weights(errors[:, others], groups[others], evidence[others], ready=ready)
        mixed[held] = weights @ errors[:, held]
    return mixed


def typical_error(absolute: Floats, groups: Ints) -> float:
    """Mean over workloads of their absolute errors, without the largest tenth; NaN of none."""
    _, number = np.unique(groups, return_inverse=True)
    means = np.bincount(number, absolute) / np.maximum(np.bincount(number), 1)
    kept = np.sort(means)[: int(np.ceil(0.9 * len(means)))]
    return float(kept.mean()) if len(kept) else float("nan")


def shares_of(groups: Ints, most: float = 1.0) -> Floats:
    """What each execution counts as, where a workload counts as `most` executions at most."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.minimum(1.0, most / counts)[number], dtype=np.float64)


def _weights_by_error(typical: Floats, pieces: int) -> Floats:
    relative = np.maximum(typical, _SMALLEST_ERROR)
    power = np.clip(pieces / 5, 4, 12)
    weights = (relative.min() / relative) ** power
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _stacked_weights(errors: Floats, start: Floats, typical: Floats, shares: Floats) -> Floats:
    """Weights on the simplex with the least mean absolute error of the mix, from `start` on.

    The mean is over executions that count as `shares`.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex
    and has a gradient. Outliers are clipped.
    """
    from scipy.optimize import minimize

    bounds = _OUTLIER * typical[:, None]
    clipped, mean = np.clip(errors, -bounds, bounds), shares / shares.sum()

    def smoothed(mixed: Floats) -> Floats:
        return np.sqrt(mixed**2 + _SMALLEST_ERROR**2)

    def mean_error(weights: Floats) -> float:
        return float(smoothed(weights @ clipped) @ mean)

    def slope(weights: Floats) -> Floats:
        mixed = weights @ clipped
        return np.asarray(clipped @ (mean * mixed / smoothed(mixed)), dtype=np.float64)

    ones = np.ones((1, len(start)))

    def beyond_one(weights: Floats) -> float:
        return float((ones @ weights)[0]) - 1.0

    # A dictionary, because SciPy takes longer to read a `LinearConstraint` than to solve.
    sum_is_one: Any = {"type": "eq", "fun": beyond_one, "jac": lambda _: ones[0]}
    found = minimize(
        mean_error,
        start,
        jac=slope,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints=sum_is_one,
    )
    return np.clip(found.x, 0.0, 1.0) if found.success else start
