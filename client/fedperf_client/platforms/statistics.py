"""True sizes of every step of a program, by an extra run that nobody times.

DuckDB runs the program step by step and materializes each result, so the numbers
do not depend on the plan that is being measured.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.platforms import operations as ops
from fedperf_client.platforms.executor import dataset_path, require_runnable
from fedperf_client.platforms.program import Program, StepStatistics
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_client.platforms.duckdb_engine import DuckDbEngine
    from fedperf_client.platforms.duckdb_query import DuckDbQuery

NUMBER_BYTES = 8.0
TEXT_OFFSET_BYTES = 4.0
"""What a value takes in memory: 8 bytes for a number, text its bytes and an offset."""


@dataclass(frozen=True, slots=True)
class _MeasuredFrame:
    frame: "DuckDbQuery"
    rows: int
    row_bytes: float


def count_rows(program: Program, *, data_directory: Path) -> tuple[StepStatistics, ...]:
    """Rows, mean row bytes and key distinct ratio of every step.

    Raises:
        DatasetMissingError: a data set is not there.
    """
    from fedperf_client.platforms import duckdb_engine

    everywhere = (Platform.DUCKDB,) * len(program.steps)
    require_runnable(program, everywhere, data_directory=data_directory)
    engine = duckdb_engine.DuckDbEngine(threads=1)
    try:
        return _count(program, engine=engine, data_directory=data_directory)
    finally:
        engine.close()


def _count(
    program: Program, *, engine: "DuckDbEngine", data_directory: Path
) -> tuple[StepStatistics, ...]:
    measured: dict[int, _MeasuredFrame] = {}
    statistics: list[StepStatistics] = []
    for position, (step, schema) in enumerate(zip(program.steps, program.schemas(), strict=True)):
        inputs = [measured[parent] for parent in step.inputs]
        if isinstance(step.operation, ops.ReadParquet):
            path = dataset_path(data_directory, step.operation.dataset)
            result = _measure(engine, engine.keep(engine.read(path, ops.names_of(schema))), schema)
        elif isinstance(step.operation, ops.Sink):
            result = inputs[0]
        else:
            frame = engine.apply(step.operation, [each.frame for each in inputs])
            result = _measure(engine, engine.keep(frame), schema)
        measured[position] = result
        ratio = _key_distinct_ratio(engine, step.operation, inputs=inputs, result=result)
        statistics.append(StepStatistics(result.rows, result.row_bytes, ratio))
        for parent in step.inputs:
            if max(program.consumers[parent]) <= position:
                measured.pop(parent, None)
    return tuple(statistics)


def _measure(engine: "DuckDbEngine", frame: "DuckDbQuery", schema: ops.Schema) -> _MeasuredFrame:
    texts = [column.name for column in schema if column.type is ops.ColumnType.TEXT]
    figures = ["count(*)", *(f'avg(strlen("{name}"))' for name in texts)]
    rows, *means = engine.fetch(frame.select(figures, figures))[0]
    if not rows:
        return _MeasuredFrame(frame, 0, 0.0)
    numbers = NUMBER_BYTES * (len(schema) - len(texts))
    return _MeasuredFrame(frame, rows, numbers + sum(means) + TEXT_OFFSET_BYTES * len(texts))


def _key_distinct_ratio(
    engine: "DuckDbEngine",
    operation: ops.AnyOperation,
    *,
    inputs: list[_MeasuredFrame],
    result: _MeasuredFrame,
) -> float:
    total = sum(each.rows for each in inputs)
    if not total:
        return 0.0
    match operation:
        case ops.Aggregate() | ops.Distinct() | ops.PageRank():
            distinct = result.rows
        case ops.Join(left_key=left_key, right_key=right_key):
            distinct = _distinct(engine, inputs[0], (left_key,))
            distinct += _distinct(engine, inputs[1], (right_key,))
        case ops.Window(partition=partition):
            distinct = _distinct(engine, inputs[0], partition)
        case _:
            return 0.0
    return min(distinct / total, 1.0)


def _distinct(engine: "DuckDbEngine", measured: _MeasuredFrame, columns: tuple[str, ...]) -> int:
    names = ", ".join(f'"{name}"' for name in columns)
    distinct = measured.frame.select([f"DISTINCT {names}"], columns)
    count: int = engine.fetch(distinct.select(["count(*)"], ["count"]))[0][0]
    return count
