"""One measured run of a plan, where it ran and what was measured.

Executions are private: they live in an organization's store and never leave it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum, unique
from functools import cached_property

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
    """The end of an execution; only `OK` carries a run time worth learning from."""

    OK = 0
    FAILED = 1
    TIMEOUT = 2
    OUT_OF_MEMORY = 3


@unique
class ExecutionWarning(StrEnum):
    """A warning about an execution, to know before its run time is trusted."""

    # Another engine ran the plan's operators, such as Photon, Comet, Velox or a GPU: its run times
    # neither teach nor answer those of the plain engine.
    ACCELERATED = "accelerated"

    # Tasks failed and were done again, so that its figures count some work twice.
    FAILED_TASKS = "failed_tasks"

    INCOMPLETE = "incomplete"  # A part of its record is missing
    NOISY = "noisy"  # others kept the machine busy, or it is far from its repeats


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The resources of an execution."""

    nodes: int  # machines
    cores: int  # cores in all that the engines may use
    memory_bytes: int  # memory in all
    # Speed of one core relative to the reference machine; 1 where nobody measured it.
    machine_speed: float = 1.0
    # How much the engine had done in the same session: a first query pays for what others find
    # warm. 0 where nobody knows.
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
    """Facts about a job from one of its runs, beyond plan and resources. They stay local."""

    workload: str  # that the execution belongs to
    # Whether the rows of all sources are known. Where they are not, the plan holds none, and says
    # nothing of the size of the job.
    has_rows: bool = True
    read_bytes: int = 0  # that its engine counted; 0 where it counted none
    tasks: int = 0  # as in `ExecutionMetadata`
    description: str = ""  # as in `ExecutionMetadata`
    rows_within: float = 1.0  # as in `ExecutionMetadata`
    # Whether another engine did the work, see `ExecutionWarning.ACCELERATED`.
    is_accelerated: bool = False
    # That it took over all cores: no fewer cores can do it in less than that over their number; 0
    # where not known.
    cpu_seconds: float = 0.0
    seconds: float = 0.0  # that the execution took; 0 where nothing was measured

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
        """Return this job on another engine, of which less is known."""
        return replace(self, is_accelerated=False, cpu_seconds=0.0)

    @property
    def answers_alone(self) -> bool:
        """Return whether only its own runs tell how long it takes."""
        return self.is_accelerated or not self.has_rows


@dataclass(frozen=True)
class PlanOnCluster:
    """A plan on its resources: the input of a prediction, and what a run measures."""

    plan: Plan  # what runs where
    cluster: ClusterConfig  # the resources that it has
    job: KnownJob | None = None  # whose plan it is, where an own execution is asked about

    @classmethod
    def of(
        cls, workflow: Workflow, assignments: Sequence[tuple[Platform, ...]], cluster: ClusterConfig
    ) -> "list[PlanOnCluster]":
        """Return one plan per assignment of platforms; their features are computed together."""
        plans = [cls(Plan(workflow, platforms), cluster) for platforms in assignments]
        features = featurize_assignments(workflow, assignments, cluster)
        for sized, each in zip(plans, features, strict=True):
            vars(sized)["features"] = each  # what `features` would keep
        return plans

    @classmethod
    def featurize(cls, questions: "Sequence[PlanOnCluster]") -> None:
        """Compute the features of several that may have none yet, together."""
        new = [each for each in questions if "features" not in vars(each)]
        if len(new) > 1:
            plans, clusters = [each.plan for each in new], [each.cluster for each in new]
            for each, features in zip(new, featurize_many(plans, clusters), strict=True):
                vars(each)["features"] = features

    def about(self, job: KnownJob) -> "PlanOnCluster":
        """Return this plan as a query about `job`; computed features are reused."""
        query = replace(self, job=job)
        if "features" in vars(self):
            vars(query)["features"] = self.features
        return query

    @cached_property
    def features(self) -> Features:
        """The features that every predictor reads of it, computed once."""
        return featurize(self.plan, self.cluster)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measured run: wall time on a monotonic clock, the process tree's resources."""

    runtime_seconds: float  # of the plan itself
    cpu_seconds: float = 0.0  # over all processes and threads
    peak_memory_bytes: int = 0  # of all processes together
    read_bytes: int = 0  # from files
    written_bytes: int = 0  # to files
    # From the submission of its application to its own start, where none ran before, and what its
    # first task waited while no executor was there; not in `runtime_seconds`; 0 where nobody knows.
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


