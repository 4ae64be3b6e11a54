"""Tests of the measurement log: tasks that remain, and the attempt of a task that counts."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_engines.trials.profiler import Trial
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ClusterConfig, ExecutionStatus
from fedperf_simulations.corpus.measured_log import (
    MeasuredLog,
    MeasurementTask,
    append,
    least_disturbed,
    read_log,
    record_of,
)
from fedperf_simulations.corpus.workload_draws import MeasuringSettings

SETTINGS = MeasuringSettings(seed=3, workloads=3, comparisons=0, most_rows=1000)
TASKS = SETTINGS.tasks()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTER = ClusterConfig(1, 1, 2**30)
LIMIT, REPEATS = 0.3, 2


def run(log: MeasuredLog, task: MeasurementTask, busy: float) -> None:
    trial = Trial(task.platforms, ExecutionStatus.FAILED, None, (), busy, "not run")
    with log.appending() as file:
        append(file, record_of(task, CLUSTER, None, trial, NOW))


def waiting(log: MeasuredLog) -> list[str]:
    return [t.task_id for t in log.waiting(TASKS, disturbed_cores=LIMIT, repeats=REPEATS)]


def test_measured_log_lists_unmeasured_tasks_before_disturbed_ones(tmp_path: Path) -> None:
    log = MeasuredLog(tmp_path / "log.jsonl", asdict(SETTINGS))
    run(log, TASKS[0], busy=1.0)
    run(log, TASKS[1], busy=0.1)
    assert waiting(log) == [TASKS[2].task_id, TASKS[0].task_id]


def test_measured_log_repeats_a_disturbed_task_at_most_twice(tmp_path: Path) -> None:
    log = MeasuredLog(tmp_path / "log.jsonl", asdict(SETTINGS))
    for task in TASKS[1:]:
        run(log, task, busy=0.0)
    for _ in range(1 + REPEATS):
        assert waiting(log) == [TASKS[0].task_id]
        run(log, TASKS[0], busy=1.0)
    assert waiting(log) == []


def test_measured_log_uses_the_least_disturbed_attempt_of_a_task(tmp_path: Path) -> None:
    log = MeasuredLog(tmp_path / "log.jsonl", asdict(SETTINGS))
    for busy in (1.0, 0.2, 0.9):
        run(log, TASKS[0], busy=busy)
    assert TASKS[0].task_id not in waiting(log)
    (counted,) = least_disturbed(read_log(log.path)[1])
    assert (counted["host_busy_cores"], counted["attempts"]) == (0.2, 3)


def test_measured_log_reopened_with_equal_settings_lists_all_tasks(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    MeasuredLog(path, asdict(SETTINGS))
    begun = path.read_bytes()
    with pytest.raises(ConfigurationError, match="begun with other settings"):
        MeasuredLog(path, asdict(replace(SETTINGS, seed=4)))
    assert path.read_bytes() == begun
    again = MeasuredLog(path, asdict(replace(SETTINGS)))
    assert waiting(again) == [task.task_id for task in TASKS]
