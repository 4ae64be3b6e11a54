"""Query-matched cross-validation folds, and the weights of ensemble members by errors in them.

A query may interpolate or extrapolate in scale (machines, cores) or in input size. Random folds
would make every learner interpolate, and prefer those that memorize. These folds hold out whole
levels instead:

* interpolation: each inner level in turn;
* extrapolation: the highest levels. Their number is chosen so that their distance from the
  training levels, as a share of the span of these, is most like the distance of the query;
* neither, or too few levels: whole workloads, one by one or some at a time.

No fold splits a level in the first two cases or a workload in the last. So none splits the repeats
of a configuration.

Learners are weighted, not selected. With few errors the learner that looks best is often best by
chance, and an ensemble loses less when that happens. Every workload weighs the same, however many
executions it has, both in mean errors and in the number of pieces of evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedperf_client.prediction.encoding import Ints, Mask, hash64
from fedperf_client.prediction.learners.ridge import ROUNDING, varying_columns
from fedperf_client.prediction.prediction import Floats, QueryRegime, shares_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import PlanOnCluster

LEVEL_STEP = 0.01
"""Log scale or size within which two executions are at the same level."""

MOST_LEVELS = 8
"""Neighbouring levels are merged down to this number."""

LEAST_KEPT = 2
"""Levels left for training in a fold. From fewer, no growth of run time can be estimated."""

LEAVE_ONE_OUT_UP_TO = 20
MANY_GROUPS = 300
FOLDS, FOLDS_OF_MANY = 10, 5
"""Folds of workloads: one for each up to 20 workloads, 10 beyond, 5 if they are many."""

STACKED_FROM = 100
"""Workloads from which on the weights minimize the error of the ensemble (stacking)."""

SMALLEST_WEIGHT = 0.01
"""Members below this are left out: they cost time and change nothing."""

_SMALLEST_ERROR = 0.02
"""Smaller errors, in log seconds, do not distinguish learners: clocks differ by more."""

_OUTLIER = 5.0
"""Multiple of a learner's typical error at which an error is clipped for stacking."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaleAndSize:
    """The scales and input sizes of executions or queries.

    Attributes:
        scale: log machines or cores, float64 [rows].
        size: log of the input size, float64 [rows].
    """

    scale: Floats
    size: Floats

    def __post_init__(self) -> None:
        if self.scale.ndim != 1 or self.scale.shape != self.size.shape:
            shapes = f"{self.scale.shape} and {self.size.shape}"
            raise InvalidInputError(f"scales and sizes must be vectors of one length, got {shapes}")
        if not (np.isfinite(self.scale).all() and np.isfinite(self.size).all()):
            raise InvalidInputError("scales and sizes must be finite")

    @classmethod
    def from_queries(cls, queries: Sequence[PlanOnCluster]) -> Self:
        """Return cores over all nodes and rows of all sources."""
        cores = np.array([each.cluster.cores for each in queries], np.float64)
        rows = np.array([each.plan.workflow.source_rows for each in queries], np.float64)
        return cls(np.log(cores), np.log1p(rows))

    def take(self, rows: Ints | slice) -> "ScaleAndSize":
        """Return these rows."""
        return ScaleAndSize(self.scale[rows], self.size[rows])

    def along(self, regime: QueryRegime) -> Floats:
        """Return the coordinate in which queries of a regime differ from the training runs."""
        return self.scale if regime.is_of_scales else self.size

    def largest_gap(self, queries: "ScaleAndSize", regime: QueryRegime) -> float:
        """Return the largest distance of a query from the nearest execution, in log units."""
        return float(_distance(self.along(regime), queries.along(regime)).max())


