from dataclasses import replace
from datetime import timedelta

import pytest

from fedperf_client.release.accountant import epsilon, to_events
from fedperf_client.release.policy import (
    ConfigurationSecrecy,
    Policy,
    ReleaseMode,
    planned_modes,
)
from fedperf_client.release.schedule import PlannedSchedule, Span, plan_schedule, span_covered
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import (
    DirectedParameters,
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    require_declarable,
)
from fedperf_shared.wire.codec import decode_schedule, encode_schedule
from tests.unit.client.release.periods import calendar

SMALL = Policy(size_class=SizeClass.SMALL, nominal_workloads=400, occupied_cells=8)
LARGE = Policy(size_class=SizeClass.LARGE, nominal_workloads=4000)


def of_kind(planned: PlannedSchedule, kind: ReleaseKind) -> list[Slot]:
    return [slot for slot in planned.schedule.slots if slot.key.kind is kind]


def reasons(planned: PlannedSchedule) -> str:
    return "; ".join(each.reason for each in planned.not_planned)


@pytest.mark.parametrize("policy", [SMALL, replace(LARGE, epsilon=8.0, delta=1e-6)])
def test_schedule_costs_at_most_the_budget_and_nearly_all_of_it(policy: Policy) -> None:
    planned = plan_schedule(policy, calendar())
    recomputed = epsilon(to_events(planned.schedule.slots), policy.delta)
    assert planned.epsilon == recomputed
    assert 0.99 * policy.epsilon < recomputed <= policy.epsilon
    assert planned.replace_one_epsilon > planned.epsilon


def test_schedule_above_its_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "at_most", lambda planned: 2 * planned.slots)
    with pytest.raises(ConfigurationError, match="would cost epsilon"):
        plan_schedule(SMALL, calendar())


def test_schedule_of_small_organization_has_only_reports_and_explains_why() -> None:
    planned = plan_schedule(SMALL, calendar())
    assert of_kind(planned, ReleaseKind.MODEL_UPDATE) == []
    assert of_kind(planned, ReleaseKind.RESIDUAL_REPORT)
    assert "size class small" in reasons(planned)


@pytest.mark.slow
def test_schedule_of_large_organization_gives_updates_the_remaining_budget() -> None:
    planned = plan_schedule(LARGE, calendar())
    reports = of_kind(planned, ReleaseKind.RESIDUAL_REPORT)
    updates = of_kind(planned, ReleaseKind.MODEL_UPDATE)
    assert len(updates) == 6
    assert epsilon(to_events(reports), LARGE.delta) <= LARGE.report_share
    noise = updates[0].parameters.noise_multiplier
    assert {slot.parameters for slot in updates} == {LinearizedParameters(noise, 4000.0)}
    assert 0.99 < planned.epsilon <= 1.0
    moments = [planned.schedule.opens_at(slot.key) for slot in planned.schedule.slots]
    assert moments == sorted(moments)
    assert decode_schedule(encode_schedule(planned.schedule)) == planned.schedule


def test_schedule_report_count_grows_with_workloads_and_each_has_a_signal() -> None:
    counts = []
    for workloads in (20, 60, 200, 400, 4000):
        planned = plan_schedule(replace(SMALL, nominal_workloads=workloads), calendar(13))
        reports = of_kind(planned, ReleaseKind.RESIDUAL_REPORT)
        counts.append(len(reports))
        noise = {slot.parameters.noise_multiplier for slot in reports}
        assert all(workloads / len(reports) / 8 / 2**0.5 / each >= 1 for each in noise)
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] > counts[1] == 1


def test_schedule_of_recurring_workloads_has_more_reports_at_same_epsilon() -> None:
    policy = replace(SMALL, nominal_workloads=600, occupied_cells=24)
    once = plan_schedule(policy, calendar(13, reports=3))
    again = plan_schedule(replace(policy, workloads_per_window=600), calendar(13, reports=3))
    assert len(once.schedule.slots) == 3 * 2
    assert len(again.schedule.slots) == 3 * 13
    assert all(0.99 < each.epsilon <= 1.0 for each in (once, again))
    directed = again.schedule.slots[1].parameters
    assert directed == DirectedParameters(directed.noise_multiplier, 600)


