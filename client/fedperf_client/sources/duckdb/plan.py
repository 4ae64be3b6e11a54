"""One DuckDB profile as an execution: its operators, how long it took, what it used.

The schemas differ between versions: a root with sections (2.x), a flat root with metrics
(1.1 to 1.5), and one that calls itself "Query" (before 1.1, without sizes). All of them
give the same plan for the same work:

- what collects the result is a sink at the end, also where the version does not print it;
- what `WITH ... AS MATERIALIZED` computes once is one operator that several read;
- a scan that filters is a source and a filter behind it. The source's rows are those that it
  looked at (see `scans`); where they are not decided they count as not known, and stand in the
  middle of what is possible, whose width is in the origin.

Resources that a profile does not name: the nodes are one; the cores are CPU time / wall
time, rounded up, what at least was used; the memory is `ASSUMED_MEMORY_BYTES`, or what was
used where that is more. The workload is the shape of the plan, never a text.

Refused, each with one reason whatever the values: no run to its end, no wall time, no
operators, operators without a name, commands alone, more operators or rows than a plan may
have, anything that is no number where one belongs.
"""

import math
from collections.abc import Collection, Mapping
from datetime import datetime

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.sources import Counted
from fedperf_client.sources.duckdb.operators import EXPLAINED
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


def _nothing_counted(place: str) -> Collection[RowCount]:
    del place
    return ()


def counts_in(content: object) -> list[RowCount]:
    """What the scans of a profile counted of whole tables and files; errors as `execution_of`."""
    return _tree_of(content, _nothing_counted)[0].counts


def execution_of(
    content: object,
    *,
    execution_id: str,
    finished_at: datetime,
    counted: Counted = _nothing_counted,
) -> Execution:
    """The execution that a profile tells of.

    Args:
        content: of the profile, as JSON gives it.
        execution_id: for the execution.
        finished_at: when it ended, with time zone.
        counted: what other profiles counted.

    Raises:
        InvalidInputError: see the module.
    """
    tree, wall, content = _tree_of(content, counted)
    schema, workflow = tree.schema, tree.workflow()
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
            rows_within=tree.rows_within,
        ),
    )


def _tree_of(content: object, counted: Counted) -> tuple[OperatorTree, float, Mapping[str, object]]:
    """The operators of a profile, its wall time, and the profile as what it was found to be."""
    if not isinstance(content, dict):
        raise InvalidProfileError("no profile: not an object")
    schema = schema_of(content)
    wall = number_of(value_at(content, schema.wall), "the wall time")
    tops = content.get(schema.top)
    if not (wall is not None and 0 < wall <= MAX_RUNTIME_SECONDS):
        first = tops[0] if isinstance(tops, list) and tops else None
        if isinstance(first, dict) and EXPLAINED in (first.get(key) for key in schema.kind):
            raise InvalidProfileError(
                "EXPLAIN ANALYZE of 1.1 to 1.4 has no run time: set profiling_output instead"
            )
        raise InvalidProfileError(f"no wall time between 0 and {MAX_RUNTIME_SECONDS:g} seconds")
    tree = OperatorTree(schema, counted)
    tree.read(tops)
    return tree, wall, content


def _cluster(measured: Measurement) -> ClusterConfig:
    busy = min(measured.cpu_seconds / measured.runtime_seconds, MAX_CORES)
    memory = max(ASSUMED_MEMORY_BYTES, measured.peak_memory_bytes)
    return ClusterConfig(nodes=1, cores=max(1, math.ceil(busy)), memory_bytes=memory)
