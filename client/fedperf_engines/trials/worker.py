"""The child process of trials: warms up its engines, then runs one request after the other.

Requests and replies are JSON (see `workers.child_side`). The process imports only the engines that
it was started for and runs each on a few rows before the first request, because codecs, kernels,
thread pools and parsers would otherwise be measured as part of the first trial. Spark starts its
session here. When the parent is gone, this process ends at once, with its own children and its
scratch directory.

The clock runs around the work alone: parsing the program before it and cleaning up after it are not
measured.
"""

import contextlib
import ctypes
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import psutil

from fedperf_client.workers.child_side import (
    Json,
    channel_to_parent,
    die_before_parent,
    failure,
    measured,
    moved_bytes,
    requests_of_parent,
    used_besides,
)
from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.engine import Engine, open_engine, supports
from fedperf_engines.platforms.executor import RunResult, run_plan
from fedperf_engines.platforms.program import Program, Step, from_json, to_json
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from pyarrow import Table


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


_OUT_OF_MEMORY_ERRORS = frozenset({"OutOfMemoryException", "ArrowMemoryError"})


@dataclass(frozen=True, slots=True)
class _Settings:
    """The purpose of this process; see `profiler.WorkerKey`."""

    platforms: Sequence[str]
    threads: int
    memory_bytes: int | None
    cores: Sequence[int]
    scratch: str


def serve(engines: "EnginesOfPlatforms") -> None:
    """Warm up by the settings of the first message, then serve requests of the parent."""
    channel = channel_to_parent()
    settings = _Settings(**orjson.loads(channel.receive()))
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
    die_before_parent()
    requests = requests_of_parent(channel, settings.scratch)
    platforms = [Platform[name] for name in settings.platforms]
    engines.warm_up(platforms, settings.threads, settings.memory_bytes)
    gc.collect()
    gc.freeze()  # imported modules are not garbage: later collections take no time
    channel.send(orjson.dumps({"ready": True}))
    while True:
        reply = _reply(engines, requests.get(), settings)
        _clean()
        resident = psutil.Process().memory_info().rss
        channel.send(orjson.dumps(reply | {"resident_bytes": resident}))


class EnginesOfPlatforms:
    """Runs programs with the engines of `fedperf_engines.platforms`."""

    def warm_up(
        self, platforms: Sequence[Platform], threads: int, memory_bytes: int | None
    ) -> None:
        """Import the engines of `platforms`, run each on a few rows, close them again.

        `threads` and `memory_bytes` as in `open_engine`.
        """
        from_json(to_json(Program((Step(_READ), Step(ops.Sink(), (0,))))))
        if not platforms:
            return
        from pyarrow import csv, parquet

        # From text: `pyarrow.array` imports pandas to find out whether it was given a series.
        words = "some few words"
        lines = (f"{n % 8},{(n * 5 + 1) % 8},{n / _ROWS + 0.001},{words}" for n in range(_ROWS))
        table = csv.read_csv(BytesIO("\n".join(["key,other,value,text", *lines]).encode()))
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "warmup.parquet"
            parquet.write_table(table, path)
            for platform in platforms:
                engine = open_engine(platform, threads=threads, memory_bytes=memory_bytes)
                _warm_up_engine(engine, platform, table, path)
                engine.close()

    def load(
        self,
        program: bytes,
        platforms: Sequence[Platform],
        data_directory: Path,
        threads: int,
        memory_bytes: int | None,
    ) -> Callable[[], RunResult]:
        """Return the program, ready to run; reading its data is part of the run."""
        return partial(
            run_plan,
            from_json(program),
            platforms,
            data_directory=data_directory,
            threads=threads,
            memory_bytes=memory_bytes,
        )

    def count(self, program: bytes, data_directory: Path) -> dict[str, object]:
        """Return statistics of every step and of the sources."""
        from fedperf_engines.platforms.statistics import count_rows, source_statistics

        parsed = from_json(program)
        steps = count_rows(parsed, data_directory=data_directory)
        sources = source_statistics(parsed, data_directory)
        return {
            "steps": [[each.rows, each.row_bytes, each.key_distinct_ratio] for each in steps],
            "sources": [
                sources.columns,
                sources.top_key_share,
                sources.distinct_ratio,
                sources.null_ratio,
            ],
        }


def _reply(engines: EnginesOfPlatforms, line: bytes, settings: _Settings) -> Json:
    try:
        request = orjson.loads(line)
        program = request["program"].encode()
        directory = Path(request["data_directory"])
        if request["task"] == "count":
            return {"status": "ok", **engines.count(program, directory)}
        platforms = [Platform(number) for number in request["platforms"]]
        work = engines.load(program, platforms, directory, settings.threads, settings.memory_bytes)
        return _measure(work)
    except Exception as error:
        return _failure(error)


def _failure(error: BaseException) -> Json:
    """Whatever an engine raises is an outcome."""
    lost = type(error).__name__ in _OUT_OF_MEMORY_ERRORS
    return failure(error) | ({"status": "oom"} if lost else {})


def _measure(work: Callable[[], RunResult]) -> Json:
    ran, outcome, used = measured(work, _used_besides, judge=_failure)
    if ran is not None:
        outcome["seconds"] = ran.seconds
        outcome["segments"] = [
            [int(each.platform), each.steps, each.seconds] for each in ran.segment_timings
        ]
    return outcome | {"used": used}


def _used_besides() -> dict[str, float]:
    """Add the children that live to `used_besides`."""
    used = {"read_bytes": 0, "written_bytes": 0} | used_besides()
    del used["context_switches"]
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            used["cpu_seconds"] += times.user + times.system
            for name, count in moved_bytes(child.pid).items():
                used[name] += count
    return used


def _clean() -> None:
    """Give back what the last run left, so that the next starts as from new."""
    gc.collect()
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        pyarrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    serve(EnginesOfPlatforms())
