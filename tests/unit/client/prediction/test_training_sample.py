"""Of many executions a part is learnt from that has some of everything."""

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
from tests.unit.client.prediction.worlds import executions_of_world


def columns(count: int) -> ExecutionTable:
    found = ExecutionTable.from_columns(
        encode_executions(executions_of_world(1, 8, "own"), excellent)
    )
    return found.take(np.arange(count) % len(found))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LEARNT", 60)


def test_of_few_executions_all_are_learnt_from() -> None:
    assert training_sample(columns(60)).tolist() == list(range(60))
    assert training_limit(60, 0) == 60


def test_of_many_the_newest_of_every_workload_are_learnt_from() -> None:
    own = columns(400)
    chosen = training_sample(own)
    assert len(np.unique(chosen)) == 60
    assert set(own.workload[chosen].tolist()) == set(own.workload.tolist())
    for workload in np.unique(own.workload):
        assert np.flatnonzero(own.workload == workload)[-1] in chosen


def test_rare_work_and_the_ends_of_scales_and_sizes_are_among_them() -> None:
    own = columns(3000)
    own.cell[:] = 0
    own.cell[5:10] = 7  # old, and of workloads that others are newer of
    own.cores[11], own.source_rows[12], own.source_rows[13] = 10_000, 1e12, 0.0
    chosen = set(training_sample(own).tolist())
    assert LEAST_OF_CELL >= 5
    assert {*range(5, 10), 11, 12, 13} <= chosen


def test_one_more_execution_changes_at_most_what_stands_for_its_workload() -> None:
    own = columns(1000)
    before, after = (set(training_sample(own.take(np.arange(n))).tolist()) for n in (999, 1000))
    assert len(before - after) <= 2


def test_what_is_learnt_from_stands_until_a_tenth_more_came_or_a_drift_was_noticed() -> None:
    until = {count: training_limit(count, 0) for count in range(61, 200)}
    assert list(until.values()) == sorted(until.values())
    assert all(count / 1.1 - 1 < each <= count for count, each in until.items())
    assert len(set(until.values())) < 15
    assert training_limit(100, 99) == 99
