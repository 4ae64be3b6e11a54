"""Tests of the public release calendar."""

from datetime import UTC, datetime, timedelta

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import (
    Period,
    ReleaseCalendar,
    SlotTimes,
    from_unix_ms,
    to_unix_ms,
)

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_period_has_thirteen_windows_of_four_weeks_by_default() -> None:
    period = Period(START)
    assert period.end - period.start == timedelta(days=364)
    assert period.window_at(START) == 0
    assert period.window_at(START + timedelta(days=28)) == 1
    assert period.window_at(START - DAY) is None
    assert period.window_at(period.end) is None


def test_period_start_without_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Period(datetime(2027, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(("window", "windows"), [(timedelta(0), 1), (DAY, 0), (DAY, 401)])
def test_period_without_length_or_with_too_many_windows_is_refused(
    window: timedelta, windows: int
) -> None:
    with pytest.raises(ConfigurationError, match="window"):
        Period(START, window, windows)


def test_slot_times_must_reply_after_opening_and_within_the_window() -> None:
    with pytest.raises(ConfigurationError, match="before it replies"):
        SlotTimes(DAY, DAY)
    with pytest.raises(ConfigurationError, match=r"only 86400 s \(1 days\)"):
        ReleaseCalendar(Period(START, DAY), (SlotTimes(DAY, 2 * DAY),), ())


def test_period_times_finer_than_milliseconds_are_refused() -> None:
    fine = timedelta(microseconds=1)
    with pytest.raises(ConfigurationError, match="whole milliseconds"):
        Period(START + fine)
    with pytest.raises(ConfigurationError, match="whole milliseconds"):
        Period(START, DAY + fine)
    with pytest.raises(ConfigurationError, match="whole milliseconds"):
        SlotTimes(fine, DAY)


def test_unix_milliseconds_round_trip() -> None:
    assert from_unix_ms(to_unix_ms(START)) == START


def test_reported_window_advances_when_the_last_report_of_a_window_is_due() -> None:
    table = ReleaseCalendar(
        Period(START, 10 * DAY, 3), (SlotTimes(DAY, 2 * DAY), SlotTimes(DAY, 8 * DAY)), ()
    )
    moments = (-9, 0, 7.9, 8, 17.9, 18, 27, 28, 300)
    found = [table.reported_window(START + days * DAY) for days in moments]
    assert found == [-1, -1, -1, 0, 0, 1, 1, 2, 2]
    without = ReleaseCalendar(table.period, (), ())
    assert [without.reported_window(START + days * DAY) for days in (-1, 0, 10)] == [-1, 0, 1]


def test_nearest_window_before_and_after_the_period_is_clamped() -> None:
    period = Period(START, 10 * DAY, 3)
    found = [period.nearest_window(START + days * DAY) for days in (-99, 0, 9.9, 10, 30, 99)]
    assert found == [0, 0, 0, 1, 3, 3]


@pytest.mark.parametrize(
    ("days", "window"),
    [(-28, -1), (-27.9, 0), (-1, 0), (0, 0), (0.1, 1), (28, 1), (28.1, 2)],
)
def test_first_window_at_or_after_a_timestamp_may_precede_the_period(
    days: float, window: int
) -> None:
    assert Period(START).first_window(START + days * DAY) == window
