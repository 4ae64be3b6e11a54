"""Plans before their run: known facts of sources and operators, and estimates for the rest.

Before a run people know the operators, the sources with their rows and bytes, and the resources.
Rows between operators, the partitions of a shuffle and the shares of keys are known only after it.
`plan_with_estimated_cardinalities` is what a predictor may see of a plan that never ran. Its rows
are estimates of textbooks (System R's default selectivities; Selinger et al., SIGMOD 1979, table
1), so that a model can learn how far these are off.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import (
    MAX_ROW_BYTES,
    MAX_ROWS,
    SOURCE_KINDS,
    OperatorKind,
)

GROUPED_POWER = 0.5  # n rows are taken to fall into n ** GROUPED_POWER groups
DEFAULT_ROW_BYTES = 64.0  # width of a row whose width is unknown

# Rows out for a row of the largest input; 1 for the rest: a join has those of its facts.
_SHARES: Mapping[OperatorKind, float] = MappingProxyType(
    {OperatorKind.FILTER: 1 / 3, OperatorKind.SAMPLE: 1 / 3, OperatorKind.FLATMAP: 3.0}
)

_MOST: Mapping[OperatorKind, float] = MappingProxyType(
    {OperatorKind.GLOBAL_AGGREGATE: 1.0, OperatorKind.ML_TRAIN: 1.0, OperatorKind.TOPK: 100.0}
)
# Kinds whose rows do not follow from those that they read, and tell of work.
_UNSURE = frozenset(
    {
        OperatorKind.FILTER,
        OperatorKind.FLATMAP,
        OperatorKind.AGGREGATE,
        OperatorKind.DISTINCT,
        OperatorKind.JOIN,
        OperatorKind.SAMPLE,
        OperatorKind.OTHER,
    }
)

_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.DISTINCT})
_JOINS = frozenset({OperatorKind.JOIN, OperatorKind.CROSS})


def known_before(operator: Operator) -> bool:
    """Return whether an operator's rows are known before a run, as a source's are."""
    return not operator.inputs and operator.kind in SOURCE_KINDS


def plan_with_estimated_cardinalities(plan: Plan) -> Plan:
    """Return the plan with estimates in place of values that only a run measures.

    A source behind which a filter stands keeps the rows that it reads; widths stay, as the
    columns of an operator are known.
    """
    return Plan(workflow_before(plan.workflow), plan.platforms)


def workflow_before(workflow: Workflow) -> Workflow:
    """Return the workflow with estimated cardinalities."""
    unknown = [place for place, each in enumerate(workflow.operators) if not known_before(each)]
    return with_estimates(workflow, unknown)


def with_estimates(
    workflow: Workflow, rows: Collection[int], widths: Collection[int] = ()
) -> Workflow:
    """Return the workflow with estimates for what is not known of some operators.

    Args:
        workflow: its other operators are taken as they are.
        rows: positions of operators whose counts only a run tells: their rows, the
            partitions of an exchange, the share of distinct keys.
        widths: positions of operators whose width is not known.
    """
    operators, ones = list(workflow.operators), _planned_as_one(workflow)
    for position in topological_order(workflow):
        inputs = [operators[each] for each in operators[position].inputs]
        if position in widths:
            operators[position] = replace(
                operators[position], row_bytes=_width(operators[position], inputs)
            )
        if position in rows:
            operators[position] = replace(
                _estimated(operators[position], [each.output_rows for each in inputs]),
                partitions=1 if position in ones else 0,
            )
    is_unsure = any(operators[position].kind in _UNSURE for position in rows)
    return replace(
        workflow,
        operators=tuple(operators),
        rows_are_estimates=workflow.rows_are_estimates or is_unsure,
    )


def estimated_rows(kind: OperatorKind, input_rows: Sequence[float]) -> float:
    """Return the rows of an operator whose inputs have `input_rows`."""
    largest = max(input_rows, default=0.0)
    if kind in _GROUPS:
        return float(largest**GROUPED_POWER)
    if kind is OperatorKind.CROSS:
        rows = math.prod(max(each, 1.0) for each in input_rows)
    elif kind is OperatorKind.UNION:
        rows = sum(input_rows)
    else:
        rows = _SHARES.get(kind, 1.0) * largest
    return min(rows, _MOST.get(kind, MAX_ROWS))


def _estimated(operator: Operator, input_rows: Sequence[float]) -> Operator:
    rows = estimated_rows(operator.kind, input_rows)
    ratio = 0.0
    if operator.kind in _GROUPS and max(input_rows, default=0.0) > 0:
        ratio = min(1.0, rows / max(input_rows))
    return replace(operator, output_rows=rows, key_distinct_ratio=ratio)


def _planned_as_one(workflow: Workflow) -> frozenset[int]:
    """Exchanges into one partition by plan: a table sent to all, or all rows to one place.

    Other exchanges had one partition because a run counted that this was enough.
    """
    operators, positions = workflow.operators, set[int]()
    for reader in operators:
        inputs = [operators[each] for each in reader.inputs]
        is_joined = reader.kind in _JOINS and len(inputs) > 1
        is_sent = is_joined and any(each.kind is not OperatorKind.EXCHANGE for each in inputs)
        if is_sent or reader.kind in _MOST:
            positions.update(each for each in reader.inputs if operators[each].partitions == 1)
    return frozenset(positions)


def _width(operator: Operator, inputs: Sequence[Operator]) -> float:
    """Return the row bytes of the inputs, added up for joins; `DEFAULT_ROW_BYTES` for a source."""
    widths = [each.row_bytes for each in inputs]
    if not widths:
        return DEFAULT_ROW_BYTES
    is_joined = operator.kind in _JOINS
    return min(sum(widths) if is_joined else max(widths), MAX_ROW_BYTES)
