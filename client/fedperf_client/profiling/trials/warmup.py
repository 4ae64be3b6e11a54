"""Something small for every engine to do, so that the first trial finds it awake.

What engines load when first used (codecs, kernels, thread pools, parsers) would
otherwise be measured as part of the first trial of a process. Spark starts its session
here.
"""

import contextlib
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedperf_client.platforms.engine import Engine, open_engine
from fedperf_client.platforms.operations.analytic import KMeans, LinearRegression, PageRank
from fedperf_client.platforms.operations.catalogue import AnyOperation
from fedperf_client.platforms.operations.columns import Column, ColumnType
from fedperf_client.platforms.operations.expressions import (
    AggregateFunction,
    Aggregation,
    Arithmetic,
    ArithmeticOperator,
    Comparison,
    ComputedColumn,
    Order,
)
from fedperf_client.platforms.operations.tabular import (
    Aggregate,
    Filter,
    Join,
    Project,
    ReadParquet,
    Sink,
    Sort,
    Tokenize,
    TopK,
)
from fedperf_client.platforms.program import Program, Step, from_json, to_json
from fedperf_client.platforms.support import supports
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_client.platforms.arrow import Table

_ROWS = 64
_COLUMNS = (
    Column("key", ColumnType.INTEGER),
    Column("other", ColumnType.INTEGER),
    Column("value", ColumnType.FLOAT),
    Column("text", ColumnType.TEXT),
)
_READ = ReadParquet("warmup", _COLUMNS)
_OPERATIONS: tuple[AnyOperation, ...] = (
    Filter("value", Comparison.GREATER, 0.5),
    Project(
        ("key",), (ComputedColumn("twice", "value", (Arithmetic(ArithmeticOperator.ADD, 1.0),)),)
    ),
    Aggregate(("key",), (Aggregation(AggregateFunction.SUM, "total", "value"),)),
    Join("key", "key", "_right"),
    Sort((Order("value"),)),
    TopK((Order("value", descending=True),), 3),
    Tokenize("text"),
    PageRank("key", "other", 2),
    KMeans(("value",), 2, 2),
    LinearRegression(("value",), "key"),
)


def warm_up(
    platforms: Sequence[Platform], threads: int, *, memory_bytes: int | None = None
) -> None:
    """Import the engines of `platforms`, run each on a few rows, close them again.

    `threads` and `memory_bytes` as in `open_engine`.
    """
    from_json(to_json(Program((Step(_READ), Step(Sink(), (0,))))))
    if not platforms:
        return
    from pyarrow import csv, parquet

    # From text, because `pyarrow.array` imports pandas to find out whether it was given a series.
    lines = (f"{n % 8},{(n * 5 + 1) % 8},{n / _ROWS + 0.001},some few words" for n in range(_ROWS))
    table = csv.read_csv(BytesIO("\n".join(["key,other,value,text", *lines]).encode()))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "warmup.parquet"
        parquet.write_table(table, path)
        for platform in platforms:
            engine = open_engine(platform, threads=threads, memory_bytes=memory_bytes)
            _warm_up_engine(engine, platform, table, path)
            engine.close()


def _warm_up_engine(engine: Engine[Any], platform: Platform, table: "Table", path: Path) -> None:
    reads = supports(_READ, platform)
    names = tuple(column.name for column in _COLUMNS)
    for operation in _OPERATIONS:
        if not supports(operation, platform):
            continue
        # An operation that fails here fails in its trial too, and there it is data.
        with contextlib.suppress(Exception):
            frames = [
                engine.read(path, names) if reads else engine.load(table)
                for _ in range(operation.arity)
            ]
            engine.collect(engine.apply(operation, frames))
