"""Predicted times of a job at new column values, from those that were measured.

The base learners for tables are combined for each query by their errors in query-matched
cross-validation. Below `MIXED_FROM` configurations there is nothing to compare by, and the prior on
slopes predicts alone. One Student distribution of log seconds gives median, interval, P90 and the
probability of a deadline. Its centre is that of the ensemble. Its scale is the posterior error of
the prior on slopes there, noise of one execution included, times the size of the errors of the
ensemble in those folds in units of that scale. That is a scaled inverse chi-squared posterior
(Gelman et al., Bayesian Data Analysis, section 2.6). A configuration that ran is predicted from its
measurements, as far as its noise allows.

An execution that was stopped before its end is a lower bound. Where the prediction would be below
it, the bound counts as a run time, and its configuration is never predicted to take less.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import InvalidTableError, Table, TableLayout, distinct_rows
from fedperf_campaigns.tables.learners import table_learners
from fedperf_campaigns.tables.prior_slopes import (
    NO_REPEATS,
    Scatter,
    prior_slopes,
    priors_of,
)
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.ensemble import (
    EnsembleWeights,
    OnProgress,
    SplitKey,
    closest_split,
    cross_validate,
    grouped_split,
    holdout_splits,
    query_regimes,
)
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.learners.base_learners import Fitted, is_usable
from fedperf_client.prediction.learners.ridge import ROUNDING
from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    Prediction,
    QueryRegime,
    StudentT,
)

MIXED_FROM = 5  # configurations from which on others are mixed with the prior on slopes
FREEDOM = 8.0  # pieces of evidence that the believed scale counts as
MOST_FAR = 3.0  # most scales that an error of a fold counts as
LEVEL = 0.9  # of the intervals


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTable:
    """Executions of one job, by its columns."""

    layout: TableLayout  # of the columns
    table: Table  # a row for each execution
    seconds: Floats  # wall time of each, float64 [rows]
    # Rows of executions that were stopped before their end.
    stopped: Table = field(default_factory=dict)
    # After how long, float64 [stopped rows].
    stopped_seconds: Floats = field(default_factory=lambda: np.zeros(0))
    # Columns that the job has one value of: nothing is believed of others but that they are not
    # known.
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


class _WeighedMixture(NamedTuple):
    """The ensemble of a query regime, and its errors in units of the posterior scale."""

    ensemble: EnsembleWeights
    square: float
    pieces: int


class TablePredictor:
    """The predictor of one job. Learners are weighted once for each query regime.

    Args:
        measured: its executions, at least one.
        elsewhere: repeats of other jobs.
        on_progress: called after every fold.

    Attributes:
        layout: of its columns.
        runs: its executions, with lower bounds that count as run times.
        configurations: number of distinct measured ones.
        learners: of the ensemble, the prior on slopes first.

    Raises:
        InvalidTableError: nothing was measured, or the columns do not fit the layout.
    """

    def __init__(
        self,
        measured: MeasuredTable,
        *,
        elsewhere: Scatter = NO_REPEATS,
        on_progress: OnProgress | None = None,
    ) -> None:
        layout = measured.layout
        if len(measured.seconds) == 0:
            raise InvalidTableError("nothing was measured; a predictor needs one execution")
        samples, log_seconds = layout.samples(measured.table), np.log(measured.seconds)
        self._slopes = prior_slopes(layout, elsewhere)
        self._believed = self._slopes.fit(samples, log_seconds)
        self._floors: dict[bytes, float] = {}
        if len(measured.stopped_seconds):
            stopped, bounds = layout.samples(measured.stopped), np.log(measured.stopped_seconds)
            late = np.flatnonzero(self._believed(stopped) < bounds)
            for row in late.tolist():
                key = stopped.features[row].tobytes()
                self._floors[key] = max(float(bounds[row]), self._floors.get(key, -math.inf))
            features = np.concatenate([samples.features, stopped.features[late]])
            samples = EncodedQueries(features, np.zeros(len(features), np.int64), {})
            log_seconds = np.concatenate([log_seconds, bounds[late]])
            self._believed = self._slopes.fit(samples, log_seconds)
        rows, place = distinct_rows(samples.features)
        learners = table_learners(layout, elsewhere=elsewhere)
        self.layout = layout
        self.runs = TrainingSet(samples, log_seconds, _places(layout, samples), place)
        self.configurations = len(rows)
        self.learners = tuple(each for each in learners if is_usable(each, len(rows), {}))
        self._on_progress, self._fixed = on_progress, measured.fixed
        self._weighed: dict[SplitKey, _WeighedMixture] = {}
        self._fits: dict[str, Fitted] = {}
        self._shares = Counter[str]()

    @property
    def members(self) -> dict[str, float]:
        """Share of every learner in the predictions so far, by name, of sum 1."""
        if not self._shares:
            return {self._slopes.name: 1.0}
        total = sum(self._shares.values())
        return {name: share / total for name, share in self._shares.items() if share > 0}

    def predict(self, table: Table) -> list[Prediction]:
        """Predict the run time of each row of `table`.

        Raises:
            InvalidTableError: a column is missing, or holds a value that it must not.
        """
        encoded = self.layout.samples(table)
        kinds = query_regimes(self.runs.places, _places(self.layout, encoded))
        outside = self._outside(table, encoded.features)
        queries, unknown = self._without_fixed(encoded)
        regimes = query_regimes(self.runs.places, _places(self.layout, queries))
        posterior = self._believed.posterior(queries)
        spread = np.sqrt(posterior.variance + posterior.noise)
        ran = self._ran(queries.features)
        predictions = []
        for row, kind in enumerate(kinds):
            middle, scale, freedom = float(posterior.mean[row]), float(spread[row]), FREEDOM
            shares = {self._slopes.name: 1.0}
            if self.configurations >= MIXED_FROM and not ran[row]:
                one = queries.take(np.array([row]))
                weighed = self._weighed_for(regimes[row], _places(self.layout, one))
                middle = float(weighed.ensemble.predict(one, self._fit)[0][0])
                shares = weighed.ensemble.by_name
                freedom = FREEDOM + weighed.pieces
                square = (FREEDOM + weighed.square) / freedom
                scale = max(scale * math.sqrt(square), math.sqrt(posterior.noise))
            floor = self._floors.get(queries.features[row].tobytes(), -LOG_SECONDS_LIMIT)
            middle = min(max(middle, floor), LOG_SECONDS_LIMIT)
            self._shares.update(shares)
            law = StudentT(math.hypot(scale, unknown[row]), freedom)
            inside = not outside[row]
            predictions.append(Prediction(middle, law, LEVEL, kind, extrapolating=not inside))
        return predictions

    def _without_fixed(self, queries: EncodedQueries) -> tuple[EncodedQueries, Floats]:
        """Return queries at the values of the fixed columns, and the error of that, log seconds.

        A column that never varied shows no slope, not even its sign, so the whole prior slope
        counts as an error.
        """
        features, variance, place = queries.features.copy(), np.zeros(len(queries)), 0
        for column in self.layout.columns:
            if column.name in self._fixed and not column.words:
                first = slice(place, place + column.width)
                measured = self.runs.samples.features[0, first]
                slope = priors_of(self.layout, column)[0]
                apart = features[:, place] - measured[0]
                variance += (slope.mean**2 + slope.sd**2) * apart**2
                features[:, first] = measured
            place += column.width
        return replace(queries, features=features), np.sqrt(variance)

    def _weighed_for(self, kind: QueryRegime, places: ScaleAndSize) -> _WeighedMixture:
        splits = holdout_splits(self.runs.places, kind, self.runs.samples.features)
        split = closest_split(splits, self.runs.places, places) or grouped_split(self.runs.groups)
        if split.key not in self._weighed:
            weighing = cross_validate(
                self.runs, self.learners, split, on_progress=self._on_progress
            )
            weights = weighing.weights()
            variances = [np.zeros(0)]  # of each held-out execution, without it in training
            for fold in split.folds:
                rows, held_out = fold.training, self.runs.samples.take(fold.held_out)
                slopes = self._slopes.fit(self.runs.samples.take(rows), self.runs.log_seconds[rows])
                posterior = slopes.posterior(held_out)
                variances.append(posterior.variance + posterior.noise)
            squares = np.minimum(weights.errors**2 / np.concatenate(variances), MOST_FAR**2)
            pieces, place = np.unique(weighing.evidence, return_inverse=True)
            of_each = np.bincount(place, squares) / np.bincount(place)
            self._weighed[split.key] = _WeighedMixture(weights, float(of_each.sum()), len(pieces))
        return self._weighed[split.key]

    def _fit(self, name: str) -> Fitted:
        if name not in self._fits:
            [learner] = [each for each in self.learners if each.name == name]
            self._fits[name] = learner.fit(self.runs.samples, self.runs.log_seconds)
        return self._fits[name]

    def _outside(self, table: Table, features: Floats) -> NDArray[np.bool_]:
        """Return rows with a column outside of the measured range, or with a new word."""
        unknown = [
            [str(word) not in column.words for word in table[column.name]]
            for column in self.layout.columns
            if column.words
        ]
        measured = self.runs.samples.features
        margin = ROUNDING * np.abs(measured).max(axis=0)
        low, high = measured.min(axis=0) - margin, measured.max(axis=0) + margin
        beyond = ((features < low) | (features > high)).any(axis=1)
        return np.asarray(beyond | np.array(unknown, np.bool_).any(axis=0))

    def _ran(self, features: Floats) -> NDArray[np.bool_]:
        """Return rows whose configuration was measured."""
        measured = self.runs.samples.features
        margin = ROUNDING * np.abs(measured).max(axis=0)
        near = np.abs(features[:, None, :] - measured[None, :, :]) <= margin
        return np.asarray(near.all(axis=2).any(axis=1))


def _places(layout: TableLayout, samples: EncodedQueries) -> ScaleAndSize:
    features = samples.features
    return ScaleAndSize(features[:, layout.scale_feature], features[:, layout.size_feature])
