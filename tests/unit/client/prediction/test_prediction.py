import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.prediction.prediction import (
    InvalidPredictionError,
    Prediction,
    PredictorFailedError,
    StudentT,
    checked_log,
)
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0.01, 0.99))
def test_prediction_interval_is_ordered_and_finite(
    log_seconds: float, scale: float, level: float
) -> None:
    found = Prediction(log_seconds, StudentT(scale, 3.0), level)
    assert 0 < found.lower_seconds <= found.median_seconds <= found.upper_seconds < math.inf


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_prediction_with_invalid_confidence_level_is_refused(level: float) -> None:
    with pytest.raises(InvalidPredictionError, match="level"):
        Prediction(0.0, StudentT(0.3, 3.0), level)


@pytest.mark.parametrize(
    "values", [np.array([1.0, np.nan]), np.array([1.0]), np.array([1.0, np.inf]), np.zeros((2, 1))]
)
def test_checked_log_with_unusable_values_names_the_predictor(
    values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> None:
    with pytest.raises(PredictorFailedError, match="'shared'"):
        checked_log("shared", values, 2)


def test_checked_log_clips_extreme_values_to_finite_run_times() -> None:
    clipped = checked_log("shared", np.array([1e9, -1e9, 1.0]), 3)
    longest = MAX_RUNTIME_SECONDS
    np.testing.assert_allclose(np.exp(clipped), [longest, 1 / longest, math.e])


def test_prediction_covers_interval_ends_and_excludes_values_beyond() -> None:
    prediction = Prediction(math.log(2.0), StudentT.within(math.log(2.001)))
    assert [prediction.covers(each) for each in (1.0, 3.0, 4.0)] == [True] * 3
    assert [prediction.covers(each) for each in (0.99, 4.01, math.nan)] == [False] * 3
