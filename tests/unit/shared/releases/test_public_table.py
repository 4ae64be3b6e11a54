"""Tests of the public table: an execution is reduced to enums and bounded numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.releases.basis import SIZE_BOUNDS, Cell, cell_of
from fedperf_shared.releases.public_table import (
    COLUMNS,
    METADATA,
    RUNTIME_BOUNDS,
    TABLE,
    InvalidTableRowError,
    TableRow,
    size_bounds,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import MAX_ROWS, OperatorClass, OperatorKind, Platform

CLUSTER = ClusterConfig(2, 8, 2**34, 1.25)


def joined(rows: float, platform: Platform = Platform.POLARS) -> Plan:
    operators = (
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 8.0),
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 8.0),
        Operator(OperatorKind.JOIN, OperatorClass.RELATIONAL, (0, 1), rows, 8.0),
    )
    return Plan.on_one_platform(Workflow(operators), platform)


ROWS = st.one_of(st.floats(0, MAX_ROWS), st.sampled_from([0.0, 0.5, *SIZE_BOUNDS]))


@given(rows=ROWS, label=st.floats(allow_nan=False), platform=st.sampled_from([*Platform][:5]))
def test_table_row_of_any_plan_round_trips_through_its_record(
    rows: float, label: float, platform: Platform
) -> None:
    plan = joined(rows, platform)
    row = TableRow.of(plan, CLUSTER, label)
    assert row.cell == cell_of(plan)
    assert (row.operators, row.sources) == (3, 2)
    assert RUNTIME_BOUNDS[0] <= row.log_seconds <= RUNTIME_BOUNDS[1]
    assert TableRow.from_record(row.as_record()) == row


def test_table_record_has_exactly_the_columns_of_the_public_schema() -> None:
    record = TableRow.of(joined(100.0), CLUSTER, 1.0).as_record()
    assert tuple(record) == COLUMNS
    assert tuple(METADATA["tables"][TABLE]["columns"]) == COLUMNS
    assert record["log_source_rows"] == math.log(200.0)


@pytest.mark.parametrize("size", range(len(SIZE_BOUNDS) + 1))
def test_table_size_groups_match_those_of_the_residual_cells(size: int) -> None:
    low, high = size_bounds(size)
    middle = math.exp((low + high) / 2)
    assert cell_of(joined(middle / 2)).size == size
    with pytest.raises(InvalidTableRowError, match="size"):
        size_bounds(len(SIZE_BOUNDS) + 1)


@pytest.mark.parametrize(
    "change",
    [
        {"platform": "flink"},
        {"platform": "/home/secret"},
        {"operator_class": "unknown"},
        {"size": 4},
        {"size": -1},
        {"nodes": 0},
        {"operators": 1, "sources": 2},
        {"operators": 513},
        {"sources": 0},
        {"log_source_rows": math.nan},
        {"log_seconds": math.nan},
        {"memory_bytes": math.inf},
    ],
)
def test_table_record_outside_the_schema_is_refused(
    change: dict[str, str | int | float],
) -> None:
    record = TableRow.of(joined(100.0), CLUSTER, 1.0).as_record() | change
    with pytest.raises(InvalidInputError):
        TableRow.from_record(record)


def test_table_record_with_missing_column_is_refused() -> None:
    record = TableRow.of(joined(100.0), CLUSTER, 1.0).as_record()
    del record["cores"]
    with pytest.raises(InvalidTableRowError, match="cores"):
        TableRow.from_record(record)


def test_table_row_with_source_rows_outside_its_size_group_is_refused() -> None:
    cell = Cell(Platform.POLARS, OperatorClass.ML, 2)
    with pytest.raises(InvalidTableRowError, match="log_source_rows"):
        TableRow(cell, CLUSTER, 3, 1, math.log(10.0), 0.0)
