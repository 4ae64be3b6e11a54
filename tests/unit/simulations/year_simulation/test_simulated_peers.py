"""Tests of simulated peers: they share no jobs with each other or with the organization."""

from fedperf_memory.year_simulation.year import draw_peers
from tests.unit.client.executions import make_execution

MEASURED = [make_execution(number, workload=f"job-{number % 50}") for number in range(80)]


def test_simulated_peers_share_no_workload_with_each_other_or_the_organization() -> None:
    own = {"job-1", "job-2"}
    found = draw_peers(MEASURED, members=3, workloads=10, others=own, seed=1)
    names = [{each.workload for each in every} for every in found]
    assert [len(each) for each in names] == [10, 10, 10]
    assert len(set.union(*names)) == 30
    assert not set.union(*names) & own
    assert found == draw_peers(MEASURED, members=3, workloads=10, others=own, seed=1)
    assert found != draw_peers(MEASURED, members=3, workloads=10, others=own, seed=2)


def test_simulated_peers_receive_all_executions_of_a_workload() -> None:
    (found,) = draw_peers(MEASURED, members=1, workloads=50, others=(), seed=1)
    assert sorted(each.execution_id for each in found) == sorted(
        each.execution_id for each in MEASURED
    )


def test_simulated_peers_split_scarce_workloads_evenly() -> None:
    found = draw_peers(MEASURED, members=4, workloads=1000, others={"job-0"}, seed=1)
    assert [len({each.workload for each in every}) for every in found] == [12] * 4


def test_simulated_peers_may_be_zero() -> None:
    assert draw_peers(MEASURED, members=0, workloads=10, others=(), seed=1) == ()
