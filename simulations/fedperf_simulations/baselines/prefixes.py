"""Parts of plans that could run by themselves: some operators with all that they read from."""

from collections.abc import Iterable
from dataclasses import replace

from fedperf_shared.workflow.graph import InvalidWorkflowError, Plan, Workflow


def workflow_prefix(workflow: Workflow, positions: Iterable[int]) -> Workflow:
    """Return these operators alone, in ascending order. Facts about sources are kept.

    Raises:
        InvalidWorkflowError: an operator reads from one that is left out, or none is left.
    """
    order = sorted(set(positions))
    place = {position: new for new, position in enumerate(order)}
    operators = []
    for position in order:
        operator = workflow.operators[position]
        missing = [parent for parent in operator.inputs if parent not in place]
        if missing:
            raise InvalidWorkflowError(
                f"operator {position} ({operator.kind.name}) reads from operator "
                f"{missing[0]}, which is not in the prefix"
            )
        inputs = tuple(place[parent] for parent in operator.inputs)
        operators.append(replace(operator, inputs=inputs))
    return replace(workflow, operators=tuple(operators))


def plan_prefix(plan: Plan, positions: Iterable[int]) -> Plan:
    """Return the prefix with each operator's platform. Raises the errors of `workflow_prefix`."""
    order = sorted(set(positions))
    platforms = tuple(plan.platforms[position] for position in order)
    return Plan(workflow_prefix(plan.workflow, order), platforms)
