"""The base learners that an ensemble combines, and their interface.

A `Learner` is a recipe: fitted on samples and log run times it gives a function from samples to log
run times. It has no state, so folds can fit it many times. Local learners read the organization's
own executions alone and no pretrained model, so they limit what joining can cost. The other
learners use a pretrained model as it is, or correct it. Every correction is a model of the residual
(log seconds measured less predicted) that shrinks to no correction, or to the coordinator's, where
own executions are few.

Local-only learners take part from `LOCAL_FROM` executions on. So a bad shared model cannot make an
organization's predictions worse than its own would be. The shared model stays among the members as
it is: the others are shrunken towards it. Below ten executions there are at most three candidates.
The errors of so few folds are mostly noise, and of many candidates one looks good by chance.
"""

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.boosted_trees import Additive, fit_boosting, inputs_of
from fedperf_client.prediction.learners.ridge import STRENGTHS, fit_ridge, varying_columns
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.releases.basis import CELLS

Fitted = Callable[[EncodedQueries], Floats]


class Learner(Protocol):
    """A recipe for a predictor."""

    @property
    def name(self) -> str:
        """Its name in explanations."""
        ...

    @property
    def base_model(self) -> str | None:
        """The pretrained model that it builds on; None for a local learner."""
        ...

    @property
    def fewest(self) -> int:
        """Fewest own executions from which it is worth a try."""
        ...

    @property
    def most(self) -> int | None:
        """Most own executions up to which it is worth a try; None without limit."""
        ...

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn from own executions, at least `fewest - 1` of them (a fold leaves some out)."""
        ...


# --- local learners ---------------------------------------------------------------------------

UNKNOWN_LOG_SECONDS = 0.0  # prediction of a constant before any execution: one second


@dataclass(frozen=True, slots=True)
class Constant:
    """The median of the own executions."""

    name: str = "local constant"
    base_model: None = None
    fewest: int = 0
    most: int | None = 9

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the median."""
        del samples
        level = float(np.median(log_seconds)) if len(log_seconds) else UNKNOWN_LOG_SECONDS
        return lambda queries: np.full(len(queries), level)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The mean over the nearest executions by standardized features, weighted by nearness."""

    name: str = "local nearest"
    base_model: None = None
    fewest: int = 10
    most: int | None = 19
    neighbours: int = 3

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Store the executions."""
        columns = varying_columns(samples.features)
        if len(columns) == 0:
            return Constant().fit(samples, log_seconds)
        from scipy.spatial.distance import cdist

        scale = samples.features[:, columns].std(axis=0) * np.sqrt(len(columns))
        points = samples.features[:, columns] / scale

        def predict(queries: EncodedQueries) -> Floats:
            distance = cdist(queries.features[:, columns] / scale, points)
            nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
            weight = 1.0 / (np.take_along_axis(distance, nearest, axis=1) + 0.05)
            values: Floats = (weight * log_seconds[nearest]).sum(axis=1) / weight.sum(axis=1)
            return values

        return predict


@dataclass(frozen=True, slots=True)
class LogRidge:
    """Ridge regression of log seconds on the flat features; of degree 2 on their products too."""

    name: str = "local ridge"
    base_model: None = None
    fewest: int = 5
    most: int | None = None
    degree: int = 1  # 1 or 2
    strengths: tuple[float, ...] = STRENGTHS  # of the ridge, to choose among

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the coefficients."""
        line = fit_ridge(
            samples.features,
            log_seconds,
            degree=self.degree,
            strengths=self.strengths,
            weights=samples.shares,
        )
        return Additive(line=line)


@dataclass(frozen=True, slots=True)
class Boosting:
    """Gradient boosting of log seconds on the flat features, with levels or lines as leaves."""

    name: str = "local boosting"
    base_model: None = None
    fewest: int = 20
    most: int | None = None
    linear_leaves: bool = False

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the trees."""
        trees = fit_boosting(
            samples.features,
            log_seconds,
            linear_leaves=self.linear_leaves,
            weights=samples.shares,
        )
        return Additive(trees=trees)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A Gaussian process of log seconds on the features."""

    name: str = "local GP"
    base_model: None = None
    fewest: int = 3
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the process."""
        from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

        process = fit_process(samples.features, log_seconds, samples.weights)
        return lambda queries: process.mean(queries.features)


# --- learners on a pretrained model -----------------------------------------------------------

SHARED = "shared"
PUBLIC = "pretrained"
REFERENCE = "reference"  # the version that the coordinator's correction belongs to
RESIDUAL_SD = 0.4  # public guess of the standard deviation of residuals inside a cell, log seconds
_GUESS_WEIGHT = 2.0  # executions that the guess counts as
# Farther from the median residual none counts, log seconds: an outlier would move them all.
MOST_APART = 1.0

