"""Training samples of large histories: newest, rare and extreme executions are included."""

import numpy as np
import pytest

from fedperf_client.prediction.encoding import ExecutionTable, encode_executions
from fedperf_client.prediction.ensemble import training_data as module
from fedperf_client.prediction.ensemble.training_data import (
    LEAST_OF_CELL,
    training_limit,
    training_sample,
)
from tests.unit.client.prediction.synthetic import excellent
from tests.unit.client.prediction.synthetic_executions import executions_of_world


def columns(count: int) -> ExecutionTable:
    found = ExecutionTable.from_columns(
        encode_executions(executions_of_world(1, 8, "own"), excellent)
    )
    return found.take(np.arange(count) % len(found))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRAINING_RUNS", 60)


def test_training_sample_of_few_executions_contains_all() -> None:
    assert training_sample(columns(60)).tolist() == list(range(60))
    assert training_limit(60, 0) == 60


def test_training_sample_of_many_executions_contains_newest_of_each_workload() -> None:
    own = columns(400)
    chosen = training_sample(own)
    assert len(np.unique(chosen)) == 60
    assert set(own.workload[chosen].tolist()) == set(own.workload.tolist())
    for workload in np.unique(own.workload):
        assert np.flatnonzero(own.workload == workload)[-1] in chosen


def test_training_sample_includes_rare_cells_and_extreme_cluster_or_input_sizes() -> None:
    own = columns(3000)
    own.cell[:] = 0
    own.cell[5:10] = 7  # old rows of workloads that have newer ones
    own.cores[11], own.source_rows[12], own.source_rows[13] = 10_000, 1e12, 0.0
    chosen = set(training_sample(own).tolist())
    assert LEAST_OF_CELL >= 5
    assert {*range(5, 10), 11, 12, 13} <= chosen


def test_training_sample_with_one_more_execution_drops_at_most_two() -> None:
    own = columns(1000)
    before, after = (set(training_sample(own.take(np.arange(n))).tolist()) for n in (999, 1000))
    assert len(before - after) <= 2


def test_training_limit_stays_until_tenth_more_executions_or_a_drift() -> None:
    until = {count: training_limit(count, 0) for count in range(61, 200)}
    assert list(until.values()) == sorted(until.values())
    assert all(count / 1.1 - 1 < each <= count for count, each in until.items())
    assert len(set(until.values())) < 15
    assert training_limit(100, 99) == 99
