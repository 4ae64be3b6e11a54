from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_client.optimizer.constraints import NoPlatformError
from fedperf_client.optimizer.costs import AdditiveCosts, InvalidCostsError
from fedperf_client.optimizer.enumeration import PLANS, MissingCostsError, choose
from fedperf_client.optimizer.frontier import cheapest_plans
from fedperf_client.optimizer.methods import Method
from fedperf_client.optimizer.plan_scores import MissingPredictionsError
from fedperf_client.optimizer.pruned_search import EXHAUSTIVE_LIMIT, TooManyPlansError
from fedperf_client.optimizer.segments import segments
from fedperf_client.prediction.prediction import Prediction
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.optimizer.additive_worlds import (
    brute_force,
    chain,
    random_costs,
    random_workflow,
    random_world,
    workflow,
)

CLUSTER = ClusterConfig(1, 2, 2**33)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


class AdditiveCost:
    """A fake predictor: cost per operator and platform, and per switch between platforms."""

    def __init__(self, seed: int, switch: float = 0.3) -> None:
        self._rng_seed, self._switch = seed, switch
        self.asked = 0

    def seconds(self, plan: Plan) -> float:
        costs = np.random.default_rng(self._rng_seed).lognormal(size=(600, 10))
        work = sum(costs[position, platform] for position, platform in enumerate(plan.platforms))
        switches = sum(plan.platforms[a] != plan.platforms[b] for a, b in plan.workflow.edges)
        return float(work + self._switch * switches)

    def __call__(self, questions: Sequence[SizedPlan]) -> list[Prediction]:
        self.asked += len(questions)
        seconds = [self.seconds(question.plan) for question in questions]
        return [Prediction(s, s / 2, s * 2) for s in seconds]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_few_assignments_are_all_scored_and_the_fastest_wins(seed: int, length: int) -> None:
    cost = AdditiveCost(seed)
    choice = choose(chain(length), CLUSTER, PLATFORMS, cost)
    best = min(
        cost.seconds(Plan(chain(length), each)) for each in product(PLATFORMS, repeat=length)
    )
    assert choice.method is Method.EXHAUSTIVE
    assert choice.prediction.median_seconds == pytest.approx(best)
    assert choice.plans_scored == cost.asked == 3**length


def test_many_assignments_are_searched_by_a_beam_that_says_so() -> None:
    large = workflow((), *[(n,) for n in range(9)], (9, 0), *[(n,) for n in range(10, 20)])
    cost = AdditiveCost(1)
    choice = choose(large, CLUSTER, PLATFORMS, cost)
    assert choice.method is Method.BEAM
    assert choice.plans_scored == cost.asked < EXHAUSTIVE_LIMIT
    single = [cost.seconds(Plan.on_one_platform(large, platform)) for platform in PLATFORMS]
    assert choice.prediction.median_seconds <= min(single)


def test_the_beam_finds_nearly_the_optimum_where_segments_are_single_operators() -> None:
    fan = workflow((), *[(0,) for _ in range(8)])
    ratios = []
    for seed in range(5):
        cost = AdditiveCost(seed)
        chosen = choose(fan, CLUSTER, PLATFORMS, cost)
        best = min(
            cost.seconds(Plan(fan, (root, *leaves)))
            for root in PLATFORMS
            for leaves in [_best_leaves(cost, fan, root)]
        )
        assert chosen.method is Method.BEAM
        ratios.append(chosen.prediction.median_seconds / best)
    assert np.mean(ratios) < 1.02


def _best_leaves(cost: AdditiveCost, fan: Workflow, root: Platform) -> tuple[Platform, ...]:
    count = len(fan.operators)
    best = []
    for leaf in range(1, count):
        options = {p: [root] * count for p in PLATFORMS}
        for platform, assignment in options.items():
            assignment[leaf] = platform
        best.append(min(PLATFORMS, key=lambda p: cost.seconds(Plan(fan, tuple(options[p])))))
    return tuple(best)


