"""Jobs of a Spark log with their stages, tasks and idle times, and the findings about them.

`JobFacts` is the view of a `SparkQuery` that diagnosis uses. A job is a query with all its Spark
jobs, or a Spark job without a query. Timestamps and durations are whole milliseconds, as in the
log. All figures are sums, medians or extremes of what tasks reported; nothing is estimated.

The potential saving of a finding is an upper bound: the job would be faster by at most so much if
only this were fixed. Bounds of several findings overlap and do not add up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum, unique
from functools import cached_property
from pathlib import Path

import numpy as np

from fedperf_client.sources import (
    NothingToReadError,
    SkippedRecord,
    find_sources,
    require_complete,
)
from fedperf_client.sources.opener import SourcePlace, UnreadArchiveError, UnreadCodecError
from fedperf_client.sources.spark.event_log import WHOLE_LOG, EventLog, open_event_log
from fedperf_client.sources.spark.failures import LostAttempt, Removal
from fedperf_client.sources.spark.query import (
    RESUBMITTED,
    Interval,
    Longs,
    SparkQuery,
    StageAttempt,
    covered,
)
from fedperf_client.sources.spark.reader import Application
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.addresses import Address
from fedperf_shared.workflow.vocabulary import OperatorKind


@unique
class Symptom(StrEnum):
    """The kind of a finding."""

    SPILL = "spill"
    SKEW = "skew"
    STRAGGLER = "straggler"
    FEW_TASKS = "few tasks"
    LAST_WAVE = "last wave"
    TINY_TASKS = "tiny tasks"
    EXECUTOR_WAIT = "executor wait"
    DRIVER = "driver alone"
    GARBAGE = "garbage collection"
    SHUFFLE_WAIT = "shuffle wait"
    SHUFFLE_GROWTH = "shuffle growth"
    BROADCAST = "broadcast"
    FAILURES = "failures"
    DROPPED_EVENTS = "dropped events"
    OUTSIDE_JOBS = "outside jobs"
    SLOW_EXECUTOR = "slow executor"
    REPEATED_WORK = "repeated work"
    SMALL_FILES = "small files"
    SORTED_JOIN = "sorted join"
    SETTINGS = "settings"
    EXECUTOR_CHURN = "executor churn"
    NO_END = "no end"


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One finding of a rule."""

    symptom: Symptom
    place: str  # the stage, or the job as a whole
    seconds: float  # upper bound of the potential saving of the job's time
    evidence: str  # figures as in the log, for people
    advice: str  # what would fix it
    conf: tuple[str, ...] = ()  # as settings, each like `spark.sql.shuffle.partitions=400`
    # the evidence for programs
    figures: Mapping[str, float | str | tuple[str, ...]] = field(default_factory=dict)
    share: float | None = None  # of the job's cost, if it is not that of its time

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"the potential saving must not be negative, got {self.seconds}")


# Share of all task time that may exceed the slots: some milliseconds at each task's end.
_OVERLAP = 0.05

_UNFINISHED = "no end of a job: the log stops before it"
_GIVEN_UP = "a job given up: too much ran at the same time"
_BAD = "a line that is no usable event"


@dataclass(frozen=True, slots=True)
class Part:
    """A node of a plan with all below it, that ran."""

    key: tuple[int, int | None]  # equal for equal parts: of descriptions, and rows if counted
    operators: int
    counters: frozenset[int]  # ids
    stages: tuple[StageAttempt, ...]  # that ran it, at least one


def span_of(stages: Iterable[StageAttempt]) -> float:
    """Return the seconds in which tasks of at least one of the stages may have run."""
    return covered((each.began, each.ended) for each in stages) / 1000


