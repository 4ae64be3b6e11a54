"""Run times of prefixes of measured plans, as labels, from the timings of their segments.

A run materializes rows at the end of every segment (`executor.plan_segments`). So the first
segments of a plan are a plan of their own whose run time is the sum of theirs. A search that scores
plans while they grow asks about such prefixes. A model that has seen complete plans alone would be
asked about what it has never seen.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedperf_client.sources.history_file import executions_of
from fedperf_engines.platforms.executor import plan_segments
from fedperf_engines.platforms.program import Program, from_json
from fedperf_shared.execution import Execution, MeasuredPlan
from fedperf_shared.workflow.vocabulary import MIN_RUNTIME_SECONDS


def measured_prefixes(path: Path) -> Iterator[tuple[Execution, MeasuredPlan]]:
    """Every proper prefix of the executions of a measured set, beside its execution.

    Raises:
        InvalidInputError: a row cannot be read.
    """
    from pyarrow import parquet

    table = parquet.read_table(path, columns=["program", "segment_seconds"])
    columns = (table[name].to_pylist() for name in table.column_names)
    for execution, program, seconds in zip(executions_of(path), *columns, strict=True):
        if execution.is_ok:
            for prefix in prefixes(execution, from_json(program), seconds):
                yield execution, prefix


def prefixes(
    execution: Execution, program: Program, segment_seconds: Sequence[float]
) -> Iterator[MeasuredPlan]:
    """The first segments of one execution, the first two, ... and so on; never all of them."""
    segments = list(plan_segments(program, execution.plan.platforms).values())
    steps: list[int] = []
    total = 0.0
    for segment, seconds in zip(segments[:-1], segment_seconds[:-1], strict=True):
        steps += segment
        total += seconds
        label = math.log(max(total, MIN_RUNTIME_SECONDS))
        yield MeasuredPlan(execution.plan.prefix(steps), execution.cluster, label)
