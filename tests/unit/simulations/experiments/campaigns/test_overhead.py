"""Tests of the overhead of campaigns, measured in pairs because whole jobs vary too much."""

import math
from collections.abc import Iterator

import pytest

from fedperf_campaigns.campaign.trial_runner import TrialRunner
from fedperf_simulations.experiments import campaigns
from fedperf_simulations.experiments.campaigns import (
    WINDOW_SECONDS,
    added_seconds,
    slowdown,
)


def test_profiled_trial_lasts_at_least_as_long_as_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    profiled = campaigns._profiled

    def kept(runner: TrialRunner, command: tuple[str, ...]) -> float:
        waited.append(profiled(runner, command))
        return waited[-1]

    monkeypatch.setattr(campaigns, "_profiled", kept)
    assert math.isfinite(added_seconds(0.2, 1))
    (seconds,) = waited
    assert seconds >= 0.2


def test_added_seconds_interleaves_bare_runs_and_trials_and_takes_the_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = list[str]()
    bare, profiled = iter([1.0, 2.0, 3.0]), iter([1.5, 2.25, 93.0])

    def run(kind: str, seconds: Iterator[float]) -> float:
        turns.append(kind)
        return next(seconds)

    monkeypatch.setattr(campaigns, "_bare", lambda command: run("bare", bare))
    monkeypatch.setattr(campaigns, "_profiled", lambda runner, command: run("trial", profiled))
    assert added_seconds(60.0, 3) == 0.5
    assert turns == ["trial", "bare", "bare", "trial", "trial", "bare"]


@pytest.mark.slow
def test_slowdown_of_a_monitored_job_is_finite_with_its_error() -> None:
    slower, error = slowdown(8 * WINDOW_SECONDS)
    assert -0.9 < slower < 10
    assert math.isfinite(error)
