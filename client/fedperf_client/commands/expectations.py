"""Output about a period that has not begun: its calendar, its dates and what would change them.

Before an organization has joined, the default calendar stands for the coordinator's, and the output
says so. What plans a schedule needs the packages of a member, so it is loaded when it is asked.
"""

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_client.home.config import Home, write_private
from fedperf_client.release.policy import Policy, load_policy
from fedperf_shared.releases.period import ReleaseCalendar, default_calendar
from fedperf_shared.releases.release import Schedule
from fedperf_shared.runtime.timestamps import day, minute
from fedperf_shared.wire.codec import decode_schedule, encode_schedule

if TYPE_CHECKING:
    from fedperf_client.release.schedule import PlannedSchedule, ScheduleForecast


@dataclass(frozen=True, slots=True)
class ExpectedCalendar:
    """The calendar of the period that is on or comes next, as far as it is known.

    Attributes:
        release_calendar: the calendar.
        is_default: nobody was joined, or the coordinator's calendar is not known yet.
    """

    release_calendar: ReleaseCalendar
    is_default: bool

    @property
    def origin(self) -> str:
        """Whose it is, in words."""
        if self.is_default:
            return "the default calendar, begun today; a coordinator may have another one"
        return "the coordinator's calendar"


def expected_calendar(home: Home, *, at: datetime) -> ExpectedCalendar:
    """The coordinator's calendar as it was kept when joining, else the default one from today on.

    Raises:
        InvalidInputError: what was kept is no calendar.
    """
    if home.calendar.exists():
        release_calendar = decode_schedule(home.calendar.read_bytes()).calendar
        if at < release_calendar.period.end:
            return ExpectedCalendar(release_calendar, is_default=False)
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return ExpectedCalendar(default_calendar(today), is_default=True)


def public_calendar(home: Home, *, at: datetime) -> ExpectedCalendar:
    """The calendar as the coordinator gives it to its member; before joining the default one.

    Raises:
        ConfigurationError: a part of the membership is lost.
        FedperfError: the coordinator does not answer.
    """
    from fedperf_client.node.enrollment import Membership, is_member, load_or_create_key
    from fedperf_client.node.exchange import ExchangeClient

    if not is_member(home.identity):
        note_of_expected(home, at=at)
        return expected_calendar(home, at=at)
    membership = Membership.load(home.identity)
    with ExchangeClient(membership, load_or_create_key(home.identity)) as exchange:
        return ExpectedCalendar(exchange.calendar(), is_default=False)


def keep_calendar(home: Home, calendar: ExpectedCalendar) -> None:
    """Keep it for what is asked without the coordinator, until its period is over."""
    write_private(home.calendar, encode_schedule(Schedule(calendar.release_calendar, ())))


def expected_schedule(home: Home, *, at: datetime) -> tuple[Policy, "PlannedSchedule"]:
    """The policy, and what it would plan if the period began now."""
    from fedperf_client.release.schedule import plan_schedule

    policy = load_policy(home.policy)
    return policy, plan_schedule(policy, expected_calendar(home, at=at).release_calendar, at=at)


def note_of_expected(home: Home, *, at: datetime) -> None:
    """Say, beside what is shown, that no period has begun and by which calendar it is planned."""
    origin = expected_calendar(home, at=at).origin
    print(f"note: no period has begun; this is planned by {origin}", file=sys.stderr)


def forecast_facts(
    policy: Policy, calendar: ExpectedCalendar, *, at: datetime
) -> dict[str, object]:
    """The outlook of a policy on the calendar, and what would change it, for programs."""
    found, *changes = (values_of(each) for each in _outlooks(policy, calendar, at=at))
    del found["change"]
    origin = "default" if calendar.is_default else "coordinator"
    return {"calendar": origin, **found, "changes": changes}


def print_forecast(policy: Policy, calendar: ExpectedCalendar, *, at: datetime) -> None:
    """Say the same to people: the date of the first release, and what would change it."""
    from fedperf_client.release.schedule import forecast, plan_schedule

    found = forecast(policy, calendar.release_calendar, at=at)
    if found.first_leaves_at is None or found.first_opens_at is None:
        planned = plan_schedule(policy, calendar.release_calendar, at=at)
        typer.echo(f"nothing would leave: {'; '.join(e.reason for e in planned.not_planned)}")
    else:
        typer.echo(
            f"your first release leaves on {day(found.first_leaves_at)}, about what is stored by "
            f"{minute(found.first_opens_at)}, if the daemon runs by then"
        )
    typer.echo(f"no period has begun; this is planned by {calendar.origin}. What would change it:")
    show_table(_outlooks(policy, calendar, at=at), json=False)
    typer.echo(
        "expected error: the factor by which what members share is off for a kind of job, in the "
        "mean over the period: 1 is exact, 2.72 is what it is if nobody reports. It compares "
        "policies; your own predictions, which own runs mend, are not meant. Epsilon is for all "
        "releases of a period together."
    )


def _outlooks(policy: Policy, calendar: ExpectedCalendar, *, at: datetime) -> list[list[Fact]]:
    """The outlook of the policy as it is, and with each change."""
    from fedperf_client.release.schedule import (
        forecast,
        forecast_alternatives,
    )

    dates = calendar.release_calendar
    forecasts = {"as it is": forecast(policy, dates, at=at)}
    forecasts |= forecast_alternatives(policy, dates, at=at)
    return [_facts(change, each) for change, each in forecasts.items()]


def _facts(change: str, found: "ScheduleForecast") -> list[Fact]:
    leaves_at, opens_at = found.first_leaves_at, found.first_opens_at
    leaves, leaves_on = None, "never"
    if leaves_at is not None:
        leaves, leaves_on = leaves_at.isoformat(), day(leaves_at)
    error = found.expected_error
    return [
        Fact("change", change, "change"),
        Fact("first_release", leaves, "first release", leaves_on),
        Fact("counts_until", None if opens_at is None else opens_at.isoformat()),
        Fact("reports", found.reports, "reports"),
        Fact("updates", found.updates, "updates"),
        Fact("expected_error", error, "expected error", f"{error:.2f}"),
    ]
