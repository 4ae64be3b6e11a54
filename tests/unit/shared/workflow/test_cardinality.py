"""Tests of cardinalities: facts that are known before a run, and estimates."""

from dataclasses import replace

import pytest

from fedperf_shared.workflow.cardinality import (
    estimated_rows,
    has_rows_before_run,
    plan_with_estimated_cardinalities,
    with_estimates,
    workflow_before,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import MAX_ROWS, OperatorClass, OperatorKind, Platform
from fedperf_simulations.baselines.prefixes import workflow_prefix

K = OperatorKind


def operator(kind: OperatorKind, *inputs: int, rows: float = 7.0, partitions: int = 0) -> Operator:
    return Operator(
        kind,
        OperatorClass.RELATIONAL,
        inputs,
        output_rows=rows,
        row_bytes=8.0,
        key_distinct_ratio=0.5 if kind is K.AGGREGATE else 0.0,
        partitions=partitions,
    )


PLAN = Plan.on_one_platform(
    Workflow(
        (
            operator(K.FILE_SOURCE, rows=900.0, partitions=4),
            operator(K.FILTER, 0, rows=1.0),
            operator(K.EXCHANGE, 1, rows=1.0, partitions=200),
            operator(K.AGGREGATE, 2, rows=1.0),
            operator(K.TABLE_SOURCE, rows=10.0),
            operator(K.EXCHANGE, 4, rows=3.0, partitions=1),
            operator(K.JOIN, 3, 5, rows=1e6),
        )
    ),
    Platform.SPARK,
)


def test_estimated_cardinalities_derive_from_known_source_rows() -> None:
    found = plan_with_estimated_cardinalities(PLAN)
    rows = [each.output_rows for each in found.workflow.operators]
    assert rows == pytest.approx([900.0, 300.0, 300.0, 300.0**0.5, 10.0, 10.0, 300.0**0.5])
    assert [each.partitions for each in found.workflow.operators] == [4, 0, 0, 0, 0, 1, 0]
    assert found.workflow.operators[3].key_distinct_ratio == pytest.approx(300.0**-0.5)
    assert found.platforms == PLAN.platforms


def exchanged_into(reader: OperatorKind, *partitions: int) -> list[int]:
    """Return the partitions of exchanges below `reader` that are known before a run."""
    sources = [operator(K.FILE_SOURCE, rows=90.0) for _ in partitions]
    exchanges = [
        operator(K.EXCHANGE, place, partitions=each) for place, each in enumerate(partitions)
    ]
    below = range(len(sources), 2 * len(sources))
    workflow = Workflow((*sources, *exchanges, operator(reader, *below)))
    found = plan_with_estimated_cardinalities(
        Plan.on_one_platform(workflow, Platform.SPARK)
    ).workflow.operators
    return [each.partitions for each in found if each.kind is K.EXCHANGE]


def test_estimated_plan_keeps_one_partition_only_where_the_plan_implies_it() -> None:
    assert exchanged_into(K.GLOBAL_AGGREGATE, 1) == [1]
    assert exchanged_into(K.AGGREGATE, 1) == [0]
    assert exchanged_into(K.SORT, 1) == [0]
    assert exchanged_into(K.JOIN, 1, 1) == [0, 0]


def test_estimated_cardinalities_are_independent_of_measured_rows() -> None:
    told = tuple(
        each if has_rows_before_run(each) else replace(each, output_rows=5 * each.output_rows)
        for each in PLAN.workflow.operators
    )
    assert plan_with_estimated_cardinalities(
        Plan(Workflow(told), PLAN.platforms)
    ) == plan_with_estimated_cardinalities(PLAN)
    assert plan_with_estimated_cardinalities(
        plan_with_estimated_cardinalities(PLAN)
    ) == plan_with_estimated_cardinalities(PLAN)


@pytest.mark.parametrize(
    ("kind", "given", "rows"),
    [
        (K.GLOBAL_AGGREGATE, [50.0], 1.0),
        (K.TOPK, [5000.0], 100.0),
        (K.TOPK, [5.0], 5.0),
        (K.UNION, [5.0, 6.0], 11.0),
        (K.CROSS, [5.0, 6.0], 30.0),
        (K.CROSS, [1e9, 1e9], MAX_ROWS),
        (K.FLATMAP, [5.0], 15.0),
        (K.SORT, [5.0], 5.0),
        (K.COMMAND, [], 0.0),
    ],
)
def test_estimated_rows_follow_the_operator_kind(
    kind: OperatorKind, given: list[float], rows: float
) -> None:
    assert estimated_rows(kind, given) == rows


def test_workflow_rows_are_estimates_flag_is_set_only_if_rows_are_not_implied() -> None:
    before = workflow_before(PLAN.workflow)
    assert before.rows_are_estimates
    assert not PLAN.workflow.rows_are_estimates
    assert workflow_before(
        workflow_prefix(before, [0])
    ).rows_are_estimates  # the prefix keeps the flag
    assert not workflow_before(workflow_prefix(PLAN.workflow, [0])).rows_are_estimates
    sorted_rows = (operator(K.FILE_SOURCE), operator(K.SORT, 0), operator(K.SINK, 1))
    assert not workflow_before(Workflow(sorted_rows)).rows_are_estimates
    joined = (operator(K.FILE_SOURCE), operator(K.FILE_SOURCE), operator(K.JOIN, 0, 1))
    assert workflow_before(Workflow(joined)).rows_are_estimates
    assert not with_estimates(Workflow(joined), [], [2]).rows_are_estimates
