"""The jobs of an application while their events arrive, until each is complete.

What is kept is bounded by what runs at the same time: beyond the limits of this module the
job that holds most is given up, and counted.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedperf_client.diagnosis.broadcasts import BroadcastCounters
from fedperf_client.diagnosis.job_facts import (
    FailedTask,
    JobFacts,
    Longs,
    StageFacts,
    TaskColumns,
)
from fedperf_client.diagnosis.present_executors import PresentExecutors
from fedperf_client.diagnosis.spark_settings import SparkSettings
from fedperf_client.diagnosis.task_figures import (
    CALLED_OFF,
    LONGEST_TEXT,
    failure_of,
    figures_of,
    totals_of,
)
from fedperf_client.sources.display_name import query_name
from fedperf_client.sources.spark.cluster import MAX_EXECUTORS, profile_of
from fedperf_client.sources.spark.fields import (
    Event,
    integer,
    mapping,
    milliseconds,
    sequence,
    text,
)
from fedperf_shared.execution import ClusterConfig

MAX_TASKS = 500_000
"""And stages, of all jobs that run at the same time; a task takes 40 bytes."""

MAX_JOBS = 2_000
"""That run at the same time."""

_QUERY_ID = "spark.sql.execution.id"
_DESCRIPTION = "spark.job.description"
_INNER = "(runId "
"""In what Spark itself calls the jobs that build a table for all."""

_COLUMNS = 5
_STEP = 1000


@dataclass(slots=True)
class _OpenStage:
    """A stage attempt: five numbers for each task, sums, and the most memory of one."""

    name: str = ""
    submitted_at: int | None = None
    had_executors: bool = True
    at_start: bool = False
    profile: int = 0
    slots: int = 0
    takers: Counter[str] = field(default_factory=Counter)
    columns: "array[int]" = field(default_factory=lambda: array("q"))
    sums: Counter[str] = field(default_factory=Counter)
    most_held: int = 0


@dataclass(slots=True)
class _OpenJob:
    label: str
    number: int
    started_at: int
    description: str = ""
    ended_at: int | None = None
    has_failed: bool = False
    was_alone: bool = True
    is_given_up: bool = False
    cluster: ClusterConfig | None = None
    open_jobs: set[int] = field(default_factory=set)
    stages: dict[tuple[int, int], _OpenStage] = field(default_factory=dict)
    failed: list[FailedTask] = field(default_factory=list)
    broadcasts: BroadcastCounters = field(default_factory=BroadcastCounters)
    kept: int = 0

    @property
    def is_query(self) -> bool:
        return self.label.startswith("query")

    @property
    def is_complete(self) -> bool:
        return self.ended_at is not None and not self.open_jobs


@dataclass(slots=True)
class OpenJobs:
    """Everything that runs; `take` the events of a log one after the other.

    Attributes:
        given_up: jobs that had too many tasks at the same time.
    """

    given_up: int = 0
    _name: str = ""
    _version: str = ""
    _settings: SparkSettings = field(default_factory=SparkSettings)
    _executors: PresentExecutors = field(default_factory=PresentExecutors)
    _queries: dict[int, _OpenJob] = field(default_factory=dict)
    _roots: dict[int, int] = field(default_factory=dict)
    _jobs: dict[int, _OpenJob] = field(default_factory=dict)
    _stages: dict[int, _OpenJob] = field(default_factory=dict)

    def take(self, name: str, event: Event) -> Iterable[JobFacts]:
        """Take an event by its short name; jobs that are complete come out.

        The last tasks of a job may be told after its end: it comes out when the next begins.

        Raises:
            MalformedEventError: the event lacks something and counts for nothing.
        """
        found = self.complete() if name in _BEGINNINGS else ()
        _HANDLERS[name](self, event)
        return found

    def complete(self) -> list[JobFacts]:
        """The jobs that are complete now, and no longer kept."""
        jobs = [each for each in self._all() if each.is_complete]
        for each in jobs:
            self._forget(each)
        found = [
            self._facts(each, each.ended_at or each.started_at)
            for each in jobs
            if not each.is_given_up
        ]
        if jobs and self._executors.known.any_ended:
            started = [each.started_at for each in (*jobs, *self._all())]
            self._executors.known.forget_before(min(started))
        return found

    @property
    def unfinished(self) -> int:
        """Jobs whose end has not come."""
        return len(self._all())

    def _log_started(self, event: Event) -> None:
        self._version = text(event, "Spark Version")

    def _application_started(self, event: Event) -> None:
        self._name = text(event, "App Name")[:LONGEST_TEXT]
        identity = event.get("App ID")
        if isinstance(identity, str):
            self._name += f" ({identity[:LONGEST_TEXT]})"

    def _configured(self, event: Event) -> None:
        properties = mapping(event, "Spark Properties")
        self._executors.known.configured(properties)
        self._settings = SparkSettings.of(self._version, properties)

    def _all(self) -> list[_OpenJob]:
        alone = {id(each): each for each in (*self._queries.values(), *self._jobs.values())}
        return list(alone.values())

    def _query_started(self, event: Event) -> None:
        number = integer(event, "executionId")
        root = event.get("rootExecutionId")
        if isinstance(root, int) and root != number and root in self._queries:
            if len(self._roots) < MAX_JOBS:
                self._roots[number] = root
            return
        job = self._query(number, milliseconds(event, "time"))
        described = event.get("description")
        if isinstance(described, str) and not job.description:
            job.description = query_name(described[:LONGEST_TEXT], event.get("sparkPlanInfo"))
        job.broadcasts.take_plan(event)

    def _plan_changed(self, event: Event) -> None:
        job = self._queries.get(integer(event, "executionId"))
        if job is not None:
            job.broadcasts.take_plan(event)

    def _driver_counted(self, event: Event) -> None:
        job = self._queries.get(integer(event, "executionId"))
        if job is not None:
            job.broadcasts.take_values(event)

    def _query(self, number: int, at: int) -> _OpenJob:
        number = self._roots.get(number, number)
        found = self._queries.get(number)
        if found is None:
            found = _OpenJob(f"query {number}", number, at)
            self._beside(found)
            self._queries[number] = found
        found.started_at = min(found.started_at, at)
        return found

    def _beside(self, job: _OpenJob) -> None:
        """A job begins: whoever runs now is not alone."""
        others = self._all()
        for each in others:
            each.was_alone = job.was_alone = False
        if len(others) >= MAX_JOBS:
            self._forget(others[0])
            self.given_up += not others[0].is_given_up

    def _job_started(self, event: Event) -> None:
        number, at = integer(event, "Job ID"), milliseconds(event, "Submission Time")
        properties = event.get("Properties")
        known = properties if isinstance(properties, Mapping) else {}
        if _QUERY_ID in known:
            job = self._query(integer(known, _QUERY_ID), at)
        else:
            job = _OpenJob(f"job {number}", number, at)
            self._beside(job)
        described = known.get(_DESCRIPTION)
        if isinstance(described, str) and _INNER not in described:
            job.description = described[:LONGEST_TEXT]
        job.open_jobs.add(number)
        self._jobs[number] = job
        stages = [each for each in sequence(event, "Stage IDs") if isinstance(each, int)]
        for each in stages:
            self._stages[each] = job
        self._grown(job, 1 + len(stages))

    def _stage_submitted(self, event: Event) -> None:
        info = mapping(event, "Stage Info")
        number = integer(info, "Stage ID")
        job = self._stages.get(number)
        if job is None or job.is_given_up or "Submission Time" not in info:
            return
        at = milliseconds(info, "Submission Time")
        attempt = number, integer(info, "Stage Attempt ID")
        stage = job.stages.setdefault(attempt, _OpenStage())
        stage.name = text(info, "Stage Name")[:LONGEST_TEXT]
        stage.submitted_at = at
        stage.profile = profile_of(info)
        stage.had_executors = self._executors.are_there(at, stage.profile)
        stage.at_start = not self._executors.have_come

    def _stage_completed(self, event: Event) -> None:
        info = mapping(event, "Stage Info")
        number, attempt = integer(info, "Stage ID"), integer(info, "Stage Attempt ID")
        job = self._stages.get(number)
        stage = None if job is None else job.stages.get((number, attempt))
        if stage is not None and stage.columns:
            launched, finished = stage.columns[0::_COLUMNS], stage.columns[1::_COLUMNS]
            stage.slots = self._executors.slots_of(
                stage.takers,
                min(launched),
                max(finished),
                profile=stage.profile,
                task_cores=self._settings.cores_per_task,
            )

    def _task_ended(self, event: Event) -> None:
        number = integer(event, "Stage ID")
        job = self._stages.get(number)
        if job is None or job.is_given_up:
            return
        info, end = mapping(event, "Task Info"), mapping(event, "Task End Reason")
        launched, finished = milliseconds(info, "Launch Time"), milliseconds(info, "Finish Time")
        reason = end.get("Reason")
        if reason in CALLED_OFF:
            return
        if reason != "Success":
            job.failed.append(failure_of(number, end, launched, finished))
        else:
            metrics = mapping(event, "Task Metrics")
            attempt = integer(event, "Stage Attempt ID")
            stage = job.stages.setdefault((number, attempt), _OpenStage())
            figures = figures_of(metrics)
            read = figures["input_bytes"] + figures["shuffle_read"]
            rows = figures["rows_read"]
            stage.columns.extend((launched, finished, figures.pop("run"), read, rows))
            stage.sums.update(figures)
            taker = info.get("Executor ID")
            if isinstance(taker, str) and len(stage.takers) < MAX_EXECUTORS:
                stage.takers[taker] += 1
            stage.most_held = max(stage.most_held, figures["held"])
        self._grown(job, 1)

    def _grown(self, job: _OpenJob, count: int) -> None:
        """Give up the largest job where all that is kept passes the limit; looked at in steps."""
        before, job.kept = job.kept, job.kept + count
        if before // _STEP == job.kept // _STEP:
            return
        jobs = self._all()
        if sum(each.kept for each in jobs) > MAX_TASKS:
            largest = max(jobs, key=lambda each: each.kept)
            largest.is_given_up, largest.kept = True, 0
            largest.stages.clear()
            largest.failed.clear()
            self.given_up += 1

    def _job_ended(self, event: Event) -> None:
        number = integer(event, "Job ID")
        job = self._jobs.get(number)
        if job is None:
            return
        job.open_jobs.discard(number)
        result = event.get("Job Result")
        if not (isinstance(result, Mapping) and result.get("Result") == "JobSucceeded"):
            job.has_failed = True
        if job.is_query:
            del self._jobs[number]
        else:
            job.ended_at = milliseconds(event, "Completion Time")
        self._may_be_complete(job)

    def _query_ended(self, event: Event) -> None:
        number = integer(event, "executionId")
        if self._roots.pop(number, None) is not None:
            return
        job = self._queries.get(number)
        if job is None:
            return
        job.ended_at = milliseconds(event, "time")
        job.has_failed = job.has_failed or bool(event.get("errorMessage"))
        self._may_be_complete(job)

    def _may_be_complete(self, job: _OpenJob) -> None:
        if job.is_complete and job.ended_at is not None:
            job.cluster = self._executors.during(job.started_at, max(job.ended_at, job.started_at))

    def _forget(self, job: _OpenJob) -> None:
        for known in (self._queries, self._jobs, self._stages):
            for number in [number for number, each in known.items() if each is job]:
                del known[number]

    def _facts(self, job: _OpenJob, ended_at: int) -> JobFacts:
        stages = tuple(
            self._stage(number, attempt, stage)
            for (number, attempt), stage in sorted(job.stages.items())
            if stage.columns
        )
        ended_at = max(ended_at, job.started_at)
        return JobFacts(
            application=self._name,
            label=job.label,
            description=" ".join(job.description.split()),
            started_at=job.started_at,
            ended_at=ended_at,
            cluster=job.cluster,
            was_alone=job.was_alone,
            has_failed=job.has_failed,
            stages=stages,
            settings=self._settings,
            failed=tuple(job.failed),
            broadcasts=tuple(job.broadcasts.found()),
        )

    def _stage(self, number: int, attempt: int, stage: _OpenStage) -> StageFacts:
        table: Longs = np.array(stage.columns, np.int64).reshape(-1, _COLUMNS)
        tasks = TaskColumns(*(np.ascontiguousarray(column) for column in table.T))
        return StageFacts(
            number=number,
            attempt=attempt,
            name=stage.name,
            submitted_at=stage.submitted_at,
            slots=stage.slots,
            had_executors=stage.had_executors,
            at_start=stage.at_start,
            tasks=tasks,
            totals=totals_of(stage.sums, stage.most_held),
        )


_HANDLERS: Mapping[str, Callable[[OpenJobs, Event], None]] = {
    "SparkListenerLogStart": OpenJobs._log_started,
    "SparkListenerApplicationStart": OpenJobs._application_started,
    "SparkListenerEnvironmentUpdate": OpenJobs._configured,
    "SparkListenerResourceProfileAdded": lambda o, event: o._executors.known.resource_profile(
        event
    ),
    "SparkListenerBlockManagerAdded": lambda o, event: o._executors.known.block_manager_added(
        event
    ),
    "SparkListenerExecutorAdded": lambda o, event: o._executors.added(event),
    "SparkListenerExecutorRemoved": lambda o, event: o._executors.known.removed(event),
    "SparkListenerSQLExecutionStart": OpenJobs._query_started,
    "SparkListenerSQLAdaptiveExecutionUpdate": OpenJobs._plan_changed,
    "SparkListenerDriverAccumUpdates": OpenJobs._driver_counted,
    "SparkListenerJobStart": OpenJobs._job_started,
    "SparkListenerStageSubmitted": OpenJobs._stage_submitted,
    "SparkListenerTaskEnd": OpenJobs._task_ended,
    "SparkListenerStageCompleted": OpenJobs._stage_completed,
    "SparkListenerJobEnd": OpenJobs._job_ended,
    "SparkListenerSQLExecutionEnd": OpenJobs._query_ended,
}
_BEGINNINGS = frozenset({"SparkListenerSQLExecutionStart", "SparkListenerJobStart"})
WANTED = frozenset(_HANDLERS)
"""Events that are looked at."""
