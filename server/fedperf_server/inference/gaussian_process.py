"""Gaussian posteriors of run times at points, and their update by noisy sums.

A `GaussianPosterior` is a Gaussian over the log seconds of a list of points. An `Observation` is a
noisy linear function of the difference between the truth and the posterior's mean: published runs,
or the sums of one sender's directed report. Before an update, the marginal likelihood may scale the
variance, so that an overconfident prior has less weight.

Only releases are used, so nothing here costs privacy. Influence is bounded: an observation beyond
`SURPRISE` standard deviations is shortened to that: with L L' its covariance under the prior alone,
its vector v has |L^-1 v| <= `max_norm`. The mean is linear in v. So for any two vectors of one
sender the mean at point x differs by at most 2 * max_norm * |gain(x) L| for the selected scale, and
the scale is from a fixed list.
With secure aggregation the sum of several senders counts as one sender, because a single one of
them cannot be bounded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_factor, cho_solve, solve_triangular

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]

# Factors on the variance, from which the marginal likelihood selects. Noise or false values can
# look like an overconfident prior, so one stage can at most double it. A large error of the prior's
# mean is corrected by a stage with a wide clip.
SCALES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

SCALE_PENALTY = 0.15  # penalty on the squared log of the factor, in favour of a factor of 1
# Standard deviations by which a vector may be longer than expected under the posterior.
SURPRISE = 4.0

ROUNDING = 1e-9  # maximum negative variance from rounding in an update


class InvalidPosteriorError(InvalidInputError):
    """Raised when a posterior or an observation has wrong shapes or values."""


@dataclass(frozen=True, slots=True, eq=False)
class GaussianPosterior:
    """A Gaussian over the log seconds of points."""

    mean: Floats  # float64 [points]
    covariance: Floats  # (log seconds)^2, float64 [points, points]

    def __post_init__(self) -> None:
        points = len(self.mean)
        if self.mean.shape != (points,) or self.covariance.shape != (points, points):
            raise InvalidPosteriorError(
                f"mean {self.mean.shape} and covariance {self.covariance.shape} do not match"
            )
        if not (np.all(np.isfinite(self.mean)) and np.all(np.isfinite(self.covariance))):
            raise InvalidPosteriorError("a posterior contains a value that is not finite")
        if not np.all(np.diag(self.covariance) >= -ROUNDING):
            raise InvalidPosteriorError("a posterior has a negative variance")

    def variances(self) -> Floats:
        """Return the variance at each point, [points], never negative."""
        return np.maximum(np.diag(self.covariance), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The observation values = matrix @ (truth - mean) + noise of one sender."""

    matrix: Floats  # float64 [values, points]
    values: Floats  # float64 [values]
    noise: Floats  # covariance of the noise, float64 [values, values]

    def __post_init__(self) -> None:
        count = len(self.values)
        shapes = (self.matrix.shape, self.values.shape, self.noise.shape)
        if shapes != ((count, self.matrix.shape[-1]), (count,), (count, count)):
            raise InvalidPosteriorError(f"an observation of {count} values has the shapes {shapes}")
        if not all(np.all(np.isfinite(each)) for each in (self.matrix, self.values, self.noise)):
            raise InvalidPosteriorError("an observation contains a value that is not finite")


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The result of an update."""

    posterior: GaussianPosterior  # the posterior after the observations
    scale: float  # factor on the variance of the prior, one of the given scales


def update(
    prior: GaussianPosterior,
    observations: Sequence[Observation],
    *,
    scales: Sequence[float] = SCALES,
) -> Update:
    """Return the posterior after independent `observations`, `prior` without any.

    Args:
        prior: posterior before the observations.
        observations: one per sender.
        scales: factors on its variance, from which the likelihood selects.

    Raises:
        InvalidPosteriorError: an observation has another number of points.
    """
    for each in observations:
        if each.matrix.shape[1] != len(prior.mean):
            raise InvalidPosteriorError(
                f"an observation has {each.matrix.shape[1]} points, expected {len(prior.mean)}"
            )
    if not observations:
        return Update(prior, 1.0)
    bounded = _condense(_shorten(prior, observations, max(scales)))
    scale = likeliest_scale(prior, bounded, scales)
    if scale < max(scales):
        bounded = _condense(_shorten(prior, observations, scale))
    values = np.concatenate([each.values for each in bounded])
    gain, removed = posterior_gain(prior, bounded, scale)
    covariance = scale * prior.covariance - removed
    return Update(
        GaussianPosterior(prior.mean + gain @ values, (covariance + covariance.T) / 2), scale
    )


def likeliest_scale(
    prior: GaussianPosterior, observations: Sequence[Observation], scales: Sequence[float] = SCALES
) -> float:
    """Return the factor on the prior's variance that maximises the penalised likelihood.

    Args:
        prior: posterior before the update.
        observations: observations of all senders.
        scales: factors to select from, with `SCALE_PENALTY` for those far from 1.
    """
    matrix, noise = _stacked(observations)
    values = np.concatenate([each.values for each in observations])
    signal = matrix @ prior.covariance @ matrix.T

    def score(scale: float) -> float:
        factor, lower = cho_factor(scale * signal + noise, lower=True)
        fit = float(values @ cho_solve((factor, lower), values))
        log_determinant = 2 * float(np.sum(np.log(np.diag(factor))))
        return -0.5 * (log_determinant + fit) - SCALE_PENALTY * math.log(scale) ** 2

    return max(scales, key=score)


def max_norm(count: int) -> float:
    """Return the maximum norm of a whitened vector of `count` values that is not shortened.

    An honest vector exceeds it with probability at most exp(-SURPRISE^2 / 2), 3 in 10,000.
    """
    return math.sqrt(count) + SURPRISE


def _shorten(
    prior: GaussianPosterior, observations: Sequence[Observation], scale: float
) -> list[Observation]:
    """Shorten observations to `max_norm` under the prior."""
    bounded = []
    for each in observations:
        root = np.linalg.cholesky(_covariance(prior, each, scale))
        length = float(np.linalg.norm(solve_triangular(root, each.values, lower=True)))
        factor = min(1.0, max_norm(len(each.values)) / length) if length > 0 else 1.0
        bounded.append(Observation(each.matrix, each.values * factor, each.noise))
    return bounded


def _condense(observations: Sequence[Observation]) -> Sequence[Observation]:
    """Combine observations into one with at most one value per point.

    With P = sum A' R^-1 A = L L' and h = sum A' R^-1 y, the observation L^-1 h of L' with
    noise 1 has the same likelihood up to a factor that does not depend on the prior.
    """
    points = observations[0].matrix.shape[1]
    if sum(len(each.values) for each in observations) <= points:
        return observations
    precision, information = np.zeros((points, points)), np.zeros(points)
    for each in observations:
        weighted = np.linalg.solve(each.noise, each.matrix)
        precision += each.matrix.T @ weighted
        information += weighted.T @ each.values
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    significant = values > points * np.finfo(np.float64).eps * values[-1]
    if not np.any(significant):
        return observations[:1]  # there is no information
    roots = np.sqrt(values[significant])
    matrix = roots[:, None] * vectors[:, significant].T
    return [
        Observation(matrix, vectors[:, significant].T @ information / roots, np.eye(len(roots)))
    ]


def _covariance(prior: GaussianPosterior, observation: Observation, scale: float) -> Floats:
    matrix = observation.matrix
    return np.asarray(scale * matrix @ prior.covariance @ matrix.T + observation.noise)


def posterior_gain(
    prior: GaussianPosterior, observations: Sequence[Observation], scale: float
) -> tuple[Floats, Floats]:
    """Return W with mean += W values, [points, values], and the removed covariance W A S."""
    matrix, noise = _stacked(observations)
    crossed = scale * matrix @ prior.covariance
    factor = cho_factor(crossed @ matrix.T + noise, lower=True)
    gain = np.asarray(cho_solve(factor, crossed).T, dtype=np.float64)
    return gain, gain @ crossed


def _stacked(observations: Sequence[Observation]) -> tuple[Floats, Floats]:
    matrix = np.concatenate([each.matrix for each in observations])
    return matrix, np.asarray(block_diag(*(each.noise for each in observations)))