OWN_LEVEL_SD = 0.3
# How far an organization's own level, and its own cells, lie from the common ones, log seconds.
OWN_CELL_SD = 0.2


class InvalidCorrectionError(InvalidInputError):
    """A correction of the coordinator has a wrong shape or values that are not finite."""


@dataclass(frozen=True, slots=True)
class CellCorrection:
    """The coordinator's posterior of the residual of the shared model per cell."""

    mean: Floats  # log seconds, float64 [CELLS]
    covariance: Floats  # float64 [CELLS, CELLS], symmetric, positive semi-definite

    def __post_init__(self) -> None:
        if self.mean.shape != (CELLS,) or self.covariance.shape != (CELLS, CELLS):
            raise InvalidCorrectionError(
                f"a correction has {CELLS} cells, got shapes {self.mean.shape} and "
                f"{self.covariance.shape}"
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise InvalidCorrectionError("a correction holds finite values only")
        symmetric = np.abs(self.covariance - self.covariance.T).max() <= 1e-6  # noqa: PLR2004
        if not (symmetric and np.linalg.eigvalsh(self.covariance)[0] >= -1e-6):  # noqa: PLR2004
            raise InvalidCorrectionError("a covariance is symmetric and positive semi-definite")

    @classmethod
    def uninformative(cls) -> Self:
        """Return the correction without information: mean 0 and no covariance."""
        return cls(np.zeros(CELLS), np.zeros((CELLS, CELLS)))


@dataclass(frozen=True, slots=True)
class _OnPretrained:
    base_model: str = SHARED
    fewest: int = 0
    most: int | None = None
    suffix: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.base_model}{self.suffix}"


@dataclass(frozen=True, slots=True)
class UncorrectedModel(_OnPretrained):
    """The pretrained model, uncorrected."""

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Return the pretrained model."""
        del samples, log_seconds
        return lambda queries: queries.base_predictions[self.base_model]


@dataclass(frozen=True, slots=True)
class ShrunkenBias(_OnPretrained):
    """The pretrained model plus one constant, shrunken by marginal likelihood."""

    fewest: int = 2
    suffix: ClassVar[str] = "+bias"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the constant."""
        bias = shrunken_mean(
            log_seconds - samples.base_predictions[self.base_model], samples.weights
        )
        return lambda queries: queries.base_predictions[self.base_model] + bias


@dataclass(frozen=True, slots=True)
class ResidualRidge(_OnPretrained):
    """The pretrained model plus a ridge regression of its residual on the flat features."""

    fewest: int = 10
    suffix: ClassVar[str] = "+ridge"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the residual."""
        residuals = log_seconds - samples.base_predictions[self.base_model]
        return Additive(
            self.base_model, line=fit_ridge(samples.features, residuals, weights=samples.shares)
        )


@dataclass(frozen=True, slots=True)
class ResidualBoosting(_OnPretrained):
    """The pretrained model plus boosted trees of its residual on features and its prediction."""

    fewest: int = 30
    suffix: ClassVar[str] = "+boosting"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the residual."""
        residuals, inputs = (
            log_seconds - samples.base_predictions[self.base_model],
            inputs_of(samples, self.base_model),
        )
        return Additive(
            self.base_model, trees=fit_boosting(inputs, residuals, weights=samples.shares)
        )


@dataclass(frozen=True, slots=True, eq=False)
class CellCorrectedModel:
    """The pretrained model plus the coordinator's correction, sharpened by own residuals.

    Own residuals r_i ~ N(mu_cell(i), s^2) with mu ~ N(mean, covariance + own level + own
    cells): without executions it is the coordinator's mean, with many the own cells' means.
    Single residuals far from the others count as if they were nearer (`MOST_APART`).
    """

    correction: CellCorrection
    base_model: str = REFERENCE
    fewest: int = 0
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.base_model}+cells"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the posterior mean per cell."""
        residuals = log_seconds - samples.base_predictions[self.base_model]
        mean = self._posterior_mean(samples.cells, residuals, samples.weights)
        return lambda queries: queries.base_predictions[self.base_model] + mean[queries.cells]

    def _posterior_mean(
        self, cells: NDArray[np.int64], residuals: Floats, weights: Floats
    ) -> Floats:
        prior = self.correction
        if len(residuals) == 0:
            return prior.mean
        innovations = residuals - prior.mean[cells]
        middle = float(np.median(innovations))
        innovations = np.clip(innovations, middle - MOST_APART, middle + MOST_APART)
        count = np.bincount(cells, weights, minlength=CELLS)
        total = np.bincount(cells, weights * innovations, minlength=CELLS)
        around = innovations - total[cells] / count[cells]
        variance = _guarded_variance(around, weights, means=int(np.count_nonzero(count)))
        covariance = prior.covariance + OWN_LEVEL_SD**2 + OWN_CELL_SD**2 * np.eye(CELLS)
        system = np.eye(CELLS) + covariance * (count / variance)
        return prior.mean + np.linalg.solve(system, covariance @ (total / variance))


