"""Predicted times of a job at columns that it has not run at, from those that it has.

The candidates of `catalogue` are mixed for each question by their errors on folds that mimic it.
Below `MIXED_FROM` configurations there is nothing to compare by, and the prior on slopes predicts
alone. One Student distribution of log seconds gives everything that is said of a question: median,
interval, P90 and the chance of a deadline. Its middle is the mix. Its scale is what the prior on
slopes believes of its own error there, noise of one execution included. It is multiplied by how
large the errors of the mix in those folds were in that scale. That is a scaled inverse chi-squared
posterior (Gelman et al., Bayesian Data Analysis, section 2.6). A configuration that ran is answered
by what was measured there, as far as its noise allows.

An execution that was stopped before its end is a lower bound. Where the answer would be below it,
the bound stands for a run time, and its configuration is never said to take less.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import InvalidTableError, Table, TableLayout, distinct_rows
from fedperf_campaigns.tables.learners import table_learners
from fedperf_campaigns.tables.prior_slopes import (
    NO_REPEATS,
    FittedSlopes,
    PriorSlopes,
    Scatter,
    prior_slopes,
    priors_of,
)
from fedperf_client.prediction.ensemble.ensemble import FittedEnsemble, OnProgress, cross_validate
from fedperf_client.prediction.ensemble.learner_catalogue import is_usable
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import (
    HoldoutSplit,
    ScaleAndSize,
    SplitKey,
    closest_split,
    grouped_split,
    holdout_splits,
    query_regimes,
)
from fedperf_client.prediction.learners.base_learners import Fitted, Learner
from fedperf_client.prediction.learners.ridge import ROUNDING
from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    Prediction,
    QueryRegime,
    StudentT,
)
from fedperf_client.prediction.query_encoding import EncodedQueries

MIXED_FROM = 5
"""Configurations from which on others are mixed with the prior on slopes."""

FREEDOM = 8.0
"""Pieces of evidence that the believed scale counts as."""

MOST_FAR = 3.0
"""Most scales that an error of a fold counts as."""

LEVEL = 0.9
"""Of the intervals."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTable:
    """Executions of one job, by its columns.

    Attributes:
        layout: of the columns.
        table: a row for each execution.
        seconds: wall time of each, float64 [rows].
        stopped: rows of executions that were stopped before their end.
        stopped_seconds: after how long, float64 [stopped rows].
        fixed: columns that the job has one value of: nothing is believed of others but that
            they are not known.
    """

    layout: TableLayout
    table: Table
    seconds: Floats
    stopped: Table = field(default_factory=dict)
    stopped_seconds: Floats = field(default_factory=lambda: np.zeros(0))
    fixed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for table, seconds in (
            (self.table, self.seconds),
            (self.stopped, self.stopped_seconds),
        ):
            lengths = {len(values) for values in table.values()} or {0}
            if lengths != {len(seconds)}:
                raise InvalidTableError(f"columns of {lengths} rows have {len(seconds)} run times")
            if not (np.isfinite(seconds).all() and (seconds > 0).all()):
                raise InvalidTableError("run times are positive and finite")


@dataclass(frozen=True, slots=True, eq=False)
class _WeighedMixture:
    """What is mixed for questions of a kind, and how far off it was in the believed scale."""

    mixture: FittedEnsemble
    square: float
    pieces: int


