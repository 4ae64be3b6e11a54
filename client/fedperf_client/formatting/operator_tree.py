"""A plan as a tree of operators for the terminal, with the result at the top."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from fedperf_shared.runtime.quantities import counted, duration_text, size_text
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

_NO_STYLES: Mapping[Platform, str] = MappingProxyType({})


def operator_tree(
    plan: Plan,
    styles: Mapping[Platform, str] = _NO_STYLES,
    *,
    seconds: Sequence[float | None] = (),
    is_flat: bool = False,
) -> tuple[Tree, int]:
    """Return the tree of a plan, and its depth. The roots are the operators without readers.

    An operator with several readers is shown below the first; the others refer to its number.

    Args:
        plan: the plan.
        styles: style of the operators on a platform.
        seconds: time of each operator, if measured.
        is_flat: show an only input below its reader instead of to the right of it, so that the
            tree is deeper only where several inputs join.
    """
    operators, readers = plan.workflow.operators, plan.workflow.children
    root = Tree("operators, the result first", hide_root=True)
    visited: set[int] = set()
    deepest = 0
    waiting = [
        (position, root, 1, False)
        for position in reversed(range(len(operators)))
        if not readers[position]
    ]
    while waiting:
        position, above, depth, is_below = waiting.pop()
        deepest = max(deepest, depth)
        is_first, inputs = position not in visited, operators[position].inputs
        visited.add(position)
        label = Text(f"#{position} (above)")
        if is_first:
            label = _label(position, plan, styles, took=seconds[position] if seconds else None)
        if is_below:
            branch = above
            if isinstance(branch.label, Text):
                branch.label = Text("\n").join([branch.label, label])
        else:
            branch = above.add(label)
        if is_first:
            goes_below = is_flat and len(inputs) == 1
            deeper = depth if goes_below else depth + 1
            waiting += [(each, branch, deeper, goes_below) for each in reversed(inputs)]
    return root, deepest


def words_of(kind: OperatorKind) -> str:
    """Return the name of a kind of operator for people."""
    return kind.name.lower().replace("_", " ")


def _label(
    position: int, plan: Plan, styles: Mapping[Platform, str], *, took: float | None
) -> Text:
    operator, platform = plan.workflow.operators[position], plan.platforms[position]
    words = [
        f"#{position} {words_of(operator.kind)}",
        f"on {platform.name.lower()}",
        f"{operator.output_rows:,.0f} rows",
        size_text(operator.output_bytes),
    ]
    if operator.partitions:
        words.append(counted(operator.partitions, "partition"))
    if took is not None:
        words.append(duration_text(took))
    return Text(", ".join(words), style=styles.get(platform, ""))
