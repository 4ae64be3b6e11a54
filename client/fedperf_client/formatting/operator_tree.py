"""A plan as a tree of operators for the terminal, the result at the top."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from fedperf_shared.runtime.quantities import duration_text, size_text
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

__all__ = ["operator_tree", "size_text", "words_of"]

_PLAIN: Mapping[Platform, str] = MappingProxyType({})


def operator_tree(
    plan: Plan,
    styles: Mapping[Platform, str] = _PLAIN,
    *,
    seconds: Sequence[float | None] = (),
    is_flat: bool = False,
) -> tuple[Tree, int]:
    """The operators as a tree with what nobody reads at the top; and how deep it is.

    A flat one is only deeper where several inputs come together: an only input stands below
    what reads it, no further to the right.

    One that several read is shown below the first of them, later ones refer to its number.
    What runs on a platform of `styles` is shown in its style, and what took `seconds` with them.
    """
    operators, children = plan.workflow.operators, plan.workflow.children
    root = Tree("operators, the result first", hide_root=True)
    ends = [position for position, readers in enumerate(children) if not readers]
    shown: set[int] = set()
    deepest = 0
    waiting = [(position, root, 1, False) for position in reversed(ends)]
    while waiting:
        position, above, depth, is_below = waiting.pop()
        deepest = max(deepest, depth)
        took = seconds[position] if seconds else None
        is_first, inputs = position not in shown, operators[position].inputs
        shown.add(position)
        label = _label(position, plan, styles, took=took) if is_first else _again(position)
        if is_below:
            above.label, branch = Text("\n").join([_text(above), label]), above
        else:
            branch = above.add(label)
        if is_first:
            goes_below = is_flat and len(inputs) == 1
            deeper = depth if goes_below else depth + 1
            waiting += [(each, branch, deeper, goes_below) for each in reversed(inputs)]
    return root, deepest


def words_of(kind: OperatorKind) -> str:
    """A kind of operator for people."""
    return kind.name.lower().replace("_", " ")


def _again(position: int) -> Text:
    return Text(f"#{position} (above)")


def _text(branch: Tree) -> Text:
    return branch.label if isinstance(branch.label, Text) else Text(str(branch.label))


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
