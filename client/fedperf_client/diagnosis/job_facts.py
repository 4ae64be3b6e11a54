"""Facts of one job from a Spark log: its stages, their tasks, and the times when nothing ran.

They are the view of what `sources.spark.reader` read for those who diagnose. A job is a query with
all its Spark jobs, or a Spark job without a query. Moments and durations are whole milliseconds, as
the log has them. All figures are sums, medians or extremes of what tasks reported; nothing is
estimated here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.cluster import Removal
from fedperf_client.sources.spark.query import Dropped, Interval, SparkQuery
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_client.sources.spark.tasks import (
    COLUMNS,
    RESUBMITTED,
    SUCCEEDED,
    EndReason,
    StageAttempt,
    in_milliseconds,
)
from fedperf_shared.execution import ClusterConfig

Longs = NDArray[np.int64]

_SIZE = "data size"

_OVERLAP = 0.05
"""Share of all task time that may exceed the slots: some milliseconds at each task's end."""


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """The tasks of a stage that succeeded, one entry each.

    Attributes:
        launched, finished: as the driver saw them.
        executor: which of `JobFacts.executors` ran it; -1 where that is unknown.
        run: time in the task's own code.
        read_bytes, read_rows: from files and from shuffles.
    """

    launched: Longs
    finished: Longs
    executor: Longs
    run: Longs
    read_bytes: Longs
    read_rows: Longs

    def __len__(self) -> int:
        return len(self.launched)


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """Sums over the tasks of a stage that succeeded: milliseconds and bytes.

    Attributes:
        cpu, garbage: of `TaskColumns.run`; garbage is the time that the JVM stood still.
        fetch_wait: of `run`, waiting for what other tasks had written.
        shuffle_write: of `run`, writing for other tasks.
        input_bytes, shuffle_read, shuffle_written: from files, from and for other tasks.
        rows_read, rows_written: the same in rows; written for other tasks alone.
        spilled_memory, spilled_disk: what did not fit, in memory's form and on disk.
        spilled_tasks, spilled_run: how many tasks that were, and their `run` without garbage
            and fetch wait.
        held: the most memory that each task had for its work, added up.
        most_held: the most that one of them had.
    """

    cpu: int = 0
    garbage: int = 0
    fetch_wait: int = 0
    shuffle_write: int = 0
    input_bytes: int = 0
    shuffle_read: int = 0
    shuffle_written: int = 0
    rows_read: int = 0
    rows_written: int = 0
    spilled_memory: int = 0
    spilled_disk: int = 0
    spilled_tasks: int = 0
    spilled_run: int = 0
    held: int = 0
    most_held: int = 0


@dataclass(frozen=True)
class StageFacts:
    """One attempt at a stage.

    Attributes:
        number, attempt: as the log counts them.
        name: the call that made it; local text.
        submitted_at: None where the log does not tell.
        slots: tasks that its executors could run at once, a mean over its time; 0 where no
            executor is known.
        had_executors: whether one that it could use was there when it was submitted.
        at_start: none had ever been there by then: the application was starting.
        tasks: those that succeeded; at least one.
        totals: sums over them.
        runs_python: beside the JVM, whose processor time alone is counted.
        lost: attempts of it that did not succeed.
    """

    number: int
    attempt: int
    name: str
    submitted_at: int | None
    slots: int
    had_executors: bool
    tasks: TaskColumns
    totals: TaskTotals = field(default_factory=TaskTotals)
    at_start: bool = False
    runs_python: bool = False
    lost: "tuple[LostAttempt, ...]" = ()

    def __str__(self) -> str:
        again = f".{self.attempt}" if self.attempt else ""
        return f"stage {self.number}{again}"

    @cached_property
    def began(self) -> int:
        """Start of its first task."""
        return int(self.tasks.launched.min())

    @cached_property
    def ended(self) -> int:
        """End of its last task."""
        return int(self.tasks.finished.max())

    @property
    def span(self) -> int:
        """From its first task to its last."""
        return self.ended - self.began

    @cached_property
    def durations(self) -> Longs:
        """Of its tasks, as the driver saw them."""
        found: Longs = np.maximum(self.tasks.finished - self.tasks.launched, 0)
        return found

    @cached_property
    def task_time(self) -> int:
        """All durations together; at least 1."""
        return max(1, int(self.durations.sum()))

    @cached_property
    def run_time(self) -> int:
        """All time in tasks' own code; at least 1."""
        return max(1, int(self.tasks.run.sum()))

    @cached_property
    def longest(self) -> int:
        """Position of the task that took longest."""
        return int(self.durations.argmax())

    @cached_property
    def median(self) -> float:
        """Duration of the middle task."""
        return float(np.median(self.durations))

    @cached_property
    def median_run(self) -> float:
        """Time of the middle task in its own code."""
        return float(np.median(self.tasks.run))

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


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a task that did not succeed; it took its place all the same.

    Attributes:
        stage, attempt: of its stage.
        launched, finished: as the driver saw it.
        executor: with its host, where it ran; empty where that is unknown.
        reason: why it ended.
    """

    stage: int
    attempt: int
    launched: int
    finished: int
    executor: tuple[str, str]
    reason: EndReason

    @property
    def duration(self) -> int:
        """Milliseconds."""
        return max(0, self.finished - self.launched)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One table that was sent to all.

    Attributes:
        data_bytes: of it, as it is kept in memory.
        build_time, send_time: milliseconds of the driver, once it had been collected.
    """

    data_bytes: int
    build_time: int
    send_time: int


