"""The Gaussian process that several learners use."""

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


def test_gaussian_process_extrapolates_a_linear_trend() -> None:
    inputs, _ = draw(40)
    process = fit_process(inputs, 1.5 * inputs[:, 0] - 0.5 * inputs[:, 2])
    beyond = np.array([[6.0, 2.0, 6.0]])
    assert process.mean(beyond)[0] == pytest.approx(6.0, abs=0.4)


def test_gaussian_process_of_nearly_equal_inputs_limits_extrapolation() -> None:
    process = fit_process(np.array([[1.0], [1.01], [1.02]]), np.array([0.0, 1.0, 2.0]))
    far, farther = process.mean(np.array([[2.0], [1e9]]))
    assert 2.0 < far <= 2.0 + MARGIN
    assert farther == far
    sure, unsure = process.sd(np.array([[1.01], [1e9]]))
    assert unsure > 5 * sure


def test_gaussian_process_clips_inputs_two_spans_beyond_training_range() -> None:
    process = fit_process(np.array([[0.0], [0.5], [2.0]]), np.array([0.0, 0.3, 1.0]))
    end = 1.0 + FARTHEST  # training inputs span 0 to 2, so one scaled step is 1
    assert (end - 2.0) / 2.0 == 2.0
    before, at, far = process.sd(np.array([[end - 0.5], [end], [1e9]]))
    assert before < at
    assert far == pytest.approx(at)
    below, deep = process.sd(np.array([[1.0 - FARTHEST], [-1e9]]))
    assert deep == pytest.approx(below)


def test_gaussian_process_interpolates_a_curve() -> None:
    inputs, target = draw(80)
    asked, truth = draw(50, seed=1)
    assert np.abs(fit_process(inputs, target).mean(asked) - truth).mean() < 0.08


def test_gaussian_process_sd_grows_with_distance_and_never_falls_below_noise() -> None:
    inputs, target = draw(40)
    process = fit_process(inputs, target)
    near, far, farther = process.sd(np.array([[2.0, 2, 2], [7.0, 7, 7], [12.0, 12, 12]]))
    assert LEAST_NOISE_SD - 1e-9 <= process.noise_sd <= near < far < farther


def test_gaussian_process_intervals_have_stated_coverage() -> None:
    rng = np.random.default_rng(3)
    inputs, target = draw(60, seed=4)
    target = target + 0.3 * rng.standard_normal(60)
    asked, truth = draw(400, seed=5)
    truth = truth + 0.3 * rng.standard_normal(400)
    process = fit_process(inputs, target)
    inside = np.abs(process.mean(asked) - truth) <= 1.645 * process.sd(asked)
    assert 0.85 <= inside.mean() <= 0.95


def test_posterior_loss_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(6)
    known, means = rng.uniform(-1, 1, (12, 2)), rng.standard_normal(12)
    posterior = _Posterior(known, means, rng.integers(1, 5, 12).astype(float), 0.7, 9.0)
    apart = np.moveaxis((known[:, None, :] - known[None, :, :]) ** 2, 2, 0)
    logs = posterior._centre() + 0.3 * rng.standard_normal(7)

    def value(at: Floats) -> float:
        return posterior._loss(at, apart)[0]

    slope = approx_fprime(logs, value, 1e-6)
    np.testing.assert_allclose(posterior._loss(logs, apart)[1], slope, rtol=1e-3, atol=3e-3)


def test_gaussian_process_estimates_observation_noise_from_repeats() -> None:
    inputs, target = draw(20)
    rng = np.random.default_rng(7)
    repeated = np.repeat(inputs, 5, axis=0)
    noisy = np.repeat(target, 5) + 0.2 * rng.standard_normal(100)
    assert fit_process(repeated, noisy).noise_sd == pytest.approx(0.2, rel=0.25)


def test_gaussian_process_follows_mean_of_frequently_repeated_row() -> None:
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


def test_gaussian_process_ignores_collinear_and_constant_columns() -> None:
    inputs, target = draw(30)
    twice = np.column_stack([inputs, 3 * inputs[:, 0] + 1, np.ones(30)])
    np.testing.assert_array_equal(
        fit_process(inputs, target).mean(inputs), fit_process(twice, target).mean(twice)
    )


def test_gaussian_process_with_many_columns_uses_principal_directions() -> None:
    rng = np.random.default_rng(9)
    inputs, target = draw(60)
    wide = inputs @ rng.standard_normal((3, 5 * MOST_COLUMNS))
    asked, truth = draw(40, seed=10)
    answers = fit_process(wide, target).mean(asked @ np.linalg.lstsq(inputs, wide, rcond=None)[0])
    assert np.abs(answers - truth).mean() < 0.5 * np.abs(target.mean() - truth).mean()


def test_gaussian_process_thins_excess_rows_deterministically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaussian_process, "MOST_ROWS", 50)
    inputs, target = draw(80, columns=2)
    one, other = fit_process(inputs, target), fit_process(inputs, target)
    assert len(one._known) == 50
    np.testing.assert_array_equal(one.mean(inputs[:9]), other.mean(inputs[:9]))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_gaussian_process_of_at_most_two_rows_predicts_finite_values(count: int) -> None:
    inputs, target = draw(count)
    asked, _ = draw(5, seed=1)
    process = fit_process(inputs, target)
    assert np.isfinite(process.mean(asked)).all()
    assert (process.sd(asked) > 0).all()
    if count == 1:
        assert process.mean(asked) == pytest.approx(target[0])


def test_gaussian_process_self_covariance_is_variance_without_noise() -> None:
    inputs, target = draw(30)
    process = fit_process(inputs, target)
    asked = np.array([[1.0, 2, 3], [2.0, 2, 2], [7.0, 7, 7]])
    covariance = process.covariance(asked, asked)
    assert np.allclose(covariance, covariance.T)
    assert np.allclose(np.diag(covariance) + process.noise_sd**2, process.sd(asked) ** 2)


def test_error_nearby_equals_leave_one_out_error_of_nearest_row(
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
        # The level is the mean of the training data, which differs slightly between both.
        assert process.error_nearby(inputs[[row]] + 1e-6)[0] == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_gaussian_process_never_follows_an_exactly_determined_plane(columns: int) -> None:
    """A plane through as many rows as it has parameters fits any targets without evidence."""
    rng = np.random.default_rng(columns)
    for _ in range(20):
        inputs = rng.uniform(-0.3, 0.3, (columns + 1, columns))
        target = rng.normal(0.0, 2.0, columns + 1)
        answers = fit_process(inputs, target).mean(rng.uniform(-1, 1, (200, columns)))
        assert answers.min() >= target.min() - np.log(2) - 1e-9
        assert answers.max() <= target.max() + np.log(2) + 1e-9


def test_gaussian_process_follows_overdetermined_plane_for_two_spans() -> None:
    inputs = np.array([[x, y] for x in (0.0, 0.5, 1.0) for y in (0.0, 0.5, 1.0)])
    answer = fit_process(inputs, 0.8 * inputs.sum(axis=1)).mean(np.array([[2.5, 2.5]]))
    assert answer == pytest.approx([4.0], abs=0.1)
