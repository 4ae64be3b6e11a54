"""Tests of NumPy inference: predictions without torch equal those of the model."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.workflow.features import Features, featurize, featurize_assignments
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_OPERATORS,
    OperatorClass,
    OperatorKind,
    Platform,
)
from fedperf_simulations.model.fit import predict
from fedperf_simulations.model.ggfn import GGFN, model_from_arrays, state_to_arrays
from tests.fakes.plans import ONE_CORE


def some_plans(count: int) -> list[Features]:
    return [featurize(each.plan, each.cluster) for each in load_public_plans()[:count]]


@pytest.mark.parametrize("count", [1, 300])
def test_numpy_inference_equals_torch_predictions(count: int) -> None:
    plans = some_plans(count)
    for checkpoint in (load_pretrained_model(), Checkpoint(state_to_arrays(GGFN(seed=3)), 1)):
        expected = predict(model_from_arrays(checkpoint.arrays), list(plans))
        np.testing.assert_allclose(
            GgfnArrays.of(checkpoint).log_seconds(plans), expected, atol=1e-4
        )


def by_torch(checkpoint: Checkpoint, plans: list[Features]) -> NDArray[np.float64]:
    graphs = list(plans)
    return np.asarray(predict(model_from_arrays(checkpoint.arrays), graphs))


def test_numpy_inference_of_many_plans_of_one_workflow_equals_torch() -> None:
    start = load_pretrained_model()
    workflow = max(load_public_plans(), key=lambda each: len(each.plan.platforms)).plan.workflow
    *others, last = workflow.operators
    twice = Workflow((*others, replace(last, inputs=(*last.inputs, *last.inputs))))  # self join
    platforms = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
    rng = np.random.default_rng(1)
    assignments = [
        tuple(platforms[column] for column in rng.integers(0, 3, len(twice.operators)))
        for _ in range(19)
    ]
    plans = featurize_assignments(twice, assignments, ONE_CORE)
    np.testing.assert_allclose(
        GgfnArrays.of(start).log_seconds(plans), by_torch(start, plans), atol=1e-4
    )


def test_numpy_inference_in_chunks_equals_inference_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, plans = load_pretrained_model(), some_plans(30)
    together = GgfnArrays.of(start).log_seconds(plans)
    monkeypatch.setattr("fedperf_shared.model.inference._PAIRS_AT_ONCE", 1)
    np.testing.assert_allclose(GgfnArrays.of(start).log_seconds(plans), together, atol=1e-5)


def test_numpy_inference_of_the_largest_plan_equals_torch() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), 1e12, 1e6)
    wide = Workflow((source,) * MAX_OPERATORS)
    plans = [featurize(Plan.on_one_platform(wide, Platform.SPARK), ONE_CORE)]
    start = load_pretrained_model()
    np.testing.assert_allclose(
        GgfnArrays.of(start).log_seconds(plans), by_torch(start, plans), atol=1e-4
    )


def test_numpy_inference_of_a_plan_is_independent_of_its_batch() -> None:
    plans, start = some_plans(40), load_pretrained_model()
    alone = [GgfnArrays.of(start).log_seconds([each])[0] for each in plans]
    np.testing.assert_allclose(GgfnArrays.of(start).log_seconds(plans), alone, atol=1e-4)


def test_numpy_inference_of_no_plans_is_empty() -> None:
    assert GgfnArrays.of(load_pretrained_model()).log_seconds([]).shape == (0,)
