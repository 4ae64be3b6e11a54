"""Tests of workflows and plans: malformed ones cannot be constructed."""

import math

import pytest

from fedperf_shared.workflow.graph import (
    InvalidWorkflowError,
    Operator,
    Plan,
    Workflow,
)
from fedperf_shared.workflow.vocabulary import (
    MAX_OPERATORS,
    RESERVED_KINDS,
    RESERVED_PLATFORMS,
    OperatorClass,
    OperatorKind,
    Platform,
)
from tests.fakes.plans import diamond


def operator(*inputs: int, kind: OperatorKind = OperatorKind.FILTER) -> Operator:
    return Operator(kind, OperatorClass.RELATIONAL, inputs, 10, 8)


def test_workflow_with_a_cycle_is_refused_naming_an_operator_on_it() -> None:
    with pytest.raises(InvalidWorkflowError, match=r"operator 1 \(FILTER\).*cycle"):
        Workflow((operator(), operator(2), operator(1)))


def test_workflow_with_operator_reading_itself_is_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="cycle"):
        Workflow((operator(0),))


def test_workflow_with_missing_parent_is_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="operator 7, which does not exist"):
        Workflow((operator(7),))


@pytest.mark.parametrize("count", [0, MAX_OPERATORS + 1])
def test_workflow_without_or_with_too_many_operators_is_refused(count: int) -> None:
    with pytest.raises(InvalidWorkflowError, match="1 to 512 operators"):
        Workflow((operator(),) * count)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e13])
def test_operator_with_impossible_output_rows_is_refused(value: float) -> None:
    with pytest.raises(InvalidWorkflowError, match="output_rows"):
        Operator(OperatorKind.FILTER, OperatorClass.RELATIONAL, (), value, 8)


def test_operator_or_plan_with_reserved_kind_or_platform_is_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="reserved"):
        operator(kind=min(RESERVED_KINDS))
    with pytest.raises(InvalidWorkflowError, match="reserved"):
        diamond(min(RESERVED_PLATFORMS))


def test_plan_with_wrong_number_of_platforms_is_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="one platform per operator: 5, got 2"):
        Plan(diamond().workflow, (Platform.DUCKDB, Platform.POLARS))


def test_workflow_accepts_operators_in_any_order() -> None:
    backwards = Workflow((operator(1), operator()))
    assert backwards.edges == ((1, 0),)
    assert backwards.children == ((), (0,))
