"""Performance regressions: detection by size and number of runs, and reported changes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fedperf_client.prediction.serving.regressions import (
    RegressionStatus,
    TimedRun,
    WorkloadComparison,
    compare_workloads,
    runs_by_workload,
    split_at,
    split_by_newest_source,
)
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    Measurement,
)
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import START, chain_plan, make_execution


def ran(seconds: float, number: int = 0, **changes: object) -> Execution:
    measured = Measurement(seconds)
    changes = {"workload": "nightly", "measurement": measured, **changes}
    return make_execution(number, **changes)  # type: ignore[arg-type]


def runs_of(*executions: Execution) -> list[TimedRun]:
    return [TimedRun.of(each) for each in executions]


def compared(before: Sequence[float], after: Sequence[float]) -> WorkloadComparison:
    pair = runs_of(*map(ran, before)), runs_of(*map(ran, after))
    ((found,), alone) = compare_workloads({"nightly": pair})
    assert alone == []
    return found


def test_compare_workloads_detects_large_change_from_one_later_run() -> None:
    found = compared([4.0, 4.1, 3.9, 4.0], [120.0])
    assert found.status is RegressionStatus.SLOWER
    assert found.ratio == pytest.approx(30)
    assert found.change.ratio_interval[0] > 2
    assert found.lost_seconds == pytest.approx(116.0)
    assert compared([4.0], [120.0]).status is RegressionStatus.SLOWER


def test_compare_workloads_finds_large_change_among_variable_workloads() -> None:
    draw = np.random.default_rng(1)
    pairs = {
        f"noisy-{number}": (
            runs_of(*map(ran, np.exp(draw.normal(0, 0.6, 6)))),
            runs_of(*map(ran, np.exp(draw.normal(0, 0.6, 6)))),
        )
        for number in range(20)
    }
    pairs["nightly"] = runs_of(*map(ran, [4.0, 4.1, 3.9, 4.0])), runs_of(ran(120.0))
    found, _ = compare_workloads(pairs)
    assert [each.workload for each in found if each.status is RegressionStatus.SLOWER] == [
        "nightly"
    ]
    assert found[0].workload == "nightly"


def test_compare_workloads_reports_no_slowdown_within_repeat_variance() -> None:
    assert compared([4.0, 5.0, 4.5, 6.0], [5.0, 4.6, 5.5]).status is RegressionStatus.NO_DIFFERENCE
    assert compared([4.0], [5.0]).status is RegressionStatus.TOO_FEW
    assert compared([4.0, 4.1, 3.9], [0.4]).status is RegressionStatus.FASTER


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (5, 5), (20, 3)])
def test_compare_workloads_calls_about_one_percent_of_unchanged_slower(
    before: int, after: int
) -> None:
    draw, count = np.random.default_rng(7), 400
    pairs = {
        str(number): (
            runs_of(*map(ran, np.exp(draw.normal(0, 0.2, before)))),
            runs_of(*map(ran, np.exp(draw.normal(0, 0.2, after)))),
        )
        for number in range(count)
    }
    found, _ = compare_workloads(pairs)
    slower = sum(each.status is RegressionStatus.SLOWER for each in found)
    assert slower + sum(each.status is RegressionStatus.FASTER for each in found) > 0
    assert slower <= 0.01 * count + 3 * (0.01 * count) ** 0.5


def test_compare_workloads_with_highly_variable_repeats_reports_no_difference() -> None:
    assert compared([1, 10, 1, 10, 2, 7], [30, 25]).status is RegressionStatus.NO_DIFFERENCE


def test_compare_workloads_detects_half_longer_runs_if_repeats_agree() -> None:
    assert compared([4.0, 4.05, 3.95, 4.0], [6.0, 6.1]).status is RegressionStatus.SLOWER


def test_workload_comparison_lists_other_changes() -> None:
    old = ran(4.0, plan=chain_plan(3), cluster=ClusterConfig(1, 4, 1000, queries_before=5))
    new = ran(9.0, plan=chain_plan(5), cluster=ClusterConfig(1, 16, 1000))
    failed = replace(new, status=ExecutionStatus.FAILED, measurement=None)
    pair = runs_of(old), runs_of(failed, new)
    ((found,), _) = compare_workloads({"nightly": pair})
    assert found.other_changes == [
        "cores 4 to 16",
        "first query of its application now",
        "+2 map",
        "failed 0 to 1",
    ]


def test_workload_comparison_lists_engine_version_first() -> None:
    old, new = (ran(10.0, n, origin=ExecutionMetadata(source=f"spark 3.{n}.1")) for n in (1, 2))
    ((found,), _) = compare_workloads({"nightly": (runs_of(old), runs_of(new))})
    assert found.other_changes[0] == "spark 3.1.1 to spark 3.2.1"


def test_compare_workloads_sorts_by_lost_time_and_lists_unmatched_workloads() -> None:
    pairs = {
        "small": (runs_of(*map(ran, [1, 1, 1])), runs_of(*map(ran, [9, 9]))),
        "large": (runs_of(*map(ran, [100, 100, 100])), runs_of(*map(ran, [300, 300]))),
        "gone": (runs_of(ran(1)), runs_of()),
    }
    found, alone = compare_workloads(pairs)
    assert [each.workload for each in found] == ["large", "small"]
    assert alone == ["gone"]


def test_runs_are_split_by_timestamp_or_by_newest_source_version() -> None:
    runs = runs_of(
        *(
            ran(1.0, number, origin=ExecutionMetadata(source=source))
            for number, source in enumerate(["spark 3.4", "spark 3.5", "spark 3.4", "spark 3.5"])
        )
    )
    before, after = split_at(runs, START + timedelta(seconds=1))
    assert (list(before), list(after)) == (runs[:1], runs[1:])
    before, after = split_by_newest_source(runs)
    assert {each.source for each in before} == {"spark 3.4"}
    assert {each.source for each in after} == {"spark 3.5"}


def test_runs_by_workload_separates_platforms() -> None:
    found = runs_by_workload(
        [ran(1.0), ran(9.0, plan=chain_plan(platform=Platform.SPARK)), ran(1.0, workload="other")]
    )
    assert sorted(found) == ["nightly on duckdb", "nightly on spark", "other"]
