"""Tests of audit bounds: valid for any mechanism, close to the true epsilon, never above it."""

import math

import numpy as np
import pytest

from fedperf_simulations.experiments.privacy_audit import (
    best_direction,
    best_threshold,
    epsilon_of_rates,
)


def test_epsilon_of_rates_matches_the_clopper_pearson_bound() -> None:
    """The reference is Clopper and Pearson's bound.

    Without a false alarm in 1,000, the rate is at most 1 - 0.025^(1/1000). With every hit, it is at
    least 0.025^(1/1000).
    """
    root = 0.025**1e-3
    exact = math.log((root - 1e-5) / (1 - root))
    bound = epsilon_of_rates(1000, 1000, false_alarms=0, others=1000, delta=1e-5)
    assert bound == pytest.approx(exact)


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (5, 5), (5, 900), (1000, 1000)])
def test_epsilon_of_rates_without_separation_is_zero(hits: int, alarms: int) -> None:
    assert epsilon_of_rates(hits, 1000, false_alarms=alarms, others=1000, delta=1e-5) == 0


def test_best_threshold_approaches_laplace_epsilon_from_below() -> None:
    """Laplace noise of scale 1 and sensitivity 1 is exactly 1-DP, in both tails."""
    rng = np.random.default_rng(3)
    without, with_one = rng.laplace(0, 1, 40_000), rng.laplace(1, 1, 40_000)
    assert 0.85 < best_threshold(without, with_one, delta=1e-9) <= 1.0


@pytest.mark.statistical
def test_best_threshold_on_identical_distributions_is_rarely_positive() -> None:
    """Both sides have the same scores: the best of many thresholds must show no difference."""
    bounds = [
        best_threshold(*np.random.default_rng(seed).standard_normal((2, 400)), delta=1e-9)
        for seed in range(40)
    ]
    assert sum(bound > 0 for bound in bounds) <= 6  # 2 are expected


def test_best_direction_weights_the_informative_feature() -> None:
    rng = np.random.default_rng(4)
    without, with_one = rng.standard_normal((2, 5000, 2)) * (1.0, 100.0)
    with_one[:, 0] += 2.0
    direction = best_direction(without, with_one)
    assert abs(direction[1]) * 100 < 0.1 * abs(direction[0])


def test_best_direction_of_a_constant_feature_is_finite_and_positive() -> None:
    direction = best_direction(np.zeros((10, 1)), np.ones((10, 1)))
    assert 0 < direction[0] < math.inf
