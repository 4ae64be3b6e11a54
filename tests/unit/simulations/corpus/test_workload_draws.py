"""Tests of drawn workloads: they follow the settings and are deterministic."""

from statistics import median

import pytest

from fedperf_engines.platforms.engine import supports
from fedperf_engines.workloads.families import Family, single_platforms
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.comparison_set import large_settings, measuring_settings
from fedperf_simulations.corpus.measured_log import Role
from fedperf_simulations.corpus.resource_cap import Cap
from fedperf_simulations.corpus.workload_draws import MeasuringSettings, comparison_plans


def test_measuring_settings_tasks_are_deterministic_for_a_seed() -> None:
    settings = MeasuringSettings(seed=1, workloads=60, comparisons=5)
    assert settings.tasks() == settings.tasks()
    other = MeasuringSettings(seed=2, workloads=60, comparisons=5)
    assert settings.tasks() != other.tasks()


def test_drawn_workloads_are_distinct_with_supported_plans() -> None:
    tasks = MeasuringSettings(seed=1, workloads=400, comparisons=40).tasks()
    drawn = [task for task in tasks if task.role is Role.DRAWN]
    assert len({task.workload for task in drawn}) == 400
    assert {task.family for task in drawn} == set(Family) - {Family.EMBEDDINGS}
    assert len({task.task_id for task in tasks}) == len(tasks)
    for task in tasks:
        pairs = zip(task.program.steps, task.platforms, strict=True)
        assert all(supports(step.operation, platform) for step, platform in pairs)


@pytest.mark.slow
def test_drawn_tasks_match_the_shares_of_the_settings() -> None:
    tasks = MeasuringSettings(seed=1, workloads=1000, comparisons=100).tasks()
    drawn = [task for task in tasks if task.role is Role.DRAWN]
    assert 0.11 < sum(task.threads == 2 for task in drawn) / 1000 < 0.19
    assert 0.55 < sum(len(set(task.platforms)) == 1 for task in drawn) / 1000 < 0.85
    assert sum(task.rows == 1000 for task in drawn) > 3 * sum(t.rows == 10_000_000 for t in drawn)
    assert any(task.rows == 10_000_000 for task in drawn)
    assert len({t.workload for t in tasks if t.role is Role.COMPARISON}) == 100


def test_compared_workload_runs_on_every_platform_that_supports_it() -> None:
    tasks = MeasuringSettings(seed=1, workloads=50, comparisons=20).tasks()
    for compared in {t.workload for t in tasks if t.role is Role.COMPARISON}:
        runs = [task for task in tasks if task.workload == compared]
        plans = [task.platforms for task in runs]
        assert len(plans) == len(set(plans))
        steps = len(runs[0].program.steps)
        for platform in single_platforms(runs[0].program):
            assert (platform,) * steps in plans


def test_drawn_plans_can_be_limited_to_platforms_and_a_memory_cap() -> None:
    some = (Platform.DUCKDB, Platform.PANDAS)
    settings = MeasuringSettings(
        seed=1, workloads=60, comparisons=0, among=some, cap=Cap(0.5, 1 << 30)
    )
    tasks = settings.tasks()
    assert {platform for task in tasks for platform in task.platforms} == {*some}
    assert {task.memory_bytes for task in tasks} == {1 << 30}


def test_comparison_plans_of_ml_workload_include_duckdb_with_sklearn() -> None:
    tasks = MeasuringSettings(seed=1, workloads=50, comparisons=0).tasks()
    credit = next(task.program for task in tasks if task.family is Family.CREDIT)
    kinds = [set(plan) for plan in comparison_plans(credit)]
    assert {Platform.DUCKDB, Platform.SKLEARN} in kinds
    assert {Platform.DUCKDB} in kinds


@pytest.mark.parametrize(
    "wrong",
    [
        {"workloads": 0, "comparisons": 0},
        {"comparisons": 7000},
        {"two_threads_share": float("nan")},
        {"most_rows": 1234},
        {"small_weight": -0.5},
    ],
)
def test_measuring_settings_with_invalid_values_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        MeasuringSettings(seed=1, **wrong)  # type: ignore[arg-type]


def test_large_settings_draw_inputs_over_100_times_larger_on_three_engines() -> None:
    usual = median(task.rows for task in measuring_settings(1, 300, None, quick=False).tasks())
    large = large_settings(1, 300, quick=False)
    rows = [task.rows for task in large.tasks()]
    assert min(rows) == 3_000_000
    assert max(rows) == 30_000_000
    assert 100 <= median(rows) / usual <= 10_000
    engines = {platform for task in large.tasks() for platform in task.platforms}
    assert engines <= {Platform.DUCKDB, Platform.POLARS, Platform.PANDAS}
    assert MeasuringSettings(1).most_rows == 10_000_000


def test_measuring_settings_with_empty_row_range_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="least_rows"):
        MeasuringSettings(1, least_rows=3_000, most_rows=1_000)
