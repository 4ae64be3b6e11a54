"""`fedperf release`: what would leave, what is decided about it, and what has left.

`preview` and `slots` look ahead and charge nothing; `approve` and `withhold` decide about
one slot; `show` and `list` look back over all periods.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of, now
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import ProgramCommands, show, show_rows
from fedperf_shared.runtime.timestamps import minute, table_minute

if TYPE_CHECKING:
    from fedperf_client.commands.planned_slots import PlannedSlots
    from fedperf_client.home.config import Home
    from fedperf_client.release.decisions import Outcome
    from fedperf_client.release.history import PastRelease, ReadReceipt
    from fedperf_client.release.ledger import PrivacyLedger
    from fedperf_shared.releases.release import SlotKey

app = typer.Typer(cls=ProgramCommands, help="What leaves and what has left.", no_args_is_help=True)

Slot = Annotated[str, typer.Argument(metavar="SLOT", help="Such as report-3-0.")]

_NO_PERIOD = "no period has begun; start the daemon after joining"


@app.command("preview")
def release_preview(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND|SLOT]",
            help="report, update, a kind as release slots names it, or a slot; else the next.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what would leave next, with cost and a sample from invented jobs; charges nothing.

    Before the first period the joined coordinator is asked for its calendar; before joining it is
    the default one.
    """
    from fedperf_shared.runtime.flower_settings import quiet_flower

    quiet_flower()
    from fedperf_client.commands.planned_slots import preview_facts

    home, at = home_of(context), now()
    shown: list[dict[str, object]] = []
    with progress_bar("making samples of what would leave", json=json) as advance:
        planned = _in_force(home, at=at)
        keys = planned.wanted(what, at=at)
        from fedperf_client.node.daemon import public_preview

        for key in keys:
            advance(len(shown), len(keys))
            sample = public_preview(planned.schedule, planned.budget, key, charged=planned.charged)
            shown.append(preview_facts(sample, planned))
    if json:
        show_rows(shown, json=True, empty="")
        return
    for place, facts in enumerate(shown):
        print("" if place == 0 else "\n", end="")
        _show_facts({name: fact for name, fact in facts.items() if fact != []}, json=False)
    if not shown:
        of = "" if what is None else f" of {what}"
        print(f"nothing more{of} is planned to leave in this period: ", end="")
        print(planned.why_nothing(what))


@app.command("approve")
def release_approve(context: typer.Context, slot: Slot, json: Json = False) -> None:
    """Let a slot's release leave at its fixed time; before it opens, or after looking at it.

    Needed where the policy says "ask". Exit code 3: no such slot; 5: too late.
    """
    from fedperf_client.release.decisions import Outcome

    _decide(context, slot, Outcome.APPROVED, json=json)


@app.command("withhold")
def release_withhold(context: typer.Context, slot: Slot, json: Json = False) -> None:
    """Keep a slot's release here. Before it opens nothing is charged; later there is no refund.

    Exit code 3: no such slot; 5: too late.
    """
    from fedperf_client.release.decisions import Outcome

    _decide(context, slot, Outcome.WITHHELD, json=json)


