"""Tests of slots and schedules: slots are fixed in advance and their ids are deterministic."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
    TrainingParameters,
)

START = datetime(2027, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CALENDAR = ReleaseCalendar(
    Period(START),
    (SlotTimes(0 * HOUR, HOUR),),
    (SlotTimes(HOUR, 3 * HOUR),),
    ModelMethod.UNSPECIFIED,
)
REPORT = ReportParameters(noise_multiplier=4.0, residual_clip=1.5)
TRAINING = TrainingParameters(
    noise_multiplier=2.0,
    sampling_probability=0.05,
    steps=10,
    clip_norm=0.5,
    nominal_workloads=2000,
)
TANGENT = LinearizedParameters(noise_multiplier=2.0, nominal_workloads=2000)


def report_key(window: int = 0, index: int = 0) -> SlotKey:
    return SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)


def test_release_id_depends_on_period_kind_window_and_index() -> None:
    keys = [
        SlotKey(kind, window, index)
        for kind in ReleaseKind
        for window in range(3)
        for index in range(3)
    ]
    ids = {key.release_id(CALENDAR.period) for key in keys}
    assert len(ids) == len(keys)
    later = replace(CALENDAR.period, start=START + timedelta(days=364))
    assert keys[0].release_id(later) not in ids
    assert all(len(each) == 32 for each in ids)


def test_schedule_with_duplicate_slot_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="each slot once"):
        Schedule(CALENDAR, (Slot(report_key(), REPORT), Slot(report_key(), REPORT)))


@pytest.mark.parametrize("key", [report_key(window=13), report_key(index=1), report_key(index=-1)])
def test_schedule_slot_outside_the_calendar_is_refused(key: SlotKey) -> None:
    with pytest.raises(ConfigurationError, match="slot"):
        Schedule(CALENDAR, (Slot(key, REPORT),))


def test_slot_with_parameters_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TrainingParameters"):
        Slot(report_key(), TRAINING)
    with pytest.raises(ConfigurationError, match="LinearizedParameters"):
        Slot(report_key(), TANGENT)
    with pytest.raises(ConfigurationError, match="ReportParameters"):
        Slot(SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0), REPORT)


def test_schedule_model_slots_must_use_the_method_of_the_calendar() -> None:
    key = SlotKey(ReleaseKind.MODEL_UPDATE, 1, 0)
    at_tangent = replace(CALENDAR, model_method=ModelMethod.TANGENT)
    assert Schedule(at_tangent, (Slot(key, TANGENT),)).slot(key) == Slot(key, TANGENT)
    with pytest.raises(ConfigurationError, match="does not train by tangent"):
        Schedule(at_tangent, (Slot(key, TRAINING),))
    with pytest.raises(ConfigurationError, match="does not train by unspecified"):
        Schedule(CALENDAR, (Slot(key, TANGENT),))


def test_schedule_slot_opens_and_replies_at_calendar_times() -> None:
    key = SlotKey(ReleaseKind.MODEL_UPDATE, 1, 0)
    schedule = Schedule(CALENDAR, (Slot(key, TRAINING),))
    assert schedule.opens_at(key) == START + timedelta(weeks=4) + HOUR
    assert schedule.replies_at(key) == START + timedelta(weeks=4) + 3 * HOUR
    assert schedule.slot(key) == Slot(key, TRAINING)
    assert schedule.slot(report_key()) is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_slot_parameters_without_positive_finite_noise_are_refused(value: float) -> None:
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        replace(REPORT, noise_multiplier=value)
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        replace(TRAINING, noise_multiplier=value)
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        replace(TANGENT, noise_multiplier=value)


@pytest.mark.parametrize("value", [0.0, 1.1, float("nan")])
def test_training_parameters_sampling_probability_must_be_in_range(value: float) -> None:
    with pytest.raises(ConfigurationError, match="sampling_probability"):
        replace(TRAINING, sampling_probability=value)
