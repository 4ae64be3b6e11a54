"""Fewer runs: which configuration of a campaign's grid to run next, and when enough were run.

Three strategies. `random` takes a random order. `space_filling` spreads configurations
without looking at run times (`spacing`). `active` starts like that and then runs what
lowers the expected squared error over the *whole* grid most, per predicted second to the
power `TEMPER` (`most_useful`); the configuration that is least sure itself lies at an edge
and says little about the others.

Each stops when the error on configurations left out has been at most the target several
times in a row. That error is what folds over the measured configurations come to, with
members and weights that have not seen them; never what a model believes of itself.
Configurations were not measured at random, corners first: each counts by the share of the
grid that it is nearest to, so that few odd ones do not stand for all.

Nothing is remembered but what can be computed again: a sampler that is made anew with the
same arguments goes on from `measured` as the old one would have. Refused are a grid without
rows, and run times that are not positive and finite.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedperf_campaigns.sampling import Strategy
from fedperf_campaigns.sampling.grid_points import Rows, Spacing
from fedperf_campaigns.tables.catalogue import table_learners
from fedperf_client.prediction.ensemble.ensemble import cross_validate
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import ScaleAndSize, grouped_split
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.local_learners import Boosting, Forest
from fedperf_client.prediction.learners.tables import Table, TableLayout
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries
from fedperf_shared.errors import InvalidInputError

TEMPER = 0.3
"""Power of the predicted seconds that a gain is divided by: 0 would not look at them, 1 at
nothing but gain per second."""


def most_useful(
    features: Floats, log_seconds: Floats, *, taken: Rows, free: Rows, judged: Rows
) -> int:
    """Return the row of `free` that teaches most about all the others for its time.

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
        judged: rows whose errors are to fall.
    """
    from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

    process = fit_process(features[taken], log_seconds)
    asked, offered = features[judged], features[free]
    variances = process.sd(asked) ** 2
    wrong = process.error_nearby(asked) ** 2 / (variances + np.median(variances))
    shared = process.covariance(asked, offered)
    gains = (1.0 + wrong) @ (shared**2 / process.sd(offered) ** 2)
    worth = gains / np.exp(TEMPER * process.mean(offered))
    return int(free[np.argmax(worth)])


START = 8
"""Configurations that are spread before run times count; a process of fewer knows too little
of how run time grows (with 8 to 10 active sampling was worse than random)."""

LEAST_JUDGED = 5
"""Configurations below which no error is believed."""

MOST_JUDGED = 1_000
"""Rows whose errors active sampling wants to fall; of larger grids some, drawn once."""


MOST_OFFERED = 4_000
"""Rows that active sampling chooses from; of larger grids some, drawn once. All rows of a grid of
100,000 would need gigabytes and half a minute for each choice."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingGrid:
    """All configurations of a campaign.

    Attributes:
        samples: one for each row.
        places: the same rows, by scale and size.
        spacing: the same rows, as points.
        learners: whose mix the error on configurations left out is of.
    """

    samples: EncodedQueries
    places: ScaleAndSize
    spacing: Spacing
    learners: tuple[Learner, ...]

    @classmethod
    def of(cls, table: Table, *, scale: str, size: str) -> Self:
        """The grid of `table`.

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
        `LEAST_JUDGED` measured configurations.

        Args:
            measured: row -> seconds.
        """
        if len(measured) < LEAST_JUDGED:
            return math.inf
        rows = np.array(list(measured), np.int64)
        known = TrainingSet(
            self.samples.take(rows),
            np.log(list(measured.values())),
            self.places.take(rows),
            np.arange(len(rows)),
        )
        weighing = cross_validate(known, self.learners, grouped_split(known.groups))
        errors = np.abs(np.expm1(-weighing.weights().errors))
        shares = np.bincount(self.spacing.nearest(rows), minlength=len(rows)) / len(self)
        return float(shares[weighing.rows] @ errors)


class GridSampler:
    """Which configuration of a grid is next, and why no further one is."""

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
        """Why it stopped, one line for people; empty while it has not."""
        return self._reason

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """The row to run next, or None when enough were run.

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
        return most_useful(
            self._grid.samples.features,
            np.log(list(measured.values())),
            taken=taken,
            free=self._offered(free),
            judged=self._order[:MOST_JUDGED],
        )

    def _offered(self, free: Rows) -> Rows:
        """The first `MOST_OFFERED` of the free rows in the random order, by their number."""
        if len(free) <= MOST_OFFERED:
            return free
        return np.sort(free[np.argsort(self._rank[free])[:MOST_OFFERED]])

    def _why_stop(self, measured: Mapping[int, float], left: int) -> str:
        target, patience = self._target, self._patience
        if target is not None and len(measured) >= LEAST_JUDGED + patience - 1:
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
        asked = [items[:count] for count in range(first, len(items) + 1)]
        known = self._errors
        self._errors = {
            each: known[each] if each in known else self._grid.left_out_error(dict(each))
            for each in asked
        }
        return list(self._errors.values())
