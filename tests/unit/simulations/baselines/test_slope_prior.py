"""A prior on slopes alone."""

import numpy as np
import pytest

from fedperf_simulations.baselines.slope_prior import slope_prior


def test_one_known_configuration_gives_the_level_and_the_prior_the_slopes() -> None:
    known = np.log([[4.0, 100.0]])
    asked = np.log([[8.0, 100.0], [4.0, 200.0]])
    said = slope_prior(known, np.array([2.0]), asked)
    assert said == pytest.approx([2.0 - 0.7 * np.log(2), 2.0 + 0.9 * np.log(2)])


def test_evidence_moves_the_slopes() -> None:
    machines = np.log(np.geomspace(1, 64, 30))
    known = np.column_stack([machines, np.zeros(30), np.linspace(-1, 1, 30) ** 2])
    said = slope_prior(known, 3.0 - 0.2 * machines, known)
    np.testing.assert_allclose(said, 3.0 - 0.2 * machines, atol=0.02)
