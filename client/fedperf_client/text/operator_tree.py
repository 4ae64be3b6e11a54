"""A plan as a tree of operators for the terminal, the result at the top."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.filesize import decimal
from rich.text import Text
from rich.tree import Tree

from fedperf_client.text.durations import duration_text
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

_PLAIN: Mapping[Platform, str] = MappingProxyType({})


def operator_tree(
    plan: Plan,
    styles: Mapping[Platform, str] = _PLAIN,
    *,
    seconds: Sequence[float | None] = (),
) -> tuple[Tree, int]:
    """The operators as a tree with what nobody reads at the top; and how deep it is.

    One that several read is shown below the first of them, later ones refer to its number.
    What runs on a platform of `styles` is shown in its style, and what took `seconds` with them.
    """
    operators, children = plan.workflow.operators, plan.workflow.children
    root = Tree("operators, the result first", hide_root=True)
    ends = [position for position, readers in enumerate(children) if not readers]
    shown: set[int] = set()
    deepest = 0
    waiting = [(position, root, 1) for position in reversed(ends)]
    while waiting:
        position, above, depth = waiting.pop()
        deepest = max(deepest, depth)
        if position in shown:
            above.add(Text(f"#{position} (above)"))
            continue
        shown.add(position)
        took = seconds[position] if seconds else None
        branch = above.add(_label(position, plan, styles, took=took))
        inputs = reversed(operators[position].inputs)
        waiting += [(each, branch, depth + 1) for each in inputs]
    return root, deepest


def words_of(kind: OperatorKind) -> str:
    """A kind of operator for people."""
    return kind.name.lower().replace("_", " ")


def size_text(count: float) -> str:
    """A number of bytes for people."""
    return decimal(round(count))


def _label(
    position: int, plan: Plan, styles: Mapping[Platform, str], *, took: float | None
) -> Text:
    operator = plan.workflow.operators[position]
    words = [
        f"#{position} {words_of(operator.kind)}",
        f"on {plan.platforms[position].name.lower()}",
        f"{operator.output_rows:,.0f} rows",
        size_text(operator.output_bytes),
    ]
    if operator.partitions:
        words.append(f"{operator.partitions} partitions")
    if took is not None:
        words.append(duration_text(took))
    return Text(", ".join(words), style=styles.get(plan.platforms[position], ""))
