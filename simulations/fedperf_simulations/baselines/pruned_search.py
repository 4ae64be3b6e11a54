"""Searches that keep less than an exact one must, for comparison, and the exhaustive one.

All of them extend plans operator by operator and differ in what they keep apart (`PruningRule`);
per difference the cheapest plan stays. The delayed greedy rule is the one published with
GGFN: sub-plans that differ in the last two operators placed, k^2 of them. None is exact on
every workflow: the open operators decide what transfers are still to be paid, and the set
of platforms started what start-ups are.
"""

from enum import StrEnum, unique
from itertools import product

import numpy as np

from fedperf_engines.optimizer.costs import AdditiveCosts, Ints
from fedperf_engines.optimizer.enumeration import (
    PartialPlans,
    PlacementStep,
    SearchResult,
    best_per_key,
    found,
    narrow_steps,
    search,
)
from fedperf_shared.errors import InvalidInputError

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
    """What a search keeps apart."""

    GREEDY = "greedy"
    TAIL = "tail"
    DELAYED_GREEDY = "delayed_greedy"
    OPEN_FRONTIER = "open_frontier"


def pruned_search(costs: AdditiveCosts, rule: PruningRule, count: int = 1) -> SearchResult:
    """What is left after pruning by `rule`, at most `count` plans, cheapest first."""
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

    kept, candidates = search(costs, steps, keep)
    return found(costs, kept, count, is_exact=False, candidates=candidates)


def exhaustive_search(costs: AdditiveCosts, count: int = 1) -> SearchResult:
    """The `count` cheapest of all plans.

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
