"""Tests of the linearized model: a tangent predicts output changes from public inputs alone."""

import numpy as np
import pytest
import torch

from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights, weights_of
from fedperf_shared.model.linearization import (
    STRETCH_RIDGE,
    InvalidLinearizationError,
    Tangent,
    anchor_gradients,
    combine_gradients,
    directional_derivatives,
    principal_coefficients,
)
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.linearized_queries import standardised_outputs, tangent_at
from tests.fakes.plans import ONE_CORE, diamond

PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def graphs(sizes: list[float]) -> list[Features]:
    return [
        featurize(diamond(platform, rows), ONE_CORE) for platform in PLATFORMS for rows in sizes
    ]


@pytest.fixture(scope="module")
def model() -> Weights:
    return weights_of(load_pretrained_model().arrays)


@pytest.fixture(scope="module")
def tangent(model: Weights) -> Tangent:
    return tangent_at(model, graphs([1e3, 1e4, 1e5, 1e6]), directions=8)


def test_tangent_features_predict_output_change_of_a_small_step(
    model: Weights, tangent: Tangent
) -> None:
    asked, tiny = graphs([3e3, 3e5]), 1e-4
    features = tangent.features(model, asked)
    for direction in range(len(tangent.lengths)):
        step = np.zeros(len(tangent.lengths))
        step[direction] = tiny
        moved = standardised_outputs(tangent.step(model, step), asked) - standardised_outputs(
            model, asked
        )
        # The median, because a plan may lie at a kink of the layers.
        assert np.median(np.abs(moved / tiny - features[:, direction])) < 0.05
    assert np.abs(features).max() > 1


def test_tangent_step_keeps_recurrent_layers_and_the_input_model_unchanged(
    model: Weights, tangent: Tangent
) -> None:
    before = [array.copy() for array in model]
    after = tangent.step(model, np.full(len(tangent.lengths), 0.1))
    for name, old, array, new in zip(ARRAY_SHAPES, before, model, after, strict=True):
        np.testing.assert_array_equal(array, old)
        assert np.array_equal(new, array) == name.startswith("recurrent.")


def test_tangent_anchor_features_match_their_plans_and_are_scaled_per_direction(
    model: Weights, tangent: Tangent
) -> None:
    found = tangent.features(model, graphs([1e3, 1e4, 1e5, 1e6]))
    assert tangent.anchors == pytest.approx(found, abs=1e-3)
    squares = np.mean(tangent.anchors**2, axis=0)
    assert squares.max() <= 1
    strengths = squares * tangent.lengths**2
    assert squares == pytest.approx(
        strengths / (strengths + STRETCH_RIDGE * strengths[0]), abs=2e-3
    )


def test_tangent_directions_scaled_by_lengths_are_orthonormal(tangent: Tangent) -> None:
    directions = tangent.directions.double().numpy() * tangent.lengths
    assert directions.T @ directions == pytest.approx(np.eye(len(tangent.lengths)), abs=1e-3)


def test_tangent_has_at_most_as_many_directions_as_distinct_anchors(model: Weights) -> None:
    twice = [*graphs([1e3])[:1], *graphs([1e3])[:1]]
    assert len(tangent_at(model, twice).lengths) == 1


def test_tangent_is_rebuilt_from_gradients_and_coefficients(
    model: Weights, tangent: Tangent
) -> None:
    anchors = graphs([1e3, 1e4, 1e5, 1e6])
    gradients = anchor_gradients(model, anchors)
    coefficients = principal_coefficients(gradients, directions=8)
    assert coefficients.shape == (len(anchors), 8)
    again = Tangent.build(gradients, coefficients)
    assert torch.equal(again.directions, tangent.directions)
    assert again.lengths == pytest.approx(tangent.lengths)
    in_little_memory = combine_gradients(model, anchors, coefficients).numpy()
    np.testing.assert_allclose(in_little_memory, tangent.directions.numpy(), rtol=0, atol=1e-4)


def test_directional_derivatives_match_the_tangent_and_ignore_other_plans(
    model: Weights, tangent: Tangent
) -> None:
    asked = graphs([3e3, 3e5])
    outputs, features = directional_derivatives(model, asked, tangent.directions)
    assert outputs == pytest.approx(standardised_outputs(model, asked), abs=1e-5)
    np.testing.assert_allclose(features, tangent.features(model, asked), atol=1e-5)
    for place in range(len(asked)):
        output, feature = directional_derivatives(
            model, asked[place : place + 1], tangent.directions
        )
        assert output[0] == outputs[place]
        np.testing.assert_array_equal(feature[0], features[place])
    assert directional_derivatives(model, [], tangent.directions)[1].shape == (0, 8)


def test_tangent_without_anchors_or_with_invalid_step_is_refused(
    model: Weights, tangent: Tangent
) -> None:
    with pytest.raises(InvalidLinearizationError, match="anchor"):
        tangent_at(model, [])
    for step in (np.zeros(1), np.full(len(tangent.lengths), np.nan)):
        with pytest.raises(InvalidLinearizationError, match="finite numbers"):
            tangent.step(model, step)


def test_tangent_of_model_with_nonfinite_gradients_is_refused(model: Weights) -> None:
    broken = [
        np.full_like(array, 3e38) if name == "dense.0.weight" else array
        for name, array in zip(ARRAY_SHAPES, model, strict=True)
    ]
    with pytest.raises(InvalidLinearizationError, match="not finite"):
        tangent_at(broken, graphs([1e3])[:1])
