"""Two-sided: directed reports carry the noise scale of their stage and reveal a neighbour.

numpy's draws are seeded. OpenDP deliberately has no seed. Its significance level is so small that
no false alarm is expected in a lifetime.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedperf_client.contributions.mechanisms import NoiseSource, PointResiduals
from fedperf_client.release.noise import SystemNoise
from fedperf_memory.seeded_noise import SeededNoise as SimulatedNoise
from fedperf_shared.releases.linear_queries import public_design
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from fedperf_simulations.federation.channel import directed_report
from tests.unit.client.contributions.seeded_noise import SeededNoise

pytestmark = pytest.mark.statistical

LEVEL = 1e-7
SIGMA = 7.46
SCALES = [2 / 3, 1.0, 3 / 2]
DIRECTIONS = 16


def released(
    noise: NoiseSource, workloads: list[PointResiduals], noise_multiplier: float = SIGMA
) -> NDArray[np.float64]:
    """Return the reports of 250 slots in units of the declared noise, [slots, directions]."""
    design = public_design(np.full((DIRECTIONS, 1), 0.25), np.ones(1))
    reports = [
        directed_report(
            workloads,
            design,
            noise,
            slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0),
            noise_multiplier=noise_multiplier,
            design_version=1,
        ).natural()
        for window in range(250)
    ]
    return np.stack(reports) / SIGMA


def is_standard_normal(values: NDArray[np.float64]) -> bool:
    """Test the shape by Kolmogorov-Smirnov and the scale by a two-sided chi-square test."""
    shape = stats.kstest(values.ravel(), "norm").pvalue
    energy, size = float(np.sum(values**2)), values.size
    scale = 2 * min(stats.chi2.cdf(energy, size), float(stats.chi2.sf(energy, size)))
    return bool(shape > LEVEL and scale > LEVEL)


@pytest.mark.parametrize("factor", SCALES)
def test_noise_check_passes_right_scale_and_fails_wrong_scales(factor: float) -> None:
    values = released(SeededNoise(11, factor=factor), [])
    assert is_standard_normal(values) == (factor == 1.0)


@pytest.mark.parametrize("factor", SCALES)
def test_directed_report_carries_noise_of_its_declared_scale(factor: float) -> None:
    assert is_standard_normal(released(SystemNoise(), [], SIGMA * factor)) == (factor == 1.0)


def test_simulated_noise_has_the_declared_scale() -> None:
    assert is_standard_normal(released(SimulatedNoise([5]), []))


def test_worst_workload_shifts_directed_report_by_at_most_one_sensitivity() -> None:
    far = PointResiduals(np.array([0]), np.array([1e9]))
    direction = np.full(DIRECTIONS, 0.25)
    shift = float(np.mean(released(SeededNoise(4), [far]) @ direction)) * SIGMA
    spread = SIGMA / math.sqrt(250)
    assert abs(shift - 1.0) < 4.5 * spread
    moved = SIGMA * (released(SeededNoise(4), [far]) - released(SeededNoise(4), []))
    assert np.linalg.norm(moved, axis=1).max() <= 1 + 1e-12
    assert np.linalg.norm(moved, axis=1).min() > 0.999


def test_directed_report_noise_is_uncorrelated_across_directions_and_slots() -> None:
    values = released(SystemNoise(), [])
    bound = 5.5 / math.sqrt(values.size)
    assert abs(float(np.corrcoef(values[1:].ravel(), values[:-1].ravel())[0, 1])) < bound
    flat = values.ravel()
    assert abs(float(np.corrcoef(flat[1:], flat[:-1])[0, 1])) < bound
