"""Estimated cardinalities for plans before their run.

The operators, the sources with their rows and bytes, and the resources are available before a run.
Rows between operators, the partitions of a shuffle and the shares of keys are measured by it.
`plan_with_estimated_cardinalities` is the input of predictors for a plan that never ran. Its rows
are estimates with System R's default selectivities (Selinger et al., SIGMOD 1979, table 1). Models
can learn the errors of these estimates.
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

GROUPED_POWER = 0.5  # estimated number of groups of n rows: n ** GROUPED_POWER
DEFAULT_ROW_BYTES = 64.0  # width of a row of unknown width

# Output rows per row of the largest input; 1 for other kinds, such as a join with a fact table.
_SHARES: Mapping[OperatorKind, float] = MappingProxyType(
    {OperatorKind.FILTER: 1 / 3, OperatorKind.SAMPLE: 1 / 3, OperatorKind.FLATMAP: 3.0}
)

_MOST: Mapping[OperatorKind, float] = MappingProxyType(
    {OperatorKind.GLOBAL_AGGREGATE: 1.0, OperatorKind.ML_TRAIN: 1.0, OperatorKind.TOPK: 100.0}
)
# Kinds whose work depends on output rows that their input rows do not determine.
UNSURE_KINDS = frozenset(
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


def has_rows_before_run(operator: Operator) -> bool:
    """Return whether an operator's rows are available before a run, as for a source."""
    return not operator.inputs and operator.kind in SOURCE_KINDS


def plan_with_estimated_cardinalities(plan: Plan) -> Plan:
    """Return the plan with estimates in place of values that only a run measures.

    A source with a filter keeps the rows that it reads. Row widths stay, because the columns of an
    operator are available before a run.
    """
    return Plan(workflow_before(plan.workflow), plan.platforms)


def workflow_before(workflow: Workflow) -> Workflow:
    """Return the workflow with estimated cardinalities."""
    unknown = [
        place for place, each in enumerate(workflow.operators) if not has_rows_before_run(each)
    ]
    return with_estimates(workflow, unknown)


def with_estimates(
    workflow: Workflow, rows: Collection[int], widths: Collection[int] = ()
) -> Workflow:
    """Return the workflow with estimates for unknown values of some operators.

    Args:
        workflow: a workflow, whose other operators are not changed.
        rows: positions of operators with unknown counts: their rows, the partitions of an
            exchange, and the share of distinct keys.
        widths: positions of operators of unknown width.
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
    is_unsure = any(operators[position].kind in UNSURE_KINDS for position in rows)
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
    """Return exchanges that are planned with one partition: broadcasts and collections.

    Other exchanges have one partition because a run found this sufficient.
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
