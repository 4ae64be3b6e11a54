"""A Gaussian process for few executions: a level, a line, and smooth departures from both.

The covariance over inputs that are scaled into [-1, 1] has a constant, a line with its own variance
per column, a smooth function of each column alone and a smooth function of all columns together,
each column with its own length. Away from the training data the smooth parts fade and the line
remains, as far as `FARTHEST` and within `MARGIN` of the targets. It reaches less far if few
executions have tested it (`_tested`). The hyperparameters have the highest posterior: marginal
likelihood times log-normal priors, which keep few executions from deciding much. Noise is at least
`LEAST_NOISE_SD`.

Rows with the same inputs are repeats: they are averaged before fitting, and a mean of m
repeats has an m-th of the noise, which is exact for the posterior.

Source: Rasmussen and Williams 2006, chapters 2, 4 and 5 (equation 5.9 for the gradient).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from fedperf_client.prediction.learners.ridge import MARGIN, ROUNDING, varying_columns
from fedperf_client.prediction.prediction import Floats

# Log seconds; executions of one configuration differ by about that much on any machine.
LEAST_NOISE_SD = 0.03

LEVEL_VARIANCE = 4.0  # prior variance of the constant, around the mean of the targets
# Centres of the priors over variances, (log seconds)^2 where an input spans [-1, 1].
PRIOR_LINE, PRIOR_SINGLE, PRIOR_JOINT = 0.2, 0.05, 0.05

PRIOR_LENGTH, PRIOR_NOISE = 2.0, 0.005
PRIOR_SD = 1.5
LENGTH_SD = 0.7  # standard deviations of the priors, in logs
# Largest scaled input, two spans beyond the training data: three nearly equal sizes do not show the
# time for a thousand times as much.
FARTHEST = 5.0

# Log seconds by which predictions may exceed the targets while nothing has tested the line: as far
# as sizes count as inside of the training support.
UNTESTED_MARGIN = float(np.log(2.0))

STEPS = 40
SEARCH = 5.0  # steps of the search for hyperparameters, and its range around the centres, in logs
# Distinct rows that are fitted at most, spread evenly; the cost grows with their cube.
MOST_ROWS = 600

# Most columns; of more, the main directions are used. Hundreds of lengths cannot be learned.
MOST_COLUMNS = 12


MAX_CORRELATION = 1 - 1e-9  # correlation from which on two columns are the same


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess:
    """A fitted process."""

    noise_sd: float  # of one execution around the process, log seconds
    _scaling: "Scaling"
    _kernel: "_Kernel"
    _known: Floats
    _factor: Floats
    _weights: Floats
    _level: float
    _limits: tuple[float, float]

    def mean(self, rows: Floats) -> Floats:
        """Return the posterior mean at `rows` [rows, columns], [rows]."""
        return np.clip(self._level + self._crossed(rows) @ self._weights, *self._limits)

    def sd(self, rows: Floats) -> Floats:
        """Return the posterior standard deviation of one execution, with its noise, [rows]."""
        half = solve_triangular(self._factor, self._crossed(rows).T, lower=True)
        variance = self._kernel.variances(self._scaling(rows)) - (half**2).sum(axis=0)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + self.noise_sd**2))

    def covariance(self, one: Floats, other: Floats) -> Floats:
        """Return the posterior covariance between rows, without noise, [one, other]."""
        half, rest = (
            solve_triangular(self._factor, self._crossed(each).T, lower=True)
            for each in (one, other)
        )
        return self._kernel.covariance(self._scaling(one), self._scaling(other)) - half.T @ rest

    def error_nearby(self, rows: Floats) -> Floats:
        """Return the leave-one-out error at the nearest training row, [rows].

        The hyperparameters stay those of all rows.

        Source: Rasmussen and Williams 2006, equation 5.12.
        """
        inverse = solve_triangular(self._factor, np.eye(len(self._known)), lower=True)
        errors = self._weights / (inverse**2).sum(axis=0)
        apart = cdist(self._scaling(rows), self._known, "cityblock")
        return np.asarray(errors[apart.argmin(axis=1)], dtype=np.float64)

    def _crossed(self, rows: Floats) -> Floats:
        return self._kernel.covariance(self._scaling(rows), self._known)


def fit_process(inputs: Floats, target: Floats, weights: Floats | None = None) -> GaussianProcess:
    """Fit the process of highest posterior.

    Args:
        inputs: any scale, float64 [rows, columns]; columns without information are dropped.
        target: log seconds, or residuals of them, [rows].
        weights: of each row, [rows]; 1 by default. A row of weight w has noise of 1 / w.
    """
    scaling = Scaling.of(inputs)
    weights = np.ones(len(target)) if weights is None else weights
    inputs_seen, means, counts, within = _without_repeats(scaling(inputs), target, weights)
    level = float(np.average(means, weights=counts)) if len(means) else 0.0
    repeats = float(np.maximum(counts - 1, 0.0).sum())
    kernel, noise = _Posterior(inputs_seen, means - level, counts, within, repeats).best()
    covariance = kernel.covariance(inputs_seen, inputs_seen) + np.diag(noise / counts)
    factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    weights = cho_solve((factor, True), means - level)
    margin = UNTESTED_MARGIN + (MARGIN - UNTESTED_MARGIN) * scaling.tested
    limits = (float(means.min(initial=level)) - margin, float(means.max(initial=level)) + margin)
    noise_sd = float(np.sqrt(noise))
    return GaussianProcess(noise_sd, scaling, kernel, inputs_seen, factor, weights, level, limits)


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Scales columns, or their main directions, into [-1, 1] over the training rows."""

    columns: NDArray[np.int64]
    directions: Floats
    middle: Floats
    half: Floats
    tested: float

    @classmethod
    def of(cls, inputs: Floats) -> "Scaling":
        """Return the scaling of training rows, without constant and equal columns."""
        columns = varying_columns(inputs)
        if len(columns) > 0:  # without those that are a straight line of one before them
            centred = inputs[:, columns] - inputs[:, columns].mean(axis=0)
            centred /= np.linalg.norm(centred, axis=0)
            is_same = np.abs(np.triu(centred.T @ centred, k=1)) > MAX_CORRELATION
            columns = columns[~is_same.any(axis=0)]
        used = inputs[:, columns]
        directions = _main_directions(used) if len(columns) > MOST_COLUMNS else np.eye(len(columns))
        turned = used @ directions
        low, high = turned.min(axis=0, initial=np.inf), turned.max(axis=0, initial=-np.inf)
        tested = _tested(len(np.unique(turned, axis=0)), turned.shape[1])
        return cls(columns, directions, (low + high) / 2, (high - low) / 2, tested)

    def __call__(self, inputs: Floats) -> Floats:
        """Return scaled inputs, [rows, columns used], at most `FARTHEST`."""
        reach = 1.0 + (FARTHEST - 1.0) * self.tested
        turned = inputs[:, self.columns] @ self.directions
        return np.clip((turned - self.middle) / self.half, -reach, reach)


