import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.linear_queries import InvalidDesignError
from fedperf_shared.releases.release import (
    DirectedReport,
    InvalidReleaseError,
    ReleaseKind,
    SlotKey,
)
from fedperf_simulations.federation.latent_points import (
    HiddenStage,
    PublicBox,
    clip_over,
    feature_design,
    feature_map,
    learn_hidden,
)

Floats = NDArray[np.float64]

POINTS = 60
RECORD = 0.003

ANY_FEATURES = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e6, 1e6)
)


def a_box(seed: int = 0) -> tuple[GaussianPosterior, PublicBox]:
    """Return a prior of a truth that is linear in two features, with small deviations."""
    features = np.random.default_rng(seed).uniform(-1, 1, (POINTS, 2))
    covariance = 0.3 + 0.5 * features @ features.T + 0.001 * np.eye(POINTS)
    return GaussianPosterior(np.zeros(POINTS), covariance), PublicBox(np.arange(POINTS), features)


def an_answer(
    features: Floats, residuals: Floats, stage: HiddenStage, rng: np.random.Generator
) -> DirectedReport:
    design = feature_design(features, stage.clip, offset_share=stage.offset_share)
    sums = np.concatenate([design.offsets.sum(axis=1), design.directions @ residuals])
    noisy = sums + stage.noise_multiplier * rng.standard_normal(len(sums))
    steps = np.round(np.ldexp(noisy, 20)).astype(np.int64)
    return DirectedReport(SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0), 1, -20, steps)


def error_after(stage: HiddenStage, *, declared: float, corner: bool, seed: int) -> float:
    """Return the mean error at workloads that lie in a corner of the box or all over it."""
    rng = np.random.default_rng(seed)
    belief, box = a_box(seed)
    truth = np.array([0.5, -0.7, 0.3])
    places = rng.uniform(0.6 if corner else -1.0, 1.0, (80, 2))
    seconds = np.column_stack([np.ones(80), places]) @ truth
    asked = np.column_stack([np.ones(POINTS), box.features]) @ truth
    report = an_answer(places, seconds, stage, rng)
    after = learn_hidden(belief, box, [[(stage, report)]], [declared], record_variance=RECORD)
    there = np.all(box.features > (0.3 if corner else -1.0), axis=1)
    return float(np.abs(after.posterior.mean - asked)[there].mean())


def test_latent_query_learns_a_linear_truth_from_spread_workloads() -> None:
    stage = HiddenStage(clip=2.0, offset_share=0.3, noise_multiplier=0.05)
    assert error_after(stage, declared=75, corner=False, seed=1) < 0.05


