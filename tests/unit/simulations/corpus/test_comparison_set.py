"""Tests of the comparison set: its design, and a small real measurement of it."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS, supporting, supports
from fedperf_engines.platforms.operations import ReadParquet, Sink
from fedperf_engines.workloads.families import Family, workload_name
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ExecutionStatus
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus import comparison_set
from fedperf_simulations.corpus.comparison_set import (
    CAPPED_FROM,
    FEWEST_ASSIGNMENTS,
    MEMORY_CAPS,
    MOST_ASSIGNMENTS,
    MOST_ROWS,
    RUNS,
    SPARK_FROM,
    ComparisonSettings,
    rescaled,
)
from fedperf_simulations.corpus.measured_log import (
    MeasurementTask,
    Role,
    least_disturbed,
    read_log,
)
from fedperf_simulations.corpus.measurement import measure

SETTINGS = ComparisonSettings(seed=5, workloads=120, series=1, exhaustive=1)


@pytest.fixture(scope="module")
def tasks() -> tuple[MeasurementTask, ...]:
    with pytest.MonkeyPatch.context() as patch:
        everything = (*EMBEDDED_PLATFORMS, Platform.SPARK)
        patch.setattr(comparison_set, "installed_platforms", lambda: everything)
        return SETTINGS.tasks()


def of(tasks: Sequence[MeasurementTask], role: Role) -> dict[str, list[MeasurementTask]]:
    found: dict[str, list[MeasurementTask]] = {}
    for task in tasks:
        if task.role is role:
            found.setdefault(task.workload, []).append(task)
    return found


def test_comparison_set_is_deterministic_for_a_seed(tasks: Sequence[MeasurementTask]) -> None:
    small = ComparisonSettings(seed=5, workloads=12, series=1, exhaustive=1, spark_share=0.0)
    other = ComparisonSettings(seed=6, workloads=12, series=1, exhaustive=1, spark_share=0.0)
    assert small.tasks() == small.tasks()
    assert small.tasks() != other.tasks()
    assert len({task.task_id for task in tasks}) == len(tasks)


def test_comparison_set_plans_are_supported_by_their_platforms(
    tasks: Sequence[MeasurementTask],
) -> None:
    for task in tasks:
        pairs = zip(task.program.steps, task.platforms, strict=True)
        assert all(supports(step.operation, platform) for step, platform in pairs)
        assert task.rows <= MOST_ROWS[task.family] or task.role is Role.SERIES


def test_comparison_set_parts_share_no_workload(tasks: Sequence[MeasurementTask]) -> None:
    parts = [set(of(tasks, role)) for role in (Role.COMPARISON, Role.SERIES, Role.EXHAUSTIVE)]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_comparison_set_covers_families_evenly_with_single_and_mixed_plans(
    tasks: Sequence[MeasurementTask],
) -> None:
    compared = of(tasks, Role.COMPARISON)
    assert len(compared) == SETTINGS.workloads
    assert Counter(each[0].family for each in compared.values()) == dict.fromkeys(Family, 20)
    for runs in compared.values():
        plans = {task.platforms for task in runs}
        alone = {plan for plan in plans if len(set(plan)) == 1}
        assert {Platform.DUCKDB, Platform.POLARS, Platform.PANDAS} <= {p[0] for p in alone}
        assert len(plans) - len(alone) >= SETTINGS.mixed
        assert len(plans) == len(runs)
        assert {task.runs for task in runs} == {RUNS[Role.COMPARISON]}


def test_comparison_set_uses_memory_caps_and_spark_from_minimum_row_counts(
    tasks: Sequence[MeasurementTask],
) -> None:
    capped = [task for task in tasks if task.memory_bytes is not None]
    assert {task.memory_bytes for task in capped} == set(MEMORY_CAPS)
    assert min(task.rows for task in capped) >= CAPPED_FROM
    on_spark = [task for task in tasks if Platform.SPARK in task.platforms]
    assert on_spark
    assert min(task.rows for task in on_spark) >= SPARK_FROM
    assert all(len(set(task.platforms)) == 1 for task in on_spark)


def test_comparison_series_is_one_program_at_nine_input_sizes(
    tasks: Sequence[MeasurementTask],
) -> None:
    series = of(tasks, Role.SERIES)
    assert Counter(each[0].family for each in series.values()) == dict.fromkeys(Family, 1)
    for runs in series.values():
        assert len({task.rows for task in runs}) == 9
        for task in runs:
            reads = [
                s.operation for s in task.program.steps if isinstance(s.operation, ReadParquet)
            ]
            assert all(each.dataset.endswith(f"_{task.rows}") for each in reads)


def test_rescaled_program_keeps_its_workload_name(tasks: Sequence[MeasurementTask]) -> None:
    for task in tasks[::50]:
        larger = rescaled(task.program, 3_000_000)
        assert workload_name(larger) == task.workload
        assert rescaled(larger, task.rows) == task.program


def test_exhaustive_part_has_every_assignment_with_sinks_beside_their_input(
    tasks: Sequence[MeasurementTask],
) -> None:
    exhaustive = of(tasks, Role.EXHAUSTIVE)
    assert {each[0].family for each in exhaustive.values()} == set(Family)
    for runs in exhaustive.values():
        steps = runs[0].program.steps
        expected = 1
        for step in steps:
            if not isinstance(step.operation, Sink):
                expected *= len(supporting(step.operation))
        assert FEWEST_ASSIGNMENTS <= expected <= MOST_ASSIGNMENTS
        assert len({task.platforms for task in runs}) == len(runs) == expected
        for task in runs:
            for step, platform in zip(steps, task.platforms, strict=True):
                if isinstance(step.operation, Sink):
                    assert platform is task.platforms[step.inputs[0]]


@pytest.mark.slow
def test_measured_comparison_set_completes_and_records_memory_caps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_set, "CAPPED_FROM", 0)
    settings = ComparisonSettings(
        seed=1, workloads=2, mixed=1, capped_share=1.0, series=0, exhaustive=0, most_rows=1_000
    )
    found = measure(
        settings,
        log=tmp_path / "log.jsonl",
        data_directory=tmp_path / "data",
        clock=lambda: datetime.now(UTC),
    )
    assert found.done == found.tasks == len(settings.tasks())
    records = least_disturbed(read_log(tmp_path / "log.jsonl")[1])
    assert {each["status"] for each in records} == {ExecutionStatus.OK.name}
    caps = {task.task_id: task.memory_bytes for task in settings.tasks()}
    assert {each["task"]: each["cluster"]["memory_bytes"] for each in records} == caps


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workloads": 0}, "needs workloads"),
        ({"series": -1}, "no negative numbers"),
        ({"capped_share": float("nan")}, "capped_share must be in"),
        ({"most_rows": 5}, "most_rows must be one of"),
    ],
)
def test_comparison_settings_with_invalid_values_are_refused(
    wrong: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ComparisonSettings(seed=1, **wrong)  # type: ignore[arg-type]
