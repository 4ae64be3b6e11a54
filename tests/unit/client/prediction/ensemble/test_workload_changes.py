"""Changes of a workload at an upgrade or date: detection, rescaling and false alarms."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from fedperf_client.prediction.encoding import ExecutionTable, encode_executions
from fedperf_client.prediction.ensemble.training_data import TrainingData
from fedperf_shared.execution import ClusterConfig, Execution, ExecutionMetadata, Measurement
from tests.unit.client.executions import START, chain_plan, make_execution
from tests.unit.client.prediction.synthetic import excellent

OLD, NEW = "spark 3.5.3", "spark 4.0.0"


def night(
    number: int, seconds: float, source: str = OLD, workload: str = "nightly", **changes: Any
) -> Execution:
    """Return the run of one night."""
    made = make_execution(
        number,
        workload=workload,
        measurement=Measurement(seconds),
        origin=ExecutionMetadata(source=source),
        finished_at=START + timedelta(days=number),
        **changes,
    )
    return replace(made, execution_id=f"{workload}-{number}")


def evidence(executions: Sequence[Execution]) -> TrainingData:
    ordered = sorted(executions, key=lambda each: each.finished_at)
    return TrainingData.from_table(
        ExecutionTable.from_columns(encode_executions(ordered, excellent))
    )


def levels(home: TrainingData) -> list[float]:
    """Return the rescaled seconds of all runs."""
    return [float(np.exp(each)) for each in home.log_seconds]


@pytest.mark.parametrize(("later", "ratio"), [((90, 93), 1.52), ((30, 31), 0.508), ((20,), 1 / 3)])
def test_training_data_rescales_runs_before_upgrade_to_level_since(
    later: tuple[float, ...], ratio: float
) -> None:
    before = [night(number, each) for number, each in enumerate((60, 62, 58, 61, 59))]
    since = [night(5 + number, each, NEW) for number, each in enumerate(later)]
    home = evidence([*before, *since])
    (change,) = home.summary.changes
    assert change.is_upgrade
    assert change.since == since[0].finished_at
    assert np.exp(change.change.log_ratio) == pytest.approx(ratio, rel=0.01)
    assert levels(home)[0] == pytest.approx(60 * ratio, rel=0.01)
    np.testing.assert_allclose(levels(home)[5:], later)
    np.testing.assert_allclose(sorted(home.log_seconds), sorted(home.summary.repeats.log_seconds))
    runs = {len(home.summary.repeats.runs_of(each)) for each in home.table.configuration.tolist()}
    assert runs == {len(later)}  # older runs only inform the variance of repeats


def test_training_data_detects_change_at_a_date_without_upgrade() -> None:
    times = [60, 62, 58, 61, 59, 60, 60, 61, 59, 58, 90, 93, 91, 92]
    (change,) = evidence([night(n, each) for n, each in enumerate(times)]).summary.changes
    assert not change.is_upgrade
    assert change.since == START + timedelta(days=10)
    assert (change.runs_before, change.runs_since) == (10, 4)


def test_training_data_reports_last_of_several_changes_and_rescales_for_all() -> None:
    times = [*[60, 61, 59] * 4, *[120, 122, 118] * 4, *[30, 30.5, 29.5] * 4]
    home = evidence([night(n, each) for n, each in enumerate(times)])
    (change,) = home.summary.changes
    assert change.since == START + timedelta(days=24)
    np.testing.assert_allclose(levels(home), 30, rtol=0.12)


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster": ClusterConfig(1, 1, 8_000_000_000, 1.25, 7)},
        {"cluster": ClusterConfig(1, 2, 8_000_000_000, 1.25, 0)},
        {"plan": chain_plan(5)},
    ],
    ids=["fewer cores", "first of its application", "more rows"],
)
def test_training_data_with_changed_work_or_resources_reports_no_change(
    changed: dict[str, Any],
) -> None:
    if "plan" in changed:
        plan = chain_plan()
        operators = tuple(
            replace(each, output_rows=10 * each.output_rows) for each in plan.workflow.operators
        )
        changed = {"plan": replace(plan, workflow=replace(plan.workflow, operators=operators))}
    before = [night(number, 60 + number % 3) for number in range(6)]
    since = [night(6 + number, 120 + number, NEW, **changed) for number in range(3)]
    assert evidence([*before, *since]).summary.changes == ()


def test_training_data_never_splits_runs_of_one_day() -> None:
    """Only the first runs of a session are slower, which is no change."""
    made = [night(0, each) for each in (9.0, 9.1, 9.0, 3.0, 3.1, 3.0, 3.0, 3.1)]
    moved = [
        replace(each, finished_at=START + timedelta(minutes=place), execution_id=str(place))
        for place, each in enumerate(made)
    ]
    assert evidence(moved).summary.changes == ()


@pytest.mark.parametrize("noise", [0.02, 0.4])
def test_training_data_rarely_reports_change_for_unchanged_workloads(noise: float) -> None:
    random = np.random.default_rng(4)
    runs = [
        night(number, float(np.exp(random.normal(3, noise))), OLD if number < 6 else NEW, f"w{job}")
        for job in range(120)
        for number in range(9)
    ]
    assert len(evidence(runs).summary.changes) <= 8  # about 2 % for upgrades, and 2 % for days


def test_training_data_rescales_to_old_version_if_it_runs_again() -> None:
    times = [(60, OLD), (61, OLD), (59, OLD), (90, NEW), (91, NEW), (60, OLD)]
    home = evidence([night(n, *each) for n, each in enumerate(times)])
    assert [change.is_upgrade for change in home.summary.changes] == [True]
    np.testing.assert_allclose(levels(home), 60, rtol=0.05)
