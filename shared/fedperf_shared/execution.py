"""Executions: measured runs of plans, with their resources and measurements.

Executions are private: they live in an organization's store and never leave it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum, unique
from functools import cached_property
from typing import NamedTuple

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.features import (
    Features,
    featurize,
    featurize_assignments,
    featurize_many,
)
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

MAX_QUERIES_BEFORE = 1_000_000


class InvalidExecutionError(InvalidInputError):
    """An execution carries a value that no measurement can give."""


@unique
class ExecutionStatus(IntEnum):
    """The outcome of an execution. Models train on run times of `OK` only."""

    OK = 0
    FAILED = 1
    TIMEOUT = 2
    OUT_OF_MEMORY = 3


@unique
class ExecutionWarning(StrEnum):
    """A reason to trust the run time of an execution less."""

    # Another engine ran the plan's operators, such as Photon, Comet, Velox or a GPU. Its run times
    # do not train or predict those of the plain engine.
    ACCELERATED = "accelerated"

    # Tasks failed and were repeated, so its measurements count some work twice.
    FAILED_TASKS = "failed_tasks"

    INCOMPLETE = "incomplete"  # a part of its record is missing
    NOISY = "noisy"  # interference on the machine, or a run time far from those of its repeats


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The resources of an execution."""

    nodes: int  # machines
    cores: int  # cores in all that the engines may use
    memory_bytes: int  # memory in all
    # Speed of one core relative to the reference machine; 1 if it was not measured.
    machine_speed: float = 1.0
    # Queries that the engine ran before in the same session, because the first ones find it cold.
    # 0 if unknown.
    queries_before: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "cores", "memory_bytes", "machine_speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidExecutionError(f"{name} must be positive and finite, got {value!r}")
        if not 0 <= self.queries_before <= MAX_QUERIES_BEFORE:
            raise InvalidExecutionError(
                f"queries_before must be between 0 and {MAX_QUERIES_BEFORE}, "
                f"got {self.queries_before!r}"
            )


@dataclass(frozen=True, slots=True)
class KnownJob:
    """Facts about a job from one of its runs, besides plan and resources. They stay local."""

    workload: str  # the workload of the execution
    # Whether the rows of all sources are available. Otherwise the plan holds none, and does not
    # show the input size of the job.
    has_rows: bool = True
    read_bytes: int = 0  # bytes read, as its engine counted them; 0 if it did not
    tasks: int = 0  # as in `ExecutionMetadata`
    description: str = ""  # as in `ExecutionMetadata`
    rows_within: float = 1.0  # as in `ExecutionMetadata`
    # Whether another engine did the work, see `ExecutionWarning.ACCELERATED`.
    is_accelerated: bool = False
    # CPU time over all cores; 0 if unknown. Fewer cores need at least this time divided by their
    # number.
    cpu_seconds: float = 0.0
    seconds: float = 0.0  # run time of the execution; 0 without a measurement

    @classmethod
    def of(cls, execution: "Execution") -> "KnownJob":
        """Return the job of an execution."""
        origin, measured = execution.origin, execution.measurement
        operators = execution.plan.workflow.operators
        return cls(
            execution.workload,
            origin.rows_known == 1
            or (origin.rows_known > 0 and all(o.inputs or o.output_rows > 0 for o in operators)),
            0 if measured is None else measured.read_bytes,
            origin.tasks,
            origin.description,
            origin.rows_within,
            ExecutionWarning.ACCELERATED in origin.remarks,
            0.0 if measured is None else measured.cpu_seconds,
            execution.runtime_seconds,
        )

    def elsewhere(self) -> "KnownJob":
        """Return this job on another engine, without the facts that depend on the engine."""
        return replace(self, is_accelerated=False, cpu_seconds=0.0)

    @property
    def needs_own_runs(self) -> bool:
        """Return whether only its own runs can predict its run time."""
        return self.is_accelerated or not self.has_rows


