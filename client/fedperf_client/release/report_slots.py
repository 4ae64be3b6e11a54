"""The report slots of a period, and the executions that each report is about.

A history is there when an organization joins. So its first report leaves on the next reporting day
of the public calendar (`ReleaseCalendar.first_slots`), about what is stored by then. Later ones are
spread evenly over the windows that are left. Their number is chosen for what the budget teaches,
and fixed with the period's schedule. It is chosen by declared figures, public dates and the moment
of joining alone, never by data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fedperf_client.release.policy import Policy
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import ReleaseKind, Schedule, SlotKey

MIN_SIGNAL_TO_NOISE = 1.0

PRIOR_VARIANCE = 1.0
"""Variance of a public start's error in a cell, (log seconds)^2: a factor of e."""

CHANGE_VARIANCE = 0.04
"""Variance that the error gains from window to window, (log seconds)^2: systems drift."""

NEARLY_BEST = 1.1
"""Among plans whose mean error is at most this multiple of the least, the one with most reports is
taken: drift and new versions are estimated from them as well."""


@dataclass(frozen=True, slots=True)
class Span:
    """The executions that a report is about: those that finished from `since` to before `until`.

    Attributes:
        since: None for all that ever finished.
        until: start of the report's own window, so that only completed windows count; of a
            first report the moment at which it opens.
    """

    since: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """A plain report and the directed ones that refine it, about the same executions.

    Attributes:
        keys: of their slots, in the order in which they open.
        window: in which the plain one leaves.
        workloads: declared number that it is about.
    """

    keys: tuple[SlotKey, ...]
    window: int
    workloads: float

    def signal_to_noise(self, policy: Policy, noise_multiplier: float) -> float:
        """Expected count in an occupied cell, as the basis scales it, over the noise's stddev.

        The reports of a group tell together what a single one of their whole budget would;
        `noise_multiplier` is that of each.
        """
        noise = noise_multiplier / math.sqrt(len(self.keys))
        return self.workloads / policy.occupied_cells / math.sqrt(2.0) / noise


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The reports of a period, by groups.

    Attributes:
        groups: in the order in which they leave; none where nothing is worth its noise.
        windows: of the calendar that are left, that of the first report included.
        signal_to_noise: the least of the groups; of a single group where there is none.
        mean_error: stddev of the belief about an occupied cell, log seconds, the mean over the
            windows that are left.
    """

    groups: tuple[ReportGroup, ...]
    windows: int
    signal_to_noise: float
    mean_error: float

    @property
    def slots(self) -> int:
        """The total number of slots."""
        return sum(len(each.keys) for each in self.groups)


NO_REPORTS = ReportPlan((), 0, 0.0, math.sqrt(PRIOR_VARIANCE))
"""The plan of a policy or a calendar without reports."""


def plan_reports(
    policy: Policy,
    calendar: ReleaseCalendar,
    single_noise: float,
    *,
    at: datetime,
    members: int = 1,
) -> ReportPlan:
    """The plan that teaches most over the rest of the period, of those worth their noise.

    All slots share the budget equally. What a plan teaches is the error of the belief about an
    occupied cell, averaged over the windows that are left: it begins with PRIOR_VARIANCE, every
    group of reports tells the cell's level with the variance (clip / signal-to-noise)^2, and
    between windows the level changes by CHANGE_VARIANCE. The first group is about the history,
    so about the declared workloads of a period; a later one about those since the one before.
    Fewer and earlier reports have less noise each, more of them are fresh. Plans with a group
    whose expected signal-to-noise is below 1 are left out.

    Args:
        policy: declared figures.
        calendar: the public calendar.
        single_noise: noise multiplier of a report that alone spends the reports' budget.
        at: when the organization joins the period.
        members: organizations that report alike, for the error; they do not change the plan.
    """
    begins = _first_window(calendar, at)
    windows = 0 if begins is None else calendar.period.windows - begins
    plans: list[ReportPlan] = []
    for count in range(1, windows + 1):
        groups = _groups(policy, calendar, count, at=at)
        noise = single_noise * math.sqrt(sum(len(each.keys) for each in groups))
        ratios = [each.signal_to_noise(policy, noise) for each in groups]
        variances = {
            group.window: (policy.residual_clip / ratio) ** 2 / members
            for group, ratio in zip(groups, ratios, strict=True)
        }
        error = _mean_error(
            variances, range(calendar.period.windows - windows, calendar.period.windows)
        )
        plans.append(ReportPlan(groups, windows, min(ratios), error))
    worth = [each for each in plans if each.signal_to_noise >= MIN_SIGNAL_TO_NOISE]
    if not worth:
        ratio = plans[0].signal_to_noise if plans else 0.0
        return ReportPlan((), windows, ratio, math.sqrt(PRIOR_VARIANCE))
    least = min(each.mean_error for each in worth)
    return [each for each in worth if each.mean_error <= NEARLY_BEST * least][-1]


def span_covered(schedule: Schedule, key: SlotKey, epoch_starts: Sequence[datetime] = ()) -> Span:
    """The executions that the report of `key` is about; each stored in time is in one group.

    The first report is about everything that finished before it opens, and so are the directed
    ones that refine it. Later reports are made some days into their window and are about what
    finished since the group before, until the last window that is over; all stages of a window
    are about the same. A schedule without a first slot begins with everything before the window
    of its first report. A report is about one epoch, that of the window before its own: nothing
    counts from before that epoch began or after it ended. One that began between two calendars
    begins with this one's first window. What is stored only after its report was made is in
    no report of the period; training at home and model updates still learn from it.

    Args:
        schedule: of the period.
        key: of a report slot.
        epoch_starts: when each epoch after the first one began.
    """
    period = schedule.calendar.period
    until = _collected_until(schedule, key)
    others = (
        _collected_until(schedule, slot.key) for slot in schedule.slots if slot.key.kind is key.kind
    )
    since = [each for each in others if each < until]
    since += [each for each in epoch_starts if period.first_window(each) < key.window]
    ended = [
        period.window_start(window)
        for each in epoch_starts
        if (window := period.first_window(each)) >= key.window
    ]
    return Span(max(since, default=None), min([until, *ended]))


def _collected_until(schedule: Schedule, key: SlotKey) -> datetime:
    """Until when executions are collected for the group of `key`."""
    reports = [slot.key for slot in schedule.slots if slot.key.kind is key.kind]
    is_first = schedule.calendar.is_first_report
    first = next((each for each in reports if is_first(each.index)), None)
    has_plain = any(each.window == key.window and each.index == 0 for each in reports)
    if first is not None and (key == first or not has_plain):
        return schedule.opens_at(first)
    return schedule.calendar.period.window_start(key.window)


def _first_window(calendar: ReleaseCalendar, at: datetime) -> int | None:
    """Return the window of the first report after joining at `at`, or None if none remains."""
    if calendar.first_slots:
        first = _first_slot(calendar, at)
        return None if first is None else first.window
    window = calendar.period.nearest_window(at)
    return window if window < calendar.period.windows else None


def _first_slot(calendar: ReleaseCalendar, at: datetime) -> SlotKey | None:
    """Return the next of the first slots that opens at `at` or later."""
    period, ordinary = calendar.period, len(calendar.report_slots)
    first_keys = [
        (period.window_start(window) + times.opens_after, window, index)
        for window in range(period.nearest_window(at), period.windows)
        for index, times in enumerate(calendar.first_slots, ordinary)
    ]
    coming = [each for each in first_keys if each[0] >= at]
    if not coming:
        return None
    _, window, index = min(coming)
    return SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)


def _groups(
    policy: Policy, calendar: ReleaseCalendar, count: int, *, at: datetime
) -> tuple[ReportGroup, ...]:
    """So many groups: the first as early as there is one, the others evenly after it."""
    begins, total = _first_window(calendar, at) or 0, calendar.period.windows
    gap = (total - begins) / count
    later = [begins + place * (total - begins) // count for place in range(1, count)]
    per_window = policy.workloads_per_window or policy.nominal_workloads / total
    fresh = min(policy.nominal_workloads, per_window * gap)
    return (
        ReportGroup(
            _first_keys(calendar, begins, at=at, taken=later), begins, policy.nominal_workloads
        ),
        *(ReportGroup(_ordinary(calendar, window), window, fresh) for window in later),
    )


def _ordinary(calendar: ReleaseCalendar, window: int, *, since: int = 0) -> tuple[SlotKey, ...]:
    """The report slots that every window has, from that index on."""
    indices = range(since, len(calendar.report_slots))
    return tuple(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index) for index in indices)


def _first_keys(
    calendar: ReleaseCalendar, begins: int, *, at: datetime, taken: Sequence[int]
) -> tuple[SlotKey, ...]:
    """The slots of the first group: its directed ones are those that open next after its plain one.

    These are the window's own, or of the next window where that is not `taken`.
    """
    first = _first_slot(calendar, at)
    if first is None:
        return _ordinary(calendar, begins)
    refining = calendar.report_slots[1:]
    leaves_after = calendar.report_times[first.index].replies_after
    window = begins
    if refining and refining[0].opens_after < leaves_after:
        window += 1
    if window in taken or not window < calendar.period.windows:
        return (first,)
    return (first, *_ordinary(calendar, window, since=1))


def _mean_error(variance_by_window: dict[int, float], windows: range) -> float:
    """Mean over windows of the posterior standard deviation, given each report's variance."""
    variance, errors = PRIOR_VARIANCE, []
    for window in windows:
        if window in variance_by_window:
            variance = 1 / (1 / variance + 1 / variance_by_window[window])
        errors.append(math.sqrt(variance))
        variance = min(variance + CHANGE_VARIANCE, PRIOR_VARIANCE)
    return math.fsum(errors) / len(errors)