def _tested(rows: int, columns: int) -> float:
    """Return how far so many rows test a plane over so many columns, in [0, 1].

    A plane fits any rows up to the number of its coefficients, so they are no evidence elsewhere.
    Each row more tests it; one for every column is enough.
    """
    return float(np.clip((rows - 1 - columns) / max(columns, 1), 0.0, 1.0))


def _main_directions(used: Floats) -> Floats:
    """Return the principal directions of the standardized columns, [columns, directions]."""
    sd = used.std(axis=0)
    _, values, directions = np.linalg.svd((used - used.mean(axis=0)) / sd, full_matrices=False)
    is_used = values[:MOST_COLUMNS] > ROUNDING * values[0]
    return np.asarray(directions[:MOST_COLUMNS][is_used].T / sd[:, None])


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """Hyperparameters of the covariance: `lines` and `lengths` per column, two variances."""

    lines: Floats
    lengths: Floats
    single: float
    joint: float

    def covariance(self, one: Floats, other: Floats) -> Floats:
        """Return the covariance between rows of `one` and of `other`."""
        total = LEVEL_VARIANCE + (one * self.lines) @ other.T
        exponent = np.zeros_like(total)
        for column, length in enumerate(self.lengths):
            apart = np.subtract.outer(one[:, column], other[:, column]) / length
            square = 0.5 * apart**2
            total += self.single * np.exp(-square)
            exponent += square
        return np.asarray(total + self.joint * np.exp(-exponent))

    def variances(self, rows: Floats) -> Floats:
        """Return the diagonal of the covariance of `rows` with themselves."""
        smooth = self.single * rows.shape[1] + self.joint
        return np.asarray(LEVEL_VARIANCE + rows**2 @ self.lines + smooth)


