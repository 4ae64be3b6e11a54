"""Answers without torch are those of the model."""

import numpy as np
import pytest

from fedperf_shared.model.batching import PlanGraph
from fedperf_shared.model.checkpoint import Checkpoint, model_from_arrays, state_to_arrays
from fedperf_shared.model.fitting import predict
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.inference import predict_log_seconds
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.model.public_start import load_public_start
from fedperf_shared.workflow.features import Features, featurize


def some_plans(count: int) -> list[Features]:
    return [featurize(each.plan, each.cluster) for each in load_public_plans()[:count]]


@pytest.mark.parametrize("count", [1, 300])
def test_answers_are_those_of_torch(count: int) -> None:
    plans = some_plans(count)
    for checkpoint in (load_public_start(), Checkpoint(state_to_arrays(GGFN(seed=3)), 1)):
        expected = predict(
            model_from_arrays(checkpoint.arrays), [PlanGraph.from_features(each) for each in plans]
        )
        np.testing.assert_allclose(predict_log_seconds(checkpoint, plans), expected, atol=1e-4)


def test_a_plan_is_answered_alike_alone_and_among_others() -> None:
    plans, start = some_plans(40), load_public_start()
    alone = [predict_log_seconds(start, [each])[0] for each in plans]
    np.testing.assert_allclose(predict_log_seconds(start, plans), alone, atol=1e-4)


def test_no_plans_get_no_answers() -> None:
    assert predict_log_seconds(load_public_start(), []).shape == (0,)
