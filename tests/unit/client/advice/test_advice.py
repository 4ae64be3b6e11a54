"""Advice satisfies every constraint, and no considered plan has a faster prediction."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_engines.advice.advice import Advice, platform_groups
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.job import Job
from fedperf_engines.optimizer.additive_surrogate import STARTUP_SECONDS
from fedperf_engines.optimizer.costs import NoPlatformError, memory_needed
from fedperf_engines.platforms.engine import could_run
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.fakes.plans import workflows
from tests.unit.client.advice.jobs import (
    ALL,
    DUCKDB,
    FOUR_CORES,
    GIB,
    PANDAS,
    POLARS,
    SKLEARN,
    SPARK,
    advised,
    job,
    learning,
    made_up,
    operator,
)


def breaks(plan: Plan, wishes: PlanConstraints, caps: Mapping[Platform, float]) -> list[str]:
    """Return all violations of the constraints by the plan, checked by their definitions."""
    needed = memory_needed(plan.workflow, plan.platforms)
    found = []
    for at, platform in enumerate(plan.platforms):
        if platform not in wishes.platforms:
            found.append(f"{at} is on no candidate")
        if wishes.pinned.get(at, platform) is not platform:
            found.append(f"{at} left its platform")
        if not could_run(plan.workflow.operators[at].kind, platform):
            found.append(f"{at} cannot run there")
        if needed[at, at] > caps.get(platform, np.inf):
            found.append(f"{at} does not fit")
    return found


@settings(max_examples=40, deadline=None)
@given(
    workflows(max_operators=7),
    st.lists(st.sampled_from(ALL), min_size=1, max_size=5, unique=True),
    st.dictionaries(st.integers(0, 2), st.sampled_from(ALL), max_size=2),
    st.dictionaries(st.sampled_from(ALL), st.floats(1, 1e18), max_size=2),
    st.integers(0, 99),
)
def test_advise_returns_only_plans_within_constraints_and_no_faster_rival(
    workflow: Workflow,
    platforms: list[Platform],
    pinned: dict[int, Platform],
    memory: dict[Platform, float],
    seed: int,
) -> None:
    pins = {at: platform for at, platform in pinned.items() if at < len(workflow.operators)}
    wishes = PlanConstraints(tuple(platforms), pins, memory)
    sizes = [replace(FOUR_CORES, cores=1), FOUR_CORES]
    try:
        found = advised(made_up(seed), wishes, sizes=sizes, what=job(workflow))
    except NoPlatformError:
        return
    for each in found.sizes:
        assert breaks(each.choice.plan, wishes, wishes.memory_caps(each.cluster)) == []
    caps = wishes.memory_caps(found.best.cluster)
    for plan in (*found.rivals, *(move.plan for move in found.moves)):
        assert breaks(plan.plan, wishes, caps) == []
        assert plan.seconds >= found.choice.seconds


def rivals(found: Advice) -> set[tuple[Platform, ...]]:
    return {each.plan.platforms for each in found.rivals}


def test_rivals_include_every_single_platform_and_the_current_plan() -> None:
    found = advised(made_up(3), what=job(today=SPARK))
    shown = rivals(found) | {found.choice.plan.platforms}
    for platform in (DUCKDB, POLARS, PANDAS, SPARK):
        assert (platform,) * 6 in shown
    assert (SKLEARN,) * 6 not in shown
    assert [each.seconds for each in found.rivals] == sorted(e.seconds for e in found.rivals)
    assert found.choice.plan.platforms not in rivals(found)


def test_current_plan_is_chosen_where_it_is_the_fastest() -> None:
    today = (DUCKDB, PANDAS, DUCKDB, POLARS, SKLEARN, PANDAS)

    def seconds(question: PlanOnCluster) -> float:
        return 0.1 if question.plan.platforms == today else 10.0

    here = replace(job(), today=Plan(learning(), today))
    wishes = PlanConstraints(ALL[:4], warm=frozenset(ALL))
    assert advised(seconds, wishes, what=here).choice.plan.platforms == today


def test_moving_a_group_finds_plan_that_the_search_missed() -> None:
    kinds = OperatorKind
    long = Workflow(
        (operator(kinds.FILE_SOURCE), *(operator(kinds.FILTER, before) for before in range(11)))
    )
    today: tuple[Platform, ...] = (DUCKDB,) * 6 + (POLARS,) * 6
    best: tuple[Platform, ...] = (DUCKDB,) * 6 + (PANDAS,) * 6

    def seconds(question: PlanOnCluster) -> float:
        return {today: 2.0, best: 1.0}.get(question.plan.platforms, 10.0)

    here = replace(job(long), today=Plan(long, today))
    found = advised(seconds, PlanConstraints(ALL[:3], warm=frozenset(ALL)), what=here)
    assert found.choice.plan.platforms == best
    assert found.choice.alternatives[0].plan.platforms == today
    assert found.choice.prediction.median_seconds == pytest.approx(1.0)


def test_startup_seconds_count_unless_platform_is_warm() -> None:
    def seconds(question: PlanOnCluster) -> float:
        return 1.0 if set(question.plan.platforms) == {SPARK} else 3.0

    cold = advised(seconds)
    assert SPARK not in cold.choice.plan.platforms
    assert cold.choice.startup_seconds == STARTUP_SECONDS[cold.choice.plan.platforms[0]]
    warm = advised(seconds, PlanConstraints(ALL, warm=frozenset({SPARK})))
    assert set(warm.choice.plan.platforms) == {SPARK}
    assert warm.choice.seconds == pytest.approx(1.0)


def test_plan_without_distributed_platform_is_predicted_on_one_node() -> None:
    asked: list[ClusterConfig] = []

    def seconds(question: PlanOnCluster) -> float:
        if SPARK not in question.plan.platforms:
            asked.append(question.cluster)
        return 1.0

    advised(seconds, sizes=[ClusterConfig(4, 32, 64 * GIB)])
    assert {(each.nodes, each.cores, each.memory_bytes) for each in asked} == {(1, 8, 16 * GIB)}


def test_cluster_size_without_enough_memory_is_reported_and_others_compared() -> None:
    rows = 40 * GIB / 400  # pandas needs ten times the bytes
    large = job(learning(rows))
    sizes = [ClusterConfig(nodes, 8 * nodes, 16 * nodes * GIB) for nodes in (1, 2)]
    sizes.append(ClusterConfig(1, 8, 100 * GIB))
    found = advised(made_up(1), PlanConstraints((PANDAS,)), sizes=sizes, what=large)
    assert [each.cluster for each in found.sizes] == sizes[2:]
    assert [cluster for cluster, _ in found.too_small] == sizes[:2]
    assert "fits the memory cap of no platform" in found.too_small[0][1]
    with pytest.raises(NoPlatformError, match=r"operator 0 \(FILE_SOURCE\)"):
        advised(made_up(1), PlanConstraints((PANDAS,)), sizes=sizes[:2], what=large)


def test_operator_of_kind_other_stays_on_its_current_platform() -> None:
    kinds = OperatorKind
    strange = Workflow((operator(kinds.TABLE_SOURCE), operator(kinds.OTHER, 0)))
    found = advised(made_up(2), what=job(strange, today=SPARK))
    assert found.choice.plan.platforms[1] is SPARK
    with pytest.raises(NoPlatformError, match=r"operator 1 \(OTHER\) runs on none of"):
        advised(made_up(2), what=job(strange))


def test_unmeetable_deadline_gives_fastest_size_with_highest_probability() -> None:
    sizes = [replace(FOUR_CORES, cores=each) for each in (1, 2, 64)]
    found = advised(made_up(1), sizes=sizes, deadline_seconds=0.01)
    assert found.keeps_deadline is False
    assert found.best.seconds == min(each.seconds for each in found.sizes)  # equal interval widths
    assert found.best.chance == max(each.chance or 0.0 for each in found.sizes)
    assert advised(made_up(1), sizes=sizes, deadline_seconds=1e5).keeps_deadline is True
    assert advised(made_up(1), sizes=sizes).keeps_deadline is None


def partitioned(*numbers: int, on: ClusterConfig, today: Platform = SPARK) -> Job:
    """Return the job on its original cluster, with these partition counts of its operators."""
    operators = tuple(
        replace(each, partitions=number)
        for each, number in zip(learning().operators, numbers, strict=True)
    )
    return Job(Plan.on_one_platform(Workflow(operators), today), on)


def partitions(plan: Plan) -> set[int]:
    return {each.partitions for each in plan.workflow.operators}


NODES = [ClusterConfig(each, 8 * each, 16 * each * GIB) for each in (1, 2, 4)]
CORES = [replace(FOUR_CORES, cores=each) for each in (1, 2, 4, 16)]


@pytest.mark.parametrize("sizes", [CORES, NODES], ids=["cores", "nodes"])
def test_queries_and_choice_have_partitions_matching_cores_of_each_size(
    sizes: list[ClusterConfig],
) -> None:
    asked: list[PlanOnCluster] = []

    def seconds(question: PlanOnCluster) -> float:
        asked.append(question)
        return made_up(4)(question) / question.cluster.cores

    what = partitioned(*[sizes[1].cores] * 6, on=sizes[1])
    found = advised(seconds, sizes=sizes, what=what)
    assert {each.cluster.cores for each in asked} == {each.cores for each in sizes}
    for each in asked:
        assert partitions(each.plan) == {each.cluster.cores}
    for size in found.sizes:
        assert partitions(size.choice.plan) == {size.cluster.cores}
        assert not found.job.keeps_partitions_on(size.cluster)
    plans = (*found.rivals, *(move.plan for move in found.moves))
    assert all(partitions(each.plan) == {found.best.cluster.cores} for each in plans)


def test_partitions_unrelated_to_cores_are_fixed_and_marked() -> None:
    what = partitioned(*[200] * 6, on=CORES[2])
    found = advised(made_up(4), sizes=CORES, what=what)
    for size in found.sizes:
        assert partitions(size.choice.plan) == {200}
        assert found.job.keeps_partitions_on(size.cluster) is (size.cluster != CORES[2])


def test_platform_groups_are_adjacent_operators_on_one_platform() -> None:
    plan = Plan(learning(), (DUCKDB, DUCKDB, PANDAS, DUCKDB, DUCKDB, PANDAS))
    assert platform_groups(plan) == ((0,), (1, 3, 4), (2,), (5,))
    assert platform_groups(Plan.on_one_platform(learning(), DUCKDB)) == ((0, 1, 2, 3, 4, 5),)
