"""Learners mixed for the questions at hand, over samples of any kind.

The mix is a weighted mean in log seconds; a member's weight follows from its errors on
folds that mimic the questions (`matching`), a level counting as one piece of evidence,
however many executions it holds. Where nothing can be mimicked the folds are those of
`weighting`, which leave out one workload, or some. Errors of folds are kept for intervals.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learner import Fitted, Learner
from fedperf_client.prediction.matching import Asks, Fold, Places, matching_folds
from fedperf_client.prediction.prediction import Floats, checked_log
from fedperf_client.prediction.weighting import (
    Member,
    NoLearnerError,
    fold_of,
    mixed_errors,
    mixing_weights,
    typical_error,
    usable,
)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Own executions as the mixture reads them.

    Attributes:
        samples: [executions].
        log_seconds: natural log of the measured wall seconds, float64 [executions].
        places: where they lie, [executions].
        groups: workload or configuration of each, int64 [executions]; never split.
    """

    samples: Samples
    log_seconds: Floats
    places: Places
    groups: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The mix, fitted on all own executions; samples -> log seconds.

    Attributes:
        kind: of the questions that it was weighted for.
        members: what was mixed, with weights and errors.
        folds: number of folds behind the errors.
        errors: of the mix in folds, log seconds, [executions held out in some fold]; its
            weights have not seen the fold, unless there is only one.
        groups: workload of each of those.
    """

    kind: Asks
    members: tuple[Member, ...]
    folds: int
    errors: Floats
    groups: NDArray[np.int64]
    _fitted: tuple[tuple[float, str, Fitted], ...]

    def __call__(self, asked: Samples) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        parts = [
            weight * checked_log(name, fitted(asked), len(asked))
            for weight, name, fitted in self._fitted
        ]
        return np.asarray(np.sum(parts, axis=0))


def mixed_for(
    kind: Asks, asked: Places, known: Known, learners: Iterable[Learner], *, seed: int = 0
) -> Mixture:
    """Mix `learners` for questions of one kind.

    Args:
        kind: of the questions, see `asks`.
        asked: where the questions lie, [questions].
        known: own executions.
        learners: in order of trust; those that need more executions, or a start that the
            samples have no answers of, are left out.
        seed: of folds that mimic nothing.

    Raises:
        NoLearnerError: none of them can be used.
        PredictorFailedError: a learner gave values that cannot be used.
    """
    count = len(known.log_seconds)
    used = [each for each in learners if usable(each, count, known.samples.starts)]
    if not used:
        raise NoLearnerError(count)
    folds = matching_folds(known.places, asked, kind, known.samples.features)
    folds = folds or _grouped_folds(known.groups, seed)
    errors, fold, rows = _errors(used, known, folds)
    weights = mixing_weights(errors, fold)
    fitted = tuple(
        (float(weight), learner.name, learner.fit(known.samples, known.log_seconds))
        for learner, weight in zip(used, weights, strict=True)
        if weight > 0
    )
    members = tuple(
        Member(learner.name, float(weight), typical_error(np.abs(row)))
        for learner, weight, row in zip(used, weights, errors, strict=True)
    )
    mixed = mixed_errors(errors, fold, fold) if len(folds) > 1 else weights @ errors
    return Mixture(kind, members, len(folds), mixed, known.groups[rows], fitted)


def _grouped_folds(groups: NDArray[np.int64], seed: int) -> list[Fold]:
    folds = fold_of(groups, seed)
    return [
        Fold(np.flatnonzero(folds != each), np.flatnonzero(folds == each))
        for each in range(int(folds.max(initial=-1)) + 1)
    ]


def _errors(
    learners: Sequence[Learner], known: Known, folds: Sequence[Fold]
) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Errors [learners, held out], and fold and row of each that was held out."""
    rows = np.concatenate([np.zeros(0, np.int64), *(each.held for each in folds)])
    fold = np.repeat(np.arange(len(folds)), [len(each.held) for each in folds])
    parts = [np.zeros((len(learners), 0)), *(_fold_errors(learners, known, each) for each in folds)]
    return np.concatenate(parts, axis=1), fold, rows


def _fold_errors(learners: Sequence[Learner], known: Known, fold: Fold) -> Floats:
    samples, log_seconds = known.samples.take(fold.kept), known.log_seconds[fold.kept]
    asked, truth = known.samples.take(fold.held), known.log_seconds[fold.held]
    answers = [
        checked_log(each.name, each.fit(samples, log_seconds)(asked), len(truth))
        for each in learners
    ]
    return truth - np.array(answers)
