"""Benchmark: the speed of ingestion: events per CPU second, memory, processes.

- A real log of 48 MB (zstd) is read, and compared with parsing all of its lines by the standard
  library and by orjson.
- A made-up log of a gigabyte is read, for the memory.
- Many logs are read at once, by one process and by one per core.

Every measurement is of a process of its own. Each process reads the real log a few times, of which
the fastest counts; over all processes the median counts.

The made-up log has the proportions of a real one. One application on eight executors runs one query
after the other: plans of forty operators and a thousand tasks each. As in real logs, ends of tasks
are seven eighths of the bytes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

import orjson

from fedperf_client.sources.ingestion import ingest
from fedperf_client.sources.spark.event_log import lines
from fedperf_simulations.data.datasets import public_files
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target

TASKS = 1000
PLAN_DEPTH = 8

_START = 1_750_000_000_000
_QUERY_MILLISECONDS = 60_000
_SQL = "org.apache.spark.sql.execution.ui."

Event = dict[str, object]


def write_log(path: Path, size: int) -> int:
    """Write a plain log of about `size` bytes and return its number of lines."""
    lines = line_count = 0
    with path.open("wb") as stream:
        for block in _blocks():
            stream.write(block)
            lines += block.count(b"\n")
            line_count += len(block)
            if line_count >= size:
                return lines
    return lines


def _blocks() -> Iterator[bytes]:
    yield _lines([
        {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
        {
            "Event": "SparkListenerApplicationStart",
            "App Name": "made up",
            "App ID": "app-1",
            "Timestamp": _START,
        },
        *(
            {
                "Event": "SparkListenerExecutorAdded",
                "Timestamp": _START,
                "Executor ID": str(number),
                "Executor Info": {"Host": f"host-{number}", "Total Cores": 16},
            }
            for number in range(8)
        ),
    ])  # fmt: skip
    for query in count():
        yield _lines(_query(query))


def _query(number: int) -> list[Event]:
    at, stage = _START + number * _QUERY_MILLISECONDS, number
    counters = count(number * 1000)
    plan = _plan(PLAN_DEPTH, counters)
    last = next(counters)
    info: Event = {"Stage ID": stage, "RDD Info": []}
    accumulables = [
        {"ID": each, "Name": "number of output rows", "Value": str(each)}
        for each in range(number * 1000, last)
    ]
    events: list[Event] = [
        {
            "Event": _SQL + "SparkListenerSQLExecutionStart",
            "executionId": number,
            "time": at,
            "sparkPlanInfo": plan,
        },
        {
            "Event": "SparkListenerJobStart",
            "Job ID": number,
            "Submission Time": at,
            "Stage Infos": [info],
            "Stage IDs": [stage],
            "Properties": {"spark.sql.execution.id": str(number)},
        },
    ]
    for task in range(TASKS):
        events += _task(stage, task, at)
    return [
        *events,
        {
            "Event": "SparkListenerStageCompleted",
            "Stage Info": {**info, "Accumulables": accumulables},
        },
        {
            "Event": "SparkListenerJobEnd",
            "Job ID": number,
            "Completion Time": at + 50_000,
            "Job Result": {"Result": "JobSucceeded"},
        },
        {
            "Event": _SQL + "SparkListenerSQLExecutionEnd",
            "executionId": number,
            "time": at + 50_000,
        },
    ]


def _task(stage: int, task: int, at: int) -> list[Event]:
    info = {"Task ID": task, "Index": task, "Attempt": 0, "Launch Time": at, "Host": "host-1"}
    counted = [
        {"ID": each, "Name": f"internal.metrics.number{each}", "Update": each, "Value": each * task}
        for each in range(25)
    ]
    return [
        {"Event": "SparkListenerTaskStart", "Stage ID": stage, "Task Info": info},
        {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": stage,
            "Stage Attempt ID": 0,
            "Task Type": "ResultTask",
            "Task End Reason": {"Reason": "Success"},
            "Task Info": {**info, "Accumulables": counted},
        },
    ]


def _plan(depth: int, counters: Iterator[int]) -> Event:
    """Joins, each of what lies below and a filtered scan."""
    names = ("Project", "SortMergeJoin", "Exchange", "Filter", "Scan parquet")
    join, *others = [_node(name, next(counters)) for name in names[1:]]
    exchange, filtered, scan = others
    scanned = {**exchange, "children": [{**filtered, "children": [scan]}]}
    below = [_plan(depth - 1, counters)] if depth > 1 else [_node("Range", next(counters))]
    return {**_node(names[0], None), "children": [{**join, "children": [*below, scanned]}]}


def _node(name: str, counter: int | None) -> Event:
    metric = {"name": "number of output rows", "accumulatorId": counter, "metricType": "sum"}
    metrics = [] if counter is None else [metric]
    return {"nodeName": name, "simpleString": name, "children": [], "metrics": metrics}


def _lines(events: list[Event]) -> bytes:
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)


REAL = "spark-eventlogs/qualification/nds_q72_dataproc_2_2.zstd"

LEAST_EVENTS_PER_SECOND = 500_000
MOST_MEGABYTES = 64
LEAST_SPEED_UP_PER_CORE = 0.75

LARGE_BYTES, QUICK_LARGE_BYTES = 1_000_000_000, 20_000_000
MANY, MANY_BYTES, QUICK_MANY_BYTES = 24, 150_000_000, 5_000_000
REPEATS, QUICK_REPEATS, READS = 15, 2, 5
MEGABYTE = 1024**2


class IngestBenchmark:
    """The benchmark."""

    name = "ingest"
    claim = "event logs are read at 500,000 events per CPU second in less than 64 MB"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return a row per log and way to read it. Each log is a cell."""
        [real] = self.public_files(settings.data)
        repeats = QUICK_REPEATS if settings.quick else REPEATS
        large = QUICK_LARGE_BYTES if settings.quick else LARGE_BYTES
        many = QUICK_MANY_BYTES if settings.quick else MANY_BYTES
        rows = [
            *settings.cases("real", lambda: _in_directory(partial(_real, real, repeats))),
            *settings.cases("large", lambda: _in_directory(partial(_large, large))),
            *settings.cases("many", lambda: _in_directory(partial(_many, many))),
        ]
        cores = int(number(rows[-1].get("processes")))
        targets = [
            Target(
                "a real log: events per CPU second, decompression included",
                LEAST_EVENTS_PER_SECOND,
                number(rows[0].get("events_per_cpu_second")),
                at_most=False,
            ),
            Target("a real log: peak MB", MOST_MEGABYTES, number(rows[0].get("peak_megabytes"))),
            Target("a gigabyte: peak MB", MOST_MEGABYTES, number(rows[-2].get("peak_megabytes"))),
            Target(
                f"{MANY} logs: times as fast with {cores} processes",
                LEAST_SPEED_UP_PER_CORE * cores,
                number(rows[-1].get("ratio")),
                at_most=False,
            ),
        ]
        return ExperimentOutcome(rows, targets, [real])

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Return the real log."""
        return public_files(data, REAL)


def _in_directory(measured: Callable[[Path], Sequence[Row]]) -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as directory:
        return measured(Path(directory))


def _real(path: Path, repeats: int, directory: Path) -> list[Row]:
    ours = [
        _measured(path, directory / f"real-{each}.sqlite", repeats=READS) for each in range(repeats)
    ]
    peers: dict[str, Callable[[bytes], object]] = {
        "every line by orjson": orjson.loads,
        "every line by json": json.loads,
    }
    speed = median(each["events"] / each["read_cpu_seconds"] for each in ours)
    rows: list[Row] = [_row("a real log, zstd", ours)]
    for name, parse in peers.items():
        seconds = median(
            min(_all_parsed(path, parse) for _ in range(READS)) for _ in range(max(repeats // 5, 1))
        )
        peer = ours[0]["events"] / seconds
        rows.append(
            {
                "what": name,
                "events": int(ours[0]["events"]),
                "events_per_cpu_second": peer,
                "ratio": speed / peer,
            }
        )
    return rows


def _large(size: int, directory: Path) -> list[Row]:
    path = directory / "large"
    write_log(path, size)
    row = _row(f"made up, {size // 10**6} MB", [_measured(path, directory / "large.sqlite")])
    path.unlink()
    return [row]


def _many(size: int, directory: Path) -> list[Row]:
    """Wall seconds for many logs, one after the other and side by side."""
    paths = [directory / f"many-{number}" for number in range(MANY)]
    write_log(paths[0], size)
    for path in paths[1:]:
        path.hardlink_to(paths[0])
    cores = os.cpu_count() or 1
    one, all_cores = (
        _seconds(paths, directory / f"many-{jobs}.sqlite", jobs) for jobs in (1, cores)
    )
    return [
        {
            "what": f"{MANY} logs by {cores} processes",
            "processes": cores,
            "seconds": all_cores,
            "seconds_by_one": one,
            "ratio": one / all_cores,
        }
    ]


def _seconds(paths: Sequence[Path], store: Path, jobs: int) -> float:
    start = time.monotonic()
    for outcome in ingest(paths, store, jobs=jobs):
        if outcome.refused:
            raise RuntimeError(outcome.refused)
    return time.monotonic() - start


def _measured(path: Path, store: Path, *, repeats: int = 1) -> dict[str, float]:
    command = [sys.executable, "-m", "fedperf_simulations.experiments.ingest.measurement"]
    arguments = [str(path), str(store), str(repeats)]
    result = subprocess.run([*command, *arguments], check=True, capture_output=True)
    figures: dict[str, float] = orjson.loads(result.stdout)
    return figures


def _all_parsed(path: Path, parse: Callable[[bytes], object]) -> float:
    start = time.process_time()
    for _, line in lines(path):
        if line is not None:
            parse(line)
    return time.process_time() - start


def _row(what: str, measured: Sequence[dict[str, float]]) -> Row:
    return {
        "what": what,
        "events": int(measured[0]["events"]),
        "events_per_cpu_second": median(
            each["events"] / each["read_cpu_seconds"] for each in measured
        ),
        "first_time": median(each["events"] / each["first_read_cpu_seconds"] for each in measured),
        "with_storing": median(each["events"] / each["take_in_cpu_seconds"] for each in measured),
        "peak_megabytes": max(each["peak_bytes"] for each in measured) / MEGABYTE,
    }


EXPERIMENT = IngestBenchmark()
