"""A query, or a job without a query, while its events arrive: its stages, tasks and counters.

The figures of tasks are kept in one array per attempt at a stage. The message of tasks that did
not succeed is kept once for all tasks of a job with the same message.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedperf_client.sources.spark import fields
from fedperf_client.sources.spark.failures import EndReason, FailureText, LostAttempt
from fedperf_client.sources.spark.fields import (
    Event,
    MalformedEventError,
    count,
    mapping,
    milliseconds,
    part,
    words,
)
from fedperf_client.sources.spark.plan import PhysicalPlan, PlanTooLargeError, read_plan
from fedperf_client.sources.spark.rdd import StageRun, read_stage
from fedperf_shared.execution import ClusterConfig

Longs = NDArray[np.int64]

# The end reason of a task that had succeeded, when its output was lost with its executor.
RESUBMITTED = "Resubmitted"

SUCCEEDED = -1  # among the ends of attempts, which else are numbers of reasons
# Columns of each attempt at a task: start and end, as the driver saw them; the number of its
# executor (-1 if unknown) and of its end reason; the time in its own code; bytes and rows that it
# read from files and shuffles.
COLUMNS = ("launched", "finished", "executor", "end", "run", "read_bytes", "read_rows")

_ATTEMPT = np.dtype([(each, np.int64) for each in COLUMNS])

# Most reasons and executors of one job. Later ones have no message and no name.
MAX_REASONS, MAX_NAMES = 500, 5_000

_LONGEST_NAME = 120
_NANOSECONDS = 1_000_000  # in a millisecond


@dataclass(slots=True)
class Names:
    """Executors with their hosts, and end reasons, that the tasks of one job refer to by number."""

    executors: dict[tuple[str, str], int] = field(default_factory=dict)
    reasons: dict[EndReason, int] = field(default_factory=dict)

    def executor(self, info: Event) -> int:
        """Return the number of a task's executor; -1 if it is unknown."""
        key = words(info, "Executor ID")[:_LONGEST_NAME], words(info, "Host")[:_LONGEST_NAME]
        if not key[0] or (key not in self.executors and len(self.executors) >= MAX_NAMES):
            return -1
        return self.executors.setdefault(key, len(self.executors))

    def reason(self, end: Event) -> int:
        """Return the number of the reason why a task ended."""
        reason = EndReason.of(end)
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = EndReason(reason.name if reason.is_called_off else "unknown", "", reason.kind)
        return self.reasons.setdefault(reason, len(self.reasons))