@app.command("show")
def release_show(
    context: typer.Context,
    slot: Slot,
    payload: Annotated[
        Path | None, typer.Option(help="Write the noised bytes, as they leave, to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show one release of any period: its noised contents, signature and receipt."""
    from fedperf_client.home.config import write_private
    from fedperf_client.release.history import summarize_payload
    from fedperf_client.release.schedule import UnknownSlotError
    from fedperf_shared.errors import StorageError

    home = home_of(context)
    ledger, key = _named(home, slot)
    start = ledger.schedule.calendar.period.start
    found = next(
        (each for each in _past(home) if each.key == key and each.period_start == start), None
    )
    if found is None:
        raise UnknownSlotError(slot, reason="nothing was made for it yet (see release preview)")
    facts = _release_facts(found)
    facts["opens_at"] = ledger.schedule.opens_at(key).isoformat()
    facts["send_at"] = ledger.schedule.replies_at(key).isoformat()
    stored = ledger.stored(key)
    if stored is not None:
        facts["signature_valid"] = _is_own(home, stored.payload, stored.signature)
        facts |= summarize_payload(stored.payload)
        if payload is not None:
            try:
                write_private(payload, stored.payload)
            except OSError as error:
                raise StorageError(f"{payload}: {error.strerror or error}") from error
    _show_facts(facts, json=json)


@app.command("list")
def release_list(context: typer.Context, json: Json = False) -> None:
    """List every release of all periods: state, size, epsilon, and whether its receipt holds.

    What was charged and did not leave has no receipt and says why instead: operator, policy,
    undecided, too_late or not_drawn.
    """
    rows = []
    for found in _past(home_of(context)):
        facts = _release_facts(found)
        receipt = facts["receipt_valid"] if json else facts["because"] or facts["receipt_valid"]
        rows.append({**facts, "receipt": receipt})
    narrow = ("slot", "state", "charged_at", "bytes", "epsilon", "receipt")
    _rows(rows, narrow, empty="nothing has been released", json=json)


@app.command("slots")
def release_slots(context: typer.Context, json: Json = False) -> None:
    """List every slot of the period with its privacy parameters: what may leave, and when (UTC).

    Before the first period: what would be planned, and what would change that.
    """
    from fedperf_client.commands import expectations
    from fedperf_client.commands.planned_slots import PlannedSlots
    from fedperf_client.release.policy import load_policy

    home, at = home_of(context), now()
    if home.ledgers:
        ledger = _ledgers(home)[-1]
        planned = PlannedSlots.of_period(home, ledger, load_policy(home.policy))
        _show_slots(planned, json=json)
        if not ledger.schedule.slots and not json:
            print(f"why: {planned.why_nothing()}")
        return
    policy, expected = expectations.expected_schedule(home, at=at)
    _show_slots(PlannedSlots.expected(expected, policy), json=json)
    if json:
        expectations.note_of_expected(home, at=at)
    else:
        expectations.print_forecast(policy, expectations.expected_calendar(home, at=at), at=at)


def _show_slots(planned: "PlannedSlots", *, json: bool) -> None:
    from fedperf_client.commands.planned_slots import NARROW, SPARE

    empty = "nothing is planned to leave in this period"
    _rows(planned.rows(), NARROW, empty=empty, json=json, spare=SPARE)
    if not json:
        for note in planned.notes():
            print(note)


def _decide(context: typer.Context, slot: str, outcome: "Outcome", *, json: bool) -> None:
    from fedperf_client.release.decisions import Decisions, Outcome
    from fedperf_client.release.effective_policy import effective_policy
    from fedperf_client.release.policy import ReleaseMode, load_policy
    from fedperf_shared.errors import ConfigurationError

    home = home_of(context)
    ledger, key = _named(home, slot)
    policy = load_policy(home.policy)
    mode = effective_policy(home, policy).mode(key.kind)
    approves = outcome is Outcome.APPROVED
    if approves and policy.mode(key.kind) is ReleaseMode.NEVER:
        raise ConfigurationError(
            f"{slot}: {home.policy} says never for {key.kind.name.lower()}; change it there first"
        )
    Decisions(ledger).decide(key, outcome, at=now())
    if approves and mode is ReleaseMode.NEVER:
        print(
            f"note: the daemon that runs has read never for {key.kind.name.lower()}, so {slot} "
            "leaves only once it is started anew",
            file=sys.stderr,
        )
    leaves_at = ledger.schedule.replies_at(key) if approves else None
    facts = {
        "slot": slot,
        "decision": str(outcome),
        "charged": key in {entry.key for entry in ledger.entries()},
        "opens_at": ledger.schedule.opens_at(key).isoformat(),
        "send_at": None if leaves_at is None else leaves_at.isoformat(),
    }
    _show_facts(facts, json=json)


def _ledgers(home: "Home") -> list["PrivacyLedger"]:
    from fedperf_client.release.ledger import PrivacyLedger

    return [PrivacyLedger.open(path) for path in home.ledgers]


def _named(home: "Home", text: str) -> tuple["PrivacyLedger", "SlotKey"]:
    """The ledger and the planned slot that `text` names; UnknownSlotError where there is none."""
    from fedperf_client.release.schedule import UnknownSlotError, parse_slot_name

    ledgers = _ledgers(home)
    if not ledgers:
        raise UnknownSlotError(text, reason=_NO_PERIOD)
    place, key = parse_slot_name(text, [each.schedule.calendar.period for each in ledgers])
    if ledgers[place].schedule.slot(key) is None:
        raise UnknownSlotError(text, reason="the schedule of the period does not have it")
    return ledgers[place], key


def _past(home: "Home") -> tuple["PastRelease", ...]:
    from fedperf_client.release.history import past_releases

    return past_releases(_ledgers(home), home.receipts, read=_receipt_reader(home))


def _receipt_reader(home: "Home") -> "ReadReceipt | None":
    from fedperf_client.node.enrollment import Membership
    from fedperf_client.node.exchange import read_receipt
    from fedperf_shared.errors import ConfigurationError

    try:
        membership = Membership.load(home.identity)
    except ConfigurationError:
        return None
    return lambda signed: read_receipt(signed, membership)


def _is_own(home: "Home", payload: bytes, signature: bytes) -> bool:
    from fedperf_client.node.enrollment import load_or_create_key
    from fedperf_shared.identity import InvalidSignatureError, verify

    try:
        verify(load_or_create_key(home.identity).public_key(), payload, signature)
    except InvalidSignatureError:
        return False
    return True


def _in_force(home: "Home", *, at: datetime) -> "PlannedSlots":
    """The slots of the period that is on or comes next."""
    from fedperf_client.commands.expectations import public_calendar
    from fedperf_client.commands.planned_slots import PlannedSlots
    from fedperf_client.release.policy import load_policy
    from fedperf_client.release.schedule import plan_schedule

    policy, ledgers = load_policy(home.policy), _ledgers(home)
    if not ledgers or not at < ledgers[-1].schedule.calendar.period.end:
        calendar = public_calendar(home, at=at).release_calendar
        if not home.ledger(calendar.period.start).exists():
            return PlannedSlots.expected(plan_schedule(policy, calendar, at=at), policy)
    return PlannedSlots.of_period(home, ledgers[-1], policy)


def _release_facts(found: "PastRelease") -> dict[str, object]:
    receipt = found.receipt
    received_at = None if receipt is None or receipt.received_at is None else receipt.received_at
    return {
        "slot": found.name,
        "kind": found.kind,
        "window": found.key.window,
        "index": found.key.index,
        "state": found.state,
        "because": found.because,
        "decision": None if found.decision is None else str(found.decision.outcome),
        "charged_at": found.entry.reserved_at.isoformat(),
        "reconciled": found.entry.reconciled,
        "epsilon": found.epsilon,
        "epsilon_replace_one": found.replace_one_epsilon,
        "bytes": found.entry.payload_bytes,
        "payload_sha256": found.payload_sha256,
        "receipt_valid": receipt is not None and not receipt.problem,
        "receipt_sequence": None if receipt is None else receipt.sequence,
        "receipt_received_at": None if received_at is None else received_at.isoformat(),
        "receipt_problem": "none was received" if receipt is None else receipt.problem,
    }


def _rows(
    rows: Sequence[dict[str, object]],
    narrow: Sequence[str],
    *,
    empty: str,
    json: bool,
    spare: Sequence[str] = (),
) -> None:
    """All facts for programs, a table that fits a terminal for people."""
    shown = (
        rows if json else [{name: _in_a_table(name, row[name]) for name in narrow} for row in rows]
    )
    show_rows(shown, json=json, empty=empty, spare=spare)


def _show_facts(facts: dict[str, object], *, json: bool) -> None:
    """A fact on a line of its own."""
    show(facts if json else {n: _for_people(n, fact) for n, fact in facts.items()}, json=json)


def _in_a_table(name: str, value: object) -> object:
    """A fact as it fits a table, whose moments are in UTC."""
    if name.endswith("_at") and value is not None:
        return table_minute(datetime.fromisoformat(str(value)))
    return f"{value:.4g}" if isinstance(value, float) else value


def _for_people(name: str, value: object) -> object:
    if name.endswith("_at") and value is not None:
        return minute(datetime.fromisoformat(str(value)))
    if not isinstance(value, list):
        return value
    more = f"; and {len(value) - _FEW} more (--json)" if len(value) > _FEW else ""
    return "; ".join(str(each) for each in value[:_FEW]) + more


_FEW = 4
