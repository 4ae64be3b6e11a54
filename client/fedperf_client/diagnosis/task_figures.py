"""The figures that one task reported in a Spark log, or the reason why it failed."""

from collections.abc import Mapping

from fedperf_client.diagnosis.job_facts import FailedTask, TaskTotals
from fedperf_client.sources.spark.fields import Event, MalformedEventError, integer

LONGEST_TEXT = 120

CALLED_OFF = frozenset({"TaskKilled", "TaskCommitDenied"})
"""Reasons that are no failures: another attempt was first, or nobody needed it any more."""

_NANOSECONDS = 1_000_000
"""In a millisecond."""

_NO_MEMORY = ("OutOfMemory", "exceeding memory limits", "exit code 137", "exit code 143")


def failure_of(stage: int, end: Event, launched: int, finished: int) -> FailedTask:
    """The failure of a task that did not succeed, from its "Task End Reason"."""
    reason, told = end.get("Reason"), end.get("Class Name")
    named = told if isinstance(told, str) else reason if isinstance(reason, str) else "unknown"
    words = " ".join(
        each
        for name in ("Class Name", "Description", "Loss Reason", "Full Stack Trace")
        if isinstance(each := end.get(name), str)
    )
    return FailedTask(
        stage,
        named.rpartition(".")[2][:LONGEST_TEXT],
        is_out_of_memory=any(each in words for each in _NO_MEMORY),
        launched=launched,
        finished=finished,
    )


def figures_of(metrics: Event) -> dict[str, int]:
    """The figures of a task by the names of `TaskTotals`, and its `run` time.

    What the log has in nanoseconds stays in them: rounded, thousands of short tasks lose a fifth.

    Raises:
        MalformedEventError: a figure is no number, or negative.
    """
    read = _part(metrics, "Shuffle Read Metrics")
    written = _part(metrics, "Shuffle Write Metrics")
    given = _part(metrics, "Input Metrics")
    run, garbage = _count(metrics, "Executor Run Time"), _count(metrics, "JVM GC Time")
    fetch_wait, spilled = _count(read, "Fetch Wait Time"), _count(metrics, "Memory Bytes Spilled")
    return {
        "run": run,
        "rows_read": _count(read, "Total Records Read") + _count(given, "Records Read"),
        "rows_written": _count(written, "Shuffle Records Written"),
        "cpu": _count(metrics, "Executor CPU Time"),
        "garbage": min(garbage, run),
        "fetch_wait": min(fetch_wait, run),
        "shuffle_write": min(_count(written, "Shuffle Write Time"), run * _NANOSECONDS),
        "input_bytes": _count(given, "Bytes Read"),
        "shuffle_read": _count(read, "Remote Bytes Read") + _count(read, "Local Bytes Read"),
        "shuffle_written": _count(written, "Shuffle Bytes Written"),
        "spilled_memory": spilled,
        "spilled_disk": _count(metrics, "Disk Bytes Spilled"),
        "spilled_tasks": int(spilled > 0),
        "spilled_run": max(0, run - garbage - fetch_wait) if spilled else 0,
        "held": _count(metrics, "Peak Execution Memory"),
    }


def totals_of(sums: Mapping[str, int], most_held: int) -> TaskTotals:
    """The sums over tasks of `figures_of`, all times in milliseconds."""
    times = {name: sums.get(name, 0) // _NANOSECONDS for name in ("cpu", "shuffle_write")}
    return TaskTotals(**{**sums, **times}, most_held=most_held)


def _part(metrics: Event, name: str) -> Event:
    found = metrics.get(name)
    return found if isinstance(found, dict) else {}


def _count(metrics: Event, name: str) -> int:
    """A figure of a task; 0 where it is missing, as in logs of older versions."""
    if name not in metrics:
        return 0
    value = integer(metrics, name)
    if value < 0:
        raise MalformedEventError(name)
    return value
