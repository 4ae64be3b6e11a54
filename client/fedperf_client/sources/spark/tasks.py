"""The attempts at a stage's tasks: of each its interval, its executor, its end and its figures.

Numbers stand in one array. What attempts said that did not succeed is kept once for all of a job
that said the same.
"""

from array import array
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedperf_client.sources.spark.failures import EndReason, LostAttempt
from fedperf_client.sources.spark.fields import Event, count, mapping, milliseconds, part, words

Longs = NDArray[np.int64]

RESUBMITTED = "Resubmitted"
"""Told of a task that had succeeded, when what it wrote was gone with its executor."""

SUCCEEDED = -1  # among the ends of attempts, which else are numbers of reasons
COLUMNS = ("launched", "finished", "executor", "end", "run", "read_bytes", "read_rows")
"""Of each attempt at a task: when it began and ended, as the driver saw it; numbers of its executor
(-1 where that is unknown) and of its end; time in its own code; what it read from files and from
shuffles."""

_ATTEMPT = np.dtype([(each, np.int64) for each in COLUMNS])

MAX_REASONS, MAX_NAMES = 500, 5_000
"""Told apart in one job: reasons, and executors. Later ones have no message, and no name."""

_LONGEST_NAME = 120
_NANOSECONDS = 1_000_000  # in a millisecond


@dataclass(slots=True)
class Names:
    """Executors with their hosts, and reasons of ends, that attempts of one job refer to."""

    executors: dict[tuple[str, str], int] = field(default_factory=dict)
    reasons: dict[EndReason, int] = field(default_factory=dict)

    def executor(self, info: Event) -> int:
        """The number of a task's executor; -1 where it is unknown."""
        key = words(info, "Executor ID")[:_LONGEST_NAME], words(info, "Host")[:_LONGEST_NAME]
        if not key[0] or (key not in self.executors and len(self.executors) >= MAX_NAMES):
            return -1
        return self.executors.setdefault(key, len(self.executors))

    def reason(self, end: Event) -> int:
        """The number of the reason why a task ended."""
        found = EndReason.of(end)
        if found not in self.reasons and len(self.reasons) >= MAX_REASONS:
            found = EndReason(found.name if found.is_called_off else "unknown", "", found.kind)
        return self.reasons.setdefault(found, len(self.reasons))


@dataclass(slots=True)
class TaskTotals:
    """Sums over the tasks of a stage that succeeded: milliseconds of their own time, and bytes."""

    cpu_nanoseconds: int = 0  # thousands of short tasks would lose a fifth, were they rounded
    garbage: int = 0  # in which the JVM stood still
    fetch_wait: int = 0  # waiting for what other tasks had written
    write_nanoseconds: int = 0  # writing for other tasks
    input_bytes: int = 0  # from files
    shuffle_read: int = 0  # bytes from other tasks
    shuffle_written: int = 0  # bytes for other tasks
    rows_read: int = 0  # from both
    rows_written: int = 0  # for other tasks alone
    spilled_memory: int = 0  # what did not fit, in memory's form
    spilled_disk: int = 0  # the same on disk
    spilled_tasks: int = 0  # how many tasks that were
    spilled_run: int = 0  # their time without garbage and fetch wait
    held: int = 0  # the most memory that each task had for its work, added up
    most_held: int = 0  # the most that one of them had

    @property
    def cpu(self) -> int:
        """Milliseconds of processor time of the JVM."""
        return self.cpu_nanoseconds // _NANOSECONDS

    @property
    def shuffle_write(self) -> int:
        """Milliseconds of writing for other tasks."""
        return self.write_nanoseconds // _NANOSECONDS

    def add(self, metrics: Event) -> tuple[int, int, int]:
        """Add the figures of a task; its own time, and bytes and rows that it read.

        Raises:
            MalformedEventError: a figure is no number, or negative.
        """
        read, given = part(metrics, "Shuffle Read Metrics"), part(metrics, "Input Metrics")
        written = part(metrics, "Shuffle Write Metrics")
        run, garbage = count(metrics, "Executor Run Time"), count(metrics, "JVM GC Time")
        wait, spilled = count(read, "Fetch Wait Time"), count(metrics, "Memory Bytes Spilled")
        figures = {
            "cpu_nanoseconds": count(metrics, "Executor CPU Time"),
            "garbage": min(garbage, run),
            "fetch_wait": min(wait, run),
            "write_nanoseconds": min(count(written, "Shuffle Write Time"), run * _NANOSECONDS),
            "input_bytes": count(given, "Bytes Read"),
            "shuffle_read": count(read, "Remote Bytes Read") + count(read, "Local Bytes Read"),
            "shuffle_written": count(written, "Shuffle Bytes Written"),
            "rows_read": count(read, "Total Records Read") + count(given, "Records Read"),
            "rows_written": count(written, "Shuffle Records Written"),
            "spilled_memory": spilled,
            "spilled_disk": count(metrics, "Disk Bytes Spilled"),
            "spilled_tasks": int(spilled > 0),
            "spilled_run": max(0, run - garbage - wait) if spilled else 0,
            "held": count(metrics, "Peak Execution Memory"),
        }
        for name, value in figures.items():
            setattr(self, name, getattr(self, name) + value)
        self.most_held = max(self.most_held, figures["held"])
        return run, figures["input_bytes"] + figures["shuffle_read"], figures["rows_read"]


