"""Two-sided: the steps of a private teacher use the accounted noise and sampling rate."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedperf_simulations.experiments.drift.private_chain import CLIP, SAMPLING, noised, sampled

pytestmark = pytest.mark.statistical

LEVEL = 1e-6
SIGMA = 9.0
SCALES = [2 / 3, 1.0, 3 / 2]


def generators() -> list[np.random.Generator]:
    return [np.random.default_rng([17, seed]) for seed in range(3)]


@pytest.mark.parametrize("factor", SCALES)
def test_private_training_step_carries_noise_of_its_clip(factor: float) -> None:
    sums = [torch.full((3, 40, 20), 5.0), torch.full((3, 1, 20), -5.0)]
    found = noised(sums, factor * SIGMA, generators())
    off = torch.cat([(a - b).flatten() for a, b in zip(found, sums, strict=True)]).double().numpy()
    noise = off / (SIGMA * CLIP)
    energy = float(np.sum(noise**2))
    scale = 2 * min(stats.chi2.cdf(energy, noise.size), stats.chi2.sf(energy, noise.size))
    shape = stats.kstest(noise, "norm").pvalue
    assert (scale > LEVEL and shape > LEVEL) == (factor == 1.0)


def test_private_training_noise_differs_for_every_number_and_seed() -> None:
    (noise,) = noised([torch.zeros(3, 40, 20)], 1.0, generators())
    assert len(torch.unique(noise)) > 2_390


def test_private_training_samples_rows_independently_with_accounted_probability() -> None:
    rngs = generators()
    drawn = np.stack([sampled(200, rngs).numpy() for _ in range(300)]).reshape(-1, 200)
    counts = drawn.sum(axis=1)
    assert stats.binomtest(int(counts.sum()), drawn.size, SAMPLING).pvalue > LEVEL
    expected = 200 * SAMPLING * (1 - SAMPLING)
    energy = float(np.sum((counts - 200 * SAMPLING) ** 2)) / expected
    assert 2 * min(stats.chi2.cdf(energy, 900), stats.chi2.sf(energy, 900)) > LEVEL
