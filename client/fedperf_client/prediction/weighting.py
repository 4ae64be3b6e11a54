"""Personalization: learners mixed by how wrong each was on own executions it had not seen.

The mix is a weighted mean in log seconds. Folds never split a workload. Weighting,
not selection: picking one learner by few errors picks noise (findings, joining-gain 3).
Local-only learners are in the mix from `LOCAL_FROM` own executions on, so that a bad
shared model cannot make an organization's predictions worse than its own would be.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import History, Samples, encode
from fedperf_client.prediction.intervals import Hull, conformal_half_width, with_interval
from fedperf_client.prediction.learner import Fitted, Learner
from fedperf_client.prediction.local import Boosting, Constant, Forest, LogRidge, Nearest
from fedperf_client.prediction.prediction import (
    Floats,
    Prediction,
    PredictLog,
    Question,
    checked_log,
)
from fedperf_client.prediction.process import LocalProcess
from fedperf_client.prediction.shared import (
    PUBLIC,
    SHARED,
    AsIs,
    CellCorrected,
    CellCorrection,
    ResidualBoosting,
    ResidualRidge,
    ShrunkenBias,
)
from fedperf_shared.errors import FedperfError

LOCAL_FROM = 5
"""Own executions from which on local-only learners take part in a mix with a start model."""

STACKED_FROM = 100
"""Workloads from which on the weights are those whose mix would have had the least error."""

LEAVE_ONE_OUT_UP_TO = 20
MANY_WORKLOADS = 300
FOLDS, FOLDS_OF_MANY = 10, 5

SMALLEST_WEIGHT = 0.01
"""Members below this are left out: they cost time and change nothing."""

_SMALLEST_ERROR = 0.02
"""Errors below this, in log seconds, are no reason to prefer a learner: clocks differ by more."""

_OUTLIER = 5.0
"""Times its learner's typical error: what an error counts at most for stacked weights."""


class NoLearnerError(FedperfError):
    """No learner can be used with so few own executions."""

    def __init__(self, executions: int) -> None:
        super().__init__(
            f"no predictor works with {executions} own executions and without a shared model; "
            "fetch a shared model or ingest executions first"
        )
        self.executions = executions


def joined_learners(correction: CellCorrection | None = None) -> tuple[Learner, ...]:
    """Learners of an organization that joined, on all three starts, and local ones."""
    cells = CellCorrected(correction or CellCorrection.nothing_known())
    public = AsIs(PUBLIC, fewest=10)
    return (cells, *_on(SHARED, bias_until=9), public, *local_learners(fewest=LOCAL_FROM))


def public_learners() -> tuple[Learner, ...]:
    """Learners of an organization that did not join: the public start, and local ones."""
    return (AsIs(PUBLIC), *_on(PUBLIC, bias_until=None), *local_learners(fewest=LOCAL_FROM))


def local_learners(fewest: int = 0) -> tuple[Learner, ...]:
    """Learners that read no start model; the mix of them alone is "local-only"."""
    few: tuple[Learner, ...] = (Constant(),) if fewest == 0 else ()
    return (*few, LogRidge(), Nearest(), LocalProcess(fewest=20, most=300), Boosting(), Forest())


def _on(start: str, *, bias_until: int | None) -> tuple[Learner, ...]:
    bias = ShrunkenBias(start, most=bias_until)
    return (bias, ResidualRidge(start), ResidualBoosting(start))


