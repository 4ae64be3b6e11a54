"""Tests of the audit's attacker and of its fake mechanisms."""

import numpy as np
import pytest

from fedperf_simulations.experiments.privacy_audit import (
    FakeNoise,
    PairedNoise,
)
from tests.unit.client.contributions.seeded_noise import SeededNoise


@pytest.mark.parametrize("factor", [0.0, 0.25])
def test_fake_noise_has_the_requested_scale(factor: float) -> None:
    fake = FakeNoise(3, factor=factor)
    assert fake.gaussian(20_000).std() == pytest.approx(factor, rel=0.03)
    assert fake.discrete_gaussian(20_000, 1000.0).std() == pytest.approx(1000 * factor, rel=0.03)


def test_paired_noise_repeats_a_draw_once_for_the_neighbouring_input() -> None:
    twice = PairedNoise(SeededNoise(4))
    one, same, other = (twice.discrete_gaussian(5, 1000.0) for _ in range(3))
    assert np.array_equal(one, same)
    assert not np.array_equal(same, other)
