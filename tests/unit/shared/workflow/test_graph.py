"""Workflows and plans refuse to exist when they are not well formed."""

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


def test_a_cycle_is_refused_and_an_operator_on_it_is_named() -> None:
    with pytest.raises(InvalidWorkflowError, match=r"operator 1 \(FILTER\).*cycle"):
        Workflow((operator(), operator(2), operator(1)))


def test_an_operator_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidWorkflowError, match="cycle"):
        Workflow((operator(0),))


def test_a_missing_parent_is_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="operator 7, which does not exist"):
        Workflow((operator(7),))


@pytest.mark.parametrize("count", [0, MAX_OPERATORS + 1])
def test_no_operators_or_too_many_are_refused(count: int) -> None:
    with pytest.raises(InvalidWorkflowError, match="1 to 512 operators"):
        Workflow((operator(),) * count)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e13])
def test_absurd_sizes_are_refused(value: float) -> None:
    with pytest.raises(InvalidWorkflowError, match="output_rows"):
        Operator(OperatorKind.FILTER, OperatorClass.RELATIONAL, (), value, 8)


def test_reserved_kinds_and_platforms_are_refused() -> None:
    with pytest.raises(InvalidWorkflowError, match="reserved"):
        operator(kind=min(RESERVED_KINDS))
    with pytest.raises(InvalidWorkflowError, match="reserved"):
        diamond(min(RESERVED_PLATFORMS))


def test_a_plan_needs_one_platform_per_operator() -> None:
    with pytest.raises(InvalidWorkflowError, match="one platform per operator: 5, got 2"):
        Plan(diamond().workflow, (Platform.DUCKDB, Platform.POLARS))


def test_operators_may_stand_in_any_order() -> None:
    backwards = Workflow((operator(1), operator()))
    assert backwards.edges == ((1, 0),)
    assert backwards.children == ((), (0,))
