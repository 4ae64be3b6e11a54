"""Tests of cardinality modes: all rows that a run counted, or those known before it."""

from fedperf_shared.execution import PlanOnCluster
from fedperf_simulations.corpus.cardinality_mode import (
    ACTUAL,
    ESTIMATED,
    queries_with,
    workflow_with,
)
from tests.unit.simulations.experiments.intervals.synthetic_queries import queries

PLANS = [PlanOnCluster(each.plan, each.cluster) for each in queries(12, seed=3)]


def test_estimated_cardinality_mode_keeps_sources_and_hides_measured_rows() -> None:
    assert queries_with(PLANS, ACTUAL) == PLANS
    for known, plan in zip(queries_with(PLANS, ESTIMATED), PLANS, strict=True):
        assert known.cluster == plan.cluster
        assert known.plan.platforms == plan.plan.platforms
        source, *others = known.plan.workflow.operators
        assert source == plan.plan.workflow.operators[0]
        assert others != list(plan.plan.workflow.operators[1:])
        assert workflow_with(plan.plan.workflow, ESTIMATED) == known.plan.workflow
