"""Tests of linearized steps: they follow the released sums as far as their noise permits."""

import numpy as np
import pytest
import torch

from fedperf_server.rounds.linearized_avg import (
    CAUTION,
    MAX_LINEARIZATION_ERROR,
    WEIGHT_SDS,
    LinearizedSum,
    next_step,
    reliable_step,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import Weights, weights_of
from fedperf_shared.model.linearization import Tangent
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.releases.linear_queries import unit_feature_design
from fedperf_shared.releases.release import InvalidReleaseError
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.influence_bounds import step_bound
from tests.fakes.linearized_queries import standardised_outputs, tangent_at
from tests.fakes.plans import ONE_CORE, diamond

DIRECTIONS = 6
CLIP = 0.5
STEP = np.array([0.2, -0.1, 0.15, 0.0, -0.2, 0.1])


def a_tangent(seed: int = 0) -> Tangent:
    rng = np.random.default_rng(seed)
    anchors = rng.standard_normal((200, DIRECTIONS))
    return Tangent(torch.eye(DIRECTIONS), np.full(DIRECTIONS, 3.0), anchors)


def a_sum(workloads: int, *, noise: float, step: np.ndarray = STEP, seed: int = 1) -> LinearizedSum:
    """Return the sum of an organization whose model is off by `step` and by random error."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((workloads, DIRECTIONS))
    residuals = features @ step + 0.15 * rng.standard_normal(workloads)
    design = unit_feature_design(features, CLIP)
    total = design.directions @ np.clip(residuals, -CLIP, CLIP)
    return LinearizedSum(total + noise * rng.standard_normal(DIRECTIONS), workloads, noise)


def direction_error(found: np.ndarray) -> float:
    """Return the distance between the normalized step that was found and the true direction."""
    return float(np.linalg.norm(found / np.linalg.norm(found) - STEP / np.linalg.norm(STEP)))


def test_next_step_with_strong_signal_follows_the_true_direction() -> None:
    found = next_step(a_tangent(), [a_sum(2000, noise=1.0)], clip=CLIP)
    assert direction_error(found) < 0.15
    assert 1 / CAUTION < np.linalg.norm(found) / np.linalg.norm(STEP) < 1


def test_next_step_error_decreases_with_more_organizations() -> None:
    def error(senders: int) -> float:
        sums = [a_sum(100, noise=8.0, seed=seed) for seed in range(senders)]
        return direction_error(next_step(a_tangent(), sums, clip=CLIP))

    assert error(30) < 0.5 * error(1)


def test_next_step_from_noise_dominated_or_missing_sums_is_near_zero() -> None:
    quiet = [a_sum(2, noise=1000.0, seed=seed) for seed in range(20)]
    assert np.linalg.norm(next_step(a_tangent(), quiet, clip=CLIP)) < 0.01
    assert not next_step(a_tangent(), [], clip=CLIP).any()


def test_next_step_shrinks_as_declared_noise_grows() -> None:
    lengths = []
    for noise in (1.0, 300.0, 3000.0):
        told = LinearizedSum(a_sum(500, noise=1e-9).values, 500, noise)
        lengths.append(float(np.linalg.norm(next_step(a_tangent(), [told], clip=CLIP))))
    assert lengths[0] > 1.5 * lengths[1] > 3 * lengths[2]


@pytest.mark.parametrize("lie", [1e9, -1e9, 50.0])
def test_next_step_malicious_organization_changes_it_within_step_bound(lie: float) -> None:
    tangent = a_tangent()
    honest = [a_sum(300, noise=5.0, seed=seed) for seed in range(4)]
    lying = [LinearizedSum(np.full(DIRECTIONS, lie), 300, 5.0), *honest[1:]]
    moved = next_step(tangent, lying, clip=CLIP) - next_step(tangent, honest, clip=CLIP)
    reached = float(np.linalg.norm(moved / tangent.lengths))
    bound = step_bound(tangent, honest, 0, clip=CLIP)
    assert 0 < reached <= bound
    assert bound < 1


@pytest.fixture(scope="module")
def model() -> Weights:
    return weights_of(load_pretrained_model().arrays)


@pytest.fixture(scope="module")
def anchors() -> list[Features]:
    platforms = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
    return [
        featurize(diamond(platform, 10.0**size), ONE_CORE)
        for platform in platforms
        for size in (2, 3, 4, 5, 6, 7)
    ]


def mistold(model: Weights, anchors: list[Features], tangent: Tangent, step: np.ndarray) -> float:
    told = tangent.anchors @ step
    after = standardised_outputs(tangent.step(model, step), anchors)
    done = after - standardised_outputs(model, anchors)
    return float(np.linalg.norm(done - told) / np.linalg.norm(told))


def test_reliable_step_keeps_linearization_error_below_the_limit(
    model: Weights, anchors: list[Features]
) -> None:
    tangent = tangent_at(model, anchors)
    loud = np.random.default_rng(0).standard_normal(len(tangent.lengths))
    sums = [LinearizedSum(500 * loud / np.linalg.norm(loud), 2000, 0.01)]
    free = next_step(tangent, sums, clip=CLIP)
    assert (
        mistold(model, anchors, tangent, free) > MAX_LINEARIZATION_ERROR
    )  # otherwise the test is vacuous
    step = reliable_step(model, anchors, tangent, sums, clip=CLIP)
    assert 0 < mistold(model, anchors, tangent, step) <= MAX_LINEARIZATION_ERROR
    steps = [next_step(tangent, sums, clip=CLIP, weight_sd=each) for each in WEIGHT_SDS]
    assert any(np.array_equal(step, each) for each in steps)


def test_reliable_step_with_nearly_noise_free_sums_respects_linearization_limit(
    model: Weights, anchors: list[Features]
) -> None:
    tangent = tangent_at(model, anchors)
    loud = np.random.default_rng(0).standard_normal(len(tangent.lengths))
    sums = [LinearizedSum(1e6 * loud / np.linalg.norm(loud), 1e6, 1e-3)]
    step = reliable_step(model, anchors, tangent, sums, clip=CLIP)
    assert step.any()
    assert mistold(model, anchors, tangent, step) <= MAX_LINEARIZATION_ERROR


@pytest.mark.parametrize("lie", [1e9, -1e9, 300.0])
def test_reliable_step_length_is_at_most_half_the_sum_of_step_bounds(
    model: Weights, anchors: list[Features], lie: float
) -> None:
    tangent = tangent_at(model, anchors)
    size = len(tangent.lengths)
    honest = LinearizedSum(np.full(size, 20.0), 300, 5.0)
    sums = [LinearizedSum(np.full(size, lie), 300, 5.0), honest]
    step = reliable_step(model, anchors, tangent, sums, clip=CLIP)
    bounds = [step_bound(tangent, sums, sender, clip=CLIP) for sender in (0, 1)]
    assert float(np.linalg.norm(step / tangent.lengths)) <= sum(bounds) / 2


def test_reliable_step_equals_next_step_if_small_and_is_zero_without_sums(
    model: Weights, anchors: list[Features]
) -> None:
    tangent = tangent_at(model, anchors)
    quiet = [LinearizedSum(tangent.anchors.sum(0) / 100, 2000, 1000.0)]
    step = reliable_step(model, anchors, tangent, quiet, clip=CLIP)
    np.testing.assert_array_equal(step, next_step(tangent, quiet, clip=CLIP))
    assert not reliable_step(model, anchors, tangent, [], clip=CLIP).any()


def test_linearized_sum_with_invalid_values_or_parameters_is_refused() -> None:
    with pytest.raises(InvalidReleaseError, match="not finite"):
        LinearizedSum(np.array([np.nan]), 10, 1.0)
    for workloads, noise in ((0, 1.0), (10, 0.0), (float("inf"), 1.0), (10, float("nan"))):
        with pytest.raises(ConfigurationError, match="positive and finite"):
            LinearizedSum(np.zeros(DIRECTIONS), workloads, noise)
    with pytest.raises(InvalidReleaseError, match="shape"):
        next_step(a_tangent(), [LinearizedSum(np.zeros(2), 10, 1.0)], clip=CLIP)
    with pytest.raises(ConfigurationError, match="clip"):
        next_step(a_tangent(), [], clip=0.0)
