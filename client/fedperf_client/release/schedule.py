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
from fedperf_client.release.report_slots import (
    MIN_SIGNAL_TO_NOISE,
    NO_REPORTS,
    ReportPlan,
    plan_reports,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
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

FIRST_STAGE_CLIP = 2.0
"""The first of several report slots of a window clips wide; the later ones are directed,
with clips around what it told."""


@dataclass(frozen=True, slots=True)
class OmittedSlots:
    """A kind of release whose slots the schedule omits, some or all, with the reason."""

    what: ReleaseKind
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule with its omitted slots and its cost.

    Attributes:
        schedule: every slot of the period.
        budget: what all slots together may cost.
        not_planned: what is left out, with reasons in words.
        epsilon: what all slots together cost, for add or remove one workload.
        replace_one_epsilon: the same when one workload is replaced, to be shown beside.
    """

    schedule: Schedule
    budget: PrivacyBudget
    not_planned: tuple[OmittedSlots, ...]
    epsilon: float
    replace_one_epsilon: float


def plan_schedule(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime | None = None
) -> PlannedSchedule:
    """Plan the schedule of `policy` on the public `calendar` from the time of joining on.

    Reports: where the period's budget teaches most (`report_slots.plan_reports`), the first on
    the next reporting day. How many workloads a report holds is declared: that decides how often
    reports leave, and never what they cost, since every report charges every workload in full.
    Model updates: in every window, of organizations declared large; of the extra ones only so
    many are paid for as the calendar uses. Where both leave, reports get their share of epsilon
    and the updates what is left. How these train, the calendar says. Slots that were over at
    `at` are not planned, so that nothing of the budget lies in them.

    Args:
        policy: declared figures.
        calendar: the public calendar.
        at: when the organization joins the period, public; by default the period's start.

    Raises:
        ConfigurationError: no noise meets the budget, or none that may be declared, or model
            updates would have to train by DP-SGD.
    """
    at = at or calendar.period.start
    left_out = _left_out(policy, calendar, at=at)
    not_planned = [OmittedSlots(kind, reason) for kind, reason in left_out.items() if reason]
    reports: list[Slot] = []
    if not left_out[ReleaseKind.RESIDUAL_REPORT]:
        reports, missing = _plan_reports(policy, calendar, at=at)
        not_planned += missing
    updates: list[Slot] = []
    if not left_out[ReleaseKind.MODEL_UPDATE]:
        _require_method(calendar)
        updates = _plan_updates(policy, calendar, reports, at=at)
    return _planned(policy, Schedule(calendar, tuple(reports + updates)), not_planned)


def planned_reports(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime, members: int = 1
) -> ReportPlan:
    """Return the report slots of `plan_schedule` and their expected error among `members` peers."""
    if _left_out(policy, calendar, at=at)[ReleaseKind.RESIDUAL_REPORT]:
        return NO_REPORTS
    single = _single_report_noise(_budget_of_reports(policy, calendar, at=at))
    return plan_reports(policy, calendar, single, at=at, members=members)


def coming_updates(policy: Policy, calendar: ReleaseCalendar, *, at: datetime) -> list[SlotKey]:
    """The model slots of `plan_schedule`, extra ones included."""
    if _left_out(policy, calendar, at=at)[ReleaseKind.MODEL_UPDATE]:
        return []
    return _coming_model_slots(calendar, at)


def _left_out(policy: Policy, calendar: ReleaseCalendar, *, at: datetime) -> dict[ReleaseKind, str]:
    """Return by kind why no slot of it is planned, or "" if some are."""
    return {kind: _reason_to_leave_out(policy, calendar, kind, at=at) for kind in ReleaseKind}


def _budget_of_reports(policy: Policy, calendar: ReleaseCalendar, *, at: datetime) -> PrivacyBudget:
    """Their share where model updates leave as well."""
    share = policy.report_share if coming_updates(policy, calendar, at=at) else 1.0
    return PrivacyBudget(policy.epsilon * share, policy.delta)


def _reason_to_leave_out(
    policy: Policy, calendar: ReleaseCalendar, kind: ReleaseKind, *, at: datetime
) -> str:
    """Why no slot of `kind` is planned at all; empty if there may be some."""
    is_report = kind is ReleaseKind.RESIDUAL_REPORT
    is_large = policy.size_class == SizeClass.LARGE
    reports_leave = policy.residual_report != ReleaseMode.NEVER and bool(calendar.report_slots)
    reasons = {
        "the policy never releases this kind": policy.mode(kind) == ReleaseMode.NEVER,
        "the coordinator's calendar has no slots of this kind": (
            not (calendar.report_slots if is_report else calendar.model_slots)
        ),
        "size class small: below about 2,000 workloads the noise would hide what a model "
        "update knows; the budget goes to reports": not is_report and not is_large,
        "report.share is 1: the whole budget goes to reports": (
            not is_report and policy.report_share == 1 and reports_leave
        ),
        "report.share is 0: the whole budget goes to model updates": (
            is_report and policy.report_share == 0 and is_large
        ),
        "the period is over before a model round": (
            not is_report and not _coming_model_slots(calendar, at)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _plan_reports(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime
) -> tuple[list[Slot], list[OmittedSlots]]:
    """The slots of all reports, and why there are not more.

    The plain report of a group is a residual report, those after it are directed ones; together
    they cost what a single one would.
    """
    budget = _budget_of_reports(policy, calendar, at=at)
    plan = planned_reports(policy, calendar, at=at)
    noise = _equal_noise(_single_report_noise(budget), plan.slots, budget)
    slots = [
        Slot(
            key,
            _report_parameters(
                policy, noise, workloads=group.workloads, stage=stage, stages=len(group.keys)
            ),
        )
        for group in plan.groups
        for stage, key in enumerate(group.keys)
    ]
    if len(plan.groups) == plan.windows > 0:
        return slots, []
    return slots, [OmittedSlots(ReleaseKind.RESIDUAL_REPORT, _why_not_more(policy, budget, plan))]


def _report_parameters(
    policy: Policy, noise_multiplier: float, *, workloads: float, stage: int, stages: int
) -> ReportParameters | DirectedParameters:
    if stage > 0:
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


def _why_not_more(policy: Policy, budget: PrivacyBudget, plan: ReportPlan) -> str:
    """Why not every window has a report."""
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


def _coming_model_slots(calendar: ReleaseCalendar, at: datetime) -> list[SlotKey]:
    """Return the model slots, extra ones included, that are still ahead at `at`."""
    period = calendar.period
    return [
        SlotKey(ReleaseKind.MODEL_UPDATE, window, index)
        for window in range(period.nearest_window(at), period.windows)
        for index, times in enumerate(calendar.model_times)
        if period.window_start(window) + times.replies_after > at
    ]


def _require_method(calendar: ReleaseCalendar) -> None:
    if calendar.model_method is ModelMethod.UNSPECIFIED:
        raise ConfigurationError(
            "the calendar's model rounds train by DP-SGD, which fedperf does not do any more: the "
            'coordinator needs calendar.model_method = "tangent"; until then reports alone leave '
            'with release.model_update = "never" in the policy'
        )


def _plan_updates(
    policy: Policy, calendar: ReleaseCalendar, reports: Sequence[Slot], *, at: datetime
) -> list[Slot]:
    keys = _coming_model_slots(calendar, at)
    extra = sum(key.index >= len(calendar.model_slots) for key in keys)
    charged = len(keys) - extra + min(extra, calendar.most_extra)
    parameters = _update_parameters(policy, charged, tuple(reports))
    return [Slot(key, parameters) for key in keys]


@lru_cache(maxsize=64)
def _update_parameters(
    policy: Policy, charged: int, reports: tuple[Slot, ...]
) -> LinearizedParameters:
    """Return the noise of `charged` equal updates that spend, with `reports`, the whole budget."""
    beside = events_of(reports)

    def parameters(noise_multiplier: float) -> LinearizedParameters:
        return LinearizedParameters(noise_multiplier, policy.nominal_workloads)

    noise = calibrate(
        lambda noise: [*beside, *[event_of(parameters(noise))] * charged], policy.budget
    )
    return parameters(noise)


def _planned(
    policy: Policy, schedule: Schedule, not_planned: list[OmittedSlots]
) -> PlannedSchedule:
    slots = tuple(sorted(schedule.slots, key=lambda slot: (schedule.opens_at(slot.key), slot.key)))
    events = events_of(Schedule(schedule.calendar, slots).at_most())
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
        schedule=Schedule(schedule.calendar, slots),
        budget=policy.budget,
        not_planned=tuple(not_planned),
        epsilon=spent,
        replace_one_epsilon=replace_one_epsilon(events, policy.delta),
    )
