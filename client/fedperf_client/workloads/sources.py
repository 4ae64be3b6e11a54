"""Statistics of a program's sources that the cost model may know, measured on its data sets."""

from functools import lru_cache
from pathlib import Path

from fedperf_client.platforms import operations as ops
from fedperf_client.platforms.executor import dataset_path
from fedperf_client.platforms.program import Program
from fedperf_shared.workflow.graph import SourceStatistics


def source_statistics(program: Program, data_directory: Path) -> SourceStatistics:
    """Statistics of all sources together.

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
        names = ops.names_of(step.operation.columns)
        key = next((name for name in names if name in keys), names[0])
        path = dataset_path(data_directory, step.operation.dataset)
        found = _measure(path, key, names)
        columns += len(names)
        rows, distinct, nulls = rows + found[0], distinct + found[1], nulls + found[3]
        values += found[0] * len(names)
        top_key_share = max(top_key_share, found[2] / max(found[0], 1))
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
def _measure(path: Path, key: str, names: tuple[str, ...]) -> tuple[int, int, int, int]:
    """Rows, distinct keys, rows of the most frequent key, missing values."""
    import duckdb

    with duckdb.connect() as connection:
        table = connection.read_parquet(str(path))
        counts = table.aggregate(f'"{key}", count(*) AS rows_of_key', f'"{key}"')
        summary = "coalesce(sum(rows_of_key), 0)::BIGINT, count(*), coalesce(max(rows_of_key), 0)"
        rows, distinct, top = counts.aggregate(summary).fetchall()[0]
        missing = " + ".join(f'(count(*) - count("{name}"))' for name in names)
        nulls = table.aggregate(missing).fetchall()[0][0]
    return rows, distinct, top, nulls
