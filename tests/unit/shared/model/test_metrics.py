"""Tests of the error metrics of predictions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.model.metrics import (
    InvalidMetricInputError,
    mape,
    median_q_error,
    q_error,
    relative_errors,
)

seconds = st.lists(st.floats(1e-4, 1e6), min_size=1, max_size=20)


def test_metrics_match_a_worked_example() -> None:
    predicted, true = [1.0, 4.0, 9.0], [2.0, 2.0, 9.0]
    assert q_error(predicted, true).tolist() == [2, 2, 1]
    assert relative_errors(predicted, true).tolist() == [0.5, 1, 0]
    assert mape(predicted, true) == 0.5
    assert median_q_error(predicted, true) == 2


@given(seconds)
def test_q_error_is_symmetric_and_at_least_one(values: list[float]) -> None:
    others = values[::-1]
    assert (q_error(values, others) >= 1).all()
    np.testing.assert_array_equal(q_error(values, others), q_error(others, values))
    assert median_q_error(values, values) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_metrics_with_nonpositive_or_nonfinite_run_times_are_refused(bad: float) -> None:
    with pytest.raises(InvalidMetricInputError, match="predicted"):
        q_error([bad], [1.0])
    with pytest.raises(InvalidMetricInputError, match="true"):
        mape([1.0], [bad])


def test_metrics_with_empty_or_unequal_arrays_are_refused() -> None:
    for predicted, true in (([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])):
        with pytest.raises(InvalidMetricInputError, match="not empty"):
            mape(predicted, true)
