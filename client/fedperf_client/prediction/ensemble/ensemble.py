"""Learners mixed for the questions at hand, over samples of any kind, and the mix beside the start.

The mix is a weighted mean in log seconds; a member's weight follows from its errors on folds that
mimic the questions (`weighting`), a level counting as one piece of evidence, however many
executions it holds, unless the levels held out have a hundred groups. Where nothing can be mimicked
folds leave out whole groups, and a group is the piece of evidence. What weighing came to
(`EnsembleWeights`) is numbers alone, so that it can be kept.

Learners are weighed on all own executions. Where most of these were of other kinds, the mix is one
for those: it may be right in its folds and know nothing of the question. So mix and start are
weighed once more (`Reliability`), by the same rule, on executions that are like the question. These
share an operator's kind and platform with it, at about its rows and cores. Where all executions are
alike, there is nothing to weigh again; where none is, the start speaks alone. A start may be
farther off on them than is usual. Then it is not believed for what own executions do not know.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.intervals import (
    USUAL_HALF_WIDTH,
    Distribution,
    ErrorDistribution,
    StudentT,
    widest,
    with_more,
)
from fedperf_client.prediction.ensemble.learner_catalogue import NoLearnerError, readiness, usable
from fedperf_client.prediction.ensemble.repeats import ResourceChange
from fedperf_client.prediction.ensemble.weighting import (
    STACKED_FROM,
    Fold,
    HoldoutSplit,
    QueryRegime,
    ScaleAndSize,
    fold_of,
    grouped_folds,
    mixed_errors,
    mixing_weights,
    shares_of,
    typical_error,
)
from fedperf_client.prediction.learners.base_learners import Fitted, Learner
from fedperf_client.prediction.prediction import Floats, checked_log
from fedperf_client.prediction.query_encoding import EncodedQueries, Identity
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.pretrained import estimates_half_width, pretrained_half_width

OnProgress = Callable[[int, int], None]
"""Called with folds that are done, and folds in all."""

MOST_OF_GROUP = 1.0
"""Executions that a workload counts as at most."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Own executions as the mixture reads them.

    Attributes:
        samples: [executions].
        log_seconds: natural log of the measured wall seconds, float64 [executions].
        places: where they lie, [executions].
        groups: workload or configuration of each, int64 [executions]; never split.
    """

    samples: EncodedQueries
    log_seconds: Floats
    places: ScaleAndSize
    groups: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.log_seconds)

    @property
    def counted(self) -> float:
        """How many executions they count as where learners are fitted."""
        return float(self.samples.weights.sum())

    def take(self, rows: NDArray[np.int64]) -> "TrainingSet":
        """Those rows."""
        samples = self.samples.take(rows)
        places = ScaleAndSize(self.places.scale[rows], self.places.size[rows])
        groups = groups_of(self.groups[rows], samples.configurations())
        return TrainingSet(samples, self.log_seconds[rows], places, groups)

    def by_workload(self) -> "TrainingSet":
        """The same where a workload counts as `MOST_OF_GROUP` executions at most, in every fit."""
        shares = shares_of(self.groups, MOST_OF_GROUP)
        return replace(self, samples=replace(self.samples, shares=shares))


def groups_of(workloads: NDArray[np.int64], configurations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Workload numbers; of one workload alone its configurations, of one of these its repeats."""
    for groups in (workloads, configurations):
        if len(np.unique(groups)) > 1:
            return groups
    return np.arange(len(workloads))


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """One learner's place in a mix.

    Attributes:
        name: what it is.
        weight: its share, in [0, 1].
        error: trimmed mean of its absolute log errors in folds; NaN without executions.
    """

    name: str
    weight: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class EnsembleWeights:
    """What weighing came to.

    Attributes:
        kind: of the questions that it was weighed for.
        cut: of the folds, see `HoldoutSplit`; 0 where they leave out groups.
        members: who was weighed, with weights and errors.
        folds: number of folds behind the errors.
        errors: of the mix in folds, log seconds, [executions held out in some fold], by
            weights that have not seen the error's fold, nor its group where folds are one.
        groups: workload or configuration of each of those.
        rows: which execution each of those is, in the order of what is known.
        apart: variance between the members there, weighted; the mean over workloads.
    """

    kind: QueryRegime
    cut: int
    members: tuple[EnsembleMember, ...]
    folds: int
    errors: Floats
    groups: NDArray[np.int64]
    rows: NDArray[np.int64]
    apart: float


