"""Bounded influence of one workload on a linearized update, and the noise of the update."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from fedperf_client.contributions import mechanisms
from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    WorkloadFeatures,
    noisy,
    sum_features,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.linear_queries import DIRECTIONS, Design, public_design
from fedperf_shared.releases.release import (
    LinearizedParameters,
    LinearizedUpdate,
    ReleaseKind,
    Slot,
    SlotKey,
)
from tests.unit.client.contributions.seeded_noise import NoNoise, SeededNoise

ONE = 2.0**-GRID_EXPONENT
SLOT = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)

anything = st.floats(width=64, allow_nan=True, allow_infinity=True)
few_numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-300, -1e300, np.nan, np.inf, -np.inf, 0.1])


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadFeatures:
    """Draw any features and residuals, as from a hostile model, query or history."""
    executions = draw(st.integers(0, 4))
    numbers = draw(st.sampled_from([anything, few_numbers]))
    features = draw(arrays.arrays(np.float64, (executions, DIRECTIONS), elements=numbers))
    residuals = draw(arrays.arrays(np.float64, executions, elements=anything))
    shares = arrays.arrays(np.float64, executions, elements=anything)
    return WorkloadFeatures(features, residuals, draw(st.none() | shares))


def norm(steps: NDArray[np.int64]) -> float:
    return float(np.sqrt(sum(int(each) ** 2 for each in steps)))


@given(workloads(), st.floats(1e-3, 1e2))
def test_feature_vector_of_any_workload_has_norm_at_most_one(
    workload: WorkloadFeatures, clip: float
) -> None:
    assert norm(sum_features([workload], clip)) <= ONE


@given(st.lists(workloads(), max_size=3), workloads())
def test_sum_features_with_one_more_workload_moves_by_its_vector(
    others: list[WorkloadFeatures], one: WorkloadFeatures
) -> None:
    moved = sum_features([*others, one], 0.5) - sum_features(others, 0.5)
    np.testing.assert_array_equal(moved, sum_features([one], 0.5))


def test_feature_vector_reaches_its_norm_bound_for_long_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound is reached, so anything longer breaks it and counts zero."""
    features = np.random.default_rng(1).standard_normal((1, DIRECTIONS))
    workload = WorkloadFeatures(features, np.array([9.0]))
    assert (1 - 1e-5) * ONE < norm(sum_features([workload], 0.5)) <= ONE

    def as_long_as_they_are(features: NDArray[np.float64], clip: float) -> Design:
        return public_design(features.T / clip, np.full(len(features), clip))

    monkeypatch.setattr(mechanisms, "unit_feature_design", as_long_as_they_are)
    assert norm(sum_features([workload], 0.5)) == 0
    short = replace(workload, features=features / np.linalg.norm(features) / 2)
    assert norm(sum_features([short], 0.5)) == pytest.approx(ONE / 2, rel=1e-4)


def test_feature_vector_is_mean_of_unit_features_times_clipped_residuals() -> None:
    features = np.random.default_rng(2).standard_normal((3, DIRECTIONS))
    residuals = np.array([0.2, -0.1, 7.0])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    expected = (unit * np.array([0.4, -0.2, 1.0])[:, None]).mean(0)
    found = sum_features([WorkloadFeatures(features, residuals)], 0.5)
    np.testing.assert_allclose(found / ONE, expected, atol=2e-6)


def test_feature_vector_weights_executions_by_shares_and_refuses_invalid_ones() -> None:
    features = np.random.default_rng(2).standard_normal((2, DIRECTIONS))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    shares = np.array([0.75, 0.25])
    found = sum_features([WorkloadFeatures(features, np.full(2, 9.0), shares)], 0.5)
    np.testing.assert_allclose(found / ONE, shares @ unit, atol=2e-6)
    for wrong in (2 * shares, -shares, np.array([1.5, -0.5]), shares[:1], np.full(2, np.nan)):
        assert not sum_features([WorkloadFeatures(features, np.full(2, 9.0), wrong)], 0.5).any()


def test_feature_vector_ignores_non_finite_executions_and_counts_the_rest() -> None:
    features = np.ones((3, DIRECTIONS))
    features[0, 5] = np.nan
    workload = WorkloadFeatures(features, np.array([1.0, np.nan, 1.0]))
    expected = sum_features([WorkloadFeatures(np.ones((1, DIRECTIONS)), np.array([1.0]))], 3.0)
    np.testing.assert_allclose(sum_features([workload], 1.0), expected, atol=1)


@pytest.mark.parametrize(
    "features",
    [np.ones((2, DIRECTIONS)), np.ones((1, DIRECTIONS + 1)), np.ones(DIRECTIONS), np.ones((1, 0))],
)
def test_feature_vector_of_wrong_shape_is_zero(features: NDArray[np.float64]) -> None:
    assert not sum_features([WorkloadFeatures(features, np.ones(1))], 0.5).any()


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf, 1e300, 2.0**40, 1.5])
def test_sum_with_a_vector_beyond_its_bound_counts_it_as_zero(
    monkeypatch: pytest.MonkeyPatch, entry: float
) -> None:
    vector = np.zeros(DIRECTIONS)
    vector[3] = entry
    monkeypatch.setattr(mechanisms, "_mean_vector", lambda *_: vector)
    workload = WorkloadFeatures(np.ones((1, DIRECTIONS)), np.ones(1))
    assert not np.any(sum_features([workload], 1.0))


def update(noise: Any, total: NDArray[np.int64]) -> NDArray[np.int64]:
    parameters = LinearizedParameters(20.0, 2000)
    made = noisy(total, noise, Slot(SLOT, parameters), version=3)
    assert isinstance(made, LinearizedUpdate)
    assert (made.slot, made.base_version, made.grid_exponent) == (SLOT, 3, GRID_EXPONENT)
    return made.values


def test_linearized_update_is_its_sum_plus_noise_of_the_declared_scale() -> None:
    total = np.arange(DIRECTIONS, dtype=np.int64)
    np.testing.assert_array_equal(update(NoNoise(), total), total)
    drawn = SeededNoise(3).discrete_gaussian(DIRECTIONS, 20.0 * ONE)
    np.testing.assert_array_equal(update(SeededNoise(3), total), total + drawn)


def test_linearized_update_with_noise_outside_the_grid_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="grid"):
        noisy(
            sum_features((), 0.5),
            NoNoise(),
            Slot(SLOT, LinearizedParameters(1e-9, 1.0)),
            version=1,
        )