@dataclass(frozen=True)
class PlanOnCluster:
    """A plan on a cluster: the query of a prediction, and the subject of a run."""

    plan: Plan  # the operators and their platforms
    cluster: ClusterConfig  # the resources
    job: KnownJob | None = None  # the job of the plan, if the query is about a stored execution

    @classmethod
    def of(
        cls, workflow: Workflow, assignments: Sequence[tuple[Platform, ...]], cluster: ClusterConfig
    ) -> "list[PlanOnCluster]":
        """Return one plan per assignment of platforms. Their features are computed together."""
        plans = [cls(Plan(workflow, platforms), cluster) for platforms in assignments]
        features = featurize_assignments(workflow, assignments, cluster)
        for sized, each in zip(plans, features, strict=True):
            vars(sized)["features"] = each  # the cached value of `features`
        return plans

    @classmethod
    def featurize(cls, queries: "Sequence[PlanOnCluster]") -> None:
        """Compute the missing features of several queries together."""
        new = [each for each in queries if "features" not in vars(each)]
        if len(new) > 1:
            plans, clusters = [each.plan for each in new], [each.cluster for each in new]
            for each, features in zip(new, featurize_many(plans, clusters), strict=True):
                vars(each)["features"] = features

    def about(self, job: KnownJob) -> "PlanOnCluster":
        """Return this plan as a query about `job`. Computed features are reused."""
        query = replace(self, job=job)
        if "features" in vars(self):
            vars(query)["features"] = self.features
        return query

    @cached_property
    def features(self) -> Features:
        """The features of the plan, computed once."""
        return featurize(self.plan, self.cluster)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurements of a run: wall time on a monotonic clock, and resources of the process tree."""

    runtime_seconds: float  # of the plan itself
    cpu_seconds: float = 0.0  # over all processes and threads
    peak_memory_bytes: int = 0  # of all processes together
    read_bytes: int = 0  # from files
    written_bytes: int = 0  # to files
    # Time from the submission of the application to its first run, and the wait of the first task
    # for an executor. `runtime_seconds` does not include it. 0 if unknown.
    startup_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.runtime_seconds <= MAX_RUNTIME_SECONDS:
            raise InvalidExecutionError(
                f"runtime_seconds must be in (0, {MAX_RUNTIME_SECONDS:g}], "
                f"got {self.runtime_seconds!r}"
            )
        names = ("cpu_seconds", "peak_memory_bytes", "read_bytes", "written_bytes")
        for name in (*names, "startup_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidExecutionError(f"{name} must be finite and not negative: {value!r}")


class JobColumn(NamedTuple):
    """A column that describes a job, with its value in one run."""

    name: str
    value: float | str  # a number in the unit of the column, or a word
    # What it counts or names: nodes, cores, input_size, memory or machine; empty for anything else.
    role: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionMetadata:
    """The origin of an execution, for local users. It is never part of a release."""

    source: str = ""  # the recording engine and its version, such as "spark 3.5.3"
    node_type: str = ""  # the provider's name for the type of the machines; empty if unknown
    architecture: str = ""  # architecture of their processors; empty if unknown
    # Share of the plan's operators whose rows were counted, or follow from rows that were, in [0,
    # 1].
    rows_known: float = 1.0
    remarks: tuple[ExecutionWarning, ...] = ()  # sorted warnings
    application: str = ""  # the name of its application, unchanged
    application_id: str = ""  # the engine's id of that application
    record: str = ""  # its part of the source, such as "query 12" or "job 3"
    # The user's description of it, or the line of code that started it; one line.
    description: str = ""
    file: str = ""  # the file or directory of its record
    failure: str = ""  # the engine's error message if it failed; one line
    # Seconds of each operator of the plan, summed over its tasks or threads, with waiting for
    # inputs. None if the record lacks them for an operator, empty if it lacks them for all.
    operator_seconds: tuple[float | None, ...] = ()
    # Uncertainty of the rows of its sources, as a factor of at least 1; 1 if they were counted.
    rows_within: float = 1.0
    tasks: int = 0  # number of the engine's tasks; 0 if unknown
    # Columns of the row of a table of past runs, with distinct names; empty for other records.
    columns: tuple[JobColumn, ...] = ()
    # Digest of the query's text without constants and of its tables, "/", digest of the whole text.
    statement: str = ""
    # Digest of each operator of the plan: its tables and conditions. Empty if unknown, and for an
    # operator that returns the rows of its input. No digests if all are unknown.
    operator_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.rows_known <= 1:
            raise InvalidExecutionError(f"rows_known must be in [0, 1], got {self.rows_known!r}")
        if not 1 <= self.rows_within < math.inf:
            raise InvalidExecutionError(f"rows_within must be from 1 on, got {self.rows_within!r}")
        if not self.tasks >= 0:
            raise InvalidExecutionError(f"tasks must not be negative, got {self.tasks!r}")
        if len({each.name for each in self.columns}) < len(self.columns):
            raise InvalidExecutionError(f"columns must have distinct names: {self.columns}")
        for column in self.columns:
            if not column.name or not (
                isinstance(column.value, str) or math.isfinite(column.value)
            ):
                raise InvalidExecutionError(f"a column has a name and a finite value: {column}")
        if list(self.remarks) != sorted(set(self.remarks)):
            raise InvalidExecutionError(f"remarks must be sorted and distinct: {self.remarks}")
        for each in self.operator_seconds:
            if each is not None and not 0 <= each < math.inf:
                raise InvalidExecutionError(
                    f"operator_seconds must be finite and not negative: {each!r}"
                )


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A plan, its resources and its run time, without its organization.

    Public measurements have this form, such as the plans that ship with fedperf.
    """

    plan: Plan  # the operators and their platforms
    cluster: ClusterConfig  # the resources
    log_seconds: float  # natural log of its wall seconds

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_seconds):
            raise InvalidExecutionError(f"log_seconds must be finite, got {self.log_seconds!r}")


@dataclass(frozen=True, slots=True)
class Execution:
    """One measured run of a plan."""

    execution_id: str  # random, local
    workload: str  # name of its job, the privacy unit; local
    plan: Plan  # the operators and their platforms
    cluster: ClusterConfig  # the resources
    status: ExecutionStatus  # how it ended
    # The measurements; None only for a failed trial without any.
    measurement: Measurement | None
    finished_at: datetime  # when it ended, with time zone
    origin: ExecutionMetadata = field(default_factory=ExecutionMetadata)  # the origin of its record

    def __post_init__(self) -> None:
        if self.status is ExecutionStatus.OK and self.measurement is None:
            raise InvalidExecutionError(f"execution {self.execution_id}: ok without a measurement")
        if self.finished_at.tzinfo is None:
            raise InvalidExecutionError(f"execution {self.execution_id}: no time zone")
        operators = len(self.plan.workflow.operators)
        for name in ("operator_seconds", "operator_keys"):
            count = len(getattr(self.origin, name))
            if count not in (0, operators):
                raise InvalidExecutionError(
                    f"execution {self.execution_id}: {name} of {count} operators, "
                    f"it has {operators}"
                )

    @property
    def runtime_seconds(self) -> float:
        """Wall time of the plan; 0 without a measurement."""
        return 0.0 if self.measurement is None else self.measurement.runtime_seconds

    @property
    def is_ok(self) -> bool:
        """Return whether models train on its run time."""
        return self.status is ExecutionStatus.OK
