"""Executions of a made-up organization, any number of them: so that a store can be filled to size.

A workload is a random workflow on one platform, run with another size each time. Run times
follow its size and cores, a level of its own, and chance. Everything follows from the seed and
the number of the execution.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

PER_WORKLOAD = 10
OPERATORS = (6, 22)
"""The fewest and the most of a workflow, 14 on average."""

PLATFORMS = (Platform.SPARK, Platform.SPARK, Platform.DUCKDB, Platform.POLARS)
CORES = (4, 8, 16, 32)
KINDS = (
    (OperatorKind.TABLE_SOURCE, OperatorKind.FILE_SOURCE),
    (OperatorKind.FILTER, OperatorKind.MAP, OperatorKind.AGGREGATE, OperatorKind.SORT),
    (OperatorKind.JOIN, OperatorKind.UNION),
)
"""By number of parents."""

REACH = 4
"""An operator reads one of the last so many."""

LOG_ROWS = (7.0, 15.0)
LEVEL_SD, CHANCE_SD = 0.5, 0.1
"""Of workloads and of executions, log seconds."""

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
APART = timedelta(seconds=20)


def made_up(seed: int, begin: int, end: int) -> Iterator[Execution]:
    """The executions of these numbers; ten in a row share a workload, in any order of time."""
    for workload in range(begin // PER_WORKLOAD, -(-end // PER_WORKLOAD)):
        rng = np.random.default_rng([seed, workload])
        for number, execution in enumerate(_of_workload(rng, workload)):
            if begin <= workload * PER_WORKLOAD + number < end:
                yield execution


def _of_workload(rng: np.random.Generator, workload: int) -> Iterator[Execution]:
    operators = _operators(rng)
    platforms = (PLATFORMS[int(rng.integers(len(PLATFORMS)))],) * len(operators)
    cores = CORES[int(rng.integers(len(CORES)))]
    cluster = ClusterConfig(1, cores, cores * 4 * 2**30)
    level = rng.normal(-9.0, LEVEL_SD)
    for number in range(PER_WORKLOAD):
        factor = float(np.exp(rng.normal(0.0, 0.5)))
        sized = tuple(replace(each, output_rows=each.output_rows * factor) for each in operators)
        plan = Plan(Workflow(sized), platforms)
        work = sum(each.output_rows for each in sized) / cores**0.7
        seconds = float(np.exp(level + 0.8 * np.log1p(work) + rng.normal(0.0, CHANCE_SD)))
        place = workload * PER_WORKLOAD + number
        yield Execution(
            execution_id=f"made-up-{place:08d}",
            workload=f"workload-{workload:07d}",
            plan=plan,
            cluster=cluster,
            status=ExecutionStatus.OK,
            measurement=Measurement(seconds, seconds * cores),
            finished_at=BEGIN + place * APART,
        )


def _operators(rng: np.random.Generator) -> list[Operator]:
    """Of a workflow that looks like a query: sources, work on one input, work on two."""
    count = int(rng.integers(OPERATORS[0], OPERATORS[1] + 1))
    placed: list[Operator] = []
    for position in range(count):
        near = list(range(max(position - REACH, 0), position))
        parents = min(int(rng.choice(3, p=(0.2, 0.6, 0.2))), len(near))
        inputs = tuple(rng.choice(near, parents, replace=False).tolist()) if parents else ()
        kinds = KINDS[len(inputs)]
        placed.append(
            Operator(
                kinds[int(rng.integers(len(kinds)))],
                OperatorClass.RELATIONAL,
                inputs,
                float(np.exp(rng.uniform(*LOG_ROWS))),
                float(rng.integers(8, 200)),
            )
        )
    return placed
