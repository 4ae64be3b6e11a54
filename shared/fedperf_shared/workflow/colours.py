"""Colour refinement (Weisfeiler and Leman): tell operators apart by the DAG alone.

Every operator gets a colour, an integer from 0, that depends on what the workflow says
and not on the order in which its operators were written down. Refining looks at both
directions of the edges and keeps the order of the colours that it starts from.
Operators of one colour are interchangeable, up to what refinement can see.
"""

from collections.abc import Sequence
from typing import TypeVar

from fedperf_shared.workflow.graph import Workflow

Signature = tuple[int, tuple[int, ...], tuple[int, ...]]
_Ordered = TypeVar("_Ordered", Signature, tuple[float, ...], int)


def workflow_colours(workflow: Workflow, depth: Sequence[int]) -> list[int]:
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
    return refine(ranks(attributes), workflow)


def refine(colours: list[int], workflow: Workflow) -> list[int]:
    """The coarsest stable colouring finer than `colours`; it keeps the order of colours."""
    children = workflow.children
    while True:
        refined = ranks(_signatures(colours, workflow, children))
        if len(set(refined)) == len(set(colours)):
            return refined
        colours = refined


def signatures(colours: Sequence[int], workflow: Workflow) -> list[Signature]:
    """Per operator: its colour, its parents' colours and its children's colours."""
    return _signatures(colours, workflow, workflow.children)


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
    """The rank of each value among the distinct values."""
    rank = {value: index for index, value in enumerate(sorted(set(values)))}
    return [rank[value] for value in values]
