"""Facts of a Spark application as a whole, and its queries as executions.

Texts of a log by which people know a job are kept in an execution's origin and in its workload's
name, which never leave the organization. All others are compared and forgotten.
"""

import hashlib
from dataclasses import dataclass, field, replace

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark import fields
from fedperf_client.sources.spark.cluster import Executors
from fedperf_client.sources.spark.failures import is_out_of_memory, last_text
from fedperf_client.sources.spark.fields import Event
from fedperf_client.sources.spark.identity import shape_of, workload_of
from fedperf_client.sources.spark.plan import workflow_of
from fedperf_client.sources.spark.query import Interval, SparkQuery
from fedperf_client.sources.spark.rdd import job_plan
from fedperf_client.sources.spark.settings import SparkSettings
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

NO_PLAN = "no plan: the log begins after it"
ONLY_A_COMMAND = "a command of the catalogue that ran no job"

_LONGEST_TEXT = 60
_ID_DIGITS = 32
_NODE_TYPES = (
    "spark.databricks.workerNodeTypeId",
    "spark.databricks.clusterUsageTags.clusterNodeType",
)

MOST_GAPS = 3  # times without a query or job that are remembered, the longest


@dataclass(slots=True)
class Gaps:
    """Times of an application in which no query and no job ran."""

    milliseconds: int = 0  # of all together
    core_milliseconds: float = 0.0  # that executors were there meanwhile, times their cores
    longest: list[tuple[int, Interval]] = field(default_factory=list)  # of them, in that order

    def add(self, start: int, end: int, executors: Executors) -> None:
        """One of them, if it is one."""
        if end <= start:
            return
        self.milliseconds += end - start
        self.core_milliseconds += executors.core_time_during(start, end)
        every = [*self.longest, (end - start, (start, end))]
        self.longest = sorted(every, reverse=True)[:MOST_GAPS]