@dataclass(slots=True)
class TaskTotals:
    """Sums over the tasks of a stage that succeeded; times in milliseconds of their own time."""

    cpu_nanoseconds: int = 0  # rounding would lose a fifth of thousands of short tasks
    garbage: int = 0  # while the JVM stood still
    fetch_wait: int = 0  # waiting for other tasks' output
    write_nanoseconds: int = 0  # writing for other tasks
    input_bytes: int = 0  # from files
    shuffle_read: int = 0  # bytes from other tasks
    shuffle_written: int = 0  # bytes for other tasks
    rows_read: int = 0  # from both
    rows_written: int = 0  # for other tasks alone
    spilled_memory: int = 0  # bytes in memory that did not fit
    spilled_disk: int = 0  # the same on disk
    spilled_tasks: int = 0  # tasks that spilled
    spilled_run: int = 0  # their time without garbage and fetch wait
    held: int = 0  # sum of the execution memory peaks
    most_held: int = 0  # largest peak

    @property
    def cpu(self) -> int:
        """Milliseconds of processor time of the JVM."""
        return self.cpu_nanoseconds // _NANOSECONDS

    @property
    def shuffle_write(self) -> int:
        """Milliseconds of writing for other tasks."""
        return self.write_nanoseconds // _NANOSECONDS

    def add(self, metrics: Event) -> tuple[int, int, int]:
        """Add the figures of a task; return its own time, and bytes and rows that it read.

        Raises:
            MalformedEventError: a figure is no number, or negative.
        """
        read, files = part(metrics, "Shuffle Read Metrics"), part(metrics, "Input Metrics")
        write = part(metrics, "Shuffle Write Metrics")
        run, garbage = count(metrics, "Executor Run Time"), count(metrics, "JVM GC Time")
        wait, spilled = count(read, "Fetch Wait Time"), count(metrics, "Memory Bytes Spilled")
        figures = {
            "cpu_nanoseconds": count(metrics, "Executor CPU Time"),
            "garbage": min(garbage, run),
            "fetch_wait": min(wait, run),
            "write_nanoseconds": min(count(write, "Shuffle Write Time"), run * _NANOSECONDS),
            "input_bytes": count(files, "Bytes Read"),
            "shuffle_read": count(read, "Remote Bytes Read") + count(read, "Local Bytes Read"),
            "shuffle_written": count(write, "Shuffle Bytes Written"),
            "rows_read": count(read, "Total Records Read") + count(files, "Records Read"),
            "rows_written": count(write, "Shuffle Records Written"),
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

    Properties of its tasks are computed once, so read them after all tasks ended.
    """

    number: int  # number, attempt: of the log
    attempt: int
    names: Names  # for its tasks
    name: str = ""  # its call; local text
    submitted_at: int | None = None  # None if unknown
    announced: int = 0  # number of its tasks; 0 if unknown
    has_ended: bool = False  # its end was reported
    is_done: bool = False  # it was completed and did not fail
    profile: int = 0  # resource profile that it requires
    runs_python: bool = False  # outside of the JVM, whose processor time alone is logged
    had_executors: bool = True  # a usable one when it was submitted
    at_start: bool = False  # no executor had ever come: the application was starting
    slots: int = 0  # mean number of tasks that can run at once; 0 if unknown
    succeeded: int = 0  # task ends that were read one by one
    has_begun: bool = False  # the start, or the end, of a task was read
    columns: "array[int]" = field(default_factory=lambda: array("q"))  # if figures are read
    counted: set[int] = field(default_factory=set)  # ids of its counters, if figures are read
    totals: TaskTotals = field(default_factory=TaskTotals)  # of tasks that succeeded

    def __str__(self) -> str:
        return f"stage {self.number}{f'.{self.attempt}' if self.attempt else ''}"

    def take(self, event: Event, end: Event) -> None:
        """Add the end of an attempt at a task, with its figures."""
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
        """Attempts at its tasks that succeeded, with their `COLUMNS` by name."""
        tasks: NDArray[np.void] = self._table[self._table["end"] == SUCCEEDED]
        return tasks

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
        """Return id and host of an executor; empty if it is unknown."""
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
        """Milliseconds from its first task to its last."""
        return self.ended - self.began

    @cached_property
    def durations(self) -> Longs:
        """Durations of its tasks, as the driver saw them."""
        durations: Longs = np.maximum(self.tasks["finished"] - self.tasks["launched"], 0)
        return durations

    @cached_property
    def task_time(self) -> int:
        """Sum of all durations; at least 1."""
        return max(1, int(self.durations.sum()))

    @cached_property
    def run_time(self) -> int:
        """Sum of the time in tasks' own code; at least 1."""
        return max(1, int(self.tasks["run"].sum()))

    @cached_property
    def longest(self) -> np.void:
        """The task that took longest."""
        longest: np.void = self.tasks[self.durations.argmax()]
        return longest

    @cached_property
    def median(self) -> float:
        """Median duration of a task."""
        return float(np.median(self.durations))

    @property
    def even_span(self) -> float:
        """Least time for the same work, spread evenly over all slots."""
        return self.task_time / max(1, self.slots)

    @property
    def mean(self) -> float:
        """Mean duration of a task."""
        return self.task_time / len(self.tasks)

    def share_of_span(self, time: float) -> float:
        """Return the part of its span that `time` of its tasks takes, spread evenly."""
        return self.span * min(1.0, time / self.task_time)


CUT = "its application ended before it"
LOST_END = "no end of it is told, though its application went on"

MAX_COUNTERS = 20_000  # counters of one query; later ones are ignored

# Spark's own counters of a stage that are summed over its tasks, and their names here
TOTALS = {
    "internal.metrics.executorCpuTime": "cpu_nanoseconds",
    "internal.metrics.executorDeserializeCpuTime": "cpu_nanoseconds",
    "internal.metrics.input.bytesRead": "read_bytes",
    "internal.metrics.output.bytesWritten": "written_bytes",
}

MAX_FAILURES = 20  # messages of jobs and stages that are kept for one query

# Share of the announced tasks of a stage. If fewer are reported, Spark dropped events.
WHOLE = 0.95

Interval = tuple[int, int]  # two timestamps, in milliseconds since 1970
Time = TypeVar("Time", int, float)


def merged(intervals: Iterable[tuple[Time, Time]]) -> list[tuple[Time, Time]]:
    """Return the same intervals without overlaps, in order."""
    union = list[tuple[Time, Time]]()
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif end > start:
            union.append((start, end))
    return union


def covered(intervals: Iterable[tuple[Time, Time]]) -> Time:
    """Return the time that at least one interval covers."""
    return sum(end - start for start, end in merged(intervals))


@dataclass(frozen=True, slots=True)
class DroppedTasks:
    """A completed stage for which the log reports too few tasks."""

    stage: int
    reported: int
    announced: int


@dataclass(slots=True)
class SparkQuery:
    """A query, or a job without a query, as far as its log was read."""

    number: int  # of the query or job in its application
    started_at: int  # milliseconds since 1970, as all timestamps here
    root: int  # number of the query that it is nested in, or its own
    is_job: bool = False  # a job without a query
    has_start: bool = True  # the log has its start
    plan: PhysicalPlan = field(default_factory=PhysicalPlan)  # of the last event with a plan
    shape: str = ""  # of the first plan, without later changes of the optimizer
    description: str = ""  # its description, or its call site
    call_site: str = ""  # of a job
    display_name: str = ""  # of a job without a description
    settings: dict[str, str] = field(default_factory=dict)  # that its session or code set
    failure: str = ""  # the message of the query or of a failed job
    failures: list[FailureText] = field(default_factory=list)  # of jobs and stages; local texts
    ended_at: int | None = None  # None while it runs
    has_error: bool | None = None  # its end has an error; None before Spark 3.4
    has_failed_jobs: bool = False  # a job failed or was cancelled
    has_failed_tasks: bool = False  # tasks failed and were repeated
    is_incomplete: bool = False  # an event, or too many of its tasks, are missing
    was_alone: bool = True  # no other query of its application ran meanwhile
    is_running: bool = False  # it is in `OpenWork`
    is_given_up: bool = False  # its tasks were too many to keep
    open_jobs: set[int] = field(default_factory=set)  # its jobs that still run
    stage_numbers: set[int] = field(default_factory=set)  # of all its jobs
    jobs: int = 0  # number of its jobs
    submitted_at: int | None = None  # submission of its first job
    first_task_at: int | None = None  # start of its first task
    first_stage_at: int | None = None  # submission of its first stage, if its own start is missing
    last_stage_at: int | None = None  # completion of its last stage or job
    waited: Interval | None = None  # from `submitted_at` to the first executor
    before: int = 0  # queries of its application with jobs that ended before
    cluster: ClusterConfig | None = None  # mean from its first task on; None if unknown
    slots: int = 0  # tasks that the cluster can run at once; 0 if unknown
    counters: dict[int, int] = field(default_factory=dict)  # values of Spark's accumulators by id
    totals: Counter[str] = field(default_factory=Counter)  # of `TOTALS` over its stages
    stages: dict[int, StageRun] = field(default_factory=dict)  # of a job, that ended, by number
    attempts: dict[tuple[int, int], StageAttempt] = field(default_factory=dict)  # at stages
    names: Names = field(default_factory=Names)  # for these attempts
    dropped: DroppedTasks | None = None  # the stage with most missing tasks
    tasks: int = 0  # of its completed stages
    rdds: int = 0  # of all these stages, with their parents
    problem: str = ""  # why its plan cannot be used; otherwise empty
    counted_size: int = 0  # its `size` that the reader has counted
    counted_tasks: int = 0  # task ends that are kept for it

    def __str__(self) -> str:
        return f"{'job' if self.is_job else 'query'} {self.number}"

    def failed(self, message: object) -> None:
        """Record that the query, or a part of it, failed."""
        self.failures.append(FailureText.of(message))
        del self.failures[:-MAX_FAILURES]

    def take_plan(self, event: Event) -> None:
        """Read its plan, or why it has none."""
        try:
            self.plan, self.problem = read_plan(fields.mapping(event, "sparkPlanInfo")), ""
        except PlanTooLargeError as error:
            self.plan, self.problem = PhysicalPlan(), str(error)

    def take_stage_end(self, stage: StageAttempt, info: Event) -> None:
        """Read the end of an attempt at a stage."""
        if "Completion Time" in info:
            at = fields.milliseconds(info, "Completion Time")
            self.last_stage_at = max(self.last_stage_at or at, at)
        if not self.has_start and "Submission Time" in info:
            at = fields.milliseconds(info, "Submission Time")
            self.first_stage_at = min(self.first_stage_at or at, at)
        stage.announced = fields.count(info, "Number of Tasks")
        stage.is_done = "Failure Reason" not in info
        if not stage.is_done:
            self.failed(info.get("Failure Reason"))
        self.has_failed_tasks |= stage.attempt > 0
        for each in fields.objects(info, "Accumulables"):
            name = each.get("Name")
            if not isinstance(name, str) or (name.startswith("internal.") and name not in TOTALS):
                continue
            try:
                value = fields.integer(each, "Value")
                if name in TOTALS:
                    self.totals[TOTALS[name]] += value
                else:
                    counter = fields.integer(each, "ID")
                    self.count(counter, value)
                    if stage.columns and len(stage.counted) < MAX_COUNTERS:
                        stage.counted.add(counter)
            except MalformedEventError:
                continue  # a user's own counter, of any type
        if self.is_job:
            ended = read_stage(info)
            before = self.stages.get(ended.number)
            # A repeated stage mostly runs only a part of its tasks.
            if before is None or ended.tasks >= before.tasks:
                self.stages[ended.number] = ended
                self.rdds += ended.size - (0 if before is None else before.size)

    def give_up_tasks(self) -> None:
        """Drop the figures of all tasks."""
        self.is_given_up, self.counted_tasks = True, 0
        self.names.executors.clear()
        self.names.reasons.clear()
        for stage in self.attempts.values():
            del stage.columns[:]

    def task_began(self, info: Event) -> None:
        """Read the start of a task, which may be the first."""
        if "Launch Time" in info:
            at = fields.milliseconds(info, "Launch Time")
            first = self.first_task_at
            self.first_task_at = at if first is None else min(at, first)

    def count(self, counter: int, value: int) -> None:
        """Set a counter, which never falls, so that a repeated stage counts once."""
        before = self.counters.get(counter)
        if len(self.counters) < MAX_COUNTERS if before is None else value > before:
            self.counters[counter] = value

    def close(self, stopped_at: int | None, *, went_on: bool) -> None:
        """End it where its log ends. A missing end is that of its last stage, or its application.

        Args:
            stopped_at: end of its application; None if the log stops before that.
            went_on: whether other queries ended after it began.
        """
        has_good_end = self._has_result and self.last_stage_at and not self.has_failed_jobs
        if self.ended_at is None and has_good_end and (self.is_job or stopped_at is not None):
            self.ended_at, self.is_incomplete = self.last_stage_at, True
        elif self.ended_at is None and went_on and self.open_jobs and not self.has_failed_jobs:
            self.problem = LOST_END
        elif self.ended_at is None and stopped_at is not None:
            if self.open_jobs or self.has_failed_jobs:
                self.ended_at, self.has_error = max(stopped_at, self.started_at), True
                self.failure = self.failure or CUT
                self.was_alone = False  # its last tasks are missing
            elif self.jobs:
                self.ended_at, self.is_incomplete = self.last_stage_at, True
        if self.ended_at is not None and self.open_jobs:
            self.is_incomplete = self.is_incomplete or not self.has_error
            self.open_jobs.clear()

    def count_tasks(self, skipped_ends: Callable[[int], int | None]) -> None:
        """Count the announced tasks of its stages, and detect stages with dropped tasks.

        Args:
            skipped_ends: returns how many task ends of a stage were skipped; None if unknown.
        """
        # All stages should have ended then.
        is_whole = not (self.has_failed or self.has_failed_jobs or self.is_incomplete)
        stages: dict[int, list[StageAttempt]] = {}
        for each in self.attempts.values():
            stages.setdefault(each.number, []).append(each)
        for number, attempts in stages.items():
            begun = any(each.has_begun or each.announced for each in attempts)
            is_lost = is_whole and begun and not any(each.has_ended for each in attempts)
            self.is_incomplete |= is_lost
            ended = [each.announced for each in attempts if each.is_done or is_lost]
            announced = max(ended, default=None)
            if announced is None:
                continue
            self.tasks += max(each.announced for each in attempts)
            more = skipped_ends(number)
            reported = sum(each.succeeded for each in attempts) + (more or 0)
            missing = 0 if more is None or reported >= WHOLE * announced else announced - reported
            if missing > (self.dropped.announced - self.dropped.reported if self.dropped else 0):
                self.dropped = DroppedTasks(number, reported, announced)
        self.is_incomplete |= self.dropped is not None
        if self.is_incomplete and any(
            not each.has_ended and (not each.has_begun or each.succeeded < WHOLE * each.announced)
            for each in self.attempts.values()
        ):
            self.was_alone = False  # overlap is unknown

    @property
    def is_nested(self) -> bool:
        """Return whether it runs inside another query."""
        return self.root != self.number and not self.is_job

    @property
    def is_complete(self) -> bool:
        """Return whether it and all its jobs have ended."""
        return self.ended_at is not None and not self.open_jobs

    @property
    def _has_result(self) -> bool:
        """Return whether the last of its stages is done."""
        last = max(self.stage_numbers, default=None)
        return any(each.is_done and each.number == last for each in self.attempts.values())

    @property
    def seems_over(self) -> bool:
        """Return whether nothing of it seems to run, though its end may be missing."""
        is_over = self.ended_at is not None or not (self.is_job or self.open_jobs)
        return self.jobs > 0 and (is_over or self._has_result)

    @property
    def has_failed(self) -> bool:
        """Return whether it ended with an error, by the rule of Spark's own user interface."""
        return self.has_failed_jobs if self.has_error is None else self.has_error

    @property
    def end(self) -> int:
        """Return the end, or that of the last stage; the start if the log has neither."""
        return max(self.ended_at or self.last_stage_at or 0, self.started_at)

    @property
    def milliseconds(self) -> int:
        """The run time, without the wait for the first executor."""
        return self.end - self.started_at - self.wait_milliseconds

    @property
    def wait_milliseconds(self) -> int:
        """Time that it waited while there was no executor."""
        return 0 if self.waited is None else self.waited[1] - self.waited[0]

    @property
    def size(self) -> int:
        """Nodes, counters, jobs, stages and RDDs that are kept for it."""
        running = len(self.open_jobs) + len(self.stage_numbers) + 4 * len(self.attempts)
        return len(self.counters) + len(self.plan.nodes) + running + self.rdds


@dataclass(slots=True)
class OpenWork:
    """The queries and jobs that run at present, without nested queries."""

    count: int = 0
    worked: int = 0  # others, that ended and had jobs
    alone: SparkQuery | None = None  # the only running query

    def begins(self, query: SparkQuery) -> None:
        """Add a query. Queries that overlap it were not alone."""
        if self.count:
            query.was_alone = False
            if self.alone is not None:
                self.alone.was_alone = False
        self.alone = None if self.count else query
        self.count += 1
        query.is_running = True

    def stops(self, query: SparkQuery) -> None:
        """Remove a query; removing it again has no effect."""
        self.count -= query.is_running
        self.worked += query.is_running and query.jobs > 0
        query.is_running = False
        self.alone = None if self.alone is query else self.alone

    def goes_on(self, query: SparkQuery) -> None:
        """Add a query again that was removed too early, as more of it is reported."""
        if not (query.is_running or query.is_nested):
            query.was_alone = False
            self.worked -= 1
            self.begins(query)
