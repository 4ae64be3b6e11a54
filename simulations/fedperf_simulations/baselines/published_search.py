"""The published search: delayed greedy pruning, every sub-plan scored by the model, one by one.

It stands beside the optimizer in comparisons only. Sub-plans that differ in the last two operators
placed are kept, k^2 of them. Every extension of each by each of k platforms is a workflow of its
own that the model is asked about.
"""

import numpy as np

from fedperf_client.prediction.prediction import PredictLog
from fedperf_engines.optimizer.costs import AdditiveCosts, Floats, Ints
from fedperf_engines.optimizer.enumeration import (
    PartialPlans,
    PlacementStep,
    best_per_key,
    placement_steps,
    search,
)
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform

APART = 2


def published_search(
    costs: AdditiveCosts, cluster: ClusterConfig, predict_log: PredictLog
) -> tuple[tuple[Platform, ...], int]:
    """The plan that is left, and how many times the model was asked.

    Args:
        costs: say where operators may run; what anything costs is not looked at.
        cluster: what the plans are to run on.
        predict_log: the model.
    """
    steps = placement_steps(costs, topological_order(costs.workflow))
    placed: list[int] = []

    def scores(extended: PartialPlans) -> Floats:
        prefix, rows = costs.workflow.prefix(placed), extended.columns[:, sorted(placed)]
        plans = (Plan(prefix, costs.assignment(columns)) for columns in rows)
        return np.array([predict_log([PlanOnCluster(plan, cluster)])[0] for plan in plans])

    def keep(step: PlacementStep, extended: PartialPlans) -> Ints:
        placed.append(step.operator)
        key = extended.key(placed[-APART:], len(costs.platforms))
        return best_per_key(key, scores(extended), 1)

    kept, asked = search(costs, steps, keep)
    return costs.assignment(kept.columns[0]), asked
