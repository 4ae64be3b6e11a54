"""The Bayesian download: what the coordinator believes about public points, with how surely.

The mean is a start model like any other (`Samples.starts`); the covariance says how it
may be wrong, so that one own execution corrects every point that it tells about. An
organization's own level may differ from everybody's. How much the covariance is to be
believed, and how noisy own executions are, follow from their marginal likelihood on a
fixed grid. Without own executions it is the mean; it refuses a covariance that is none.

For plans, whose points are the cells of the public basis, `shared.CellCorrected` does the
same in a form that stays cheap for thousands of executions.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.shared import OWN_LEVEL_SD, REFERENCE, InvalidCorrectionError

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors on the covariance among which the marginal likelihood chooses."""

NOISE_SDS = (0.03, 0.1, 0.3)
"""Of one execution, log seconds, among which it chooses."""

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Downloaded:
    """A start model whose error is believed to be Gaussian over the public points.

    Attributes:
        covariance: of the start's error, (log seconds)^2, float64 [points, points]; the
            point of a question is the number of its cell (`Samples.cells`).
    """

    covariance: Floats
    start: str = REFERENCE
    fewest: int = 0
    most: int | None = 500

    def __post_init__(self) -> None:
        points = len(self.covariance)
        if self.covariance.shape != (points, points) or not np.isfinite(self.covariance).all():
            raise InvalidCorrectionError(
                f"a covariance is square and finite, got shape {self.covariance.shape}"
            )
        symmetric = np.abs(self.covariance - self.covariance.T).max(initial=0.0) <= ROUNDING
        if not (symmetric and np.linalg.eigvalsh(self.covariance).min(initial=0.0) >= -ROUNDING):
            raise InvalidCorrectionError("a covariance is symmetric and positive semi-definite")

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.start}+covariance"

    def fit(self, samples: Samples, log_seconds: Floats) -> "FittedDownload":
        """Condition on own executions.

        Raises:
            InvalidCorrectionError: an execution is at a point that the covariance lacks.
        """
        points = self._points(samples)
        left = log_seconds - samples.starts[self.start]
        shared = self.covariance[np.ix_(points, points)]
        likely = [_Choice.of(shared, left, each) for each in product(SCALES, NOISE_SDS)]
        best = max(likely, key=lambda each: each.log_likelihood)
        return FittedDownload(self, points, best)

    def _points(self, samples: Samples) -> NDArray[np.int64]:
        count = len(self.covariance)
        if not ((samples.cells >= 0) & (samples.cells < count)).all():
            raise InvalidCorrectionError(f"a question lies at none of the {count} points")
        return samples.cells

    def between(self, asked: Samples, known: NDArray[np.int64], scale: float) -> Floats:
        """Covariance of the errors at `asked` and at `known` points, own level included."""
        points = self._points(asked)
        return scale * self.covariance[np.ix_(points, known)] + OWN_LEVEL_SD**2

    def variances(self, asked: Samples, scale: float) -> Floats:
        """Of the errors at `asked`, own level included."""
        return scale * np.diag(self.covariance)[self._points(asked)] + OWN_LEVEL_SD**2


@dataclass(frozen=True, slots=True, eq=False)
class FittedDownload:
    """Samples -> log seconds, with the standard deviation of one execution beside."""

    download: Downloaded
    _points: NDArray[np.int64]
    _choice: "_Choice"

    def __call__(self, asked: Samples) -> Floats:
        """Mean log seconds, [questions]."""
        crossed = self.download.between(asked, self._points, self._choice.scale)
        return asked.starts[self.download.start] + crossed @ self._choice.weights

    def sd(self, asked: Samples) -> Floats:
        """Standard deviation of the log seconds of one execution, [questions]."""
        crossed = self.download.between(asked, self._points, self._choice.scale)
        half = solve_triangular(self._choice.factor, crossed.T, lower=True)
        variance = self.download.variances(asked, self._choice.scale) - (half**2).sum(axis=0)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + self._choice.noise_sd**2))


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """One scale and noise, and what follows from them."""

    scale: float
    noise_sd: float
    factor: Floats
    weights: Floats
    log_likelihood: float

    @classmethod
    def of(cls, shared: Floats, left: Floats, numbers: tuple[float, float]) -> "_Choice":
        scale, noise_sd = numbers
        covariance = scale * shared + OWN_LEVEL_SD**2 + noise_sd**2 * np.eye(len(left))
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        weights = np.asarray(cho_solve((factor, True), left), dtype=np.float64)
        fit = float(left @ weights) / 2 + float(np.log(np.diag(factor)).sum())
        return cls(scale, noise_sd, factor, weights, -fit - math.log(scale) ** 2 / 2)
