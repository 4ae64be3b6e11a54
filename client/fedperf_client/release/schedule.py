"""From a policy and the public calendar to every slot of a period, fixed at its start.

The noise is calibrated over the whole period: all slots together cost at most the
budget. Only declared figures and public dates enter, never data; so the schedule may
be shown to anybody. What is not planned is named with the reason in words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from fedperf_client.privacy.accountant import (
    PrivacyBudget,
    calibrate,
    epsilon,
    event_of,
    events_of,
    replace_one_epsilon,
)
from fedperf_client.release.policy import ConfigurationSecrecy, Policy, ReleaseMode
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.declared_bounds import (
    DECLARABLE,
    NotDeclarableError,
    require_declarable,
)
from fedperf_shared.releases.period import ModelMethod, Timetable
from fedperf_shared.releases.release import (
    DirectedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    SlotKey,
    TangentParameters,
    TrainingParameters,
)

MIN_SIGNAL_TO_NOISE = 1.0

FIRST_STAGE_CLIP = 2.0
"""The first of several report slots of a window clips wide; the later ones are directed,
with clips around what it told."""


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """A slot, or all slots of a kind, that the schedule leaves out, and why."""

    what: SlotKey | ReleaseKind
    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """Which executions a report is about: those that finished from `since` until before `until`.

    Attributes:
        since: None for all that ever finished.
        until: start of the report's own window, so that only completed windows count.
    """

    since: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule with what it leaves out and what it costs.

    Attributes:
        schedule: every slot of the period.
        budget: what all slots together may cost.
        not_planned: what is left out, with reasons in words.
        epsilon: what all slots together cost, for add or remove one workload.
        replace_one_epsilon: the same when one workload is replaced, to be shown beside.
    """

    schedule: Schedule
    budget: PrivacyBudget
    not_planned: tuple[NotPlanned, ...]
    epsilon: float
    replace_one_epsilon: float


def plan_schedule(policy: Policy, timetable: Timetable) -> PlannedSchedule:
    """The schedule of `policy` on the public `timetable`.

    Reports: in as many windows as leave each window's reports a signal-to-noise ratio of at
    least 1, spread evenly; they then cover the windows since the ones before (`span_covered`).
    How many workloads a report holds is declared: that decides how often reports leave, and
    never what they cost, since every report charges every workload in full. Model updates:
    in every window, of organizations declared large; of the extra ones only so many are paid
    for as the calendar uses. Where both leave, reports get their
    share of epsilon and the updates what is left. How these train, the calendar says.

    Raises:
        ConfigurationError: no noise meets the budget, or none that may be declared.
    """
    left_out = {kind: _reason_to_leave_out(policy, timetable, kind) for kind in ReleaseKind}
    not_planned = [NotPlanned(kind, reason) for kind, reason in left_out.items() if reason]
    reports: list[Slot] = []
    if not left_out[ReleaseKind.RESIDUAL_REPORT]:
        share = 1.0 if left_out[ReleaseKind.MODEL_UPDATE] else policy.report_share
        budget = PrivacyBudget(policy.epsilon * share, policy.delta)
        reports, missing = _plan_reports(policy, timetable, budget)
        not_planned += missing
    updates: list[Slot] = []
    if not left_out[ReleaseKind.MODEL_UPDATE]:
        updates = _plan_updates(policy, timetable, reports)
    return _planned(policy, Schedule(timetable, tuple(reports + updates)), not_planned)


def span_covered(schedule: Schedule, key: SlotKey, epoch_starts: Sequence[datetime] = ()) -> Span:
    """Which executions the report of `key` is about: completed windows, each in one report.

    A report is made some days into its window and is about the windows from that of the
    report before it to the last one that is over; all stages of a window are about the same.
    The first report of a period is about everything before its window. A report is about one
    epoch, that of the window before its own: nothing counts from before that epoch began. One
    that began between two calendars begins with this one's first window.
    What is stored only after its report was made is in no report of the period; training at
    home and model updates still learn from it.

    Args:
        schedule: of the period.
        key: of a report slot.
        epoch_starts: when each epoch after the first one began.
    """
    earlier = [
        slot.key.window
        for slot in schedule.slots
        if slot.key.kind is key.kind and slot.key.window < key.window
    ]
    period = schedule.timetable.period
    until = period.window_start(key.window)
    since = [period.window_start(max(earlier))] if earlier else []
    since += [each for each in epoch_starts if period.first_window(each) < key.window]
    return Span(max(since, default=None), until)