class EnsemblePrediction(NamedTuple):
    """What a mix says to one question, before it is known how far off that may be.

    Attributes:
        identity: of what is asked about.
        log_seconds: the answer.
        variance: between its members, weighted; the start is one.
        weight: of the mix beside the start, in [0, 1].
        change: from own runs of the plan on other resources, if any.
    """

    identity: Identity
    log_seconds: float
    variance: float
    weight: float = 1.0
    change: ResourceChange | None = None

    def widened_by_disagreement(
        self, spread: Distribution, told: ErrorDistribution, level: float
    ) -> Distribution:
        """`spread`, or how far members lie apart where that is farther.

        Args:
            spread: of the answer by own errors and the claims of a start.
            told: by own errors: members that lie apart are as far off the mean of all as often.
            level: of the interval that is compared.
        """
        if not self.variance > 0:
            return spread
        apart = StudentT(math.sqrt(self.variance), told.student.degrees)
        return widest((spread, apart), level)


@dataclass(frozen=True, slots=True, eq=False)
class FittedEnsemble:
    """The mix, fitted on all own executions; samples -> log seconds."""

    outcome: EnsembleWeights
    _fitted: tuple[tuple[float, str, Fitted], ...]

    @classmethod
    def of(cls, outcome: EnsembleWeights, fit: Callable[[str], Fitted]) -> Self:
        """The mix that weighing came to; `fit` gives members by name, fitted on everything."""
        kept = [each for each in outcome.members if each.weight > 0]
        return cls(outcome, tuple((each.weight, each.name, fit(each.name)) for each in kept))

    @property
    def kind(self) -> QueryRegime:
        """Of the questions that it was weighted for."""
        return self.outcome.kind

    @property
    def members(self) -> tuple[EnsembleMember, ...]:
        """What was mixed, with weights and errors."""
        return self.outcome.members

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each member by name."""
        return {member.name: member.weight for member in self.members}

    def __call__(self, asked: EncodedQueries) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        return self.answers(asked)[0]

    def answers(self, asked: EncodedQueries) -> tuple[Floats, Floats]:
        """Natural log of the median wall seconds, and the variance between members, [questions]."""
        weights = np.array([weight for weight, _, _ in self._fitted])
        told = [checked_log(name, fitted(asked), len(asked)) for _, name, fitted in self._fitted]
        middle = np.asarray(weights @ told)
        return middle, np.asarray(weights @ (told - middle) ** 2)


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidationErrors:
    """How wrong each learner was in folds; several mixes can be made of one weighing.

    Attributes:
        learners: those that can be used with so many executions and these starts.
        errors: log seconds, [learners, held out].
        rows: the execution of each column.
        evidence: the piece of evidence of each column.
        folds: the fold of each column.
    """

    known: TrainingSet
    kind: QueryRegime
    cut: int
    learners: tuple[Learner, ...]
    errors: Floats
    rows: NDArray[np.int64]
    evidence: NDArray[np.int64]
    folds: NDArray[np.int64]

    def outcome(self, learners: Iterable[Learner] | None = None) -> EnsembleWeights:
        """The weights of those `learners` that were weighed; of all by default.

        Raises:
            NoLearnerError: none of them was.
        """
        wanted = {each.name for each in (self.learners if learners is None else learners)}
        chosen = [row for row, each in enumerate(self.learners) if each.name in wanted]
        if not chosen:
            raise NoLearnerError(len(self.known))
        errors, groups = self.errors[chosen], self.known.groups[self.rows]
        ready = np.array([readiness(self.learners[row], self.known.counted) for row in chosen])
        weights = mixing_weights(errors, groups, self.evidence, ready=ready)
        members = tuple(
            EnsembleMember(
                self.learners[row].name, float(weight), typical_error(np.abs(of_member), groups)
            )
            for row, weight, of_member in zip(chosen, weights, errors, strict=True)
        )
        count = int(self.folds.max(initial=-1)) + 1
        unseen = self.folds if count != 1 else fold_of(groups, 0)
        mixed = mixed_errors(errors, groups, self.evidence, unseen, ready=ready)
        between = weights @ (errors - weights @ errors) ** 2
        apart = float(np.average(between, weights=shares_of(groups))) if len(groups) else 0.0
        return EnsembleWeights(self.kind, self.cut, members, count, mixed, groups, self.rows, apart)


def weigh(
    known: TrainingSet,
    learners: Iterable[Learner],
    way: HoldoutSplit | None = None,
    *,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> CrossValidationErrors:
    """How wrong each of `learners` is on executions that it has not seen.

    Args:
        known: own executions.
        learners: in order of trust, each name once; those that need more executions, or a
            start that the samples have no answers of, are left out.
        way: to mimic the questions; None to leave groups out.
        seed: of folds that leave groups out.
        on_progress: told after each fold.

    Raises:
        PredictorFailedError: a learner gave values that cannot be used.
    """
    used = tuple(each for each in learners if usable(each, known.counted, known.samples.starts))
    folds = grouped_folds(known.groups, seed) if way is None else way.folds
    rows = np.concatenate([np.zeros(0, np.int64), *(each.held for each in folds)])
    fold = np.repeat(np.arange(len(folds)), [len(each.held) for each in folds])
    parts = [np.zeros((len(used), 0))]
    for number, each in enumerate(folds):
        parts.append(_fold_errors(used, known, each))
        if on_progress is not None:
            on_progress(number + 1, len(folds))
    kind, cut = (QueryRegime.SEEN, 0) if way is None else (way.kind, way.cut)
    groups = known.groups[rows]
    many = len(np.unique(groups)) >= STACKED_FROM
    evidence = groups if way is None or many else fold
    return CrossValidationErrors(
        known, kind, cut, used, np.concatenate(parts, axis=1), rows, evidence, fold
    )


def _fold_errors(learners: Sequence[Learner], known: TrainingSet, fold: Fold) -> Floats:
    samples, log_seconds = known.samples.take(fold.kept), known.log_seconds[fold.kept]
    asked, truth = known.samples.take(fold.held), known.log_seconds[fold.held]
    answers = [
        checked_log(each.name, each.fit(samples, log_seconds)(asked), len(truth))
        for each in learners
    ]
    return truth - np.array(answers)


Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Weights of a mix and of the start beside it.

    Attributes:
        weight: of the mix where own executions know all operators, in [0, 1].
        shrinkage: in the start, in [0, 1], whatever own executions know.
        spread: of the errors of both together, in folds.
    """

    weight: float
    shrinkage: float
    spread: ErrorDistribution

    @property
    def variance(self) -> float:
        """Mean square of these errors, beginning at what is usual."""
        return self.spread.student.scale**2

    def weight_at(self, share: float) -> float:
        """Weight of the mix where own executions know such a share of the operators."""
        return 1 - (1 - self.shrinkage) * (1 - share * self.weight)


