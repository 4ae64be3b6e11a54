"""The weighted ensemble of learners, and its reliability next to the pretrained model.

**Folds.** A query may interpolate or extrapolate in scale (machines, cores) or in input size.
Random folds would make every learner interpolate, and prefer those that memorize. These folds hold
out whole levels instead:

* interpolation: each inner level in turn;
* extrapolation: the highest levels. Their number is chosen so that their distance from the
  training levels, as a share of the span of these, is most like the distance of the query;
* neither, or too few levels: whole workloads, one by one or some at a time.

No fold splits a level in the first two cases or a workload in the last. So none splits the repeats
of a configuration.

**Weights.** Learners are weighted, not selected. With few errors the learner that looks best is
often best by chance, and an ensemble loses less when that happens. Every workload weighs the same,
however many executions it has, both in mean errors and in the number of pieces of evidence.

The ensemble is a weighted mean in log seconds. A member's weight follows from its errors in these
folds. A level counts as one piece of evidence, however many executions it holds, unless the
held-out levels have a hundred groups. If whole groups are held out, a group is the piece of
evidence. The resulting `EnsembleWeights` hold numbers only, so that they can be stored.

**Reliability.** Learners are weighted on all local executions. If most of these were of other
kinds, the ensemble is one for those: it may be right in its folds and have no evidence for the
query. So ensemble and pretrained model are weighted once more (`Reliability`), by the same rule, on
the executions that are similar to the query. If all executions are similar, there is nothing to
weigh again. If none is, the pretrained model predicts alone. If its error on similar executions is
above the usual one, it is trusted less for operators without local executions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedperf_client.prediction.encoding import EncodedQueries, Ints, Mask, hash64
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.learners.base_learners import (
    Fitted,
    Learner,
    NoLearnerError,
    is_usable,
    readiness,
)
from fedperf_client.prediction.learners.ridge import ROUNDING, varying_columns
from fedperf_client.prediction.prediction import (
    USUAL_HALF_WIDTH,
    ErrorDistribution,
    Floats,
    QueryRegime,
    checked_log,
    shares_of,
)

LEVEL_STEP = 0.01  # log scale or size within which two executions are at the same level
MOST_LEVELS = 8  # neighbouring levels are merged down to this number
# Levels left for training in a fold. From fewer, no growth of run time can be estimated.
LEAST_KEPT = 2

LEAVE_ONE_OUT_UP_TO = 20
MANY_GROUPS = 300
# Folds of workloads: one for each up to 20 workloads, 10 beyond, 5 if they are many.
FOLDS, FOLDS_OF_MANY = 10, 5

# Workloads from which on the weights minimize the error of the ensemble (stacking).
STACKED_FROM = 100

SMALLEST_WEIGHT = 0.01  # members below this are left out: they cost time and change nothing
# Smaller errors, in log seconds, do not distinguish learners: clocks differ by more.
_SMALLEST_ERROR = 0.02

_OUTLIER = 5.0  # multiple of a learner's typical error at which an error is clipped for stacking
# Prior error correlation of two predictions about one job. Half of the squared error is in common,
# as work that a job brings is misjudged on all platforms and sizes alike; what each of these adds
# is not.
USUAL_CORRELATION = 0.5

CORRELATION_COUNTS = 10  # weight of that prior, in workloads that were measured in several ways
# Called with the number of finished folds, and of all folds.
OnProgress = Callable[[int, int], None]


# --- folds ------------------------------------------------------------------------------------


def largest_gap(training: ScaleAndSize, queries: ScaleAndSize, regime: QueryRegime) -> float:
    """Return the largest distance of a query from the nearest execution, in log units."""
    return float(_distance(training.along(regime), queries.along(regime)).max())


def query_regimes(
    training: ScaleAndSize, queries: ScaleAndSize, *, size_step: float = LEVEL_STEP
) -> list[QueryRegime]:
    """Return the regime of each query; scale takes precedence over size.

    Args:
        training: of the training executions.
        queries: of the queries.
        size_step: log size up to which the nearest measured size counts as the same, unless the
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
    """The executions to train on and to predict in one fold; some may be in neither set."""

    training: Ints  # rows, int64
    held_out: Ints  # rows, int64, at least one


# Identifies a `HoldoutSplit` among those of one set of executions.
SplitKey = tuple[QueryRegime, int]


@dataclass(frozen=True, slots=True, eq=False)
class HoldoutSplit:
    """Folds of the training executions that imitate queries of a regime."""

    regime: QueryRegime  # of the queries; `SEEN` if whole workloads are held out
    levels: int  # number of highest levels held out at once; 0 if each is held out in turn
    # Log of the distance of the held-out levels from the training levels, as a share of the span of
    # these; 0 if they lie between them.
    reach: float
    folds: tuple[Fold, ...]  # at least one, except without executions

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


# --- weights ----------------------------------------------------------------------------------


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


