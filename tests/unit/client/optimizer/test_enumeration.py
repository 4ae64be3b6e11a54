from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_client.optimizer.enumeration import (
    EXHAUSTIVE_LIMIT,
    Method,
    MissingPredictionsError,
    NoPlatformError,
    choose,
    segments,
)
from fedperf_client.prediction.prediction import Prediction, Question
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

CLUSTER = ClusterConfig(1, 2, 2**33)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def workflow(*inputs: tuple[int, ...]) -> Workflow:
    kinds = {0: OperatorKind.TABLE_SOURCE, 1: OperatorKind.MAP, 2: OperatorKind.JOIN}
    return Workflow(
        tuple(Operator(kinds[len(i)], OperatorClass.RELATIONAL, i, 100.0, 8.0) for i in inputs)
    )


def chain(length: int) -> Workflow:
    return workflow((), *[(n,) for n in range(length - 1)])


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

    def __call__(self, questions: Sequence[Question]) -> list[Prediction]:
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

    def predict(questions: Sequence[Question]) -> list[Prediction]:
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
    def flat(questions: Sequence[Question]) -> list[Prediction]:
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
