"""Bounds that hold for any mechanism, reach the truth with enough looks, and never pass it."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.experiments.privacy_audit.bounds import (
    best_direction,
    best_guesses,
    best_threshold,
    epsilon_of_guesses,
    epsilon_of_rates,
)

SHARES = ((0.02, 0.0), (0.3, 0.3))


def answers(epsilon: float, count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Randomized response: exactly epsilon-DP, and no attack does better than to believe it."""
    rng = np.random.default_rng(seed)
    inside = rng.integers(0, 2, count).astype(bool)
    is_true = rng.random(count) < 1 / (1 + math.exp(-epsilon))
    return np.where(inside == is_true, 1.0, 0.0) + 1e-6 * rng.random(count), inside


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_guesses_of_randomized_response_come_close_to_its_epsilon_from_below(
    epsilon: float,
) -> None:
    scores, inside = answers(epsilon, 20_000, seed=1)
    bound = best_guesses(scores, inside, delta=1e-9, shares=SHARES)
    assert 0.85 * epsilon < bound <= epsilon


@pytest.mark.statistical
def test_the_bound_from_guesses_is_wrong_no_more_often_than_it_says() -> None:
    wrong = 0
    for seed in range(100):
        scores, inside = answers(1.0, 400, seed)
        wrong += best_guesses(scores, inside, delta=1e-9, shares=((0.5, 0.5),)) > 1.0
    assert wrong <= 12  # 5 % of 100 are 5, and more than 12 would happen once in 700 times


def test_guessing_by_coins_proves_nothing() -> None:
    rng = np.random.default_rng(2)
    inside = rng.integers(0, 2, 10_000).astype(bool)
    assert best_guesses(rng.random(10_000), inside, delta=1e-6, shares=SHARES) < 0.1


def test_more_delta_leaves_less_to_prove() -> None:
    bounds = [
        epsilon_of_guesses(990, 1000, canaries=2000, delta=delta) for delta in (0, 1e-5, 1e-3)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2]


def test_pure_guesses_give_the_exact_binomial_bound() -> None:
    """All of 100 right: q^100 = 5 % at q = 0.97049, so epsilon = log(q / (1 - q))."""
    accuracy = 0.05 ** (1 / 100)
    exact = math.log(accuracy / (1 - accuracy))
    assert epsilon_of_guesses(100, 100, canaries=100, delta=0) == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize(("correct", "guesses", "canaries"), [(2, 1, 3), (-1, 1, 3), (1, 4, 3)])
def test_impossible_guesses_are_refused(correct: int, guesses: int, canaries: int) -> None:
    with pytest.raises(InvalidInputError):
        epsilon_of_guesses(correct, guesses, canaries=canaries, delta=0)


def test_rates_give_the_ratio_of_clopper_and_pearson() -> None:
    """No false alarm in 1,000: at most 1 - 0.025^(1/1000); every hit: at least 0.025^(1/1000)."""
    root = 0.025**1e-3
    exact = math.log((root - 1e-5) / (1 - root))
    bound = epsilon_of_rates(1000, 1000, false_alarms=0, others=1000, delta=1e-5)
    assert bound == pytest.approx(exact)


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (5, 5), (5, 900), (1000, 1000)])
def test_rates_that_show_nothing_prove_nothing(hits: int, alarms: int) -> None:
    assert epsilon_of_rates(hits, 1000, false_alarms=alarms, others=1000, delta=1e-5) == 0


def test_thresholds_come_close_to_the_epsilon_of_laplace_noise_from_below() -> None:
    """Scale 1 and sensitivity 1 are exactly 1-DP, in both tails."""
    rng = np.random.default_rng(3)
    without, with_one = rng.laplace(0, 1, 40_000), rng.laplace(1, 1, 40_000)
    assert 0.85 < best_threshold(without, with_one, delta=1e-9) <= 1.0


@pytest.mark.statistical
def test_an_event_is_not_judged_by_what_it_was_found_on() -> None:
    """The same scores on both sides: the best of many thresholds must not show a difference."""
    bounds = [
        best_threshold(*np.random.default_rng(seed).standard_normal((2, 400)), delta=1e-9)
        for seed in range(40)
    ]
    assert sum(bound > 0 for bound in bounds) <= 6  # 2 are expected


def test_the_direction_finds_the_feature_that_tells() -> None:
    rng = np.random.default_rng(4)
    without, with_one = rng.standard_normal((2, 5000, 2)) * (1.0, 100.0)
    with_one[:, 0] += 2.0
    direction = best_direction(without, with_one)
    assert abs(direction[1]) * 100 < 0.1 * abs(direction[0])


def test_a_feature_that_never_varies_has_a_direction_too() -> None:
    direction = best_direction(np.zeros((10, 1)), np.ones((10, 1)))
    assert 0 < direction[0] < math.inf
