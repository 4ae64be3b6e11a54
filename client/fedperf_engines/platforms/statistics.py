"""Actual cardinalities of every step of a program, by an extra untimed run, and of its sources.

DuckDB runs the program step by step and materializes each result, so the numbers do not depend on
the measured plan.
"""

from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.executor import dataset_path, require_runnable
from fedperf_engines.platforms.program import Program, StepStatistics
from fedperf_shared.workflow.graph import SourceStatistics
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_engines.platforms.duckdb_engine import DuckDbEngine, DuckDbQuery

NUMBER_BYTES = 8.0
# What a value takes in memory: 8 bytes for a number, text its bytes and an offset.
TEXT_OFFSET_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class _MeasuredFrame:
    frame: "DuckDbQuery"
    rows: int
    row_bytes: float


def count_rows(program: Program, *, data_directory: Path) -> tuple[StepStatistics, ...]:
    """Return rows, mean row bytes and key distinct ratio of every step.

    Raises:
        DatasetMissingError: a data set is not there.
    """
    from fedperf_engines.platforms import duckdb_engine

    everywhere = (Platform.DUCKDB,) * len(program.steps)
    require_runnable(program, everywhere, data_directory=data_directory)
    with closing(duckdb_engine.DuckDbEngine(threads=1)) as engine:
        return _count(program, engine=engine, data_directory=data_directory)


def _count(
    program: Program, *, engine: "DuckDbEngine", data_directory: Path
) -> tuple[StepStatistics, ...]:
    measured: dict[int, _MeasuredFrame] = {}
    statistics: list[StepStatistics] = []
    for position, (step, schema) in enumerate(zip(program.steps, program.schemas(), strict=True)):
        inputs = [measured[parent] for parent in step.inputs]
        if isinstance(step.operation, ops.ReadParquet):
            path = dataset_path(data_directory, step.operation.dataset)
            result = _measure(
                engine, engine.keep(engine.read(path, ops.column_names(schema))), schema
            )
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


def source_statistics(program: Program, data_directory: Path) -> SourceStatistics:
    """Return statistics of all sources together.

    A source's key is its first column that the program groups, joins, partitions or
    ranks by (else its first column). `columns` and `null_ratio` cover the columns
    read, `distinct_ratio` is distinct keys / rows over all sources, `top_key_share` the
    largest share that one key has of its source. Data sets do not change, so
    measurements are kept for the life of the process.
    """
    keys = _key_names(program)
    rows = distinct = nulls = values = 0
    columns = 0
    top_key_share = 0.0
    for step in program.steps:
        if not isinstance(step.operation, ops.ReadParquet):
            continue
        names = ops.column_names(step.operation.columns)
        key = next((name for name in names if name in keys), names[0])
        path = dataset_path(data_directory, step.operation.dataset)
        part = _measure_source(path, key, names)
        columns += len(names)
        rows, distinct, nulls = rows + part[0], distinct + part[1], nulls + part[3]
        values += part[0] * len(names)
        top_key_share = max(top_key_share, part[2] / max(part[0], 1))
    return SourceStatistics(columns, top_key_share, distinct / max(rows, 1), nulls / max(values, 1))


def _key_names(program: Program) -> set[str]:
    names: set[str] = set()
    for step in program.steps:
        match step.operation:
            case ops.Aggregate(keys=keys):
                names.update(keys)
            case ops.Distinct(columns=columns):
                names.update(columns)
            case ops.Window(partition=partition):
                names.update(partition)
            case ops.Join(left_key=left_key, right_key=right_key):
                names.update((left_key, right_key))
            case ops.PageRank(source=source):
                names.add(source)
    return names


@lru_cache(maxsize=4096)
def _measure_source(path: Path, key: str, names: tuple[str, ...]) -> tuple[int, int, int, int]:
    """Return rows, distinct keys, rows of the most frequent key, missing values."""
    import duckdb

    with duckdb.connect() as connection:
        table = connection.read_parquet(str(path))
        counts = table.aggregate(f'"{key}", count(*) AS rows_of_key', f'"{key}"')
        summary = "coalesce(sum(rows_of_key), 0)::BIGINT, count(*), coalesce(max(rows_of_key), 0)"
        rows, distinct, top = counts.aggregate(summary).fetchall()[0]
        missing = " + ".join(f'(count(*) - count("{name}"))' for name in names)
        nulls = table.aggregate(missing).fetchall()[0][0]
    return rows, distinct, top, nulls
