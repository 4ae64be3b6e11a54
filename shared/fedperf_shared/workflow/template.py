"""The template of a workflow, its shape whatever its labels, as a fingerprint.

The same DAG may be written down with its operators in any order. Its `colours`
depend on the DAG alone. From them comes `fingerprint`: the shape of a workflow (kinds,
classes, edges; *no* sizes) as a hex digest. It identifies a workload locally. It is
derived from private jobs and must never leave the organization.

Refused: nothing; every valid workflow has a template. Two different DAGs that
colour refinement cannot tell apart share a fingerprint; the tests show that
there are none among small DAGs.
"""

import hashlib
import json

from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import ranks, refine, signatures

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
