"""`fedperf status`: membership, daemon, stored runs, budget and the next release."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from fedperf_client.commands.program import Json, home_of, now
from fedperf_client.formatting.facts import Fact, show_facts
from fedperf_shared.runtime.quantities import day, minute

if TYPE_CHECKING:
    from fedperf_client.commands.planned_releases import PlannedSlots
    from fedperf_client.home.config import Home
    from fedperf_client.release.ledger import PrivacyLedger
    from fedperf_client.release.policy import Policy
    from fedperf_shared.releases.release import Slot

# Ratio of stored to declared workloads, or its inverse, from which a note is printed.
NOTABLE_RATIO = 2.0


def status(context: typer.Context, json: Json = False) -> None:
    """Show membership, daemon, stored runs, shared model, budget and the next release."""
    from fedperf_client.commands.planned_releases import PlannedSlots, expected_calendar
    from fedperf_client.home.config import Contact
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.node.enrollment import Membership, is_member, load_or_create_key
    from fedperf_client.prediction.fetched_models import FetchedModels
    from fedperf_client.release.policy import format_modes, load_policy, planned_modes
    from fedperf_shared.identity import fingerprint
    from fedperf_shared.runtime.process import is_locked

    home, at = home_of(context), now()
    coordinator, key = None, ""
    if is_member(home.identity):
        coordinator = Membership.load(home.identity).exchange_address
        key = fingerprint(load_or_create_key(home.identity).public_key())
    with ExecutionStore.open_to_read(home.store) as store:
        counts = store.counts()
    policy, ledger, contact = load_policy(home.policy), newest_ledger(home), Contact.of(home)
    planned = None if ledger is None else PlannedSlots.load(home, ledger, policy)
    changes = () if planned is None else planned.changes
    version = FetchedModels(home.models).shared_version
    spent = None if ledger is None else ledger.spent(at)
    daemon_runs, stop = is_locked(home.lock), stop_reason(home)
    first = _first_release(home, policy, planned, at=at)
    next_slot = None if planned is None else _next_slot(planned, at=at)
    show_facts(
        [
            Fact("coordinator", coordinator, "coordinator", coordinator or "none"),
            Fact("fingerprint", key, "fingerprint"),
            Fact("daemon_runs", daemon_runs),
            Fact("last_contact", contact.heard_at, "last contact (UTC)"),
            Fact("refused_at", contact.refused_at),
            Fact("executions", counts.executions, "runs"),
            Fact("workloads", counts.workloads, "workloads"),
            Fact("declared_workloads", policy.nominal_workloads),
            Fact(
                "model_version",
                version,
                "shared model",
                f"version {version}" if version else "none yet; the pretrained model is used",
            ),
            Fact(
                "epsilon_spent",
                spent,
                "epsilon spent",
                "no period has begun" if spent is None else f"{spent:.6g}",
            ),
            Fact("first_release", first),
            Fact(
                "next", None if not planned or not next_slot else _next_values(planned, next_slot)
            ),
            Fact(
                "modes", {} if planned is None else planned_modes(planned.policy, planned.schedule)
            ),
            Fact("policy_changes", [each.change for each in changes]),
            Fact("stopped", stop, "stopped"),
        ],
        json=json,
    )
    if json:
        return
    if not daemon_runs:
        typer.echo("The daemon is not running, so nothing is sent. Start it with: fedperf daemon")
    else:
        typer.echo("The daemon is running.")
    if coordinator is not None and contact.heard_at is None:
        typer.echo("No contact with the coordinator yet.")
    if contact.refused_at is not None:
        typer.echo(
            f"On {minute(contact.refused_at)} the coordinator replied that it does not know this "
            "organization, so nothing is sent. Ask its operator, and join with a new invitation."
        )
    obstacles = {
        "the daemon runs": not daemon_runs,
        "the coordinator accepts you again": contact.refused_at is not None,
        "you resolve the stop": stop is not None,
    }
    conditions = [condition for condition, is_open in obstacles.items() if is_open]
    if first is None:
        typer.echo("No release is planned in this period. Reasons: fedperf release slots")
    else:
        due = "was due on" if first <= at else "would be on" if conditions else "is on"
        calendar = "" if planned else f", by {expected_calendar(home, at=at).origin}"
        typer.echo(f"Your first release {due} {day(first)}{calendar}.")
    if planned is not None:
        typer.echo(_next_in_words(planned, next_slot, conditions))
        typer.echo(format_modes(planned.policy, planned.schedule))
    for note in _notes_on_workloads(counts.workloads, policy.nominal_workloads):
        typer.echo(note)
    for change in changes:
        typer.echo(f"policy: {change}")


def newest_ledger(home: "Home") -> "PrivacyLedger | None":
    """Return the ledger of the newest period, None before the first one."""
    from fedperf_client.release.ledger import PrivacyLedger

    return PrivacyLedger.open(home.ledgers[-1]) if home.ledgers else None


def stop_reason(home: "Home") -> str | None:
    """Return why nothing is sent until an operator decides, None if nothing is wrong."""
    from fedperf_client.release.ledger import LedgerDisagreesError

    ledger = newest_ledger(home)
    problem = None if ledger is None else ledger.disagreement()
    if ledger is None or problem is None:
        return None
    return str(LedgerDisagreesError(ledger.path, problem))


def _first_release(
    home: "Home", policy: "Policy", planned: "PlannedSlots | None", *, at: datetime
) -> datetime | None:
    """Return when the first release of the period is sent, as planned if it has not begun."""
    if planned is not None:
        times = map(planned.send_at, planned.schedule.slots)
        return min(filter(None, times), default=None)
    from fedperf_client.commands.planned_releases import expected_calendar
    from fedperf_client.release.schedule import forecast

    calendar = expected_calendar(home, at=at)
    return forecast(policy, calendar.release_calendar, at=at).first_leaves_at


def _next_slot(planned: "PlannedSlots", *, at: datetime) -> "Slot | None":
    """Return the slot that is sent next. Extra slots count only once they are charged."""
    schedule = planned.schedule
    coming = [
        (send_at, position)
        for position, slot in enumerate(schedule.slots)
        if (send_at := planned.send_at(slot)) is not None
        and send_at > at
        and (slot.key in planned.charged or not schedule.is_extra(slot.key))
    ]
    return schedule.slots[min(coming)[1]] if coming else None


def _next_values(planned: "PlannedSlots", slot: "Slot") -> dict[str, object]:
    from fedperf_client.release.schedule import slot_name

    return {
        "slot": slot_name(slot.key),
        "opens_at": planned.schedule.opens_at(slot.key),
        "send_at": planned.schedule.replies_at(slot.key),
        "decision": planned.decision(slot) or None,
    }


def _next_in_words(planned: "PlannedSlots", slot: "Slot | None", conditions: list[str]) -> str:
    from fedperf_client.commands.planned_releases import UNDECIDED
    from fedperf_client.release.schedule import slot_name

    if slot is None:
        end = planned.schedule.calendar.period.end
        return f"No further release in this period, which ends on {day(end)}."
    name = slot_name(slot.key)
    opens_at, send_at = planned.schedule.opens_at(slot.key), planned.schedule.replies_at(slot.key)
    if planned.decision(slot) == UNDECIDED:
        conditions = [*conditions, f"you approve it before (fedperf release approve {name})"]
    condition = f", if {' and '.join(conditions)}" if conditions else ""
    return f"Next: {name}, sampled on {minute(opens_at)}, sent on {minute(send_at)}{condition}."


def _notes_on_workloads(stored: int, declared: float) -> Iterator[str]:
    counts = f"{stored} workloads are stored, policy.toml declares {declared:g}."
    if 0 < stored * NOTABLE_RATIO <= declared:
        yield (
            f"{counts} A report about so few workloads is mostly noise. Ingest more runs, or lower "
            "nominal_workloads for the next period."
        )
    elif stored >= NOTABLE_RATIO * declared:
        yield (
            f"{counts} Raise nominal_workloads for the next period to get more reports at the same "
            "epsilon."
        )
