"""The canonical order of a workflow's operators, their depths and heights, and its fingerprint.

Parents come before children. The order depends on the graph alone, not on the order of
`Workflow.operators`. Operators are sorted by (depth, kind), then by sizes and neighbours as colour
refinement distinguishes them, then by platform where platforms are given. Remaining ties look the
same to GGFN, whose attention layers distinguish no more than colour refinement does. They are
sorted by position. One canonical order makes the sequence model of GGFN a function of the plan,
although a graph without cycles has many topological orders.

Colour refinement (Weisfeiler and Leman) gives every operator an integer from 0. It looks at both
directions of the edges and keeps the order of the initial colours.

The `fingerprint` of a workflow is a hash of its shape: kinds, classes and edges, but *no* sizes.
It identifies a workload locally. It is derived from private jobs and must never leave the
organization. Two graphs that colour refinement cannot distinguish share a fingerprint; the tests
show that no small graphs do.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import Platform

TEMPLATE_VERSION = 1

Signature = tuple[int, tuple[int, ...], tuple[int, ...]]
_Ordered = TypeVar("_Ordered", Signature, tuple[float, ...], int)


def workflow_colours(workflow: Workflow, depth: Sequence[int]) -> list[int]:
    """Compute colours from everything in a workflow, ordered by (depth, kind) first."""
    attributes = [
        (
            depth[position],
            int(operator.kind),
            int(operator.operator_class),
            operator.output_rows,
            operator.row_bytes,
            int(operator.complexity),
            operator.code_steps,
            operator.iterations,
            operator.key_distinct_ratio,
            operator.partitions,
        )
        for position, operator in enumerate(workflow.operators)
    ]
    return refine(ranks(attributes), workflow)


def refine(colours: list[int], workflow: Workflow) -> list[int]:
    """Return the coarsest stable colouring finer than `colours`; it keeps the order of colours."""
    children = workflow.children
    while True:
        refined = ranks(_signatures(colours, workflow, children))
        if len(set(refined)) == len(set(colours)):
            return refined
        colours = refined


def _signatures(
    colours: Sequence[int], workflow: Workflow, every_child: Sequence[tuple[int, ...]]
) -> list[Signature]:
    return [
        (
            colours[position],
            tuple(sorted(colours[parent] for parent in operator.inputs)),
            tuple(sorted(colours[child] for child in children)),
        )
        for position, (operator, children) in enumerate(
            zip(workflow.operators, every_child, strict=True)
        )
    ]


def ranks(values: Sequence[_Ordered]) -> list[int]:
    """Return the rank of each value among the distinct values."""
    rank = {value: index for index, value in enumerate(sorted(set(values)))}
    return [rank[value] for value in values]


def fingerprint(workflow: Workflow) -> str:
    """Return a hex digest of the workflow's shape, equal for every order of its operators."""
    labels = [(int(o.kind), int(o.operator_class)) for o in workflow.operators]
    colours = refine(ranks(labels), workflow)
    shape = sorted(zip(_signatures(colours, workflow, workflow.children), labels, strict=True))
    text = json.dumps([TEMPLATE_VERSION, shape], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def topological_order(
    workflow: Workflow, platforms: Sequence[Platform] | None = None
) -> tuple[int, ...]:
    """Return positions of operators, parents before children; `platforms` has one for each."""
    depth = depths(workflow)
    places = [(depth[p], int(o.kind)) for p, o in enumerate(workflow.operators)]
    if len(set(places)) == len(places):  # the common case: nothing to refine
        return tuple(sorted(range(len(places)), key=places.__getitem__))
    colours = workflow_colours(workflow, depth)
    if platforms is not None and len(set(colours)) < len(colours):
        started = ranks([(c, int(p)) for c, p in zip(colours, platforms, strict=True)])
        colours = refine(started, workflow)
    return tuple(sorted(range(len(colours)), key=lambda position: (colours[position], position)))


def topological_orders(
    workflow: Workflow, assignments: Sequence[Sequence[Platform]]
) -> list[tuple[int, ...]]:
    """Return the order that `topological_order` gives, for each assignment of platforms."""
    if len(assignments) == 1:
        return [topological_order(workflow, assignments[0])]
    tied = _tied(workflow)
    orders: dict[tuple[Platform, ...], tuple[int, ...]] = {}
    orders_by_workflow = []
    for platforms in assignments:
        of_tied = tuple(platforms[position] for position in tied)  # only these affect the order
        if of_tied not in orders:
            orders[of_tied] = topological_order(workflow, platforms)
        orders_by_workflow.append(orders[of_tied])
    return orders_by_workflow


def _tied(workflow: Workflow) -> list[int]:
    """Return operators that the workflow alone does not distinguish."""
    depth = depths(workflow)
    places = Counter((depth[p], o.kind) for p, o in enumerate(workflow.operators))
    if len(places) == len(depth):
        return []
    colours = workflow_colours(workflow, depth)
    counts = Counter(colours)
    return [position for position, colour in enumerate(colours) if counts[colour] > 1]


def depths(workflow: Workflow) -> tuple[int, ...]:
    """Return the longest path from a source to each operator; 0 for a source."""
    return _longest_ways([operator.inputs for operator in workflow.operators])


def heights(workflow: Workflow) -> tuple[int, ...]:
    """Return the longest path from each operator to a sink; 0 for a sink."""
    return _longest_ways(workflow.children)


def _longest_ways(behind: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    way = [0] * len(behind)
    for node in _in_order(behind):
        if behind[node]:
            way[node] = 1 + max(way[other] for other in behind[node])
    return tuple(way)


def _in_order(behind: Sequence[tuple[int, ...]]) -> Sequence[int]:
    """Return all positions, each after those that are `behind` it."""
    places = range(len(behind))
    if all(other < node for node in places for other in behind[node]):
        return places  # the usual order of workflows
    if all(other > node for node in places for other in behind[node]):
        return places[::-1]
    order: dict[int, None] = {}
    for start in places:
        stack = [start]
        while stack:
            missing = [other for other in behind[stack[-1]] if other not in order]
            if missing:
                stack.extend(missing)
            else:
                order[stack.pop()] = None
    return list(order)