def test_alternatives_follow_in_order_and_differ() -> None:
    choice = choose(chain(4), CLUSTER, PLATFORMS, AdditiveCost(2))
    medians = [choice.prediction.median_seconds] + [
        each.prediction.median_seconds for each in choice.alternatives
    ]
    assert medians == sorted(medians)
    plans = {choice.plan.platforms, *(each.plan.platforms for each in choice.alternatives)}
    assert len(plans) == 5


@pytest.mark.parametrize("length", [4, 14])
def test_a_platform_that_cannot_run_an_operator_is_never_asked_about(length: int) -> None:
    def supports(position: int, platform: Platform) -> bool:
        return not (position == 2 and platform is Platform.DUCKDB)

    cost = AdditiveCost(3)
    seen: list[Plan] = []

    def predict(questions: Sequence[SizedPlan]) -> list[Prediction]:
        seen.extend(question.plan for question in questions)
        return cost(questions)

    choose(chain(length), CLUSTER, PLATFORMS, predict, supports=supports)
    assert seen
    assert all(plan.platforms[2] is not Platform.DUCKDB for plan in seen)


def test_an_operator_that_runs_nowhere_is_named() -> None:
    with pytest.raises(NoPlatformError, match=r"operator 1 \(MAP\).*duckdb, polars"):
        choose(
            chain(3),
            CLUSTER,
            PLATFORMS[:2],
            AdditiveCost(0),
            supports=lambda position, platform: position != 1,
        )
    with pytest.raises(NoPlatformError, match="none"):
        choose(chain(3), CLUSTER, (), AdditiveCost(0))


def test_equal_predictions_are_decided_by_the_order_of_candidates() -> None:
    def flat(questions: Sequence[SizedPlan]) -> list[Prediction]:
        return [Prediction(1.0, 0.5, 2.0) for _ in questions]

    for length in (3, 14):
        choice = choose(chain(length), CLUSTER, PLATFORMS[::-1], flat)
        assert set(choice.plan.platforms) == {Platform.PANDAS}


def test_a_predictor_that_skips_questions_is_caught() -> None:
    with pytest.raises(MissingPredictionsError, match="9 plans"):
        choose(chain(2), CLUSTER, PLATFORMS, lambda questions: [])


def test_segments_are_chains_that_cover_every_operator_once() -> None:
    # 0 -> 1 -> 2 -+-> 4 -> 5 ; 3 joins in at 4; 2 is read once
    forked = workflow((), (0,), (1,), (), (2, 3), (4,))
    assert sorted(segments(forked)) == [(0, 1, 2), (3,), (4, 5)]
    assert segments(chain(7)) == ((0, 1, 2), (3, 4, 5), (6,))
    shared = workflow((), (0,), (0,), (1, 2))
    assert sorted(segments(shared)) == [(0,), (1,), (2,), (3,)]


class AsCosted:
    """A fake predictor that says what additive costs say, start-ups left out, and listens."""

    def __init__(self, costs: AdditiveCosts, noise: float = 0.0) -> None:
        self._costs, self._noise = costs, noise
        self.calls: list[list[Plan]] = []

    def warm_seconds(self, plan: Plan) -> float:
        columns = np.array([[self._costs.platforms.index(each) for each in plan.platforms]])
        warm = float(self._costs.totals(columns)[0] - self._costs.startups(columns)[0])
        return warm * float(
            np.exp(self._noise * (hash(tuple(map(int, plan.platforms))) % 1000 / 1000))
        )

    def __call__(self, questions: Sequence[SizedPlan]) -> list[Prediction]:
        self.calls.append([question.plan for question in questions])
        seconds = [self.warm_seconds(question.plan) + 1e-9 for question in questions]
        return [Prediction(s, s, s) for s in seconds]


def always_a_second(questions: Sequence[SizedPlan]) -> list[Prediction]:
    return [Prediction(1.0, 0.5, 2.0) for _ in questions]


