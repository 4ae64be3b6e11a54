"""Cases of the comparison set with synthetic run times."""

from collections.abc import Mapping

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    Column,
    ColumnType,
    Comparison,
    Filter,
    ReadParquet,
    Sink,
)
from fedperf_engines.platforms.program import Program, Step
from fedperf_engines.workloads.families import Family
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.corpus.measured_log import Role

DUCKDB, POLARS, PANDAS, SKLEARN = (
    Platform.DUCKDB,
    Platform.POLARS,
    Platform.PANDAS,
    Platform.SKLEARN,
)
PROGRAM = Program(
    (
        Step(ReadParquet("events_1000", (Column("k", ColumnType.INTEGER),))),
        Step(Filter("k", Comparison.GREATER, 0), (0,)),
        Step(Aggregate(("k",), (Aggregation(AggregateFunction.COUNT, "n"),)), (1,)),
        Step(Sink(), (2,)),
    )
)
KINDS = (
    OperatorKind.FILE_SOURCE,
    OperatorKind.FILTER,
    OperatorKind.AGGREGATE,
    OperatorKind.SINK,
)
CLUSTER = ClusterConfig(nodes=1, cores=1, memory_bytes=2**34)


def workflow(rows: float = 1000.0) -> Workflow:
    return Workflow(
        tuple(
            Operator(kind, OperatorClass.RELATIONAL, (place - 1,) if place else (), rows, 8.0)
            for place, kind in enumerate(KINDS)
        )
    )


def everywhere(platform: Platform) -> Assignment:
    return (platform,) * len(PROGRAM.steps)


def case(
    name: str,
    seconds: Mapping[Assignment, float],
    *,
    workload: str = "",
    role: Role = Role.COMPARISON,
    family: Family = Family.RELATIONAL,
    rows: int = 1000,
) -> Case:
    return Case(
        name, role, family, workload or name, rows, PROGRAM, workflow(rows), CLUSTER, seconds
    )


def alone(name: str, *, duckdb: float, polars: float, pandas: float) -> Case:
    seconds = {DUCKDB: duckdb, POLARS: polars, PANDAS: pandas}
    return case(name, {everywhere(platform): each for platform, each in seconds.items()})
