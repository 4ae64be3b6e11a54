"""The coordinator's belief about run times at points, and its update by noisy sums.

A `GaussianPosterior` is a Gaussian over the log seconds of a list of points. An `Observation` is a
noisy linear function of how far the truth lies from the belief's mean: runs that were published, or
the sums of one sender's directed report. Before an update, the marginal likelihood may scale the
belief's variance, so that a start that knows less than it thinks counts less.

Only releases are read, so nothing here costs privacy. Influence is bounded: an observation that
lies beyond `SURPRISE` standard deviations under the belief is shortened to that. So one sender,
whatever its numbers, moves the mean of one update by at most `influence_bounds` for the chosen
scale, and the scale lies in a fixed list. Where several senders add up securely, their sum counts
as one sender: nobody can bound a single one of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_factor, cho_solve, solve_triangular

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

SCALES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Factors on the variance of a belief among which the marginal likelihood chooses. Noise or
a lie can look like a start that was far too sure, so one stage can at most double it; a
start that is really far off is mended by the mean of a stage with a wide clip."""

SCALE_PENALTY = 0.15
"""Times the squared log of the factor: what is against leaving the belief as it is."""

SURPRISE = 4.0
"""By how many stddevs a vector may be longer than one from the belief usually is."""


ROUNDING = 1e-9
"""A variance may be below 0 by so much after an update."""


class InvalidPosteriorError(InvalidInputError):
    """A belief or an observation is not a Gaussian over the points that it names."""