@dataclass(frozen=True, slots=True)
class Member:
    """One learner's place in the mix.

    Attributes:
        name: what it is.
        weight: its share, in [0, 1].
        error: trimmed mean of its absolute out-of-fold log errors; NaN without executions.
    """

    name: str
    weight: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class Personalized:
    """The weighted mix, fitted on all own executions; a `Predictor`.

    Attributes:
        members: what was mixed, with weights and errors.
        folds: number of folds behind the errors.
        fold_errors: out-of-fold errors of the mix itself, float64 [executions].
        half_width: of the interval inside the hull, log seconds.
        hull: what was seen.
        level: of the intervals.
    """

    members: tuple[Member, ...]
    folds: int
    fold_errors: Floats
    half_width: float
    hull: Hull
    level: float
    _starts: Mapping[str, PredictLog]
    _fitted: Mapping[str, Fitted]

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each member by name."""
        return {member.name: member.weight for member in self.members}

    @property
    def errors(self) -> dict[str, float]:
        """Out-of-fold error of each member by name, log seconds."""
        return {member.name: member.error for member in self.members}

    def predict_log(self, questions: Sequence[Question]) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        if not questions:
            return np.zeros(0)
        return self.mixed(encode(questions, self._starts))

    def mixed(self, samples: Samples) -> Floats:
        """As `predict_log`, of questions that are encoded with the starts of all members."""
        mixed = np.zeros(len(samples))
        for name, fitted in self._fitted.items():
            mixed += self.weights[name] * checked_log(name, fitted(samples), len(samples))
        return mixed

    def predict(self, questions: Sequence[Question]) -> list[Prediction]:
        """Medians with conformal intervals, in the order of `questions`."""
        return self.with_intervals(questions, self.predict_log(questions))

    def with_intervals(
        self, questions: Sequence[Question], log_seconds: Floats
    ) -> list[Prediction]:
        """Intervals around medians that `predict_log` gave for `questions`."""
        return [
            with_interval(
                float(median),
                self.half_width,
                level=self.level,
                inside=self.hull.contains(question),
            )
            for question, median in zip(questions, log_seconds, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Learners and how wrong each was out of fold: several mixes can be made of one evaluation.

    Attributes:
        learners: those that can be used with this history and these starts.
        errors: out-of-fold log errors, float64 [learners, executions].
        groups: workload of each execution, int64 [executions].
        folds: fold of each execution, int64 [executions].
    """

    learners: tuple[Learner, ...]
    errors: Floats
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    _history: History
    _samples: Samples
    _starts: Mapping[str, PredictLog]
    _fitted: dict[str, Fitted] = field(default_factory=dict)

    def mix(self, learners: Iterable[Learner], *, level: float = 0.9) -> Personalized:
        """The mix of those `learners` that can be used; without executions the first counts.

        Args:
            learners: by name among those that were evaluated, in any number.
            level: of the intervals.

        Raises:
            NoLearnerError: none of them can be used.
        """
        wanted = {learner.name for learner in learners}
        rows = [row for row, each in enumerate(self.learners) if each.name in wanted]
        if not rows:
            raise NoLearnerError(len(self._history))
        used, errors = [self.learners[row] for row in rows], self.errors[rows]
        weights = mixing_weights(errors, self.groups)
        kept = [each for each, weight in zip(used, weights, strict=True) if weight > 0]
        mixed = mixed_errors(errors, self.groups, self.folds)
        members = tuple(
            Member(learner.name, float(weight), typical_error(np.abs(row)))
            for learner, weight, row in zip(used, weights, errors, strict=True)
        )
        needed = {each.start for each in kept}
        return Personalized(
            members=members,
            folds=int(self.folds.max(initial=-1)) + 1,
            fold_errors=mixed,
            half_width=conformal_half_width(mixed, self.groups, level),
            hull=Hull.around(self._history.questions),
            level=level,
            _starts={name: start for name, start in self._starts.items() if name in needed},
            _fitted={each.name: self._fit(each) for each in kept},
        )

    def _fit(self, learner: Learner) -> Fitted:
        if learner.name not in self._fitted:
            log_seconds = self._history.log_seconds
            self._fitted[learner.name] = learner.fit(self._samples, log_seconds)
        return self._fitted[learner.name]


def evaluate(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
) -> Candidates:
    """How wrong each of `learners` is on executions of workloads that it has not seen.

    Args:
        history: own executions, any number.
        starts: log predictions of the start models, by name.
        learners: in order of trust, each name once; those that need a start that is not
            there, or another number of executions, are left out.
        seed: of the folds.

    Raises:
        PredictorFailedError: a start model or learner gave values that cannot be used.
    """
    used = tuple(each for each in learners if usable(each, len(history), starts))
    needed = {each.start: starts[each.start] for each in used if each.start is not None}
    samples = encode(history.questions, needed)
    groups = _groups(history)
    folds = fold_of(groups, seed)
    errors = _out_of_fold_errors(used, samples, history.log_seconds, folds)
    return Candidates(used, errors, groups, folds, history, samples, needed)


def personalize(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    level: float = 0.9,
) -> Personalized:
    """Mix `learners` for the organization whose own executions are `history`.

    Arguments and errors as `evaluate` and `Candidates.mix`.
    """
    candidates = evaluate(history, starts, learners, seed=seed)
    return candidates.mix(candidates.learners, level=level)


