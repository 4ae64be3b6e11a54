"""Tests of the gain of a simulated year: its interval, or no difference if it may be 0."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_memory.year_simulation.year import (
    ALONE,
    JOINED,
    WITH_PRETRAINED,
    ErrorChange,
    LocalGain,
    LocalHistory,
    measure_gain,
)

WORKLOADS = [f"job-{number // 2}" for number in range(40)]
ERRORS = np.random.default_rng(1).uniform(0.1, 0.5, 40)


def test_error_change_with_interval_beyond_zero_is_better_or_worse() -> None:
    assert ErrorChange.of(ERRORS - 0.05, ERRORS, WORKLOADS).verdict == "better"
    assert ErrorChange.of(ERRORS + 0.05, ERRORS, WORKLOADS).verdict == "worse"
    shifted = ErrorChange.of(ERRORS - np.log(2), ERRORS, WORKLOADS)
    assert shifted.percent == pytest.approx(-50)


def test_error_change_with_interval_containing_zero_is_no_difference() -> None:
    noise = np.random.default_rng(2).normal(0, 0.3, 40)
    change = ErrorChange.of(ERRORS + noise - noise.mean() - 0.01, ERRORS, WORKLOADS)
    assert change.percent < 0
    assert change.interval is not None
    assert change.interval[0] < change.percent < change.interval[1]
    assert change.verdict == "no difference"


def test_error_change_of_one_workload_has_no_interval() -> None:
    change = ErrorChange.of(ERRORS - 0.1, ERRORS, ["job"] * 40)
    assert change.interval is None
    assert change.verdict == "no difference"


def test_local_gain_compares_joined_with_every_available_predictor() -> None:
    none = np.full(40, np.nan)
    errors = {ALONE: none, WITH_PRETRAINED: ERRORS, JOINED: ERRORS - 0.05}
    gain = LocalGain.of(errors, WORKLOADS, training=0)
    assert list(gain.errors) == [WITH_PRETRAINED, JOINED]
    assert list(gain.changes) == [WITH_PRETRAINED]
    assert gain.errors[WITH_PRETRAINED] == pytest.approx(np.exp(np.median(ERRORS)))
    assert (gain.test, gain.workloads) == (40, 20)


def test_measure_gain_without_executions_returns_none(tmp_path: Path) -> None:
    assert measure_gain(LocalHistory(0, (), ()), FetchedModels(tmp_path)) is None
