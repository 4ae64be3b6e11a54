"""The releases that left each organization, read from the programs' output."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fedperf_client.home.config import Home
from fedperf_client.release.history import LEFT
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule, slot_name
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_simulations.demo.scenario import DemoMember
from fedperf_simulations.demo.summary import (
    OrganizationResult,
    ReleaseSummary,
    RoundSummary,
    UnscheduledSlots,
)

NOISE_ALONE = "leaves as noise alone"
"""Text in a daemon's log when a sum was not ready in time."""

REPORTS = frozenset({"residual_report", "directed_report"})
"""Kinds whose receipt comes at once. An update's comes when its round is over, or later."""

Facts = Mapping[str, Any]
"""The output of a program with `--json`."""


def collected(
    who: DemoMember,
    home: Home,
    calendar: ReleaseCalendar,
    *,
    fingerprint: str,
    status: Facts,
    budget: Sequence[Facts],
    releases: Sequence[Facts],
    log: str,
) -> OrganizationResult:
    """Return one organization's result."""
    period = budget[-1]
    ledger = PrivacyLedger.open(home.ledger(calendar.period.start))
    return OrganizationResult(
        name=who.name,
        size_class=str(who.size_class),
        workloads=status["workloads"],
        unit=period["unit"],
        epsilon_spent=round(period["spent"], 6),
        replace_one_epsilon=round(period["spent_replace_one"], 6),
        epsilon_budget=period["epsilon"],
        delta=period["delta"],
        left=by_kind(releases),
        slots_not_planned=left_out(plan_schedule(load_policy(home.policy), calendar)),
        lost=lost([slot_name(each.key) for each in ledger.schedule.slots], releases, log),
        fingerprint=fingerprint,
    )


def by_kind(releases: Sequence[Facts]) -> tuple[ReleaseSummary, ...]:
    """Return the releases that left, by kind, from the rows of `fedperf release list`."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for each in releases:
        if each["state"] in LEFT:
            sizes[each["kind"]].append(each["bytes"])
    return tuple(ReleaseSummary(kind, len(each), sum(each)) for kind, each in sizes.items())


def lost(slots: Sequence[str], releases: Sequence[Facts], log: str) -> tuple[str, ...]:
    """Return the slots of an organization's schedule that were lost, each with the reason.

    Args:
        slots: that were planned.
        releases: the output of `fedperf release list`.
        log: of the daemon, the only record of releases that were noise alone.
    """
    states = {each["slot"]: each for each in releases}
    missing = [f"{slot} (never made)" for slot in slots if slot not in states]
    missing += [
        f"{slot} ({each['because'] or each['state']})"
        for slot, each in states.items()
        if each["state"] not in LEFT
    ]
    missing += [
        f"{slot} (no receipt)"
        for slot, each in states.items()
        if each["state"] == "handed out" and each["kind"] in REPORTS
    ]
    empty = log.count(NOISE_ALONE)
    return (*missing, f"{empty} left as noise alone") if empty else tuple(missing)


def rounds_of(rows: Sequence[Facts]) -> tuple[RoundSummary, ...]:
    """Return the rounds that `fedperf-server rounds` lists."""
    names = RoundSummary.__slots__
    return tuple(RoundSummary(**{name: row[name] for name in names}) for row in rows)


def left_out(planned: PlannedSchedule) -> tuple[UnscheduledSlots, ...]:
    """Return the slots that a schedule leaves out: every slot of a kind, or some of them."""
    there = {slot.key.kind for slot in planned.schedule.slots}
    return tuple(
        UnscheduledSlots(
            f"{'some' if each.what in there else 'every'} {each.what.name.lower()}", each.reason
        )
        for each in planned.not_planned
    )
