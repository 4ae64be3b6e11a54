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

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.engine import Engine, open_engine
from fedperf_engines.platforms.program import Program, Step, from_json, to_json
from fedperf_engines.platforms.support import supports
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_engines.platforms.arrow import Table

_ROWS = 64
_COLUMNS = (
    ops.Column("key", ops.ColumnType.INTEGER),
    ops.Column("other", ops.ColumnType.INTEGER),
    ops.Column("value", ops.ColumnType.FLOAT),
    ops.Column("text", ops.ColumnType.TEXT),
)
_READ = ops.ReadParquet("warmup", _COLUMNS)
_OPERATIONS: tuple[ops.AnyOperation, ...] = (
    ops.Filter("value", ops.Comparison.GREATER, 0.5),
    ops.Project(
        ("key",),
        (ops.ComputedColumn("twice", "value", (ops.Arithmetic(ops.ArithmeticOperator.ADD, 1.0),)),),
    ),
    ops.Aggregate(("key",), (ops.Aggregation(ops.AggregateFunction.SUM, "total", "value"),)),
    ops.Join("key", "key", "_right"),
    ops.Sort((ops.Order("value"),)),
    ops.TopK((ops.Order("value", descending=True),), 3),
    ops.Tokenize("text"),
    ops.PageRank("key", "other", 2),
    ops.KMeans(("value",), 2, 2),
    ops.LinearRegression(("value",), "key"),
)


def warm_up(
    platforms: Sequence[Platform], threads: int, *, memory_bytes: int | None = None
) -> None:
    """Import the engines of `platforms`, run each on a few rows, close them again.

    `threads` and `memory_bytes` as in `open_engine`.
    """
    from_json(to_json(Program((Step(_READ), Step(ops.Sink(), (0,))))))
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
