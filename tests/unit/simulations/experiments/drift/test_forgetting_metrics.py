"""Metrics of what is forgotten."""

import numpy as np
import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.experiments.drift.table import Forgetting, seen_so_far

NAN = np.nan
ERRORS = np.array([[0.2, NAN, NAN], [0.6, 0.4, NAN], [0.5, 0.3, 0.1]])


def test_errors_over_time_are_of_what_was_seen() -> None:
    np.testing.assert_allclose(seen_so_far(ERRORS), [0.2, 0.5, 0.3])


def test_metrics_are_those_of_the_definitions() -> None:
    found = Forgetting.of(ERRORS)
    assert found.final == pytest.approx(0.3)
    assert found.averaged == pytest.approx(1.0 / 3)
    assert found.backward_transfer == pytest.approx((0.3 - 0.1) / 2)
    assert found.forgetting == pytest.approx(0.3 / 3)


def test_what_gets_better_later_is_no_forgetting_but_transfer() -> None:
    found = Forgetting.of(np.array([[0.5, NAN], [0.2, 0.2]]))
    assert found.backward_transfer == pytest.approx(-0.3)
    assert found.forgetting == 0


def test_one_segment_has_nothing_to_forget() -> None:
    assert Forgetting.of(np.array([[0.4]])) == Forgetting(0.4, 0.4, 0.0, 0.0)


@pytest.mark.parametrize(
    "errors", [np.zeros((2, 3)), np.zeros(3), np.zeros((0, 0)), np.array([[0.1, 0.2], [NAN, 0.1]])]
)
def test_errors_that_are_no_square_or_no_numbers_are_refused(errors: np.ndarray) -> None:
    with pytest.raises(InvalidInputError):
        Forgetting.of(errors)
