"""Deadlines and training support depend on the platform of the plan."""

import math
from dataclasses import replace

import pytest

from fedperf_client.prediction.ensemble.training_data import TrainingSupport
from fedperf_client.prediction.serving.what_if import is_beyond_its_platforms, no_promise
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.model.pretrained import shipped_widths
from fedperf_shared.workflow.vocabulary import MAX_ROWS, Platform
from tests.unit.client.executions import chain_plan
from tests.unit.client.prediction.synthetic import hull_around


def on(platform: Platform, cores: int, rows: float = 1000.0) -> PlanOnCluster:
    plan = chain_plan(platform=platform)
    first, *others = plan.workflow.operators
    operators = (replace(first, output_rows=rows), *others)
    workflow = replace(plan.workflow, operators=operators)
    return PlanOnCluster(replace(plan, workflow=workflow), ClusterConfig(1, cores, 2**33))


HULL = hull_around([on(Platform.DUCKDB, 1), on(Platform.DUCKDB, 2), on(Platform.SPARK, 128)])
EMPTY = hull_around([])


@pytest.mark.parametrize(
    ("platform", "cores", "is_beyond"),
    [
        (Platform.DUCKDB, 1, False),
        (Platform.DUCKDB, 2, False),
        (Platform.DUCKDB, 8, True),
        (Platform.SPARK, 128, False),
        (Platform.SPARK, 2, True),
        (Platform.POLARS, 64, False),
    ],
)
def test_cluster_size_is_beyond_support_by_cores_of_same_platform(
    platform: Platform, cores: int, is_beyond: bool
) -> None:
    assert is_beyond_its_platforms(on(platform, cores), HULL) == is_beyond


@pytest.mark.parametrize(
    ("hull", "platform", "most"),
    [
        (HULL, Platform.SPARK, 8 * 128),
        (HULL, Platform.DUCKDB, 8 * shipped_widths()[Platform.DUCKDB].most_cores),
        (EMPTY, Platform.SPARK, 8 * shipped_widths()[Platform.SPARK].most_cores),
    ],
)
def test_deadline_beyond_eight_times_measured_cores_is_not_promised(
    hull: TrainingSupport, platform: Platform, most: float
) -> None:
    assert no_promise(on(platform, int(most)), hull) is None
    assert no_promise(on(platform, int(most) + 1), hull)


def test_deadline_on_unmeasured_platform_is_promised_only_near_own_runs() -> None:
    assert no_promise(on(Platform.FLINK, 1), EMPTY)
    assert no_promise(on(Platform.FLINK, 32), EMPTY, ran_on=4) is None
    assert no_promise(on(Platform.FLINK, 33), EMPTY, ran_on=4)


def test_deadline_beyond_hundred_times_measured_rows_is_not_promised() -> None:
    most = 100 * shipped_widths()[Platform.DUCKDB].most_rows
    assert math.isfinite(most)
    assert no_promise(on(Platform.DUCKDB, 2, most), EMPTY) is None
    assert no_promise(on(Platform.DUCKDB, 2, 1.01 * most), EMPTY)
    assert no_promise(on(Platform.DUCKDB, 2, MAX_ROWS), EMPTY)
