"""Two-sided: noise of the right scale passes, two thirds and one and a half of it fail.

numpy's draws are seeded. OpenDP deliberately has no seed. Its significance level is so small that
no false alarm is expected in a lifetime.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedperf_client.contributions.mechanisms import GRID_EXPONENT, NoiseSource, noisy, sum_features
from fedperf_client.release.noise import SystemNoise
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Slot,
    SlotKey,
)
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise

pytestmark = pytest.mark.statistical

LEVEL = 1e-7
SIGMA = 6.5
SCALES = [2 / 3, 1.0, 3 / 2]


def is_standard_normal(values: NDArray[np.float64]) -> bool:
    """Test the shape by Kolmogorov-Smirnov and the scale by a two-sided chi-square test."""
    shape = stats.kstest(values, "norm").pvalue
    energy = float(np.sum(values**2))
    scale = 2 * min(stats.chi2.cdf(energy, len(values)), float(stats.chi2.sf(energy, len(values))))
    return bool(shape > LEVEL and scale > LEVEL)


def report_noise(noise: NoiseSource, noise_multiplier: float = SIGMA) -> NDArray[np.float64]:
    reports = [
        residual_report(
            [],
            noise,
            slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0),
            parameters=ReportParameters(noise_multiplier, 1.5),
            reference_version=0,
        ).values
        for window in range(20)
    ]
    return np.concatenate(reports).astype(np.float64) * (2.0**GRID_EXPONENT / SIGMA)


def step_noise(noise: NoiseSource, noise_multiplier: float = SIGMA) -> NDArray[np.float64]:
    """Return linearized sums of no data, in units of the declared noise."""
    steps = [
        noisy(
            sum_features((), 0.5),
            noise,
            Slot(
                SlotKey(ReleaseKind.MODEL_UPDATE, window, 0),
                LinearizedParameters(noise_multiplier, 2000.0),
            ),
            version=1,
        ).natural()
        for window in range(60)
    ]
    return np.concatenate(steps) / SIGMA


@pytest.mark.parametrize("factor", SCALES)
@pytest.mark.parametrize("released", [report_noise, step_noise])
def test_noise_check_passes_right_scale_and_fails_wrong_scales(
    released: Callable[[NoiseSource], NDArray[np.float64]], factor: float
) -> None:
    values = released(SeededNoise(11, factor=factor))
    assert is_standard_normal(values) == (factor == 1.0)


@pytest.mark.parametrize("factor", SCALES)
def test_residual_report_carries_noise_of_its_declared_scale(factor: float) -> None:
    assert is_standard_normal(report_noise(SystemNoise(), SIGMA * factor)) == (factor == 1.0)


@pytest.mark.parametrize("factor", SCALES)
def test_linearized_update_carries_noise_of_its_declared_scale(factor: float) -> None:
    assert is_standard_normal(step_noise(SystemNoise(), SIGMA * factor)) == (factor == 1.0)


def test_linearized_update_noise_is_uncorrelated_across_slots_and_coordinates() -> None:
    first, second = step_noise(SystemNoise()).reshape(2, -1)
    bound = 5.5 / math.sqrt(len(first))
    assert abs(float(np.corrcoef(first, second)[0, 1])) < bound
    assert abs(float(np.corrcoef(first[1:], first[:-1])[0, 1])) < bound


@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_discrete_gaussian_follows_its_probability_mass_function(scale: float) -> None:
    values = SystemNoise().discrete_gaussian(6000, scale)
    support = np.arange(-60, 61)
    probabilities = np.exp(-(support**2) / (2 * scale**2))
    probabilities /= probabilities.sum()
    expected = 6000 * probabilities
    common = expected > 5
    observed = np.array([np.sum(values == k) for k in support[common]])
    rest = 6000 - observed.sum()
    test = stats.chisquare([*observed, rest], [*expected[common], 6000 - expected[common].sum()])
    assert test.pvalue > LEVEL
