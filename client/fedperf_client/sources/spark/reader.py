"""The reader of Spark's events: an application with its queries and jobs.

A query is one piece of work together with its nested queries and all their jobs. Jobs without a
query are pieces of work as well: of RDDs, of machine learning libraries, or of Spark itself, such
as reading a schema. `Reader` hands out each `SparkQuery` when it is complete.
`Application.to_execution` makes an execution of it; `diagnosis` makes findings of the same queries.

Memory is bounded by what runs at the same time. Beyond the limits of this module, the oldest
query is given up, or the one with most tasks.

Texts that identify a job to people are kept in an execution's metadata and its workload's name,
which never leave the organization. All other texts are compared and dropped.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark import fields
from fedperf_client.sources.spark.cluster import Executors, profile_of
from fedperf_client.sources.spark.failures import KILLED, is_out_of_memory, last_text
from fedperf_client.sources.spark.fields import Event
from fedperf_client.sources.spark.names import job_name, query_name, shape_of, workload_of
from fedperf_client.sources.spark.plan import carried_out_by, workflow_of
from fedperf_client.sources.spark.query import COLUMNS, Interval, OpenWork, SparkQuery, StageAttempt
from fedperf_client.sources.spark.rdd import has_python, job_plan
from fedperf_client.sources.spark.settings import SparkSettings, used_settings
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    MAX_QUERIES_BEFORE,
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

MAX_OPEN = 2_000  # most queries and jobs that are open at the same time
MAX_KEPT = 60_000  # most nodes, counters, jobs, stages and RDDs of all of them together
MAX_TASKS = 400_000  # most task ends of all of them together, if their figures are read
MAX_STAGES = 10_000  # most stages of one job; later ones are ignored
MOST_GAPS = 3  # longest times without a query or job that are kept

NO_PLAN = "no plan: the log begins after it"
ONLY_A_COMMAND = "a command of the catalogue that ran no job"
GIVEN_UP = "given up: too much ran at the same time"

_QUERY_ID = "spark.sql.execution.id"
_DESCRIPTION = "spark.job.description"
_LONGEST_NAME, _LONGEST_TEXT = 120, 60
_ID_DIGITS = 32
_NODE_TYPES = (
    "spark.databricks.workerNodeTypeId",
    "spark.databricks.clusterUsageTags.clusterNodeType",
)


@dataclass(slots=True)
class Application:
    """An application, as far as its log was read. Timestamps are milliseconds since 1970."""

    is_partial: bool = False  # a part of its log is missing
    with_tasks: bool = False  # the figures of tasks are read, not only those of stages
    executors: Executors = field(default_factory=Executors)
    # Times in which no query and no job ran: their sum, the same times the cores of the executors
    # in them, and the longest with their lengths.
    idle_milliseconds: int = 0
    idle_core_milliseconds: float = 0.0
    longest_gaps: list[tuple[int, Interval]] = field(default_factory=list)
    settings: SparkSettings = field(default_factory=SparkSettings)  # that it was started with
    submitted_at: int | None = None  # None if unknown
    stopped_at: int | None = None  # the latest timestamp if its end is missing
    has_end: bool = False  # its end was reported
    unfinished: SparkQuery | None = None  # the first query or job without an end
    latest: int = 0  # latest timestamp of the log
    _name: str = ""
    _display_name: str = ""
    _display_id: str = ""
    _identity: tuple[object, ...] = ()
    _node_type: str = ""
    _architecture: str = ""

    def log_started(self, event: Event) -> None:
        """Read the version of Spark."""
        version = fields.text(event, "Spark Version")[:_LONGEST_TEXT]
        self.settings = replace(self.settings, version=version)

    def started(self, event: Event) -> None:
        """Read the names, the attempt and the submission of the application."""
        self._name = fields.text(event, "App Name")
        self._display_name = fields.line(event, "App Name")
        self._display_id = fields.line(event, "App ID")
        self.submitted_at = fields.milliseconds(event, "Timestamp")
        self._identity = (event.get("App ID"), event.get("App Attempt ID"), self.submitted_at)

    def configured(self, event: Event) -> None:
        """Read the properties that are used."""
        properties = fields.mapping(event, "Spark Properties")
        self.executors.configured(properties)
        self.settings = SparkSettings.of(self.settings.version, properties)
        types = [each for name in _NODE_TYPES if isinstance(each := properties.get(name), str)]
        self._node_type = types[0][:_LONGEST_TEXT] if types else ""
        if "System Properties" in event:
            system = fields.part(event, "System Properties")
            self._architecture = fields.words(system, "os.arch")[:_LONGEST_TEXT]

    def stopped(self, event: Event) -> None:
        """Read its end."""
        self.stopped_at, self.has_end = fields.milliseconds(event, "Timestamp"), True

    def reach(self, at: int) -> None:
        """Move the latest timestamp of the log forward."""
        self.latest = max(self.latest, at)

    def cut(self, query: SparkQuery) -> None:
        """Add a query or job of which the log has no end."""
        if self.unfinished is None or query.started_at < self.unfinished.started_at:
            self.unfinished = query

    def add_gap(self, start: int, end: int) -> None:
        """Add a time without a query or job, if `end` is after `start`."""
        if end > start:
            self.idle_milliseconds += end - start
            self.idle_core_milliseconds += self.executors.core_time_during(start, end)
            gaps = [*self.longest_gaps, (end - start, (start, end))]
            self.longest_gaps = sorted(gaps, reverse=True)[:MOST_GAPS]

    def settle(self, query: SparkQuery) -> None:
        """Set the executors of a query at its end, as long as they are known.

        The time before its first task, while there was no executor, is not run time.
        """
        if not (query.jobs or self.with_tasks) and query.plan.is_command:
            return  # no execution
        if query.first_stage_at is not None:
            query.started_at = query.submitted_at = query.first_stage_at
        end, first = query.end, query.first_task_at
        begin = first if first is not None and query.started_at < first < end else query.started_at
        submitted = query.submitted_at
        if submitted is not None:
            arrival = self.executors.arrival(submitted, end, needed=begin)
            arrival = begin if arrival is not None and begin > submitted else arrival
            has_waited = arrival is not None and submitted < arrival < end
            query.waited = (submitted, arrival) if arrival is not None and has_waited else None
        if query.waited is not None:
            begin = max(begin, query.waited[1])
            for stage in query.attempts.values():  # earlier executors had gone before a task began
                if stage.submitted_at is not None and stage.submitted_at < query.waited[1]:
                    stage.had_executors = False
        query.slots = self.executors.slots_of(begin, end) if self.with_tasks else 0
        query.cluster = self.executors.during(begin, end)

    @property
    def seconds(self) -> float:
        """Seconds from its submission to its end; 0 if either is unknown."""
        if self.submitted_at is None or self.stopped_at is None:
            return 0.0
        return max(0, self.stopped_at - self.submitted_at) / 1000

    @property
    def name(self) -> str:
        """The name with the id; local text."""
        name = self._display_name
        return f"{name} ({self._display_id})" if self._display_id else name

    def to_execution(self, query: SparkQuery) -> Execution | SkippedRecord:
        """Return the execution of a query, or the reason why it is none."""
        try:
            if query.is_job:  # its plan follows from the stages that ran
                query.plan, query.counters = job_plan(tuple(query.stages.values()))
                query.shape = shape_of(query.plan)
            reason = query.problem or _skip_reason(query)
            if reason or query.cluster is None:
                return SkippedRecord(str(query), reason or "no executor is known for its time")
            return self._execution(query, query.cluster)
        except InvalidInputError as error:
            return SkippedRecord(str(query), query.problem or str(error))

    def _execution(self, query: SparkQuery, cluster: ClusterConfig) -> Execution:
        # The same id whenever and wherever this log is read; local.
        identity = repr((*self._identity, str(query), query.started_at))
        counted = workflow_of(query.plan, query.counters)
        vendor = "databricks" if self.settings.is_databricks else "spark"
        rdds = (rdd for stage in query.stages.values() for rdd in stage.rdds)
        remarks = {
            # Another engine than Spark's own ran a part of it.
            ExecutionWarning.ACCELERATED: query.plan.is_accelerated
            or any(each.is_accelerated for each in rdds),
            ExecutionWarning.FAILED_TASKS: query.has_failed_tasks,
            ExecutionWarning.INCOMPLETE: self.is_partial or query.is_incomplete,
        }
        status, failure = ExecutionStatus.OK, last_text(query.failures)
        if query.has_failed:
            no_memory = failure is not None and is_out_of_memory(failure.kind)
            status = ExecutionStatus.OUT_OF_MEMORY if no_memory else ExecutionStatus.FAILED
        startup = query.wait_milliseconds
        if query.before == 0 and self.submitted_at is not None:
            startup += max(query.started_at - self.submitted_at, 0)
        return Execution(
            execution_id=hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:_ID_DIGITS],
            workload=workload_of(self._name, query.shape, call_site=query.call_site),
            plan=Plan.on_one_platform(counted.workflow, Platform.SPARK),
            cluster=replace(cluster, queries_before=min(query.before, MAX_QUERIES_BEFORE)),
            status=status,
            measurement=Measurement(
                runtime_seconds=min(query.milliseconds / 1000, MAX_RUNTIME_SECONDS),
                cpu_seconds=max(query.totals["cpu_nanoseconds"], 0) / 1e9,
                read_bytes=max(query.totals["read_bytes"], 0),
                written_bytes=max(query.totals["written_bytes"], 0),
                startup_seconds=min(startup / 1000, MAX_RUNTIME_SECONDS),
            ),
            finished_at=fields.moment(query.end),
            origin=ExecutionMetadata(
                source=f"{vendor} {self.settings.version}".strip(),
                node_type=self._node_type,
                architecture=self._architecture,
                rows_known=counted.known_operators / len(counted.workflow.operators),
                remarks=tuple(sorted(remark for remark, holds in remarks.items() if holds)),
                application=self._display_name,
                application_id=self._display_id,
                record=str(query),
                description=query.description or query.display_name,
                failure=query.failure if query.has_failed else "",
                operator_seconds=counted.seconds if any(counted.seconds) else (),
                tasks=query.tasks,
            ),
        )


def _skip_reason(query: SparkQuery) -> str:
    """Return why a query is no execution; empty if it is one."""
    if query.is_nested:
        return "a part of another query"
    if not query.is_complete:
        return "no end: the log stops before it"
    if not query.plan.nodes:
        return NO_PLAN
    if query.is_job and query.rdds == 0:
        return "no stage of it came to an end"
    if not query.jobs and query.plan.is_command:
        return ONLY_A_COMMAND
    return "" if query.milliseconds > 0 else "took less than a millisecond"


@dataclass(slots=True)
class Reader:
    """The running queries and jobs of an application: `take` its events in order, then `end`."""

    application: Application = field(default_factory=Application)
    # Returns how many task ends of a stage were skipped; None if unknown.
    skipped_ends: Callable[[int], int | None] = lambda _: 0
    _open: dict[tuple[bool, int], SparkQuery] = field(default_factory=dict)  # by is_job, number
    _jobs: dict[int, SparkQuery] = field(default_factory=dict)
    _stages: dict[int, SparkQuery] = field(default_factory=dict)
    _complete: list[SparkQuery] = field(default_factory=list)
    _output: list[SparkQuery] = field(default_factory=list)
    _running: OpenWork = field(default_factory=OpenWork)
    _free_since: int | None = None
    _next_job: int = 0  # above the numbers of all jobs so far
    _total_size: int = 0
    _tasks: int = 0

    def take(self, name: str, event: Event) -> list[SparkQuery]:
        """Read an event by its short name; return queries that are complete, or given up.

        The last events of a query may follow its end, so it is returned when the next one begins.

        Raises:
            MalformedEventError: the event lacks a value and is ignored.
        """
        if name in _BEGINNINGS:
            self._retire()
        if name in USED_EVENTS:
            _HANDLERS[name](self, event)
        output, self._output = self._output, []
        return output

    def end(self) -> list[SparkQuery]:
        """Close all queries at the end of the log, and return them."""
        self._retire()
        application, ends = self.application, [self._free_since or 0]
        for query in self._open.values():
            is_settled = query.ended_at is not None or query.cluster is not None
            others = self._running.worked - (not query.is_running)  # without itself, if it rested
            query.close(application.stopped_at, went_on=others > query.before)
            if query.ended_at is not None and not is_settled:
                application.settle(query)
            ends.append(application.latest if query.ended_at is None else query.ended_at)
            self._dispatch(query)
        self._open.clear()
        if application.stopped_at is None:
            application.stopped_at = application.latest
        if self._free_since is not None or len(ends) > 1:
            application.add_gap(max(ends), application.stopped_at)
        output, self._output = self._output, []
        return output

    def _application_started(self, event: Event) -> None:
        self.application.started(event)
        if not self.application.is_partial:  # otherwise earlier jobs are missing
            self._free_since = self.application.submitted_at

    def _query_started(self, event: Event) -> None:
        number = fields.integer(event, "executionId")
        has_root = event.get("rootExecutionId") is not None  # from Spark 3.4 on
        root = fields.integer(event, "rootExecutionId") if has_root else number
        query = self._query(number, fields.milliseconds(event, "time"), root=root)
        if query.root != root:  # one of its jobs came first
            self._running.stops(query)
            query.root = root
        query.description = query_name(
            fields.line(event, "description"), event.get("sparkPlanInfo")
        )
        if self.application.with_tasks:
            session = used_settings(fields.part(event, "modifiedConfigs"))
            query.settings = {**session, **query.settings}
        if "sparkPlanInfo" in event:
            query.take_plan(event)
            query.shape = shape_of(query.plan)
        self._update_size(query)

    def _query(self, number: int, at: int, *, root: int | None = None) -> SparkQuery:
        """Return the query of a number; its first job may come before its own start."""
        query = self._open.get((False, number))
        if query is None:
            query = SparkQuery(number, at, root=number if root is None else root)
            self._begin(query)
        query.started_at = min(query.started_at, at)
        return query

    def _begin(self, query: SparkQuery) -> None:
        if (alone := self._running.alone) is not None and alone.seems_over and not query.is_nested:
            # Nothing of that query runs. Its end is lost, or still to come.
            self.application.settle(alone)
            self._running.stops(alone)
            self._free_since = max(self._free_since or query.started_at, query.started_at)
        query.before = self._running.worked
        self._open[query.is_job, query.number] = query
        self.application.reach(query.started_at)
        if query.is_nested:
            return
        if self.application.with_tasks and not self._running.count and self._free_since is not None:
            self.application.add_gap(self._free_since, query.started_at)
        self._running.begins(query)

    def _query_of(self, event: Event) -> SparkQuery | None:
        """Return the query of an event, unless it is complete."""
        query = self._open.get((False, fields.integer(event, "executionId")))
        return None if query is None or query.is_complete else query

    def _plan_changed(self, event: Event) -> None:
        if query := self._query_of(event):
            query.take_plan(event)
            self._update_size(query)

    def _driver_counted(self, event: Event) -> None:
        if query := self._query_of(event):
            for each in fields.sequence(event, "accumUpdates"):
                match each:
                    case [int(counter), int(value)]:
                        query.count(counter, value)
            self._update_size(query)

    def _query_ended(self, event: Event) -> None:
        query = self._query_of(event)
        if query is None:
            return
        query.was_alone = query.was_alone and (query.is_running or query.ended_at is not None)
        query.ended_at = fields.milliseconds(event, "time")
        error = event.get("errorMessage")
        query.has_error = None if error is None else bool(error)
        query.failure = fields.line(event, "errorMessage") or query.failure
        if error:
            query.failed(error)
        root = self._open.get((False, query.root))
        if root is not None and query.is_nested:
            root.plan = carried_out_by(root.plan, query.plan)
        if query.open_jobs:  # the last of them may end much later
            self.application.settle(query)
        self._finish(query)

    def _job_started(self, event: Event) -> None:
        number, properties = fields.integer(event, "Job ID"), fields.part(event, "Properties")
        has_start = "Submission Time" in event  # from Spark 1.5 on
        at = fields.milliseconds(event, "Submission Time") if has_start else self.application.latest
        if _QUERY_ID in properties:
            query = self._query(fields.integer(properties, _QUERY_ID), at)
            query = self._open.get((False, query.root), query)
            self._running.goes_on(query)
        else:
            if (True, number) in self._open:
                self._forget(self._open[True, number])
            query = SparkQuery(number, at, root=number, is_job=True, has_start=has_start)
            infos = fields.objects(event, "Stage Infos")
            last = max(infos, key=lambda each: fields.integer(each, "Stage ID"), default={})
            query.call_site = fields.line(last, "Stage Name")
            query.display_name = job_name(query.call_site, infos)
            self._begin(query)
        query.description = query.description or fields.line(properties, _DESCRIPTION)
        query.settings |= used_settings(properties) if self.application.with_tasks else {}
        query.submitted_at = at if query.submitted_at is None else min(at, query.submitted_at)
        stages = [each for each in fields.sequence(event, "Stage IDs") if isinstance(each, int)]
        self._next_job = max(self._next_job, number + 1)
        self._jobs[number] = query
        query.open_jobs.add(number)
        query.jobs += 1
        for stage in stages[:MAX_STAGES]:
            self._stages[stage] = query
        query.stage_numbers.update(stages[:MAX_STAGES])
        self._update_size(query)

    def _stage_of(self, info: Event) -> tuple[SparkQuery, StageAttempt] | None:
        """Return the attempt at a stage that an event is about, with its query."""
        number = fields.integer(info, "Stage ID")
        query = self._stages.get(number)
        if query is None:
            return None
        key = number, fields.count(info, "Stage Attempt ID")
        stage = query.attempts.get(key)
        if stage is None:
            stage = query.attempts[key] = StageAttempt(*key, query.names)
            self._update_size(query)
        return query, stage

    def _stage_submitted(self, event: Event) -> None:
        info = fields.mapping(event, "Stage Info")
        attempt = self._stage_of(info)
        if attempt is None or "Submission Time" not in info:
            return
        query, stage = attempt
        at = stage.submitted_at = fields.milliseconds(info, "Submission Time")
        stage.name = fields.text(info, "Stage Name")[:_LONGEST_NAME]
        has_count = "Number of Tasks" in info
        stage.announced = fields.integer(info, "Number of Tasks") if has_count else 0
        stage.profile = profile_of(info)
        stage.runs_python = has_python(info)
        stage.had_executors = self.application.executors.are_there(at, stage.profile)
        stage.at_start = not self.application.executors.have_come
        self._update_size(query)

    def _stage_completed(self, event: Event) -> None:
        info = fields.mapping(event, "Stage Info")
        attempt = self._stage_of(info)
        if attempt is None:
            return
        query, stage = attempt
        stage.has_ended = True
        if query.is_complete:
            return
        query.take_stage_end(stage, info)
        self.application.reach(query.last_stage_at or 0)
        if stage.columns:
            launched, finished, executors = (stage.columns[at :: len(COLUMNS)] for at in range(3))
            ids = [identity for identity, _ in stage.names.executors]
            stage.slots = self.application.executors.slots_of(
                min(launched),
                max(finished),
                profile=stage.profile,
                takers=Counter(ids[each] for each in executors if each >= 0),
            )
        self._update_size(query)

    def _task_started(self, event: Event) -> None:
        if attempt := self._stage_of(event):
            query, stage = attempt
            query.task_began(fields.part(event, "Task Info"))
            stage.has_begun = True

    def _task_ended(self, event: Event) -> None:
        attempt = self._stage_of(event)
        if attempt is None:
            return
        query, stage = attempt
        end = fields.mapping(event, "Task End Reason")
        reason = str(end.get("Reason"))
        stage.succeeded += reason == "Success"
        query.has_failed_tasks |= reason not in (*KILLED, "Success")
        if not stage.has_begun:  # its start is missing, and most other ends may be skipped
            query.task_began(fields.part(event, "Task Info"))
        stage.has_begun = True
        if self.application.with_tasks and not query.is_given_up:
            stage.take(event, end)
            query.counted_tasks += 1
            self._tasks += 1
            if self._tasks > MAX_TASKS:
                largest = max(self._open.values(), key=lambda each: each.counted_tasks)
                self._tasks -= largest.counted_tasks
                largest.give_up_tasks()

    def _job_ended(self, event: Event) -> None:
        number = fields.integer(event, "Job ID")
        if "Completion Time" in event:
            self.application.reach(fields.milliseconds(event, "Completion Time"))
        query = self._jobs.pop(number, None)
        if query is not None:
            query.open_jobs.discard(number)
            result = fields.part(event, "Job Result")
            if result.get("Result") != "JobSucceeded":
                error = fields.part(result, "Exception")
                query.has_failed_jobs, query.failure = True, fields.line(error, "Message")
                query.failed(error.get("Message"))
            if "Completion Time" in event:  # from Spark 1.5 on
                query.last_stage_at = fields.milliseconds(event, "Completion Time")
            if query.is_job:
                query.ended_at = query.last_stage_at or self.application.latest
            self._finish(query)
        elif number >= self._next_job:  # its start was dropped, so its tasks are unknown
            self._next_job, alone = number + 1, self._running.alone
            if alone is not None:
                alone.jobs, alone.was_alone, alone.is_incomplete = alone.jobs + 1, False, True
            elif not self._running.count:
                self._running.worked += 1
                self._free_since = self.application.latest

    def _finish(self, query: SparkQuery) -> None:
        """Set the executors of a query, if it is complete now."""
        if not query.is_complete or self._open.get((query.is_job, query.number)) is not query:
            return
        self.application.settle(query)
        self._complete.append(query)
        if not query.is_nested:
            self._running.stops(query)
            end = query.ended_at or 0
            self._free_since = max(self._free_since or end, end)
            self.application.reach(end)

    def _retire(self) -> None:
        for query in self._complete:
            if self._open.get((query.is_job, query.number)) is query:
                self._forget(query)
                self._dispatch(query)
        if self._complete:
            starts = [each.started_at for each in self._open.values()]
            self.application.executors.forget_before(min([*starts, self._free_since or 0]))
        self._complete.clear()

    def _update_size(self, query: SparkQuery) -> None:
        """Count what is kept for a query, and give up the oldest queries if all is too much."""
        size = query.size
        self._total_size += size - query.counted_size
        query.counted_size = size
        while self._open and (len(self._open) > MAX_OPEN or self._total_size > MAX_KEPT):
            oldest = next(iter(self._open.values()))
            if not oldest.is_complete:
                oldest.problem, oldest.is_given_up = GIVEN_UP, True
            self._forget(oldest)
            self._dispatch(oldest)

    def _dispatch(self, query: SparkQuery) -> None:
        query.count_tasks((lambda _: None) if self.application.is_partial else self.skipped_ends)
        self._output.append(query)

    def _forget(self, query: SparkQuery) -> None:
        del self._open[query.is_job, query.number]
        self._total_size -= query.counted_size
        self._tasks -= query.counted_tasks
        self._running.stops(query)
        for number in query.stage_numbers:
            if self._stages.get(number) is query:
                del self._stages[number]
        for number in query.open_jobs:
            if self._jobs.get(number) is query:
                del self._jobs[number]


_HANDLERS: Mapping[str, Callable[[Reader, Event], None]] = {
    "SparkListenerLogStart": lambda r, e: r.application.log_started(e),
    "SparkListenerEnvironmentUpdate": lambda r, e: r.application.configured(e),
    "SparkListenerApplicationEnd": lambda r, e: r.application.stopped(e),
    "SparkListenerResourceProfileAdded": lambda of, event: (
        of.application.executors.resource_profile(event)
    ),
    "SparkListenerBlockManagerAdded": lambda of, event: (
        of.application.executors.block_manager_added(event)
    ),
    "SparkListenerExecutorAdded": lambda r, e: r.application.executors.added(e),
    "SparkListenerExecutorRemoved": lambda r, e: r.application.executors.removed(e),
    "SparkListenerApplicationStart": Reader._application_started,
    "SparkListenerSQLExecutionStart": Reader._query_started,
    "SparkListenerSQLAdaptiveExecutionUpdate": Reader._plan_changed,
    "SparkListenerDriverAccumUpdates": Reader._driver_counted,
    "SparkListenerSQLExecutionEnd": Reader._query_ended,
    "SparkListenerJobStart": Reader._job_started,
    "SparkListenerStageSubmitted": Reader._stage_submitted,
    "SparkListenerStageCompleted": Reader._stage_completed,
    "SparkListenerTaskStart": Reader._task_started,
    "SparkListenerTaskEnd": Reader._task_ended,
    "SparkListenerJobEnd": Reader._job_ended,
}
_BEGINNINGS = frozenset({"SparkListenerSQLExecutionStart", "SparkListenerJobStart"})
# Names of the events that are read; of the ends of tasks, those of failed ones.
USED_EVENTS = frozenset(_HANDLERS)
