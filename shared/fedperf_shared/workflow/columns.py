"""A workflow as columns: one array per property, one row per operator in an order.

What features are computed from. `WorkflowColumns` holds what a workflow says whatever its
platforms are, `Placements` what platforms decide, for many plans of one workflow at once.
Rows stand in the order that was asked for, which has to be topological, and edges name
rows, not positions in the workflow. Refused: nothing; a `Workflow` is valid already.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import depths, heights
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowColumns:
    """The columns of a workflow as arrays, one row per operator in a topological order.

    Several workflows beside each other are one that falls apart.
    """

    edges: Ints
    kind: Ints
    operator_class: Ints
    complexity: Ints
    depth: Ints
    height: Ints
    rows: Floats
    row_bytes: Floats
    code_steps: Floats
    iterations: Floats
    key_distinct_ratio: Floats
    partitions: Floats
    parents: Ints
    children: Ints

    @classmethod
    def of(cls, *parts: tuple[Workflow, Sequence[int]]) -> "WorkflowColumns":
        """The columns of workflows, one after the other, the operators of each in its order."""
        discrete: list[tuple[int, ...]] = []
        measured: list[tuple[float, ...]] = []
        edges: list[tuple[int, int]] = []
        for workflow, order in parts:
            depth, height = depths(workflow), heights(workflow)
            begin = len(discrete)
            row = {position: begin + index for index, position in enumerate(order)}
            for position in order:
                o = workflow.operators[position]
                discrete.append(
                    (o.kind, o.operator_class, o.complexity, depth[position], height[position])
                )
                measured.append(
                    (
                        o.output_rows,
                        o.row_bytes,
                        o.code_steps,
                        o.iterations,
                        o.key_distinct_ratio,
                        o.partitions,
                    )
                )
                edges += [(row[parent], row[position]) for parent in o.inputs]
        counted = np.array(discrete, dtype=np.int64).T
        sized = np.array(measured, dtype=np.float64).T
        joined = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return cls(
            edges=joined,
            kind=counted[0],
            operator_class=counted[1],
            complexity=counted[2],
            depth=counted[3],
            height=counted[4],
            rows=sized[0],
            row_bytes=sized[1],
            code_steps=sized[2],
            iterations=sized[3],
            key_distinct_ratio=sized[4],
            partitions=sized[5],
            parents=np.bincount(joined[1], minlength=len(discrete)),
            children=np.bincount(joined[0], minlength=len(discrete)),
        )

    @property
    def output_bytes(self) -> Floats:
        """Bytes that each operator hands on."""
        return self.rows * self.row_bytes

    def of_inputs(self, values: Floats) -> Floats:
        """Per operator the sum of its inputs' values; of a source its own."""
        return np.where(self.parents == 0, values, self.summed(values[self.edges[0]]))

    @property
    def largest_input_rows(self) -> Floats:
        """Rows of each operator's largest input; of a source its own."""
        largest = np.where(self.parents == 0, self.rows, 0.0)
        np.maximum.at(largest, self.edges[1], self.rows[self.edges[0]])
        return largest

    def summed(self, per_edge: Floats) -> Floats:
        """Per operator the sum over its incoming edges."""
        return sum_by_row(self.edges[1], per_edge, len(self.rows))


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """The platforms of plans [plans, operators], and the edges that switch [plans, edges]."""

    platforms: Ints
    switch: NDArray[np.bool_]

    @classmethod
    def of(cls, columns: WorkflowColumns, platforms: Ints) -> "Placements":
        """The placements by `platforms` [plans, operators], in the columns' order."""
        parent, child = platforms[:, columns.edges[0]], platforms[:, columns.edges[1]]
        both = (parent != Platform.UNASSIGNED) & (child != Platform.UNASSIGNED)
        return cls(platforms, (parent != child) & both)


def sum_by_row(rows: Ints, values: Floats, count: int) -> Floats:
    """Per row from 0 to `count` - 1 the sum of the values that name it."""
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)
