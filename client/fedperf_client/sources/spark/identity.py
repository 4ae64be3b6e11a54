"""Which workload an execution of Spark belongs to: its application's name and its query's shape.

A name is stripped of what changes from one submission to the next: dates, numbers, ids. The
shape is what the query asks for, whatever the optimizer made of it this time: exchanges,
sorts and projections do not count, nor does the order of a join's sides. Local only.
"""

import hashlib
import re

from fedperf_client.sources.spark.plan import PhysicalPlan
from fedperf_shared.workflow.vocabulary import OperatorKind

LONGEST_NAME = 60
SHAPE_DIGITS = 12

_IDS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # UUIDs
    r"|(?=[0-9a-f]*\d)[0-9a-f]{8,}"  # hashes
    r"|\d+",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[\W_]+")

_UNIMPORTANT = frozenset({OperatorKind.EXCHANGE, OperatorKind.SORT, OperatorKind.MAP})
_GROUPINGS = frozenset(
    {OperatorKind.AGGREGATE, OperatorKind.GLOBAL_AGGREGATE, OperatorKind.DISTINCT}
)
_JOINS = frozenset({OperatorKind.JOIN, OperatorKind.CROSS})


def workload_of(application: str, shape: str) -> str:
    """The name of a workload."""
    return f"{stripped(application)}/{shape}"


def stripped(application: str) -> str:
    """An application's name without dates, numbers and ids; "spark" where nothing is left."""
    text = _SEPARATORS.sub("-", _IDS.sub("", application[: 10 * LONGEST_NAME].lower()))
    return text.strip("-")[:LONGEST_NAME] or "spark"


def shape_of(plan: PhysicalPlan) -> str:
    """Hex digits that are equal for plans that ask for the same."""
    shapes: list[tuple[str, ...]] = [()] * len(plan.nodes)
    for position in reversed(range(len(plan.nodes))):
        node = plan.nodes[position]
        below = sorted(each for child in node.children for each in shapes[child])
        if node.kind is None or node.kind in _UNIMPORTANT:
            shapes[position] = tuple(below)
            continue
        name = _name(node.kind)
        inside = f"{name}({','.join(below)})"
        if node.kind in _GROUPINGS and len(below) == 1 and below[0].startswith(f"{name}("):
            inside = below[0]  # a partial grouping before the final one
        if len(inside) > 2 * SHAPE_DIGITS:
            inside = f"{name}({hashlib.sha256(inside.encode()).hexdigest()})"
        shapes[position] = (inside,)
    whole = ",".join(shapes[0]) if shapes else ""
    return hashlib.sha256(whole.encode()).hexdigest()[:SHAPE_DIGITS]


def _name(kind: OperatorKind) -> str:
    if kind in _GROUPINGS:
        return "group"
    return "join" if kind in _JOINS else kind.name.lower()