@dataclass(frozen=True, slots=True)
class ExecutionMetadata:
    """The origin of an execution; for people at home, never part of a release."""

    source: str = ""  # what recorded it, with its version, such as "spark 3.5.3"
    node_type: str = ""  # of the machines, as their provider calls it; empty where unknown
    architecture: str = ""  # of their processors; empty where unknown
    # Share of the plan's operators whose rows were counted, or follow from rows that were, in [0,
    # 1].
    rows_known: float = 1.0
    remarks: tuple[ExecutionWarning, ...] = ()  # what to know before it is trusted, sorted
    application: str = ""  # name that its application gave itself, as it is
    application_id: str = ""  # what its engine calls that application
    record: str = ""  # which part of the source it is, such as "query 12" or "job 3"
    # What its people wrote about it, or where their code asked for it; one line.
    description: str = ""
    file: str = ""  # file or directory that it was read from
    failure: str = ""  # what its engine said when it failed; one line
    # Of each operator of the plan, summed over its tasks or threads, with waiting for inputs; None
    # where nothing tells, empty where nothing tells of any.
    operator_seconds: tuple[float | None, ...] = ()
    # Factor, from 1 on, that the rows of its sources are known within; 1 where they were counted.
    rows_within: float = 1.0
    tasks: int = 0  # that its engine divided it into; 0 where it does not tell

    def __post_init__(self) -> None:
        if not 0 <= self.rows_known <= 1:
            raise InvalidExecutionError(f"rows_known must be in [0, 1], got {self.rows_known!r}")
        if not 1 <= self.rows_within < math.inf:
            raise InvalidExecutionError(f"rows_within must be from 1 on, got {self.rows_within!r}")
        if not self.tasks >= 0:
            raise InvalidExecutionError(f"tasks must not be negative, got {self.tasks!r}")
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

    The form of what is public anyway, such as the plans that ship with fedperf.
    """

    plan: Plan  # what ran where
    cluster: ClusterConfig  # the resources it had
    log_seconds: float  # natural log of its wall seconds

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_seconds):
            raise InvalidExecutionError(f"log_seconds must be finite, got {self.log_seconds!r}")


@dataclass(frozen=True, slots=True)
class Execution:
    """One measured run of a plan."""

    execution_id: str  # random, local
    workload: str  # name of the job it belongs to, the unit of privacy; local
    plan: Plan  # what ran where
    cluster: ClusterConfig  # the resources it had
    status: ExecutionStatus  # how it ended
    # What was measured; None only where a failed trial left nothing.
    measurement: Measurement | None
    finished_at: datetime  # when it ended, with time zone
    origin: ExecutionMetadata = field(default_factory=ExecutionMetadata)  # where it is known from

    def __post_init__(self) -> None:
        if self.status is ExecutionStatus.OK and self.measurement is None:
            raise InvalidExecutionError(f"execution {self.execution_id}: ok without a measurement")
        if self.finished_at.tzinfo is None:
            raise InvalidExecutionError(f"execution {self.execution_id}: no time zone")
        timed, operators = len(self.origin.operator_seconds), len(self.plan.workflow.operators)
        if timed not in (0, operators):
            raise InvalidExecutionError(
                f"execution {self.execution_id}: seconds of {timed} operators, it has {operators}"
            )

    @property
    def runtime_seconds(self) -> float:
        """Wall time of the plan; 0 where nothing was measured."""
        return 0.0 if self.measurement is None else self.measurement.runtime_seconds

    @property
    def is_ok(self) -> bool:
        """Return whether it carries a run time worth learning from."""
        return self.status is ExecutionStatus.OK
