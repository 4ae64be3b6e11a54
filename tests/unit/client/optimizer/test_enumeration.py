import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_client.prediction.prediction import Prediction, StudentT
from fedperf_engines.optimizer.costs import AdditiveCosts, Constraints, NoPlatformError
from fedperf_engines.optimizer.enumeration import PLANS, Search, beam, cheapest_plans, choose
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.optimizer.additive_workflows import (
    brute_force,
    chain,
    random_costs,
    random_workflow,
    random_world,
    workflow,
)

CLUSTER = ClusterConfig(1, 2, 2**33)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


class AsCosted:
    """A fake predictor that returns additive costs without start-up, and records its calls."""

    def __init__(self, costs: AdditiveCosts, noise: float = 0.0) -> None:
        self._costs, self._noise = costs, noise
        self.calls: list[list[Plan]] = []

    def warm_seconds(self, plan: Plan) -> float:
        columns = np.array([[self._costs.platforms.index(each) for each in plan.platforms]])
        warm = float(self._costs.totals(columns)[0] - self._costs.startups(columns)[0])
        return warm * float(
            np.exp(self._noise * (hash(tuple(map(int, plan.platforms))) % 1000 / 1000))
        )

    def __call__(self, questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        self.calls.append([question.plan for question in questions])
        seconds = [self.warm_seconds(question.plan) + 1e-9 for question in questions]
        return [Prediction(math.log(s), StudentT.within()) for s in seconds]


def always_a_second(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
    return [Prediction(0.0, StudentT.within()) for _ in questions]


def costs_of(length: int, seed: int = 0, *, forbidden: float = 0.0) -> AdditiveCosts:
    return random_costs(np.random.default_rng(seed), chain(length), 3, forbidden=forbidden)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_choose_with_predictor_equal_to_costs_returns_the_optimum(seed: int) -> None:
    costs = random_world(seed)
    choice = choose(
        costs.workflow, CLUSTER, Constraints(costs.platforms), AsCosted(costs), costs=costs
    )
    assert choice.seconds == pytest.approx(brute_force(costs)[0], rel=1e-6, abs=1e-6)
    assert choice.seconds == choice.prediction.median_seconds + choice.startup_seconds
    assert choice.is_exact


@pytest.mark.parametrize("seed", range(10))
def test_choose_predicts_cheapest_and_single_platform_plans_in_one_call(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = random_costs(rng, random_workflow(rng, 12), 3, forbidden=0.03)
    predict = AsCosted(costs, noise=1.0)
    choice = choose(costs.workflow, CLUSTER, Constraints(costs.platforms), predict, costs=costs)
    [asked] = predict.calls
    seen = {plan.platforms for plan in asked}
    assert len(seen) == len(asked) == choice.plans_scored <= PLANS + 3
    found = cheapest_plans(costs, PLANS)
    single = [
        (platform,) * 12
        for place, platform in enumerate(costs.platforms)
        if costs.allowed[:, place].all()
    ]
    assert seen == {*map(costs.assignment, found.plans), *single}
    by_seconds = {
        plan.platforms: predict.warm_seconds(plan)
        + sum(costs.startup_seconds[costs.platforms.index(each)] for each in set(plan.platforms))
        for plan in asked
    }
    assert choice.seconds == pytest.approx(min(by_seconds.values()))
    ranked = [choice.seconds, *[each.seconds for each in choice.alternatives]]
    assert ranked == pytest.approx(sorted(by_seconds.values())[:5])


def test_choose_adds_startup_seconds_to_predictions() -> None:
    free = np.zeros((2, 3, 3))
    seconds = np.array([[1.0, 1.0, 1.0]] * 3)
    costs = AdditiveCosts(chain(3), PLATFORMS, seconds, free, np.array([4.0, 0.0, 9.0]))
    choice = choose(chain(3), CLUSTER, Constraints(PLATFORMS), always_a_second, costs=costs)
    assert set(choice.plan.platforms) == {Platform.POLARS}
    assert (choice.seconds, choice.startup_seconds) == (1.0, 0.0)
    without = choose(chain(3), CLUSTER, Constraints(PLATFORMS[::2]), always_a_second, costs=costs)
    assert set(without.plan.platforms) == {Platform.DUCKDB}
    assert (without.seconds, without.startup_seconds) == (5.0, 4.0)


def test_choose_breaks_ties_by_additive_costs_then_candidate_order() -> None:
    seconds = np.array([[2.0, 1.0, 3.0]] * 4)
    warm = np.zeros(3)
    costs = AdditiveCosts(chain(4), PLATFORMS, seconds, np.zeros((3, 3, 3)), warm)
    choice = choose(chain(4), CLUSTER, Constraints(PLATFORMS), always_a_second, costs=costs)
    assert set(choice.plan.platforms) == {Platform.POLARS}
    equal = AdditiveCosts(chain(4), PLATFORMS, np.ones((4, 3)), np.zeros((3, 3, 3)), warm)
    choice = choose(chain(4), CLUSTER, Constraints(PLATFORMS[::-1]), always_a_second, costs=equal)
    assert set(choice.plan.platforms) == {Platform.PANDAS}


def test_choose_for_too_wide_workflow_is_not_exact() -> None:
    wide = workflow(*[()] * 14, *[tuple(range(14))] * 3)
    costs = random_costs(np.random.default_rng(1), wide, 3)
    choice = choose(wide, CLUSTER, Constraints(PLATFORMS), AsCosted(costs), costs=costs)
    assert not choice.is_exact


def refuses_duckdb_for_the_second(position: int, platform: Platform) -> bool:
    return (position, platform) != (1, Platform.DUCKDB)


@pytest.mark.parametrize("search", [cheapest_plans, beam])
def test_choose_predicts_only_plans_within_constraints(search: Search) -> None:
    costs = costs_of(7, seed=9)
    predict = AsCosted(costs)
    choose(
        chain(7),
        CLUSTER,
        Constraints(
            PLATFORMS,
            refuses_duckdb_for_the_second,
            {4: Platform.PANDAS},
            {Platform.POLARS: 2_000.0},  # each operator reads 800 bytes
        ),
        predict,
        costs=costs,
        search=search,
    )
    asked = [plan.platforms for call in predict.calls for plan in call]
    assert asked
    assert all(each[4] is Platform.PANDAS for each in asked)
    assert all(each[1] is Platform.PANDAS for each in asked)
    assert all(Platform.POLARS not in each for each in asked)


def test_choose_names_operator_without_allowed_platform() -> None:
    with pytest.raises(NoPlatformError, match=r"operator 1 \(MAP\).*duckdb, polars"):
        choose(
            chain(3),
            CLUSTER,
            Constraints(PLATFORMS[:2], lambda position, platform: position != 1),
            always_a_second,
            costs=costs_of(3),
        )
    with pytest.raises(NoPlatformError, match="none"):
        choose(chain(3), CLUSTER, Constraints(()), always_a_second, costs=costs_of(3))


def test_choose_refuses_costs_of_other_workflow_or_platforms() -> None:
    with pytest.raises(InvalidInputError, match="another workflow"):
        choose(chain(4), CLUSTER, Constraints(PLATFORMS), always_a_second, costs=costs_of(3))
    with pytest.raises(InvalidInputError, match="no costs are known of spark"):
        choose(
            chain(3),
            CLUSTER,
            Constraints((*PLATFORMS, Platform.SPARK)),
            always_a_second,
            costs=costs_of(3),
        )


def test_choose_with_missing_predictions_raises() -> None:
    with pytest.raises(ValueError, match="zip"):
        choose(chain(3), CLUSTER, Constraints(PLATFORMS), lambda questions: [], costs=costs_of(3))


def test_choose_considers_an_extra_plan_unless_it_is_forbidden() -> None:
    """The predictor prefers the most expensive plan, which no search by costs finds."""
    rng = np.random.default_rng(1)
    three = chain(3)
    costs = random_costs(rng, three, 3, forbidden=0.0)

    def predict(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        totals = [1000.0 / costs.total(question.plan.platforms) for question in questions]
        return [Prediction(math.log(each), StudentT.within()) for each in totals]

    every = sorted(product(PLATFORMS, repeat=3), key=costs.total)
    dearest = every[-1]
    assert len(set(dearest)) > 1

    def chosen(also: tuple[Platform, ...], forbidden: Platform | None) -> tuple[Platform, ...]:
        return choose(
            three,
            CLUSTER,
            Constraints(PLATFORMS, lambda at, platform: (at, platform) != (0, forbidden)),
            predict,
            costs=costs,
            count=1,
            also=(also,),
        ).plan.platforms

    assert chosen(dearest, None) == dearest
    assert chosen(every[0], None) != dearest
    assert chosen(dearest, dearest[0]) != dearest
