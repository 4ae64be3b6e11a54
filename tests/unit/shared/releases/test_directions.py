import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedperf_shared.releases.directions import (
    Design,
    InvalidDesignError,
    feature_design,
    feature_map,
    public_design,
    unit_feature_design,
)

ANY_FEATURES = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e6, 1e6)
)


@given(ANY_FEATURES, st.floats(1e-3, 1e3), st.floats(0, 0.99))
def test_a_feature_design_keeps_the_norm_rule_wherever_the_points_are(
    features: np.ndarray, clip: float, share: float
) -> None:
    design = feature_design(features, clip, offset_share=share)
    assert np.all(design.norms() <= 1 + 1e-9)
    assert len(design.directions) == 1 + features.shape[1]


def test_the_products_can_be_read_off_the_offsets() -> None:
    features = np.array([[0.5, -1.0]])
    design = feature_design(features, 2.0, offset_share=0.3)
    phi = feature_map(features)[:, 0]
    rows, columns = np.triu_indices(3)
    half = np.where(rows == columns, 1.0, math.sqrt(2.0)) * math.sqrt(0.3)
    np.testing.assert_allclose(design.offsets[:, 0], half * phi[rows] * phi[columns])
    np.testing.assert_allclose(design.directions[:, 0] * 2.0, phi * math.sqrt(0.7))


def test_a_corner_of_the_box_uses_the_whole_norm() -> None:
    design = feature_design(np.array([[1.0, -1.0, 1.0]]), 0.7, offset_share=0.4)
    assert design.norms()[0] == pytest.approx(math.hypot(math.sqrt(0.4), math.sqrt(0.6)))


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5))),
    st.floats(1e-3, 1e3),
)
def test_a_unit_feature_design_keeps_the_norm_rule_whatever_the_features_are(
    features: np.ndarray, clip: float
) -> None:
    assert np.all(unit_feature_design(features, clip).norms() <= 1)


def test_a_plan_sends_its_direction_and_one_that_feels_nothing_sends_nothing() -> None:
    design = unit_feature_design(np.array([[3.0, -4.0], [0.0, 0.0], [np.nan, 1.0]]), 0.5)
    assert design.directions[:, 0] * 0.5 == pytest.approx([0.6, -0.8])
    assert design.norms() == pytest.approx([1.0, 0.0, 0.0])
    for clip in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidDesignError, match="clip"):
            unit_feature_design(np.ones((1, 1)), clip)


def test_a_column_that_is_too_long_is_refused() -> None:
    clips = np.array([0.5, 2.0])
    fine = np.array([[2.0, 0.3], [0.0, 0.4]])
    assert public_design(fine, clips).norms() == pytest.approx([1.0, 1.0])
    with pytest.raises(InvalidDesignError, match=r"norm 1\.0001"):
        public_design(fine * 1.0001, clips)
    with pytest.raises(InvalidDesignError, match="norm"):
        Design(fine, clips, np.array([[0.0, 0.1]]))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(broken: float) -> None:
    with pytest.raises(InvalidDesignError, match="not finite"):
        public_design(np.array([[broken]]), np.array([1.0]))
    with pytest.raises(InvalidDesignError, match="clip"):
        public_design(np.array([[0.0]]), np.array([broken]))
    with pytest.raises(InvalidDesignError):
        feature_design(np.array([[math.nan]]), 1.0, offset_share=0.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_is_positive(clip: float) -> None:
    with pytest.raises(InvalidDesignError, match="clip"):
        feature_design(np.zeros((1, 1)), clip, offset_share=0.0)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_the_offsets_share_leaves_something_for_the_directions(share: float) -> None:
    with pytest.raises(InvalidDesignError, match="share"):
        feature_design(np.zeros((1, 1)), 1.0, offset_share=share)


def test_shapes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidDesignError, match="points"):
        public_design(np.zeros((2, 3)), np.ones(2))
    with pytest.raises(InvalidDesignError, match="points"):
        public_design(np.zeros((1, 0)), np.ones(0))
    with pytest.raises(InvalidDesignError, match="directions"):
        public_design(np.zeros((300, 1)), np.ones(1))
