import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.prediction.prediction import (
    InvalidPredictionError,
    Prediction,
    PredictorFailedError,
    checked_log,
)


@given(st.floats(1e-6, 1e6), st.floats(1, 1e3), st.floats(0.01, 0.99))
def test_a_prediction_holds_an_ordered_interval(median: float, factor: float, level: float) -> None:
    prediction = Prediction(median, median / factor, median * factor, level)
    assert prediction.lower_seconds <= prediction.median_seconds <= prediction.upper_seconds


@pytest.mark.parametrize(
    ("median", "lower", "upper"),
    [
        (1.0, 1.1, 2.0),
        (1.0, 0.5, 0.9),
        (0.0, 0.0, 1.0),
        (1.0, -1.0, 2.0),
        (1.0, 0.5, math.inf),
        (math.nan, 0.5, 2.0),
        (1.0, math.nan, 2.0),
        (1.0, 0.5, math.nan),
    ],
)
def test_an_interval_that_is_none_is_refused(median: float, lower: float, upper: float) -> None:
    with pytest.raises(InvalidPredictionError, match="lower <= median"):
        Prediction(median, lower, upper)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_outside_of_0_to_1_is_refused(level: float) -> None:
    with pytest.raises(InvalidPredictionError, match="level"):
        Prediction(1.0, 0.5, 2.0, level)


@pytest.mark.parametrize(
    "values", [np.array([1.0, np.nan]), np.array([1.0]), np.array([1.0, np.inf]), np.zeros((2, 1))]
)
def test_answers_that_cannot_be_used_name_the_predictor(
    values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> None:
    with pytest.raises(PredictorFailedError, match="'shared'"):
        checked_log("shared", values, 2)


def test_absurd_answers_are_clipped_to_the_longest_run_time() -> None:
    clipped = checked_log("shared", np.array([1e9, -1e9]), 2)
    assert np.isfinite(np.exp(clipped)).all()


def test_an_interval_covers_its_ends_and_nothing_beyond() -> None:
    prediction = Prediction(2.0, 1.0, 4.0)
    assert [prediction.covers(each) for each in (1.0, 3.0, 4.0)] == [True] * 3
    assert [prediction.covers(each) for each in (0.99, 4.01, math.nan)] == [False] * 3
