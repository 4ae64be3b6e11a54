"""Tests of measured partial plans: their run times follow from those of their segments."""

import math
from datetime import UTC, datetime

import pytest

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_shared.execution import Execution, ExecutionStatus, Measurement
from fedperf_shared.workflow.graph import Plan
from fedperf_simulations.baselines.prefixes import plan_prefix
from fedperf_simulations.corpus.training_set import prefixes
from tests.unit.simulations.comparison_cases import (
    CLUSTER,
    DUCKDB,
    PANDAS,
    POLARS,
    PROGRAM,
    workflow,
)


def executed(*platforms: Assignment) -> Execution:
    return Execution(
        execution_id="e",
        workload="w",
        plan=Plan(workflow(), *platforms),
        cluster=CLUSTER,
        status=ExecutionStatus.OK,
        measurement=Measurement(1.0),
        finished_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_measured_prefix_exists_for_every_segment_end_except_the_last() -> None:
    execution = executed((DUCKDB, POLARS, PANDAS, PANDAS))
    first, second = prefixes(execution, PROGRAM, [0.25, 0.5, 0.125])
    assert first.plan == plan_prefix(execution.plan, [0])
    assert second.plan == plan_prefix(execution.plan, [0, 1])
    assert math.exp(first.log_seconds) == pytest.approx(0.25)
    assert math.exp(second.log_seconds) == pytest.approx(0.75)


def test_measured_prefixes_of_one_segment_plan_are_empty() -> None:
    assert list(prefixes(executed((DUCKDB,) * 4), PROGRAM, [1.0])) == []


def test_measured_prefixes_with_wrong_number_of_timings_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(prefixes(executed((DUCKDB, POLARS, PANDAS, PANDAS)), PROGRAM, [0.25, 0.5]))