@dataclass(frozen=True, slots=True, eq=False)
class GaussianPosterior:
    """A Gaussian over the log seconds of points.

    Attributes:
        mean: float64 [points].
        covariance: (log seconds)^2, float64 [points, points].
    """

    mean: Floats
    covariance: Floats

    def __post_init__(self) -> None:
        points = len(self.mean)
        if self.mean.shape != (points,) or self.covariance.shape != (points, points):
            raise InvalidPosteriorError(
                f"a mean {self.mean.shape} does not go with a covariance {self.covariance.shape}"
            )
        if not (np.all(np.isfinite(self.mean)) and np.all(np.isfinite(self.covariance))):
            raise InvalidPosteriorError("a belief holds a number that is not finite")
        if not np.all(np.diag(self.covariance) >= -ROUNDING):
            raise InvalidPosteriorError("a belief has a negative variance")

    def at(self, positions: Positions) -> "GaussianPosterior":
        """The belief about some of the points."""
        return GaussianPosterior(
            self.mean[positions], self.covariance[np.ix_(positions, positions)]
        )

    def variances(self) -> Floats:
        """Variance at each point, [points], never negative."""
        return np.maximum(np.diag(self.covariance), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """values = matrix @ (truth - mean of the belief) + noise, from one sender.

    Attributes:
        matrix: float64 [values, points].
        values: float64 [values].
        noise: covariance of the noise, float64 [values, values].
    """

    matrix: Floats
    values: Floats
    noise: Floats

    def __post_init__(self) -> None:
        count = len(self.values)
        shapes = (self.matrix.shape, self.values.shape, self.noise.shape)
        if shapes != ((count, self.matrix.shape[-1]), (count,), (count, count)):
            raise InvalidPosteriorError(f"an observation of {count} values has the shapes {shapes}")
        if not all(np.all(np.isfinite(each)) for each in (self.matrix, self.values, self.noise)):
            raise InvalidPosteriorError("an observation holds a number that is not finite")


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A belief after observations.

    Attributes:
        belief: what is believed now.
        scale: factor on the variance of the belief before, one of those allowed.
    """

    belief: GaussianPosterior
    scale: float


def update(
    belief: GaussianPosterior,
    observations: Sequence[Observation],
    *,
    scales: Sequence[float] = SCALES,
) -> Update:
    """The belief after independent `observations`; the same belief without any.

    Args:
        belief: before.
        observations: one for each sender.
        scales: factors on its variance among which the likelihood chooses.

    Raises:
        InvalidBeliefError: an observation is of other points.
    """
    _require_fitting(belief, observations)
    if not observations:
        return Update(belief, 1.0)
    plausible = _condensed(_shortened(belief, observations, max(scales)))
    scale = likeliest_scale(belief, plausible, scales)
    if scale < max(scales):
        plausible = _condensed(_shortened(belief, observations, scale))
    values = np.concatenate([each.values for each in plausible])
    gain, removed = _gain(belief, plausible, scale)
    covariance = scale * belief.covariance - removed
    return Update(
        GaussianPosterior(belief.mean + gain @ values, (covariance + covariance.T) / 2), scale
    )


def conditioned(
    belief: GaussianPosterior, positions: Positions, values: Floats, noise: float
) -> GaussianPosterior:
    """The belief after measured log seconds at some points: nothing private, no scaling.

    Args:
        belief: before.
        positions: of the measured points, [measured].
        values: measured log seconds, [measured].
        noise: variance of a measurement.
    """
    matrix = np.zeros((len(positions), len(belief.mean)))
    matrix[np.arange(len(positions)), positions] = 1.0
    seen = Observation(matrix, values - belief.mean[positions], noise * np.eye(len(positions)))
    gain, removed = _gain(belief, [seen], 1.0)
    covariance = belief.covariance - removed
    return GaussianPosterior(belief.mean + gain @ seen.values, (covariance + covariance.T) / 2)


def likeliest_scale(
    belief: GaussianPosterior, observations: Sequence[Observation], scales: Sequence[float] = SCALES
) -> float:
    """The factor on the belief's variance that makes the observations most likely.

    Args:
        belief: before the update.
        observations: of all senders.
        scales: factors to choose among; those far from 1 are held back by `SCALE_PENALTY`.
    """
    matrix, noise = _stacked(observations)
    values = np.concatenate([each.values for each in observations])
    signal = matrix @ belief.covariance @ matrix.T

    def score(scale: float) -> float:
        factor, lower = cho_factor(scale * signal + noise, lower=True)
        fit = float(values @ cho_solve((factor, lower), values))
        log_determinant = 2 * float(np.sum(np.log(np.diag(factor))))
        return -0.5 * (log_determinant + fit) - SCALE_PENALTY * math.log(scale) ** 2

    return max(scales, key=score)


def influence_bounds(
    belief: GaussianPosterior, observations: Sequence[Observation], sender: int, *, scale: float
) -> Floats:
    """The most by which one sender can move the mean in one update, log seconds, [points].

    The mean is linear in the sender's vector v, which has |L^-1 v| <= `longest(count)`, L L'
    its covariance under the belief alone. Two vectors thus differ by at most twice that, and
    the mean at point x by at most 2 * longest * |gain(x) L|. Independent of what was sent,
    at the scale given; where a lie changes the scale as well, the sum over all senders at
    either scale bounds the mean.
    """
    gain, _ = _gain(belief, observations, scale)
    start = sum(len(each.values) for each in observations[:sender])
    mine = observations[sender]
    root = np.linalg.cholesky(_covariance(belief, mine, scale))
    moved = gain[:, start : start + len(mine.values)] @ root
    return np.asarray(2 * longest(len(mine.values)) * np.linalg.norm(moved, axis=1))


def longest(count: int) -> float:
    """Longest whitened vector of `count` values that is believed as it is.

    An honest one passes it with a chance of at most exp(-SURPRISE^2 / 2), 3 in 10,000.
    """
    return math.sqrt(count) + SURPRISE


def _shortened(
    belief: GaussianPosterior, observations: Sequence[Observation], scale: float
) -> list[Observation]:
    """Observations with vectors that are not longer than `longest` under the belief."""
    return [
        Observation(each.matrix, each.values * _believable(belief, each, scale), each.noise)
        for each in observations
    ]


def _condensed(observations: Sequence[Observation]) -> Sequence[Observation]:
    """The same information in at most one value a point, however many senders there are.

    With P = sum A' R^-1 A = L L' and h = sum A' R^-1 y, the observation L^-1 h of L' with
    noise 1 has the same likelihood but for a factor that depends on no belief.
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
    known = values > points * np.finfo(np.float64).eps * values[-1]
    if not np.any(known):
        return observations[:1]  # nobody says anything
    roots = np.sqrt(values[known])
    matrix = roots[:, None] * vectors[:, known].T
    return [Observation(matrix, vectors[:, known].T @ information / roots, np.eye(len(roots)))]


def _believable(belief: GaussianPosterior, observation: Observation, scale: float) -> float:
    root = np.linalg.cholesky(_covariance(belief, observation, scale))
    length = float(np.linalg.norm(solve_triangular(root, observation.values, lower=True)))
    return min(1.0, longest(len(observation.values)) / length) if length > 0 else 1.0


def _covariance(belief: GaussianPosterior, observation: Observation, scale: float) -> Floats:
    matrix = observation.matrix
    return np.asarray(scale * matrix @ belief.covariance @ matrix.T + observation.noise)


def _gain(
    belief: GaussianPosterior, observations: Sequence[Observation], scale: float
) -> tuple[Floats, Floats]:
    """W with mean += W values, [points, values]; and the covariance that goes, W A S."""
    matrix, noise = _stacked(observations)
    crossed = scale * matrix @ belief.covariance
    factor = cho_factor(crossed @ matrix.T + noise, lower=True)
    gain = np.asarray(cho_solve(factor, crossed).T, dtype=np.float64)
    return gain, gain @ crossed


def _stacked(observations: Sequence[Observation]) -> tuple[Floats, Floats]:
    matrix = np.concatenate([each.matrix for each in observations])
    return matrix, np.asarray(block_diag(*(each.noise for each in observations)))


def _require_fitting(belief: GaussianPosterior, observations: Sequence[Observation]) -> None:
    for each in observations:
        if each.matrix.shape[1] != len(belief.mean):
            raise InvalidPosteriorError(
                f"an observation of {each.matrix.shape[1]} points, the belief has "
                f"{len(belief.mean)}"
            )
