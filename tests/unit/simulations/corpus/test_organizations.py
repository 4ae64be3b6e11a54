"""Tests of the workload split of a drifting year: workloads by organization and window."""

from datetime import UTC, datetime, timedelta

import pytest

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.features import Features, featurize
from fedperf_simulations.corpus.organizations import (
    SEGMENTS,
    WorkloadPart,
    WorkloadSplit,
    deal,
    first_segment,
    first_windows,
    private_segments,
    split,
)
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.model.feature_names import feature_names
from tests.fakes.plans import diamond

YEAR = Period(datetime(2027, 1, 4, tzinfo=UTC), timedelta(days=28), 13)
HANDS = WorkloadSplit(organizations=2, workloads=5, pool=8, held_out=4)


GRAPH = featurize(diamond(), ClusterConfig(nodes=1, cores=1, memory_bytes=1 << 30))


def segments(workloads: int = 20) -> list[list[LabelledGraph]]:
    """Return workloads whose log seconds equal their number."""
    return [
        [
            LabelledGraph(f"{regime}-{number}", GRAPH, 0, float(number), regime)
            for number in range(workloads)
        ]
        for regime in range(3)
    ]


SOME = segments()

POLARS = feature_names()[0].index("platform_polars")


def test_workload_split_gives_each_organization_every_segment_without_held_out() -> None:
    dealt = deal(SOME, HANDS, YEAR, seed=1)
    names = [each.workload for lived in dealt.organizations for each in lived.labelled]
    assert len(names) == 2 * 3 * 5
    assert all(len({g.workload for g in lived.labelled}) == 3 * 5 for lived in dealt.organizations)
    for regime, asked in enumerate(dealt.held_out):
        given = {
            each.log_seconds
            for lived in dealt.organizations
            for each in lived.labelled
            if each.regime == regime
        }
        assert 5 < len(given) <= 8
        assert len(asked) == 4
        assert not given & {*asked.log_seconds.tolist()}
        numbers = {int(name.split("-")[1]) for name in dealt.names if name.startswith(f"{regime}-")}
        assert given | {*asked.log_seconds.tolist()} <= numbers
        assert len(numbers) == 8 + 4
    again, other = (deal(SOME, HANDS, YEAR, seed=seed) for seed in (1, 2))
    assert again.organizations == dealt.organizations
    assert other.organizations != dealt.organizations


def test_organization_year_runs_workloads_in_all_windows_of_their_segment() -> None:
    [lived, _] = deal(SOME, HANDS, YEAR, seed=1).organizations

    def epochs(since: int | None, until: int) -> set[int]:
        first = None if since is None else YEAR.window_start(since)
        return {each.regime for each in lived.between(first, YEAR.window_start(until))}

    assert epochs(None, 0) == set()
    assert epochs(None, 4) == epochs(2, 4) == {0}  # the second regime begins with window 4
    assert epochs(2, 5) == {0, 1}
    assert epochs(4, 9) == epochs(5, 8) == {1}
    assert epochs(12, 13) == {2}
    assert epochs(None, 13) == {0, 1, 2}
    assert len(lived.between(YEAR.window_start(4), YEAR.window_start(9))) == HANDS.workloads


def test_workload_split_with_too_few_workloads_is_refused_naming_the_segment() -> None:
    few = [SOME[0], SOME[1][:11], SOME[2]]
    with pytest.raises(ConfigurationError, match=f"{SEGMENTS[1]} has 11 workloads, 12"):
        deal(few, HANDS, YEAR, seed=1)


def test_first_windows_of_a_short_year_keep_three_drift_regimes() -> None:
    assert first_windows(13) == (0, 4, 9)
    assert first_windows(4) == (0, 1, 2)


@pytest.mark.slow
def test_private_segments_exclude_public_workloads_and_suffice_for_the_split() -> None:
    found = private_segments()
    assert [{each.regime for each in segment} for segment in found] == [{0}, {1}, {2}]
    names = [each.workload for segment in found for each in segment]
    assert len(names) == len(set(names))
    parts = split(measured_executions())
    public = {
        each.workload
        for part in (WorkloadPart.PUBLIC, WorkloadPart.VALIDATION)
        for each in parts[part]
    }
    assert not public & {*names}
    dealt = deal(found, WorkloadSplit(), YEAR, seed=0)
    training = first_segment(dealt)
    assert len(training) > 2000
    assert not any(_runs_polars(each) for each in training.graphs)
    assert any(_runs_polars(each.graph) for each in found[2])
    assert not {*training.log_seconds.tolist()} & {
        each.log_seconds for lived in dealt.organizations for each in lived.labelled
    }


def _runs_polars(graph: Features) -> bool:
    return bool(graph.operators[:, POLARS].any())
