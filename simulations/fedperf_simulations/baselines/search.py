"""Searches that keep less than an exact one must, for comparison, and the exhaustive one.

All of them extend plans operator by operator and differ in what they keep apart (`PruningRule`);
per difference the cheapest plan stays. The delayed greedy rule is the one published with
GGFN: sub-plans that differ in the last two operators placed, k^2 of them. None is exact on
every workflow: the open operators decide what transfers are still to be paid, and the set
of platforms started the startup costs.

The published search prunes by the delayed greedy rule and lets the model score every sub-plan, one
by one. It serves comparisons only. Sub-plans that differ in the last two operators placed are kept,
k^2 of them. Every extension of each by each of k platforms is a workflow of its own for the model
to score.
"""

from enum import StrEnum, unique
from itertools import product

import numpy as np

from fedperf_client.prediction.prediction import PredictLog
from fedperf_engines.optimizer.costs import AdditiveCosts, Floats, Ints
from fedperf_engines.optimizer.enumeration import (
    PartialPlans,
    PlacementStep,
    SearchResult,
    best_complete,
    best_per_key,
    narrow_steps,
    placement_steps,
    search,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.prefixes import workflow_prefix

EXHAUSTIVE_LIMIT = 4096
"""Most assignments that are all looked at."""


class TooManyPlansError(InvalidInputError):
    """All assignments were to be looked at, and there are too many."""

    def __init__(self, plans: int) -> None:
        super().__init__(
            f"{plans} assignments are too many to look at all, at most {EXHAUSTIVE_LIMIT}; "
            "choose another method"
        )
        self.plans = plans


@unique
class PruningRule(StrEnum):
    """The rule by which a search prunes partial plans."""

    GREEDY = "greedy"
    TAIL = "tail"
    DELAYED_GREEDY = "delayed_greedy"
    OPEN_FRONTIER = "open_frontier"


def pruned_search(costs: AdditiveCosts, rule: PruningRule, count: int = 1) -> SearchResult:
    """Return what is left after pruning by `rule`, at most `count` plans, cheapest first."""
    steps = narrow_steps(costs)
    last_placed: list[int] = []

    def keep(step: PlacementStep, extended: PartialPlans) -> Ints:
        last_placed.append(step.operator)
        apart = {
            PruningRule.GREEDY: (),
            PruningRule.TAIL: last_placed[-1:],
            PruningRule.DELAYED_GREEDY: last_placed[-2:],
            PruningRule.OPEN_FRONTIER: step.open_after,
        }[rule]
        return best_per_key(extended.key(apart, len(costs.platforms)), extended.seconds, 1)

    survivors, candidates = search(costs, steps, keep)
    return best_complete(costs, survivors, count, is_exact=False, candidates=candidates)


def exhaustive_search(costs: AdditiveCosts, count: int = 1) -> SearchResult:
    """Return the `count` cheapest of all plans.

    Raises:
        TooManyPlansError: there are more than `EXHAUSTIVE_LIMIT`.
    """
    able = [np.flatnonzero(row).tolist() for row in costs.allowed]
    plans = int(np.prod([len(each) for each in able], dtype=object))
    if plans > EXHAUSTIVE_LIMIT:
        raise TooManyPlansError(plans)
    every = np.array(list(product(*able)), dtype=np.int64)
    seconds = costs.totals(every)
    order = np.argsort(seconds, kind="stable")[:count]
    return SearchResult(every[order], seconds[order], is_exact=True, candidates=plans)


APART = 2


def published_search(
    costs: AdditiveCosts, cluster: ClusterConfig, predict_log: PredictLog
) -> tuple[tuple[Platform, ...], int]:
    """Return the remaining plan and the number of calls of the model.

    Args:
        costs: where operators may run. The values of the costs are not read.
        cluster: what the plans are to run on.
        predict_log: the model.
    """
    steps = placement_steps(costs, topological_order(costs.workflow))
    placed: list[int] = []

    def scores(extended: PartialPlans) -> Floats:
        prefix, rows = workflow_prefix(costs.workflow, placed), extended.columns[:, sorted(placed)]
        plans = (Plan(prefix, costs.assignment(columns)) for columns in rows)
        return np.array([predict_log([PlanOnCluster(plan, cluster)])[0] for plan in plans])

    def keep(step: PlacementStep, extended: PartialPlans) -> Ints:
        placed.append(step.operator)
        key = extended.key(placed[-APART:], len(costs.platforms))
        return best_per_key(key, scores(extended), 1)

    survivors, candidates = search(costs, steps, keep)
    return costs.assignment(survivors.columns[0]), candidates
