"""Tests of the baseline regressions of run times."""

import numpy as np
import pytest

from fedperf_simulations.baselines.regressions import (
    ernest_parts,
    regressions_without,
    slope_prior,
)


def test_regressions_without_predict_a_group_from_the_other_groups() -> None:
    across = np.arange(6.0)
    log_seconds = 1.0 + 2.0 * across
    log_seconds[4:] = 50.0
    said = regressions_without(["a", "a", "b", "b", "c", "c"], across, log_seconds)
    np.testing.assert_allclose(said[4:], 1.0 + 2.0 * across[4:])
    assert abs(said[0] - log_seconds[0]) > 5


def test_slope_prior_with_one_configuration_uses_prior_slopes() -> None:
    known = np.log([[4.0, 100.0]])
    asked = np.log([[8.0, 100.0], [4.0, 200.0]])
    said = slope_prior(known, np.array([2.0]), asked)
    assert said == pytest.approx([2.0 - 0.7 * np.log(2), 2.0 + 0.9 * np.log(2)])


def test_slope_prior_with_many_configurations_learns_their_slopes() -> None:
    machines = np.log(np.geomspace(1, 64, 30))
    known = np.column_stack([machines, np.zeros(30), np.linspace(-1, 1, 30) ** 2])
    said = slope_prior(known, 3.0 - 0.2 * machines, known)
    np.testing.assert_allclose(said, 3.0 - 0.2 * machines, atol=0.02)


def test_ernest_with_one_configuration_scales_with_machines_and_size() -> None:
    known = np.log([[4.0, 100.0]])
    asked = np.log([[8.0, 100.0], [4.0, 300.0]])
    said = np.exp(ernest_parts(known, np.log([60.0]), asked))
    assert said == pytest.approx([30.0, 180.0])


def test_ernest_with_two_configurations_separates_fixed_time_despite_repeats() -> None:
    known = np.log([[2.0, 100.0], [4.0, 100.0], [4.0, 100.0]])
    logs = np.log([10 + 80 / 2, 10 + 80 / 4, 10 + 80 / 4])
    said = np.exp(ernest_parts(known, logs, np.log([[8.0, 100.0]])))
    assert said == pytest.approx([20.0])


def test_ernest_with_five_configurations_fits_the_whole_law() -> None:
    machines = np.array([1.0, 2, 4, 8, 16, 32])
    seconds = 5 + 300 / machines + 2 * np.log(machines) + 0.5 * machines
    rows = np.column_stack([np.log(machines), np.zeros(6)])
    said = np.exp(ernest_parts(rows[:5], np.log(seconds[:5]), rows[5:]))
    assert said == pytest.approx(seconds[5:], rel=1e-6)
