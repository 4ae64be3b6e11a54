"""The frontier search equals brute force, or marks its result as inexact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.enumeration import (
    BEAM_FROM_WIDTH,
    SearchResult,
    beam,
    cheapest_plans,
    narrow_order,
    placement_steps,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_simulations.baselines.search import exhaustive_search
from fedperf_simulations.experiments.optimizer.measurement import width
from tests.unit.client.optimizer.additive_workflows import (
    PLATFORMS,
    brute_force,
    chain,
    random_costs,
    random_workflow,
    random_world,
    seconds_of,
    workflow,
)

COUNT = 12


def require_cheapest(found: SearchResult, costs: AdditiveCosts, best: list[float]) -> None:
    """Require that `found` are the first of `best`, without duplicates and with correct costs."""
    plans = [tuple(plan) for plan in found.plans.tolist()]
    assert len(set(plans)) == len(plans) == min(COUNT, len(best))
    assert found.seconds.tolist() == pytest.approx(best[:COUNT])
    assert [seconds_of(costs, plan) for plan in plans] == pytest.approx(best[:COUNT])


def require_as_brute_force(seed: int) -> None:
    costs = random_world(seed)
    best = brute_force(costs)
    found = cheapest_plans(costs, COUNT)
    assert found.is_exact
    require_cheapest(found, costs, best)
    assert cheapest_plans(costs, 1).seconds[0] == pytest.approx(best[0])


@pytest.mark.parametrize("seed", range(40))
def test_cheapest_plans_match_brute_force(seed: int) -> None:
    require_as_brute_force(seed)


@pytest.mark.slow
def test_cheapest_plans_match_brute_force_in_a_thousand_cases() -> None:
    for seed in range(1000, 2000):
        require_as_brute_force(seed)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_exhaustive_search_matches_frontier_search_and_orders_ties(seed: int) -> None:
    costs = random_world(seed)
    found, every = cheapest_plans(costs, COUNT), exhaustive_search(costs, COUNT)
    assert every.is_exact
    require_cheapest(every, costs, brute_force(costs))
    assert found.seconds == pytest.approx(every.seconds)
    for each in (found, every):
        ranked = list(zip(each.seconds.tolist(), each.plans.tolist(), strict=True))
        assert ranked == sorted(ranked)


def test_cheapest_plan_reuses_a_started_platform() -> None:
    """Each operator alone is cheaper on the other platform, which is not started yet."""
    forked = workflow((), (), (0,), (1,))
    seconds = np.array([[np.inf, 1.0], [1.0, 1.2], [1.0, 1.2], [1.0, 1.2]])
    startups = np.array([5.0, 5.0])
    costs = AdditiveCosts(forked, PLATFORMS[:2], seconds, np.zeros((2, 2, 2)), startups)
    found = cheapest_plans(costs, 1)
    assert found.plans.tolist() == [[1, 1, 1, 1]]
    assert found.seconds[0] == pytest.approx(1 + 3 * 1.2 + 5)


def test_search_with_count_above_number_of_plans_returns_all() -> None:
    costs = random_costs(np.random.default_rng(0), chain(2), 2, forbidden=0.0)
    assert len(cheapest_plans(costs, 100).plans) == len(beam(costs, 100).plans) == 4


def test_search_for_zero_plans_is_refused() -> None:
    for search in (cheapest_plans, beam):
        with pytest.raises(InvalidInputError, match="at least 1"):
            search(random_world(0), 0)


def every_source_with_every_union(sources: int, unions: int) -> Workflow:
    return workflow(*[()] * sources, *[tuple(range(sources))] * unions)


def test_wide_workflow_is_searched_by_beam_and_marked_inexact() -> None:
    wide = every_source_with_every_union(12, 3)
    assert width(wide, narrow_order(wide, 4)) > BEAM_FROM_WIDTH
    costs = random_costs(np.random.default_rng(5), wide, 4)
    found = cheapest_plans(costs, COUNT)
    assert not found.is_exact
    assert len(found.plans) == COUNT
    assert found.seconds.tolist() == sorted(found.seconds)
    assert found.seconds == pytest.approx(costs.totals(found.plans))


def test_search_up_to_beam_width_is_exact_with_all_platforms() -> None:
    rng = np.random.default_rng(8)
    ladder = workflow((), (), (), *[(n, n + 1, n + 2) for n in range(40)])
    assert width(ladder, narrow_order(ladder, 5)) == BEAM_FROM_WIDTH - 1
    assert cheapest_plans(random_costs(rng, ladder, 5), COUNT).is_exact


def test_wide_workflow_with_few_platforms_is_searched_exactly() -> None:
    wide = every_source_with_every_union(5, 2)
    assert width(wide, narrow_order(wide, 2)) >= BEAM_FROM_WIDTH
    costs = random_costs(np.random.default_rng(4), wide, 2, forbidden=0.0)
    found = cheapest_plans(costs, COUNT)
    assert found.is_exact
    require_cheapest(found, costs, brute_force(costs))


@pytest.mark.parametrize("seed", range(20))
def test_beam_is_never_better_than_exact_search(seed: int) -> None:
    costs = random_world(seed)
    for count in (1, COUNT):
        exact, found = cheapest_plans(costs, count), beam(costs, count)
        assert (found.seconds >= exact.seconds - 1e-9).all()
        if found.is_exact:
            assert found.seconds == pytest.approx(exact.seconds)


def test_beam_has_mean_regret_below_two_per_thousand() -> None:
    rng = np.random.default_rng(9)
    ladder = workflow((), (), (), *[(n, n + 1, n + 2) for n in range(27)])
    regrets = []
    for _ in range(5):
        costs = random_costs(rng, ladder, 5)
        found = beam(costs, COUNT, plans=64)
        regrets.append(found.seconds[0] / cheapest_plans(costs, 1).seconds[0] - 1)
    assert np.mean(regrets) < 0.002


def test_narrow_beam_is_marked_inexact() -> None:
    costs = random_costs(np.random.default_rng(6), chain(12), 3, forbidden=0.0)
    found = beam(costs, 2, plans=2)
    assert not found.is_exact
    assert found.seconds[0] >= cheapest_plans(costs, 1).seconds[0] - 1e-9


def test_beam_that_drops_only_a_best_plan_is_marked_inexact() -> None:
    """The last operator must run on the second platform. Partial plans on the first are cheaper."""
    seconds = np.array([[0.0, 1.0], [0.0, 10.0], [np.inf, 0.0]])
    transfers = np.zeros((2, 2, 2))
    transfers[1, 0, 1] = 100.0
    costs = AdditiveCosts(chain(3), PLATFORMS[:2], seconds, transfers, np.zeros(2))
    assert cheapest_plans(costs, 2).seconds.tolist() == [10.0, 11.0]
    narrow, wide = beam(costs, 2, plans=1), beam(costs, 2)
    assert (narrow.seconds.tolist(), narrow.is_exact) == ([10.0, 100.0], False)
    assert (wide.seconds.tolist(), wide.is_exact) == ([10.0, 11.0], True)


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_narrow_order_is_topological(seed: int, length: int) -> None:
    drawn = random_workflow(np.random.default_rng(seed), length)
    order = narrow_order(drawn, 3)
    place = {operator: number for number, operator in enumerate(order)}
    assert sorted(order) == list(range(length))
    assert all(place[parent] < place[child] for parent, child in drawn.edges)


def test_narrow_order_finishes_branches_one_by_one() -> None:
    # Balanced tree of joins over 16 filtered scans, listed level by level.
    inputs: list[tuple[int, ...]] = [*[()] * 16, *[(n,) for n in range(16)]]
    level = list(range(16, 32))
    while len(level) > 1:
        following = []
        for left, right in zip(level[::2], level[1::2], strict=True):
            following.append(len(inputs))
            inputs.append((left, right))
        level = following
    tree = workflow(*inputs)
    assert width(tree, topological_order(tree)) == 16
    assert width(tree, narrow_order(tree, 3)) == 5


def test_sinks_do_not_count_toward_width() -> None:
    fan = workflow((), *[(0,)] * 20)
    order = narrow_order(fan, 3)
    assert width(fan, order) == 1
    costs = random_costs(np.random.default_rng(0), fan, 3)
    assert {step.open_after for step in placement_steps(costs, order)} == {(0,), ()}
    assert width(workflow(()), (0,)) == 0


def test_transfer_costs_of_repeated_edges_are_summed() -> None:
    costs = random_costs(np.random.default_rng(2), workflow((), (0, 0, 0)), 3)
    [_, step] = placement_steps(costs, (0, 1))
    assert step.transfers[0] == pytest.approx(costs.transfer_seconds.sum(axis=0))