@dataclass(frozen=True, slots=True)
class ApplicationFacts:
    """An application as a whole.

    Attributes:
        name: with its id; local text.
        started_at, ended_at: of it, as far as its log goes.
        outside: milliseconds of that in which no query and no job ran.
        core_time: of all its executors, milliseconds times cores.
        idle_core_time: of that, what fell into `outside`.
        longest: of the times outside of jobs, the longest first.
        settings: that it was started with.
        cluster: its executors, a mean over its time; None where none is known.
    """

    name: str
    started_at: int
    ended_at: int
    outside: int
    core_time: float
    idle_core_time: float
    longest: tuple[Interval, ...]
    settings: SparkSettings
    cluster: ClusterConfig | None

    @property
    def seconds(self) -> float:
        """From its start to its end."""
        return (self.ended_at - self.started_at) / 1000

    @property
    def cores(self) -> int:
        """A mean over its time; 0 where no executor is known."""
        return 0 if self.cluster is None else self.cluster.cores

    @classmethod
    def of(cls, application: Application) -> "ApplicationFacts | None":
        """An application whose log was read; None where it does not tell its start."""
        start, end = application.submitted_at, application.stopped_at
        if start is None or end is None or end <= start:
            return None
        gaps = application.gaps
        cluster, core_time = application.executors.whole(start, end)
        return cls(
            application.name,
            start,
            end,
            min(gaps.milliseconds, end - start),
            core_time,
            gaps.core_milliseconds,
            tuple(each for _, each in sorted(gaps.longest, reverse=True)),
            application.settings,
            cluster,
        )