def query_regimes(
    training: ScaleAndSize, queries: ScaleAndSize, *, size_step: float = LEVEL_STEP
) -> list[QueryRegime]:
    """Return the regime of each query; scale takes precedence over size.

    Args:
        training: of the training executions.
        queries: of the queries.
        size_step: log size up to which the nearest known size counts as the same, unless the
            query lies beyond all of them.
    """
    regimes = np.select(
        [
            _is_beyond(training.scale, queries.scale),
            _is_beyond(training.size, queries.size),
            _distance(training.scale, queries.scale) > LEVEL_STEP,
            _distance(training.size, queries.size) > size_step,
        ],
        [
            QueryRegime.BEYOND_SCALES,
            QueryRegime.BEYOND_SIZES,
            QueryRegime.BETWEEN_SCALES,
            QueryRegime.BETWEEN_SIZES,
        ],
        QueryRegime.SEEN,
    )
    return [QueryRegime(each) for each in regimes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The executions to train on and to predict in one fold; some may be in neither set.

    Attributes:
        training: rows, int64.
        held_out: rows, int64, at least one.
    """

    training: Ints
    held_out: Ints


SplitKey = tuple[QueryRegime, int]
"""Identifies a `HoldoutSplit` among those of one set of executions."""


@dataclass(frozen=True, slots=True, eq=False)
class HoldoutSplit:
    """Folds of the training executions that imitate queries of a regime.

    Attributes:
        regime: of the queries; `SEEN` if whole workloads are held out.
        levels: number of highest levels held out at once; 0 if each is held out in turn.
        reach: log of the distance of the held-out levels from the training levels, as a share of
            the span of these; 0 if they lie between them.
        folds: at least one, except without executions.
    """

    regime: QueryRegime
    levels: int
    reach: float
    folds: tuple[Fold, ...]

    @property
    def key(self) -> SplitKey:
        """Key of what is cached for this split."""
        return self.regime, self.levels


def grouped_split(groups: Ints, seed: int = 0) -> HoldoutSplit:
    """Return folds that hold out whole groups.

    Args:
        groups: workload or configuration of each execution, [executions].
        seed: of the assignment of groups to folds.
    """
    fold = fold_of(groups, seed)
    folds = (
        Fold(np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(int(fold.max(initial=-1)) + 1)
    )
    return HoldoutSplit(QueryRegime.SEEN, 0, 0.0, tuple(folds))


def holdout_splits(
    training: ScaleAndSize, regime: QueryRegime, features: Floats
) -> list[HoldoutSplit]:
    """Return the splits that imitate queries of a regime; several for extrapolation.

    The list is empty for `SEEN`, and if there are too few levels.

    Args:
        training: of the training executions.
        regime: of the queries.
        features: of the executions, [executions, columns]. An execution is not held out if it
            differs in a column that is constant in the training rows of its fold, such as a
            machine type that only one size ran on.
    """
    if regime is QueryRegime.SEEN:
        return []
    values = training.along(regime)
    levels = _levels(values)
    count = int(levels.max(initial=-1)) + 1
    if not regime.is_beyond:
        inner = [_fold(levels == level, features) for level in range(1, count - 1)]
        folds = tuple(each for each in inner if len(each.held_out))
        return [HoldoutSplit(regime, 0, 0.0, folds)] if folds else []
    highest = range(1, count - LEAST_KEPT + 1)
    folds_by_levels = [(number, _fold(levels >= count - number, features)) for number in highest]
    return [
        HoldoutSplit(regime, number, _reach(values[each.training], values[each.held_out]), (each,))
        for number, each in folds_by_levels
        if len(each.held_out)
    ]


def closest_split(
    splits: Sequence[HoldoutSplit], training: ScaleAndSize, queries: ScaleAndSize
) -> HoldoutSplit | None:
    """Return the split that reaches as far as the queries do; None without any split."""
    if not splits:
        return None
    regime = splits[0].regime
    is_beyond = regime.is_beyond
    reach = _reach(training.along(regime), queries.along(regime)) if is_beyond else 0.0
    return min(splits, key=lambda each: abs(each.reach - reach))


def fold_of(groups: Ints, seed: int) -> Ints:
    """Return the fold of each execution; executions of one group share it.

    If there are many groups, the fold is a hash of the group. So no group moves another.
    """
    distinct, number = np.unique(groups, return_inverse=True)
    if len(distinct) > LEAVE_ONE_OUT_UP_TO:
        folds = FOLDS_OF_MANY if len(distinct) > MANY_GROUPS else FOLDS
        hashed = [hash64(f"{seed} {group}".encode()) % folds for group in distinct.tolist()]
        number = np.unique(hashed, return_inverse=True)[1][number]
    return np.asarray(number, np.int64)


def _fold(is_held_out: Mask, features: Floats) -> Fold:
    training, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
    constant = np.setdiff1d(np.arange(features.shape[1]), varying_columns(features[training]))
    change = np.abs(features[np.ix_(held_out, constant)] - features[training[:1]][:, constant])
    limit = ROUNDING * np.abs(features[:, constant]).max(axis=0, initial=0.0)
    return Fold(training, held_out[(change <= limit).all(axis=1)])


def _reach(values: Floats, queries: Floats) -> float:
    """Return the log of the mean distance beyond the training values, as a share of their span."""
    above, below = queries - values.max(), values.min() - queries
    beyond = float(np.maximum(np.maximum(above, below), 0.0).mean())
    return float(np.log(max(beyond, LEVEL_STEP) / max(float(np.ptp(values)), LEVEL_STEP)))


def _is_beyond(values: Floats, queries: Floats) -> Mask:
    """Return which queries lie outside of the training values."""
    lowest, highest = values.min(initial=np.inf), values.max(initial=-np.inf)
    return np.asarray((queries > highest + LEVEL_STEP) | (queries < lowest - LEVEL_STEP))


def _distance(values: Floats, queries: Floats) -> Floats:
    """Return the distance of each query from the nearest training value."""
    ascending = np.concatenate([[-np.inf], np.sort(values), [np.inf]])
    place = np.searchsorted(ascending, queries)
    return np.asarray(np.minimum(queries - ascending[place - 1], ascending[place] - queries))


def _levels(values: Floats) -> Ints:
    """Return the level of each value, from the lowest up, at most `MOST_LEVELS` of them."""
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order], prepend=values[order][:1]) > LEVEL_STEP
    levels = np.empty(len(values), np.int64)
    levels[order] = np.cumsum(steps)
    count = int(levels.max(initial=-1)) + 1
    return levels if count <= MOST_LEVELS else levels * MOST_LEVELS // count


def mixing_weights(
    errors: Floats, groups: Ints, evidence: Ints | None = None, *, ready: Floats | None = None
) -> Floats:
    """Return the weights of the members, not negative, of sum 1; small ones are 0.

    With few pieces of evidence a weight is in proportion to error**-p. The power p grows with
    their number, so that few errors decide little. With many, the weights minimize the error of
    the ensemble. Without errors the first member has all weight.

    Args:
        errors: out-of-fold log errors, [members, executions].
        groups: workload of each execution, [executions].
        evidence: piece of evidence that each belongs to, [executions]; the workload by default.
        ready: share of its weight that each member may have, [members]; 1 by default.
    """
    if errors.shape[1] == 0:
        return np.asarray(np.eye(len(errors))[0], dtype=np.float64)
    typical = np.array([typical_error(row, groups) for row in np.abs(errors)])
    pieces = len(np.unique(groups if evidence is None else evidence))
    relative = np.maximum(typical, _SMALLEST_ERROR)
    weights = (relative.min() / relative) ** np.clip(pieces / 5, 4, 12)
    weights = np.asarray(weights / weights.sum(), dtype=np.float64)
    if pieces > STACKED_FROM:
        stacked = _stacked_weights(errors, weights, typical, shares_of(groups))
        weights += min(1.0, pieces / STACKED_FROM - 1) * (stacked - weights)
    weights = weights if ready is None else weights * ready / (weights @ ready)
    weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mixed_errors(
    errors: Floats, groups: Ints, evidence: Ints, folds: Ints, *, ready: Floats | None = None
) -> Floats:
    """Return the errors of the ensemble, each by weights that did not use the errors of its fold.

    Arguments as of `mixing_weights`; `folds` is the fold of each execution, [executions].
    """
    mixed = np.zeros(errors.shape[1])
    for fold in np.unique(folds).tolist():
        others, held_out = folds != fold, folds == fold
        weights = mixing_weights(errors[:, others], groups[others], evidence[others], ready=ready)
        mixed[held_out] = weights @ errors[:, held_out]
    return mixed


def typical_error(absolute: Floats, groups: Ints) -> float:
    """Return the mean absolute error of workloads without the largest tenth; NaN without any."""
    _, number = np.unique(groups, return_inverse=True)
    means = np.bincount(number, absolute) / np.maximum(np.bincount(number), 1)
    smallest = np.sort(means)[: int(np.ceil(0.9 * len(means)))]
    return float(smallest.mean()) if len(smallest) else float("nan")


def _stacked_weights(errors: Floats, start: Floats, typical: Floats, shares: Floats) -> Floats:
    """Return the weights on the simplex that minimize the mean absolute error of the ensemble.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex and has
    a gradient. Outliers are clipped. The search begins at `start`; executions weigh `shares`.
    """
    from scipy.optimize import minimize

    bounds = _OUTLIER * typical[:, None]
    clipped, mean = np.clip(errors, -bounds, bounds), shares / shares.sum()

    def loss(weights: Floats) -> tuple[float, Floats]:
        mixed = weights @ clipped
        smoothed = np.sqrt(mixed**2 + _SMALLEST_ERROR**2)
        return float(smoothed @ mean), clipped @ (mean * mixed / smoothed)

    ones = np.ones(len(start))
    # A dictionary, because SciPy takes longer to read a `LinearConstraint` than to solve.
    sum_is_one: Any = {"type": "eq", "fun": lambda w: float(ones @ w) - 1.0, "jac": lambda _: ones}
    result = minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints=sum_is_one,
    )
    return np.clip(result.x, 0.0, 1.0) if result.success else start
