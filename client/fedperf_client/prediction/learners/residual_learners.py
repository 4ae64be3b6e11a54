"""Predictors that build on a shared model: as it is, or corrected by own executions.

Every correction is a model of the residual (log seconds measured - log seconds
predicted) that shrinks to no correction, or to the coordinator's, where own executions
are few. The same learners on the public start are the column "without joining".
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.boosted_trees import Additive, fit_boosting, inputs_of
from fedperf_client.prediction.learners.learner import Fitted
from fedperf_client.prediction.learners.ridge import fit_ridge
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.basis import CELLS

SHARED = "shared"
PUBLIC = "public"
REFERENCE = "reference"
"""The version that the coordinator's correction belongs to."""

RESIDUAL_SD = 0.4
"""Public guess of the spread of residuals inside a cell, log seconds; worth two executions."""
_GUESS_WEIGHT = 2.0

MOST_APART = 1.0
"""Farther from the median residual none counts, log seconds: a wild one would move them all."""

OWN_LEVEL_SD = 0.3
OWN_CELL_SD = 0.2
"""How far an organization's own level, and its own cells, lie from everybody's, log seconds."""


class InvalidCorrectionError(InvalidInputError):
    """A correction of the coordinator has a wrong shape or values that are not finite."""


@dataclass(frozen=True, slots=True)
class CellCorrection:
    """The coordinator's belief about the residual of the shared model per cell.

    Attributes:
        mean: log seconds, float64 [CELLS].
        covariance: float64 [CELLS, CELLS], symmetric, positive semi-definite.
    """

    mean: Floats
    covariance: Floats

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
    def nothing_known(cls) -> Self:
        """Mean 0, no covariance: before any report, or without joining."""
        return cls(np.zeros(CELLS), np.zeros((CELLS, CELLS)))


@dataclass(frozen=True, slots=True)
class UncorrectedModel:
    """The start model, uncorrected."""

    start: str = SHARED
    fewest: int = 0
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return self.start

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Nothing to learn."""
        del samples, log_seconds
        return lambda asked: asked.starts[self.start]


@dataclass(frozen=True, slots=True)
class ShrunkenBias:
    """The start model plus one constant, shrunken by marginal likelihood."""

    start: str = SHARED
    fewest: int = 2
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.start}+bias"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the constant."""
        bias = shrunken_mean(log_seconds - samples.starts[self.start], samples.weights)
        return lambda asked: asked.starts[self.start] + bias


@dataclass(frozen=True, slots=True, eq=False)
class CellCorrectedModel:
    """The start model plus the coordinator's correction, sharpened by own residuals.

    Own residuals r_i ~ N(mu_cell(i), s^2) with mu ~ N(mean, covariance + own level + own
    cells): without executions it is the coordinator's mean, with many the own cells' means.
    Single residuals far from the others count as if they were nearer (`MOST_APART`).
    """

    correction: CellCorrection
    start: str = REFERENCE
    fewest: int = 0
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.start}+cells"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the posterior mean per cell."""
        residuals = log_seconds - samples.starts[self.start]
        mean = self._posterior_mean(samples.cells, residuals, samples.weights)
        return lambda asked: asked.starts[self.start] + mean[asked.cells]

    def _posterior_mean(
        self, cells: NDArray[np.int64], residuals: Floats, weights: Floats
    ) -> Floats:
        prior = self.correction
        if len(residuals) == 0:
            return prior.mean
        innovations = _without_wild_ones(residuals - prior.mean[cells])
        count = np.bincount(cells, weights, minlength=CELLS)
        total = np.bincount(cells, weights * innovations, minlength=CELLS)
        around = innovations - total[cells] / count[cells]
        variance = _guarded_variance(around, weights, means=int(np.count_nonzero(count)))
        covariance = prior.covariance + OWN_LEVEL_SD**2 + OWN_CELL_SD**2 * np.eye(CELLS)
        system = np.eye(CELLS) + covariance * (count / variance)
        return prior.mean + np.linalg.solve(system, covariance @ (total / variance))


@dataclass(frozen=True, slots=True)
class ResidualRidge:
    """The start model plus a ridge regression of its residual on the flat features."""

    start: str = SHARED
    fewest: int = 10
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.start}+ridge"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the residual."""
        residual = log_seconds - samples.starts[self.start]
        line = fit_ridge(samples.features, residual, weights=samples.shares)
        return Additive(self.start, line=line)


@dataclass(frozen=True, slots=True)
class ResidualBoosting:
    """The start model plus gradient boosting of its residual on features and its own answer."""

    start: str = SHARED
    fewest: int = 30
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.start}+boosting"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the residual."""
        residual = log_seconds - samples.starts[self.start]
        inputs = inputs_of(samples, self.start)
        return Additive(self.start, trees=fit_boosting(inputs, residual, weights=samples.shares))


def shrunken_mean(residuals: Floats, weights: Floats) -> float:
    """The mean of `residuals`, shrunken to 0 as far as it may be chance.

    r_i ~ N(b, s^2), b ~ N(0, v), v by marginal likelihood: the mean times
    (1 - s^2 / (n mean^2)), not below 0.
    """
    if len(residuals) == 0:
        return 0.0
    mean = float(np.average(residuals, weights=weights))
    noise = _guarded_variance(residuals - mean, weights, means=1) / float(weights.sum())
    return mean * max(0.0, 1.0 - noise / max(mean**2, noise))


def _without_wild_ones(residuals: Floats) -> Floats:
    """Clipped around their median, [executions], at least one."""
    middle = float(np.median(residuals))
    return np.clip(residuals, middle - MOST_APART, middle + MOST_APART)


def _guarded_variance(deviations: Floats, weights: Floats, *, means: int) -> float:
    """Variance of deviations from fitted means, with the public guess worth two executions.

    Args:
        deviations: log seconds, [executions].
        weights: what each counts as, [executions].
        means: how many were fitted; each takes one degree of freedom.
    """
    freedom = max(float(weights.sum()) - means, 0.0)
    guess = _GUESS_WEIGHT * RESIDUAL_SD**2
    return float((weights @ deviations**2 + guess) / (freedom + _GUESS_WEIGHT))
