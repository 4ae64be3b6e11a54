"""Synthetic queries whose run times follow their rows."""

from datetime import UTC, datetime, timedelta

import numpy as np

from fedperf_shared.execution import ClusterConfig, Execution, ExecutionStatus, Measurement
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

FIRST = datetime(2026, 1, 1, tzinfo=UTC)

FILE, TABLE = OperatorKind.FILE_SOURCE, OperatorKind.TABLE_SOURCE


def query(
    number: int,
    *,
    rows: float,
    seconds: float,
    platform: Platform = Platform.SPARK,
    source: OperatorKind = FILE,
    workload: str = "",
    kinds: tuple[OperatorKind, ...] = (OperatorKind.FILTER, OperatorKind.AGGREGATE),
) -> Execution:
    """Return a scan of `rows` rows and the operators after it, each of which keeps a third."""
    chain = [Operator(source, OperatorClass.RELATIONAL, (), rows, 32.0)]
    for place, kind in enumerate(kinds):
        left = rows / 3 ** (place + 1)
        chain.append(Operator(kind, OperatorClass.RELATIONAL, (place,), left, 16.0))
    return Execution(
        f"made-up-{number:03d}-0",
        workload or f"made up/{number}",
        Plan.on_one_platform(Workflow(tuple(chain)), platform),
        ClusterConfig(1, 2, 2**33, queries_before=number % 4),
        ExecutionStatus.OK,
        Measurement(seconds),
        FIRST + timedelta(seconds=number),
    )


def queries(count: int, *, seed: int, platform: Platform = Platform.SPARK) -> list[Execution]:
    """Return queries of 1,000 to 10 million rows.

    They take 0.5 s plus a microsecond per row, with a random factor of about 20 %.
    """
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        rows = float(np.round(10 ** rng.uniform(3, 7)))
        seconds = float((0.5 + 1e-6 * rows) * np.exp(0.2 * rng.standard_normal()))
        source = FILE if number % 3 else TABLE
        found.append(query(number, rows=rows, seconds=seconds, source=source, platform=platform))
    return found
