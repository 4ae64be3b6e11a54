"""What an organization computes from its own executions, before any noise."""

from dataclasses import replace
from datetime import timedelta
from math import log

import numpy as np
import pytest
import torch

from fedperf_client.learning.private_update import (
    REHEARSED_PER_STEP,
    examples_by_workload,
    private_update,
    rehearsal_of,
)
from fedperf_client.learning.residuals import epoch_shares, labelled_graphs, workload_residuals
from fedperf_client.privacy.report_mechanism import GRID_EXPONENT, noiseless_sum
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.model.architecture import ARRAY_SHAPES, named_arrays
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import standardise
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.releases.release import TrainingParameters
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.privacy.seeded_noise import SeededNoise
from tests.unit.client.public import seeded_checkpoint

ONE_STEP = TrainingParameters(
    noise_multiplier=1.0,
    sampling_probability=1.0,
    steps=1,
    clip_norm=0.5,
    nominal_workloads=10.0,
)


def test_only_executions_with_a_run_time_are_learnt_from() -> None:
    failed = make_execution(2, status=ExecutionStatus.FAILED, measurement=None)
    capped = make_execution(3, status=ExecutionStatus.TIMEOUT)
    (only,) = labelled_graphs([make_execution(1), failed, capped])
    assert only.workload == "workload-1"
    assert only.log_seconds == pytest.approx(log(1.5))
    assert only.cell == cell_of(chain_plan()).index


def test_residuals_are_measured_minus_predicted_one_entry_per_workload() -> None:
    model = model_from_arrays(seeded_checkpoint().arrays)
    executions = [make_execution(n, workload="ab"[n % 2]) for n in range(5)]
    found = workload_residuals(model, labelled_graphs(executions))
    assert [len(each.cells) for each in found] == [3, 2]
    expected = log(0.5) - predict(model, [PlanGraph.of(executions[0].plan, executions[0].cluster)])
    assert found[0].residuals[0] == pytest.approx(expected[0])


def test_nothing_ran_gives_no_entries_and_a_report_of_the_same_size() -> None:
    model = model_from_arrays(seeded_checkpoint().arrays)
    assert workload_residuals(model, []) == ()
    assert noiseless_sum((), 1.0).shape == (2 * CELLS,)


def test_one_workload_moves_the_report_by_at_most_one_unit() -> None:
    model = model_from_arrays(seeded_checkpoint().arrays)
    extreme = Measurement(1e6, 0.0, 1, 0, 0)
    many = [replace(make_execution(n, workload="one"), measurement=extreme) for n in range(20)] + [
        make_execution(30, workload="one", plan=chain_plan(7))
    ]
    total = noiseless_sum(workload_residuals(model, labelled_graphs(many)), 1.5)
    assert 0 < np.linalg.norm(total * 2.0**GRID_EXPONENT) <= 1.0


def test_executions_of_a_workload_are_its_examples() -> None:
    labelled = labelled_graphs([make_execution(n, workload="ab"[n % 2]) for n in range(5)])
    assert [len(each) for each in examples_by_workload(labelled)] == [3, 2]
    assert examples_by_workload([]) == []


def test_epochs_of_a_workload_count_the_same_however_many_executions_they_have() -> None:
    executions = [make_execution(n, workload="one") for n in range(7)]
    starts = [executions[4].finished_at, executions[6].finished_at + timedelta(days=400)]
    labelled = labelled_graphs(executions, starts)
    assert [each.epoch for each in labelled] == [0, 0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(epoch_shares(labelled), [1 / 8] * 4 + [1 / 6] * 3)
    (examples,) = examples_by_workload(labelled)
    assert [each.share for each in examples] == epoch_shares(labelled).tolist()


def test_an_update_is_the_difference_of_weights_in_the_order_of_the_architecture() -> None:
    start = [*seeded_checkpoint().arrays.values()]
    before = [array.copy() for array in start]
    labelled = labelled_graphs([make_execution(n) for n in range(4)])
    update = private_update(start, labelled, ONE_STEP, SeededNoise(3))
    assert [array.shape for array in update] == [*ARRAY_SHAPES.values()]
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in update)
    assert all(np.array_equal(one, two) for one, two in zip(start, before, strict=True))
    assert all(array.any() for array in update)


def test_without_executions_the_update_is_noise_of_the_same_size() -> None:
    start = [*seeded_checkpoint().arrays.values()]
    update = private_update(start, [], ONE_STEP, SeededNoise(4))
    assert [array.shape for array in update] == [*ARRAY_SHAPES.values()]
    assert all(array.any() for array in update)


def test_weights_of_another_architecture_are_refused() -> None:
    with pytest.raises((InvalidInputError, ValueError)):
        private_update([np.zeros((2, 2), np.float32)], [], ONE_STEP, SeededNoise(5))


def test_rehearsal_weighs_as_much_as_the_workloads_that_a_step_is_expected_to_draw() -> None:
    rows = [
        SyntheticRow(chain_plan(), make_execution(1).cluster, float(number), Platform.POLARS)
        for number in range(150)
    ]
    parameters = replace(ONE_STEP, sampling_probability=0.25, nominal_workloads=128.0)
    rehearsal = rehearsal_of(rows, parameters)
    assert [len(each) for each in rehearsal.batches] == [50, 50, 50]
    assert rehearsal.weight == 32 / REHEARSED_PER_STEP == 0.5
    targets = sorted(example.target for batch in rehearsal.batches for example in batch)
    expected = standardise(torch.tensor([row.log_seconds for row in rows])).tolist()
    assert targets == sorted(expected)
    assert rehearsal_of([], parameters).batches == []


def test_rehearsed_rows_pull_the_update_towards_their_labels_and_need_no_noise() -> None:
    start = [*seeded_checkpoint().arrays.values()]
    execution = make_execution(1)
    row = SyntheticRow(execution.plan, execution.cluster, 5.0, Platform.POLARS)
    steps = replace(ONE_STEP, steps=5, noise_multiplier=1e-6)
    graph = PlanGraph.of(execution.plan, execution.cluster)

    def after(rehearsal: list[SyntheticRow]) -> float:
        update = private_update(start, [], steps, SeededNoise(3), rehearsal=rehearsal)
        moved = [one + two for one, two in zip(start, update, strict=True)]
        model = model_from_arrays(named_arrays(moved))
        return float(predict(model, [graph])[0])

    before = float(predict(model_from_arrays(seeded_checkpoint().arrays), [graph])[0])
    assert before < after([row]) < 5.0
    assert abs(after([row]) - 5.0) < abs(after([]) - 5.0)
