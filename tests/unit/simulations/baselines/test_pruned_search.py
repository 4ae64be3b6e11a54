from statistics import mean

import numpy as np
import pytest

from fedperf_engines.optimizer.enumeration import cheapest_plans
from fedperf_simulations.baselines.search import (
    PruningRule,
    TooManyPlansError,
    exhaustive_search,
    pruned_search,
)
from tests.unit.client.optimizer.additive_workflows import (
    chain,
    random_costs,
    random_workflow,
    random_world,
    seconds_of,
)

SIXTY = range(60)


@pytest.mark.parametrize("rule", PruningRule)
def test_pruned_search_is_never_better_than_exact_search(rule: PruningRule) -> None:
    for seed in SIXTY:
        costs = random_world(seed)
        found = pruned_search(costs, rule)
        assert not found.is_exact
        assert found.seconds[0] >= cheapest_plans(costs, 1).seconds[0] - 1e-9
        assert found.seconds[0] == pytest.approx(seconds_of(costs, tuple(found.plans[0].tolist())))


def test_pruned_search_returns_one_plan_per_distinguished_state() -> None:
    costs = random_costs(np.random.default_rng(1), chain(6), 3, forbidden=0.0)
    kept = {rule: len(pruned_search(costs, rule, 100).plans) for rule in PruningRule}
    assert kept == {
        PruningRule.GREEDY: 1,
        PruningRule.TAIL: 3,
        PruningRule.DELAYED_GREEDY: 9,
        PruningRule.OPEN_FRONTIER: 1,  # after a sink no operator is open
    }


def test_delayed_greedy_search_returns_all_placements_of_the_last_two_operators() -> None:
    costs = random_costs(np.random.default_rng(1), chain(6), 3, forbidden=0.0)
    plans = pruned_search(costs, PruningRule.DELAYED_GREEDY, 100).plans
    assert {(a, b) for *_, a, b in plans.tolist()} == {(a, b) for a in range(3) for b in range(3)}


def test_pruned_search_on_a_chain_without_startup_cost_is_optimal() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        drawn = random_costs(rng, chain(8), 3)
        costs = type(drawn)(
            drawn.workflow,
            drawn.platforms,
            drawn.operator_seconds,
            drawn.transfer_seconds,
            np.zeros(3),
        )
        best = cheapest_plans(costs, 1).seconds[0]
        for rule in (PruningRule.TAIL, PruningRule.DELAYED_GREEDY, PruningRule.OPEN_FRONTIER):
            assert pruned_search(costs, rule).seconds[0] == pytest.approx(best)


def test_pruned_search_regret_decreases_with_more_distinguished_states() -> None:
    regrets: dict[PruningRule, list[float]] = {rule: [] for rule in PruningRule}
    rng = np.random.default_rng(3)
    for _ in range(40):
        costs = random_costs(rng, random_workflow(rng, 12), 3)
        best = cheapest_plans(costs, 1).seconds[0]
        for rule, found in regrets.items():
            found.append(float(pruned_search(costs, rule).seconds[0] / best - 1))
    means = {rule: mean(found) for rule, found in regrets.items()}
    assert (
        means[PruningRule.GREEDY] > means[PruningRule.TAIL] > means[PruningRule.DELAYED_GREEDY] > 0
    )
    assert 0 < means[PruningRule.OPEN_FRONTIER] < means[PruningRule.TAIL]


def test_exhaustive_search_with_too_many_assignments_is_refused() -> None:
    costs = random_costs(np.random.default_rng(0), chain(20), 3, forbidden=0.0)
    with pytest.raises(TooManyPlansError, match=f"{3**20} assignments are too many"):
        exhaustive_search(costs)


def test_search_counts_its_candidate_plans() -> None:
    # A chain of 6 with 3 platforms, all of them cold.
    costs = random_costs(np.random.default_rng(1), chain(6), 3, forbidden=0.0)
    cold = np.ones(3)
    costs = type(costs)(
        costs.workflow, costs.platforms, costs.operator_seconds, costs.transfer_seconds, cold
    )
    assert pruned_search(costs, PruningRule.GREEDY).candidates == 6 * 3
    assert pruned_search(costs, PruningRule.DELAYED_GREEDY).candidates == 3 + 3 * 3 + 4 * 9 * 3
    assert exhaustive_search(costs).candidates == 3**6
    cells = 2**3 * (3 + 5 * 9)
    assert cheapest_plans(costs, 1).candidates == cells + 6 * 3
