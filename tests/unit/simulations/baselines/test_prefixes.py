"""A prefix of a plan is a plan, if it has all that it reads from."""

import pytest

from fedperf_shared.workflow.graph import (
    InvalidWorkflowError,
    Operator,
    Plan,
    SourceStatistics,
    Workflow,
)
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.baselines.prefixes import plan_prefix


def operator(*inputs: int, kind: OperatorKind = OperatorKind.FILTER) -> Operator:
    return Operator(kind, OperatorClass.RELATIONAL, inputs, 10, 8)


def test_plan_prefix_is_a_valid_plan_with_renumbered_inputs() -> None:
    left, right = operator(0), operator(0, kind=OperatorKind.DISTINCT)
    known = SourceStatistics(columns=3)
    whole = Workflow((operator(), left, right, operator(1, 2)), known)
    plan = Plan(whole, (Platform.DUCKDB, Platform.DUCKDB, Platform.POLARS, Platform.PANDAS))
    alone = Workflow((operator(), right), known)
    assert plan_prefix(plan, [2, 0]) == Plan(alone, (Platform.DUCKDB, Platform.POLARS))
    assert plan_prefix(plan, [0, 2, 1]).workflow.edges == ((0, 1), (0, 2))
    assert plan_prefix(plan, range(4)) == plan
    two_sources = Plan.on_one_platform(
        Workflow((operator(), operator(), operator(1))), Platform.DUCKDB
    )
    assert plan_prefix(two_sources, [1, 2]).workflow == Workflow((operator(), operator(0)))


def test_plan_prefix_without_its_inputs_is_refused() -> None:
    plan = Plan.on_one_platform(Workflow((operator(), operator(0))), Platform.DUCKDB)
    with pytest.raises(InvalidWorkflowError, match=r"operator 1 \(FILTER\) reads from operator 0"):
        plan_prefix(plan, [1])
    with pytest.raises(InvalidWorkflowError, match="1 to 512 operators"):
        plan_prefix(plan, [])
