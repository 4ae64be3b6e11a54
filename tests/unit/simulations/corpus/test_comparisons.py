"""Tests of comparison cases: their measured run times, and folds that share no logical plan."""

import math
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.trials.profiler import Trial
from fedperf_engines.workloads.families import Family
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_simulations.corpus.comparison_set import ComparisonSettings
from fedperf_simulations.corpus.comparisons import FOLDS, folds_of, read_cases
from fedperf_simulations.corpus.measured_log import (
    MeasuredLog,
    MeasurementTask,
    Role,
    append,
    compact,
    record_of,
)
from tests.unit.simulations.comparison_cases import (
    CLUSTER,
    DUCKDB,
    PANDAS,
    POLARS,
    PROGRAM,
    case,
    everywhere,
    workflow,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def measured(path: Path, runs: list[tuple[str, Assignment, float]]) -> Path:
    log = MeasuredLog(path.with_suffix(".jsonl"), asdict(ComparisonSettings(seed=0)))
    with log.appending() as file:
        for name, plan, seconds in runs:
            task = MeasurementTask(
                name, Role.COMPARISON, Family.TPCH, "w", 1000, PROGRAM, plan, threads=1
            )
            ended = seconds < math.inf
            trial = Trial(
                plan,
                ExecutionStatus.OK if ended else ExecutionStatus.OUT_OF_MEMORY,
                Measurement(seconds) if ended else None,
            )
            append(file, record_of(task, CLUSTER, workflow(), trial, NOW, run_seconds=[seconds]))
    compact(log.path, path, provenance={})
    return path


def test_comparison_case_has_the_run_time_of_each_plan(tmp_path: Path) -> None:
    duckdb, polars, pandas = (everywhere(each) for each in (DUCKDB, POLARS, PANDAS))
    runs = [("c1-0", duckdb, 2.0), ("c1-1", polars, 1.0), ("c2-0", duckdb, 3.0)]
    path = measured(tmp_path / "set.parquet", [*runs, ("c1-2", pandas, math.inf)])
    first, second = read_cases(path)
    assert first.seconds == {duckdb: 2.0, polars: 1.0, pandas: math.inf}
    assert second.seconds == {duckdb: 3.0}
    assert (first.name, first.role, first.family, first.rows) == (
        "c1",
        Role.COMPARISON,
        Family.TPCH,
        1000,
    )
    assert (first.program, first.workflow, first.cluster) == (PROGRAM, workflow(), CLUSTER)
    assert first.best_seconds == 1.0
    assert first.regret(duckdb) == pytest.approx(1.0)
    assert first.on_one_platform() == {DUCKDB: 2.0, POLARS: 1.0, PANDAS: math.inf}


def test_folds_keep_sizes_of_one_workload_together_and_are_balanced() -> None:
    cases = [
        case(f"{number}-{rows}", {everywhere(DUCKDB): 1.0}, workload=str(number), rows=rows)
        for number in range(23)
        for rows in (1000, 3000)
    ]
    folds = folds_of(cases, seed=0)
    sizes = Counter(folds.values())
    assert set(sizes) == set(range(FOLDS))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert folds == folds_of(cases[::-1], seed=0)
    assert folds != folds_of(cases, seed=1)
