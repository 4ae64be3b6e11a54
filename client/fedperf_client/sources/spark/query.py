"""The attempts at a stage's tasks: of each its interval, its executor, its end and its figures.

Numbers stand in one array. What attempts said that did not succeed is kept once for all of a job
that said the same.

One query, or one job without a query, while its events arrive.
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
from fedperf_client.sources.spark.names import job_name
from fedperf_client.sources.spark.plan import PhysicalPlan, PlanTooLargeError, read_plan
from fedperf_client.sources.spark.rdd import StageRun, read_stage
from fedperf_shared.execution import ClusterConfig

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


CUT = "its application ended before it"
LOST_END = "no end of it is told, though its application went on"

MAX_COUNTERS = 20_000  # counters remembered for one query; of more the later ones are left out

TOTALS = {
    "internal.metrics.executorCpuTime": "cpu_nanoseconds",
    "internal.metrics.executorDeserializeCpuTime": "cpu_nanoseconds",
    "internal.metrics.input.bytesRead": "read_bytes",
    "internal.metrics.output.bytesWritten": "written_bytes",
}
"""Spark's own counters of a stage, over all its tasks, that are looked at, and their names here."""

MAX_FAILURES = 20  # Of jobs and stages, whose texts are kept for one query

WHOLE = 0.95
"""Of the tasks that a stage announced: where less of them are told, Spark dropped events."""

Interval = tuple[int, int]  # two moments, in milliseconds since 1970
Time = TypeVar("Time", int, float)


def merged(intervals: Iterable[tuple[Time, Time]]) -> list[tuple[Time, Time]]:
    """The same times, without overlaps, in order."""
    found = list[tuple[Time, Time]]()
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def covered(intervals: Iterable[tuple[Time, Time]]) -> Time:
    """The time that at least one of them covers, in their unit."""
    return sum(end - start for start, end in merged(intervals))


@dataclass(frozen=True, slots=True)
class DroppedTasks:
    """A stage that was completed and of whose tasks the log tells too few."""

    stage: int
    told: int
    announced: int


