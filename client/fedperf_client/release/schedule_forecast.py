"""The outlook of a policy on a calendar before its schedule is frozen, and what would change it.

It rests on declared figures and public dates alone: nothing is read off the data, and nothing is
charged.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import coming_updates, planned_reports
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import Schedule, SlotKey

MORE_MEMBERS = 2
"""Further members like this one in the last of the alternatives."""


@dataclass(frozen=True, slots=True)
class ScheduleForecast:
    """The expected figures of a period.

    Attributes:
        first: slot of the first release; None where nothing leaves.
        first_opens_at: until then what is stored counts.
        first_leaves_at: when the first release leaves.
        reports: number of report slots.
        updates: number of model updates, without extra ones.
        expected_error: factor by which the correction of a cell is off, one stddev, averaged
            over the rest of the period; without any reports it is e.
    """

    first: SlotKey | None
    first_opens_at: datetime | None
    first_leaves_at: datetime | None
    reports: int
    updates: int
    expected_error: float


@dataclass(frozen=True, slots=True)
class ChangedScheduleForecast:
    """A change that could be declared, or happen, and the outlook with it."""

    change: str
    forecast: ScheduleForecast


def forecast(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime, members: int = 1
) -> ScheduleForecast:
    """Forecast the schedule of an organization that joins at `at`, among `members` similar ones."""
    plan = planned_reports(policy, calendar, at=at, members=members)
    reports = [key for group in plan.groups for key in group.keys]
    updates = [
        key
        for key in coming_updates(policy, calendar, at=at)
        if key.index < len(calendar.model_slots)
    ]
    times = Schedule(calendar, ())
    first = min((*reports, *updates), key=times.replies_at, default=None)
    return ScheduleForecast(
        first=first,
        first_opens_at=None if first is None else times.opens_at(first),
        first_leaves_at=None if first is None else times.replies_at(first),
        reports=len(reports),
        updates=len(updates),
        expected_error=math.exp(plan.mean_error),
    )


def alternatives(
    policy: Policy, calendar: ReleaseCalendar, *, at: datetime
) -> tuple[ChangedScheduleForecast, ...]:
    """The outlooks with another epsilon, another declaration, or more members."""
    return (
        *(
            ChangedScheduleForecast(change, forecast(other, calendar, at=at))
            for change, other in _declared_otherwise(policy)
        ),
        ChangedScheduleForecast(
            f"{MORE_MEMBERS} more members like this one",
            forecast(policy, calendar, at=at, members=1 + MORE_MEMBERS),
        ),
    )


def _declared_otherwise(policy: Policy) -> Iterator[tuple[str, Policy]]:
    lifetime = policy.lifetime_epsilon and max(policy.lifetime_epsilon, 2 * policy.epsilon)
    doubled = replace(policy, epsilon=2 * policy.epsilon, lifetime_epsilon=lifetime)
    yield f"epsilon = {doubled.epsilon:g}", doubled
    many = 2 * policy.nominal_workloads
    if many * policy.delta < 1:
        yield f"nominal_workloads = {many:g}", replace(policy, nominal_workloads=many)
    if policy.workloads_per_window is None:
        every = policy.nominal_workloads
        yield f"workloads_per_window = {every:g}", replace(policy, workloads_per_window=every)
