"""A workflow taken operator by operator: in which order, and what is open in between.

An operator is open after a step if it is placed and one of its children is not: what it
runs on still decides what others cost. A sink is never open. A search keeps what differs in
the platforms of the open operators apart, so the narrower the order keeps them, the less
work there is. The order of the features goes level by level and is wide; the one here goes
down one branch after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedperf_client.optimizer.costs import AdditiveCosts, Floats
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import topological_order


@dataclass(frozen=True, slots=True, eq=False)
class PlacementStep:
    """One operator to be placed.

    Attributes:
        operator: its position.
        open_before: positions that are open before it, in order of placement.
        open_after: positions that are open after it.
        transfers: per parent, each once, the seconds of all edges from it, [k, k].
    """

    operator: int
    open_before: tuple[int, ...]
    open_after: tuple[int, ...]
    transfers: dict[int, Floats]


def steps_of(costs: AdditiveCosts, order: Sequence[int]) -> tuple[PlacementStep, ...]:
    """The operators in that topological order, with what each meets."""
    transfers: list[dict[int, Floats]] = [{} for _ in order]
    for (parent, child), seconds in zip(costs.workflow.edges, costs.transfer_seconds, strict=True):
        of_child = transfers[child]
        of_child[parent] = of_child[parent] + seconds if parent in of_child else seconds
    frontiers = [(), *_frontiers(costs.workflow, order)]
    return tuple(
        PlacementStep(operator, frontiers[number], frontiers[number + 1], transfers[operator])
        for number, operator in enumerate(order)
    )


def width(workflow: Workflow, order: Sequence[int]) -> int:
    """Most operators that are open at once."""
    return max(len(each) for each in _frontiers(workflow, order))


def narrow_order(workflow: Workflow, platforms: int) -> tuple[int, ...]:
    """A topological order that leaves a search with `platforms` platforms little to keep apart.

    The best of three: branch by branch, the one that needs most first (Sethi and Ullman,
    optimal for trees); whatever closes most next; as written down by the features. To find
    the best of all is NP-hard.
    """
    levels = topological_order(workflow)
    candidates = (_branch_by_branch(workflow, levels), _closing(workflow), levels)
    return min(candidates, key=lambda order: _work(workflow, order, max(platforms, 2)))


def _work(workflow: Workflow, order: Sequence[int], platforms: int) -> int:
    return sum(platforms ** len(each) for each in _frontiers(workflow, order))


def _frontiers(workflow: Workflow, order: Sequence[int]) -> list[tuple[int, ...]]:
    """What is open after each operator, in order of placement."""
    unread = [len(each) for each in workflow.children]
    opened: list[int] = []
    found = []
    for operator in order:
        for parent in workflow.operators[operator].inputs:
            unread[parent] -= 1
        opened = [each for each in (*opened, operator) if unread[each]]
        found.append(tuple(opened))
    return found


def _branch_by_branch(workflow: Workflow, levels: Sequence[int]) -> tuple[int, ...]:
    """Depth first from the sinks; of several parents the one that needs most room first."""
    room: dict[int, int] = {}
    for operator in levels:
        parents = dict.fromkeys(workflow.operators[operator].inputs)
        needs = sorted((room[each] for each in parents), reverse=True)
        room[operator] = max((need + place for place, need in enumerate(needs)), default=1)
    sinks = [each for each, children in enumerate(workflow.children) if not children]
    order: dict[int, None] = {}
    stack = sorted(sinks, key=lambda each: (room[each], -each))
    while stack:
        operator = stack[-1]
        missing = {each for each in workflow.operators[operator].inputs if each not in order}
        if missing:
            stack.extend(sorted(missing, key=lambda each: (room[each], -each)))
        else:
            order.setdefault(stack.pop())
    return tuple(order)


def _closing(workflow: Workflow) -> tuple[int, ...]:
    """Always what leaves fewest open, and of these what goes on with what was placed last."""
    children = workflow.children
    parents = [set(each.inputs) for each in workflow.operators]
    unread = [len(set(each)) for each in children]
    placed: dict[int, int] = {}

    def cost(operator: int) -> tuple[int, int, int]:
        closed = sum(unread[each] == 1 for each in parents[operator])
        latest = max((placed[each] for each in parents[operator]), default=-1)
        return bool(unread[operator]) - closed, -latest, operator

    ready = {each for each, needed in enumerate(parents) if not needed}
    while ready:
        operator = min(ready, key=cost)
        ready.remove(operator)
        placed[operator] = len(placed)
        for parent in parents[operator]:
            unread[parent] -= 1
        ready |= {each for each in children[operator] if parents[each] <= placed.keys()}
    return tuple(placed)
