"""A schedule fixes every slot of a period at its start, from a policy and the public calendar.

The noise is calibrated over the whole period: all slots together cost at most the budget. Only
declared figures, public dates and the time of joining enter, never data, so the schedule may be
shown to anybody. Slots that are not planned are listed with the reason.

An organization has a history when it joins. So its first report leaves on the next reporting day of
the calendar (`ReleaseCalendar.first_slots`), about what is stored by then. Later ones are spread
evenly over the remaining windows, as many as teach most for the budget. Each report is about a
fixed span of executions.

A forecast shows the schedule of a policy and of its alternatives; nothing is charged for it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from fedperf_client.release.accountant import (
    PrivacyBudget,
    calibrate,
    epsilon,
    replace_one_epsilon,
    to_event,
    to_events,
)
from fedperf_client.release.policy import ConfigurationSecrecy, Policy, ReleaseMode
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar
from fedperf_shared.releases.release import (
    DECLARABLE,
    DirectedParameters,
    LinearizedParameters,
    NotDeclarableError,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    SlotKey,
    require_declarable,
)

# Factor by which the first of several report slots of a window clips wider than the policy. The
# later slots are directed, with clips around its result.
FIRST_STAGE_CLIP = 2.0

MIN_SIGNAL_TO_NOISE = 1.0

# Variance of the pretrained model's error in a cell, (log seconds)^2: a factor of e.
PRIOR_VARIANCE = 1.0

# Variance that the error gains from window to window, (log seconds)^2: systems drift.
CHANGE_VARIANCE = 0.04

# Among plans whose mean error is at most this multiple of the least, the one with most reports is
# taken: drift and new versions are estimated from them as well.
NEARLY_BEST = 1.1

MORE_MEMBERS = 2  # number of further members like this one in the last of the alternatives
KIND_NAMES = {"report": ReleaseKind.RESIDUAL_REPORT, "update": ReleaseKind.MODEL_UPDATE}

_PERIOD_FORMAT = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(report|update)-(\d{1,4})-(\d{1,4})(?:@(\d{8}T\d{6}))?")


@dataclass(frozen=True, slots=True)
class OmittedSlots:
    """A kind of release whose slots the schedule omits, some or all, with the reason."""

    what: ReleaseKind
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule with its omitted slots and its cost."""

    schedule: Schedule  # every slot of the period
    budget: PrivacyBudget  # the most that all slots together may cost
    not_planned: tuple[OmittedSlots, ...]  # the omitted slots, with reasons for people
    epsilon: float  # the cost of all slots together, for add or remove one workload
    replace_one_epsilon: float  # the same when one workload is replaced, shown next to it


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """A plain report and the directed ones that refine it, about the same executions."""

    keys: tuple[SlotKey, ...]  # of their slots, in the order in which they open
    window: int  # of the plain one
    workloads: float  # declared number that it is about

    def signal_to_noise(self, policy: Policy, noise_multiplier: float) -> float:
        """Return the expected count in an occupied cell, scaled, over the noise's stddev.

        The reports of a group together are as informative as a single one of their whole budget;
        `noise_multiplier` is that of each.
        """
        noise = noise_multiplier / math.sqrt(len(self.keys))
        return self.workloads / policy.occupied_cells / math.sqrt(2.0) / noise


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The reports of a period, by groups."""

    # In the order in which they leave; none where nothing is worth its noise.
    groups: tuple[ReportGroup, ...] = ()
    windows: int = 0  # number of remaining windows, that of the first report included
    signal_to_noise: float = 0.0  # the least of the groups; of a single group where there is none
    # Stddev of the posterior of an occupied cell, log seconds, the mean over the remaining windows.
    mean_error: float = math.sqrt(PRIOR_VARIANCE)


@dataclass(frozen=True, slots=True)
class Span:
    """The executions that a report is about: those that finished from `since` to before `until`."""

    since: datetime | None  # None for all that ever finished
    # Start of the report's own window, so that only completed windows count; of a first report the
    # time at which it opens.
    until: datetime


@dataclass(frozen=True, slots=True)
class ScheduleForecast:
    """The expected figures of a period."""

    # Of the first release; what is stored by then counts. None where nothing leaves.
    first_opens_at: datetime | None
    first_leaves_at: datetime | None  # when the first release leaves
    reports: int  # number of report slots
    updates: int  # number of model updates, without extra ones
    # Factor by which the correction of a cell is off, one stddev, averaged over the rest of the
    # period; without any reports it is e.
    expected_error: float


class UnknownSlotError(InvalidInputError):
    """Raised for a text that names no slot."""

    def __init__(self, text: str, *, reason: str) -> None:
        super().__init__(f"no slot {text!r}: {reason}; `fedperf release slots` lists them")


def plan_schedule(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime | None = None
) -> PlannedSchedule:
    """Plan the schedule of `policy` on the public `calendar` from the time of joining on.

    Reports: where the period's budget is most informative (`_plan_reports`), the first on the next
    reporting day. The number of workloads in a report is declared: it decides how often reports
    leave, and never what they cost, since every report charges every workload in full. Model
    updates: in every window, of organizations declared large; of the extra ones only as many are
    paid for as the calendar uses. Where both leave, reports get their share of epsilon and the
    updates the rest. The calendar fixes their method. Slots that were over at `at` are not
    planned, so they take no part of the budget.

    Args:
        policy: declared figures.
        calendar: the public calendar.
        at: when the organization joins the period, public; by default the period's start.

    Raises:
        ConfigurationError: no noise meets the budget, or none that may be declared, or model
            updates would have to train by DP-SGD.
    """
    at = at or calendar.period.start
    omitted = {kind: _find_reason_to_omit(policy, calendar, kind, at=at) for kind in ReleaseKind}
    not_planned = [OmittedSlots(kind, reason) for kind, reason in omitted.items() if reason]
    slots: list[Slot] = []
    if not omitted[ReleaseKind.RESIDUAL_REPORT]:
        budget = _report_budget(policy, calendar, at=at)
        plan = _plan_reports(policy, calendar, at=at)
        slots = _report_slots(policy, plan, budget)
        if not len(plan.groups) == plan.windows > 0:
            reason = _explain_fewer_reports(policy, budget, plan)
            not_planned.append(OmittedSlots(ReleaseKind.RESIDUAL_REPORT, reason))
    if not omitted[ReleaseKind.MODEL_UPDATE]:
        if calendar.model_method is ModelMethod.UNSPECIFIED:
            raise ConfigurationError(
                "the calendar's model rounds train by DP-SGD, which fedperf does not do any more: "
                'the coordinator needs calendar.model_method = "tangent"; until then reports alone '
                'leave with release.model_update = "never" in the policy'
            )
        keys = _coming_updates(calendar, at=at)
        extra = sum(key.index >= len(calendar.model_slots) for key in keys)
        charged = len(keys) - extra + min(extra, calendar.most_extra)
        parameters = _update_parameters(policy, charged, tuple(slots))
        slots += [Slot(key, parameters) for key in keys]
    times = Schedule(calendar, tuple(slots))
    slots.sort(key=lambda slot: (times.opens_at(slot.key), slot.key))
    schedule = Schedule(calendar, tuple(slots))
    events = to_events(schedule.at_most())
    spent = epsilon(events, policy.delta)
    if not spent <= policy.epsilon:
        raise ConfigurationError(
            f"the schedule would cost epsilon {spent:.6g}, the budget is {policy.epsilon:g}"
        )
    try:
        require_declarable(schedule)
    except NotDeclarableError as error:
        raise ConfigurationError(
            f"what a budget of epsilon {policy.epsilon:g} at delta {policy.delta:g} needs cannot "
            f"be declared: {error}"
        ) from error
    return PlannedSchedule(
        schedule=schedule,
        budget=policy.budget,
        not_planned=tuple(not_planned),
        epsilon=spent,
        replace_one_epsilon=replace_one_epsilon(events, policy.delta),
    )


def forecast(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime, members: int = 1
) -> ScheduleForecast:
    """Forecast the schedule of an organization that joins at `at`, among `members` similar ones."""
    plan = ReportPlan()
    if not _find_reason_to_omit(policy, calendar, ReleaseKind.RESIDUAL_REPORT, at=at):
        plan = _plan_reports(policy, calendar, at=at, members=members)
    reports = [key for group in plan.groups for key in group.keys]
    updates: list[SlotKey] = []
    if not _find_reason_to_omit(policy, calendar, ReleaseKind.MODEL_UPDATE, at=at):
        ordinary = len(calendar.model_slots)
        updates = [key for key in _coming_updates(calendar, at=at) if key.index < ordinary]
    times = Schedule(calendar, ())
    first = min((*reports, *updates), key=times.replies_at, default=None)
    return ScheduleForecast(
        first_opens_at=None if first is None else times.opens_at(first),
        first_leaves_at=None if first is None else times.replies_at(first),
        reports=len(reports),
        updates=len(updates),
        expected_error=math.exp(plan.mean_error),
    )


def forecast_alternatives(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime
) -> dict[str, ScheduleForecast]:
    """Forecast with another epsilon, another declaration, or more members, by the change."""
    lifetime = policy.lifetime_epsilon and max(policy.lifetime_epsilon, 2 * policy.epsilon)
    doubled = replace(policy, epsilon=2 * policy.epsilon, lifetime_epsilon=lifetime)
    others = {f"epsilon = {doubled.epsilon:g}": doubled}
    many, every = 2 * policy.nominal_workloads, policy.nominal_workloads
    if many * policy.delta < 1:
        others[f"nominal_workloads = {many:g}"] = replace(policy, nominal_workloads=many)
    if policy.workloads_per_window is None:
        others[f"workloads_per_window = {every:g}"] = replace(policy, workloads_per_window=every)
    more = f"{MORE_MEMBERS} more organizations like this one"
    return {
        **{change: forecast(other, calendar, at=at) for change, other in others.items()},
        more: forecast(policy, calendar, at=at, members=1 + MORE_MEMBERS),
    }


def span_covered(schedule: Schedule, key: SlotKey, regime_starts: Sequence[datetime] = ()) -> Span:
    """Return the span of executions that the report of `key` is about.

    Each execution that is stored in time is in the reports of one group. The first report is about
    everything that finished before it opens, and so are the directed ones that refine it. Later
    reports are made some days into their window and are about what finished since the group before,
    until the last completed window; all stages of a window are about the same. A schedule without a
    first slot begins with everything before the window of its first report. A report is about one
    drift regime, that of the window before its own: nothing counts from before that regime began or
    after it ended. A regime that began between two calendars begins with this one's first window.
    What is stored only after its report was made is in no report of the period; local training and
    model updates still learn from it.

    Args:
        schedule: of the period.
        key: of a report slot.
        regime_starts: when each drift regime after the first one began.
    """
    period = schedule.calendar.period
    until = _collected_until(schedule, key)
    others = (
        _collected_until(schedule, slot.key) for slot in schedule.slots if slot.key.kind is key.kind
    )
    since = [each for each in others if each < until]
    since += [each for each in regime_starts if period.first_window(each) < key.window]
    ended = [
        period.window_start(window)
        for each in regime_starts
        if (window := period.first_window(each)) >= key.window
    ]
    return Span(max(since, default=None), min([until, *ended]))


def slot_name(key: SlotKey, *, period: Period | None = None) -> str:
    """Return the slot's name for people: `report-3-0` is report slot 0 of window 3.

    It includes the start of `period`, which is given where it is not the newest.
    """
    kind = next(name for name, each in KIND_NAMES.items() if each is key.kind)
    start = "" if period is None else f"@{period.start:{_PERIOD_FORMAT}}"
    return f"{kind}-{key.window}-{key.index}{start}"


def parse_slot_name(text: str, periods: Sequence[Period]) -> tuple[int, SlotKey]:
    """Return the position of its period in `periods`, oldest first, and the slot of that name.

    Raises:
        UnknownSlotError: not a slot's name, or its period is not one of `periods`.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UnknownSlotError(text, reason="a name looks like report-3-0 or update-3-0")
    key = SlotKey(KIND_NAMES[match[1]], int(match[2]), int(match[3]))
    starts = [f"{period.start:{_PERIOD_FORMAT}}" for period in periods]
    if match[4] is None:
        return len(periods) - 1, key
    if match[4] not in starts:
        raise UnknownSlotError(text, reason="no period began then")
    return starts.index(match[4]), key