def _stacked_weights(errors: Floats, initial: Floats, typical: Floats, shares: Floats) -> Floats:
    """Return the weights on the simplex that minimize the mean absolute error of the ensemble.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex and has
    a gradient. Outliers are clipped. The search begins at `initial`; executions weigh `shares`.
    """
    from scipy.optimize import minimize

    bounds = _OUTLIER * typical[:, None]
    clipped, mean = np.clip(errors, -bounds, bounds), shares / shares.sum()

    def loss(weights: Floats) -> tuple[float, Floats]:
        mixed = weights @ clipped
        smoothed = np.sqrt(mixed**2 + _SMALLEST_ERROR**2)
        return float(smoothed @ mean), clipped @ (mean * mixed / smoothed)

    ones = np.ones(len(initial))
    # A dictionary, because SciPy takes longer to read a `LinearConstraint` than to solve.
    sum_is_one: Any = {"type": "eq", "fun": lambda w: float(ones @ w) - 1.0, "jac": lambda _: ones}
    result = minimize(
        loss,
        initial,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(initial),
        constraints=sum_is_one,
    )
    return np.clip(result.x, 0.0, 1.0) if result.success else initial


# --- the ensemble -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A learner of an ensemble."""

    name: str  # of the learner
    weight: float  # in [0, 1]
    error: float  # trimmed mean of its absolute log errors in folds; NaN without executions


@dataclass(frozen=True, slots=True, eq=False)
class EnsembleWeights:
    """The weights of an ensemble for queries of a regime, with its errors."""

    regime: QueryRegime  # of the queries
    levels_held_out: int  # see `HoldoutSplit.levels`; 0 if groups are held out
    members: tuple[EnsembleMember, ...]  # weighted learners
    folds: int  # number of folds behind the errors
    # Of the ensemble in folds, log seconds, [held-out executions]. The weights did not use the
    # errors of the same fold; with a single fold, of the same group.
    errors: Floats
    groups: Ints  # workload or configuration, [held-out executions]
    rows: Ints  # index in the training set, [held-out executions]
    disagreement: float  # weighted variance between the members, mean over workloads

    @property
    def by_name(self) -> dict[str, float]:
        """Weight of each member by its name."""
        return {member.name: member.weight for member in self.members}

    def predict(
        self, queries: EncodedQueries, fit: Callable[[str], Fitted]
    ) -> tuple[Floats, Floats]:
        """Predict log seconds, and return the variance between members; [queries] both.

        `fit` returns members by name, fitted on all local executions.

        Raises:
            PredictorFailedError: A member returned values that cannot be used.
        """
        members = [each for each in self.members if each.weight > 0]
        weights = np.array([each.weight for each in members])
        predictions = [
            checked_log(each.name, fit(each.name)(queries), len(queries)) for each in members
        ]
        mean = np.asarray(weights @ predictions)
        return mean, np.asarray(weights @ (predictions - mean) ** 2)


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidationErrors:
    """The errors of each learner in folds, from which weights of any subset follow."""

    training: TrainingSet  # the executions
    split: HoldoutSplit  # the folds
    # Those that can be used with so many executions and these pretrained models.
    learners: tuple[Learner, ...]
    errors: Floats  # log seconds, [learners, held-out executions]
    rows: Ints  # index in the training set, [held-out executions]
    evidence: Ints  # piece of evidence, [held-out executions]
    folds: Ints  # fold, [held-out executions]

    def weights(self, learners: Iterable[Learner] | None = None) -> EnsembleWeights:
        """Return the weights of these learners; of all by default.

        Raises:
            NoLearnerError: None of them has errors.
        """
        names = {each.name for each in (self.learners if learners is None else learners)}
        rows = [row for row, each in enumerate(self.learners) if each.name in names]
        if not rows:
            raise NoLearnerError(len(self.training))
        errors, groups = self.errors[rows], self.training.groups[self.rows]
        size = self.training.effective_size
        ready = np.array([readiness(self.learners[row], size) for row in rows])
        weights = mixing_weights(errors, groups, self.evidence, ready=ready)
        members = tuple(
            EnsembleMember(
                self.learners[row].name, float(weight), typical_error(np.abs(of_member), groups)
            )
            for row, weight, of_member in zip(rows, weights, errors, strict=True)
        )
        count = int(self.folds.max(initial=-1)) + 1
        folds = self.folds if count != 1 else fold_of(groups, 0)
        mixed = mixed_errors(errors, groups, self.evidence, folds, ready=ready)
        between = weights @ (errors - weights @ errors) ** 2
        mean = float(np.average(between, weights=shares_of(groups))) if len(groups) else 0.0
        regime, levels = self.split.key
        return EnsembleWeights(regime, levels, members, count, mixed, groups, self.rows, mean)


