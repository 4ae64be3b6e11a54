"""Tests of the benchmark of the optimizer, in a small form, and of its parts."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.prediction import Floats
from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.enumeration import SearchResult, cheapest_plans, narrow_order
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Workflow
from fedperf_simulations.baselines.search import PruningRule, pruned_search, published_search
from fedperf_simulations.experiments.optimizer.experiment import (
    BEST,
    BRUTE_FORCE,
    CHART,
    CHOICE,
    EXPERIMENT,
    SEARCH,
    equal_to_brute_force,
    optimization_time,
    regrets,
    targets_of,
)
from fedperf_simulations.experiments.optimizer.measurement import (
    FRONTIER,
    GREEDY,
    ONE_BY_ONE,
    SEARCHES,
    TimingTask,
    knotty_costs,
    measure,
    random_costs,
    random_workflow,
    random_workflow_of_width,
    width,
)
from fedperf_simulations.harness.experiment import Row, Settings, Value

CLUSTER = ClusterConfig(1, 2, 2**33)


@pytest.mark.slow
def test_quick_optimizer_benchmark_has_expected_rows_and_resumes(tmp_path: Path) -> None:
    settings = Settings(seed=0, out=tmp_path, quick=True)
    outcome = EXPERIMENT.run(settings)
    exact = [row for row in outcome.rows if row["method"] == FRONTIER]
    assert [row["what"] for row in exact] == [CHOICE, CHOICE, CHOICE, SEARCH, BRUTE_FORCE]
    assert [row.get("size") for row in exact] == ["5 x 3", "25 x 3", "50 x 5", "25 x 3", None]
    assert exact[0]["one by one / this"]
    assert exact[1]["3 s / this"] == round(3000 / float(exact[1]["median_ms"] or 0))
    values = {target.what: target.value for target in outcome.targets}
    assert values["exact search: largest regret"] == 0
    assert values["workflows with best plan and 12 least costs as by brute force"] == 20
    [chart] = outcome.plots
    assert chart == tmp_path / CHART
    assert "published: less than 3 s up to 25 operators" in chart.read_text()
    assert EXPERIMENT.run(settings).rows == outcome.rows


def a_row(what: str, size: str | None, **values: Value) -> Row:
    return {"what": what, "method": FRONTIER} | ({"size": size} if size else {}) | values


def rows_with(
    *, median: float = 29.0, wide: float = 299.0, regret: float = 0.0, equal: float = 1.0
) -> list[Row]:
    """Return rows as the benchmark writes them, with additional rows outside all targets."""
    return [
        a_row(CHOICE, "5 x 3", median_ms=1e6, best_ms=1e6),
        {**a_row(CHOICE, "25 x 3", median_ms=1e6, best_ms=1e6), "method": "beam"},
        a_row(CHOICE, "25 x 3", median_ms=median, best_ms=median - 20),
        a_row(CHOICE, "50 x 5", median_ms=wide, best_ms=1e6),
        {**a_row(SEARCH, "25 x 3", max_regret=0.5), "method": "greedy"},
        a_row(SEARCH, "25 x 3", max_regret=regret),
        a_row(BRUTE_FORCE, None, workflows=1000, optimal=equal),
    ]


@pytest.mark.parametrize(
    ("wrong", "missed"),
    [
        ({}, []),
        ({"equal": 0.999}, [0]),
        ({"median": 31.0}, [1]),
        ({"median": 51.0}, [1, 2]),
        ({"wide": 301.0}, [3]),
        ({"regret": 1e-9}, [4]),
        ({"median": float("nan")}, [1, 2]),
    ],
)
def test_optimizer_targets_are_computed_from_the_rows(
    wrong: Mapping[str, float], missed: Sequence[int]
) -> None:
    targets = targets_of(rows_with(**wrong))
    assert [place for place, target in enumerate(targets) if not target.holds] == missed


def test_optimizer_chart_has_one_line_per_method_for_three_platforms() -> None:
    names = [*SEARCHES, "exhaustive", ONE_BY_ONE]
    times: list[Row] = [
        {"what": CHOICE, "method": str(name), "size": size, "median_ms": 7.0}
        for name in names
        for size in ("5 x 3", "25 x 3")
    ]
    chart = optimization_time(times)
    for text in ("exact (frontier)", "beam", "greedy", "one question after the other"):
        assert text in chart
    other: Row = {"what": CHOICE, "method": FRONTIER, "size": "25 x 5", "median_ms": 9.0}
    assert optimization_time([*times, other]) == chart


def test_optimizer_measurement_times_every_method_equally_often() -> None:
    task = TimingTask(operators=4, platforms=2, workflows=2, repeats=1, seed=3, one_by_one=True)
    found = measure(task)
    assert list(found) == [*SEARCHES, "exhaustive", ONE_BY_ONE]
    assert {len(taken) for taken in found.values()} == {2}
    assert all(seconds > 0 for taken in found.values() for seconds, _ in taken)
    plans = {name: [count for _, count in taken] for name, taken in found.items()}
    assert plans["exhaustive"] == [2**4, 2**4]
    assert max(plans[GREEDY]) <= 1 + 2
    assert plans[ONE_BY_ONE] == [2 + 4 + 8 + 8] * 2  # two, then all pairs, each extended


def test_optimizer_measurement_skips_exhaustive_search_for_many_assignments() -> None:
    found = measure(TimingTask(operators=13, platforms=2, workflows=1, repeats=1, seed=0))
    assert "exhaustive" not in found
    assert ONE_BY_ONE not in found


@pytest.mark.slow
def test_exact_search_has_no_regret_and_pruned_searches_do() -> None:
    found = regrets(np.random.default_rng(1), 25, 3, workflows=20)
    exact, greedy, delayed = found[FRONTIER], found["greedy"], found["delayed greedy, last two"]
    assert (exact["optimal"], exact["mean_regret"], exact["max_regret"]) == (1, 0, 0)
    assert found["every state kept"]["max_regret"] == 0
    assert greedy["mean_regret"] > delayed["mean_regret"] > 0
    assert greedy["max_regret"] > greedy["mean_regret"]
    assert greedy["optimal"] <= delayed["optimal"] < 1
    assert (greedy["candidates"], delayed["candidates"]) == (25 * 3, 3 + 9 + 23 * 27)


def doubled(costs: AdditiveCosts) -> SearchResult:
    """Return as many plans with the right costs, but one of them twice."""
    right = cheapest_plans(costs, BEST)
    plans = right.plans.copy()
    plans[-1] = plans[0]
    return SearchResult(plans, right.seconds, is_exact=True, candidates=0)


def dearer(costs: AdditiveCosts) -> SearchResult:
    right = cheapest_plans(costs, BEST)
    seconds = right.seconds * (1 + 1e-9)
    return SearchResult(right.plans, seconds, is_exact=True, candidates=0)


def test_exact_search_equals_brute_force_on_random_workflows() -> None:
    assert equal_to_brute_force(np.random.default_rng(2), 3, workflows=60) == 60


@pytest.mark.parametrize(
    "search",
    [
        doubled,
        dearer,
        partial(cheapest_plans, count=BEST - 1),
        partial(pruned_search, rule=PruningRule.OPEN_FRONTIER, count=BEST),
    ],
)
def test_brute_force_comparison_detects_incorrect_searches(search: object) -> None:
    rng = np.random.default_rng(2)
    equal = equal_to_brute_force(rng, 3, workflows=60, search=search)  # type: ignore[arg-type]
    assert equal < 60


def test_published_search_predicts_every_kept_partial_plan_on_every_platform() -> None:
    """The fake model is fastest where each operator has the platform that follows its position."""
    rng = np.random.default_rng(4)
    costs = random_costs(rng, random_workflow(rng, 6), 3)
    asked: list[PlanOnCluster] = []

    def model(questions: Sequence[PlanOnCluster]) -> Floats:
        asked.extend(questions)
        wished = [costs.platforms[place % 3] for place in range(6)]
        plans = [question.plan.platforms for question in questions]
        return np.array([sum(a != b for a, b in zip(p, wished, strict=False)) for p in plans])

    assignment, count = published_search(costs, CLUSTER, model)
    lengths = [len(question.plan.platforms) for question in asked]
    assert [lengths.count(length) for length in range(1, 7)] == [3, 9, 27, 27, 27, 27]
    assert count == len(asked)
    assert sum(map(assignment.count, costs.platforms)) == 6
    assert [assignment.count(platform) for platform in costs.platforms] == [2, 2, 2]
    whole = asked[-1].plan.workflow
    assert flows(whole) == flows(costs.workflow)
    assert flows(asked[0].plan.workflow) == []


def flows(of: Workflow) -> list[tuple[float, float]]:
    """Return the edges by the rows of their operators, independent of operator order."""
    rows = [operator.output_rows for operator in of.operators]
    return sorted((rows[parent], rows[child]) for parent, child in of.edges)


def test_random_workflows_are_seeded_and_cover_shapes_and_widths() -> None:
    one, again = (random_workflow(np.random.default_rng(5), 200) for _ in range(2))
    assert one == again
    shares = np.bincount([len(each.inputs) for each in one.operators], minlength=3) / 200
    assert shares == pytest.approx([0.15, 0.6, 0.25], abs=0.08)
    assert max(map(len, one.children)) > 1
    rng = np.random.default_rng(6)
    for open_at_once in (2, 3, 4):
        drawn = random_workflow_of_width(rng, 25, 3, open_at_once=open_at_once)
        assert width(drawn, narrow_order(drawn, 3)) == open_at_once


def test_knotty_costs_include_forbidden_free_and_integer_costs() -> None:
    rng = np.random.default_rng(7)
    drawn = [knotty_costs(rng, random_workflow(rng, 7), 3) for _ in range(40)]
    assert any(not each.allowed.all() for each in drawn)
    assert any((each.startup_seconds == 0).any() for each in drawn)
    whole = [each.operator_seconds[each.allowed] % 1 == 0 for each in drawn]
    assert 0 < sum(bool(each.all()) for each in whole) < 40
