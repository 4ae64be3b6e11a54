from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift import ADWIN

from fedperf_client.prediction.ensemble.changes import DELTA, GUARD, MAX_RESIDUAL, Adwin


def first_alarm(update: Callable[[float], bool], values: list[float]) -> int | None:
    return next((place for place, value in enumerate(values) if update(value)), None)


def first_alarm_of_river(quiet: int, values: list[float]) -> int | None:
    theirs = ADWIN(delta=DELTA, grace_period=quiet)

    def update(value: float) -> bool:
        theirs.update(value)
        return bool(theirs.drift_detected)

    return first_alarm(update, values)


def a_stream(
    seed: int, length: int, shift: float, at: float, *, scatter: float, slope: float
) -> list[float]:
    rng = np.random.default_rng(seed)
    step = shift * (np.arange(length) >= at * length)
    values = rng.normal(0, scatter, length) + step + np.linspace(0, slope, length)
    clipped: list[float] = np.clip(values, -MAX_RESIDUAL, MAX_RESIDUAL).tolist()
    return clipped


def test_adwin_raises_alarm_after_a_step_like_river() -> None:
    values = a_stream(0, 1200, 0.4, 700 / 1200, scatter=0.3, slope=0.0)
    found = first_alarm(Adwin(GUARD), values)
    assert found is not None
    assert 700 < found < 900
    assert found == first_alarm_of_river(GUARD, values)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 1500),
    st.sampled_from([-1.0, -0.1, 0.0, 0.05, 0.3]),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0, 10, GUARD, 63, 64, 333]),
)
def test_adwin_first_alarm_equals_that_of_river(
    seed: int, length: int, shift: float, at: float, scatter: float, slope: float, quiet: int
) -> None:
    values = a_stream(seed, length, shift, at, scatter=scatter, slope=slope)
    assert first_alarm(Adwin(quiet), values) == first_alarm_of_river(quiet, values)


def test_adwin_detects_weak_shifts_where_river_does() -> None:
    streams = [a_stream(seed, 600, 0.15, 0.3, scatter=0.3, slope=0.3) for seed in range(100)]
    found = [first_alarm(Adwin(GUARD), each) for each in streams]
    assert found == [first_alarm_of_river(GUARD, each) for each in streams]


@pytest.mark.parametrize("quiet", [31, 32, 64])
def test_adwin_raises_no_alarm_within_grace_period(quiet: int) -> None:
    values = [0.0] * 16 + [2.0] * 300
    found = first_alarm(Adwin(quiet), values)
    assert found is not None
    assert found >= quiet
