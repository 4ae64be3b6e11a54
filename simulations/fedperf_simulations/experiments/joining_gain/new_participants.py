"""Errors of each predictor for a newcomer with few own executions.

Three worlds, one shape: a newcomer draws n of its own executions, the rest (or some that
were held out) is asked about, and every predictor that an organization could use answers:
from own executions alone, with the public start, with what joining gave. Predictors and
their weighting are the client's; beside those from own executions alone stand two that
anybody would try (`baselines.home_models`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.learner_catalogue import (
    joined_learners,
    local_learners,
    public_learners,
)
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import ScaleAndSize
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    Learner,
    LocalProcess,
)
from fedperf_client.prediction.prediction import PredictLog, QueryRegime
from fedperf_client.prediction.query_encoding import EncodedQueries, History
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.model.metrics import mape, median_q_error
from fedperf_simulations.baselines.flat_vectors import robopt_vector
from fedperf_simulations.baselines.home_models import HOME_MODELS
from fedperf_simulations.baselines.table_mixture import (
    joined_table_learners,
    local_table_learners,
    mixed_for,
)

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

LOCAL = "local-only"
LOCAL_PROCESS = "local-only, Gaussian process"
PUBLIC_AS_IS = "public start as is"
WITH_PUBLIC = "local + public start"

CLIENTS = (LOCAL, LOCAL_PROCESS)
LOCALS = (*CLIENTS, *HOME_MODELS)
"""The strongest of these, chosen in hindsight, is what joining is compared with."""


@dataclass(frozen=True, slots=True)
class PredictorErrors:
    """The errors of one predictor.

    Attributes:
        mape: mean absolute error relative to what was measured, percent.
        q50: median q-error.
        log_mae: mean absolute error of the natural log, log seconds. A few answers that are far
            too long do not make all of it, nor is it kinder to answers that are too short.
    """

    mape: float
    q50: float
    log_mae: float

    @classmethod
    def of(cls, answers: Floats, measured: Floats) -> "PredictorErrors":
        """The errors from natural logs, [asked]."""
        given, truth = np.exp(answers), np.exp(measured)
        log_mae = float(np.abs(answers - measured).mean())
        return cls(100 * mape(given, truth), median_q_error(given, truth), log_mae)


Predictors = Mapping[str, PredictorErrors]


def as_is(joined: str) -> str:
    """Name of the shared belief or model without own executions."""
    return f"{joined}, as is"


def personalized(joined: str) -> str:
    """Name of the mix that an organization that joined predicts with."""
    return f"{joined}, personalized"


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """A newcomer's own executions as rows of a table.

    Attributes:
        features: what predictors read, [rows, columns].
        measured: natural log of what is asked about, [rows].
        points: public point of each row in every belief, [rows].
    """

    features: Floats
    measured: Floats
    points: Positions

    def samples(self, rows: Positions, belief: GaussianPosterior) -> EncodedQueries:
        """Samples of those rows, with the mean of `belief` as the start model."""
        points = self.points[rows]
        return EncodedQueries(self.features[rows], points, {REFERENCE: belief.mean[points]})


def judge_tables(
    rows: TableRows,
    own: Positions,
    asked: Positions,
    beliefs: Mapping[str, GaussianPosterior],
    *,
    start: GaussianPosterior,
    seed: int,
) -> Predictors:
    """Every predictor's errors on `asked`, knowing `own` executions.

    Args:
        rows: the newcomer's.
        own: rows that it ran, any number.
        asked: rows that it asks about.
        beliefs: what joining gave, by name.
        start: the public start.
        seed: of folds.
    """

    def answers(learners: Sequence[Learner], belief: GaussianPosterior) -> PredictorErrors:
        known = TrainingSet(
            rows.samples(own, belief),
            rows.measured[own],
            _nowhere(len(own)),
            np.arange(len(own)),
        )
        mixture = mixed_for(QueryRegime.SEEN, _nowhere(len(asked)), known, learners, seed=seed)
        return PredictorErrors.of(mixture(rows.samples(asked, belief)), rows.measured[asked])

    def uncorrected(belief: GaussianPosterior) -> PredictorErrors:
        return PredictorErrors.of(belief.mean[rows.points[asked]], rows.measured[asked])

    found = {PUBLIC_AS_IS: uncorrected(start)}
    if len(own):
        found[LOCAL] = answers(local_table_learners(), start)
        found[LOCAL_PROCESS] = answers([LocalProcess()], start)
        found |= _home_models(rows.features, rows.measured, own, asked)
    found[WITH_PUBLIC] = answers(joined_table_learners(start.covariance), start)
    for name, belief in beliefs.items():
        found[as_is(name)] = uncorrected(belief)
        found[personalized(name)] = answers(joined_table_learners(belief.covariance), belief)
    return found


def judge_plans(
    own: History,
    asked: History,
    models: Mapping[str, PredictLog],
    *,
    start: PredictLog,
    seed: int,
) -> Predictors:
    """As `judge_tables`, for plans; the joined models start from `start`."""

    def answers(learners: Sequence[Learner], starts: Mapping[str, PredictLog]) -> PredictorErrors:
        mix = fit_personalized_ensemble(own, starts, learners, seed=seed)
        return PredictorErrors.of(mix.predict_log(asked.queries), asked.log_seconds)

    def uncorrected(model: PredictLog) -> PredictorErrors:
        return PredictorErrors.of(model(asked.queries), asked.log_seconds)

    found = {PUBLIC_AS_IS: uncorrected(start)}
    if len(own):
        found[LOCAL] = answers(local_learners(), {})
        both = [*own.queries, *asked.queries]
        vectors = np.stack([robopt_vector(each.features) for each in both]).astype(np.float64)
        measured = np.concatenate([own.log_seconds, asked.log_seconds])
        found |= _home_models(vectors, measured, *np.split(np.arange(len(both)), [len(own)]))
    found[WITH_PUBLIC] = answers(public_learners(), {PUBLIC: start})
    for name, model in models.items():
        starts = {PUBLIC: start, REFERENCE: start, SHARED: model}
        found[as_is(name)] = uncorrected(model)
        found[personalized(name)] = answers(joined_learners(is_newer=True), starts)
    return found


def _home_models(
    features: Floats, measured: Floats, own: Positions, asked: Positions
) -> Predictors:
    """What anybody would try, on rows of `features` and logs of what was measured."""
    return {
        name: PredictorErrors.of(
            learn(features[own], measured[own], features[asked]), measured[asked]
        )
        for name, learn in HOME_MODELS.items()
    }


def _nowhere(count: int) -> ScaleAndSize:
    """Places that say nothing: what is asked is drawn like what is known."""
    return ScaleAndSize(np.zeros(count), np.zeros(count))
