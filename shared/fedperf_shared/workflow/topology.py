"""The one order in which every consumer walks a workflow, with depth and height.

Kahn's algorithm; among operators that are ready, the one of smallest
(depth, kind, position) goes first. One fixed order makes the sequence model of
GGFN a function of the plan (findings: a DAG has many topological orders).
"""

import heapq

from fedperf_shared.workflow.graph import Workflow


def topological_order(workflow: Workflow) -> tuple[int, ...]:
    """Positions of the operators, parents before children."""
    depth = depths(workflow)
    children = workflow.children
    unread = [len(operator.inputs) for operator in workflow.operators]

    def priority(position: int) -> tuple[int, int, int]:
        return depth[position], workflow.operators[position].kind, position

    ready = [priority(p) for p, missing in enumerate(unread) if missing == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        position = heapq.heappop(ready)[2]
        order.append(position)
        for child in children[position]:
            unread[child] -= 1
            if unread[child] == 0:
                heapq.heappush(ready, priority(child))
    return tuple(order)


def depths(workflow: Workflow) -> tuple[int, ...]:
    """Longest way from a source to each operator; 0 for a source."""
    return _longest_ways([operator.inputs for operator in workflow.operators])


def heights(workflow: Workflow) -> tuple[int, ...]:
    """Longest way from each operator to a sink; 0 for a sink."""
    return _longest_ways(list(workflow.children))


def _longest_ways(behind: list[tuple[int, ...]]) -> tuple[int, ...]:
    way: dict[int, int] = {}
    for start in range(len(behind)):
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [other for other in behind[node] if other not in way]
            if missing:
                stack.extend(missing)
            else:
                way[node] = max((way[other] + 1 for other in behind[node]), default=0)
                stack.pop()
    return tuple(way[node] for node in range(len(behind)))
