"""Tests of local predictions of jobs that ran before, on synthetic runs."""

import pytest

from fedperf_shared.execution import ExecutionMetadata
from fedperf_simulations.experiments.intervals import own_runs
from fedperf_simulations.experiments.intervals.own_runs import (
    ALONE_UNKNOWN,
    ALONE_WITH_ROWS,
    LEFT_OUT,
    predictions_for,
    rows_of,
    targets_of,
)
from tests.unit.client.executions import chain_plan, make_execution


def test_local_prediction_from_a_single_execution_meets_all_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_runs, "measured_here", list)
    unknown = ExecutionMetadata(rows_known=0.0, description="count at job.py:1")
    executions = [
        make_execution(0),
        make_execution(60, origin=unknown),
        make_execution(7, plan=chain_plan(1), origin=unknown),
    ]
    rows = rows_of(own_runs._alone(executions))
    assert [each["situation"] for each in rows] == [ALONE_WITH_ROWS, ALONE_UNKNOWN]
    judged = [each for each in targets_of([], rows) if "alone, rows" in each.what]
    assert len(judged) == 6
    assert all(each.holds for each in judged)


def test_leave_one_out_prediction_is_made_from_the_other_runs() -> None:
    executions = [make_execution(n, workload="often") for n in (10, 11, 12)]
    [first] = predictions_for(executions[1:], executions[:1])
    assert first.median_seconds == pytest.approx(12.0, rel=0.1)
    rows = [
        own_runs._row(
            LEFT_OUT, each, predictions_for([e for e in executions if e is not each], [each])[0]
        )
        for each in executions
    ]
    assert rows_of(rows)[0]["covered"] == 1.0
