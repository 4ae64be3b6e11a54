"""Tests of inference from directed reports of workloads at unknown points of a public grid."""

import math
from itertools import combinations

import numpy as np
import pytest

from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    PointResiduals,
    sum_points,
)
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.linear_queries import Design
from fedperf_shared.releases.release import (
    DirectedReport,
    InvalidReleaseError,
    ReleaseKind,
    SlotKey,
)
from fedperf_simulations.federation.grid_points import (
    design_grid_query,
    drawing_noise,
    learn_on_grid,
)

RECORD = 0.003
SLOT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)


def _belief(points: int = 12, level: float = 0.3) -> GaussianPosterior:
    across = np.linspace(-1, 1, points)
    covariance = level + 0.2 * np.outer(across, across) + 0.01 * np.eye(points)
    return GaussianPosterior(np.zeros(points), covariance)


def _asked(belief: GaussianPosterior, declared: float, noise: float) -> Design:
    return design_grid_query(
        belief,
        declared,
        kappa=3.0,
        noise_multiplier=noise,
        record_variance=RECORD,
        directions=3,
    )


def _report(design: Design, truth: np.ndarray, rows: np.ndarray) -> DirectedReport:
    """Return the response without noise."""
    workloads = [PointResiduals(np.array([row]), truth[row : row + 1]) for row in rows.tolist()]
    return DirectedReport(SLOT, 1, GRID_EXPONENT, sum_points(workloads, design))


def _learned(
    belief: GaussianPosterior, truth: np.ndarray, rows: np.ndarray, noise: float
) -> GaussianPosterior:
    design = _asked(belief, len(rows), noise)
    report = _report(design, truth, rows)
    return learn_on_grid(
        belief, design, [report], [len(rows)], noise_multiplier=noise, record_variance=RECORD
    ).posterior


@pytest.mark.parametrize("residual", [-50.0, -0.1, 0.4, math.inf])
def test_grid_contribution_of_any_workload_has_norm_at_most_one(residual: float) -> None:
    design = _asked(_belief(), 3, 1.0)
    for point in range(design.points):
        sent = sum_points([PointResiduals(np.array([point]), np.array([residual]))], design)
        assert int(sent @ sent) <= 4**-GRID_EXPONENT


def test_grid_posterior_from_all_points_without_noise_equals_the_truth() -> None:
    belief = _belief()
    truth = 0.4 - 0.3 * np.linspace(-1, 1, 12)
    learned = _learned(belief, truth, np.arange(12), 1e-3)
    assert np.allclose(learned.mean, truth, atol=0.05)
    assert learned.variances().max() < belief.variances().min() / 5


def test_grid_posterior_variance_is_larger_with_fewer_points() -> None:
    truth = np.full(12, 0.5)
    some = _learned(_belief(), truth, np.array([1, 6, 10]), 0.5)
    everything = _learned(_belief(), truth, np.arange(12), 0.5)
    assert everything.variances().mean() < some.variances().mean()
    assert 0 < some.mean.mean() < 0.6


def test_grid_posterior_from_few_workloads_keeps_variance_without_noise() -> None:
    some = _learned(_belief(), np.full(12, 0.5), np.array([1, 6, 10]), 1e-3)
    assert some.variances().mean() > _belief().variances().mean() / 10


def test_grid_posterior_variance_increases_with_noise() -> None:
    truth = np.full(12, 0.5)
    spreads = [
        _learned(_belief(), truth, np.arange(4), noise).variances().mean()
        for noise in (0.1, 1.0, 10.0, 1000.0)
    ]
    assert spreads == sorted(spreads)
    assert spreads[-1] == pytest.approx(_belief().variances().mean(), rel=1e-2)


def test_drawing_noise_equals_the_covariance_over_all_draws() -> None:
    belief = _belief(6)
    directions = np.random.default_rng(3).standard_normal((2, 6))
    draws = []
    for rows in combinations(range(6), 2):
        seen = np.zeros((2, 6))
        seen[:, rows] = directions[:, rows]
        away = seen - directions / 3
        draws.append(away @ belief.covariance @ away.T)
    assert np.allclose(drawing_noise(belief, directions, 2), np.mean(draws, axis=0))


def test_drawing_noise_is_zero_if_all_points_are_drawn() -> None:
    assert np.allclose(drawing_noise(_belief(6), np.ones((1, 6)), 6), 0.0)


@pytest.mark.parametrize("declared", [0, -1, 13, math.nan])
def test_grid_query_with_impossible_workload_count_is_refused(declared: float) -> None:
    with pytest.raises(ConfigurationError, match="at most 12 workloads"):
        _asked(_belief(), declared, 1.0)


def test_grid_response_of_wrong_length_is_refused() -> None:
    belief = _belief()
    design = _asked(belief, 4, 1.0)
    report = DirectedReport(SLOT, 1, GRID_EXPONENT, np.zeros(design.values + 1, dtype=np.int64))
    with pytest.raises(InvalidReleaseError, match="a report has the shape"):
        learn_on_grid(belief, design, [report], [4.0], noise_multiplier=1.0, record_variance=RECORD)