@dataclass
class StageAttempt:
    """One attempt at a stage, as far as its log was read.

    What follows from the figures of its tasks is computed once: ask when all of them were told.
    """

    number: int  # number, attempt: as the log counts them
    attempt: int
    names: Names  # that its tasks refer to
    name: str = ""  # the call that made it; local text
    submitted_at: int | None = None  # None where the log does not tell
    announced: int = 0  # tasks that it was to have; 0 where the log does not tell
    has_ended: bool = False  # its end was told
    is_done: bool = False  # it was completed and did not fail
    profile: int = 0  # of resources, that it asks for
    runs_python: bool = False  # beside the JVM, whose processor time alone the log tells
    had_executors: bool = True  # whether one that it could use was there when it was submitted
    at_start: bool = False  # none had ever been there by then: the application was starting
    slots: int = 0  # tasks that its executors could run at once, a mean; 0 where that is unknown
    succeeded: int = 0  # tasks of which the end was told one by one
    has_begun: bool = False  # whether the start, or the end, of any was told
    columns: "array[int]" = field(default_factory=lambda: array("q"))  # if figures are wanted
    totals: TaskTotals = field(default_factory=TaskTotals)  # of these that succeeded

    def __str__(self) -> str:
        return f"stage {self.number}{f'.{self.attempt}' if self.attempt else ''}"

    def take(self, event: Event, end: Event) -> None:
        """Take the end of an attempt at a task with its figures."""
        info = mapping(event, "Task Info")
        launched, finished = milliseconds(info, "Launch Time"), milliseconds(info, "Finish Time")
        ended, figures = SUCCEEDED, (0, 0, 0)
        if end.get("Reason") == "Success":
            figures = self.totals.add(part(event, "Task Metrics"))
        else:
            ended = self.names.reason(end)
        self.columns.extend((launched, finished, self.names.executor(info), ended, *figures))

    @cached_property
    def _table(self) -> NDArray[np.void]:
        return np.array(self.columns, np.int64).view(_ATTEMPT)

    @cached_property
    def tasks(self) -> NDArray[np.void]:
        """Attempts at its tasks that succeeded; their `COLUMNS` by name."""
        found: NDArray[np.void] = self._table[self._table["end"] == SUCCEEDED]
        return found

    @cached_property
    def lost(self) -> tuple[LostAttempt, ...]:
        """Attempts at its tasks that did not succeed."""
        reasons = list(self.names.reasons)
        return tuple(
            LostAttempt(self.number, self.executor(place), began, ended, reasons[reason])
            for began, ended, place, reason, *_ in self._table.tolist()
            if reason != SUCCEEDED
        )

    def executor(self, place: int) -> tuple[str, str]:
        """Id and host of an executor; empty where that is unknown."""
        return list(self.names.executors)[place] if place >= 0 else ("", "")

    @cached_property
    def began(self) -> int:
        """Start of its first task."""
        return int(self.tasks["launched"].min())

    @cached_property
    def ended(self) -> int:
        """End of its last task."""
        return int(self.tasks["finished"].max())

    @property
    def span(self) -> int:
        """From its first task to its last."""
        return self.ended - self.began

    @cached_property
    def durations(self) -> Longs:
        """Of its tasks, as the driver saw them."""
        found: Longs = np.maximum(self.tasks["finished"] - self.tasks["launched"], 0)
        return found

    @cached_property
    def task_time(self) -> int:
        """All durations together; at least 1."""
        return max(1, int(self.durations.sum()))

    @cached_property
    def run_time(self) -> int:
        """All time in tasks' own code; at least 1."""
        return max(1, int(self.tasks["run"].sum()))

    @cached_property
    def longest(self) -> np.void:
        """The task that took longest."""
        found: np.void = self.tasks[self.durations.argmax()]
        return found

    @cached_property
    def median(self) -> float:
        """Duration of the middle task."""
        return float(np.median(self.durations))

    @property
    def even_span(self) -> float:
        """The least that it could take with the same work, spread evenly over all slots."""
        return self.task_time / max(1, self.slots)

    @property
    def mean(self) -> float:
        """Duration of a task, were all alike."""
        return self.task_time / len(self.tasks)

    def share_of_span(self, time: float) -> float:
        """The part of its span that `time` of its tasks takes, were it spread evenly."""
        return self.span * min(1.0, time / self.task_time)
