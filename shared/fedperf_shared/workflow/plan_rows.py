"""The plan features of many plans at once: what is summed over each.

`features` says what each column is, and computes the same for many plans of one workflow.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.analytic_cost import Resources
from fedperf_shared.workflow.columns import Floats, Ints, Placements, WorkflowColumns
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

_GIB = 2.0**30


def machine_features(cluster: Resources) -> tuple[float, ...]:
    """Plan features 35 to 38."""
    return (
        math.log1p(cluster.cores) / 5,
        math.log(cluster.memory_bytes / _GIB) / 5,
        1 + math.log2(cluster.nodes),
        cluster.machine_speed,
    )


def fill_plan_rows(
    rows: Floats,
    columns: WorkflowColumns,
    placed: Placements,
    *,
    plans: Sequence[Plan],
    sizes: Ints,
    clusters: Sequence[Resources],
) -> None:
    """Fill the features of several plans, [plans, 39].

    Args:
        rows: to be filled.
        columns: of all their workflows, one after the other.
        placed: of their platforms, as of one plan.
        plans: of which workflow each is.
        sizes: operators of each.
        clusters: of each.
    """
    count, begins = len(plans), np.cumsum(sizes) - sizes
    plan = np.repeat(np.arange(count), sizes)
    edge_plan, [switch], [platforms] = plan[columns.edges[1]], placed.switch, placed.platforms

    def total(values: NDArray[Any]) -> Floats:
        return np.add.reduceat(values.astype(np.float64), begins)

    def largest(values: NDArray[Any]) -> NDArray[Any]:
        return np.maximum.reduceat(values, begins)

    def counted(numbers: Ints, kinds: int) -> Ints:
        found = np.bincount(plan * kinds + numbers, minlength=count * kinds)
        return found.reshape(count, kinds)

    source = columns.parents == 0
    by_platform = counted(platforms, len(Platform))
    source_rows = np.where(source, columns.rows, 0.0)
    total_rows, total_bytes = total(source_rows), total(source_rows * columns.row_bytes)
    width = total(np.where(source, columns.row_bytes, 0.0)) / total(source)
    known = [each.workflow.sources for each in plans]
    rows[:, 0] = sizes / 12
    rows[:, 1] = np.bincount(edge_plan, minlength=count) / 12
    rows[:, 2] = largest(columns.depth) / 12
    rows[:, 3] = counted(columns.depth, int(columns.depth.max()) + 1).max(axis=1) / 4
    rows[:, 4] = total(source) / 3
    rows[:, 5] = total(columns.children == 0) / 3
    rows[:, 6] = total(columns.kind == OperatorKind.JOIN) / 3
    rows[:, 7] = total(columns.iterations != 0) / 3
    rows[:, 8] = np.count_nonzero(by_platform[:, : Platform.UNASSIGNED], axis=1) / 3
    rows[:, 9:17] = by_platform[:, :8] / sizes[:, None]
    rows[:, 17] = np.bincount(edge_plan, switch, minlength=count) / 6
    sent = np.where(switch, columns.output_bytes[columns.edges[0]], 0.0)
    rows[:, 18] = np.log1p(np.bincount(edge_plan, sent, minlength=count)) / 20
    rows[:, 19:23] = counted(columns.operator_class, len(OperatorClass)) / sizes[:, None]
    rows[:, 23] = largest(columns.parents) < 2  # noqa: PLR2004 - two parents make a juncture
    rows[:, 24] = 1 - rows[:, 23]
    rows[:, 25] = largest(columns.children) > 1
    rows[:, 26] = largest(columns.iterations) > 0
    rows[:, 27] = np.log1p(total_rows) / 10
    rows[:, 28] = np.log1p(total_bytes) / 20
    rows[:, 29] = np.log1p(largest(source_rows)) / 10
    per_row = np.divide(total_bytes, total_rows, out=width, where=total_rows > 0)
    rows[:, 30] = np.log1p(per_row) / 5
    rows[:, 31:35] = [
        (each.columns / 10, each.top_key_share, each.distinct_ratio, each.null_ratio)
        for each in known
    ]
    rows[:, 35:39] = [machine_features(each) for each in clusters]
