"""Regret of each rule of pruning under additive costs, and brute force beside the exact search.

Regret is the cost of a rule's plan above that of the cheapest plan that any search found. Among the
searches is a sweep that drops no state, whose first half shares nothing with that of the exact
search.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.enumeration import BEAM_PLANS, SearchResult, beam, cheapest_plans
from fedperf_simulations.baselines.pruned_search import (
    PruningRule,
    exhaustive_search,
    pruned_search,
)
from fedperf_simulations.experiments.optimizer.measurement import FRONTIER
from fedperf_simulations.experiments.optimizer.random_workflows import (
    knotty_costs,
    random_costs,
    random_workflow,
)

BEAMS, EVERY_STATE = (8, 32, BEAM_PLANS), 10**9

ROUNDING = 1e-12
"""Relative; sums of the same numbers in another order differ by less."""

MOST_COMPARED_OPERATORS, BEST = 7, 12
"""Of workflows for brute force, and how many plans are compared."""

Search = Callable[[AdditiveCosts], SearchResult]

SEARCHES: Mapping[str, Search] = {
    "greedy": partial(pruned_search, rule=PruningRule.GREEDY),
    "tail platform": partial(pruned_search, rule=PruningRule.TAIL),
    "delayed greedy, last two": partial(pruned_search, rule=PruningRule.DELAYED_GREEDY),
    "open frontier without start-ups": partial(pruned_search, rule=PruningRule.OPEN_FRONTIER),
    FRONTIER: partial(cheapest_plans, count=1),
    **{f"beam of {plans}": partial(beam, count=1, plans=plans) for plans in BEAMS},
    "every state kept": partial(beam, count=1, plans=EVERY_STATE),
}


def regrets(
    rng: np.random.Generator, operators: int, platforms: int, *, workflows: int
) -> dict[str, dict[str, float]]:
    """Figures by name of the search: how often optimal, regrets, candidates, milliseconds."""
    names = list(SEARCHES)
    seconds, candidates, took = (np.empty((workflows, len(names))) for _ in range(3))
    for number in range(workflows):
        costs = random_costs(rng, random_workflow(rng, operators), platforms)
        for place in rng.permutation(len(names)).tolist():
            before = time.process_time()
            found = SEARCHES[names[place]](costs)
            took[number, place] = time.process_time() - before
            seconds[number, place] = found.seconds[0]
            candidates[number, place] = found.candidates
    lost = seconds / seconds.min(axis=1, keepdims=True) - 1
    lost[lost < ROUNDING] = 0
    return {
        name: {
            "median_ms": 1e3 * float(np.median(took[:, place])),
            "best_ms": 1e3 * float(took[:, place].min()),
            "optimal": float((lost[:, place] == 0).mean()),
            "mean_regret": float(lost[:, place].mean()),
            "max_regret": float(lost[:, place].max()),
            "candidates": float(candidates[:, place].mean()),
        }
        for place, name in enumerate(names)
    }


def equal_to_brute_force(
    rng: np.random.Generator, platforms: int, *, workflows: int, search: Search | None = None
) -> int:
    """The number of small workflows whose best plan and `BEST` least costs are right.

    Args:
        rng: draws them, of all sizes and with up to that many platforms.
        platforms: most of them.
        workflows: how many.
        search: for `BEST` plans; the exact one by default.
    """
    asked = search or partial(cheapest_plans, count=BEST)
    equal = 0
    for _ in range(workflows):
        drawn = random_workflow(rng, int(rng.integers(1, MOST_COMPARED_OPERATORS + 1)))
        costs = knotty_costs(rng, drawn, int(rng.integers(1, platforms + 1)))
        equal += _is_right(asked(costs), exhaustive_search(costs, BEST))
    return equal


def _is_right(found: SearchResult, every: SearchResult) -> bool:
    plans = np.unique(found.plans, axis=0)
    return len(plans) == len(found.plans) and _same(found.seconds, every.seconds)


def _same(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=ROUNDING, atol=0))
