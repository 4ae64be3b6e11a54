"""Lines that have not seen whom they answer for."""

import numpy as np

from fedperf_simulations.baselines.leave_out import regressions_without


def test_a_group_is_answered_by_a_line_through_the_others() -> None:
    across = np.arange(6.0)
    log_seconds = 1.0 + 2.0 * across
    log_seconds[4:] = 50.0
    said = regressions_without(["a", "a", "b", "b", "c", "c"], across, log_seconds)
    np.testing.assert_allclose(said[4:], 1.0 + 2.0 * across[4:])
    assert abs(said[0] - log_seconds[0]) > 5
