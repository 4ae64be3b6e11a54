"""A Spark application as its log describes it: queries, executors, and the memory of its tasks.

Executors are a setting of the application, not of a query, so the application is sized. Of very
many queries only the longest are predicted; the time of the others counts as outside of queries.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.cluster import UNIFIED_SHARE
from fedperf_client.sources.spark.names import is_interactive, stripped
from fedperf_client.sources.spark.query import covered, merged
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_shared.execution import ClusterConfig, Execution

MOST_QUERIES = 200  # predicted queries of an application at most
MOST_INTERVALS = 10_000  # intervals of stages that are kept apart while a log is read
RESERVED_BYTES = 300 * 2**20  # memory of an executor that Spark reserves (Spark's tuning guide)
Interval = tuple[float, float]  # start and end, in seconds since 1970


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """One application, as it ran."""

    name: str  # name and id in its log; never sent
    # Name that its other runs share: without dates and ids, or, for an interactive session, with
    # its id.
    group: str
    queries: tuple[Execution, ...]  # successful executions, at least one
    cluster: ClusterConfig  # cluster of the largest of them
    settings: SparkSettings  # Spark settings at its start
    wall_seconds: float  # time from its submission, if known, to the end of its last job
    non_query_seconds: float  # part of that in which none of `queries` ran
    held_bytes: float  # largest memory that the tasks of one executor held for their work
    spilled_bytes: int  # bytes that did not fit and were spilled to disk
    low_parallelism_seconds: float = 0.0  # time of stages with no more tasks than slots
    runs: int = 1  # number of its runs in the logs
    used_core_seconds: float = 0.0  # core-seconds of all these runs, 0 if only this one is known
    task_seconds: float = 0.0  # total time of its successful tasks
    idle_seconds: float = 0.0  # part of `wall_seconds` in which none of these tasks ran

    def least_seconds(self, cores: int) -> float:
        """Return the shortest time on so many cores, if slots never wait for a task.

        More cores do not shorten stages that had a slot for every task.
        """
        slots = max(1, cores // self.settings.cores_per_task)
        least = self.task_seconds / slots
        if cores < self.cluster.cores:
            return self.idle_seconds + least
        # Cores are a mean over time; with no fewer of them, the application was that fast.
        return min(self.idle_seconds + max(least, self.low_parallelism_seconds), self.wall_seconds)

    @property
    def overlap(self) -> float:
        """Ratio of the time with queries to the sum of their times, in (0, 1]."""
        total = sum(each.runtime_seconds for each in self.queries)
        return min(1.0, max(self.wall_seconds - self.non_query_seconds, 1e-3) / total)

    @property
    def executor_cores(self) -> int:
        """Cores of an executor. Without a setting, every machine has one executor."""
        if self.settings.is_local:
            return self.cluster.cores
        cores = self.settings.executor_cores or self.cluster.cores // self.cluster.nodes or 1
        return min(cores, self.cluster.cores)

    @property
    def executors(self) -> int:
        """The number of executors."""
        return max(1, round(self.cluster.cores / self.executor_cores))

    @property
    def least_memory_bytes(self) -> float:
        """Smallest memory of an executor that fits the measured peak."""
        if self.spilled_bytes:
            return self.settings.memory_bytes
        return min(RESERVED_BYTES + self.held_bytes / UNIFIED_SHARE, self.settings.memory_bytes)


@dataclass(slots=True)
class ApplicationRecord:
    """Collects the facts of an application while its log is read."""

    _queries: list[Execution] = field(default_factory=list)
    _settings: SparkSettings = field(default_factory=SparkSettings)
    _name: str = ""
    _began: float = float("inf")
    _ended: float = 0.0
    _held: float = 0.0
    _spilled: int = 0
    _low_parallelism: list[Interval] = field(default_factory=list)
    _task_seconds: float = 0.0
    _busy: list[Interval] = field(default_factory=list)

    def add_job(self, job: JobFacts) -> None:
        """Add a job with the memory of its tasks."""
        self._name, self._settings = job.application, job.settings
        self._began = min(self._began, job.query.started_at / 1000)
        self._ended = max(self._ended, job.query.end / 1000)
        for stage in job.stages:
            interval = stage.began / 1000, stage.ended / 1000
            self._held = max(self._held, job.held_at_once(stage))
            self._spilled += stage.totals.spilled_disk
            self._task_seconds += stage.task_time / 1000
            self._busy.append(interval)
            if len(stage.tasks) <= stage.slots:
                self._low_parallelism.append(interval)
        if len(self._busy) > MOST_INTERVALS:
            self._busy = merged(self._busy)
            self._low_parallelism = merged(self._low_parallelism)

    def add_query(self, execution: Execution) -> None:
        """Add a query. Failed ones are ignored."""
        if not execution.is_ok or execution.measurement is None:
            return
        self._queries.append(execution)
        if len(self._queries) >= 2 * MOST_QUERIES:
            self._queries = _longest(self._queries)

    def finish(self) -> SparkApplication | None:
        """Return the application, None without a successful query."""
        queries = _longest(self._queries)
        if not queries or not self._name:
            return None
        submitted = min(_submitted_at(each) for each in queries)
        wall = max(self._ended - min(self._began, submitted), queries[0].runtime_seconds)
        query_seconds = covered(map(_interval, queries))
        plain = self._name.rpartition(" (")[0] or self._name
        return SparkApplication(
            self._name,
            self._name if is_interactive(plain) else stripped(plain),
            tuple(queries),
            queries[0].cluster,
            self._settings,
            wall,
            max(0.0, wall - query_seconds),
            self._held,
            self._spilled,
            min(covered(self._low_parallelism), query_seconds),
            task_seconds=self._task_seconds,
            idle_seconds=max(0.0, wall - covered(self._busy)),
        )


def _submitted_at(execution: Execution) -> float:
    """Return when its application was submitted, or when a later query of it began."""
    waited = 0.0 if execution.measurement is None else execution.measurement.startup_seconds
    return _interval(execution)[0] - waited


def _longest(queries: list[Execution]) -> list[Execution]:
    return sorted(queries, key=lambda each: each.runtime_seconds, reverse=True)[:MOST_QUERIES]


def _interval(execution: Execution) -> Interval:
    end = execution.finished_at.timestamp()
    return end - execution.runtime_seconds, end


def newest_of_each(applications: Iterable[SparkApplication]) -> list[SparkApplication]:
    """Return the last run of each application, most core-seconds in queries first.

    Core-seconds are counted over all runs. Time outside of queries, as in a shell that waits for
    its user, does not affect the order: no number of executors shortens it.
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
        for group in sorted(runs.values(), key=_query_core_seconds, reverse=True)
    ]


def _query_core_seconds(runs: Iterable[SparkApplication]) -> float:
    return sum(each.cluster.cores * (each.wall_seconds - each.non_query_seconds) for each in runs)


def _end(application: SparkApplication) -> float:
    return max(each.finished_at.timestamp() for each in application.queries)
