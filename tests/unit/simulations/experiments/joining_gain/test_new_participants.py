"""Tests of new participants: their evaluation, and lower errors with more knowledge."""

import numpy as np
import pytest

from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.data import c3o
from fedperf_simulations.experiments.joining_gain import (
    LOCAL,
    LOCAL_PROCESS,
    LOCALS,
    PUBLIC_AS_IS,
    WITH_PUBLIC,
    PredictorErrors,
    Predictors,
    TableRows,
    as_is,
    judge_tables,
    personalized,
)
from tests.public_data import public_data

JOINED = "what joining gave"
ROWS = 40


def judged(own: int) -> Predictors:
    """Return the evaluated predictors of a new participant.

    The shared model is accurate to 5 %, and the pretrained model has no information.
    """
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (ROWS, 2))
    truth = 3 + features @ np.array([1.0, -0.5]) + 0.5 * features[:, 0] ** 2
    rows = TableRows(features, truth, np.arange(ROWS))
    told = GaussianPosterior(truth + 0.05 * rng.standard_normal(ROWS), 0.05**2 * np.eye(ROWS))
    start = GaussianPosterior(np.zeros(ROWS), np.ones((ROWS, ROWS)) + 0.1 * np.eye(ROWS))
    order = rng.permutation(ROWS)
    return judge_tables(rows, order[:own], order[own:], {JOINED: told}, base_model=start, seed=0)


def test_local_prediction_from_three_executions_has_bounded_extrapolation_error() -> None:
    """The job ran 162, 432 and 10,901 s here.

    A line through these points would predict days for runs of minutes.
    """
    slices = c3o.load(public_data("c3o-experiments")).slices.of("sgd r4.2xlarge 3e+08")
    count = len(slices)
    rows = TableRows(slices.features, slices.log_seconds, np.arange(count))
    nothing = GaussianPosterior(np.zeros(count), np.eye(count))
    found = []
    for seed in range(5):
        order = np.random.default_rng([0, 17, seed, 1]).permutation(count)
        judged = judge_tables(rows, order[:3], order[3:], {}, base_model=nothing, seed=seed)
        found.append([judged[LOCAL].mape, judged[LOCAL_PROCESS].mape])
    mix, process = np.mean(found, axis=0)
    assert mix < 100
    assert process < 150


def test_new_participant_without_executions_uses_shared_predictions_only() -> None:
    found = judged(0)
    assert set(found) == {PUBLIC_AS_IS, WITH_PUBLIC, as_is(JOINED), personalized(JOINED)}
    assert found[personalized(JOINED)].mape == pytest.approx(found[as_is(JOINED)].mape)
    assert found[as_is(JOINED)].mape < 10 < found[PUBLIC_AS_IS].mape


@pytest.mark.slow
def test_shared_predictions_help_most_with_few_local_executions() -> None:
    few = judged(3)
    assert {*LOCALS, personalized(JOINED)} <= set(few)
    assert few[personalized(JOINED)].mape < 0.5 * min(few[LOCAL].mape, few[LOCAL_PROCESS].mape)
    assert judged(25)[LOCAL_PROCESS].mape < 0.5 * few[LOCAL_PROCESS].mape


def test_predictor_errors_are_percent_of_measured_time() -> None:
    found = PredictorErrors.of(np.log([2.0, 1.0]), np.log([1.0, 2.0]))
    assert found.mape == pytest.approx(75.0)
    assert found.q50 == pytest.approx(2.0)
    assert found.log_mae == pytest.approx(np.log(2.0))
