"""Tests of the training set of cost models: known workloads, and sessions with estimates."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.training_set import SESSION_FOLDERS, Measurements
from fedperf_simulations.data.datasets import MACHINE_SPEED, is_measured
from tests.unit.client.executions import make_execution


def test_training_plan_uses_sessions_with_actual_and_estimated_cardinalities() -> None:
    execution = make_execution(1, workload="shop/join/1")
    other = replace(make_execution(2), workload="shop/join/2")
    measurements = Measurements((), (), {}, 0, sessions=(execution, other))
    training_plan = measurements.training_plan(lambda workload: workload == "shop/join/1")
    plans = [execution.plan, plan_with_estimated_cardinalities(execution.plan)]
    expected = [featurize(plan, execution.cluster).operators for plan in plans]
    found = [each.features.operators for each in training_plan.queries]
    assert len(found) == 2
    for one, another in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, another)
    assert len({float(each) for each in training_plan.log_seconds}) == 1


@pytest.mark.slow
def test_measured_corpus_comes_from_one_machine_speed() -> None:
    measurements = Measurements.read(0)
    clusters = [each.cluster for each in (*measurements.executions, *measurements.sessions)]
    clusters += [each.cluster for each in (*measurements.cases, *measurements.further)]
    clusters += [each.cluster for of_one in measurements.prefixes.values() for each in of_one]
    assert {each.machine_speed for each in clusters} == {MACHINE_SPEED}
    assert all(is_measured(each) for each in SESSION_FOLDERS)
