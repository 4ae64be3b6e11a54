"""A learner for tables of columns with a prior on its slopes.

Log seconds are a level, a line in the features whose slopes have a prior, and a smooth departure
from it (a Gaussian process). So the first configuration informs the predictions of all others, and
evidence takes over as it grows. A few scaling laws, which bend, are alternatives to the line. The
choice between line and laws, the size of departures and noise, and the reach of departures are
averaged over a fixed grid by marginal likelihood times a prior. The predictive distribution is a
mixture of normals, whose tails are as heavy as those of a Student distribution. The level is free:
a logged column in other units moves nothing else. Numbers that are not finite are refused.

The laws are Ernest's, of run time by machines and input size: seconds ~ a + b size^g / machines + c
log machines + d machines, with shares a + b + c + d = 1 at the middle of what is known. A job whose
configurations are worth a query spends most of its time there on work that machines share (b from
0.6 to 1). The part that grows with machines reaches its share d only at four times as many. Sizes
count by about their first power (g of 0.95 +- 0.2). The sample of laws is fixed.

The prior on a slope follows from the role of the column, by its name or as the layout declares it.
It never follows from values, so no job's data decides its prior. Run time falls with machines or
cores by an exponent of 0.7 +- 0.35. Amdahl's law, the crosstalk of Gunther's Universal Scalability
Law and the fixed parts of Ernest leave less than the 1 of perfect scaling. Data that fits into the
memory of more machines gives more. Run time rises with rows or bytes by 0.9 +- 0.3: one pass is
linear, fixed parts make it less, sorts and spills more. Passes over the data are repeated work,
some of which is done once: 0.7 +- 0.35. More memory helps a little or not at all. For other columns
the direction is not known. All of it is reasoning from these laws, not a fit.

Sources: Rasmussen and Williams 2006, section 2.7 (explicit basis functions with a prior) and
equation 2.30 (marginal likelihood). Venkataraman et al., NSDI 2016, section 3.1 (Ernest).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import cache
from itertools import product
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import TableColumn, TableLayout, distinct_rows
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.repeats import USUAL_DEPARTURE
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.serving.reconfiguration import SIZE_SLOPE_MEAN, SIZE_SLOPE_SD
from fedperf_shared.errors import InvalidInputError

# --- scaling laws -----------------------------------------------------------------------------

LAWS = 64
LEAST_WORK = 0.6
CROSSTALK_FROM = 4.0  # times the machines of the middle, at which crosstalk has its share
SIZE_POWER, SIZE_POWER_SD = 0.95, 0.2
# Least divisor of the part that grows with log machines, if the middle is one machine.
LEAST_LOG_MACHINES = 0.35


@dataclass(frozen=True, slots=True)
class ScalingColumns:
    """Columns of log machines and of log size among the features."""

    scale: int
    size: int

    def shapes(self, features: Floats, middle: Floats) -> Floats:
        """Return the log seconds of every law up to a level, [LAWS, rows].

        Args:
            features: [rows, columns].
            middle: mean of the known features, [columns].
        """
        fixed, work, gathered, crosstalk, powers = _laws()
        machines, size = features[:, self.scale], features[:, self.size] - middle[self.size]
        apart = machines - middle[self.scale]
        log_machines = np.maximum(machines, 0) / max(middle[self.scale], LEAST_LOG_MACHINES)
        return np.asarray(
            np.log(
                fixed[:, None]
                + work[:, None] * np.exp(np.outer(powers, size) - apart)
                + np.outer(gathered, log_machines)
                + np.outer(crosstalk, np.exp(apart) / CROSSTALK_FROM)
            )
        )


@cache
def _laws() -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return shares fixed, of work, gathered, of crosstalk, and powers of size, [LAWS] each."""
    from scipy.special import ndtri

    spread = _evenly(LAWS, 5)
    work = LEAST_WORK + (1 - LEAST_WORK) * spread[:, 0]
    parts = -np.log(spread[:, 1:4])
    fixed, gathered, crosstalk = (parts / parts.sum(axis=1, keepdims=True) * (1 - work)[:, None]).T
    powers = SIZE_POWER + SIZE_POWER_SD * ndtri(spread[:, 4])
    return fixed, work, gathered, crosstalk, powers