@dataclass(frozen=True, slots=True, eq=False)
class _Posterior:
    """Minus the log posterior of the logs of: lines, lengths, single, joint, noise."""

    inputs: Floats  # scaled inputs, [rows, columns]
    means: Floats  # of the repeats of each row, around the level, [rows]
    counts: Floats  # repeats of each row, [rows]
    within: float  # sum of the squares of the repeats around their means
    repeats: float  # executions beyond the first of each row

    def best(self) -> tuple[_Kernel, float]:
        """Return the kernel and noise variance of highest posterior."""
        centre = self._centre()
        if self.inputs.size == 0:
            return self._kernel(centre), float(np.exp(centre[-1]))
        low, high = centre - SEARCH, centre + SEARCH
        low[-1] = 2 * np.log(LEAST_NOISE_SD)
        squares = (self.inputs[:, None, :] - self.inputs[None, :, :]) ** 2
        optimum = minimize(
            self._loss,
            centre,
            args=(np.ascontiguousarray(np.moveaxis(squares, 2, 0)),),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": STEPS},
        )
        return self._kernel(optimum.x), float(np.exp(optimum.x[-1]))

    def _kernel(self, logs: Floats) -> _Kernel:
        columns = self.inputs.shape[1]
        numbers = np.exp(logs)
        single, joint = numbers[2 * columns : -1].tolist()
        return _Kernel(numbers[:columns], numbers[columns : 2 * columns], single, joint)

    def _centre(self) -> Floats:
        columns = self.inputs.shape[1]
        rest = [PRIOR_SINGLE / max(columns, 1), PRIOR_JOINT, PRIOR_NOISE]
        return np.log([PRIOR_LINE] * columns + [PRIOR_LENGTH] * columns + rest)

    def _spread(self) -> Floats:
        columns = self.inputs.shape[1]
        return np.array([PRIOR_SD] * columns + [LENGTH_SD] * columns + [PRIOR_SD] * 3)

    def _loss(self, logs: Floats, apart: Floats) -> tuple[float, Floats]:
        """Return value and gradient; `apart` are squared differences, [columns, rows, rows]."""
        kernel, noise = self._kernel(logs), float(np.exp(logs[-1]))
        exponents = apart / (2 * kernel.lengths[:, None, None] ** 2)
        near = -exponents  # in place from here: these arrays are large, and new memory is slow
        np.exp(near, out=near)
        near *= kernel.single
        somewhere_near = near.sum(axis=0)
        all_near = kernel.joint * np.exp(-exponents.sum(axis=0))
        covariance = LEVEL_VARIANCE + (self.inputs * kernel.lines) @ self.inputs.T
        covariance += somewhere_near + all_near + np.diag(noise / self.counts)
        factor, _ = cho_factor(covariance, lower=True)
        weights = cho_solve((factor, True), self.means)
        curvature = _inverse(factor) - np.outer(weights, weights)
        near += all_near
        near *= exponents
        lines = np.sum(self.inputs * (curvature @ self.inputs), axis=0) * kernel.lines / 2
        lengths = np.tensordot(near, curvature, axes=2)
        surplus = self.repeats - self.within / noise
        rest = [
            np.tensordot(somewhere_near, curvature) / 2,
            np.tensordot(all_near, curvature) / 2,
            (noise * np.sum(np.diag(curvature) / self.counts) + surplus) / 2,
        ]
        away = (logs - self._centre()) / self._spread()
        fit = self.means @ weights + self.repeats * logs[-1] + self.within / noise + away @ away
        value = float(fit / 2 + np.log(np.diag(factor)).sum())
        return value, np.concatenate([lines, lengths, rest]) + away / self._spread()


def _inverse(factor: Floats) -> Floats:
    """Return the inverse of a matrix from its lower Cholesky factor."""
    lower, _ = dpotri(factor, lower=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def _without_repeats(
    inputs: Floats, target: Floats, weights: Floats
) -> tuple[Floats, Floats, Floats, float]:
    """Return distinct rows, mean and weight of their targets, and the squares within them.

    Beyond `MOST_ROWS` distinct rows some are left out, the same ones every time.
    """
    distinct, place = np.unique(inputs, axis=0, return_inverse=True)
    place = place.ravel()
    counts = np.asarray(np.bincount(place, weights, minlength=len(distinct)), np.float64)
    means = np.bincount(place, weights * target, minlength=len(counts)) / counts
    within = np.bincount(place, weights * (target - means[place]) ** 2, minlength=len(counts))
    within[counts <= 1] = 0.0  # one execution is no evidence of noise
    rows = np.linspace(0, len(counts) - 1, min(len(counts), MOST_ROWS)).astype(np.int64)
    return distinct[rows], means[rows], counts[rows], float(within[rows].sum())