def costs_of(length: int, seed: int = 0, *, forbidden: float = 0.0) -> AdditiveCosts:
    return random_costs(np.random.default_rng(seed), chain(length), 3, forbidden=forbidden)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_a_predictor_that_agrees_with_the_costs_gets_the_optimum(seed: int) -> None:
    costs = random_world(seed)
    choice = choose(costs.workflow, CLUSTER, costs.platforms, AsCosted(costs), costs=costs)
    assert choice.seconds == pytest.approx(brute_force(costs)[0], rel=1e-6, abs=1e-6)
    assert choice.seconds == choice.prediction.median_seconds + choice.startup_seconds
    assert (choice.method, choice.is_exact) == (Method.FRONTIER, True)


@pytest.mark.parametrize("seed", range(10))
def test_the_cheapest_plans_and_all_on_one_platform_are_predicted_in_one_call(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = random_costs(rng, random_workflow(rng, 12), 3, forbidden=0.03)
    predict = AsCosted(costs, noise=1.0)
    choice = choose(costs.workflow, CLUSTER, costs.platforms, predict, costs=costs)
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


def test_starting_a_platform_counts_beside_the_prediction() -> None:
    free = np.zeros((2, 3, 3))
    seconds = np.array([[1.0, 1.0, 1.0]] * 3)
    costs = AdditiveCosts(chain(3), PLATFORMS, seconds, free, np.array([4.0, 0.0, 9.0]))
    choice = choose(chain(3), CLUSTER, PLATFORMS, always_a_second, costs=costs)
    assert set(choice.plan.platforms) == {Platform.POLARS}
    assert (choice.seconds, choice.startup_seconds) == (1.0, 0.0)
    without = choose(chain(3), CLUSTER, PLATFORMS[::2], always_a_second, costs=costs)
    assert set(without.plan.platforms) == {Platform.DUCKDB}
    assert (without.seconds, without.startup_seconds) == (5.0, 4.0)


def test_equal_predictions_are_decided_by_additive_costs_and_then_by_the_candidates() -> None:
    seconds = np.array([[2.0, 1.0, 3.0]] * 4)
    warm = np.zeros(3)
    costs = AdditiveCosts(chain(4), PLATFORMS, seconds, np.zeros((3, 3, 3)), warm)
    choice = choose(chain(4), CLUSTER, PLATFORMS, always_a_second, costs=costs)
    assert set(choice.plan.platforms) == {Platform.POLARS}
    equal = AdditiveCosts(chain(4), PLATFORMS, np.ones((4, 3)), np.zeros((3, 3, 3)), warm)
    choice = choose(chain(4), CLUSTER, PLATFORMS[::-1], always_a_second, costs=equal)
    assert set(choice.plan.platforms) == {Platform.PANDAS}


@pytest.mark.parametrize("method", Method)
def test_every_method_can_be_asked_for_and_is_named(method: Method) -> None:
    costs = costs_of(5, seed=4)
    predict = AsCosted(costs)
    choice = choose(chain(5), CLUSTER, PLATFORMS, predict, costs=costs, method=method)
    assert choice.method is method
    assert choice.plans_scored == sum(len(asked) for asked in predict.calls)
    best = choose(chain(5), CLUSTER, PLATFORMS, predict, costs=costs)
    assert choice.seconds >= best.seconds - 1e-6
    single = [costs.total((platform,) * 5) for platform in PLATFORMS]
    assert choice.seconds <= min(single) + 1e-6
    if method is Method.EXHAUSTIVE:
        assert (choice.plans_scored, choice.is_exact) == (3**5, True)
    if method in {Method.GREEDY, Method.DELAYED_GREEDY}:
        assert not choice.is_exact


def test_a_workflow_too_wide_for_the_exact_search_is_labelled_as_a_beam() -> None:
    wide = workflow(*[()] * 14, *[tuple(range(14))] * 3)
    costs = random_costs(np.random.default_rng(1), wide, 3)
    choice = choose(wide, CLUSTER, PLATFORMS, AsCosted(costs), costs=costs)
    assert (choice.method, choice.is_exact) == (Method.BEAM, False)


@pytest.mark.parametrize("method", [Method.FRONTIER, Method.GREEDY, Method.DELAYED_GREEDY])
def test_methods_that_need_costs_say_so(method: Method) -> None:
    with pytest.raises(MissingCostsError, match=f"{method} searches by additive costs"):
        choose(chain(3), CLUSTER, PLATFORMS, always_a_second, method=method)


def test_without_costs_a_beam_can_be_asked_for_and_too_many_plans_are_refused() -> None:
    choice = choose(chain(3), CLUSTER, PLATFORMS, AdditiveCost(1), method=Method.BEAM)
    assert (choice.method, choice.is_exact) == (Method.BEAM, False)
    for costs in (None, costs_of(14)):
        with pytest.raises(TooManyPlansError, match=str(3**14)):
            choose(
                *(chain(14), CLUSTER, PLATFORMS, always_a_second),
                costs=costs,
                method=Method.EXHAUSTIVE,
            )


@pytest.mark.parametrize(
    ("method", "with_costs"),
    [
        *[(method, True) for method in (None, *Method)],
        *[(method, False) for method in (None, Method.BEAM, Method.EXHAUSTIVE)],
    ],
)
def test_no_method_ever_asks_about_a_plan_that_a_constraint_refuses(
    method: Method | None, with_costs: bool
) -> None:
    costs = costs_of(7, seed=9)
    predict = AsCosted(costs)
    choose(
        *(chain(7), CLUSTER, PLATFORMS, predict),
        costs=costs if with_costs else None,
        method=method,
        supports=lambda position, platform: (position, platform) != (1, Platform.DUCKDB),
        pinned={4: Platform.PANDAS},
        memory_caps={Platform.POLARS: 2_000.0},  # every operator reads 800 bytes
    )
    asked = [plan.platforms for call in predict.calls for plan in call]
    assert asked
    assert all(each[4] is Platform.PANDAS for each in asked)
    assert all(each[1] is Platform.PANDAS for each in asked)
    assert all(Platform.POLARS not in each for each in asked)


def test_costs_of_something_else_are_refused() -> None:
    with pytest.raises(InvalidCostsError, match="another workflow"):
        choose(chain(4), CLUSTER, PLATFORMS, always_a_second, costs=costs_of(3))
    with pytest.raises(InvalidCostsError, match="no costs are known of spark"):
        choose(chain(3), CLUSTER, (*PLATFORMS, Platform.SPARK), always_a_second, costs=costs_of(3))


def test_a_predictor_that_skips_questions_is_caught_with_costs_too() -> None:
    with pytest.raises(MissingPredictionsError):
        choose(chain(3), CLUSTER, PLATFORMS, lambda questions: [], costs=costs_of(3))


def test_a_plan_is_seen_beside_those_found_unless_it_is_forbidden() -> None:
    """The predictor likes what costs most, which no search by costs finds."""
    rng = np.random.default_rng(1)
    three = chain(3)
    costs = random_costs(rng, three, 3, forbidden=0.0)

    def predict(questions: Sequence[SizedPlan]) -> list[Prediction]:
        totals = [1000.0 / costs.total(question.plan.platforms) for question in questions]
        return [Prediction(each, each / 2, each * 2) for each in totals]

    every = sorted(product(PLATFORMS, repeat=3), key=costs.total)
    dearest = every[-1]
    assert len(set(dearest)) > 1

    def chosen(also: tuple[Platform, ...], forbidden: Platform | None) -> tuple[Platform, ...]:
        return choose(
            three,
            CLUSTER,
            PLATFORMS,
            predict,
            costs=costs,
            count=1,
            supports=lambda at, platform: (at, platform) != (0, forbidden),
            also=(also,),
        ).plan.platforms

    assert chosen(dearest, None) == dearest
    assert chosen(every[0], None) != dearest
    assert chosen(dearest, dearest[0]) != dearest