@dataclass(slots=True)
class Application:
    """An application, as far as its log was read."""

    is_partial: bool = False  # a part of its log is missing
    executors: Executors = field(default_factory=Executors)  # those that it had
    gaps: Gaps = field(default_factory=Gaps)  # times in which none of its queries and jobs ran
    settings: SparkSettings = field(default_factory=SparkSettings)  # that it was started with
    submitted_at: int | None = None  # None where the log does not tell
    stopped_at: int | None = None  # likewise; the last moment of the log where that stops before
    latest: int = 0  # the last moment that was told
    _name: str = ""
    _shown_name: str = ""
    _shown_id: str = ""
    _identity: tuple[object, ...] = ()
    _node_type: str = ""
    _architecture: str = ""

    def log_started(self, event: Event) -> None:
        """Take Spark's version."""
        version = fields.text(event, "Spark Version")[:_LONGEST_TEXT]
        self.settings = replace(self.settings, version=version)

    def started(self, event: Event) -> None:
        """Take what tells this application, and this attempt at it, from others."""
        self._name = fields.text(event, "App Name")
        self._shown_name = fields.line(event, "App Name")
        self._shown_id = fields.line(event, "App ID")
        attempt, identity = event.get("App Attempt ID"), event.get("App ID")
        self.submitted_at = fields.milliseconds(event, "Timestamp")
        self._identity = (identity, attempt, self.submitted_at)

    def configured(self, event: Event) -> None:
        """Take the few properties that count."""
        properties = fields.mapping(event, "Spark Properties")
        self.executors.configured(properties)
        self.settings = SparkSettings.of(self.settings.version, properties)
        types = [each for name in _NODE_TYPES if isinstance(each := properties.get(name), str)]
        self._node_type = types[0][:_LONGEST_TEXT] if types else ""
        if "System Properties" in event:
            system = fields.part(event, "System Properties")
            self._architecture = fields.words(system, "os.arch")[:_LONGEST_TEXT]

    def stopped(self, event: Event) -> None:
        """Take its end."""
        self.stopped_at = fields.milliseconds(event, "Timestamp")

    def settle(self, query: SparkQuery, *, with_slots: bool = True) -> None:
        """Say what a query had, when its end is told: who was there is not known for long.

        The time before its first task, while no executor was there, is no run time of it.
        """
        if not (query.jobs or with_slots) and query.plan.is_command:
            return  # no execution
        if query.first_stage_at is not None:
            query.started_at = query.asked_at = query.first_stage_at
        end, first = query.end, query.first_task_at
        begin = first if first is not None and query.started_at < first < end else query.started_at
        asked = query.asked_at
        if asked is not None:
            came = self.executors.arrival(asked, end, needed=begin)
            came = begin if came is not None and begin > asked else came
            query.waited = (asked, came) if came is not None and asked < came < end else None
        if query.waited is not None:
            begin = max(begin, query.waited[1])
            for each in query.attempts.values():  # whoever was there had gone before a task began
                if each.submitted_at is not None and each.submitted_at < query.waited[1]:
                    each.had_executors = False
        query.slots = self.executors.slots_of(begin, end) if with_slots else 0
        query.cluster = self.executors.during(begin, end)

    @property
    def seconds(self) -> float:
        """From its submission to its end, as far as its log goes; 0 where nothing tells."""
        if self.submitted_at is None or self.stopped_at is None:
            return 0.0
        return max(0, self.stopped_at - self.submitted_at) / 1000

    @property
    def name(self) -> str:
        """Its name with its id; local text."""
        return f"{self._shown_name} ({self._shown_id})" if self._shown_id else self._shown_name

    def found(self, query: SparkQuery) -> Execution | SkippedRecord:
        """The execution that a query was, or the reason why it is none."""
        if query.is_job:
            try:  # its plan is found in the stages that ran
                query.plan, query.counters = job_plan(tuple(query.stages.values()))
                query.shape = shape_of(query.plan)
            except InvalidInputError as error:
                query.problem = query.problem or str(error)
        reason = query.problem or _reason(query)
        if reason or query.cluster is None:
            return SkippedRecord(str(query), reason or "no executor is known for its time")
        try:
            return self._execution(query, query.cluster)
        except InvalidInputError as error:
            return SkippedRecord(str(query), str(error))

    def _execution(self, query: SparkQuery, cluster: ClusterConfig) -> Execution:
        # The same whenever and wherever this log is read; local.
        identity = repr((*self._identity, str(query), query.started_at))
        counted = workflow_of(query.plan, query.counters)
        vendor = "databricks" if self.settings.is_databricks else "spark"
        remarks = {
            ExecutionWarning.ACCELERATED: query.is_accelerated,
            ExecutionWarning.FAILED_TASKS: query.has_failed_tasks,
            ExecutionWarning.INCOMPLETE: self.is_partial or query.is_torn,
        }
        return Execution(
            execution_id=hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:_ID_DIGITS],
            workload=workload_of(self._name, query.shape, call_site=query.call_site),
            plan=Plan.on_one_platform(counted.workflow, Platform.SPARK),
            cluster=replace(cluster, queries_before=min(query.before, MAX_QUERIES_BEFORE)),
            status=_status(query),
            measurement=_measurement(query, self.submitted_at),
            finished_at=fields.moment(query.end),
            origin=ExecutionMetadata(
                source=f"{vendor} {self.settings.version}".strip(),
                node_type=self._node_type,
                architecture=self._architecture,
                rows_known=counted.known / len(counted.workflow.operators),
                remarks=tuple(sorted(remark for remark, holds in remarks.items() if holds)),
                application=self._shown_name,
                application_id=self._shown_id,
                record=str(query),
                description=query.description or query.display_name,
                failure=query.failure if query.has_failed else "",
                operator_seconds=counted.seconds if any(counted.seconds) else (),
                tasks=query.tasks,
            ),
        )


def _reason(query: SparkQuery) -> str:
    """Why a query is no execution; empty where it is one."""
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


def _status(query: SparkQuery) -> ExecutionStatus:
    if not query.has_failed:
        return ExecutionStatus.OK
    told = last_text(query.failures)
    if told is not None and is_out_of_memory(told.kind):
        return ExecutionStatus.OUT_OF_MEMORY
    return ExecutionStatus.FAILED


def _measurement(query: SparkQuery, submitted_at: int | None) -> Measurement:
    is_first = query.before == 0 and submitted_at is not None
    waited = max(query.started_at - (submitted_at or 0), 0) if is_first else 0
    return Measurement(
        runtime_seconds=min(query.milliseconds / 1000, MAX_RUNTIME_SECONDS),
        cpu_seconds=max(query.totals["cpu_nanoseconds"], 0) / 1e9,
        read_bytes=max(query.totals["read_bytes"], 0),
        written_bytes=max(query.totals["written_bytes"], 0),
        startup_seconds=min((waited + query.wait_milliseconds) / 1000, MAX_RUNTIME_SECONDS),
    )
