"""The overhead of campaigns is measured where runs of a whole job would differ too much."""

import math

from fedperf_simulations.experiments.campaigns.overhead import (
    WINDOW_SECONDS,
    added_seconds,
    slowdown,
)


def test_a_trial_adds_little_and_waits_as_long_as_the_job() -> None:
    assert abs(added_seconds(0.2, 1)) < 0.2


def test_a_watched_job_is_compared_with_itself() -> None:
    slower, error = slowdown(8 * WINDOW_SECONDS)
    assert -0.9 < slower < 10
    assert math.isfinite(error)
