"""Ernest answers from one configuration on, and follows its law where there are enough."""

import numpy as np
import pytest

from fedperf_simulations.baselines.ernest_parts import ernest_parts


def test_one_configuration_is_shared_out_among_machines() -> None:
    known = np.log([[4.0, 100.0]])
    asked = np.log([[8.0, 100.0], [4.0, 300.0]])
    said = np.exp(ernest_parts(known, np.log([60.0]), asked))
    assert said == pytest.approx([30.0, 180.0])


def test_two_configurations_tell_what_is_fixed_and_repeats_are_none() -> None:
    known = np.log([[2.0, 100.0], [4.0, 100.0], [4.0, 100.0]])
    logs = np.log([10 + 80 / 2, 10 + 80 / 4, 10 + 80 / 4])
    said = np.exp(ernest_parts(known, logs, np.log([[8.0, 100.0]])))
    assert said == pytest.approx([20.0])


def test_from_four_on_the_whole_law_is_followed() -> None:
    machines = np.array([1.0, 2, 4, 8, 16, 32])
    seconds = 5 + 300 / machines + 2 * np.log(machines) + 0.5 * machines
    rows = np.column_stack([np.log(machines), np.zeros(6)])
    said = np.exp(ernest_parts(rows[:5], np.log(seconds[:5]), rows[5:]))
    assert said == pytest.approx(seconds[5:], rel=1e-6)
