"""Tests of sharing few runs: priors use no private run time, and releases spend epsilon."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import GRID_EXPONENT
from fedperf_client.release import accountant
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.releases.release import ReportParameters
from fedperf_simulations.experiments.private_sharing import (
    DELTA,
    features,
    noise_multiplier,
    planned_stages,
    prior_from_other_jobs,
    prior_from_same_job,
    replace_one_epsilon,
    shared_posterior,
    synthetic_seconds,
)
from fedperf_simulations.federation.point_queries import stage_noise
from tests.unit.simulations.synthetic_jobs import elsewhere, made_up, others


@pytest.fixture(scope="module")
def start() -> GaussianPosterior:
    return prior_from_other_jobs(made_up("target").grid, others())


def _error(belief: GaussianPosterior, level: float = 5.3) -> float:
    truth = np.log(made_up("target", level=level).seconds)
    return float(np.abs(belief.mean - truth).mean())


def test_shared_job_features_scale_work_to_unit_range_and_center_machines() -> None:
    grid = made_up("target").grid
    found = features(grid, grid.inputs)
    assert found[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    assert (found[:, 1].min(), found[:, 1].max()) == pytest.approx((-1.0, 1.0))
    assert not found[:, 2:].any()


def test_prior_from_other_jobs_predicts_a_similar_job(start: GaussianPosterior) -> None:
    assert _error(start) < 0.1
    assert 0.1 < np.sqrt(start.variances().mean()) < 1.0


def test_prior_from_same_job_elsewhere_reduces_error_and_variance(start: GaussianPosterior) -> None:
    target = made_up("target", level=6.2)
    known = prior_from_same_job(target.grid, others(), elsewhere(6.2))
    assert _error(known, 6.2) < 0.2 < _error(start, 6.2)
    assert known.variances().mean() < start.variances().mean()


def test_planned_stages_increase_with_the_number_of_runs() -> None:
    lengths = [len(planned_stages(declared, 1.0)) for declared in (3, 12, 30, 60, 200)]
    assert lengths == [1, 1, 2, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("declared", [9, 30, 200])
def test_planned_stages_spend_the_promised_epsilon_in_total(declared: int) -> None:
    stages = planned_stages(declared, 1.0)
    whole = noise_multiplier(stages, 1.0)
    events = [
        accountant.to_event(ReportParameters(stage_noise(stage, whole), 1.0)) for stage in stages
    ]
    assert 0.99 < accountant.epsilon(events, DELTA) <= 1.0
    replaced = accountant.replace_one_epsilon(events, DELTA)
    assert replace_one_epsilon(1.0) == pytest.approx(replaced, rel=1e-3)
    assert 2.0 < replaced < 2.3


class RecordingNoise(SeededNoise):
    """Noise source that records the scale of each draw, in units of one run's contribution."""

    def __init__(self) -> None:
        super().__init__([1])
        self.multipliers: list[float] = []

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        self.multipliers.append(scale * 2.0**GRID_EXPONENT)
        return super().discrete_gaussian(size, scale)


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "draws"), [(9, 1), (30, 2), (100, 3)])
def test_noise_draws_of_shared_posterior_spend_the_promised_epsilon(
    declared: int, draws: int
) -> None:
    noise = RecordingNoise()
    start = GaussianPosterior(np.zeros(120), 0.2 + 0.05 * np.eye(120))
    rows, values = np.arange(declared), np.linspace(0.0, 5.0, declared)
    shared_posterior(start, rows, values, declared=declared, epsilon=1.0, noise=noise)
    assert len(noise.multipliers) == draws
    events = [accountant.to_event(ReportParameters(each, 1.0)) for each in noise.multipliers]
    assert accountant.epsilon(events, DELTA) == pytest.approx(1.0, rel=1e-3)


def _shared(
    start: GaussianPosterior, level: float, *, epsilon: float, outlier: float = 0.0
) -> GaussianPosterior:
    target = made_up("target", level=level)
    rows = np.arange(1, 30, 3)
    values = np.log(target.seconds[rows])
    values[4] += outlier
    return shared_posterior(
        start, rows, values, declared=len(rows), epsilon=epsilon, noise=SeededNoise([5])
    )


def test_shared_posterior_at_tiny_epsilon_stays_near_the_prior(start: GaussianPosterior) -> None:
    shared = _shared(start, 6.0, epsilon=0.01)
    assert np.allclose(shared.mean, start.mean, atol=0.1)


@pytest.mark.slow
def test_shared_posterior_at_large_epsilon_fits_the_runs(start: GaussianPosterior) -> None:
    assert _error(start, 6.0) > 0.6
    assert _error(_shared(start, 6.0, epsilon=50.0), 6.0) < 0.15


def test_shared_posterior_influence_of_one_run_is_bounded_by_clipping(
    start: GaussianPosterior,
) -> None:
    long, longer = (_shared(start, 5.3, epsilon=1.0, outlier=by) for by in (20.0, 500.0))
    assert np.array_equal(long.mean, longer.mean)
    moved = np.abs(long.mean - _shared(start, 5.3, epsilon=1.0).mean)
    assert 0 < moved.max() < 0.3


def test_shared_posterior_covariance_is_independent_of_which_runs_exist(
    start: GaussianPosterior,
) -> None:
    values = np.log(made_up("target").seconds)
    few, many = (
        shared_posterior(start, rows, values[rows], declared=9, epsilon=1.0, noise=SeededNoise([5]))
        for rows in (np.arange(4), np.arange(4, 30))
    )
    assert np.array_equal(few.covariance, many.covariance)
    assert not np.array_equal(few.mean, many.mean)


def test_synthetic_seconds_minimize_expected_relative_error() -> None:
    belief = GaussianPosterior(np.array([5.0]), np.array([[0.36]]))
    truth = np.exp(5.0 + 0.6 * np.random.default_rng(1).standard_normal(100_000))

    def expected(label: float) -> float:
        return float(np.abs(label / truth - 1).mean())

    label = float(synthetic_seconds(belief)[0])
    assert expected(label) < min(expected(label * 1.1), expected(label / 1.1))
