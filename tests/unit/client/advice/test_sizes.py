"""Cluster sizes: the compared sizes and the recommended one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_client.advice.executor_sizes import WORTH
from fedperf_client.prediction.serving.reconfiguration import (
    MOST_SIZES,
    InvalidSizesError,
    sizes_of,
)
from fedperf_client.prediction.serving.what_if import ON_TIME
from fedperf_engines.advice.advice import ClusterChoice, choose_size
from fedperf_engines.advice.presentation import advice_facts, deadline_sentence, no_better_size
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from tests.unit.client.advice.jobs import FOUR_CORES, Seconds, advised, made_up

ONE = ClusterConfig(1, 6, 12)
FIVE = ClusterConfig(5, 40, 500)


def pairs(sizes: list[ClusterConfig]) -> list[tuple[int, int, int]]:
    return [(each.nodes, each.cores, each.memory_bytes) for each in sizes]


def test_sizes_of_defaults_to_powers_of_two_up_to_the_current_size() -> None:
    assert pairs(sizes_of(ONE, None, None)) == [(1, n, 12) for n in (1, 2, 4, 6)]
    whole_nodes = [(1, 8, 100), (2, 16, 200), (4, 32, 400), (5, 40, 500)]
    assert pairs(sizes_of(FIVE, None, None)) == whole_nodes


def test_sizes_of_counts_cores_over_all_nodes_and_derives_them_from_nodes() -> None:
    assert pairs(sizes_of(FIVE, [10, 80], None)) == [(5, 10, 500), (10, 80, 1000)]
    assert pairs(sizes_of(ONE, None, [3])) == [(3, 18, 36)]
    both = sizes_of(ONE, [2, 4], [1, 4])
    assert pairs(both) == [(1, 2, 12), (1, 4, 12), (4, 4, 48)]


def test_sizes_of_refuses_nodes_without_a_core_and_too_many_sizes() -> None:
    with pytest.raises(InvalidSizesError, match="4 nodes and fewer cores"):
        sizes_of(ONE, [2], [4])
    with pytest.raises(InvalidSizesError, match=f"33 sizes are too many .* {MOST_SIZES}"):
        sizes_of(ONE, list(range(1, 34)), None)


def sized(seed: int, cores: list[int], deadline: float | None) -> list[ClusterChoice]:
    sizes = [replace(FOUR_CORES, cores=each) for each in cores]
    return list(advised(made_up(seed), sizes=sizes, deadline_seconds=deadline).sizes)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    st.floats(0.05, 60),
)
def test_choose_size_with_deadline_matches_brute_force(
    seed: int, cores: list[int], deadline: float
) -> None:
    found = sized(seed, cores, deadline)
    keeping = []
    for each in found:
        left = deadline - each.choice.startup_seconds
        if left > 0 and each.estimate.probability_within(left) >= ON_TIME:
            keeping.append(each.cluster.cores * each.choice.seconds)
    right = choose_size(found)
    if right is None:
        assert not keeping
    else:
        assert right.core_seconds == min(keeping)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True))
def test_choose_size_without_deadline_takes_cheapest_near_the_fastest(
    seed: int, cores: list[int]
) -> None:
    found = sized(seed, cores, None)
    right = choose_size(found)
    assert right is not None
    fastest = min(each.seconds for each in found)
    able = [each.core_seconds for each in found if each.seconds <= fastest * (1 + WORTH)]
    assert right.core_seconds == min(able)


def test_size_with_startup_beyond_the_deadline_has_probability_zero() -> None:
    [late] = sized(1, [1], 0.01)
    assert late.choice.startup_seconds > 0.01
    assert (late.chance, late.holds) == (0.0, False)


EIGHT_CORES = replace(FOUR_CORES, cores=8)


def by_cores(of_eight: float) -> Seconds:
    """Return a predictor: 1 s on four cores and `of_eight` seconds on eight cores."""

    def taking(question: PlanOnCluster) -> float:
        switches = len(set(question.plan.platforms)) > 1
        return (of_eight if question.cluster.cores == 8 else 1.0) * (3.0 if switches else 1.0)

    return taking


@pytest.mark.parametrize("deadline", [None, 20.0])
def test_indistinguishable_size_keeps_the_current_size(
    deadline: float | None,
) -> None:
    of_eight = 0.88 if deadline is None else 0.4  # slightly faster or slightly cheaper
    advice = advised(by_cores(of_eight), sizes=(FOUR_CORES, EIGHT_CORES), deadline_seconds=deadline)
    assert choose_size(advice.sizes) is advice.rival_size
    assert advice.best.cluster == FOUR_CORES
    assert advice.choice is advice.best.choice
    told = no_better_size(advice)
    assert told is not None
    assert told.startswith("no size is distinguishably better: 8 cores would take ")
    assert told.endswith(", so keep 4 cores")
    rival = advice_facts(advice, [])["no_difference_to_size"]
    assert isinstance(rival, dict)
    assert rival["cores"] == 8
    if deadline is not None:
        assert "fewest" not in (deadline_sentence(advice) or "")


def test_size_distinguishably_faster_cheaper_or_in_time_is_chosen() -> None:
    sizes = (FOUR_CORES, EIGHT_CORES)
    for of_eight, deadline in ((0.6, None), (0.3, 20.0), (0.9, 1.05)):
        advice = advised(by_cores(of_eight), sizes=sizes, deadline_seconds=deadline)
        assert advice.best.cluster == EIGHT_CORES, (of_eight, deadline)
        assert advice.rival_size is None
        assert no_better_size(advice) is None
        assert advice_facts(advice, [])["no_difference_to_size"] is None
