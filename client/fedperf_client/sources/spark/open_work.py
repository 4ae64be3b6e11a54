"""The open queries and jobs of an application, from event to event until they are complete.

Executions come out as soon as they are complete. What is kept is bounded by what runs at the same
time, and beyond the limits of this module the oldest is given up. A query is one execution with its
wall time as label; queries inside of it, and all their jobs, are its parts. Jobs without a query
are executions as well: of RDDs, of libraries for machine learning, or Spark's own, such as the
reading of a schema.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.display_name import job_name, query_name
from fedperf_client.sources.spark.application import Application, Found
from fedperf_client.sources.spark.fields import (
    Event,
    MalformedEventError,
    integer,
    line,
    mapping,
    milliseconds,
    objects,
    sequence,
)
from fedperf_client.sources.spark.identity import shape_of
from fedperf_client.sources.spark.plan import (
    PhysicalPlan,
    PlanTooLargeError,
    carried_out_by,
    read_plan,
)
from fedperf_client.sources.spark.query import SparkQuery

MAX_OPEN = 2_000
"""Most queries and jobs that may be open at the same time."""

MAX_KEPT = 60_000
"""Most nodes, counters, jobs, stages and RDDs of all of them together."""

MAX_STAGES = 10_000
"""Most stages of one job; later ones are left out."""

GIVEN_UP = "given up: too much ran at the same time"

_QUERY_ID = "spark.sql.execution.id"
_DESCRIPTION = "spark.job.description"

_Key = tuple[bool, int]
"""Whether it is a job without a query, and its number."""


@dataclass(slots=True)
class OpenWork:
    """Everything that runs; `take` its events one after the other, then `end`."""

    application: Application = field(default_factory=Application)
    _open: dict[_Key, SparkQuery] = field(default_factory=dict)
    _jobs: dict[int, SparkQuery] = field(default_factory=dict)
    _stages: dict[int, SparkQuery] = field(default_factory=dict)
    _worked: int = 0
    _kept: int = 0
    _stopped_at: int | None = None

    def take(self, name: str, event: Event) -> Iterable[Found]:
        """Take an event by its short name; what became complete with it comes out.

        Raises:
            MalformedEventError: the event lacks something and counts for nothing.
        """
        of_application = _OF_APPLICATION.get(name)
        if of_application is not None:
            of_application(self.application, event)
            return ()
        handler = _HANDLERS.get(name)
        return () if handler is None else handler(self, event)

    def end(self) -> Iterable[Found]:
        """The log has ended: what is not complete now never will be."""
        found: list[Found] = []
        for query in self._open.values():
            if self._stopped_at is not None:
                query.cut(self._stopped_at)
            found.append(self._found(query))
        self._open.clear()
        return found

    def _stopped(self, event: Event) -> Iterable[Found]:
        self._stopped_at = milliseconds(event, "Timestamp")
        return ()

    def _query_started(self, event: Event) -> Iterable[Found]:
        number = integer(event, "executionId")
        is_told = event.get("rootExecutionId") is not None  # from Spark 3.4 on
        root = integer(event, "rootExecutionId") if is_told else number
        query = self._query(number, milliseconds(event, "time"))
        query.plan, query.problem = _plan(event)
        query.shape, query.root = shape_of(query.plan), root
        query.description = query_name(line(event, "description"), event.get("sparkPlanInfo"))
        return self._grown(query)

    def _query(self, number: int, at: int) -> SparkQuery:
        """The query of that number; its first job may come before its own start."""
        new = SparkQuery(number, at, root=number, before=self._worked)
        query = self._open.setdefault((False, number), new)
        query.started_at = min(query.started_at, at)
        return query

    def _plan_changed(self, event: Event) -> Iterable[Found]:
        query = self._open.get((False, integer(event, "executionId")))
        if query is None:
            return ()
        query.plan, query.problem = _plan(event)
        return self._grown(query)

    def _driver_counted(self, event: Event) -> Iterable[Found]:
        query = self._open.get((False, integer(event, "executionId")))
        if query is None:
            return ()
        for each in sequence(event, "accumUpdates"):
            match each:
                case [int(counter), int(value)]:
                    query.count(counter, value)
        return self._grown(query)

    def _query_ended(self, event: Event) -> Iterable[Found]:
        query = self._open.get((False, integer(event, "executionId")))
        if query is None:
            return ()
        query.ended_at = milliseconds(event, "time")
        error = event.get("errorMessage")
        query.ended_badly = None if error is None else bool(error)
        query.failure = line(event, "errorMessage") or query.failure
        root = self._open.get((False, query.root))
        if root is not None and query.is_nested:
            root.plan = carried_out_by(root.plan, query.plan)
        return self._completed(query)

    def _job_started(self, event: Event) -> Iterable[Found]:
        number = integer(event, "Job ID")
        properties = event.get("Properties")
        started = milliseconds(event, "Submission Time")
        if isinstance(properties, Mapping) and _QUERY_ID in properties:
            query = self._query(integer(properties, _QUERY_ID), started)
            query = self._open.get((False, query.root), query)
        else:
            query = self._job_alone(number, started, event)
        if isinstance(properties, Mapping):
            query.description = query.description or line(properties, _DESCRIPTION)
        stages = [each for each in sequence(event, "Stage IDs") if isinstance(each, int)]
        self._forget_job(number)
        query.open_job(number, tuple(stages[:MAX_STAGES]))
        self._jobs[number] = query
        for stage in stages[:MAX_STAGES]:
            self._stages[stage] = query
        return self._grown(query)

    def _job_alone(self, number: int, at: int, event: Event) -> SparkQuery:
        query = SparkQuery(number, at, root=number, is_job=True, before=self._worked)
        stages = objects(event, "Stage Infos")
        last = max(stages, key=lambda stage: integer(stage, "Stage ID"), default={})
        query.call_site = line(last, "Stage Name")
        query.display_name = job_name(query.call_site, stages)
        if (True, number) in self._open:
            self._forget(self._open[True, number])
        self._open[True, number] = query
        return query

    def _stage_completed(self, event: Event) -> Iterable[Found]:
        stage = mapping(event, "Stage Info")
        query = self._stages.get(integer(stage, "Stage ID"))
        if query is None:
            return ()
        query.has_failed_tasks = query.has_failed_tasks or "Failure Reason" in stage
        query.take_stage(stage)
        return self._grown(query)

    def _task_ended(self, event: Event) -> Iterable[Found]:
        query = self._stages.get(integer(event, "Stage ID"))
        if query is not None and mapping(event, "Task End Reason").get("Reason") != "Success":
            query.has_failed_tasks = True
        return ()

    def _job_ended(self, event: Event) -> Iterable[Found]:
        number = integer(event, "Job ID")
        query = self._forget_job(number)
        if query is None:
            return ()
        result = event.get("Job Result")
        if not (isinstance(result, Mapping) and result.get("Result") == "JobSucceeded"):
            query.has_failed_jobs = True
            error = result.get("Exception") if isinstance(result, Mapping) else None
            query.failure = line(error, "Message") if isinstance(error, Mapping) else ""
        if query.is_job:
            query.ended_at = milliseconds(event, "Completion Time")
        return self._completed(query)

    def _completed(self, query: SparkQuery) -> Iterable[Found]:
        """What comes out with a query or job that may be complete now."""
        if not query.is_complete or self._open.get((query.is_job, query.number)) is not query:
            return ()
        self._forget(query)
        self._worked += query.jobs > 0
        found = self._found(query)
        if self.application.executors.any_ended:
            started = [each.started_at for each in self._open.values()]
            self.application.executors.forget_before(min(started, default=query.started_at))
        return (found,)

    def _found(self, query: SparkQuery) -> Found:
        if query.is_job:
            try:
                query.with_job_plan()
                query.shape = shape_of(query.plan)
            except (PlanTooLargeError, MalformedEventError) as error:
                query.problem = str(error)
        return self.application.found(query)

    def _grown(self, query: SparkQuery) -> Iterable[Found]:
        """What is given up so that the limits hold with all that is kept for this query now."""
        self._kept += query.size - query.counted_size
        query.counted_size = query.size
        found: list[Found] = []
        while self._open and (len(self._open) > MAX_OPEN or self._kept > MAX_KEPT):
            oldest = next(iter(self._open.values()))
            self._forget(oldest)
            found.append(SkippedRecord(str(oldest), GIVEN_UP))
            for number in tuple(oldest.open_jobs):
                self._forget_job(number)
        return found

    def _forget(self, query: SparkQuery) -> None:
        del self._open[query.is_job, query.number]
        self._kept -= query.counted_size

    def _forget_job(self, number: int) -> SparkQuery | None:
        """The query whose job has that number; None where no such job runs."""
        query = self._jobs.pop(number, None)
        for stage in () if query is None else query.close_job(number):
            if self._stages.get(stage) is query:
                del self._stages[stage]
        return query


def _plan(event: Event) -> tuple[PhysicalPlan, str]:
    """The plan of an event, and why there is none."""
    try:
        return read_plan(mapping(event, "sparkPlanInfo")), ""
    except PlanTooLargeError as error:
        return PhysicalPlan(), str(error)


_OF_APPLICATION: Mapping[str, Callable[[Application, Event], None]] = {
    "SparkListenerLogStart": Application.log_started,
    "SparkListenerApplicationStart": Application.started,
    "SparkListenerEnvironmentUpdate": Application.configured,
    "SparkListenerResourceProfileAdded": lambda app, event: app.executors.resource_profile(event),
    "SparkListenerBlockManagerAdded": lambda app, event: app.executors.block_manager_added(event),
    "SparkListenerExecutorAdded": lambda app, event: app.executors.added(event),
    "SparkListenerExecutorRemoved": lambda app, event: app.executors.removed(event),
}
_HANDLERS: Mapping[str, Callable[[OpenWork, Event], Iterable[Found]]] = {
    "SparkListenerSQLExecutionStart": OpenWork._query_started,
    "SparkListenerSQLAdaptiveExecutionUpdate": OpenWork._plan_changed,
    "SparkListenerDriverAccumUpdates": OpenWork._driver_counted,
    "SparkListenerSQLExecutionEnd": OpenWork._query_ended,
    "SparkListenerJobStart": OpenWork._job_started,
    "SparkListenerStageCompleted": OpenWork._stage_completed,
    "SparkListenerTaskEnd": OpenWork._task_ended,
    "SparkListenerJobEnd": OpenWork._job_ended,
    "SparkListenerApplicationEnd": OpenWork._stopped,
}
WANTED = frozenset(_OF_APPLICATION) | frozenset(_HANDLERS)
"""Events that are looked at; of the ends of tasks those that failed count."""
