"""Boosted trees stored as arrays: predictions equal LightGBM's, fitted learners are restored."""

import json

import lightgbm
import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from fedperf_campaigns.tables.learners import mean_of_trees
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.base_learners import (
    SHARED,
    Boosting,
    Learner,
    LogRidge,
    ResidualBoosting,
    ResidualRidge,
)
from fedperf_client.prediction.learners.boosted_trees import (
    _LINEAR_LEAVES,
    ROUNDS,
    Additive,
    Trees,
    _settings,
)
from fedperf_client.prediction.serving.predictor_cache import _packed, _unpacked
from fedperf_shared.errors import InvalidInputError

RNG = np.random.default_rng(0)
INPUTS = np.column_stack([RNG.normal(size=(400, 5)), RNG.integers(0, 3, (400, 2))])
TARGET = np.asarray(INPUTS[:, 0] ** 2 + INPUTS[:, 5] + 0.1 * RNG.normal(size=400))
SAMPLES = EncodedQueries(INPUTS, np.zeros(400, np.int64), {SHARED: np.sin(INPUTS[:, 1])})


def trained(linear: bool, rows: int = 400) -> lightgbm.Booster:
    leaves = _LINEAR_LEAVES if linear else {}
    data = lightgbm.Dataset(INPUTS[:rows], TARGET[:rows], params={"verbose": -1, **leaves})
    return lightgbm.train(_settings(rows) | leaves, data, num_boost_round=ROUNDS)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("rows", [3, 30, 400])
def test_trees_of_lightgbm_text_predict_like_lightgbm(linear: bool, rows: int) -> None:
    booster = trained(linear, rows)
    asked = np.concatenate([INPUTS, 3 * INPUTS, np.zeros((1, 7))])
    expected = np.asarray(booster.predict(asked, num_threads=1))
    np.testing.assert_allclose(Trees.of_text(booster.model_to_string())(asked), expected, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 5, 400])
def test_mean_of_trees_predicts_like_scikit_learn_forest(rows: int) -> None:
    inputs = INPUTS.astype(np.float32).astype(np.float64)  # the precision of plan features
    forest = RandomForestRegressor(10, min_samples_leaf=2, random_state=1)
    forest.fit(inputs[:rows], TARGET[:rows])
    trees = mean_of_trees([each.tree_ for each in forest.estimators_])
    np.testing.assert_allclose(trees(inputs), forest.predict(inputs), atol=1e-12)


def test_trees_of_empty_text_predict_zero_and_empty_input_gives_empty_output() -> None:
    assert Trees.of_text("")(INPUTS).tolist() == [0.0] * 400
    assert Trees.of_text(trained(linear=False).model_to_string())(INPUTS[:0]).shape == (0,)


def test_trees_with_categorical_splits_are_refused() -> None:
    text = trained(linear=False).model_to_string().replace("num_cat=0", "num_cat=1")
    with pytest.raises(InvalidInputError, match="categories"):
        Trees.of_text(text)


@pytest.mark.parametrize(
    "learner",
    [
        LogRidge(),
        LogRidge(degree=2),
        Boosting(),
        Boosting(linear_leaves=True),
        ResidualRidge(),
        ResidualBoosting(),
    ],
    ids=lambda learner: str(learner.name),
)
@pytest.mark.parametrize("rows", [0, 1, 400])
def test_fitted_learner_restored_from_arrays_predicts_identically(
    learner: Learner, rows: int
) -> None:
    some = np.arange(rows)
    fitted = learner.fit(SAMPLES.take(some), TARGET[some])
    assert isinstance(fitted, Additive)
    arrays: dict[str, np.ndarray] = {}
    content = json.loads(json.dumps(_packed(fitted, arrays)))
    again = _unpacked(Additive, content, arrays)
    np.testing.assert_array_equal(again(SAMPLES), fitted(SAMPLES))
    assert np.isfinite(fitted(SAMPLES)).all()