@dataclass(slots=True)
class SparkQuery:
    """What is known so far."""

    number: int  # of the query, or of the job, in its application
    started_at: int  # milliseconds since 1970, as all moments here
    root: int  # number of the query that it runs inside of, its own where it runs in none
    is_job: bool = False  # a job without a query
    is_start_told: bool = True  # the log says when it started
    plan: PhysicalPlan = field(default_factory=PhysicalPlan)  # of the last event that brought one
    shape: str = ""  # of the first plan: what the optimizer changed since does not count
    description: str = ""  # what its people wrote about it, or where their code asked for it
    call_site: str = ""  # of a job, where code asked for it
    display_name: str = ""  # of a job, what people know it by where nobody described it
    settings: dict[str, str] = field(default_factory=dict)  # that its session or its code set
    failure: str = ""  # what Spark said when it, or a job of it, failed
    failures: list[FailureText] = field(default_factory=list)  # of jobs and stages; local texts
    ended_at: int | None = None  # None while it runs
    ended_badly: bool | None = None  # its end names an error; None where it cannot (before 3.4)
    has_failed_jobs: bool = False  # a job of it failed, or was called off
    has_failed_tasks: bool = False  # tasks of it failed and were done again
    is_torn: bool = False  # an event of it is missing, or too few tasks of it are told
    was_alone: bool = True  # no other one of its application ran meanwhile
    is_running: bool = False  # it counts among those that run now
    is_given_up: bool = False  # its tasks were too many to be kept
    open_jobs: set[int] = field(default_factory=set)  # its jobs that still run
    stage_numbers: set[int] = field(default_factory=set)  # of all its jobs
    jobs: int = 0  # how many it had
    asked_at: int | None = None  # when its first job was submitted; None where none was
    first_task_at: int | None = None  # when its first task began, where that is told
    first_stage_at: int | None = None  # its first stage's submission, where its start is not told
    last_stage_at: int | None = None  # when the last of its stages, or of its jobs, was completed
    waited: Interval | None = None  # from `asked_at` on, while no executor was there
    before: int = 0  # queries of its application that had done work when it began
    cluster: ClusterConfig | None = None  # a mean from its first task on; None where unknown
    slots: int = 0  # tasks that these run at once; 0 where that is unknown
    counters: dict[int, int] = field(default_factory=dict)  # values of Spark's accumulators by id
    totals: Counter[str] = field(default_factory=Counter)  # of `TOTALS` over its stages
    stages: dict[int, StageRun] = field(default_factory=dict)  # of a job, that ended, by number
    attempts: dict[tuple[int, int], StageAttempt] = field(default_factory=dict)  # at stages
    names: Names = field(default_factory=Names)  # that these attempts refer to
    dropped: DroppedTasks | None = None  # of the stage of which most are not told
    tasks: int = 0  # that its completed stages announced
    rdds: int = 0  # of all these stages, with their parents
    problem: str = ""  # why its plan cannot be used, empty otherwise
    counted_size: int = 0  # its `size` when that was last added to what is kept for all
    counted_tasks: int = 0  # ends of tasks that are kept for it

    @classmethod
    def of_job(cls, number: int, at: int, event: Event) -> "SparkQuery":
        """A job without a query that starts."""
        stages = fields.objects(event, "Stage Infos")
        last = max(stages, key=lambda stage: fields.integer(stage, "Stage ID"), default={})
        query = cls(number, at, root=number, is_job=True)
        query.call_site = fields.line(last, "Stage Name")
        query.display_name = job_name(query.call_site, stages)
        return query

    def __str__(self) -> str:
        return f"{'job' if self.is_job else 'query'} {self.number}"

    def failed(self, what: str, said: object) -> None:
        """It, or a part of it, failed."""
        self.failures.append(FailureText.of(what, said))
        del self.failures[:-MAX_FAILURES]

    def take_plan(self, event: Event) -> None:
        """Its plan is told, or why there is none."""
        try:
            self.plan, self.problem = read_plan(fields.mapping(event, "sparkPlanInfo")), ""
        except PlanTooLargeError as error:
            self.plan, self.problem = PhysicalPlan(), str(error)

    def take_end(self, event: Event) -> None:
        """Its end is told."""
        self.ended_at = fields.milliseconds(event, "time")
        error = event.get("errorMessage")
        self.ended_badly = None if error is None else bool(error)
        self.failure = fields.line(event, "errorMessage") or self.failure
        if self.ended_badly:
            self.failed(str(self), error)

    def take_job_end(self, number: int, event: Event) -> None:
        """The end of a job of it is told."""
        self.open_jobs.discard(number)
        result = fields.part(event, "Job Result")
        if result.get("Result") != "JobSucceeded":
            error = fields.part(result, "Exception")
            self.has_failed_jobs, self.failure = True, fields.line(error, "Message")
            self.failed(f"job {number}", error.get("Message"))
        if "Completion Time" in event:  # not before Spark 1.5
            self.last_stage_at = fields.milliseconds(event, "Completion Time")

    def take_stage_end(self, stage: StageAttempt, info: Event) -> None:
        """The end of an attempt at a stage is told."""
        if "Completion Time" in info:
            at = fields.milliseconds(info, "Completion Time")
            self.last_stage_at = max(self.last_stage_at or at, at)
        if not self.is_start_told and "Submission Time" in info:
            at = fields.milliseconds(info, "Submission Time")
            self.first_stage_at = min(self.first_stage_at or at, at)
        stage.announced = fields.count(info, "Number of Tasks")
        stage.is_done = "Failure Reason" not in info
        if not stage.is_done:
            self.failed(str(stage), info.get("Failure Reason"))
        self.has_failed_tasks |= stage.attempt > 0
        self.take_stage(info)

    def give_up_tasks(self) -> None:
        """Keep the figures of no task any more."""
        self.is_given_up, self.counted_tasks = True, 0
        self.names.executors.clear()
        self.names.reasons.clear()
        for stage in self.attempts.values():
            del stage.columns[:]

    def task_began(self, info: Event) -> None:
        """A task of it began, which may be the first."""
        if "Launch Time" in info:
            at, known = fields.milliseconds(info, "Launch Time"), self.first_task_at
            self.first_task_at = at if known is None else min(at, known)

    def take_stage(self, stage: Event) -> None:
        """Take the totals and counters of a stage that has ended."""
        for each in fields.objects(stage, "Accumulables"):
            name = each.get("Name")
            if not isinstance(name, str) or (name.startswith("internal.") and name not in TOTALS):
                continue
            try:
                value = fields.integer(each, "Value")
                if name in TOTALS:
                    self.totals[TOTALS[name]] += value
                else:
                    self.count(fields.integer(each, "ID"), value)
            except MalformedEventError:
                continue  # a counter of the user's own, of any type
        if self.is_job:
            ended = read_stage(stage)
            before = self.stages.get(ended.number)
            # What is done again after a failure is mostly a part of the stage.
            if before is None or ended.tasks >= before.tasks:
                self.stages[ended.number] = ended
                self.rdds += ended.size - (0 if before is None else before.size)

    def count(self, counter: int, value: int) -> None:
        """A counter has reached a value; it never falls, so a stage done again counts once."""
        before = self.counters.get(counter)
        if len(self.counters) < MAX_COUNTERS if before is None else value > before:
            self.counters[counter] = value

    def close(self, stopped_at: int | None, *, went_on: bool) -> None:
        """The log is over: the end of what is larger is its end, where its own is missing.

        Args:
            stopped_at: end of its application; None where the log stops before that.
            went_on: whether others ended after it began.
        """
        is_told_well = self._has_result and self.last_stage_at and not self.has_failed_jobs
        if self.ended_at is None and is_told_well and (self.is_job or stopped_at is not None):
            self.ended_at, self.is_torn = self.last_stage_at, True
        elif self.ended_at is None and went_on and self.open_jobs and not self.has_failed_jobs:
            self.problem = LOST_END
        elif self.ended_at is None and stopped_at is not None:
            if self.open_jobs or self.has_failed_jobs:
                self.ended_at, self.ended_badly = max(stopped_at, self.started_at), True
                self.failure = self.failure or CUT
                self.was_alone = False  # tasks that ran until then are not told
            elif self.jobs:
                self.ended_at, self.is_torn = self.last_stage_at, True
        if self.ended_at is not None and self.open_jobs:
            self.is_torn = self.is_torn or not self.ended_badly
            self.open_jobs.clear()

    def count_tasks(self, passed: Callable[[int], int | None]) -> None:
        """Count what its stages announced, and whether the log tells of as many tasks.

        Args:
            passed: of a stage the ends of tasks that were not looked at; None if nobody counted.
        """
        is_whole = not (self.has_failed or self.has_failed_jobs or self.is_torn)  # all ended
        stages: dict[int, list[StageAttempt]] = {}
        for each in self.attempts.values():
            stages.setdefault(each.number, []).append(each)
        for number, attempts in stages.items():
            begun = any(each.has_begun or each.announced for each in attempts)
            is_lost = is_whole and begun and not any(each.has_ended for each in attempts)
            self.is_torn |= is_lost
            ended = [each.announced for each in attempts if each.is_done or is_lost]
            announced = max(ended, default=None)
            if announced is None:
                continue
            self.tasks += max(each.announced for each in attempts)
            more = passed(number)
            told = sum(each.succeeded for each in attempts) + (more or 0)
            missing = 0 if more is None or told >= WHOLE * announced else announced - told
            if missing > (self.dropped.announced - self.dropped.told if self.dropped else 0):
                self.dropped = DroppedTasks(number, told, announced)
        self.is_torn |= self.dropped is not None
        if self.is_torn and any(
            not each.has_ended and (not each.has_begun or each.succeeded < WHOLE * each.announced)
            for each in self.attempts.values()
        ):
            self.was_alone = False  # nobody can tell who worked

    @property
    def is_nested(self) -> bool:
        """Whether it runs inside of another one."""
        return self.root != self.number and not self.is_job

    @property
    def is_complete(self) -> bool:
        """Whether nothing of it is missing."""
        return self.ended_at is not None and not self.open_jobs

    @property
    def _has_result(self) -> bool:
        """Whether the last of its stages is done."""
        last = max(self.stage_numbers, default=None)
        return any(each.is_done and each.number == last for each in self.attempts.values())

    @property
    def seems_over(self) -> bool:
        """Whether nothing of it runs by what is told, though its end may be missing."""
        is_over = self.ended_at is not None or not (self.is_job or self.open_jobs)
        return self.jobs > 0 and (is_over or self._has_result)

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error, judged as Spark's own user interface does."""
        return self.has_failed_jobs if self.ended_badly is None else self.ended_badly

    @property
    def is_accelerated(self) -> bool:
        """Whether another engine than Spark's own ran a part of it."""
        stages = self.stages.values()
        return self.plan.is_accelerated or any(r.is_accelerated for s in stages for r in s.rdds)

    @property
    def end(self) -> int:
        """When it ended, or else its last stage that is told; its start where nobody knows."""
        return max(self.ended_at or self.last_stage_at or 0, self.started_at)

    @property
    def milliseconds(self) -> int:
        """How long it ran, without what it waited while no executor was there."""
        return self.end - self.started_at - self.wait_milliseconds

    @property
    def wait_milliseconds(self) -> int:
        """How long it waited while no executor was there."""
        return 0 if self.waited is None else self.waited[1] - self.waited[0]

    @property
    def size(self) -> int:
        """Nodes, counters, jobs, stages and RDDs that are kept for it."""
        running = len(self.open_jobs) + len(self.stage_numbers) + 4 * len(self.attempts)
        return len(self.counters) + len(self.plan.nodes) + running + self.rdds


@dataclass(slots=True)
class OpenWork:
    """The queries and jobs that run now, but for those inside of others."""

    count: int = 0
    worked: int = 0  # others, that are over and did some work
    alone: SparkQuery | None = None  # the only one

    def begins(self, query: SparkQuery) -> None:
        """One begins: from now on none is alone but where it is the only one."""
        if self.count:
            query.was_alone = False
            if self.alone is not None:
                self.alone.was_alone = False
        self.alone = None if self.count else query
        self.count += 1
        query.is_running = True

    def stops(self, query: SparkQuery) -> None:
        """It does not run any more, by all that is told; a second time tells nothing."""
        self.count -= query.is_running
        self.worked += query.is_running and query.jobs > 0
        query.is_running = False
        self.alone = None if self.alone is query else self.alone

    def goes_on(self, query: SparkQuery) -> None:
        """More of it is told: where it did not run, others began meanwhile, and it was not over."""
        if not (query.is_running or query.is_nested):
            query.was_alone = False
            self.worked -= 1
            self.begins(query)
