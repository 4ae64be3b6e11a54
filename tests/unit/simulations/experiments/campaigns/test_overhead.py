"""The overhead of campaigns is measured where runs of a whole job would differ too much."""

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


def test_a_trial_waits_as_long_as_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    profiled = campaigns._profiled

    def kept(runner: TrialRunner, command: tuple[str, ...]) -> float:
        waited.append(profiled(runner, command))
        return waited[-1]

    monkeypatch.setattr(campaigns, "_profiled", kept)
    assert math.isfinite(added_seconds(0.2, 1))
    (seconds,) = waited
    assert seconds >= 0.2


def test_bare_runs_and_trials_take_turns_and_the_median_of_their_differences_counts(
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


def test_a_watched_job_is_compared_with_itself() -> None:
    slower, error = slowdown(8 * WINDOW_SECONDS)
    assert -0.9 < slower < 10
    assert math.isfinite(error)