@dataclass(frozen=True)
class JobFacts:
    """One job of a log.

    Attributes:
        application: name and id of the application; local text.
        label: such as "query 7" or "job 3".
        description: what the log says of it; local text.
        started_at, ended_at: of its first and last event.
        cluster: the executors that the application had from its first task on, a mean; None where
            none is known.
        was_alone: no other job of the application ran meanwhile.
        has_failed: it ended with an error.
        stages: that ran tasks, in the order of their numbers.
        settings: that it ran with.
        lost: attempts at tasks that did not succeed.
        broadcasts: tables that it sent to all executors.
        told_slots: tasks that its executors run at once; 0 where the log does not tell.
        waited: while no executor was there, before its first task; no part of its run time.
        dropped: a stage of which the log tells too few tasks, so that nobody knows who idled.
        executors: ids and hosts that tasks refer to; local texts.
        failures: what the log says of it, its jobs and its stages that failed; local texts.
        removals: executors that went away meanwhile.
        is_accelerated: another engine than Spark's own ran a part of its plan.
    """

    application: str
    label: str
    description: str
    started_at: int
    ended_at: int
    cluster: ClusterConfig | None
    was_alone: bool
    has_failed: bool
    stages: tuple[StageFacts, ...]
    settings: SparkSettings = field(default_factory=SparkSettings)
    lost: tuple[LostAttempt, ...] = ()
    broadcasts: tuple[Broadcast, ...] = ()
    told_slots: int = 0
    waited: Interval | None = None
    dropped: Dropped | None = None
    executors: tuple[tuple[str, str], ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    removals: tuple[Removal, ...] = ()
    is_accelerated: bool = False

    @classmethod
    def of(cls, query: SparkQuery, application: Application) -> "JobFacts":
        """A query or job that is complete."""
        end = max(query.ended_at or query.started_at, query.started_at)
        stages = [(each, *_attempts(each, query)) for _, each in sorted(query.attempts.items())]
        removals = application.executors.removals
        has_python = any(each.runs_python for each in query.attempts.values())
        return cls(
            application=application.name,
            label=str(query),
            description=" ".join((query.job_description or query.description).split()),
            started_at=query.started_at,
            ended_at=end,
            cluster=query.cluster,
            was_alone=query.was_alone,
            has_failed=query.has_failed,
            stages=tuple(
                StageFacts(
                    each.number,
                    each.attempt,
                    each.name,
                    each.submitted_at,
                    each.slots,
                    each.had_executors,
                    tasks,
                    TaskTotals(**in_milliseconds(each.sums), most_held=each.most_held),
                    each.at_start,
                    each.runs_python or (query.plan.runs_python and not has_python),
                    lost,
                )
                for each, tasks, lost in stages
                if len(tasks)
            ),
            settings=application.settings.overlaid(query.settings),
            lost=tuple(each for *_, lost in stages for each in lost),
            broadcasts=tuple(_broadcasts(query)),
            told_slots=query.slots,
            waited=query.waited,
            dropped=query.dropped,
            executors=tuple(query.names.executors),
            failures=tuple(query.failures),
            removals=tuple(each for each in removals if query.started_at <= each.at <= end),
            is_accelerated=query.is_accelerated,
        )

    @cached_property
    def failed(self) -> tuple[LostAttempt, ...]:
        """Attempts that failed, and were not merely called off."""
        return tuple(each for each in self.lost if not each.reason.is_called_off)

    @property
    def wall_seconds(self) -> float:
        """From its start to its end, with what it waited for the first executor."""
        return (self.ended_at - self.started_at) / 1000

    @property
    def waited_seconds(self) -> float:
        """That it waited while no executor was there."""
        return 0.0 if self.waited is None else (self.waited[1] - self.waited[0]) / 1000

    @property
    def seconds(self) -> float:
        """Its run time: without what it waited while no executor was there."""
        return self.wall_seconds - self.waited_seconds

    @cached_property
    def cores(self) -> int:
        """Its number of cores; where no executor is known, those that its tasks used at once."""
        if self.cluster is not None:
            return self.cluster.cores
        return max(1, int(self._changes[1].max(initial=0)) * self.settings.cores_per_task)

    @property
    def core_seconds(self) -> float:
        """All its cores for all its time: what it cost."""
        return self.cores * self.seconds

    @property
    def slots(self) -> int:
        """Tasks that can run at once."""
        return self.told_slots or max(1, self.cores // self.settings.cores_per_task)

    def executor(self, stage: StageFacts, task: int) -> tuple[str, str]:
        """Id and host of the executor of a task, by its place; empty where that is unknown."""
        place = int(stage.tasks.executor[task])
        return self.executors[place] if place >= 0 else ("", "")

    def held_at_once(self, stage: StageFacts) -> float:
        """The most that tasks of one executor held: the largest beside others of the mean."""
        cores, tasks = self.settings.executor_cores or self.cores, len(stage.tasks)
        at_once = max(1, round(self.slots * min(1.0, cores / self.cores)))
        others = min(at_once, tasks) - 1
        return stage.totals.most_held + others * stage.totals.held / tasks

    @cached_property
    def _changes(self) -> tuple[Longs, Longs]:
        """Moments at which the number of running tasks changes, and the number from then on."""
        places = [
            (each.launched, each.finished)
            for each in self.lost
            if each.reason.name != RESUBMITTED  # what it had done before stands there already
        ]
        lost = np.array(places, np.int64).reshape(-1, 2)
        launched = np.concatenate([*(e.tasks.launched for e in self.stages), *lost.T[:1]])
        finished = np.concatenate([*(e.tasks.finished for e in self.stages), *lost.T[1:]])
        moments = np.concatenate([launched, np.maximum(finished, launched)])
        steps = np.concatenate([np.ones_like(launched), -np.ones_like(finished)])
        order = np.lexsort((steps, moments))  # who ends makes room before who begins
        return moments[order], np.cumsum(steps[order])

    @cached_property
    def idle_is_known(self) -> bool:
        """Whether unused cores can be told: executors are known, and nobody else used them.

        Where events were dropped, what seems idle is what is not told. Where more tasks ran than
        there were slots for, the log does not tell all executors. A task is said to end a little
        after the next has begun in its place, hence `_OVERLAP`.
        """
        moments, running = self._changes
        most = max((self.slots, *(each.slots for each in self.stages)))
        above = np.maximum(running[:-1] - most, 0) * np.diff(moments)
        used = sum(each.task_time for each in self.stages)
        if self.cluster is None or not self.told_slots or not self.was_alone or self.dropped:
            return False
        return float(above.sum()) <= _OVERLAP * used

    def unused(self, stage: StageFacts) -> float:
        """Milliseconds of a stage's span without a task of this job, the mean over its slots.

        A stage cannot become faster by more than that without more slots. 0 where unused
        cores cannot be told.
        """
        if not (self.idle_is_known and stage.slots):
            return 0.0
        start, end = stage.began, stage.ended
        moments, running = self._changes
        edges = np.concatenate([[start], np.clip(moments, start, end), [end]])
        counts = np.concatenate([[0], running])
        idle = np.diff(edges) * np.maximum(stage.slots - counts, 0)
        return float(idle.sum()) / stage.slots

    def uneven(self, stage: StageFacts) -> float:
        """Milliseconds that a stage took longer than with the same tasks, all alike."""
        least = max(stage.even_span, stage.mean)
        return min(max(0.0, stage.span - least), self.unused(stage))

    @cached_property
    def quiet(self) -> tuple[Interval, ...]:
        """Intervals from its start to its end in which none of its tasks ran."""
        moments, running = self._changes
        edges = np.clip(moments, self.started_at, self.ended_at)
        starts = np.concatenate([[self.started_at], edges[running == 0]])
        following = np.concatenate([edges, [self.ended_at]])
        ends = np.concatenate([[0], np.flatnonzero(running == 0) + 1])
        pairs = zip(starts, following[ends], strict=True)
        return tuple((int(start), int(end)) for start, end in pairs if end > start)


def _attempts(
    stage: StageAttempt, query: SparkQuery
) -> tuple[TaskColumns, tuple[LostAttempt, ...]]:
    """The attempts at a stage's tasks that succeeded, and those that did not."""
    table: Longs = np.array(stage.columns, np.int64).reshape(-1, COLUMNS)
    launched, finished, executor, ended, run, read_bytes, read_rows = table.T
    well = ended == SUCCEEDED
    columns = (launched, finished, executor, run, read_bytes, read_rows)
    executors, reasons = list(query.names.executors), list(query.names.reasons)
    lost = tuple(
        LostAttempt(
            stage.number,
            stage.attempt,
            began,
            stopped,
            executors[place] if place >= 0 else ("", ""),
            reasons[reason],
        )
        for began, stopped, place, reason in table[~well, :4].tolist()
    )
    return TaskColumns(*(np.ascontiguousarray(column[well]) for column in columns)), lost


def _broadcasts(query: SparkQuery) -> Iterator[Broadcast]:
    """Every table that was sent to all and whose size was counted, once."""
    seen = set[int]()
    for node in query.plan.nodes:
        ids = node.sent or {}
        counted = {
            name.removesuffix(" (ms)"): max(0, query.counters[number])
            for name, number in ids.items()
            if number in query.counters
        }
        if counted.get(_SIZE) and ids[_SIZE] not in seen:
            seen.add(ids[_SIZE])
            build, send = counted.get("time to build", 0), counted.get("time to broadcast", 0)
            yield Broadcast(counted[_SIZE], build, send)
