"""A made-up Spark event log of any size, with the proportions of a real one.

One application on eight executors runs one query after the other: plans of forty operators
and a thousand tasks each. As in real logs, ends of tasks are seven eighths of the bytes.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import orjson

TASKS = 1000
PLAN_DEPTH = 8

_START = 1_750_000_000_000
_QUERY_MILLISECONDS = 60_000
_SQL = "org.apache.spark.sql.execution.ui."

Event = dict[str, object]


def write_log(path: Path, size: int) -> int:
    """Write a log of about `size` bytes, plain; its number of lines."""
    lines = written = 0
    with path.open("wb") as stream:
        for block in _blocks():
            stream.write(block)
            lines += block.count(b"\n")
            written += len(block)
            if written >= size:
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
    for number in count():
        yield _lines(_query(number))


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
    exchange, kept, scan = others
    scanned = {**exchange, "children": [{**kept, "children": [scan]}]}
    below = [_plan(depth - 1, counters)] if depth > 1 else [_node("Range", next(counters))]
    return {**_node(names[0], None), "children": [{**join, "children": [*below, scanned]}]}


def _node(name: str, counter: int | None) -> Event:
    metric = {"name": "number of output rows", "accumulatorId": counter, "metricType": "sum"}
    metrics = [] if counter is None else [metric]
    return {"nodeName": name, "simpleString": name, "children": [], "metrics": metrics}


def _lines(events: list[Event]) -> bytes:
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)
