"""One DuckDB profile as an execution: its operators, how long it took, what it used.

The schemas differ between versions: a root with sections (2.x), a flat root with metrics
(1.1 to 1.5), and one that calls itself "Query" (before 1.1, without sizes). All of them
give the same plan for the same work:

- what collects the result is a sink at the end, also where the version does not print it;
- what `WITH ... AS MATERIALIZED` computes once is one operator that several read;
- a scan that filters is a source and a filter behind it. Of 2.x the rows that it scanned are
  counted for tables, and row groups for files of columns; elsewhere what came out stands for
  them, and the source's rows count as not known.

Resources that a profile does not name: the nodes are one; the cores are CPU time / wall
time, rounded up, what at least was used; the memory is `ASSUMED_MEMORY_BYTES`, or what was
used where that is more. The workload is the shape of the plan, never a text.

Refused, each with one reason whatever the values: no wall time, no operators, operators
without a name, commands alone, more operators or rows than a plan may have, anything that
is no number where one belongs.
"""

import math
from datetime import datetime

from fedperf_client.sources.duckdb.profile_schema import (
    InvalidProfileError,
    count_of,
    number_of,
    schema_of,
    value_at,
)
from fedperf_client.sources.duckdb.tree import OperatorTree
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    Measurement,
    Origin,
    Remark,
)
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.template import fingerprint
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

ASSUMED_MEMORY_BYTES = 16 * 2**30
MAX_CORES = 1024


def execution_of(content: object, *, execution_id: str, finished_at: datetime) -> Execution:
    """The execution that a profile tells of.

    Args:
        content: of the profile, as JSON gives it.
        execution_id: for the execution.
        finished_at: when it ended, with time zone.

    Raises:
        InvalidInputError: see the module.
    """
    if not isinstance(content, dict):
        raise InvalidProfileError("no profile: not an object")
    schema = schema_of(content)
    wall = number_of(value_at(content, schema.wall), "the wall time")
    if not (wall is not None and 0 < wall <= MAX_RUNTIME_SECONDS):
        raise InvalidProfileError(f"no wall time between 0 and {MAX_RUNTIME_SECONDS:g} seconds")
    tree = OperatorTree(schema)
    tree.read(content.get(schema.top))
    workflow = tree.workflow()
    cpu = number_of(value_at(content, schema.cpu), "the CPU time")
    measured = Measurement(
        runtime_seconds=wall,
        cpu_seconds=tree.seconds if cpu is None else cpu,
        peak_memory_bytes=count_of(value_at(content, schema.memory), "memory"),
        read_bytes=count_of(value_at(content, schema.read), "bytes read"),
        written_bytes=count_of(value_at(content, schema.written), "bytes written"),
    )
    return Execution(
        execution_id=execution_id,
        workload=f"duckdb/{fingerprint(workflow)[:16]}",
        plan=Plan.on_one_platform(workflow, Platform.DUCKDB),
        cluster=_cluster(measured),
        status=ExecutionStatus.OK,
        measurement=measured,
        finished_at=finished_at,
        origin=Origin(
            source=schema.source,
            rows_known=sum(tree.known) / len(tree.known),
            remarks=() if tree.is_complete else (Remark.INCOMPLETE,),
            operator_seconds=tuple(tree.operator_seconds) if tree.seconds else (),
        ),
    )


def _cluster(measured: Measurement) -> ClusterConfig:
    busy = min(measured.cpu_seconds / measured.runtime_seconds, MAX_CORES)
    memory = max(ASSUMED_MEMORY_BYTES, measured.peak_memory_bytes)
    return ClusterConfig(nodes=1, cores=max(1, math.ceil(busy)), memory_bytes=memory)
