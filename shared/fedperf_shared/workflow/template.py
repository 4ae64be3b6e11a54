"""Canonical order, canonical form and fingerprint of a workflow, whatever its labels.

The same DAG may be written down with its operators in any order. Colour
refinement (Weisfeiler and Leman) over both directions of the edges gives every
operator a colour that depends on the DAG alone. From it come

- `fingerprint`: the shape of a workflow (kinds, classes, edges; *no* sizes) as a
  hex digest. It identifies a workload locally. It is derived from private jobs
  and must never leave the organization.
- `canonical_order`: the topological order that the cost model reads. It refines
  `topology.topological_order`: where that one falls back on the position, this one
  looks at sizes, neighbours and platforms first. Operators that are still tied look the
  same to GGFN, whose attention layers tell apart no more than colour refinement does.
- `canonical`: the workflow rewritten in that order.

Refused: nothing; every valid workflow has a template. Two different DAGs that
colour refinement cannot tell apart share a fingerprint; the tests show that
there are none among small DAGs.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import depths
from fedperf_shared.workflow.vocabulary import Platform

TEMPLATE_VERSION = 1

_Signature = tuple[int, tuple[int, ...], tuple[int, ...]]
_Ordered = TypeVar("_Ordered", _Signature, tuple[float, ...], int)


def fingerprint(workflow: Workflow) -> str:
    """Hex digest of the workflow's shape, equal for every labelling of its operators.

    Kinds, classes and edges count, sizes and parameters do not. Local only.
    """
    labels = [(int(o.kind), int(o.operator_class)) for o in workflow.operators]
    colours = _refine(_ranks(labels), workflow)
    signatures = _signatures(colours, workflow)
    shape = sorted(zip(signatures, labels, strict=True))
    text = json.dumps([TEMPLATE_VERSION, shape], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_order(
    workflow: Workflow, platforms: Sequence[Platform] | None = None
) -> tuple[int, ...]:
    """Positions of the operators, parents before children, independent of the labelling.

    Sorted by (depth, kind), then by sizes and neighbours, then by `platforms` where
    they are given (one per operator), last by position.
    """
    depth = depths(workflow)
    places = [(depth[p], int(o.kind)) for p, o in enumerate(workflow.operators)]
    if len(set(places)) == len(places):  # the common case: nothing to refine
        return tuple(sorted(range(len(places)), key=places.__getitem__))
    colours = _workflow_colours(workflow, depth)
    if platforms is not None and len(set(colours)) < len(colours):
        started = _ranks([(c, int(p)) for c, p in zip(colours, platforms, strict=True)])
        colours = _refine(started, workflow)
    return tuple(sorted(range(len(colours)), key=lambda position: (colours[position], position)))


def canonical(workflow: Workflow) -> Workflow:
    """The same workflow with its operators in canonical order."""
    colours = _separate(_workflow_colours(workflow, depths(workflow)), workflow)
    order = sorted(range(len(colours)), key=colours.__getitem__)
    return _reordered(workflow, order)


def canonical_plan(plan: Plan) -> Plan:
    """The same plan with its operators in canonical order."""
    workflow = plan.workflow
    colours = _workflow_colours(workflow, depths(workflow))
    started = _ranks([(c, int(p)) for c, p in zip(colours, plan.platforms, strict=True)])
    colours = _separate(_refine(started, workflow), workflow)
    order = sorted(range(len(colours)), key=colours.__getitem__)
    return Plan(_reordered(workflow, order), tuple(plan.platforms[p] for p in order))


def _reordered(workflow: Workflow, order: Sequence[int]) -> Workflow:
    row = {position: index for index, position in enumerate(order)}
    operators = (workflow.operators[position] for position in order)
    return replace(
        workflow,
        operators=tuple(
            replace(operator, inputs=tuple(row[parent] for parent in operator.inputs))
            for operator in operators
        ),
    )


def _workflow_colours(workflow: Workflow, depth: Sequence[int]) -> list[int]:
    """Colours over everything a workflow says, ordered by (depth, kind) first."""
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
    return _refine(_ranks(attributes), workflow)


def _separate(colours: list[int], workflow: Workflow) -> list[int]:
    """Break every tie: mark one operator of the first tied colour, refine, repeat.

    Tied operators are interchangeable (up to what refinement can see), so it does
    not matter which one is marked.
    """
    while len(set(colours)) < len(colours):
        tied = min(colour for colour in set(colours) if colours.count(colour) > 1)
        marked = [2 * colour + 1 for colour in colours]
        marked[colours.index(tied)] -= 1
        colours = _refine(_ranks(marked), workflow)
    return colours


def _refine(colours: list[int], workflow: Workflow) -> list[int]:
    """The coarsest stable colouring finer than `colours`; it keeps the order of colours."""
    while True:
        refined = _ranks(_signatures(colours, workflow))
        if len(set(refined)) == len(set(colours)):
            return refined
        colours = refined


def _signatures(colours: Sequence[int], workflow: Workflow) -> list[_Signature]:
    """Per operator: its colour, its parents' colours and its children's colours."""
    return [
        (
            colours[position],
            tuple(sorted(colours[parent] for parent in operator.inputs)),
            tuple(sorted(colours[child] for child in children)),
        )
        for position, (operator, children) in enumerate(
            zip(workflow.operators, workflow.children, strict=True)
        )
    ]


def _ranks(values: Sequence[_Ordered]) -> list[int]:
    """The rank of each value among the distinct values."""
    rank = {value: index for index, value in enumerate(sorted(set(values)))}
    return [rank[value] for value in values]
