import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedperf_shared.releases.linear_queries import (
    Design,
    InvalidDesignError,
    public_design,
    unit_feature_design,
)

ANY_FEATURES = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e6, 1e6)
)


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5))),
    st.floats(1e-3, 1e3),
)
def test_unit_feature_design_of_any_features_has_norms_at_most_one(
    features: np.ndarray, clip: float
) -> None:
    assert np.all(unit_feature_design(features, clip).norms() <= 1)


def test_unit_feature_design_has_unit_direction_or_zero_for_unusable_features() -> None:
    design = unit_feature_design(np.array([[3.0, -4.0], [0.0, 0.0], [np.nan, 1.0]]), 0.5)
    assert design.directions[:, 0] * 0.5 == pytest.approx([0.6, -0.8])
    assert design.norms() == pytest.approx([1.0, 0.0, 0.0])
    for clip in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidDesignError, match="clip"):
            unit_feature_design(np.ones((1, 1)), clip)


def test_design_with_column_norm_above_one_is_refused() -> None:
    clips = np.array([0.5, 2.0])
    fine = np.array([[2.0, 0.3], [0.0, 0.4]])
    assert public_design(fine, clips).norms() == pytest.approx([1.0, 1.0])
    with pytest.raises(InvalidDesignError, match=r"norm 1\.0001"):
        public_design(fine * 1.0001, clips)
    with pytest.raises(InvalidDesignError, match="norm"):
        Design(fine, clips, np.array([[0.0, 0.1]]))


def test_design_with_mismatched_shapes_is_refused() -> None:
    with pytest.raises(InvalidDesignError, match="points"):
        public_design(np.zeros((2, 3)), np.ones(2))
    with pytest.raises(InvalidDesignError, match="points"):
        public_design(np.zeros((1, 0)), np.ones(0))
    with pytest.raises(InvalidDesignError, match="directions"):
        public_design(np.zeros((300, 1)), np.ones(1))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_design_with_nonfinite_numbers_is_refused(broken: float) -> None:
    with pytest.raises(InvalidDesignError, match="not finite"):
        public_design(np.array([[broken]]), np.array([1.0]))
    with pytest.raises(InvalidDesignError, match="clip"):
        public_design(np.array([[0.0]]), np.array([broken]))
