"""Tests of local baselines: accurate with enough executions, bounded with few."""

import numpy as np
import pytest

from fedperf_simulations.baselines.home_models import HOME_MODELS, PROCESS, Regressor

BOTH = pytest.mark.parametrize("learn", HOME_MODELS.values(), ids=HOME_MODELS)


def law(features: np.ndarray) -> np.ndarray:
    return np.asarray(4.0 + features @ np.array([1.0, -0.5, 0.0]))


def drawn(count: int) -> np.ndarray:
    features = np.random.default_rng(count).uniform(-1, 1, (count, 3))
    features[:, 2] = 7.0  # does not vary
    return features


@BOTH
def test_local_baseline_recovers_a_linear_law_from_forty_rows(learn: Regressor) -> None:
    known, asked = drawn(40), drawn(60)
    off = learn(known, law(known), asked) - law(asked)
    assert np.abs(off).mean() < 0.1


@BOTH
def test_local_baseline_with_one_row_predicts_its_value_everywhere(learn: Regressor) -> None:
    assert learn(drawn(1), np.array([5.0]), drawn(4)) == pytest.approx(np.full(4, 5.0))


@BOTH
def test_local_baseline_with_identical_inputs_predicts_their_mean(learn: Regressor) -> None:
    said = learn(np.ones((3, 2)), np.array([1.0, 2.0, 6.0]), drawn(5)[:, :2])
    assert said == pytest.approx(np.full(5, 3.0))


@BOTH
def test_local_baseline_ignores_feature_constant_up_to_rounding(learn: Regressor) -> None:
    rng = np.random.default_rng(0)
    known, asked = rng.uniform(1, 2, (5, 3)), rng.uniform(1, 2, (4, 3))
    known[:, 1], asked[:, 1] = 0.1 + 0.2, 0.3
    known[2, 1] = 0.3
    assert np.isfinite(learn(known, known[:, 0], asked)).all()
    without = learn(known[:, [0, 2]], known[:, 0], asked[:, [0, 2]])
    assert learn(known, known[:, 0], asked) == pytest.approx(without)


def test_gaussian_process_baseline_returns_to_the_mean_far_from_data() -> None:
    known = drawn(3)
    far = HOME_MODELS[PROCESS](known, np.array([5.0, 6.0, 9.3]), known + 1000.0)
    assert np.abs(far - 20.3 / 3).max() < 1e-6
