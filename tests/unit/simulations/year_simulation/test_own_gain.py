"""What a rehearsed year brought is told with its spread, and "no difference" where it may be 0."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_memory.year_simulation.year import (
    ALONE,
    JOINED,
    WITH_START,
    ErrorChange,
    LocalGain,
    LocalHistory,
    measure_gain,
)

WORKLOADS = [f"job-{number // 2}" for number in range(40)]
ERRORS = np.random.default_rng(1).uniform(0.1, 0.5, 40)


def test_what_is_surely_smaller_or_larger_is_said_to_be() -> None:
    assert ErrorChange.of(ERRORS - 0.05, ERRORS, WORKLOADS).verdict == "better"
    assert ErrorChange.of(ERRORS + 0.05, ERRORS, WORKLOADS).verdict == "worse"
    shifted = ErrorChange.of(ERRORS - np.log(2), ERRORS, WORKLOADS)
    assert shifted.percent == pytest.approx(-50)


def test_an_interval_that_holds_0_is_no_difference() -> None:
    noise = np.random.default_rng(2).normal(0, 0.3, 40)
    change = ErrorChange.of(ERRORS + noise - noise.mean() - 0.01, ERRORS, WORKLOADS)
    assert change.percent < 0
    assert change.interval is not None
    assert change.interval[0] < change.percent < change.interval[1]
    assert change.verdict == "no difference"


def test_one_workload_tells_nothing() -> None:
    change = ErrorChange.of(ERRORS - 0.1, ERRORS, ["job"] * 40)
    assert change.interval is None
    assert change.verdict == "no difference"


def test_joined_is_compared_with_every_way_that_answers() -> None:
    none = np.full(40, np.nan)
    errors = {ALONE: none, WITH_START: ERRORS, JOINED: ERRORS - 0.05}
    gain = LocalGain.of(errors, WORKLOADS, training=0)
    assert list(gain.errors) == [WITH_START, JOINED]
    assert list(gain.changes) == [WITH_START]
    assert gain.errors[WITH_START] == pytest.approx(np.exp(np.median(ERRORS)))
    assert (gain.test, gain.workloads) == (40, 20)


def test_without_own_executions_nothing_is_judged(tmp_path: Path) -> None:
    assert measure_gain(LocalHistory(0, (), ()), FetchedModels(tmp_path)) is None
