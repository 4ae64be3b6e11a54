"""A Spark application as its log tells it: its queries, its executors, and what its tasks held.

Executors are a setting of the application, not of a query, so this is what is sized. Of very
many queries the longest are asked about; the time of all others counts as time beside.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.cluster import UNIFIED_SHARE
from fedperf_client.sources.spark.names import is_interactive, stripped
from fedperf_client.sources.spark.query import covered, merged
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_shared.execution import ClusterConfig, Execution

MOST_QUERIES = 200
"""Asked about at most."""

RESERVED_BYTES = 300 * 2**20
"""Of an executor's memory that Spark keeps for itself (its tuning guide)."""


MOST_INTERVALS = 10_000
"""Of stages that are held apart while a log is read."""

Interval = tuple[float, float]
"""Start and end, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """One application, as it ran.

    Attributes:
        name: as its log has it, with its id; local.
        group: the same for its other runs: the name without dates and ids, or, where that says
            no more than that somebody worked interactively, with its id.
        queries: executions that ended well, at least one.
        cluster: what the largest of them had.
        settings: it was started with.
        wall_seconds: from its submission, where known, to the end of its last job.
        beside_seconds: of that, in which none of `queries` ran.
        held_bytes: the most memory that the tasks of one executor held for their work.
        spilled_bytes: that did not fit and went to disk.
        narrow_seconds: of stages with no more tasks than there was room for.
        runs: that were read of the group, this one included.
        used_core_seconds: of all these runs together; 0 where only this one is known.
        task_seconds: of all its tasks that succeeded, one after the other.
        idle_seconds: of `wall_seconds`, in which none of these tasks ran.
    """

    name: str
    group: str
    queries: tuple[Execution, ...]
    cluster: ClusterConfig
    settings: SparkSettings
    wall_seconds: float
    beside_seconds: float
    held_bytes: float
    spilled_bytes: int
    narrow_seconds: float = 0.0
    runs: int = 1
    used_core_seconds: float = 0.0
    task_seconds: float = 0.0
    idle_seconds: float = 0.0

    def least_seconds(self, cores: int) -> float:
        """What it takes at least on so many cores: their slots never wait for a task.

        Stages that had a slot for every task take as long on more.
        """
        slots = max(1, cores // self.settings.cores_per_task)
        least = self.task_seconds / slots
        if cores < self.cluster.cores:
            return self.idle_seconds + least
        # Cores are a mean over time; where they are no fewer, it has been that fast.
        return min(self.idle_seconds + max(least, self.narrow_seconds), self.wall_seconds)

    @property
    def runtime_seconds(self) -> float:
        """Of all queries, one after the other."""
        return sum(each.runtime_seconds for each in self.queries)

    @property
    def overlap(self) -> float:
        """By how much queries together took less than one after the other, in (0, 1]."""
        apart = self.wall_seconds - self.beside_seconds
        return min(1.0, max(apart, 1e-3) / self.runtime_seconds)

    @property
    def executor_cores(self) -> int:
        """Of one executor; where nothing tells, a machine has one."""
        if self.settings.is_local:
            return self.cluster.cores
        told = self.settings.executor_cores
        return min(told or self.cluster.cores // self.cluster.nodes or 1, self.cluster.cores)

    @property
    def executors(self) -> int:
        """How many it had."""
        return max(1, round(self.cluster.cores / self.executor_cores))

    @property
    def least_memory_bytes(self) -> float:
        """Of an executor, below which what was measured does not fit."""
        if self.spilled_bytes:
            return self.settings.memory_bytes
        return min(RESERVED_BYTES + self.held_bytes / UNIFIED_SHARE, self.settings.memory_bytes)


@dataclass(slots=True)
class ApplicationRecord:
    """What is known of an application while its log is read."""

    _queries: list[Execution] = field(default_factory=list)
    _settings: SparkSettings = field(default_factory=SparkSettings)
    _name: str = ""
    _began: float = float("inf")
    _ended: float = 0.0
    _held: float = 0.0
    _spilled: int = 0
    _narrow: list[Interval] = field(default_factory=list)
    _task_seconds: float = 0.0
    _busy: list[Interval] = field(default_factory=list)

    def add_job(self, job: JobFacts) -> None:
        """A job of it, with what its tasks held."""
        self._name, self._settings = job.application, job.settings
        self._began = min(self._began, job.query.started_at / 1000)
        self._ended = max(self._ended, job.query.end / 1000)
        for stage in job.stages:
            self._held = max(self._held, job.held_at_once(stage))
            self._spilled += stage.totals.spilled_disk
            self._task_seconds += stage.task_time / 1000
            self._busy.append((stage.began / 1000, stage.ended / 1000))
            if len(stage.tasks) <= stage.slots:
                self._narrow.append((stage.began / 1000, stage.ended / 1000))
        if len(self._busy) > MOST_INTERVALS:
            self._busy, self._narrow = merged(self._busy), merged(self._narrow)

    def add_query(self, execution: Execution) -> None:
        """A query of it."""
        if not execution.is_ok or execution.measurement is None:
            return
        self._queries.append(execution)
        if len(self._queries) >= 2 * MOST_QUERIES:
            self._queries = _longest(self._queries)

    def finished(self) -> SparkApplication | None:
        """The application; None where no query of it ended well."""
        queries = _longest(self._queries)
        if not queries or not self._name:
            return None
        submitted = min(_submitted_at(each) for each in queries)
        wall = max(self._ended - min(self._began, submitted), queries[0].runtime_seconds)
        answered = covered(map(_interval, queries))
        return SparkApplication(
            self._name,
            _group_of(self._name),
            tuple(queries),
            queries[0].cluster,
            self._settings,
            wall,
            max(0.0, wall - answered),
            self._held,
            self._spilled,
            min(covered(self._narrow), answered),
            task_seconds=self._task_seconds,
            idle_seconds=max(0.0, wall - covered(self._busy)),
        )


def _group_of(name: str) -> str:
    plain = name.rpartition(" (")[0] or name
    return name if is_interactive(plain) else stripped(plain)


def _submitted_at(execution: Execution) -> float:
    """When its application was submitted, where it is the first of it; else when it began."""
    waited = 0.0 if execution.measurement is None else execution.measurement.startup_seconds
    return _interval(execution)[0] - waited


def newest_of_each(applications: Iterable[SparkApplication]) -> list[SparkApplication]:
    """Of runs of the same application the last one; those whose queries used most cores first.

    Core-seconds are counted over all runs. Those in which no query ran, as in a shell that waits
    for its user, do not decide the order: no number of executors makes them fewer.
    """
    runs: dict[str, list[SparkApplication]] = {}
    for each in applications:
        runs.setdefault(each.group, []).append(each)
    return [
        replace(
            max(reversed(group), key=_end),
            runs=len(group),
            used_core_seconds=sum(each.cluster.cores * each.wall_seconds for each in group),
        )
        for group in sorted(runs.values(), key=_core_seconds_of_queries, reverse=True)
    ]


def _core_seconds_of_queries(runs: Iterable[SparkApplication]) -> float:
    return sum(each.cluster.cores * (each.wall_seconds - each.beside_seconds) for each in runs)


def _end(application: SparkApplication) -> float:
    return max(each.finished_at.timestamp() for each in application.queries)


def _longest(queries: list[Execution]) -> list[Execution]:
    return sorted(queries, key=lambda each: each.runtime_seconds, reverse=True)[:MOST_QUERIES]


def _interval(execution: Execution) -> Interval:
    end = execution.finished_at.timestamp()
    return end - execution.runtime_seconds, end
