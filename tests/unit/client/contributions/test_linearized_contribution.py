"""Linearized sums over an organization's executions, before any noise."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import (
    LabelledGraph,
    label_executions,
    linearized_sum,
    workload_features,
)
from fedperf_client.contributions.mechanisms import GRID_EXPONENT
from fedperf_shared.execution import Measurement
from fedperf_shared.model.architecture import Weights, standardise, weights_of
from fedperf_shared.model.linearization import (
    anchor_gradients,
    combine_gradients,
    principal_coefficients,
)
from fedperf_shared.releases.linear_queries import (
    DIRECTIONS,
    MAX_COEFFICIENT,
    LinearizedQuery,
    unit_feature_design,
)
from fedperf_shared.workflow.features import featurize
from tests.fakes.crafted_models import MODELS
from tests.fakes.linearized_queries import (
    few_anchors,
    make_linearized_query,
    standardised_outputs,
    tangent_at,
    to_weights,
)
from tests.integration.organizations.deployments import make_executions
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.pretrained_model import seeded_checkpoint

ONE = 2.0**-GRID_EXPONENT
ANCHORS = few_anchors()
GRAPHS = [featurize(each.plan, each.cluster) for each in ANCHORS]


@pytest.fixture(scope="module")
def model() -> Weights:
    return weights_of(seeded_checkpoint().arrays)


@pytest.fixture(scope="module")
def labelled() -> list[LabelledGraph]:
    return label_executions(make_executions(9, seed=4))


def summed(
    model: Weights, labelled: Sequence[LabelledGraph], question: LinearizedQuery | None = None
) -> NDArray[np.int64]:
    return linearized_sum(model, labelled, question or make_linearized_query(), ANCHORS)


def test_linearized_sum_is_unit_features_times_clipped_residuals(
    model: Weights, labelled: list[LabelledGraph]
) -> None:
    """The expectation uses `tangent_at` and `predict` with one execution per workload."""
    tangent = tangent_at(model, GRAPHS)
    features = tangent.features(model, [each.graph for each in labelled])
    measured = standardise(np.array([each.log_seconds for each in labelled]))
    residuals = measured - standardised_outputs(model, [each.graph for each in labelled])
    expected = unit_feature_design(features, 0.3).directions @ np.clip(residuals, -0.3, 0.3)
    question = make_linearized_query(clip=0.3)
    coefficients = np.zeros_like(question.coefficients)
    used = features.shape[1]
    coefficients[:, :used] = principal_coefficients(anchor_gradients(model, GRAPHS))
    found = summed(model, labelled, replace(question, coefficients=coefficients)) / ONE
    np.testing.assert_allclose(found[:used], expected, atol=1e-2)
    assert not found[used:].any()
    assert np.abs(expected).max() > 0.1


FEW = ("public start", "cancelling 300 30")
"""Models for the fast tests, one of each kind."""


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        *((name, 2) for name in FEW),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in MODELS if name not in FEW),
        *(pytest.param(name, 22, marks=pytest.mark.slow) for name in FEW),
    ],
)
def test_linearized_sum_is_exactly_additive_over_workloads(
    name: str, copies: int, labelled: list[LabelledGraph]
) -> None:
    """Sums are exact to the last grid step, also beyond one memory batch of 64 plans."""
    model, few = to_weights(MODELS[name]()), labelled[:3]
    many = [replace(each, workload=f"{each.workload} {n}") for n in range(copies) for each in few]
    together = summed(model, few)
    np.testing.assert_array_equal(summed(model, many[::-1]), copies * together)
    np.testing.assert_array_equal(sum(summed(model, [each]) for each in few), together)


def test_workload_with_many_executions_contributes_norm_at_most_one(model: Weights) -> None:
    extreme = Measurement(1e6, 0.0, 1, 0, 0)
    many = [replace(make_execution(n, workload="one"), measurement=extreme) for n in range(20)]
    many.append(make_execution(30, workload="one", plan=chain_plan(7)))
    total = summed(model, label_executions(many))
    assert 0 < np.linalg.norm(total / ONE) <= 1.0


def test_linearized_sum_without_executions_is_zero(model: Weights) -> None:
    assert summed(model, []).tolist() == [0] * DIRECTIONS


@pytest.mark.parametrize("scale", [0.0, 1e-30, MAX_COEFFICIENT / 10])
def test_linearized_sum_with_hostile_directions_stays_within_norm_one(
    model: Weights, labelled: list[LabelledGraph], scale: float
) -> None:
    for each in labelled[:2]:
        sent = summed(model, [each], make_linearized_query(scale=scale))
        assert np.linalg.norm(sent / ONE) <= 1.0
        assert sent.any() == (scale > 0)


def test_linearized_sum_of_overflowing_model_stays_within_norm_one_per_workload(
    labelled: list[LabelledGraph],
) -> None:
    arrays = [array * np.float32(1e25) for array in seeded_checkpoint().arrays.values()]
    assert not summed(arrays, labelled).any()


def test_plan_with_infinite_features_leaves_other_contributions_unchanged(
    model: Weights, labelled: list[LabelledGraph]
) -> None:
    broken = replace(labelled[0].graph)
    object.__setattr__(broken, "operators", np.full_like(broken.operators, np.inf))
    bad = replace(labelled[0], workload="bad", graph=broken)
    directions = combine_gradients(model, GRAPHS, make_linearized_query().coefficients)
    assert not np.isfinite(workload_features(model, [bad], directions)[0].features).all()
    np.testing.assert_array_equal(summed(model, [bad, *labelled]), summed(model, labelled))
