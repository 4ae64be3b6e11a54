"""`fedperf status`: who this organization is, whether its daemon lives, and what leaves when."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from fedperf_client.commands.home_option import Json, home_of, now
from fedperf_shared.runtime.command_line import show
from fedperf_shared.runtime.timestamps import day, minute

if TYPE_CHECKING:
    from fedperf_client.commands.planned_slots import PlannedSlots
    from fedperf_client.home.config import Contact, Home
    from fedperf_client.release.ledger.ledger import PrivacyLedger
    from fedperf_client.release.policy import Policy
    from fedperf_shared.releases.release import Slot

MUCH = 2.0
"""So many times as many workloads as declared, or as few, are worth a line."""


def status(context: typer.Context, json: Json = False) -> None:
    """Show membership, daemon, stored runs, shared model, budget and the next release."""
    from fedperf_client.commands.planned_slots import PlannedSlots
    from fedperf_client.federation.enrollment import Membership, is_member, load_or_create_key
    from fedperf_client.home.config import Contact
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.fetched_models import FetchedModels
    from fedperf_client.release.effective_modes import planned_modes
    from fedperf_client.release.policy import load_policy
    from fedperf_shared.identity import fingerprint
    from fedperf_shared.runtime.process_lock import is_locked

    home, at = home_of(context), now()
    coordinator, key = None, ""
    if is_member(home.identity):
        coordinator = Membership.load(home.identity).exchange_address
        key = fingerprint(load_or_create_key(home.identity).public_key())
    with ExecutionStore.open_to_read(home.store) as store:
        counts = store.counts()
    policy, ledger, contact = load_policy(home.policy), newest_ledger(home), Contact.of(home)
    planned = None if ledger is None else PlannedSlots.of_period(home, ledger, policy)
    changes = () if planned is None else planned.changes
    facts: dict[str, object] = {
        "coordinator": coordinator,
        "fingerprint": key,
        "daemon_runs": is_locked(home.lock),
        "last_contact": None if contact.heard_at is None else contact.heard_at.isoformat(),
        "refused_at": None if contact.refused_at is None else contact.refused_at.isoformat(),
        "executions": counts.executions,
        "workloads": counts.workloads,
        "declared_workloads": policy.nominal_workloads,
        "model_version": FetchedModels(home.models).shared_version,
        "epsilon_spent": None if ledger is None else ledger.spent(at),
        "first_release": _first_release(home, policy, planned, at=at),
        "next": None if planned is None else _next(planned, at=at),
        "modes": {} if planned is None else planned_modes(planned.in_force, planned.schedule),
        "policy_changes": [str(each.change) for each in changes],
        "stopped": stop_of(home),
    }
    if json:
        show(facts, json=True)
        return
    show(_in_short(facts), json=False)
    for line in _in_words(home, facts, planned, contact, at=at):
        typer.echo(line)
    if said := _declared(counts.workloads, policy.nominal_workloads):
        typer.echo(said)
    for change in changes:
        typer.echo(f"policy: {change}")


def newest_ledger(home: "Home") -> "PrivacyLedger | None":
    """Of the newest period; None before the first one."""
    from fedperf_client.release.ledger.ledger import PrivacyLedger

    return PrivacyLedger.open(home.ledgers[-1]) if home.ledgers else None


def stop_of(home: "Home") -> str | None:
    """Why nothing leaves until an operator decides; None where nothing is wrong."""
    from fedperf_client.release.ledger.errors import LedgerDisagreesError

    ledger = newest_ledger(home)
    problem = None if ledger is None else ledger.disagreement()
    if ledger is None or problem is None:
        return None
    return str(LedgerDisagreesError(ledger.path, problem))


def _first_release(
    home: "Home", policy: "Policy", planned: "PlannedSlots | None", *, at: datetime
) -> str | None:
    """When the first release of the period leaves, or left; before it began, when it would."""
    if planned is not None:
        leaves = filter(None, map(planned.leaves_at, planned.schedule.slots))
        first = min(leaves, default=None)
        return None if first is None else first.isoformat()
    from fedperf_client.commands.expectations import expected_calendar
    from fedperf_client.release.schedule_forecast import forecast

    calendar = expected_calendar(home, at=at)
    found = forecast(policy, calendar.release_calendar, at=at).first_leaves_at
    return None if found is None else found.isoformat()


def _next(planned: "PlannedSlots", *, at: datetime) -> dict[str, object] | None:
    """The slot that leaves next; extra ones, which may never be used, are none."""
    from fedperf_client.release.slot_names import slot_name

    schedule = planned.schedule

    def is_coming(slot: "Slot") -> bool:
        leaves_at = planned.leaves_at(slot)
        is_used = slot.key in planned.charged or not schedule.is_extra(slot.key)
        return leaves_at is not None and leaves_at > at and is_used

    coming = filter(is_coming, schedule.slots)
    slot = min(coming, key=lambda each: schedule.replies_at(each.key), default=None)
    if slot is None:
        return None
    return {
        "slot": slot_name(slot.key),
        "opens_at": schedule.opens_at(slot.key).isoformat(),
        "send_at": schedule.replies_at(slot.key).isoformat(),
        "decision": planned.decision(slot) or None,
    }


def _in_short(facts: dict[str, object]) -> dict[str, object]:
    """The facts that need no sentence."""
    version, spent = facts["model_version"], facts["epsilon_spent"]
    shown = {
        "coordinator": facts["coordinator"] or "none was joined",
        "fingerprint": facts["fingerprint"],
        "executions": facts["executions"],
        "workloads": facts["workloads"],
        "shared_model": f"version {version}" if version else "the public start, none fetched",
        "epsilon_spent": "no period has begun" if spent is None else spent,
        "stopped": facts["stopped"],
    }
    return {name: fact for name, fact in shown.items() if fact not in (None, "")}


def _in_words(
    home: "Home",
    facts: dict[str, object],
    planned: "PlannedSlots | None",
    contact: "Contact",
    *,
    at: datetime,
) -> Iterator[str]:
    from fedperf_client.commands.expectations import expected_calendar
    from fedperf_client.release.effective_modes import modes_in_words

    runs = facts["daemon_runs"] is True
    yield (
        "the daemon runs"
        if runs
        else ("the daemon does not run, so nothing leaves; start it with: fedperf daemon")
    )
    if contact.heard_at is not None:
        yield f"last contact with the coordinator: {minute(contact.heard_at)}"
    elif facts["coordinator"] is not None:
        yield "no contact with the coordinator yet"
    if contact.refused_at is not None:
        yield (
            f"on {minute(contact.refused_at)} the coordinator said that it does not know this "
            "organization (any more), so nothing leaves; ask its operator, and join with a new "
            "invitation"
        )
    obstacles = {
        "the daemon runs": not runs,
        "the coordinator lets it in again": contact.refused_at is not None,
        "what stopped it is decided": facts["stopped"] is not None,
    }
    conditions = [condition for condition, is_open in obstacles.items() if is_open]
    first = facts["first_release"]
    if not isinstance(first, str):
        yield "nothing is planned to leave in this period; why: fedperf release slots"
    else:
        moment = datetime.fromisoformat(first)
        tense = "was due" if moment <= at else "would leave" if conditions else "leaves"
        said = f"your first release {tense} on {day(moment)}"
        if planned is None:
            said += f", by {expected_calendar(home, at=at).origin}"
        yield said
    if planned is not None:
        yield _next_in_words(facts["next"], planned, conditions)
        yield modes_in_words(planned.in_force, planned.schedule)


def _next_in_words(coming: object, planned: "PlannedSlots", conditions: list[str]) -> str:
    from fedperf_client.commands.planned_slots import UNDECIDED

    if not isinstance(coming, dict):
        end = planned.schedule.calendar.period.end
        return f"next: nothing more leaves in this period, which ends on {day(end)}"
    opens, leaves = (minute(datetime.fromisoformat(coming[n])) for n in ("opens_at", "send_at"))
    drawn, leave = ("would be drawn", "leave") if conditions else ("is drawn", "leaves")
    if coming["decision"] == UNDECIDED:
        approve = f"you approve it before: fedperf release approve {coming['slot']}"
        conditions = [*conditions, approve]
    said = f"next: {coming['slot']} {drawn} on {opens} and {leave} on {leaves}"
    return said + (f", if {' and '.join(conditions)}" if conditions else "")


def _declared(stored: int, declared: float) -> str:
    """What it means that the store holds much more or much less than the policy declares."""
    both = f"{stored} workloads are stored, policy.toml declares {declared:g}"
    if 0 < stored * MUCH <= declared:
        return (
            f"{both}: a report about so few is mostly noise, which costs no privacy; take in "
            "more, or lower nominal_workloads for the next period"
        )
    if stored >= MUCH * declared:
        return (
            f"{both}: declared as they are, they would carry more reports at the same epsilon; "
            "raise nominal_workloads for the next period"
        )
    return ""