def cross_validate(
    training: TrainingSet,
    learners: Iterable[Learner],
    split: HoldoutSplit,
    *,
    on_progress: OnProgress | None = None,
) -> CrossValidationErrors:
    """Return the errors of each learner on executions that it was not fitted on.

    Args:
        training: local executions.
        learners: in order of precedence, each name once. Those that need more executions, or a
            pretrained model without predictions in the samples, are left out.
        split: the folds.
        on_progress: called after each fold.

    Raises:
        PredictorFailedError: A learner returned values that cannot be used.
    """
    size, base_models = training.effective_size, training.samples.base_predictions
    used = tuple(each for each in learners if is_usable(each, size, base_models))
    rows = np.concatenate([np.zeros(0, np.int64), *(each.held_out for each in split.folds)])
    folds = np.repeat(np.arange(len(split.folds)), [len(each.held_out) for each in split.folds])
    errors = [np.zeros((len(used), 0))]
    for number, fold in enumerate(split.folds):
        samples, queries = (training.samples.take(e) for e in (fold.training, fold.held_out))
        log_seconds, truth = (training.log_seconds[e] for e in (fold.training, fold.held_out))
        predictions = [
            checked_log(each.name, each.fit(samples, log_seconds)(queries), len(truth))
            for each in used
        ]
        errors.append(truth - np.array(predictions))
        if on_progress is not None:
            on_progress(number + 1, len(split.folds))
    groups = training.groups[rows]
    by_group = split.regime is QueryRegime.SEEN or len(np.unique(groups)) >= STACKED_FROM
    return CrossValidationErrors(
        training,
        split,
        used,
        np.concatenate(errors, axis=1),
        rows,
        groups if by_group else folds,
        folds,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """The weights of an ensemble and of the pretrained model next to it."""

    weight: float  # of the ensemble if local executions cover all operators, in [0, 1]
    # Lack of trust in the pretrained model, in [0, 1], independent of the covered operators.
    shrinkage: float
    distribution: ErrorDistribution  # of the errors of both together, in folds

    @classmethod
    def of_ensemble(cls, errors: Floats, groups: Ints) -> "Reliability":
        """Return full weight for an ensemble with these errors in folds, [executions]."""
        return cls(1.0, 0.0, ErrorDistribution.from_errors(errors, groups))

    @classmethod
    def of_pretrained(cls) -> "Reliability":
        """Return full weight for the pretrained model: no local execution is similar."""
        nothing = ErrorDistribution.from_errors(np.zeros(0), np.zeros(0, np.int64))
        return cls(0.0, 0.0, nothing)

    @classmethod
    def of_both(cls, pretrained: Floats, ensemble: Floats, groups: Ints) -> "Reliability":
        """Weigh pretrained model and ensemble by their errors on the same executions.

        Args:
            pretrained: log errors, [executions], at least one.
            ensemble: out-of-fold log errors, [executions].
            groups: workload of each. The errors of both together are those of weights that did
                not use the workload.
        """
        together, folds = np.zeros(len(groups)), fold_of(groups, 0)
        for fold in range(int(folds.max(initial=-1)) + 1):
            held_out, others = folds == fold, folds != fold
            weight, shrinkage = _weight_and_shrinkage(
                pretrained[others], ensemble[others], groups[others]
            )
            weight += shrinkage * (1 - weight)
            errors = pretrained[held_out]
            together[held_out] = errors + weight * (ensemble[held_out] - errors)
        weight, shrinkage = _weight_and_shrinkage(pretrained, ensemble, groups)
        return cls(weight, shrinkage, ErrorDistribution.from_errors(together, groups))

    @property
    def variance(self) -> float:
        """Mean squared error, regularized by the usual error."""
        return self.distribution.student.scale**2

    def weight_at(self, support: float) -> float:
        """Return the weight of the ensemble if this share of operators is covered."""
        return 1 - (1 - self.shrinkage) * (1 - support * self.weight)


def _weight_and_shrinkage(
    pretrained: Floats, ensemble: Floats, groups: Ints
) -> tuple[float, float]:
    """Return the weight of the ensemble, and that of the usual error against the pretrained."""
    sizes, usual = np.abs(pretrained), np.full(len(pretrained), USUAL_HALF_WIDTH)
    weight = mixing_weights(np.stack([pretrained, ensemble]), groups)[1]
    return float(weight), float(mixing_weights(np.stack([sizes, usual]), groups)[1])


def error_correlation(errors: Floats, workloads: Ints, configurations: Ints) -> float:
    """Estimate the share of the squared error common to predictions about a workload, in [0, 1).

    It cancels in comparisons of two plans or sizes of one job. The prior is `USUAL_CORRELATION`.

    Args:
        errors: of an ensemble in folds, signed, [executions].
        workloads: of each.
        configurations: of each; repeats of one count once.
    """
    distinct, first, group = np.unique(configurations, return_index=True, return_inverse=True)
    mean = np.bincount(group, errors) / np.bincount(group) if len(distinct) else np.zeros(0)
    of_workload = np.unique(workloads[first], return_inverse=True)[1]
    sizes = np.bincount(of_workload)
    is_several = sizes[of_workload] > 1
    squared = float((mean[is_several] ** 2).mean()) if is_several.any() else 0.0
    if not squared > 0:
        return USUAL_CORRELATION
    level = np.bincount(of_workload, mean) / np.maximum(sizes, 1)
    count = int(np.count_nonzero(sizes > 1))
    within = ((mean - level[of_workload])[is_several] ** 2).sum() / (is_several.sum() - count)
    common = 1 - min(1.0, float(within) / squared)
    return (CORRELATION_COUNTS * USUAL_CORRELATION + count * common) / (CORRELATION_COUNTS + count)
