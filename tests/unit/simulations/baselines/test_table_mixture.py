"""Tests of the baseline that corrects a pretrained model with its posterior covariance."""

import numpy as np
import pytest

from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.base_learners import (
    REFERENCE,
    InvalidCorrectionError,
    UncorrectedModel,
)
from fedperf_simulations.baselines.table_mixture import PretrainedWithPosterior

POINTS = 30
ACROSS = np.linspace(-1, 1, POINTS)
COVARIANCE = 0.2 * np.exp(-((ACROSS[:, None] - ACROSS) ** 2)) + 0.1 * np.outer(ACROSS, ACROSS)


def at(*points: int) -> EncodedQueries:
    cells = np.array(points, np.int64)
    return EncodedQueries(ACROSS[cells, None], cells, {REFERENCE: 4.0 + ACROSS[cells]})


def test_pretrained_with_posterior_without_executions_predicts_the_shared_mean() -> None:
    fitted = PretrainedWithPosterior(COVARIANCE).fit(at(), np.zeros(0))
    np.testing.assert_allclose(fitted(at(0, 7)), at(0, 7).base_predictions[REFERENCE])


def test_pretrained_with_posterior_correction_decreases_with_distance() -> None:
    own = at(0)
    fitted = PretrainedWithPosterior(COVARIANCE).fit(own, own.base_predictions[REFERENCE] + 0.6)
    corrections = fitted(at(0, 8, 29)) - at(0, 8, 29).base_predictions[REFERENCE]
    assert 0.6 >= corrections[0] > corrections[1] > corrections[2]


def test_pretrained_with_posterior_of_smaller_covariance_moves_less() -> None:
    own = at(15)

    def moved(scale: float) -> float:
        fitted = PretrainedWithPosterior(scale * COVARIANCE).fit(
            own, own.base_predictions[REFERENCE] + 0.5
        )
        return float(fitted(own)[0] - own.base_predictions[REFERENCE][0])

    assert 0 < moved(1e-3) < moved(1.0) <= 0.5


def test_pretrained_with_posterior_learns_dependence_outside_the_covariance() -> None:
    own, asked = at(*range(0, POINTS, 3)), at(*range(1, POINTS, 3))
    fitted = PretrainedWithPosterior(1e-4 * np.eye(POINTS)).fit(
        own, own.base_predictions[REFERENCE] + ACROSS[own.cells]
    )
    left = fitted(asked) - asked.base_predictions[REFERENCE] - ACROSS[asked.cells]
    assert np.abs(left).max() < 0.1


def test_pretrained_with_posterior_recovers_level_from_noisy_executions() -> None:
    own = at(*range(10, 20))
    level, noise = 0.2, 0.6 * np.random.default_rng(3).standard_normal(10)
    moved = [
        float(
            PretrainedWithPosterior(COVARIANCE).fit(own, own.base_predictions[REFERENCE] + errors)(
                at(15)
            )[0]
        )
        for errors in (np.full(10, level), level + noise - noise.mean())
    ]
    start = at(15).base_predictions[REFERENCE][0]
    assert moved[0] - start == pytest.approx(level, abs=0.02)
    assert abs(moved[1] - start) < 0.15


def test_pretrained_with_posterior_beats_uncorrected_model_if_covariance_holds() -> None:
    rng = np.random.default_rng(0)
    everything = at(*range(POINTS))
    gains = []
    for _ in range(40):
        error = rng.multivariate_normal(np.zeros(POINTS), COVARIANCE)
        truth = everything.base_predictions[REFERENCE] + error
        rows = rng.choice(POINTS, 5, replace=False)
        measured = truth[rows] + 0.1 * rng.standard_normal(5)
        own = everything.take(rows)
        with_covariance = PretrainedWithPosterior(COVARIANCE).fit(own, measured)(everything)
        as_is = UncorrectedModel(REFERENCE).fit(own, measured)(everything)
        gains.append(np.abs(with_covariance - truth).mean() / np.abs(as_is - truth).mean())
    assert np.mean(gains) < 0.4


def test_pretrained_with_posterior_refuses_invalid_covariance() -> None:
    for wrong, complaint in (
        (np.zeros((2, 3)), "square"),
        (np.full((2, 2), np.nan), "finite"),
        (-np.eye(2), "semi-definite"),
        (np.triu(np.ones((2, 2))), "symmetric"),
    ):
        with pytest.raises(InvalidCorrectionError, match=complaint):
            PretrainedWithPosterior(wrong)


def test_pretrained_with_posterior_refuses_cell_outside_the_covariance() -> None:
    with pytest.raises(InvalidCorrectionError, match="none of the 3 points"):
        PretrainedWithPosterior(np.eye(3)).fit(at(5), np.zeros(1))
