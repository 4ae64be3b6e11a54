"""Slopes that are believed before any run: how run time changes with machines, rows and the like.

Log seconds are a level, a line in the features whose slopes have a prior, and a smooth departure
from it (a Gaussian process). So the first configuration says something of all others, and
evidence takes over as it grows. Beside the line stand the laws of `scaling_laws`, which bend. Which
of these, how large departures and noise are and how far departures reach, is averaged over a
fixed grid by marginal likelihood times a prior: the predictive distribution is a mixture of
normals, whose tails are as heavy as those of a Student distribution. The level is free: a
logged column in other units moves nothing else.

Sources: Rasmussen and Williams 2006, section 2.7 (explicit basis functions with a prior) and
equation 2.30 (marginal likelihood). Numbers that are not finite are refused.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.scaling_laws import ScalingColumns
from fedperf_client.prediction.learners.tables import distinct_rows
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries
from fedperf_shared.errors import InvalidInputError

LEVEL_VARIANCE = 1e4
"""Of the level, log seconds squared: nothing is known of it."""

NOISES = (0.015, 0.022, 0.033, 0.05, 0.075, 0.11, 0.17, 0.25, 0.38, 0.57, 0.85)
USUAL_NOISE = 0.05
"""Log seconds by which repeats differ. Coefficients of variation of 0.3 to 10 % are usual on own
machines (Maricq et al., OSDI 2018), up to 20 % on rented ones (Schad et al., VLDB 2010); the
largest are for shared storage, and need evidence."""

DEPARTURES = (0.03, 0.1, 0.2, 0.4)
USUAL_DEPARTURE = 0.15
"""Log seconds by which a job departs from a line or a law: caches, spills, waves of tasks."""

PRIOR_SD = 0.8
"""Of the log-normal priors of noise and departures."""

REACHES = (0.6, 1.2, 2.4)
"""Over how many lengths of a column departures fade."""

LAWS_SHARE = 0.1
"""Prior chance that a law holds and not the line: from three configurations on evidence can
say so, and before the line should speak."""

NO_SLOPE_SHARE = 0.05
"""Prior chance that size does not matter to a job, and that machines do not, each."""

NO_SLOPE_FROM = 4
"""Distinct values of a column from which on evidence may say so."""

LAW_SLOPE_SD = 0.12
"""Of the slopes of machines and size beside a law."""

LEAST_WEIGHT = 3e-4
"""Points of the grid below this share change nothing."""

MOST_ROWS = 200
"""Configurations that are fitted at most, spread evenly; the cost grows with their cube."""


class InvalidSlopesError(InvalidInputError):
    """Priors do not go with the features, or a number is not finite."""


@dataclass(frozen=True, slots=True)
class SlopePrior:
    """What is believed of one feature before any run; by default that it does not matter.

    Attributes:
        mean: of the slope, log seconds per unit of the feature.
        sd: of the slope.
        length: over which departures fade, in units of the feature.
    """

    mean: float = 0.0
    sd: float = 0.0
    length: float = np.inf

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and 0 <= self.sd < np.inf and self.length > 0):
            raise InvalidSlopesError(f"a slope has no such prior: {self}")


SIZE_SLOPE = SlopePrior(0.9, 0.3, 1.5)
"""Prior on the slope of the log of rows or bytes; reasons stand beside those of other columns."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Repeats of other jobs: what is known of noise before this job has repeats.

    Attributes:
        squares: sum of the squares around the mean of each configuration, log seconds.
        freedom: repeats beyond the first of each.
    """

    squares: float = 0.0
    freedom: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.squares < np.inf and 0 <= self.freedom < np.inf):
            raise InvalidSlopesError(f"repeats cannot scatter so: {self}")


NO_REPEATS = Scatter()
"""Of a home that holds this job alone."""


@dataclass(frozen=True, slots=True, eq=False)
class SlopePosterior:
    """Log seconds that are believed.

    Attributes:
        mean: [questions].
        variance: of the mean, [questions].
        noise: variance of one execution around it.
    """

    mean: Floats
    variance: Floats
    noise: float


@dataclass(frozen=True, slots=True)
class PriorSlopes:
    """The learner.

    Attributes:
        priors: of every feature, in their order.
        scaling: where machines and size are; without, no law is tried.
        elsewhere: repeats of other jobs.
    """

    priors: tuple[SlopePrior, ...]
    scaling: ScalingColumns | None = None
    elsewhere: Scatter = NO_REPEATS
    name: str = "prior slopes"
    start: None = None
    fewest: int = 1
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> "FittedSlopes":
        """Learn from executions; repeats of a configuration tell the noise.

        Raises:
            InvalidSlopesError: there is not one prior for each feature, or a number is not finite.
        """
        if samples.features.shape[1] != len(self.priors):
            wide = samples.features.shape[1]
            raise InvalidSlopesError(f"{len(self.priors)} priors for {wide} features")
        if not (np.isfinite(samples.features).all() and np.isfinite(log_seconds).all()):
            raise InvalidSlopesError("features and run times to learn from are finite")
        means, counts, rows, within = _configurations(samples.features, log_seconds)
        known = samples.features[rows]
        middle = known.mean(axis=0) if len(known) else np.zeros(len(self.priors))
        level = float(means.mean()) if len(means) else 0.0
        scatter = Scatter(
            within + self.elsewhere.squares,
            len(log_seconds) - len(counts) + self.elsewhere.freedom,
        )
        return FittedSlopes(
            middle,
            known - middle,
            level,
            self.scaling,
            _weighed(self._shapes(known, middle), known - middle, means - level, counts, scatter),
        )

    def _shapes(self, known: Floats, middle: Floats) -> list["_Shape"]:
        sd = np.array([each.sd for each in self.priors])
        mean = np.array([each.mean for each in self.priors])
        length = np.array([each.length for each in self.priors])
        if self.scaling is None:
            return [_Shape(1.0, mean, sd**2, length, np.zeros((1, len(known))))]
        told, no_law = [self.scaling.scale, self.scaling.size], np.zeros((1, len(known)))
        flat = []
        for place in told:
            if len(np.unique(known[:, place])) >= NO_SLOPE_FROM:
                other = np.arange(len(mean)) != place
                parts = mean * other, (sd * other) ** 2
                flat.append(_Shape(NO_SLOPE_SHARE, *parts, length, no_law))
        rest = 1 - LAWS_SHARE - NO_SLOPE_SHARE * len(flat)
        line = _Shape(rest, mean, sd**2, length, no_law)
        mean, sd = mean.copy(), sd.copy()
        mean[told], sd[told] = 0.0, LAW_SLOPE_SD
        laws = self.scaling.shapes(known, middle)
        return [line, *flat, _Shape(LAWS_SHARE, mean, sd**2, length, laws, is_law=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """The line, or the laws with what is added to them.

    Attributes:
        chance: before any run.
        mean: of the slopes, [features].
        variance: of the slopes, [features].
        length: over which departures fade, [features].
        known: log seconds that it gives the known rows, up to a level, [laws, rows].
        is_law: whether `known` comes from laws.
    """

    chance: float
    mean: Floats
    variance: Floats
    length: Floats
    known: Floats
    is_law: bool = False

    def lines(self, one: Floats, other: Floats) -> Floats:
        """Covariance of level and slopes, [one, other]."""
        return np.asarray(LEVEL_VARIANCE + (one * self.variance) @ other.T)

    def near(self, one: Floats, other: Floats, reach: float) -> Floats:
        """Correlation of departures, [one, other]."""
        used = np.isfinite(self.length)
        a, b = one[:, used] / self.length[used], other[:, used] / self.length[used]
        square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return np.asarray(np.exp(-np.maximum(square, 0.0) / (2 * reach**2)))


@dataclass(frozen=True, slots=True, eq=False)
class _Hypothesis:
    """A point of the grid with its weight.

    Attributes:
        weight: over all laws.
        shape: the line or the laws.
        laws: weight of each law, of sum 1.
        departure: variance.
        reach: of departures.
        noise: variance.
        inverse: of the covariance of the known rows.
        pulls: what the known rows pull, of each law, [laws, rows].
    """

    weight: float
    shape: _Shape
    laws: Floats
    departure: float
    reach: float
    noise: float
    inverse: Floats
    pulls: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FittedSlopes:
    """Samples -> log seconds; `belief` says how sure as well."""

    _middle: Floats
    _known: Floats
    _level: float
    _scaling: ScalingColumns | None
    _hypotheses: tuple[_Hypothesis, ...]

    def __call__(self, asked: EncodedQueries) -> Floats:
        """Mean log seconds, [questions]."""
        return self.belief(asked).mean

    def belief(self, asked: EncodedQueries) -> SlopePosterior:
        """Mean, its variance, and noise.

        Raises:
            InvalidSlopesError: a feature is not finite.
        """
        if not np.isfinite(asked.features).all():
            raise InvalidSlopesError("features to answer for are finite")
        rows = asked.features - self._middle
        laws = None if self._scaling is None else self._scaling.shapes(asked.features, self._middle)
        found = [self._of(each, rows, laws) for each in self._hypotheses]
        weights = np.array([each.weight for each in self._hypotheses])
        means, variances = (np.array(each) for each in zip(*found, strict=True))
        mean = weights @ means
        return SlopePosterior(
            mean,
            weights @ (variances + (means - mean) ** 2),
            float(weights @ [each.noise for each in self._hypotheses]),
        )

    def _of(self, each: _Hypothesis, rows: Floats, laws: Floats | None) -> tuple[Floats, Floats]:
        """Mean and variance where a hypothesis holds."""
        shape = each.shape
        crossed = shape.lines(rows, self._known)
        crossed += each.departure * shape.near(rows, self._known, each.reach)
        given = laws if shape.is_law and laws is not None else np.zeros((1, len(rows)))
        by_law = self._level + rows @ shape.mean + given + each.pulls @ crossed.T
        mean = each.laws @ by_law
        prior = LEVEL_VARIANCE + rows**2 @ shape.variance + each.departure
        variance = prior - ((crossed @ each.inverse) * crossed).sum(axis=1)
        return mean, np.maximum(variance, 0.0) + each.laws @ (by_law - mean) ** 2


def _weighed(
    shapes: list[_Shape], known: Floats, means: Floats, counts: Floats, scatter: Scatter
) -> tuple[_Hypothesis, ...]:
    """The points of the grid that count, their weights of sum 1.

    Args:
        shapes: the line, and the laws.
        known: features of the configurations around their middle, [rows, features].
        means: of their repeats, around the level, [rows].
        counts: of their repeats, [rows].
        scatter: of repeats.
    """
    root = np.sqrt(counts)
    scores: list[Floats] = []
    points: list[tuple[_Shape, float, float, float, Floats, Floats, Floats]] = []
    for shape in shapes:
        left = means - known @ shape.mean - shape.known
        lines = shape.lines(known, known)
        for reach, departure in product(REACHES, DEPARTURES):
            covariance = lines + departure**2 * shape.near(known, known, reach)
            values, vectors = np.linalg.eigh(covariance * np.outer(root, root))
            turned = ((left * root) @ vectors) ** 2
            for noise in NOISES:
                spread = np.maximum(values, 0.0) + noise**2
                fit = (turned / spread).sum(axis=1) + scatter.squares / noise**2
                size = np.log(spread).sum() + 2 * scatter.freedom * np.log(noise)
                prior = np.log(shape.chance / len(left)) + _log_prior(departure, noise)
                scores.append(prior - (fit + size) / 2)
                points.append((shape, departure, reach, noise, spread, vectors, left))
    best = max(float(each.max()) for each in scores)
    weights = [np.exp(each - best) for each in scores]
    sums = np.array([each.sum() for each in weights])
    counted = np.flatnonzero(sums >= LEAST_WEIGHT * sums.sum())
    total = float(sums[counted].sum())
    found = []
    for place in counted.tolist():
        shape, departure, reach, noise, spread, vectors, left = points[place]
        inverse = (vectors / spread) @ vectors.T * np.outer(root, root)
        found.append(
            _Hypothesis(
                float(sums[place]) / total,
                shape,
                weights[place] / sums[place],
                departure**2,
                reach,
                noise**2,
                inverse,
                left @ inverse,
            )
        )
    return tuple(found)


def _log_prior(departure: float, noise: float) -> float:
    away = np.log([departure / USUAL_DEPARTURE, noise / USUAL_NOISE]) / PRIOR_SD
    return float(-(away @ away) / 2)


def _configurations(
    features: Floats, log_seconds: Floats
) -> tuple[Floats, Floats, NDArray[np.int64], float]:
    """Mean and number of the repeats of each, its first row, and the squares within them.

    Of more than `MOST_ROWS` some are left out, the same ones every time; their repeats still
    tell the noise.
    """
    rows, place = distinct_rows(features)
    counts = np.bincount(place, minlength=len(rows)).astype(np.float64)
    means = np.bincount(place, log_seconds, minlength=len(rows)) / np.maximum(counts, 1.0)
    within = float(((log_seconds - means[place]) ** 2).sum())
    kept = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64)
    return means[kept], counts[kept], rows[kept], within