def _reason_to_leave_out(policy: Policy, timetable: Timetable, kind: ReleaseKind) -> str:
    """Why no slot of `kind` is planned at all; empty if there may be some."""
    is_report = kind is ReleaseKind.RESIDUAL_REPORT
    is_large = policy.size_class == SizeClass.LARGE
    reports_leave = policy.residual_report != ReleaseMode.NEVER and bool(timetable.report_slots)
    reasons = {
        "the policy never releases this kind": policy.mode(kind) == ReleaseMode.NEVER,
        "the coordinator's calendar has no slots of this kind": (
            not (timetable.report_slots if is_report else timetable.model_slots)
        ),
        "size class small: below about 2,000 workloads the noise would hide what a model "
        "update knows; the budget goes to reports": not is_report and not is_large,
        "report.share is 1: the whole budget goes to reports": (
            not is_report and policy.report_share == 1 and reports_leave
        ),
        "report.share is 0: the whole budget goes to model updates": (
            is_report and policy.report_share == 0 and is_large
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _plan_reports(
    policy: Policy, timetable: Timetable, budget: PrivacyBudget
) -> tuple[list[Slot], list[NotPlanned]]:
    """Reports in the most windows that have a signal above their noise.

    The first of a window is a residual report, those after it are directed ones; together
    they cost what a single one would, and it is that one whose signal counts.
    """
    total = timetable.period.windows
    stages = len(timetable.report_slots)
    single = _single_report_noise(budget)
    ratios = {
        # Equal Gaussians compose exactly to one of sqrt(count) less noise.
        count: _signal_to_noise(
            policy, _workloads_of_a_report(policy, count, total), single * math.sqrt(count)
        )
        for count in range(1, total + 1)
    }
    planned = max((count for count in ratios if ratios[count] >= MIN_SIGNAL_TO_NOISE), default=0)
    windows = {(place + 1) * total // planned - 1 for place in range(planned)}
    noise = _equal_noise(single, planned * stages, budget)
    workloads = _workloads_of_a_report(policy, max(planned, 1), total)
    every = [
        SlotKey(ReleaseKind.RESIDUAL_REPORT, window, stage)
        for window in range(total)
        for stage in range(stages)
    ]
    slots = [
        Slot(key, _report_parameters(policy, key, noise, workloads=workloads, stages=stages))
        for key in every
        if key.window in windows
    ]
    reason = _too_noisy(policy, budget, total=total, planned=planned, ratio=ratios[1])
    return slots, [NotPlanned(key, reason) for key in every if key.window not in windows]


def _report_parameters(
    policy: Policy, key: SlotKey, noise_multiplier: float, *, workloads: float, stages: int
) -> ReportParameters | DirectedParameters:
    if key.index > 0:
        least = DECLARABLE["nominal_workloads"].least
        return DirectedParameters(noise_multiplier, max(workloads, least))
    wide = FIRST_STAGE_CLIP if stages > 1 else 1.0
    return ReportParameters(
        noise_multiplier,
        min(policy.residual_clip * wide, DECLARABLE["residual_clip"].most),
        public_counts=policy.configurations is ConfigurationSecrecy.PUBLIC,
    )


@lru_cache(maxsize=64)
def _single_report_noise(budget: PrivacyBudget) -> float:
    """Noise multiplier of a report that alone spends `budget`."""
    return calibrate(lambda noise: [event_of(ReportParameters(noise, 1.0))], budget)


def _equal_noise(single: float, slots: int, budget: PrivacyBudget) -> float:
    """Noise multiplier of each of `slots` equal reports, where one alone may have `single`.

    The discretization of the accountant moves the last digits; they are settled upwards.
    """
    noise = single * math.sqrt(max(slots, 1))
    while not epsilon([event_of(ReportParameters(noise, 1.0))] * slots, budget.delta) <= (
        budget.epsilon
    ):
        noise *= 1.0001
    return noise


def _workloads_of_a_report(policy: Policy, planned: int, total: int) -> float:
    """Declared number of workloads in each of `planned` reports over `total` windows."""
    if policy.workloads_per_window is None:
        return policy.nominal_workloads / planned
    return min(policy.nominal_workloads, policy.workloads_per_window * total / planned)


def _signal_to_noise(policy: Policy, workloads: float, noise_multiplier: float) -> float:
    """Expected count in an occupied cell, as the basis scales it, over the noise's stddev."""
    return workloads / policy.occupied_cells / math.sqrt(2.0) / noise_multiplier


def _too_noisy(
    policy: Policy, budget: PrivacyBudget, *, total: int, planned: int, ratio: float
) -> str:
    declared = (
        f"{policy.nominal_workloads:g} declared workloads in {policy.occupied_cells} cells "
        f"at epsilon {budget.epsilon:g}"
    )
    if planned:
        return (
            f"signal-to-noise: {declared} carry {planned} reporting windows of {total}; "
            "with more, each report would be below 1"
        )
    return (
        f"signal-to-noise: {declared} give even a single report only {ratio:.2g}, below "
        f"{MIN_SIGNAL_TO_NOISE:g}"
    )


def _plan_updates(policy: Policy, timetable: Timetable, reports: Sequence[Slot]) -> list[Slot]:
    keys = [
        SlotKey(ReleaseKind.MODEL_UPDATE, window, index)
        for window in range(timetable.period.windows)
        for index in range(len(timetable.model_times))
    ]
    charged = timetable.period.windows * len(timetable.model_slots) + timetable.most_extra
    beside = events_of(reports)

    def parameters(noise_multiplier: float) -> TangentParameters | TrainingParameters:
        if timetable.model_method is ModelMethod.TANGENT:
            return TangentParameters(noise_multiplier, policy.nominal_workloads)
        return TrainingParameters(
            noise_multiplier=noise_multiplier,
            sampling_probability=policy.sampling_probability,
            steps=policy.steps,
            clip_norm=policy.clip_norm,
            nominal_workloads=policy.nominal_workloads,
        )

    noise = calibrate(
        lambda noise: [*beside, *[event_of(parameters(noise))] * charged], policy.budget
    )
    return [Slot(key, parameters(noise)) for key in keys]


def _planned(policy: Policy, schedule: Schedule, not_planned: list[NotPlanned]) -> PlannedSchedule:
    slots = tuple(sorted(schedule.slots, key=lambda slot: (schedule.opens_at(slot.key), slot.key)))
    events = events_of(Schedule(schedule.timetable, slots).at_most())
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
        schedule=Schedule(schedule.timetable, slots),
        budget=policy.budget,
        not_planned=tuple(not_planned),
        epsilon=spent,
        replace_one_epsilon=replace_one_epsilon(events, policy.delta),
    )
