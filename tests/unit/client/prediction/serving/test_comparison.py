"""Of two answers about one job, how sure it is that one is faster."""

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


def test_equal_answers_are_told_apart_by_nobody_and_others_by_their_distance() -> None:
    assert probability_faster(answer(2.0), answer(2.0)) == pytest.approx(0.5)
    chances = [probability_faster(answer(2.0), answer(each)) for each in (1.0, 2.1, 4.0, 40.0)]
    assert chances == sorted(chances)
    assert chances[0] == pytest.approx(1 - probability_faster(answer(1.0), answer(2.0)))
    assert chances[1] < SURE < chances[3] < 1


def test_what_two_answers_are_off_by_together_is_no_difference() -> None:
    chances = [
        probability_faster(answer(2.0, error_correlation=each), answer(3.0, error_correlation=each))
        for each in (0, 0.5, 0.9)
    ]
    assert chances == sorted(chances)
    own_runs = probability_faster(
        answer(2.0, error_correlation=0.9), answer(3.0)
    )  # has nothing in common
    assert own_runs == pytest.approx(chances[0])


def test_a_start_that_takes_longer_than_the_work_decides() -> None:
    first, second = answer(0.01), answer(0.02)
    assert probability_faster(first, second, starts=(5.0, 0.0)) < 0.01
    assert probability_faster(first, second, starts=(5.0, 5.0)) == pytest.approx(0.5, abs=0.3)


def test_what_costs_less_takes_as_much_longer_as_its_second_is_cheaper() -> None:
    slow, fast = answer(4.0), answer(2.0)
    assert probability_faster(slow, fast, rates=(1.0, 2.0)) == pytest.approx(0.5)
    assert probability_faster(slow, fast, rates=(1.0, 8.0)) > SURE > probability_faster(slow, fast)


def test_answers_without_any_spread_are_as_far_apart_as_they_are() -> None:
    one, other = (
        answer(1.0, scale=0.2, error_correlation=1.0),
        answer(2.0, scale=0.2, error_correlation=1.0),
    )
    assert probability_faster(one, other) == 1.0
    assert probability_faster(one, one) == 0.5


@pytest.mark.statistical
@pytest.mark.parametrize(("error_correlation", "honest"), [(0.5, True), (0.0, False)])
def test_of_answers_said_to_be_faster_as_many_are_as_the_chance_says(
    error_correlation: float, honest: bool
) -> None:
    """Errors of both have half of their square in common; who denies it is too careful."""
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
