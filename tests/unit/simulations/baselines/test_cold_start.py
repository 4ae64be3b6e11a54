"""Tests of run times interpolated between measured sizes: exact for the rule's law, bounded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_simulations.baselines.cold_start import (
    RULES,
    OutsideOfMeasuredSizesError,
    TooFewSizesError,
    monotone_in_logs,
    published,
    published_in_logs,
)

SIZES = np.array([1e3, 3e3, 1e4, 1e5, 1e6, 1e7])
BETWEEN = np.array([3e4, 3e5, 3e6])


def test_published_interpolation_is_exact_for_linear_run_times() -> None:
    seconds = 0.01 + 2e-7 * SIZES
    assert published(SIZES, seconds, BETWEEN) == pytest.approx(0.01 + 2e-7 * BETWEEN, rel=1e-6)


def test_published_interpolation_can_be_negative_and_log_interpolations_cannot() -> None:
    seconds = np.array([0.02, 0.02, 0.021, 0.05, 0.4, 30.0])  # out of memory at the largest size
    assert published(SIZES, seconds, BETWEEN).min() < 0
    assert published_in_logs(SIZES, seconds, BETWEEN).min() > 0
    assert monotone_in_logs(SIZES, seconds, BETWEEN).min() > 0


def test_log_interpolations_are_exact_for_power_laws() -> None:
    for rule in (published_in_logs, monotone_in_logs):
        found = rule(SIZES, 1e-6 * SIZES**1.1, BETWEEN)
        assert found == pytest.approx(1e-6 * BETWEEN**1.1, rel=1e-6)


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=6))
def test_monotone_interpolation_stays_between_neighbouring_measurements(
    values: list[float],
) -> None:
    seconds = np.array(values)
    found = monotone_in_logs(SIZES, seconds, BETWEEN)
    for label, low, high in zip(found, seconds[2:-1], seconds[3:], strict=True):
        assert min(low, high) * (1 - 1e-9) <= label <= max(low, high) * (1 + 1e-9)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("asked", [999.0, 1.01e7, float("nan")])
def test_interpolation_outside_measured_sizes_is_refused(name: str, asked: float) -> None:
    with pytest.raises(OutsideOfMeasuredSizesError, match="1000 to 1e\\+07 rows"):
        RULES[name](SIZES, SIZES, np.array([asked]))


def test_interpolation_with_too_few_sizes_is_refused_with_the_number_needed() -> None:
    with pytest.raises(TooFewSizesError, match="need 6 measured sizes, there are 5"):
        published(SIZES[:5], SIZES[:5], BETWEEN[:1])
    with pytest.raises(TooFewSizesError, match="need 2 measured sizes, there are 1"):
        monotone_in_logs(SIZES[:1], SIZES[:1], SIZES[:1])
