"""Canonical form and fingerprint of a workflow, whatever its labels.

The same DAG may be written down with its operators in any order. Its `colours`
depend on the DAG alone. From them come

- `fingerprint`: the shape of a workflow (kinds, classes, edges; *no* sizes) as a
  hex digest. It identifies a workload locally. It is derived from private jobs
  and must never leave the organization.
- `canonical`: the workflow rewritten in `topology.topological_order`, with the ties
  broken that this one leaves to the position.

Refused: nothing; every valid workflow has a template. Two different DAGs that
colour refinement cannot tell apart share a fingerprint; the tests show that
there are none among small DAGs.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from fedperf_shared.workflow.colours import ranks, refine, separate, signatures, workflow_colours
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import depths

TEMPLATE_VERSION = 1


def fingerprint(workflow: Workflow) -> str:
    """Hex digest of the workflow's shape, equal for every labelling of its operators.

    Kinds, classes and edges count, sizes and parameters do not. Local only.
    """
    labels = [(int(o.kind), int(o.operator_class)) for o in workflow.operators]
    colours = refine(ranks(labels), workflow)
    shape = sorted(zip(signatures(colours, workflow), labels, strict=True))
    text = json.dumps([TEMPLATE_VERSION, shape], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(workflow: Workflow) -> Workflow:
    """The same workflow with its operators in canonical order."""
    colours = separate(workflow_colours(workflow, depths(workflow)), workflow)
    order = sorted(range(len(colours)), key=colours.__getitem__)
    return _reordered(workflow, order)


def canonical_plan(plan: Plan) -> Plan:
    """The same plan with its operators in canonical order."""
    workflow = plan.workflow
    colours = workflow_colours(workflow, depths(workflow))
    started = ranks([(c, int(p)) for c, p in zip(colours, plan.platforms, strict=True)])
    colours = separate(refine(started, workflow), workflow)
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