def test_report_over_several_windows_covers_at_most_nominal_workloads() -> None:
    policy = replace(SMALL, nominal_workloads=300, occupied_cells=24)
    held = {}
    for per_window in (300, 100, 60):
        planned = plan_schedule(
            replace(policy, workloads_per_window=per_window), calendar(13, reports=2)
        )
        first, *later = [
            slot.parameters.nominal_workloads
            for slot in planned.schedule.slots
            if isinstance(slot.parameters, DirectedParameters)
        ]
        assert first == 300, "the first report is about all of the history"
        held[per_window] = (len(planned.schedule.slots) // 2, *set(later))
    assert held[300] == (5, 300)
    assert held[60][1] == pytest.approx(60 * 13 / held[60][0])
    assert held[60][0] < held[300][0]


def test_unplanned_reports_are_explained() -> None:
    tiny = plan_schedule(replace(SMALL, nominal_workloads=20), calendar())
    assert tiny.schedule.slots == ()
    assert tiny.epsilon == 0.0
    assert "signal-to-noise: 20 declared workloads in 8 cells at epsilon 1" in reasons(tiny)
    some = plan_schedule(replace(SMALL, nominal_workloads=200), calendar(13))
    assert "carry reports in 2 of 13 windows" in reasons(some)


def spans(planned: PlannedSchedule) -> list[Span]:
    return [
        span_covered(planned.schedule, slot.key)
        for slot in of_kind(planned, ReleaseKind.RESIDUAL_REPORT)
    ]


@pytest.mark.parametrize("workloads", [400, 9000])
def test_report_spans_of_schedule_partition_time(workloads: int) -> None:
    """A report covers only windows that ended before it, however late in its window it is sent."""
    planned = plan_schedule(replace(SMALL, nominal_workloads=workloads), calendar(13))
    found = spans(planned)
    assert len(found) > 1
    assert [each.since for each in found] == [None, *(each.until for each in found[:-1])]
    for slot, span in zip(planned.schedule.slots, found, strict=True):
        assert span.until == planned.schedule.calendar.period.window_start(slot.key.window)
        assert span.until <= planned.schedule.opens_at(slot.key)


def test_first_report_of_a_window_clips_wide_and_others_are_directed() -> None:
    planned = plan_schedule(replace(SMALL, nominal_workloads=9000), calendar(2, reports=3))
    reports = [slot.parameters for slot in of_kind(planned, ReleaseKind.RESIDUAL_REPORT)]
    noise = reports[0].noise_multiplier
    for held, group in ((9000.0, reports[:3]), (4500.0, reports[3:])):
        assert group[0] == ReportParameters(noise, 3.0)
        assert group[1:] == [DirectedParameters(noise, held)] * 2
    assert decode_schedule(encode_schedule(planned.schedule)) == planned.schedule
    assert 0.99 < planned.epsilon <= 1.0


@pytest.mark.slow
def test_schedule_of_extreme_policies_is_declarable() -> None:
    """A value that cannot be declared would raise an error that names its policy key."""
    ends = (
        replace(SMALL, residual_clip=10.0),
        replace(SMALL, residual_clip=0.01),
        replace(SMALL, nominal_workloads=1, occupied_cells=1, epsilon=1e4),
        replace(SMALL, nominal_workloads=1, occupied_cells=1, epsilon=1e5),
        replace(LARGE, nominal_workloads=1e7, delta=1e-8),
    )
    for policy in ends:
        planned = plan_schedule(policy, calendar(13, reports=2))
        assert of_kind(planned, ReleaseKind.RESIDUAL_REPORT)
        require_declarable(planned.schedule)


def test_schedule_that_needs_undeclarable_noise_is_refused() -> None:
    policy = replace(LARGE, epsilon=1e-6, delta=1e-9, report_share=0)
    with pytest.raises(ConfigurationError, match=r"epsilon 1e-06 .* noise_multiplier must be"):
        plan_schedule(policy, calendar())


def test_report_counts_are_public_only_if_policy_declares_it() -> None:
    for configurations in ConfigurationSecrecy:
        policy = replace(SMALL, configurations=configurations)
        planned = plan_schedule(policy, calendar(13, reports=2))
        found = {
            slot.parameters.public_counts
            for slot in planned.schedule.slots
            if isinstance(slot.parameters, ReportParameters)
        }
        assert found == {configurations is ConfigurationSecrecy.PUBLIC}
        assert planned.epsilon == plan_schedule(SMALL, calendar(13, reports=2)).epsilon
        assert decode_schedule(encode_schedule(planned.schedule)) == planned.schedule


def test_staged_reports_cost_as_much_as_a_single_report() -> None:
    single = plan_schedule(SMALL, calendar(13))
    staged = plan_schedule(SMALL, calendar(13, reports=3))
    assert staged.epsilon == pytest.approx(single.epsilon, abs=0.005)
    windows = [
        {slot.key.window for slot in of_kind(each, ReleaseKind.RESIDUAL_REPORT)}
        for each in (single, staged)
    ]
    assert windows[0] == windows[1] != set()
    assert len(of_kind(staged, ReleaseKind.RESIDUAL_REPORT)) == 3 * len(windows[0])
    ratio = staged.schedule.slots[0].parameters.noise_multiplier / (
        single.schedule.slots[0].parameters.noise_multiplier
    )
    assert ratio == pytest.approx(3**0.5, rel=1e-3)


def test_staged_reports_of_a_window_cover_the_same_span() -> None:
    planned = plan_schedule(replace(SMALL, nominal_workloads=400), calendar(13, reports=2))
    covered: dict[int, list[Span]] = {}
    for slot in of_kind(planned, ReleaseKind.RESIDUAL_REPORT):
        span = span_covered(planned.schedule, slot.key)
        covered.setdefault(slot.key.window, []).append(span)
    assert len(covered) > 1
    assert all(len(each) == 2 and len(set(each)) == 1 for each in covered.values())


@pytest.mark.parametrize("workloads", [400, 9000])
@pytest.mark.parametrize("begun", [(0,), (4,), (3, 4), (0, 5, 12), tuple(range(13))])
def test_report_spans_cover_one_drift_regime_and_never_overlap(
    workloads: int, begun: tuple[int, ...]
) -> None:
    """Drift regimes that begin with the report's window or later do not affect its span."""
    planned = plan_schedule(replace(SMALL, nominal_workloads=workloads), calendar(13))
    period = planned.schedule.calendar.period
    starts = [period.start - timedelta(days=90), *(period.window_start(each) for each in begun)]
    before: Span | None = None
    for slot in of_kind(planned, ReleaseKind.RESIDUAL_REPORT):
        plain = span_covered(planned.schedule, slot.key)
        span = span_covered(planned.schedule, slot.key, starts)
        assert span.until == plain.until
        assert span.since is not None
        assert span.since < span.until
        assert not any(span.since < each < span.until for each in starts)
        assert span.since in starts or span.since == plain.since
        assert before is None or before.until <= span.since
        before = span


def test_drift_regime_between_two_calendars_leaves_first_report_unchanged() -> None:
    """Otherwise that report would cover only the day between the two calendars."""
    planned = plan_schedule(replace(SMALL, nominal_workloads=9000), calendar(13))
    period = planned.schedule.calendar.period
    between = period.start - timedelta(days=1)
    first, second = of_kind(planned, ReleaseKind.RESIDUAL_REPORT)[:2]
    assert (first.key.window, second.key.window) == (0, 1)
    assert span_covered(planned.schedule, first.key, [between]) == Span(None, period.start)
    expected = Span(period.start, period.window_start(1))
    assert span_covered(planned.schedule, second.key, [between]) == expected


def test_withheld_model_updates_leave_their_budget_to_reports() -> None:
    no_updates = plan_schedule(replace(LARGE, model_update=ReleaseMode.NEVER), calendar())
    assert of_kind(no_updates, ReleaseKind.MODEL_UPDATE) == []
    assert no_updates.epsilon > 0.99


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_release_mode_ask_is_planned_like_auto(share: float) -> None:
    policy = replace(LARGE, report_share=share)
    asking = replace(policy, residual_report=ReleaseMode.ASK, model_update=ReleaseMode.ASK)
    assert plan_schedule(asking, calendar()) == plan_schedule(policy, calendar())


def test_report_share_of_one_leaves_the_budget_to_updates_if_no_report_may_leave() -> None:
    updates_only = replace(LARGE, report_share=1.0, residual_report=ReleaseMode.NEVER)
    planned = plan_schedule(updates_only, calendar())
    assert {slot.key.kind for slot in planned.schedule.slots} == {ReleaseKind.MODEL_UPDATE}
    assert planned_modes(updates_only, planned.schedule) == {"model_update": "auto"}


def test_report_share_of_one_or_zero_plans_one_kind_of_release() -> None:
    all_reports = plan_schedule(replace(LARGE, report_share=1.0), calendar())
    assert of_kind(all_reports, ReleaseKind.MODEL_UPDATE) == []
    no_reports = plan_schedule(replace(LARGE, report_share=0.0), calendar(2))
    assert of_kind(no_reports, ReleaseKind.RESIDUAL_REPORT) == []
    assert 0.99 < no_reports.epsilon <= 1.0
    assert "report.share is 0" in reasons(no_reports)


def test_calendar_without_model_slots_gives_the_budget_to_reports() -> None:
    planned = plan_schedule(LARGE, calendar(models=0))
    assert of_kind(planned, ReleaseKind.MODEL_UPDATE) == []
    assert planned.epsilon > 0.99
    assert "calendar has no slots" in reasons(planned)
