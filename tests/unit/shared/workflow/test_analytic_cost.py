"""Tests of the analytic cost model: counted work, coefficients, cores and cold engines."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.analytic_cost import (
    PRICES_PATH,
    TASK_ROWS,
    UNITS,
    CostCoefficients,
    Placements,
    Work,
    WorkflowColumns,
    shipped_prices,
)
from fedperf_shared.workflow.features import featurize, featurize_assignments
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import (
    MAX_ROW_BYTES,
    MAX_ROWS,
    RUNS_PYTHON,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)

K = OperatorKind
CLUSTER = ClusterConfig(1, 1, 64 * 2**30)


def chain(*operators: tuple[OperatorKind, float], row_bytes: float = 16.0) -> Workflow:
    """Return a linear workflow of operators with these output rows."""
    return Workflow(
        tuple(
            Operator(
                kind,
                OperatorClass.RELATIONAL,
                (place - 1,) if place else (),
                output_rows=rows,
                row_bytes=row_bytes,
            )
            for place, (kind, rows) in enumerate(operators)
        )
    )


def seconds(
    workflow: Workflow,
    prices: dict[str, float],
    cluster: ClusterConfig = CLUSTER,
    platform: Platform = Platform.SPARK,
) -> float:
    """Return seconds on one platform. All cost coefficients except `prices` are 0."""
    found = CostCoefficients.of(
        {"other": {"speedup": 1.0}, platform.name.lower(): {"speedup": 1.0} | prices}
    )
    columns = WorkflowColumns.of((workflow, topological_order(workflow)))
    platforms = np.full((1, len(workflow.operators)), int(platform))
    placed = Placements.of(columns, platforms)
    return float(np.exp(Work.of(columns, placed, cluster).log_seconds(found)[0]))


SCAN = chain((K.FILE_SOURCE, 1e6), (K.FILTER, 1e5), (K.AGGREGATE, 100.0))


def test_cost_coefficients_cover_every_platform_and_unit() -> None:
    content = json.loads(PRICES_PATH.read_bytes())
    for platform in Platform:
        if not platform.name.startswith("RESERVED"):
            assert content[platform.name.lower()].keys() == {"speedup", *UNITS}
    assert (shipped_prices().seconds >= 0).all()
    assert ((shipped_prices().speedup >= 0) & (shipped_prices().speedup <= 1)).all()


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ({"start": 2.0}, 2.0),
        ({"one_filter": 0.5}, 0.5),
        ({"row_filter": 1e-6}, 1.0),
        ({"out_row_aggregate": 1e-2}, 1.0),
        ({"row_aggregate": 1e-5}, 1.0),
        ({"scan_byte": 1e-7}, 1.6),
        ({"row_filter": 1e-6, "start": 2.0}, 3.0),
    ],
)
def test_analytic_cost_is_counted_work_times_cost_coefficients(
    prices: dict[str, float], expected: float
) -> None:
    assert seconds(SCAN, prices) == pytest.approx(expected)


def test_analytic_cost_of_sort_and_cross_join_grows_faster_than_rows() -> None:
    ordered = chain((K.TABLE_SOURCE, 1e6), (K.SORT, 1e6))
    assert seconds(ordered, {"row_sort": 1e-6}) == pytest.approx(math.log2(2 + 1e6))
    sides = chain((K.TABLE_SOURCE, 1e3), (K.TABLE_SOURCE, 2e3)).operators
    other = replace(sides[1], inputs=())
    crossed = Operator(K.CROSS, OperatorClass.RELATIONAL, (0, 1), output_rows=5.0)
    workflow = Workflow((sides[0], other, crossed))
    assert seconds(workflow, {"row_cross": 1e-6}) == pytest.approx(2.0)


def test_analytic_cost_divides_parallel_work_by_cores_up_to_partitions() -> None:
    prices = {"row_filter": 1e-6, "start": 1.0}
    workflow = replace(
        SCAN, operators=tuple(replace(each, partitions=3) for each in SCAN.operators)
    )
    for cores, shared in ((1, 1), (2, 2), (3, 3), (64, 3)):
        found = seconds(workflow, prices, replace(CLUSTER, cores=cores))
        assert found == pytest.approx(1.0 + 1.0 / shared)


def test_analytic_cost_keeps_partition_count_until_an_exchange() -> None:
    source, moved, mapped = chain((K.FILE_SOURCE, 1e6), (K.EXCHANGE, 1e6), (K.MAP, 1e6)).operators
    workflow = Workflow((replace(source, partitions=7), replace(moved, partitions=2), mapped))
    found = seconds(workflow, {"row_map": 1e-6}, replace(CLUSTER, cores=64))
    assert found == pytest.approx(1 / 2)
    assert seconds(workflow, {"task_dispatch": 0.1}) == pytest.approx(0.9)


def test_analytic_cost_of_broadcast_join_keeps_tasks_of_the_large_side() -> None:
    large, small = chain((K.FILE_SOURCE, 64 * TASK_ROWS), (K.EXCHANGE, 10.0)).operators
    sent = replace(small, inputs=(1,), partitions=1)
    sides = (large, replace(large, output_rows=10.0), sent)
    joined = Operator(K.JOIN, OperatorClass.RELATIONAL, (0, 2), output_rows=64 * TASK_ROWS)
    mapped = Operator(K.MAP, OperatorClass.RELATIONAL, (3,), output_rows=64 * TASK_ROWS)
    workflow, price = Workflow((*sides, joined, mapped)), {"row_map": 1 / (64 * TASK_ROWS)}
    for cores in (1, 8, 64):
        found = seconds(workflow, price, replace(CLUSTER, cores=cores))
        assert found == pytest.approx(1 / cores)


def test_analytic_cost_includes_cold_engine_overhead_that_decays_with_queries() -> None:
    prices = {"first_query": 1.0, "cold_operator": 1.0}
    found = [
        seconds(SCAN, prices, replace(CLUSTER, queries_before=before)) for before in (0, 1, 3, 1023)
    ]
    assert found[0] == pytest.approx(1.0 + 3.0)
    assert found[1] == pytest.approx(3 * 2**-1.1)
    assert found == sorted(found, reverse=True)
    assert found[3] < 0.01


def test_analytic_cost_includes_spilling_beyond_memory() -> None:
    grouped = chain((K.TABLE_SOURCE, 1e6), (K.AGGREGATE, 1e6))  # 16 MB of input
    prices = {"spilled_byte": 1e-6}
    small = replace(CLUSTER, memory_bytes=20_000_000)
    assert seconds(grouped, prices, small) == pytest.approx(16.0 - 0.3 * 20)
    assert seconds(grouped, {"start": 1.0, **prices}) == pytest.approx(1.0)


def test_analytic_cost_of_user_code_scales_with_steps_and_python_rows() -> None:
    source, mapped = chain((K.TABLE_SOURCE, 1e6), (K.MAP, 1e6)).operators
    steps = replace(mapped, complexity=Complexity.LINEAR, code_steps=8)
    assert seconds(Workflow((source, steps)), {"row_map": 1e-6}) == pytest.approx(2.0)
    python = replace(mapped, complexity=Complexity.LINEAR, code_steps=RUNS_PYTHON)
    found = seconds(
        Workflow((source, python)), {"row_map": 1e-6, "python_row": 2e-6, "python": 1.0}
    )
    assert found == pytest.approx(1.0 + 1.0 + 2.0)


def test_analytic_cost_of_platform_switch_is_fixed_cost_plus_bytes() -> None:
    workflow = chain((K.TABLE_SOURCE, 1e6), (K.MAP, 1e6))
    columns = WorkflowColumns.of((workflow, (0, 1)))
    free = {"speedup": 1.0}
    prices = CostCoefficients.of(
        {"other": free, "polars": free | {"switch": 1.0, "switch_byte": 1e-7}}
    )
    platforms = np.array([[Platform.DUCKDB, Platform.POLARS], [Platform.POLARS, Platform.POLARS]])
    work = Work.of(columns, Placements.of(columns, platforms), CLUSTER)
    mixed, alone = np.exp(work.log_seconds(prices))
    assert mixed == pytest.approx(1.0 + 1.6)
    assert alone < 1e-4


def test_analytic_cost_is_linear_in_rows_for_large_inputs() -> None:
    prices = {"row_filter": 1e-9, "row_aggregate": 1e-9, "scan_byte": 1e-10}
    sizes = [seconds(chain((K.FILE_SOURCE, n), (K.FILTER, n), (K.AGGREGATE, n)), prices)
             for n in (1e9, 2e9, 4e9)]  # fmt: skip
    assert sizes[1] == pytest.approx(2 * sizes[0])
    assert sizes[2] == pytest.approx(4 * sizes[0])


def test_analytic_cost_of_extreme_work_is_finite() -> None:
    operators = tuple(
        Operator(
            K.CROSS, OperatorClass.RELATIONAL, (p - 1,) * 9 if p else (), MAX_ROWS, MAX_ROW_BYTES
        )
        for p in range(60)
    )
    huge = Plan.on_one_platform(Workflow(operators), Platform.PANDAS)
    assert math.isfinite(featurize(huge, CLUSTER).analytic_log_seconds)
    nothing = Plan.on_one_platform(chain((K.TABLE_SOURCE, 0.0)), Platform.DUCKDB)
    fast = replace(CLUSTER, machine_speed=1e9)
    assert math.isfinite(featurize(nothing, fast).analytic_log_seconds)


def test_analytic_cost_of_a_plan_is_independent_of_its_batch() -> None:
    platforms = [
        (a, b, Platform.DUCKDB) for a in (Platform.SPARK, Platform.POLARS) for b in (0, 1, 2, 4)
    ]
    assignments = [tuple(Platform(each) for each in plan) for plan in platforms]
    together = featurize_assignments(SCAN, assignments, CLUSTER)
    for assignment, found in zip(assignments, together, strict=True):
        alone = featurize(Plan(SCAN, assignment), CLUSTER)
        assert found.analytic_log_seconds == alone.analytic_log_seconds
