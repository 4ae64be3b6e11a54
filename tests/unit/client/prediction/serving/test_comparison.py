"""Probability that one of two predictions about a job is the faster one."""

import math

import numpy as np
import pytest

from fedperf_client.prediction.prediction import (
    SURE,
    Evidence,
    Prediction,
    StudentT,
    probability_faster,
)


def answer(seconds: float, *, scale: float = 0.5, error_correlation: float = 0.0) -> Prediction:
    return Prediction(
        math.log(seconds),
        StudentT(scale, 30.0),
        evidence=Evidence(error_correlation=error_correlation),
    )


def test_probability_faster_is_half_for_equal_medians_and_grows_with_distance() -> None:
    assert probability_faster(answer(2.0), answer(2.0)) == pytest.approx(0.5)
    chances = [probability_faster(answer(2.0), answer(each)) for each in (1.0, 2.1, 4.0, 40.0)]
    assert chances == sorted(chances)
    assert chances[0] == pytest.approx(1 - probability_faster(answer(1.0), answer(2.0)))
    assert chances[1] < SURE < chances[3] < 1


def test_probability_faster_discounts_correlated_errors() -> None:
    chances = [
        probability_faster(answer(2.0, error_correlation=each), answer(3.0, error_correlation=each))
        for each in (0, 0.5, 0.9)
    ]
    assert chances == sorted(chances)
    own_runs = probability_faster(
        answer(2.0, error_correlation=0.9), answer(3.0)
    )  # uncorrelated errors
    assert own_runs == pytest.approx(chances[0])


def test_probability_faster_includes_startup_seconds() -> None:
    first, second = answer(0.01), answer(0.02)
    assert probability_faster(first, second, startup_seconds=(5.0, 0.0)) < 0.01
    assert probability_faster(first, second, startup_seconds=(5.0, 5.0)) == pytest.approx(
        0.5, abs=0.3
    )


def test_probability_faster_with_rates_compares_costs() -> None:
    slow, fast = answer(4.0), answer(2.0)
    assert probability_faster(slow, fast, rates=(1.0, 2.0)) == pytest.approx(0.5)
    assert probability_faster(slow, fast, rates=(1.0, 8.0)) > SURE > probability_faster(slow, fast)


def test_probability_faster_with_fully_correlated_errors_is_certain() -> None:
    one, other = (
        answer(1.0, scale=0.2, error_correlation=1.0),
        answer(2.0, scale=0.2, error_correlation=1.0),
    )
    assert probability_faster(one, other) == 1.0
    assert probability_faster(one, one) == 0.5


@pytest.mark.statistical
@pytest.mark.parametrize(("error_correlation", "honest"), [(0.5, True), (0.0, False)])
def test_probability_faster_is_calibrated_only_with_true_error_correlation(
    error_correlation: float, honest: bool
) -> None:
    """Half of the error variance is shared. Ignoring this makes probabilities too cautious."""
    rng = np.random.default_rng(0)
    said, was = [], []
    for _ in range(4000):
        truth = rng.normal(0.0, 0.7, 2)
        errors = 0.5 * (
            math.sqrt(0.5) * rng.standard_normal() + math.sqrt(0.5) * rng.normal(size=2)
        )
        one, other = (
            answer(math.exp(each), error_correlation=error_correlation) for each in truth - errors
        )
        said.append(probability_faster(one, other))
        was.append(truth[0] < truth[1])
    sure = np.array(said) > SURE
    gap = float(np.mean(np.array(was)[sure])) - float(np.mean(np.array(said)[sure]))
    assert honest == (abs(gap) < 0.04)