def _evenly(count: int, columns: int) -> Floats:
    """Return points spread evenly in the unit cube, [count, columns].

    Source: Roberts 2018, the additive recurrence of the generalized golden ratio.
    """
    ratio = 2.0
    for _ in range(30):
        ratio = (1 + ratio) ** (1 / (columns + 1))
    steps = ratio ** -np.arange(1.0, columns + 1)
    return np.asarray((0.5 + np.outer(np.arange(1, count + 1), steps)) % 1)


# --- the learner ------------------------------------------------------------------------------

LEVEL_VARIANCE = 1e4  # prior variance of the level, log seconds squared: uninformative
NOISES = (0.015, 0.022, 0.033, 0.05, 0.075, 0.11, 0.17, 0.25, 0.38, 0.57, 0.85)
# Log seconds by which repeats differ. Coefficients of variation of 0.3 to 10 % are usual on own
# machines (Maricq et al., OSDI 2018), up to 20 % on rented ones (Schad et al., VLDB 2010); the
# largest are for shared storage, and need evidence.
USUAL_NOISE = 0.05

DEPARTURES = (0.03, 0.1, 0.2, 0.4)

PRIOR_SD = 0.8  # standard deviation of the log-normal priors of noise and departures
REACHES = (0.6, 1.2, 2.4)  # lengths of a column over which departures fade
# Prior probability that a law holds and not the line. From three configurations on, evidence can
# show it; before, the line should predict.
LAWS_SHARE = 0.1

# Prior probability that size does not matter to a job, and that machines do not, each.
NO_SLOPE_SHARE = 0.05

NO_SLOPE_FROM = 4  # distinct values of a column from which on evidence may show it
LAW_SLOPE_SD = 0.12  # prior standard deviation of the slopes of machines and size next to a law
LEAST_WEIGHT = 3e-4  # points of the grid below this share change nothing
# Configurations that are fitted at most, spread evenly; the cost grows with their cube.
MOST_ROWS = 200


class InvalidSlopesError(InvalidInputError):
    """Priors do not go with the features, or a number is not finite."""


@dataclass(frozen=True, slots=True)
class SlopePrior:
    """The prior on the slope of one feature; by default the feature does not matter."""

    mean: float = 0.0  # of the slope, log seconds per unit of the feature
    sd: float = 0.0  # of the slope
    length: float = np.inf  # distance over which departures fade, in units of the feature

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and 0 <= self.sd < np.inf and self.length > 0):
            raise InvalidSlopesError(f"a slope prior is finite, with a positive length, got {self}")


@dataclass(frozen=True, slots=True)
class Scatter:
    """Repeats of other jobs: evidence of noise before this job has repeats."""

    squares: float = 0.0  # sum of the squares around the mean of each configuration, log seconds
    freedom: float = 0.0  # repeats beyond the first of each

    def __post_init__(self) -> None:
        if not (0 <= self.squares < np.inf and 0 <= self.freedom < np.inf):
            raise InvalidSlopesError(f"sums of squares and degrees are 0 or more, got {self}")


NO_REPEATS = Scatter()  # scatter in a home that holds this job alone


@dataclass(frozen=True, slots=True, eq=False)
class SlopePosterior:
    """The posterior of log seconds."""

    mean: Floats  # [queries]
    variance: Floats  # of the mean, [queries]
    noise: float  # variance of one execution around it


