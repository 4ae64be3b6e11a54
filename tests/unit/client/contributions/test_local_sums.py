"""Labelled executions and residuals of an organization, before any noise."""

from dataclasses import replace
from datetime import timedelta
from math import log

import numpy as np
import pytest

from fedperf_client.contributions.local_sums import (
    label_executions,
    regime_shares,
    workload_residuals,
)
from fedperf_client.contributions.mechanisms import GRID_EXPONENT, sum_residuals
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.workflow.features import featurize
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.pretrained_model import seeded_checkpoint


def test_label_executions_drops_runs_without_a_complete_runtime() -> None:
    failed = make_execution(2, status=ExecutionStatus.FAILED, measurement=None)
    capped = make_execution(3, status=ExecutionStatus.TIMEOUT)
    (only,) = label_executions([make_execution(1), failed, capped])
    assert only.workload == "workload-1"
    assert only.log_seconds == pytest.approx(log(1.5))
    assert only.cell == cell_of(chain_plan()).index


def test_workload_residuals_are_log_measured_minus_predicted_per_workload() -> None:
    model = GgfnArrays.of(seeded_checkpoint())
    executions = [make_execution(n, workload="ab"[n % 2]) for n in range(5)]
    found = workload_residuals(model, label_executions(executions))
    assert [len(each.cells) for each in found] == [3, 2]
    expected = log(0.5) - model.log_seconds([featurize(executions[0].plan, executions[0].cluster)])
    assert found[0].residuals[0] == pytest.approx(expected[0])


def test_no_executions_give_empty_residuals_and_report_of_same_size() -> None:
    model = GgfnArrays.of(seeded_checkpoint())
    assert workload_residuals(model, []) == ()
    assert sum_residuals((), 1.0).shape == (2 * CELLS,)


def test_workload_moves_the_residual_sum_by_at_most_one() -> None:
    model = GgfnArrays.of(seeded_checkpoint())
    extreme = Measurement(1e6, 0.0, 1, 0, 0)
    many = [replace(make_execution(n, workload="one"), measurement=extreme) for n in range(20)] + [
        make_execution(30, workload="one", plan=chain_plan(7))
    ]
    total = sum_residuals(workload_residuals(model, label_executions(many)), 1.5)
    assert 0 < np.linalg.norm(total * 2.0**GRID_EXPONENT) <= 1.0


def test_regime_shares_weight_drift_regimes_of_a_workload_equally() -> None:
    executions = [make_execution(n, workload="one") for n in range(7)]
    starts = [executions[4].finished_at, executions[6].finished_at + timedelta(days=400)]
    labelled = label_executions(executions, starts)
    assert [each.regime for each in labelled] == [0, 0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(regime_shares(labelled), [1 / 8] * 4 + [1 / 6] * 3)
