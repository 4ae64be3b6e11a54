"""Promises of the Gaussian process that learners share."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fedperf_client.prediction.learners import gaussian_process
from fedperf_client.prediction.learners.gaussian_process import (
    FARTHEST,
    LEAST_NOISE_SD,
    MOST_COLUMNS,
    _Posterior,
    fit_process,
)
from fedperf_client.prediction.learners.ridge import MARGIN
from fedperf_client.prediction.prediction import Floats


def draw(count: int, columns: int = 3, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(0, 4, (count, columns))
    target = 2 * inputs[:, 0] + np.sin(2 * inputs[:, 1]) + 0.02 * rng.standard_normal(count)
    return inputs, target


def test_a_line_is_followed_beyond_what_was_seen() -> None:
    inputs, _ = draw(40)
    process = fit_process(inputs, 1.5 * inputs[:, 0] - 0.5 * inputs[:, 2])
    beyond = np.array([[6.0, 2.0, 6.0]])
    assert process.mean(beyond)[0] == pytest.approx(6.0, abs=0.4)


def test_a_line_through_nearly_equal_inputs_is_not_followed_to_the_end_of_the_world() -> None:
    process = fit_process(np.array([[1.0], [1.01], [1.02]]), np.array([0.0, 1.0, 2.0]))
    far, farther = process.mean(np.array([[2.0], [1e9]]))
    assert 2.0 < far <= 2.0 + MARGIN
    assert farther == far
    sure, unsure = process.sd(np.array([[1.01], [1e9]]))
    assert unsure > 5 * sure


def test_inputs_are_read_as_far_as_two_spans_beyond_what_was_seen_and_no_farther() -> None:
    process = fit_process(np.array([[0.0], [0.5], [2.0]]), np.array([0.0, 0.3, 1.0]))
    end = 1.0 + FARTHEST  # seen are 0 to 2, so that one scaled step is 1
    assert (end - 2.0) / 2.0 == 2.0
    before, at, far = process.sd(np.array([[end - 0.5], [end], [1e9]]))
    assert before < at
    assert far == pytest.approx(at)
    below, deep = process.sd(np.array([[1.0 - FARTHEST], [-1e9]]))
    assert deep == pytest.approx(below)


def test_a_curve_is_learnt_between_what_was_seen() -> None:
    inputs, target = draw(80)
    asked, truth = draw(50, seed=1)
    assert np.abs(fit_process(inputs, target).mean(asked) - truth).mean() < 0.08


def test_it_is_less_sure_the_farther_a_question_lies_and_never_surer_than_the_noise() -> None:
    inputs, target = draw(40)
    process = fit_process(inputs, target)
    near, far, farther = process.sd(np.array([[2.0, 2, 2], [7.0, 7, 7], [12.0, 12, 12]]))
    assert LEAST_NOISE_SD - 1e-9 <= process.noise_sd <= near < far < farther


def test_its_certainty_is_right_on_average() -> None:
    rng = np.random.default_rng(3)
    inputs, target = draw(60, seed=4)
    target = target + 0.3 * rng.standard_normal(60)
    asked, truth = draw(400, seed=5)
    truth = truth + 0.3 * rng.standard_normal(400)
    process = fit_process(inputs, target)
    inside = np.abs(process.mean(asked) - truth) <= 1.645 * process.sd(asked)
    assert 0.85 <= inside.mean() <= 0.95


def test_the_slope_of_the_posterior_is_that_of_its_value() -> None:
    rng = np.random.default_rng(6)
    known, means = rng.uniform(-1, 1, (12, 2)), rng.standard_normal(12)
    posterior = _Posterior(known, means, rng.integers(1, 5, 12).astype(float), 0.7, 9.0)
    apart = np.moveaxis((known[:, None, :] - known[None, :, :]) ** 2, 2, 0)
    logs = posterior._centre() + 0.3 * rng.standard_normal(7)

    def value(at: Floats) -> float:
        return posterior._loss(at, apart)[0]

    slope = approx_fprime(logs, value, 1e-6)
    np.testing.assert_allclose(posterior._loss(logs, apart)[1], slope, rtol=1e-3, atol=3e-3)


def test_repeats_say_how_much_noise_there_is() -> None:
    inputs, target = draw(20)
    rng = np.random.default_rng(7)
    repeated = np.repeat(inputs, 5, axis=0)
    noisy = np.repeat(target, 5) + 0.2 * rng.standard_normal(100)
    assert fit_process(repeated, noisy).noise_sd == pytest.approx(0.2, rel=0.25)


def test_what_ran_often_is_followed_more_closely_than_what_ran_once() -> None:
    rng = np.random.default_rng(8)
    inputs, target = draw(30)
    target = target + 0.4 * rng.standard_normal(30)
    often = np.append(np.arange(30), np.zeros(60, np.int64))
    measured = target[often] + 0.4 * rng.standard_normal(90)
    process = fit_process(inputs[often], measured)
    mean = np.append(measured[often == 0].mean(), measured[1:30])
    left = np.abs(process.mean(inputs) - mean)
    assert left[0] < 0.1 * 0.4 < np.median(left[1:])
    alike = fit_process(inputs, mean)  # as if each had run once
    assert left[0] < abs(alike.mean(inputs[:1])[0] - mean[0])


def test_columns_that_say_the_same_change_nothing() -> None:
    inputs, target = draw(30)
    twice = np.column_stack([inputs, 3 * inputs[:, 0] + 1, np.ones(30)])
    np.testing.assert_array_equal(
        fit_process(inputs, target).mean(inputs), fit_process(twice, target).mean(twice)
    )


def test_many_columns_are_read_by_their_main_directions() -> None:
    rng = np.random.default_rng(9)
    inputs, target = draw(60)
    wide = inputs @ rng.standard_normal((3, 5 * MOST_COLUMNS))
    asked, truth = draw(40, seed=10)
    answers = fit_process(wide, target).mean(asked @ np.linalg.lstsq(inputs, wide, rcond=None)[0])
    assert np.abs(answers - truth).mean() < 0.5 * np.abs(target.mean() - truth).mean()


def test_more_rows_than_are_fitted_are_thinned_alike_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaussian_process, "MOST_ROWS", 50)
    inputs, target = draw(80, columns=2)
    one, other = fit_process(inputs, target), fit_process(inputs, target)
    assert len(one._known) == 50
    np.testing.assert_array_equal(one.mean(inputs[:9]), other.mean(inputs[:9]))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_rows_give_their_level(count: int) -> None:
    inputs, target = draw(count)
    asked, _ = draw(5, seed=1)
    process = fit_process(inputs, target)
    assert np.isfinite(process.mean(asked)).all()
    assert (process.sd(asked) > 0).all()
    if count == 1:
        assert process.mean(asked) == pytest.approx(target[0])


def test_the_covariance_of_a_row_with_itself_is_its_variance_without_the_noise() -> None:
    inputs, target = draw(30)
    process = fit_process(inputs, target)
    asked = np.array([[1.0, 2, 3], [2.0, 2, 2], [7.0, 7, 7]])
    covariance = process.covariance(asked, asked)
    assert np.allclose(covariance, covariance.T)
    assert np.allclose(np.diag(covariance) + process.noise_sd**2, process.sd(asked) ** 2)


def test_the_error_nearby_is_that_of_a_process_that_has_not_seen_the_nearest_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, target = draw(25)
    process = fit_process(inputs, target)
    numbers = (process._kernel, process.noise_sd**2)
    monkeypatch.setattr(_Posterior, "best", lambda _: numbers)
    monkeypatch.setattr(gaussian_process.Scaling, "of", lambda _: process._scaling)
    for row in (0, 7, 24):
        others = np.delete(np.arange(25), row)
        without = fit_process(inputs[others], target[others])
        error = target[row] - without.mean(inputs[[row]])[0]
        # The level is the mean of what was seen, which differs a little between the two.
        assert process.error_nearby(inputs[[row]] + 1e-6)[0] == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_a_plane_that_nothing_has_tested_is_not_followed(columns: int) -> None:
    """Through as many rows as it has numbers it fits any targets, and says nothing elsewhere."""
    rng = np.random.default_rng(columns)
    for _ in range(20):
        inputs = rng.uniform(-0.3, 0.3, (columns + 1, columns))
        target = rng.normal(0.0, 2.0, columns + 1)
        answers = fit_process(inputs, target).mean(rng.uniform(-1, 1, (200, columns)))
        assert answers.min() >= target.min() - np.log(2) - 1e-9
        assert answers.max() <= target.max() + np.log(2) + 1e-9


def test_a_plane_that_every_column_has_tested_is_followed_two_spans() -> None:
    inputs = np.array([[x, y] for x in (0.0, 0.5, 1.0) for y in (0.0, 0.5, 1.0)])
    answer = fit_process(inputs, 0.8 * inputs.sum(axis=1)).mean(np.array([[2.5, 2.5]]))
    assert answer == pytest.approx([4.0], abs=0.1)
