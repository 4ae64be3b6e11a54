"""Tests of planned report slots: the first date, the number of reports and their span."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import (
    FIRST_STAGE_CLIP,
    PlannedSchedule,
    Span,
    plan_schedule,
    span_covered,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import ReleaseCalendar, default_calendar
from fedperf_shared.releases.release import (
    DirectedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_schedule, encode_schedule

START = datetime(2026, 11, 25, tzinfo=UTC)
DAY = timedelta(days=1)
CALENDAR = default_calendar(START)
README_POLICY = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)
RECURRING = replace(README_POLICY, nominal_workloads=600, workloads_per_window=600)


def reports(planned: PlannedSchedule) -> list[SlotKey]:
    return [
        slot.key for slot in planned.schedule.slots if slot.key.kind is ReleaseKind.RESIDUAL_REPORT
    ]


def windows(planned: PlannedSchedule) -> list[int]:
    return sorted({key.window for key in reports(planned)})


@pytest.mark.parametrize("hours", range(0, 28 * 24, 13))
@pytest.mark.parametrize("policy", [README_POLICY, RECURRING])
def test_first_release_is_sent_within_eight_days_of_joining(hours: int, policy: Policy) -> None:
    joined = START + timedelta(hours=hours)
    planned = plan_schedule(policy, CALENDAR, at=joined)
    first = reports(planned)[0]
    assert joined <= planned.schedule.opens_at(first)
    assert planned.schedule.replies_at(first) - joined <= 8 * DAY
    refining = (key for key in reports(planned)[1:] if key.index > 0)
    assert all(planned.schedule.replies_at(first) <= planned.schedule.opens_at(e) for e in refining)
    assert 0.99 < planned.epsilon <= policy.epsilon


def test_schedule_of_late_joiner_spends_whole_budget_in_remaining_windows() -> None:
    joined = START + 200 * DAY
    planned = plan_schedule(RECURRING, CALENDAR, at=joined)
    assert all(planned.schedule.opens_at(key) >= joined for key in reports(planned))
    assert 0.99 < planned.epsilon <= 1.0
    whole = plan_schedule(RECURRING, CALENDAR)
    assert len(reports(planned)) < len(reports(whole))
    noise = [each.schedule.slots[0].parameters.noise_multiplier for each in (planned, whole)]
    assert noise[0] < noise[1]


@pytest.mark.slow
def test_schedule_of_late_joiner_omits_past_model_rounds() -> None:
    large = replace(RECURRING, size_class=SizeClass.LARGE, nominal_workloads=3000)
    large = replace(large, workloads_per_window=3000)
    joined = START + 210 * DAY
    assert CALENDAR.period.window_at(joined) == 7, "and its first round is over"
    planned = plan_schedule(large, CALENDAR, at=joined)
    assert all(planned.schedule.replies_at(slot.key) > joined for slot in planned.schedule.slots)
    assert 0.99 < planned.epsilon <= 1.0


def test_schedule_without_remaining_reporting_day_is_empty_with_a_reason() -> None:
    planned = plan_schedule(README_POLICY, CALENDAR, at=CALENDAR.period.end - DAY)
    assert planned.schedule.slots == ()
    assert "no reporting day left" in planned.not_planned[-1].reason


def test_schedule_of_small_organization_spends_budget_on_first_report() -> None:
    """Two reports with half the signal would be less informative for most of the year."""
    planned = plan_schedule(README_POLICY, CALENDAR, at=START + DAY)
    assert reports(planned) == [
        SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, index) for index in (3, 1, 2)
    ]
    kinds = [type(slot.parameters) for slot in planned.schedule.slots]
    assert kinds == [ReportParameters, DirectedParameters, DirectedParameters]


def test_schedule_has_fewer_reports_if_those_are_more_informative() -> None:
    """Each of seven reports would have a signal. Four or fewer reports have less noise each."""
    policy = replace(README_POLICY, nominal_workloads=3000)
    planned = plan_schedule(policy, CALENDAR)
    assert 1 < len(windows(planned)) <= 4
    noise = planned.schedule.slots[0].parameters.noise_multiplier
    seven = noise * (7 / len(windows(planned))) ** 0.5
    assert 3000 / 7 / 24 / 2**0.5 / (seven / 3**0.5) > 1
    assert "would teach less" in planned.not_planned[-1].reason


def test_directed_reports_move_to_next_window_if_current_ones_are_over() -> None:
    planned = plan_schedule(README_POLICY, CALENDAR, at=START + 12 * DAY)
    places = [(key.window, key.index) for key in reports(planned)]
    assert places == [(0, 5), (1, 1), (1, 2)]
    first = planned.schedule.opens_at(reports(planned)[0])
    spans = {span_covered(planned.schedule, key) for key in reports(planned)}
    assert spans == {Span(None, first)}, "they are about the same executions"


def test_first_report_is_planned_alone_if_next_window_has_its_own_reports() -> None:
    planned = plan_schedule(replace(RECURRING, epsilon=3.0), CALENDAR, at=START + 12 * DAY)
    assert windows(planned) == list(range(13))
    assert [key.index for key in reports(planned) if key.window == 0] == [5]
    assert [key.index for key in reports(planned) if key.window == 1] == [0, 1, 2]


def test_clip_is_wide_only_where_directed_reports_refine_the_first() -> None:
    single = replace(CALENDAR, report_slots=CALENDAR.report_slots[:1])
    for calendar, factor in ((CALENDAR, FIRST_STAGE_CLIP), (single, 1.0)):
        slots = plan_schedule(README_POLICY, calendar).schedule.slots
        plain = [each.parameters for each in slots if isinstance(each.parameters, ReportParameters)]
        assert {each.residual_clip for each in plain} == {factor * README_POLICY.residual_clip}


def test_schedule_of_recurring_workloads_reports_in_every_window() -> None:
    assert windows(plan_schedule(RECURRING, CALENDAR)) == list(range(13))


def test_calendar_without_first_slots_starts_in_window_of_joining() -> None:
    plain = replace(CALENDAR, first_slots=())
    planned = plan_schedule(README_POLICY, plain, at=START + 70 * DAY)
    assert [(key.window, key.index) for key in reports(planned)] == [(2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize("joined", [START, START + 5 * DAY, START + 40 * DAY])
@pytest.mark.parametrize("policy", [README_POLICY, RECURRING])
@pytest.mark.parametrize("calendar", [CALENDAR, replace(CALENDAR, first_slots=())])
def test_report_spans_partition_time_without_gap_or_overlap(
    joined: datetime, policy: Policy, calendar: ReleaseCalendar
) -> None:
    planned = plan_schedule(policy, calendar, at=joined)
    spans = sorted(
        {span_covered(planned.schedule, key) for key in reports(planned)},
        key=lambda span: span.until,
    )
    assert spans[0].since is None
    assert all(before.until == after.since for before, after in pairwise(spans))
    for key in reports(planned):
        until = span_covered(planned.schedule, key).until
        assert until <= planned.schedule.opens_at(key)
        if key.index == 0:
            assert until == calendar.period.window_start(key.window)


@pytest.mark.parametrize("begins", range(4))
@pytest.mark.parametrize("joined", [START + DAY, START + 12 * DAY, START + 40 * DAY])
def test_report_span_never_covers_two_drift_regimes(begins: int, joined: datetime) -> None:
    planned = plan_schedule(RECURRING, CALENDAR, at=joined)
    epoch = CALENDAR.period.window_start(begins)
    for key in reports(planned):
        span = span_covered(planned.schedule, key, [epoch])
        if span.since is None or span.since < span.until:
            before = span.until <= epoch
            after = span.since is not None and span.since >= epoch
            assert before or after
            assert before is (begins >= key.window), (
                "the epoch that reports of the window are about"
            )


def test_first_report_slot_round_trips_and_a_second_is_refused() -> None:
    schedule = plan_schedule(README_POLICY, CALENDAR, at=START + 5 * DAY).schedule
    assert decode_schedule(encode_schedule(schedule)) == schedule
    first, second, _ = schedule.slots
    assert CALENDAR.is_first_report(first.key.index)
    assert not CALENDAR.is_first_report(second.key.index)
    another = Slot(replace(first.key, window=3), first.parameters)
    with pytest.raises(ConfigurationError, match="one first slot"):
        Schedule(CALENDAR, (*schedule.slots, another))


def test_schedules_of_same_policy_joined_in_same_week_are_equal() -> None:
    """Equal policies that join within the same week get equal schedules."""
    one = plan_schedule(README_POLICY, CALENDAR, at=START + 5 * DAY)
    other = plan_schedule(README_POLICY, CALENDAR, at=START + 10 * DAY)
    assert one == other
