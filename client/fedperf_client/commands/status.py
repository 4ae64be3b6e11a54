"""`fedperf status`: who this organization is, whether its daemon lives, and what leaves when."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from fedperf_client.commands.home_option import Json, home_of, now
from fedperf_shared.programs.command_line import show

if TYPE_CHECKING:
    from fedperf_client.home.config import Home
    from fedperf_client.release.ledger.ledger import PrivacyLedger


def status(context: typer.Context, json: Json = False) -> None:
    """Show membership, daemon, executions, the shared model, the budget, and what leaves when."""
    from fedperf_client.federation.enrollment import Membership, load_or_create_key
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.base_models import FetchedModels
    from fedperf_shared.errors import ConfigurationError
    from fedperf_shared.identity import fingerprint
    from fedperf_shared.programs.process_lock import is_locked

    home, at = home_of(context), now()
    try:
        coordinator: str | None = Membership.load(home.identity).exchange_address
        key = fingerprint(load_or_create_key(home.identity).public_key())
    except ConfigurationError:
        coordinator, key = None, ""
    with ExecutionStore.open(home.store) as store:
        counts = store.counts()
    ledger = newest_ledger(home)
    facts: dict[str, object] = {
        "coordinator": coordinator,
        "fingerprint": key,
        "daemon_runs": is_locked(home.lock),
        "last_contact": _last_contact(home),
        "executions": counts.executions,
        "workloads": counts.workloads,
        "model_version": FetchedModels(home.models).shared_version,
        "epsilon_spent": None if ledger is None else ledger.spent(at),
        "first_release": _first_release(home, ledger, at=at),
        "next": None if ledger is None else _next(ledger, at=at),
        "policy_changes": policy_changes(home),
        "stopped": stop_of(home),
    }
    if json:
        show(facts, json=True)
        return
    show({name: fact for name, fact in facts.items() if name not in _IN_WORDS}, json=False)
    for line in _in_words(home, facts, ledger, at=at):
        typer.echo(line)


_IN_WORDS = frozenset({"daemon_runs", "last_contact", "first_release", "next", "policy_changes"})


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


def policy_changes(home: "Home") -> list[str]:
    """What the policy says otherwise than when the newest period began, each in words."""
    from fedperf_client.release.begun_policy import changes_since
    from fedperf_client.release.policy import load_policy

    ledger = newest_ledger(home)
    if ledger is None:
        return []
    begun = home.begun_policy(ledger.schedule.timetable.period.start)
    return list(changes_since(begun, load_policy(home.policy)))


def _last_contact(home: "Home") -> str | None:
    return home.contact.read_text().strip() if home.contact.exists() else None


def _first_release(home: "Home", ledger: "PrivacyLedger | None", *, at: datetime) -> str | None:
    """When the first release of the period leaves, or left; before it began, when it would."""
    if ledger is not None:
        schedule = ledger.schedule
        leaves = [schedule.replies_at(slot.key) for slot in schedule.slots]
        return min(leaves).isoformat() if leaves else None
    from fedperf_client.commands.views.expectations import expected_calendar
    from fedperf_client.release.outlook import outlook
    from fedperf_client.release.policy import load_policy

    calendar = expected_calendar(home, at=at)
    found = outlook(load_policy(home.policy), calendar.timetable, at=at).first_leaves_at
    return None if found is None else found.isoformat()


def _next(ledger: "PrivacyLedger", *, at: datetime) -> dict[str, object] | None:
    """The slot that leaves next; extra ones, which may never be used, are none."""
    from fedperf_client.release.preview import next_slots
    from fedperf_client.release.slot_names import slot_name

    schedule = ledger.schedule
    charged = {entry.key for entry in ledger.entries()}
    drawn = {key for key in charged if schedule.replies_at(key) > at}
    coming = [*drawn, *next_slots(schedule, charged=charged, at=at)]
    if not coming:
        return None
    key = min(coming, key=schedule.replies_at)
    return {
        "slot": slot_name(key),
        "opens_at": schedule.opens_at(key).isoformat(),
        "leaves_at": schedule.replies_at(key).isoformat(),
    }


def _in_words(
    home: "Home", facts: dict[str, object], ledger: "PrivacyLedger | None", *, at: datetime
) -> Iterator[str]:
    from fedperf_client.commands.views.expectations import day, expected_calendar, minute

    yield (
        "the daemon runs"
        if facts["daemon_runs"]
        else ("the daemon does not run, so nothing leaves; start it with: fedperf daemon")
    )
    contact = facts["last_contact"]
    if isinstance(contact, str):
        yield f"last contact with the coordinator: {minute(datetime.fromisoformat(contact))}"
    elif facts["coordinator"] is not None:
        yield "no contact with the coordinator yet"
    first = facts["first_release"]
    if not isinstance(first, str):
        yield "nothing is planned to leave in this period; why: fedperf release slots"
    else:
        moment = datetime.fromisoformat(first)
        tense = "leaves" if moment > at else "was due"
        said = f"your first release {tense} on {day(moment)}"
        if ledger is None:
            said += f", by {expected_calendar(home, at=at).origin}"
        yield said
    coming = facts["next"]
    if isinstance(coming, dict):
        opens, leaves = (datetime.fromisoformat(coming[name]) for name in ("opens_at", "leaves_at"))
        yield f"next: {coming['slot']} is drawn on {minute(opens)} and leaves on {minute(leaves)}"
    elif ledger is not None:
        end = ledger.schedule.timetable.period.end
        yield f"next: nothing more leaves in this period, which ends on {day(end)}"
    if ledger is not None:
        end = ledger.schedule.timetable.period.end
        for change in policy_changes(home):
            yield f"policy: {change} counts from {day(end)} on, with the next period"