def mix_only(errors: Floats, groups: NDArray[np.int64]) -> Reliability:
    """The mix has all weight that own executions give; `errors` [executions] are of its folds."""
    return Reliability(1.0, 0.0, ErrorDistribution.of(errors, groups))


def start_only() -> Reliability:
    """No own execution is alike: the start speaks."""
    return Reliability(0.0, 0.0, ErrorDistribution.of(np.zeros(0), np.zeros(0, np.int64)))


def fit_reliability(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> Reliability:
    """Mix and start weighed by their errors on the same executions.

    Args:
        of_start: log errors of the start, [executions], at least one.
        of_mix: out-of-fold log errors of the mix.
        groups: workload of each; the errors of both together are those of weights that have
            not seen the workload.
    """
    together, folds = np.zeros(len(groups)), fold_of(groups, 0)
    for fold in range(int(folds.max(initial=-1)) + 1):
        held, others = folds == fold, folds != fold
        weight, shrinkage = _weights(of_start[others], of_mix[others], groups[others])
        weight += shrinkage * (1 - weight)
        together[held] = of_start[held] + weight * (of_mix[held] - of_start[held])
    weight, shrinkage = _weights(of_start, of_mix, groups)
    return Reliability(weight, shrinkage, ErrorDistribution.of(together, groups))


def zero_shot_errors(start: Learner, known: TrainingSet) -> Floats:
    """Log errors of the start on own executions, of which it has been told nothing."""
    nothing = np.zeros(0, np.int64)
    fitted = start.fit(known.samples.take(nothing), known.log_seconds[nothing])
    return known.log_seconds - fitted(known.samples)


def start_on_similar(start: Learner, known: TrainingSet, alike: bytes) -> Fitted:
    """The start with the level of the executions that are alike, given as bytes of a `Mask`."""
    own = np.flatnonzero(np.frombuffer(alike, np.bool_))
    without_features = np.zeros((len(known), 0))  # none is read, and many are slow to copy
    samples = known.samples
    told = EncodedQueries(without_features, samples.cells, samples.starts, samples.shares)
    return start.fit(told.take(own), known.log_seconds[own])


def _weights(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> tuple[float, float]:
    """Of the mix against the start, and of a guess that is off as is usual against it."""
    sizes, guess = np.abs(of_start), np.full(len(of_start), USUAL_HALF_WIDTH)
    against = mixing_weights(np.stack([of_start, of_mix]), groups)[1]
    return float(against), float(mixing_weights(np.stack([sizes, guess]), groups)[1])


def spread_about(
    question: PlanOnCluster,
    own: Sequence[ErrorDistribution],
    share: float = 0.0,
    *,
    factor: float = 1.0,
    level: float,
) -> Distribution:
    """What folds say of a question, and what is claimed of the start where that is wider.

    Args:
        question: that is asked.
        own: what folds say.
        share: of its operators that own executions know; where it is 1 they speak alone.
        factor: on the width of what folds say.
        level: of the interval that is compared.
    """
    added = estimates_half_width(question)
    found: list[Distribution] = [with_more(each, added, factor) for each in own]
    if share < 1 or not own:
        found.append(StudentT.within(pretrained_half_width(question)))
    return widest(found, level)
