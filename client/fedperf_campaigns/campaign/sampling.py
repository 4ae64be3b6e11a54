"""Sampling strategies: the next configuration of a campaign's grid, and when enough were measured.

`random` takes a random order. `space_filling` spreads configurations without run times (`Spacing`):
first the corners of input size x parallelism, then greedily a maximum projection design. The
closeness of two points is the product over the columns of their distances, so points are spread in
every few columns; in all columns together only corners would be far apart. Words are balanced: the
next one has the fewest measurements for the root of its rows. `active` starts like that and then
measures the configuration that lowers the expected squared error over the *whole* grid most, per
predicted second to the power `TEMPER` (`most_useful`). The configuration with the widest interval
itself is at an edge and informs little about the others.

Each strategy stops when the error on held-out configurations has been at most the target several
times in a row. That error is cross-validated over the measured configurations, with members and
weights fitted without the held-out ones. Configurations were not measured at random, corners first,
so each counts by the share of the grid that it is nearest to.

A sampler holds no state that cannot be recomputed: a new one with the same arguments goes on from
`measured` as the old one would have. Refused are a grid without rows, and run times that are not
positive and finite.

Source: Joseph, Gul and Ba 2015, "Maximum projection designs for computer experiments"
(the product), and Joseph 2020 for columns of few levels and for words.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.campaign.definition import Strategy
from fedperf_campaigns.tables.layout import Table, TableColumn, TableLayout
from fedperf_campaigns.tables.learners import Forest, table_learners
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.ensemble import cross_validate, grouped_split
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.learners.base_learners import Boosting, Learner
from fedperf_client.prediction.learners.ridge import varying_columns
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError

Rows = NDArray[np.int64]

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Spacing:
    """The points of a grid."""

    numbers: Floats  # columns of numbers that vary, each in [0, 1] over the grid, [rows, numbers]
    levels: Floats  # distinct values of each of those, [numbers]
    words: Rows  # the word of each column of words as its number, [rows, columns]
    corners: tuple[Rows, ...]  # rows at the corners of size x parallelism, those nearest to each

    @classmethod
    def of(cls, table: Table, layout: TableLayout) -> Self:
        """Return the points of `table`, whose layout is `layout`; at least one row."""
        numbers = [_logged(each, table) for each in layout.columns if not each.words]
        scaled = _unit(np.column_stack(numbers))
        words = [
            np.unique(np.array([str(value) for value in table[each.name]]), return_inverse=True)[1]
            for each in layout.columns
            if each.words
        ]
        axes = [each for each in layout.columns if each.name in {layout.scale, layout.size}]
        ends = [_unit(_logged(each, table)[:, None]) for each in axes]
        return cls(
            scaled,
            np.array([len(np.unique(column)) for column in scaled.T], dtype=np.float64),
            np.array(words, np.int64).reshape(len(words), len(scaled)).T,
            _corners(np.hstack(ends)),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def next(self, taken: Rows, free: Rows, tie: Rows) -> int:
        """Return the next row to measure.

        Args:
            taken: rows that were measured.
            free: rows to choose from, at least one.
            tie: rank of each row of the grid, for those that are equally good.
        """
        due = self._at_a_corner(taken, free)
        due = self._of_rare_words(taken, due)
        crowded = self._crowding(taken, due)
        best = due[crowded <= crowded.min() * (1 + _CLOSE)]
        return int(best[np.argmin(tie[best])])

    def nearest(self, taken: Rows) -> NDArray[np.int64]:
        """Return for every row of the grid the place in `taken` of the nearest measured one."""
        apart = np.zeros((len(self), len(taken)))
        for column in self.numbers.T:
            apart += np.abs(np.subtract.outer(column, column[taken]))
        for column in self.words.T:
            apart += column[:, None] != column[taken]
        return np.asarray(apart.argmin(axis=1), dtype=np.int64)

    def _at_a_corner(self, taken: Rows, free: Rows) -> Rows:
        """Return free rows of the first corner without a taken row; else all free rows."""
        for corner in self.corners:
            left = np.intersect1d(corner, free)
            if len(left) and not np.isin(corner, taken).any():
                return left
        return free

    def _of_rare_words(self, taken: Rows, free: Rows) -> Rows:
        had = np.zeros(len(free))
        for column in self.words.T:
            rows = np.bincount(column)
            counts = np.bincount(column[taken], minlength=len(rows))
            had += ((counts + 0.5) / np.sqrt(rows))[column[free]]
        return np.asarray(free[had <= had.min() + _CLOSE], dtype=np.int64)

    def _crowding(self, taken: Rows, free: Rows) -> Floats:
        """Return, per free row, the sum of inverse squared distance products to the taken rows."""
        logs = np.zeros((len(free), len(taken)))
        for column, levels in zip(self.numbers.T, self.levels, strict=True):
            logs += np.log(np.abs(np.subtract.outer(column[free], column[taken])) + 1 / levels)
        for column in self.words.T:
            logs += np.log((column[free][:, None] != column[taken]) + 1 / (column.max() + 1))
        return np.asarray(np.exp(-2 * logs).sum(axis=1))


def _logged(column: TableColumn, table: Table) -> Floats:
    return column.features(table[column.name])[:, 0]


def _unit(columns: Floats) -> Floats:
    """Return columns that vary, each into [0, 1]."""
    varying = columns[:, varying_columns(columns)]
    return np.asarray((varying - varying.min(axis=0)) / np.ptp(varying, axis=0))


def _corners(ends: Floats) -> tuple[Rows, ...]:
    """Return rows nearest to each corner of a unit box, opposite corners one after the other."""
    width = ends.shape[1]
    corners = []
    for half in product((0, 1), repeat=max(width - 1, 0)):
        for corner in ((0, *half), tuple(1 - each for each in (0, *half))):
            apart = np.abs(ends - np.array(corner[:width])).sum(axis=1)
            corners.append(np.flatnonzero(apart <= apart.min() + _CLOSE))
    return tuple(corners)


# Power of the predicted seconds that a gain is divided by: 0 would not look at them, 1 at nothing
# but gain per second.
TEMPER = 0.3


def most_useful(
    features: Floats, log_seconds: Floats, *, taken: Rows, free: Rows, target_rows: Rows
) -> int:
    """Return the row of `free` that gives most information on all the others for its time.

    The gain of a row is the expected fall of the squared error over a grid, were it run next. That
    is the squares of its posterior covariances with the grid's rows, divided by its own variance
    with noise. The process believes itself equally everywhere, so rows near which it was wrong
    about a configuration left out count for more. The gain is weighed against the run time by less
    than in proportion: else only short configurations would be run, and the long ones have the
    large errors.

    Source: Cohn 1996, "Neural network exploration using optimal experiment design", and Seo et al.
    2000 for Gaussian processes (the criterion); Liu et al. 2018, "A survey of adaptive sampling for
    global metamodeling", section 3.3 (errors of configurations left out).

    Args:
        features: of the grid, [rows, columns].
        log_seconds: of the rows that were taken, [taken].
        taken: rows that were measured, at least one.
        free: rows to choose from, at least one.
        target_rows: rows whose errors are to fall.
    """
    from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

    process = fit_process(features[taken], log_seconds)
    targets, offered = features[target_rows], features[free]
    variances = process.sd(targets) ** 2
    wrong = process.error_nearby(targets) ** 2 / (variances + np.median(variances))
    shared = process.covariance(targets, offered)
    gains = (1.0 + wrong) @ (shared**2 / process.sd(offered) ** 2)
    worth = gains / np.exp(TEMPER * process.mean(offered))
    return int(free[np.argmax(worth)])


# Configurations that are spread before run times count. A process of fewer has too little data on
# how run time grows (with 8 to 10 active sampling was worse than random).
START = 8

LEAST_MEASURED = 5  # configurations below which no error is trusted
# Rows whose errors active sampling wants to fall; of larger grids some, drawn once.
MOST_TARGETS = 1_000


# Rows that active sampling chooses from; of larger grids some, drawn once. All rows of a grid of
# 100,000 would need gigabytes and half a minute for each choice.
MOST_OFFERED = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class SamplingGrid:
    """All configurations of a campaign."""

    samples: EncodedQueries  # one for each row
    places: ScaleAndSize  # the same rows, by scale and size
    spacing: Spacing  # the same rows, as points
    learners: tuple[Learner, ...]  # whose mix the error on configurations left out is of

    @classmethod
    def of(cls, table: Table, *, scale: str, size: str) -> Self:
        """Return the grid of `table`.

        Raises:
            InvalidTableError: `scale` or `size` are missing or not positive.
            InvalidInputError: there are no rows.
        """
        if not all(len(values) for values in table.values()):
            raise InvalidInputError("a grid has at least one configuration")
        layout = TableLayout.of(table, scale=scale, size=size)
        samples = layout.samples(table)
        along, sizes = (
            samples.features[:, place] for place in (layout.scale_feature, layout.size_feature)
        )
        # Trees take most of the time, and count for nothing with so few executions.
        learners = [e for e in table_learners(layout) if not isinstance(e, Boosting | Forest)]
        return cls(samples, ScaleAndSize(along, sizes), Spacing.of(table, layout), tuple(learners))

    def __len__(self) -> int:
        return len(self.samples)

    def left_out_error(self, measured: Mapping[int, float]) -> float:
        """MAPE, a share, on configurations that members and weights have not seen.

        Each counts by the share of the grid that it is nearest to. Infinite below
        `LEAST_MEASURED` measured configurations.

        Args:
            measured: row -> seconds.
        """
        if len(measured) < LEAST_MEASURED:
            return math.inf
        rows = np.array(list(measured), np.int64)
        training = TrainingSet(
            self.samples.take(rows),
            np.log(list(measured.values())),
            self.places.take(rows),
            np.arange(len(rows)),
        )
        weighing = cross_validate(training, self.learners, grouped_split(training.groups))
        errors = np.abs(np.expm1(-weighing.weights().errors))
        shares = np.bincount(self.spacing.nearest(rows), minlength=len(rows)) / len(self)
        return float(shares[weighing.rows] @ errors)


class GridSampler:
    """Chooses the next configuration of a grid, or stops with a reason."""

    def __init__(
        self,
        grid: SamplingGrid,
        strategy: Strategy,
        *,
        target_mape: float | None,
        patience: int,
        max_configurations: int | None,
        seed: int,
    ) -> None:
        """Choose from `grid`.

        Args:
            grid: the configurations of a campaign.
            strategy: one of `CHOOSING`.
            target_mape: a share, 0.05 for 5 %; None to go on to the end.
            patience: configurations in a row after which the error must have been at most that.
            max_configurations: to measure at most, None for all; those that failed do not count.
            seed: of the random order, and of who is first of equals.
        """
        self._grid = grid
        self._strategy = strategy
        self._target = target_mape
        self._patience = patience
        self._most = max_configurations
        self._order = np.random.default_rng(seed).permutation(len(grid))
        self._rank = np.argsort(self._order)
        self._errors: dict[tuple[tuple[int, float], ...], float] = {}
        self._reason = ""

    @property
    def reason(self) -> str:
        """Return why it stopped, in one line for people; empty before that."""
        return self._reason

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """Return the row to run next, or None when enough were run.

        Args:
            measured: row -> median seconds of its ok repeats, in the order of measuring.
            unavailable: rows that failed for good.

        Raises:
            InvalidInputError: seconds are not positive and finite.
        """
        for row, seconds in measured.items():
            if not 0 < seconds < math.inf:
                raise InvalidInputError(
                    f"configuration {row} took {seconds!r} seconds; they are positive and finite"
                )
        taken = np.array(list(measured), np.int64)
        gone = [*measured, *unavailable]
        free = np.setdiff1d(np.arange(len(self._grid)), np.array(gone, np.int64))
        self._reason = self._why_stop(measured, len(free))
        return None if self._reason else self._chosen(measured, taken, free)

    def _chosen(self, measured: Mapping[int, float], taken: Rows, free: Rows) -> int:
        if self._strategy is Strategy.RANDOM:
            return int(free[np.argmin(self._rank[free])])
        if self._strategy is Strategy.SPACE_FILLING or len(taken) < START:
            return self._grid.spacing.next(taken, free, self._rank)
        if len(free) > MOST_OFFERED:
            free = np.sort(free[np.argsort(self._rank[free])[:MOST_OFFERED]])
        return most_useful(
            self._grid.samples.features,
            np.log(list(measured.values())),
            taken=taken,
            free=free,
            target_rows=self._order[:MOST_TARGETS],
        )

    def _why_stop(self, measured: Mapping[int, float], left: int) -> str:
        target, patience = self._target, self._patience
        if target is not None and len(measured) >= LEAST_MEASURED + patience - 1:
            errors = self._last_errors(measured)
            if all(each <= target for each in errors):
                return (
                    f"the error on configurations left out is {errors[-1]:.1%} after "
                    f"{len(measured)} configurations, and was at most {target:.2%} {patience} "
                    "times in a row"
                )
        if self._most is not None and len(measured) >= self._most:
            return f"{len(measured)} configurations were measured, as many as allowed"
        return "" if left else f"no configuration is left; {len(measured)} were measured"

    def _last_errors(self, measured: Mapping[int, float]) -> list[float]:
        """After each of the last `patience` configurations, oldest first; computed once."""
        items = tuple(measured.items())
        first = max(1, len(items) - self._patience + 1)
        prefixes = [items[:count] for count in range(first, len(items) + 1)]
        errors = self._errors
        self._errors = {
            each: errors[each] if each in errors else self._grid.left_out_error(dict(each))
            for each in prefixes
        }
        return list(self._errors.values())
