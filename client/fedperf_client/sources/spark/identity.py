"""The workload of a Spark execution: its application's name and its query's shape.

A name is stripped of what changes from one submission to the next: dates, numbers, ids. The shape
is what the query asks for, whatever the optimizer made of it this time. Exchanges, sorts and
projections do not count, nor does the order of a join's sides. A job without a query is named by
the place in the code that asked for it as well. Names and shapes are local only.
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
_DIRECTORIES = re.compile(r"\S*[/\\]")

_INTERACTIVE = re.compile(
    r"(?:databricks |spark |pyspark)shell|sparkr|sparksql::.*|livy-session-\d+|zeppelin.*|"
    r"thrift jdbc/odbc server",
    re.IGNORECASE,
)

_UNIMPORTANT = frozenset({OperatorKind.EXCHANGE, OperatorKind.SORT, OperatorKind.MAP})
_NAMES = {
    OperatorKind.AGGREGATE: "group",
    OperatorKind.GLOBAL_AGGREGATE: "group",
    OperatorKind.DISTINCT: "group",
    OperatorKind.CROSS: "join",
}
"""Of kinds that mean the same; others have their own."""


def workload_of(application: str, shape: str, *, call_site: str = "") -> str:
    """The name of a workload.

    Args:
        application: its name.
        shape: of its plan.
        call_site: of a job without a query, such as "count at /home/me/clean.py:13".
    """
    asked = stripped(_DIRECTORIES.sub("", call_site))
    return f"{stripped(application) or 'spark'}/{asked}{'-' if asked else ''}{shape}"


def is_interactive(name: str) -> bool:
    """Whether anybody does anything under the name of an application, as in a shell."""
    return _INTERACTIVE.fullmatch(name) is not None


def stripped(text: str) -> str:
    """A name without dates, numbers and ids."""
    plain = _SEPARATORS.sub("-", _IDS.sub("", text[: 10 * LONGEST_NAME].lower()))
    return plain.strip("-")[:LONGEST_NAME]


def shape_of(plan: PhysicalPlan) -> str:
    """Hex digits that are equal for plans that ask for the same."""
    shapes: list[tuple[str, ...]] = [()] * len(plan.nodes)
    for position in reversed(range(len(plan.nodes))):
        node = plan.nodes[position]
        below = sorted(each for child in node.children for each in shapes[child])
        if node.kind is None or node.kind in _UNIMPORTANT:
            shapes[position] = tuple(below)
            continue
        name = _NAMES.get(node.kind, node.kind.name.lower())
        inside = f"{name}({','.join(below)})"
        if name == "group" and len(below) == 1 and below[0].startswith(f"{name}("):
            inside = below[0]  # a partial grouping before the final one
        if len(inside) > 2 * SHAPE_DIGITS:
            inside = f"{name}({hashlib.sha256(inside.encode()).hexdigest()})"
        shapes[position] = (inside,)
    whole = ",".join(shapes[0]) if shapes else ""
    return hashlib.sha256(whole.encode()).hexdigest()[:SHAPE_DIGITS]