@dataclass(frozen=True)
class JobFacts:
    """One job of a log."""

    query: SparkQuery  # as it was read
    application: str  # name and id of the application; local text
    settings: SparkSettings  # that it ran with
    attempts: tuple[StageAttempt, ...]  # at stages, by number
    removals: tuple[Removal, ...]  # of executors of the application, so far

    @classmethod
    def of(cls, query: SparkQuery, application: Application) -> "JobFacts":
        """Return the facts of a query or job that is over."""
        stages = [stage for _, stage in sorted(query.attempts.items())]
        if query.plan.runs_python and not any(each.runs_python for each in stages):
            for each in stages:  # one of them runs Python
                each.runs_python = True
        return cls(
            query,
            application.name,
            application.settings.overlaid(query.settings),
            tuple(stages),
            tuple(application.executors.removals),
        )

    @property
    def description(self) -> str:
        """The description of the job; local text."""
        text = self.query.description or self.query.display_name
        return " ".join(text.split())

    @cached_property
    def stages(self) -> tuple[StageAttempt, ...]:
        """Attempts at stages of which tasks succeeded."""
        return tuple(each for each in self.attempts if len(each.tasks))

    @cached_property
    def lost(self) -> tuple[LostAttempt, ...]:
        """Attempts at tasks that did not succeed."""
        return tuple(lost for each in self.attempts for lost in each.lost)

    def stages_of(self, counters: Set[int]) -> tuple[StageAttempt, ...]:
        """Return the stages that changed one of these counters."""
        return tuple(each for each in self.stages if not each.counted.isdisjoint(counters))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Parts of its plan of at least two operators that ran and can be compared."""
        nodes, parts = self.query.plan.nodes, list[Part]()
        below_of: list[tuple[int, int, frozenset[int]] | None] = [None] * len(nodes)
        for position in reversed(range(len(nodes))):
            node = nodes[position]
            below = [below_of[each] for each in node.children]
            inputs = [each for each in below if each is not None]
            if len(inputs) < len(below) or not (below or node.content):
                continue
            if node.kind is None or node.reads_exchange:  # a layer
                below_of[position] = inputs[0] if len(inputs) == 1 else None
                continue
            if not node.content:
                continue
            counters = frozenset[int]().union(*(each[2] for each in inputs))
            # A stage that only reads an exchange ran nothing of it.
            ran = counters | ({node.named["data size"]} if "data size" in node.named else set())
            if not node.named.keys() & {"data size"}:
                ran |= node.counters
            content = hash((node.content, *(each[0] for each in inputs)))
            operators = 1 + sum(each[1] for each in inputs)
            below_of[position] = content, operators, counters | node.counters
            stages = self.stages_of(ran)
            if operators > 1 and stages:
                counts = (self.query.counters[e] for e in node.rows if e in self.query.counters)
                key = content, next(counts, None)
                parts.append(Part(key, operators, counters | node.counters, stages))
        return tuple(parts)

    @property
    def may_join(self) -> bool:
        """Return whether it is a query whose plan joins anything, or is unknown."""
        nodes = self.query.plan.nodes
        joins = any(each.kind is OperatorKind.JOIN for each in nodes)
        return not self.query.is_job and (joins or not nodes)

    @property
    def wall_seconds(self) -> float:
        """Seconds from its start to its end, with the wait for the first executor."""
        return (self.query.end - self.query.started_at) / 1000

    @property
    def seconds(self) -> float:
        """The run time, without the wait for executors."""
        return self.query.milliseconds / 1000

    @cached_property
    def cores(self) -> int:
        """Return the number of cores; without executors, those that its tasks used at once."""
        if self.query.cluster is not None:
            return self.query.cluster.cores
        return max(1, int(self._changes[1].max(initial=0)) * self.settings.cores_per_task)

    @property
    def slots(self) -> int:
        """Tasks that can run at once."""
        return self.query.slots or max(1, self.cores // self.settings.cores_per_task)

    def held_at_once(self, stage: StageAttempt) -> float:
        """Return the most memory that tasks of one executor held: the largest with mean ones."""
        cores, tasks = self.settings.executor_cores or self.cores, len(stage.tasks)
        at_once = max(1, round(self.slots * min(1.0, cores / self.cores)))
        others = min(at_once, tasks) - 1
        return stage.totals.most_held + others * stage.totals.held / tasks

    @cached_property
    def _changes(self) -> tuple[Longs, Longs]:
        """Timestamps at which the number of running tasks changes, and the number from then on."""
        intervals = [
            (each.launched, each.finished)
            for each in self.lost
            if each.reason.name != RESUBMITTED  # its earlier success counts already
        ]
        lost = np.array(intervals, np.int64).reshape(-1, 2)
        launched = np.concatenate([*(e.tasks["launched"] for e in self.stages), *lost.T[:1]])
        finished = np.concatenate([*(e.tasks["finished"] for e in self.stages), *lost.T[1:]])
        moments = np.concatenate([launched, np.maximum(finished, launched)])
        steps = np.concatenate([np.ones_like(launched), -np.ones_like(finished)])
        order = np.lexsort((steps, moments))  # ends before starts
        return moments[order], np.cumsum(steps[order])

    @cached_property
    def idle_is_known(self) -> bool:
        """Return whether unused cores are known: executors are known, and no other job used them.

        If events were dropped, missing tasks look like idle time. If more tasks ran than there were
        slots, executors are missing in the log. A task is reported to end a little after the next
        one has begun in its slot, hence `_OVERLAP`.
        """
        moments, running = self._changes
        most = max((self.slots, *(each.slots for each in self.stages)))
        above = np.maximum(running[:-1] - most, 0) * np.diff(moments)
        used = sum(each.task_time for each in self.stages)
        query = self.query
        if not (query.cluster and query.slots and query.was_alone) or query.dropped:
            return False
        return float(above.sum()) <= _OVERLAP * used

    def unused(self, stage: StageAttempt) -> float:
        """Return the mean idle milliseconds per slot in a stage's span.

        Without more slots, a stage cannot become faster by more than that. Time in which no task of
        this job ran counts as idle. 0 if unused cores are unknown.
        """
        if not (self.idle_is_known and stage.slots):
            return 0.0
        start, end = stage.began, stage.ended
        moments, running = self._changes
        edges = np.concatenate([[start], np.clip(moments, start, end), [end]])
        counts = np.concatenate([[0], running])
        idle = np.diff(edges) * np.maximum(stage.slots - counts, 0)
        return float(idle.sum()) / stage.slots

    def uneven(self, stage: StageAttempt) -> float:
        """Return the milliseconds that a stage took longer than with equally long tasks."""
        least = max(stage.even_span, stage.mean)
        return min(max(0.0, stage.span - least), self.unused(stage))

    @cached_property
    def quiet(self) -> tuple[Interval, ...]:
        """Intervals of its time in which none of its tasks ran."""
        moments, running = self._changes
        began, ended = self.query.started_at, self.query.end
        edges = np.clip(moments, began, ended)
        starts = np.concatenate([[began], edges[running == 0]])
        following = np.concatenate([edges, [ended]])
        ends = np.concatenate([[0], np.flatnonzero(running == 0) + 1])
        pairs = zip(starts, following[ends], strict=True)
        return tuple((int(start), int(end)) for start, end in pairs if end > start)


def jobs_of(log: EventLog) -> Iterator[JobFacts | Application | str]:
    """Yield every job of a log when it is complete, and the application at the end.

    Texts name what was left out; local.
    """
    names = {file.name for file in log.files}
    missing, application = Counter[str](), Application(log.is_partial, with_tasks=True)
    for item in log.work(application):
        if isinstance(item, SkippedRecord):
            if item.record in {*names, WHOLE_LOG}:
                yield str(item) if item.record in names and len(names) > 1 else item.reason
            else:
                missing[_BAD] += 1
        elif item.is_given_up:
            missing[_GIVEN_UP] += 1
        elif item.is_nested:
            continue
        elif item.is_complete:
            yield JobFacts.of(item, application)
        else:
            missing[_UNFINISHED] += 1
            application.cut(item)
    yield application
    for reason in (_UNFINISHED, _GIVEN_UP, _BAD):
        if missing[reason]:
            yield f"{reason} ({missing[reason]})"


def event_logs_in(
    paths: Iterable[Path | Address],
    problems: list[str],
    others: list[str],
    advance: Callable[[int, int], None],
) -> Iterator[tuple[SourcePlace, EventLog]]:
    """Yield every Spark log below the paths, each opened when the one before it is done.

    Args:
        paths: as for `find_sources`.
        problems: receives those of paths that were named explicitly.
        others: receives the files in directories that are no logs, or empty.
        advance: is called with the numbers of places that are done, and of all.
    """
    places = list(find_sources(paths, problems))
    for done, (place, is_named) in enumerate(places):
        advance(done, len(places))
        try:
            require_complete(place)
            log = open_event_log(place)
        except (NothingToReadError, UnreadArchiveError, UnreadCodecError) as error:
            (problems if is_named else others).append(str(error))
            continue
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
            continue
        except InvalidInputError as error:
            problems.append(str(error))
            continue
        if log is None:
            (problems if is_named else others).append(f"{place}: not a Spark event log")
            continue
        others += [f"{place}: {each}" for each in log.others]
        for each in log.logs:
            yield place, each
