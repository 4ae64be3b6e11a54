"""Facts of one job from a Spark log: its stages, their tasks, and the times when nothing ran.

A job is a query with all its Spark jobs, or a Spark job without a query. Moments and durations are
whole milliseconds, as the log has them. All figures are sums, medians or extremes of what tasks
reported; nothing is estimated here.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedperf_client.diagnosis.broadcasts import Broadcast
from fedperf_client.diagnosis.spark_settings import SparkSettings
from fedperf_shared.execution import ClusterConfig

Longs = NDArray[np.int64]
Interval = tuple[int, int]

_OVERLAP = 0.05
"""Share of all task time that may exceed the slots: some milliseconds at each task's end."""


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """The tasks of a stage that succeeded, one entry each.

    Attributes:
        launched, finished: as the driver saw them.
        run: time in the task's own code.
        read_bytes, read_rows: from files and from shuffles.
    """

    launched: Longs
    finished: Longs
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
class FailedTask:
    """A task that did not succeed, and was not merely called off.

    Attributes:
        stage: number of its stage.
        reason: in one word of the log, such as the class of an exception.
        is_out_of_memory: whether the log says that memory ran out.
        launched, finished: as the driver saw it.
    """

    stage: int
    reason: str
    is_out_of_memory: bool
    launched: int
    finished: int


@dataclass(frozen=True)
class JobFacts:
    """One job of a log.

    Attributes:
        application: name and id of the application; local text.
        label: such as "query 7" or "job 3".
        description: what the log says of it; local text.
        started_at, ended_at: of its first and last event.
        cluster: the executors that the application had meanwhile, a mean; None where none is
            known.
        was_alone: no other job of the application ran meanwhile.
        has_failed: it ended with an error.
        stages: that ran tasks, in the order of their numbers.
        settings: of its application.
        failed: tasks that did not succeed.
        broadcasts: tables that it sent to all executors.
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
    failed: tuple[FailedTask, ...] = ()
    broadcasts: tuple[Broadcast, ...] = ()

    @property
    def seconds(self) -> float:
        """From its start to its end."""
        return (self.ended_at - self.started_at) / 1000

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
        return max(1, self.cores // self.settings.cores_per_task)

    def held_at_once(self, stage: StageFacts) -> float:
        """The most that tasks of one executor held: the largest beside others of the mean."""
        cores, tasks = self.settings.executor_cores or self.cores, len(stage.tasks)
        others = min(max(1, cores // self.settings.cores_per_task), tasks) - 1
        return stage.totals.most_held + others * stage.totals.held / tasks

    @cached_property
    def _changes(self) -> tuple[Longs, Longs]:
        """Moments at which the number of running tasks changes, and the number from then on."""
        failed = np.array([(e.launched, e.finished) for e in self.failed], np.int64).reshape(-1, 2)
        launched = np.concatenate([*(e.tasks.launched for e in self.stages), *failed.T[:1]])
        finished = np.concatenate([*(e.tasks.finished for e in self.stages), *failed.T[1:]])
        moments = np.concatenate([launched, np.maximum(finished, launched)])
        steps = np.concatenate([np.ones_like(launched), -np.ones_like(finished)])
        order = np.lexsort((steps, moments))  # who ends makes room before who begins
        return moments[order], np.cumsum(steps[order])

    @cached_property
    def idle_is_known(self) -> bool:
        """Whether unused cores can be told: executors are known, and nobody else used them.

        Where more tasks ran than there were slots for, the log does not tell all executors. A
        task is said to end a little after the next has begun in its place, hence `_OVERLAP`.
        """
        moments, running = self._changes
        most = max((self.slots, *(each.slots for each in self.stages)))
        above = np.maximum(running[:-1] - most, 0) * np.diff(moments)
        used = sum(each.task_time for each in self.stages)
        if self.cluster is None or not self.was_alone:
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