def fold_of(groups: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The fold of each execution; executions of one group share it.

    Leave one group out up to `LEAVE_ONE_OUT_UP_TO` groups, 10 folds beyond, 5 for many.
    """
    count = int(groups.max(initial=-1)) + 1
    many = FOLDS_OF_MANY if count > MANY_WORKLOADS else FOLDS
    folds = count if count <= LEAVE_ONE_OUT_UP_TO else many
    order = np.random.default_rng(seed).permutation(count)
    fold_of_group = np.empty(count, np.int64)
    fold_of_group[order] = np.arange(count) % max(folds, 1)
    return fold_of_group[groups]


def mixing_weights(errors: Floats, groups: NDArray[np.int64]) -> Floats:
    """Weights of the members, not negative, of sum 1; small ones are 0.

    With few workloads in proportion to error**-p: p grows with their number, so that few
    errors decide little. With many, the weights of the mix that would have erred least.
    Without errors the first member has all.

    Args:
        errors: out-of-fold log errors, [members, executions].
        groups: workload of each execution, [executions].
    """
    if errors.shape[1] == 0:
        return np.asarray(np.eye(len(errors))[0], dtype=np.float64)
    workloads = len(np.unique(groups))
    weights = _weights_by_error(errors, workloads)
    if workloads >= STACKED_FROM:
        weights = _stacked_weights(errors, weights)
    weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mixed_errors(errors: Floats, groups: NDArray[np.int64], folds: NDArray[np.int64]) -> Floats:
    """Errors of the mix, where the weights of each fold have not seen that fold's errors."""
    mixed = np.zeros(errors.shape[1])
    for fold in range(int(folds.max(initial=-1)) + 1):
        others, held = folds != fold, folds == fold
        mixed[held] = mixing_weights(errors[:, others], groups[others]) @ errors[:, held]
    return mixed


def usable(learner: Learner, executions: int, starts: Container[str]) -> bool:
    """Whether `learner` is worth a try with so many own executions and these start models."""
    enough = learner.fewest <= executions
    not_too_many = learner.most is None or executions <= learner.most
    return enough and not_too_many and (learner.start is None or learner.start in starts)


def typical_error(absolute: Floats) -> float:
    """Mean of the absolute errors without the largest tenth; NaN of none."""
    kept = np.sort(absolute)[: int(np.ceil(0.9 * len(absolute)))]
    return float(kept.mean()) if len(kept) else float("nan")


def _weights_by_error(errors: Floats, workloads: int) -> Floats:
    typical = np.array([typical_error(row) for row in np.abs(errors)])
    relative = np.maximum(typical, _SMALLEST_ERROR)
    power = np.clip(workloads / 5, 4, 12)
    weights = (relative.min() / relative) ** power
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _stacked_weights(errors: Floats, start: Floats) -> Floats:
    """Weights on the simplex with the least mean absolute error of the mix, from `start` on.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex
    and has a gradient. Outliers are clipped.
    """
    from scipy.optimize import Bounds, LinearConstraint, minimize

    bounds = _OUTLIER * np.array([[typical_error(row)] for row in np.abs(errors)])
    clipped = np.clip(errors, -bounds, bounds)

    def smoothed(mixed: Floats) -> Floats:
        return np.sqrt(mixed**2 + _SMALLEST_ERROR**2)

    def mean_error(weights: Floats) -> float:
        return float(smoothed(weights @ clipped).mean())

    def slope(weights: Floats) -> Floats:
        mixed = weights @ clipped
        return np.asarray(clipped @ (mixed / smoothed(mixed)) / len(mixed), dtype=np.float64)

    found = minimize(
        mean_error,
        start,
        jac=slope,
        method="SLSQP",
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(np.ones((1, len(start))), 1.0, 1.0),
    )
    return np.clip(found.x, 0.0, 1.0) if found.success else start


def _groups(history: History) -> NDArray[np.int64]:
    """Workload numbers; executions are their own groups where there is only one workload."""
    groups = history.workload_index()
    alone = len(history) > 1 and groups.max() == 0
    return np.arange(len(history), dtype=np.int64) if alone else groups


def _out_of_fold_errors(
    learners: Sequence[Learner], samples: Samples, log_seconds: Floats, folds: NDArray[np.int64]
) -> Floats:
    errors = np.zeros((len(learners), len(samples)))
    for fold in range(int(folds.max(initial=-1)) + 1):
        seen, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        known, asked = samples.take(seen), samples.take(held)
        for row, learner in enumerate(learners):
            predicted = learner.fit(known, log_seconds[seen])(asked)
            predicted = checked_log(learner.name, predicted, len(held))
            errors[row, held] = log_seconds[held] - predicted
    return errors