def test_latent_query_with_products_locates_workloads_in_a_corner() -> None:
    with_products = HiddenStage(clip=2.0, offset_share=0.3, noise_multiplier=0.05)
    without = HiddenStage(clip=2.0, offset_share=0.0, noise_multiplier=0.05)
    errors = [
        np.mean([error_after(stage, declared=75, corner=True, seed=seed) for seed in range(5)])
        for stage in (with_products, without)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_latent_query_with_products_corrects_a_wrong_declared_count() -> None:
    stage = HiddenStage(clip=2.0, offset_share=0.3, noise_multiplier=0.05)
    assert error_after(stage, declared=40, corner=False, seed=2) < 0.05


def test_latent_query_dominated_by_noise_keeps_the_prior() -> None:
    rng = np.random.default_rng(3)
    belief, box = a_box()
    stage = HiddenStage(clip=1.0, offset_share=0.3, noise_multiplier=1e4)
    report = an_answer(np.zeros((1, 2)), np.zeros(1), stage, rng)
    after = learn_hidden(belief, box, [[(stage, report)]], [50], record_variance=RECORD)
    assert np.abs(after.posterior.mean).max() < 0.05


def test_latent_query_later_stage_uses_locations_from_earlier_stages() -> None:
    rng = np.random.default_rng(4)
    belief, box = a_box()
    places = rng.uniform(0.6, 1.0, (80, 2))
    seconds = 0.4 * np.ones(80)
    first = HiddenStage(clip=2.0, offset_share=0.5, noise_multiplier=0.05)
    second = HiddenStage(clip=2.0, offset_share=0.0, noise_multiplier=0.05)
    told = [(first, an_answer(places, seconds, first, rng))]
    newest = (second, an_answer(places, seconds, second, rng))
    errors = []
    for answers in ([[*told, newest]], [[newest]]):
        after = learn_hidden(belief, box, answers, [80], record_variance=RECORD).posterior
        nearby = np.all(box.features > 0.3, axis=1)
        errors.append(float(np.abs(after.mean - 0.4)[nearby].mean()))
    assert errors[0] < errors[1]


def test_clip_over_box_is_kappa_times_the_mean_standard_deviation() -> None:
    belief, box = a_box()
    expected = 3 * math.sqrt(np.diag(belief.covariance).mean() + RECORD)
    assert clip_over(belief, box, kappa=3.0, record_variance=RECORD) == pytest.approx(expected)


def test_latent_response_of_wrong_length_is_refused() -> None:
    belief, box = a_box()
    asked = HiddenStage(clip=1.0, offset_share=0.3, noise_multiplier=1.0)
    other = HiddenStage(clip=1.0, offset_share=0.0, noise_multiplier=1.0)
    report = an_answer(np.zeros((1, 2)), np.zeros(1), other, np.random.default_rng(5))
    with pytest.raises(InvalidReleaseError, match="its stage 9 values"):
        learn_hidden(belief, box, [[(asked, report)]], [50], record_variance=RECORD)


def test_public_box_with_too_few_points_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more points"):
        PublicBox(np.arange(3), np.zeros((3, 2)))
    with pytest.raises(ConfigurationError, match="one row"):
        PublicBox(np.arange(4), np.zeros((3, 2)))


def test_feature_map_has_unit_norm_in_and_beyond_the_corners() -> None:
    corners = np.array([[1.0, 1.0], [-1.0, 1.0], [5.0, -5.0]])
    assert np.linalg.norm(feature_map(corners), axis=0) == pytest.approx([1.0, 1.0, 1.0])


@given(ANY_FEATURES, st.floats(1e-3, 1e3), st.floats(0, 0.99))
def test_feature_design_of_any_points_has_norms_at_most_one(
    features: np.ndarray, clip: float, share: float
) -> None:
    design = feature_design(features, clip, offset_share=share)
    assert np.all(design.norms() <= 1 + 1e-9)
    assert len(design.directions) == 1 + features.shape[1]


def test_feature_design_offsets_contain_the_feature_products() -> None:
    features = np.array([[0.5, -1.0]])
    design = feature_design(features, 2.0, offset_share=0.3)
    phi = feature_map(features)[:, 0]
    rows, columns = np.triu_indices(3)
    half = np.where(rows == columns, 1.0, math.sqrt(2.0)) * math.sqrt(0.3)
    np.testing.assert_allclose(design.offsets[:, 0], half * phi[rows] * phi[columns])
    np.testing.assert_allclose(design.directions[:, 0] * 2.0, phi * math.sqrt(0.7))


def test_feature_design_of_a_box_corner_has_norm_one() -> None:
    design = feature_design(np.array([[1.0, -1.0, 1.0]]), 0.7, offset_share=0.4)
    assert design.norms()[0] == pytest.approx(math.hypot(math.sqrt(0.4), math.sqrt(0.6)))


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_feature_design_clip_must_be_positive(clip: float) -> None:
    with pytest.raises(InvalidDesignError, match="clip"):
        feature_design(np.zeros((1, 1)), clip, offset_share=0.0)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_feature_design_offset_share_must_be_from_zero_below_one(share: float) -> None:
    with pytest.raises(InvalidDesignError, match="share"):
        feature_design(np.zeros((1, 1)), 1.0, offset_share=share)


def test_feature_design_with_nan_feature_is_refused() -> None:
    with pytest.raises(InvalidDesignError):
        feature_design(np.array([[math.nan]]), 1.0, offset_share=0.0)
