"""Tests of the metrics of forgetting."""

import numpy as np
import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.experiments.drift.table import Forgetting, seen_so_far

NAN = np.nan
ERRORS = np.array([[0.2, NAN, NAN], [0.6, 0.4, NAN], [0.5, 0.3, 0.1]])


def test_error_over_time_averages_segments_seen_so_far() -> None:
    np.testing.assert_allclose(seen_so_far(ERRORS), [0.2, 0.5, 0.3])


def test_forgetting_metrics_match_their_definitions() -> None:
    found = Forgetting.of(ERRORS)
    assert found.final == pytest.approx(0.3)
    assert found.averaged == pytest.approx(1.0 / 3)
    assert found.backward_transfer == pytest.approx((0.3 - 0.1) / 2)
    assert found.forgetting == pytest.approx(0.3 / 3)


def test_forgetting_is_zero_when_later_training_improves_a_segment() -> None:
    found = Forgetting.of(np.array([[0.5, NAN], [0.2, 0.2]]))
    assert found.backward_transfer == pytest.approx(-0.3)
    assert found.forgetting == 0


def test_forgetting_of_one_segment_is_zero() -> None:
    assert Forgetting.of(np.array([[0.4]])) == Forgetting(0.4, 0.4, 0.0, 0.0)


@pytest.mark.parametrize(
    "errors", [np.zeros((2, 3)), np.zeros(3), np.zeros((0, 0)), np.array([[0.1, 0.2], [NAN, 0.1]])]
)
def test_forgetting_of_invalid_error_matrix_is_refused(errors: np.ndarray) -> None:
    with pytest.raises(InvalidInputError):
        Forgetting.of(errors)