@dataclass(frozen=True, slots=True, eq=False)
class TablePredictor:
    """The predictor of one job; candidates are weighed once for each kind of question.

    Attributes:
        layout: of its columns.
        known: its executions, lower bounds that count as run times included.
        configurations: how many distinct ones were measured.
        learners: who may be mixed, the prior on slopes first.
        on_progress: told of every weighing.
    """

    layout: TableLayout
    known: TrainingSet
    configurations: int
    learners: tuple[Learner, ...]
    on_progress: OnProgress | None
    _slopes: PriorSlopes
    _believed: FittedSlopes
    _floors: Mapping[bytes, float]
    _fixed: frozenset[str]
    _weighed: dict[SplitKey, _WeighedMixture] = field(default_factory=dict)
    _fits: dict[str, Fitted] = field(default_factory=dict)
    _shares: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        measured: MeasuredTable,
        *,
        elsewhere: Scatter = NO_REPEATS,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """The predictor of a job.

        Args:
            measured: its executions, at least one.
            elsewhere: repeats of other jobs.
            on_progress: told of every weighing.

        Raises:
            InvalidTableError: nothing was measured, or the columns do not fit the layout.
        """
        layout = measured.layout
        if len(measured.seconds) == 0:
            raise InvalidTableError("a job of which nothing was measured has no predictor")
        samples, log_seconds = layout.samples(measured.table), np.log(measured.seconds)
        slopes = prior_slopes(layout, elsewhere)
        believed = slopes.fit(samples, log_seconds)
        floors: dict[bytes, float] = {}
        if len(measured.stopped_seconds):
            stopped, bounds = layout.samples(measured.stopped), np.log(measured.stopped_seconds)
            late = np.flatnonzero(believed(stopped) < bounds)
            for row in late.tolist():
                key = stopped.features[row].tobytes()
                floors[key] = max(float(bounds[row]), floors.get(key, -math.inf))
            samples = _joined(samples, stopped.take(late))
            log_seconds = np.concatenate([log_seconds, bounds[late]])
            believed = slopes.fit(samples, log_seconds)
        rows, place = distinct_rows(samples.features)
        known = TrainingSet(samples, log_seconds, _places(layout, samples), place)
        learners = tuple(
            e for e in table_learners(layout, elsewhere=elsewhere) if is_usable(e, len(rows), {})
        )
        fixed = measured.fixed
        return cls(layout, known, len(rows), learners, on_progress, slopes, believed, floors, fixed)

    @property
    def members(self) -> dict[str, float]:
        """Share of every learner in the answers so far, by name, of sum 1."""
        if not self._shares:
            return {self._slopes.name: 1.0}
        total = sum(self._shares.values())
        return {name: share / total for name, share in self._shares.items() if share > 0}

    def predict(self, table: Table) -> list[Prediction]:
        """How long each row of `table` takes.

        Raises:
            InvalidTableError: a column is missing, or holds what it must not.
        """
        written = self.layout.samples(table)
        kinds = query_regimes(self.known.places, _places(self.layout, written))
        outside = self._outside(table, written.features)
        asked, unknown = self._without_fixed(written)
        ways = query_regimes(self.known.places, _places(self.layout, asked))
        belief = self._believed.posterior(asked)
        spread = np.sqrt(belief.variance + belief.noise)
        ran = self._ran(asked.features)
        found = []
        for row, kind in enumerate(kinds):
            middle, scale, freedom = float(belief.mean[row]), float(spread[row]), FREEDOM
            shares = {self._slopes.name: 1.0}
            if self.configurations >= MIXED_FROM and not ran[row]:
                one = asked.take(np.array([row]))
                weighed = self._weighed_for(ways[row], _places(self.layout, one))
                middle, shares = float(weighed.mixture(one)[0]), weighed.mixture.weights.by_name
                freedom = FREEDOM + weighed.pieces
                square = (FREEDOM + weighed.square) / freedom
                scale = max(scale * math.sqrt(square), math.sqrt(belief.noise))
            floor = self._floors.get(asked.features[row].tobytes(), -LOG_SECONDS_LIMIT)
            middle = min(max(middle, floor), LOG_SECONDS_LIMIT)
            self._shares.update(shares)
            law = StudentT(math.hypot(scale, unknown[row]), freedom)
            inside = not outside[row]
            found.append(Prediction(middle, law, LEVEL, kind, extrapolating=not inside))
        return found

    def _without_fixed(self, asked: EncodedQueries) -> tuple[EncodedQueries, Floats]:
        """Questions at what the fixed columns were, and by how much that may be off, log seconds.

        In what never varied no slope is known, not even its sign: as much as is believed of its
        size is an error.
        """
        features, variance, place = asked.features.copy(), np.zeros(len(asked)), 0
        for column in self.layout.columns:
            if column.name in self._fixed and not column.words:
                first = slice(place, place + column.width)
                known = self.known.samples.features[0, first]
                slope = priors_of(self.layout, column)[0]
                apart = features[:, place] - known[0]
                variance += (slope.mean**2 + slope.sd**2) * apart**2
                features[:, first] = known
            place += column.width
        return replace(asked, features=features), np.sqrt(variance)

    def _weighed_for(self, kind: QueryRegime, asked: ScaleAndSize) -> _WeighedMixture:
        ways = holdout_splits(self.known.places, kind, self.known.samples.features)
        split = closest_split(ways, self.known.places, asked) or grouped_split(self.known.groups)
        if split.key not in self._weighed:
            weighing = cross_validate(
                self.known, self.learners, split, on_progress=self.on_progress
            )
            weights = weighing.weights()
            squares = np.minimum(weights.errors**2 / self._fold_variances(split), MOST_FAR**2)
            pieces, place = np.unique(weighing.evidence, return_inverse=True)
            of_each = np.bincount(place, squares) / np.bincount(place)
            mixture = FittedEnsemble.of(weights, self._fit)
            self._weighed[split.key] = _WeighedMixture(mixture, float(of_each.sum()), len(pieces))
        return self._weighed[split.key]

    def _fold_variances(self, split: HoldoutSplit) -> Floats:
        """Of the error of one execution held out, as the prior on slopes believes without it."""
        known = self.known
        parts = []
        for fold in split.folds:
            rows = fold.training
            fitted = self._slopes.fit(known.samples.take(rows), known.log_seconds[rows])
            belief = fitted.posterior(known.samples.take(fold.held_out))
            parts.append(belief.variance + belief.noise)
        return np.concatenate(parts)

    def _fit(self, name: str) -> Fitted:
        if name not in self._fits:
            [learner] = [each for each in self.learners if each.name == name]
            self._fits[name] = learner.fit(self.known.samples, self.known.log_seconds)
        return self._fits[name]

    def _outside(self, table: Table, asked: Floats) -> NDArray[np.bool_]:
        """Rows with a column outside of what was measured, or a word that nothing ran with."""
        unknown = [
            [str(word) not in column.words for word in table[column.name]]
            for column in self.layout.columns
            if column.words
        ]
        known = self.known.samples.features
        margin = ROUNDING * np.abs(known).max(axis=0)
        low, high = known.min(axis=0) - margin, known.max(axis=0) + margin
        beyond = ((asked < low) | (asked > high)).any(axis=1)
        return np.asarray(beyond | np.array(unknown, np.bool_).any(axis=0))

    def _ran(self, asked: Floats) -> NDArray[np.bool_]:
        """Rows whose configuration was measured."""
        known = self.known.samples.features
        margin = ROUNDING * np.abs(known).max(axis=0)
        near = np.abs(asked[:, None, :] - known[None, :, :]) <= margin
        return np.asarray(near.all(axis=2).any(axis=1))


def _places(layout: TableLayout, samples: EncodedQueries) -> ScaleAndSize:
    features = samples.features
    return ScaleAndSize(features[:, layout.scale_feature], features[:, layout.size_feature])


def _joined(one: EncodedQueries, other: EncodedQueries) -> EncodedQueries:
    return EncodedQueries(
        np.concatenate([one.features, other.features]),
        np.concatenate([one.cells, other.cells]),
        {},
    )