@dataclass(frozen=True, slots=True)
class PriorSlopes:
    """The learner with a prior on slopes."""

    priors: tuple[SlopePrior, ...]  # of every feature, in their order
    # Columns of machines and size; without them, no law is tried.
    scaling: ScalingColumns | None = None
    elsewhere: Scatter = NO_REPEATS  # repeats of other jobs
    name: str = "prior slopes"
    base_model: None = None
    fewest: int = 1
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> "FittedSlopes":
        """Learn from executions; repeats of a configuration show the noise.

        Raises:
            InvalidSlopesError: there is not one prior for each feature, or a number is not finite.
        """
        if samples.features.shape[1] != len(self.priors):
            wide = samples.features.shape[1]
            raise InvalidSlopesError(f"{len(self.priors)} priors for {wide} features")
        if not (np.isfinite(samples.features).all() and np.isfinite(log_seconds).all()):
            raise InvalidSlopesError("features and run times to learn from are finite")
        means, counts, rows, within = _configurations(samples.features, log_seconds)
        rows_seen = samples.features[rows]
        middle = rows_seen.mean(axis=0) if len(rows_seen) else np.zeros(len(self.priors))
        level = float(means.mean()) if len(means) else 0.0
        scatter = Scatter(
            within + self.elsewhere.squares,
            len(log_seconds) - len(counts) + self.elsewhere.freedom,
        )
        shapes = self._shapes(rows_seen, middle)
        return FittedSlopes(
            middle,
            rows_seen - middle,
            level,
            self.scaling,
            _weighed(shapes, rows_seen - middle, means - level, counts, scatter),
        )

    def _shapes(self, rows: Floats, middle: Floats) -> list["_Shape"]:
        sd = np.array([each.sd for each in self.priors])
        mean = np.array([each.mean for each in self.priors])
        length = np.array([each.length for each in self.priors])
        if self.scaling is None:
            return [_Shape(1.0, mean, sd**2, length, np.zeros((1, len(rows))))]
        columns, no_law = [self.scaling.scale, self.scaling.size], np.zeros((1, len(rows)))
        flat = []
        for place in columns:
            if len(np.unique(rows[:, place])) >= NO_SLOPE_FROM:
                other = np.arange(len(mean)) != place
                parts = mean * other, (sd * other) ** 2
                flat.append(_Shape(NO_SLOPE_SHARE, *parts, length, no_law))
        rest = 1 - LAWS_SHARE - NO_SLOPE_SHARE * len(flat)
        line = _Shape(rest, mean, sd**2, length, no_law)
        mean, sd = mean.copy(), sd.copy()
        mean[columns], sd[columns] = 0.0, LAW_SLOPE_SD
        laws = self.scaling.shapes(rows, middle)
        return [line, *flat, _Shape(LAWS_SHARE, mean, sd**2, length, laws, is_law=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """The line, or the laws with slopes added to them."""

    prior: float  # probability before any run
    mean: Floats  # of the slopes, [features]
    variance: Floats  # of the slopes, [features]
    length: Floats  # distance over which departures fade, [features]
    log_seconds: Floats  # of the training rows, up to a level, [laws, rows]
    is_law: bool = False  # whether `log_seconds` comes from laws

    def lines(self, one: Floats, other: Floats) -> Floats:
        """Return the covariance of level and slopes, [one, other]."""
        return np.asarray(LEVEL_VARIANCE + (one * self.variance) @ other.T)

    def near(self, one: Floats, other: Floats, reach: float) -> Floats:
        """Return the correlation of departures, [one, other]."""
        used = np.isfinite(self.length)
        a, b = one[:, used] / self.length[used], other[:, used] / self.length[used]
        square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return np.asarray(np.exp(-np.maximum(square, 0.0) / (2 * reach**2)))


@dataclass(frozen=True, slots=True, eq=False)
class _Hypothesis:
    """A point of the grid with its weight."""

    weight: float  # over all laws
    shape: _Shape  # the line or the laws
    laws: Floats  # weight of each law, of sum 1
    departure: float  # variance
    reach: float  # of departures
    noise: float  # variance
    inverse: Floats  # of the covariance of the known rows
    pulls: Floats  # inverse covariance times the residuals of the known rows, [laws, rows]


@dataclass(frozen=True, slots=True, eq=False)
class FittedSlopes:
    """The fitted learner."""

    _middle: Floats
    _training: Floats
    _level: float
    _scaling: ScalingColumns | None
    _hypotheses: tuple[_Hypothesis, ...]

    def __call__(self, queries: EncodedQueries) -> Floats:
        """Predict the mean log seconds, [queries]."""
        return self.posterior(queries).mean

    def posterior(self, queries: EncodedQueries) -> SlopePosterior:
        """Return mean, its variance, and noise.

        Raises:
            InvalidSlopesError: a feature is not finite.
        """
        if not np.isfinite(queries.features).all():
            raise InvalidSlopesError("features of queries are finite")
        rows = queries.features - self._middle
        laws = (
            None if self._scaling is None else self._scaling.shapes(queries.features, self._middle)
        )
        moments = [self._of(each, rows, laws) for each in self._hypotheses]
        weights = np.array([each.weight for each in self._hypotheses])
        means, variances = (np.array(each) for each in zip(*moments, strict=True))
        mean = weights @ means
        return SlopePosterior(
            mean,
            weights @ (variances + (means - mean) ** 2),
            float(weights @ [each.noise for each in self._hypotheses]),
        )

    def _of(self, each: _Hypothesis, rows: Floats, laws: Floats | None) -> tuple[Floats, Floats]:
        """Return mean and variance where a hypothesis holds."""
        shape = each.shape
        crossed = shape.lines(rows, self._training)
        crossed += each.departure * shape.near(rows, self._training, each.reach)
        by_laws = laws if shape.is_law and laws is not None else np.zeros((1, len(rows)))
        by_law = self._level + rows @ shape.mean + by_laws + each.pulls @ crossed.T
        mean = each.laws @ by_law
        prior = LEVEL_VARIANCE + rows**2 @ shape.variance + each.departure
        variance = prior - ((crossed @ each.inverse) * crossed).sum(axis=1)
        return mean, np.maximum(variance, 0.0) + each.laws @ (by_law - mean) ** 2


def _weighed(
    shapes: list[_Shape], configurations: Floats, means: Floats, counts: Floats, scatter: Scatter
) -> tuple[_Hypothesis, ...]:
    """Return the points of the grid that count, their weights of sum 1.

    Args:
        shapes: the line, and the laws.
        configurations: features of the configurations around their middle, [rows, features].
        means: of their repeats, around the level, [rows].
        counts: of their repeats, [rows].
        scatter: of repeats.
    """
    root = np.sqrt(counts)
    scores: list[Floats] = []
    points: list[tuple[_Shape, float, float, float, Floats, Floats, Floats]] = []
    for shape in shapes:
        left = means - configurations @ shape.mean - shape.log_seconds
        lines = shape.lines(configurations, configurations)
        for reach, departure in product(REACHES, DEPARTURES):
            covariance = lines + departure**2 * shape.near(configurations, configurations, reach)
            values, vectors = np.linalg.eigh(covariance * np.outer(root, root))
            turned = ((left * root) @ vectors) ** 2
            for noise in NOISES:
                spread = np.maximum(values, 0.0) + noise**2
                fit = (turned / spread).sum(axis=1) + scatter.squares / noise**2
                size = np.log(spread).sum() + 2 * scatter.freedom * np.log(noise)
                away = np.log([departure / USUAL_DEPARTURE, noise / USUAL_NOISE]) / PRIOR_SD
                prior = np.log(shape.prior / len(left)) + float(-(away @ away) / 2)
                scores.append(prior - (fit + size) / 2)
                points.append((shape, departure, reach, noise, spread, vectors, left))
    best = max(float(each.max()) for each in scores)
    weights = [np.exp(each - best) for each in scores]
    sums = np.array([each.sum() for each in weights])
    counted = np.flatnonzero(sums >= LEAST_WEIGHT * sums.sum())
    total = float(sums[counted].sum())
    hypotheses = []
    for place in counted.tolist():
        shape, departure, reach, noise, spread, vectors, left = points[place]
        inverse = (vectors / spread) @ vectors.T * np.outer(root, root)
        hypotheses.append(
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
    return tuple(hypotheses)


def _configurations(
    features: Floats, log_seconds: Floats
) -> tuple[Floats, Floats, NDArray[np.int64], float]:
    """Return mean and number of the repeats of each, its first row, and the squares within them.

    Beyond `MOST_ROWS` some are left out, the same ones every time; their repeats still show the
    noise.
    """
    rows, place = distinct_rows(features)
    counts = np.bincount(place, minlength=len(rows)).astype(np.float64)
    means = np.bincount(place, log_seconds, minlength=len(rows)) / np.maximum(counts, 1.0)
    within = float(((log_seconds - means[place]) ** 2).sum())
    used = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64)
    return means[used], counts[used], rows[used], within


# --- priors by the role of a column -----------------------------------------------------------


@unique
class ColumnRole(StrEnum):
    """The meaning of a column."""

    PARALLEL = "machines or cores"
    SIZE = "rows or bytes"
    PASSES = "passes over the data"
    MEMORY = "memory"
    OTHER = "other"


_NAMES = (
    (ColumnRole.MEMORY, "memory mem ram heap"),
    (
        ColumnRole.PARALLEL,
        "machine machines node nodes instance instances worker workers executor executors host "
        "hosts server servers replicas taskmanagers cluster parallelism core cores cpu cpus vcpu "
        "vcpus thread threads slot slots process processes",
    ),
    (ColumnRole.PASSES, "iteration iterations epoch epochs pass passes round rounds"),
    (
        ColumnRole.SIZE,
        "row rows record records tuple tuples line lines event events document documents message "
        "messages page pages item items size bytes byte kb mb gb tb kib mib gib tib kilobytes "
        "megabytes gigabytes terabytes",
    ),
)
# Words of a name and the role that they give it; the first role counts.
VOCABULARY: Mapping[ColumnRole, frozenset[str]] = MappingProxyType(
    {role: frozenset(words.split()) for role, words in _NAMES}
)

# Priors on the slope of a column's log, by role; the length is of departures, in logs.
LOG_SLOPES: Mapping[ColumnRole, SlopePrior] = MappingProxyType(
    {
        ColumnRole.PARALLEL: SlopePrior(-0.7, 0.35, 1.0),
        ColumnRole.SIZE: SlopePrior(SIZE_SLOPE_MEAN, SIZE_SLOPE_SD, 1.5),
        ColumnRole.PASSES: SlopePrior(0.7, 0.35, 1.5),
        ColumnRole.MEMORY: SlopePrior(-0.1, 0.2, 1.0),
        ColumnRole.OTHER: SlopePrior(0.0, 0.5, 1.5),
    }
)

# The prior of each word of a column of words: two machine types differ by about a third.
WORD = SlopePrior(0.0, 0.25, 1.0)

# The prior of a column that may be 0 or below, in its unit (`TableColumn.unit`).
NUMBER = SlopePrior(0.0, 0.5, 1.0)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def prior_slopes(layout: TableLayout, elsewhere: Scatter = NO_REPEATS) -> PriorSlopes:
    """Return the learner with these priors on the columns of a layout.

    Args:
        layout: of the table; its scale and size have their roles independently of their names.
        elsewhere: repeats of other jobs.
    """
    priors: list[SlopePrior] = []
    for column in layout.columns:
        priors += priors_of(layout, column)
    scaling = ScalingColumns(layout.scale_feature, layout.size_feature)
    return PriorSlopes(tuple(priors), scaling, elsewhere)


def priors_of(layout: TableLayout, column: TableColumn) -> list[SlopePrior]:
    """Return the priors of the features of a column; an inverse next to a log has none."""
    words = {each.lower() for each in _WORDS.findall(column.name)}
    by_name = (role for role, terms in VOCABULARY.items() if words & terms)
    declared = {layout.scale: ColumnRole.PARALLEL, layout.size: ColumnRole.SIZE}
    role = declared.get(column.name) or next(by_name, ColumnRole.OTHER)
    if column.words:
        return [WORD] * column.width
    if not column.logged:
        return [NUMBER]
    return [LOG_SLOPES[role], *[SlopePrior()] * (column.width - 1)]
