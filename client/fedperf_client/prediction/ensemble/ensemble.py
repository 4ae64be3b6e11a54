"""The weighted ensemble of learners, and its reliability beside the pretrained model.

**Weights.** The ensemble is a weighted mean in log seconds. A member's weight follows from its
errors in folds that imitate the query (`weighting`). A level counts as one piece of evidence,
however many executions it holds, unless the held-out levels have a hundred groups. If whole groups
are held out, a group is the piece of evidence. The resulting `EnsembleWeights` hold numbers only,
so that they can be stored.

**Reliability.** Learners are weighted on all local executions. If most of these were of other
kinds, the ensemble is one for those: it may be right in its folds and know nothing of the query.
So ensemble and pretrained model are weighted once more (`Reliability`), by the same rule, on the
executions that are similar to the query. If all executions are similar, there is nothing to weigh
again. If none is, the pretrained model predicts alone. If its error on similar executions is above
the usual one, it is trusted less for operators that local executions do not know.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedperf_client.prediction.encoding import EncodedQueries, Ints
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import (
    STACKED_FROM,
    HoldoutSplit,
    fold_of,
    mixed_errors,
    mixing_weights,
    typical_error,
)
from fedperf_client.prediction.learners.base_learners import (
    Fitted,
    Learner,
    NoLearnerError,
    is_usable,
    readiness,
)
from fedperf_client.prediction.prediction import (
    USUAL_HALF_WIDTH,
    ErrorDistribution,
    Floats,
    QueryRegime,
    checked_log,
    shares_of,
)

USUAL_CORRELATION = 0.5
"""Prior error correlation of two predictions about one job. Half of the squared error is in common,
as work that a job brings is misjudged on all platforms and sizes alike; what each of these adds is
not."""

CORRELATION_COUNTS = 10
"""Weight of that prior, in workloads that were measured in several ways."""

OnProgress = Callable[[int, int], None]
"""Called with the number of finished folds, and of all folds."""


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A learner of an ensemble.

    Attributes:
        name: of the learner.
        weight: in [0, 1].
        error: trimmed mean of its absolute log errors in folds; NaN without executions.
    """

    name: str
    weight: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class EnsembleWeights:
    """The weights of an ensemble for queries of a regime, with its errors.

    Attributes:
        regime: of the queries.
        levels_held_out: see `HoldoutSplit.levels`; 0 if groups are held out.
        members: weighted learners.
        folds: number of folds behind the errors.
        errors: of the ensemble in folds, log seconds, [held-out executions]. The weights did not
            use the errors of the same fold; with a single fold, of the same group.
        groups: workload or configuration, [held-out executions].
        rows: index in the training set, [held-out executions].
        disagreement: weighted variance between the members, mean over workloads.
    """

    regime: QueryRegime
    levels_held_out: int
    members: tuple[EnsembleMember, ...]
    folds: int
    errors: Floats
    groups: Ints
    rows: Ints
    disagreement: float

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
    """The errors of each learner in folds, from which weights of any subset follow.

    Attributes:
        training: the executions.
        split: the folds.
        learners: those that can be used with so many executions and these pretrained models.
        errors: log seconds, [learners, held-out executions].
        rows: index in the training set, [held-out executions].
        evidence: piece of evidence, [held-out executions].
        folds: fold, [held-out executions].
    """

    training: TrainingSet
    split: HoldoutSplit
    learners: tuple[Learner, ...]
    errors: Floats
    rows: Ints
    evidence: Ints
    folds: Ints

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
    size, starts = training.effective_size, training.samples.starts
    used = tuple(each for each in learners if is_usable(each, size, starts))
    rows = np.concatenate([np.zeros(0, np.int64), *(each.held_out for each in split.folds)])
    folds = np.repeat(np.arange(len(split.folds)), [len(each.held_out) for each in split.folds])
    errors = [np.zeros((len(used), 0))]
    for number, fold in enumerate(split.folds):
        known, queries = (training.samples.take(e) for e in (fold.training, fold.held_out))
        log_seconds, truth = (training.log_seconds[e] for e in (fold.training, fold.held_out))
        predictions = [
            checked_log(each.name, each.fit(known, log_seconds)(queries), len(truth))
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
    """The weights of an ensemble and of the pretrained model beside it.

    Attributes:
        weight: of the ensemble if local executions know all operators, in [0, 1].
        shrinkage: lack of trust in the pretrained model, in [0, 1], whatever operators are known.
        distribution: of the errors of both together, in folds.
    """

    weight: float
    shrinkage: float
    distribution: ErrorDistribution

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
        """Return the weight of the ensemble if this share of operators is known."""
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