def _find_reason_to_omit(
    policy: Policy, calendar: ReleaseCalendar, kind: ReleaseKind, *, at: datetime
) -> str:
    """Return why no slot of `kind` is planned at all; empty if there may be some."""
    is_report = kind is ReleaseKind.RESIDUAL_REPORT
    is_large = policy.size_class == SizeClass.LARGE
    reports_leave = policy.residual_report != ReleaseMode.NEVER and bool(calendar.report_slots)
    reasons = {
        "the policy never releases this kind": policy.mode(kind) == ReleaseMode.NEVER,
        "the coordinator's calendar has no slots of this kind": (
            not (calendar.report_slots if is_report else calendar.model_slots)
        ),
        "size class small: below about 2,000 workloads the noise would hide what a model "
        "update learned; the budget goes to reports": not is_report and not is_large,
        "report.share is 1: the whole budget goes to reports": (
            not is_report and policy.report_share == 1 and reports_leave
        ),
        "report.share is 0: the whole budget goes to model updates": (
            is_report and policy.report_share == 0 and is_large
        ),
        "the period is over before a model round": (
            not is_report and not _coming_updates(calendar, at=at)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _report_budget(policy: Policy, calendar: ReleaseCalendar, *, at: datetime) -> PrivacyBudget:
    """Return the budget of all reports: their share where model updates leave as well."""
    has_updates = not _find_reason_to_omit(policy, calendar, ReleaseKind.MODEL_UPDATE, at=at)
    share = policy.report_share if has_updates else 1.0
    return PrivacyBudget(policy.epsilon * share, policy.delta)


def _plan_reports(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime, members: int = 1
) -> ReportPlan:
    """Return the most informative plan for the rest of the period, of those worth their noise.

    All slots share the budget equally. The loss of a plan is the posterior's error of an occupied
    cell, averaged over the remaining windows: it begins with PRIOR_VARIANCE, every group of reports
    measures the cell's level with the variance (clip / signal-to-noise)^2, and between windows the
    level changes by CHANGE_VARIANCE. The first group is about the history, so about the declared
    workloads of a period; a later one about those since the one before. Fewer and earlier reports
    have less noise each, more of them are fresh. Plans with a group whose expected signal-to-noise
    is below 1 are left out.

    `members` organizations that report alike share the error; they do not change the plan.
    """
    period = calendar.period
    single_noise = _single_report_noise(_report_budget(policy, calendar, at=at))
    begins, first = _find_first(calendar, at)
    plans: list[ReportPlan] = []
    for count in range(1, period.windows - begins + 1):
        groups = _spread_groups(policy, calendar, count, begins=begins, first=first)
        noise = single_noise * math.sqrt(sum(len(each.keys) for each in groups))
        ratios = [each.signal_to_noise(policy, noise) for each in groups]
        variances = {
            group.window: (policy.residual_clip / ratio) ** 2 / members
            for group, ratio in zip(groups, ratios, strict=True)
        }
        error = _mean_error(variances, range(begins, period.windows))
        plans.append(ReportPlan(groups, period.windows - begins, min(ratios), error))
    worth = [each for each in plans if each.signal_to_noise >= MIN_SIGNAL_TO_NOISE]
    if not worth:
        ratio = plans[0].signal_to_noise if plans else 0.0
        return ReportPlan(windows=period.windows - begins, signal_to_noise=ratio)
    least = min(each.mean_error for each in worth)
    return [each for each in worth if each.mean_error <= NEARLY_BEST * least][-1]


def _spread_groups(
    policy: Policy, calendar: ReleaseCalendar, count: int, *, begins: int, first: SlotKey | None
) -> tuple[ReportGroup, ...]:
    """Return `count` groups from the window `begins` on, the later ones spread evenly.

    The directed slots of the first group open next after its plain one, `first`: they are the
    window's own, or those of the next window, where that has no group of its own.
    """

    def ordinary_keys(window: int, *, since: int = 0) -> tuple[SlotKey, ...]:
        indices = range(since, len(calendar.report_slots))
        return tuple(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index) for index in indices)

    total = calendar.period.windows
    gap = (total - begins) / count
    later = [begins + place * (total - begins) // count for place in range(1, count)]
    per_window = policy.workloads_per_window or policy.nominal_workloads / total
    fresh = min(policy.nominal_workloads, per_window * gap)
    keys = ordinary_keys(begins)
    if first is not None:
        refining, window = calendar.report_slots[1:], begins
        leaves_after = calendar.report_times[first.index].replies_after
        if refining and refining[0].opens_after < leaves_after:
            window += 1
        has_room = window not in later and window < total
        keys = (first, *(ordinary_keys(window, since=1) if has_room else ()))
    return (
        ReportGroup(keys, begins, policy.nominal_workloads),
        *(ReportGroup(ordinary_keys(window), window, fresh) for window in later),
    )


def _find_first(calendar: ReleaseCalendar, at: datetime) -> tuple[int, SlotKey | None]:
    """Return the window of the first report after joining, and its slot if it is a first slot.

    That is the next of the first slots that opens at `at` or later. The window is
    `period.windows` if none remains.
    """
    period, ordinary = calendar.period, len(calendar.report_slots)
    if not calendar.first_slots:
        return period.nearest_window(at), None
    coming = [
        (opens_at, window, index)
        for window in range(period.nearest_window(at), period.windows)
        for index, times in enumerate(calendar.first_slots, ordinary)
        if (opens_at := period.window_start(window) + times.opens_after) >= at
    ]
    if not coming:
        return period.windows, None
    _, window, index = min(coming)
    return window, SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)


def _mean_error(variance_by_window: dict[int, float], windows: range) -> float:
    """Return the mean posterior standard deviation, given each report's variance."""
    variance, errors = PRIOR_VARIANCE, []
    for window in windows:
        if window in variance_by_window:
            variance = 1 / (1 / variance + 1 / variance_by_window[window])
        errors.append(math.sqrt(variance))
        variance = min(variance + CHANGE_VARIANCE, PRIOR_VARIANCE)
    return math.fsum(errors) / len(errors)


def _report_slots(policy: Policy, plan: ReportPlan, budget: PrivacyBudget) -> list[Slot]:
    """Return the slots of all reports with equal noise.

    The plain report of a group is a residual report, those after it are directed ones; together
    they cost what a single one would.
    """
    count = sum(len(each.keys) for each in plan.groups)
    noise = _single_report_noise(budget) * math.sqrt(max(count, 1))
    # The discretization of the accountant moves the last digits; they are settled upwards.
    while not epsilon([to_event(ReportParameters(noise, 1.0))] * count, budget.delta) <= (
        budget.epsilon
    ):
        noise *= 1.0001
    least_workloads = DECLARABLE["nominal_workloads"].least
    slots: list[Slot] = []
    for group in plan.groups:
        wide = FIRST_STAGE_CLIP if len(group.keys) > 1 else 1.0
        plain = ReportParameters(
            noise,
            min(policy.residual_clip * wide, DECLARABLE["residual_clip"].most),
            public_counts=policy.configurations is ConfigurationSecrecy.PUBLIC,
        )
        directed = DirectedParameters(noise, max(group.workloads, least_workloads))
        first, *refining = group.keys
        slots += [Slot(first, plain), *(Slot(key, directed) for key in refining)]
    return slots


@lru_cache(maxsize=64)
def _single_report_noise(budget: PrivacyBudget) -> float:
    """Return the noise multiplier of a report that alone spends `budget`."""
    return calibrate(lambda noise: [to_event(ReportParameters(noise, 1.0))], budget)


def _explain_fewer_reports(policy: Policy, budget: PrivacyBudget, plan: ReportPlan) -> str:
    """Return why not every window has a report."""
    if not plan.windows:
        return "the period has no reporting day left"
    declared = (
        f"{policy.nominal_workloads:g} declared workloads in {policy.occupied_cells} cells "
        f"at epsilon {budget.epsilon:g}"
    )
    if plan.groups:
        return (
            f"signal-to-noise: {declared} carry reports in {len(plan.groups)} of {plan.windows} "
            f"windows; with more, each report would be below {MIN_SIGNAL_TO_NOISE:g}, or "
            "all together would teach less"
        )
    return (
        f"signal-to-noise: {declared} give even a single report only "
        f"{plan.signal_to_noise:.2g}, below {MIN_SIGNAL_TO_NOISE:g}; more workloads or a larger "
        "epsilon would carry one"
    )


def _coming_updates(calendar: ReleaseCalendar, *, at: datetime) -> list[SlotKey]:
    """Return the model slots, extra ones included, that are still ahead at `at`."""
    period = calendar.period
    return [
        SlotKey(ReleaseKind.MODEL_UPDATE, window, index)
        for window in range(period.nearest_window(at), period.windows)
        for index, times in enumerate(calendar.model_times)
        if period.window_start(window) + times.replies_after > at
    ]


@lru_cache(maxsize=64)
def _update_parameters(
    policy: Policy, charged: int, reports: tuple[Slot, ...]
) -> LinearizedParameters:
    """Return the noise of `charged` equal updates that spend, with `reports`, the whole budget."""
    fixed = to_events(reports)

    def parameters(noise_multiplier: float) -> LinearizedParameters:
        return LinearizedParameters(noise_multiplier, policy.nominal_workloads)

    noise = calibrate(
        lambda noise: [*fixed, *[to_event(parameters(noise))] * charged], policy.budget
    )
    return parameters(noise)


def _collected_until(schedule: Schedule, key: SlotKey) -> datetime:
    """Return until when executions are collected for the group of `key`."""
    reports = [slot.key for slot in schedule.slots if slot.key.kind is key.kind]
    is_first = schedule.calendar.is_first_report
    first = next((each for each in reports if is_first(each.index)), None)
    has_plain = any(each.window == key.window and each.index == 0 for each in reports)
    if first is not None and (key == first or not has_plain):
        return schedule.opens_at(first)
    return schedule.calendar.period.window_start(key.window)