def shrunken_mean(residuals: Floats, weights: Floats) -> float:
    """Return the mean of `residuals`, shrunken to 0 as far as it may be chance.

    r_i ~ N(b, s^2), b ~ N(0, v), v by marginal likelihood: the mean times
    (1 - s^2 / (n mean^2)), not below 0.
    """
    if len(residuals) == 0:
        return 0.0
    mean = float(np.average(residuals, weights=weights))
    noise = _guarded_variance(residuals - mean, weights, means=1) / float(weights.sum())
    return mean * max(0.0, 1.0 - noise / max(mean**2, noise))


def _guarded_variance(deviations: Floats, weights: Floats, *, means: int) -> float:
    """Return the variance of deviations from fitted means, combined with the public guess.

    Args:
        deviations: log seconds, [executions].
        weights: of each execution, [executions].
        means: fitted; each takes one degree of freedom.
    """
    freedom = max(float(weights.sum()) - means, 0.0)
    guess = _GUESS_WEIGHT * RESIDUAL_SD**2
    return float((weights @ deviations**2 + guess) / (freedom + _GUESS_WEIGHT))


# --- the learners of an ensemble, in order of precedence --------------------------------------

# Local executions from which on local-only learners take part next to a pretrained model.
LOCAL_FROM = 5

# Executions beyond its minimum at which a learner has its full weight, as a share of it.
READY = 0.5


class NoLearnerError(FedperfError):
    """Raised when no learner can be used with so few local executions."""

    def __init__(self, executions: int) -> None:
        super().__init__(
            f"no predictor works with {executions} own executions and without a shared model; "
            "fetch a shared model or ingest executions first"
        )
        self.executions = executions


def joined_learners(
    correction: CellCorrection | None = None, *, is_newer: bool = False
) -> tuple[Learner, ...]:
    """Return the learners of an organization that joined: on all pretrained models, and local.

    Args:
        correction: the coordinator's, of the reference model.
        is_newer: whether the shared model was trained since it was the reference. Then it takes
            precedence over the corrected reference.
    """
    nothing = CellCorrection.uninformative()
    shared, corrected = UncorrectedModel(SHARED), CellCorrectedModel(correction or nothing)
    first: tuple[Learner, ...] = (corrected, shared)
    if is_newer:
        of_others = () if correction is None else (corrected,)
        first = (shared, CellCorrectedModel(nothing, base_model=SHARED), *of_others)
    return (
        *first,
        ResidualRidge(SHARED),
        ResidualBoosting(SHARED),
        UncorrectedModel(PUBLIC, fewest=10),
        *local_learners(fewest=LOCAL_FROM),
    )


def public_learners() -> tuple[Learner, ...]:
    """Return the learners of an organization that did not join: on the public model, and local."""
    return (
        UncorrectedModel(PUBLIC),
        ShrunkenBias(PUBLIC),
        ResidualRidge(PUBLIC),
        ResidualBoosting(PUBLIC),
        *local_learners(fewest=LOCAL_FROM),
    )


def local_learners(fewest: int = 0) -> tuple[Learner, ...]:
    """Return the learners that read no pretrained model; their ensemble is "local-only"."""
    few: tuple[Learner, ...] = (Constant(),) if fewest == 0 else ()
    return (
        *few,
        LogRidge(),
        Nearest(),
        LocalProcess(fewest=20, most=300),
        Boosting(),
        Boosting("local linear boosting", fewest=100, linear_leaves=True),
    )


def is_usable(learner: Learner, executions: float, base_models: Container[str]) -> bool:
    """Return whether a learner can be used with so many executions and these pretrained models."""
    most = math.inf if learner.most is None else learner.most
    return learner.fewest <= executions <= most and (
        learner.base_model is None or learner.base_model in base_models
    )


def local_share(learner: Learner) -> float:
    """Return how much of a prediction local executions determine; a half for corrected models."""
    if learner.base_model is None:
        return 1.0
    is_pretrained = learner.fewest < LOCAL_FROM or learner.name == learner.base_model
    return 0.0 if is_pretrained else 0.5


def readiness(learner: Learner, executions: float) -> float:
    """Return the share of its weight that a learner has with so many executions, in (0, 1].

    It grows and falls gradually, so that one workload more never adds or removes a whole learner.
    Learners for few executions have all of it at once.
    """
    if learner.fewest <= LOCAL_FROM:
        return 1.0
    left = (learner.most + 1 - executions) / learner.most if learner.most else 1.0
    return min(1.0, (executions + 1 - learner.fewest) / learner.fewest / READY, left / READY)
