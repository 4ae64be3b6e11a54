"""`fedperf release`: preview, decide about and inspect what is sent.

`preview` and `slots` look ahead and charge nothing. `approve` and `withhold` decide about one slot.
`show` and `list` cover the releases of all periods.
"""

import sys
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, home_of, now
from fedperf_client.formatting.facts import Fact, named_facts, show_facts, show_table
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import ProgramCommands

if TYPE_CHECKING:
    from fedperf_client.commands.planned_releases import PlannedSlots
    from fedperf_client.home.config import Home
    from fedperf_client.release.history import PastRelease
    from fedperf_client.release.ledger import PrivacyLedger
    from fedperf_shared.releases.release import SlotKey

app = typer.Typer(
    cls=ProgramCommands,
    help="Preview, approve, withhold and list releases.",
    no_args_is_help=True,
)

Slot = Annotated[str, typer.Argument(metavar="SLOT", help="A slot, such as report-3-0.")]

COLUMNS = ("slot", "state", "charged_at", "bytes", "epsilon")


@app.command("preview")
def release_preview(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND|SLOT]",
            help="report, update, a kind that release slots lists, or a slot. Default: the next "
            "slot of each kind.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show the next releases with their cost and a sample from synthetic jobs; charges nothing.

    Before the first period, the calendar comes from the coordinator, or is the default one if you
    have not joined.
    """
    from fedperf_shared.runtime.process import quiet_flower

    quiet_flower()
    from fedperf_client.commands.planned_releases import preview_facts

    home, at = home_of(context), now()
    previews: list[list[Fact]] = []
    with progress_bar("making samples", json=json) as advance:
        planned = _planned_slots(home, at=at)
        keys = planned.select(what, at=at)
        from fedperf_client.node.daemon import public_preview

        for key in keys:
            advance(len(previews), len(keys))
            sample = public_preview(planned.schedule, planned.budget, key, charged=planned.charged)
            previews.append(preview_facts(sample, planned))
    if json:
        show_table(previews, json=True)
        return
    for position, facts in enumerate(previews):
        print("" if position == 0 else "\n", end="")
        show_facts(facts, json=False)
    if not previews:
        kind = "" if what is None else f" of {what}"
        print(f"No release{kind} is planned: {planned.reason_for_none(what)}")


@app.command("approve")
def release_approve(context: typer.Context, slot: Slot, json: Json = False) -> None:
    """Approve a slot's release, which is then sent at its fixed time.

    Approval is needed if the policy sets the kind to "ask". Exit code 3: no such slot. 5: too late.
    """
    _decide(context, slot, "approved", json=json)


@app.command("withhold")
def release_withhold(context: typer.Context, slot: Slot, json: Json = False) -> None:
    """Withhold a slot's release.

    Before the slot opens, nothing is charged. Afterwards the charge stays. Exit code 3: no such
    slot. 5: too late.
    """
    _decide(context, slot, "withheld", json=json)


@app.command("show")
def release_show(
    context: typer.Context,
    slot: Slot,
    payload: Annotated[
        Path | None, typer.Option(help="Write the bytes that are sent, with noise, to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show one release of any period: its contents with noise, signature and receipt."""
    from fedperf_client.home.config import write_private
    from fedperf_client.release.history import summarize_payload
    from fedperf_client.release.schedule import UnknownSlotError
    from fedperf_shared.errors import StorageError

    home = home_of(context)
    ledger, key = _find_slot(home, slot)
    start = ledger.schedule.calendar.period.start
    release = next(
        (each for each in _past_releases(home) if each.key == key and each.period_start == start),
        None,
    )
    if release is None:
        raise UnknownSlotError(slot, reason="it has no release yet (see release preview)")
    facts = {
        **_release_values(release),
        "opens_at": ledger.schedule.opens_at(key),
        "send_at": ledger.schedule.replies_at(key),
    }
    stored = ledger.stored(key)
    if stored is not None:
        facts["signature_valid"] = _is_own(home, stored.payload, stored.signature)
        facts |= summarize_payload(stored.payload)
        if payload is not None:
            try:
                write_private(payload, stored.payload)
            except OSError as error:
                raise StorageError(f"{payload}: {error.strerror or error}") from error
    show_facts(named_facts(facts), json=json)


@app.command("list")
def release_list(context: typer.Context, json: Json = False) -> None:
    """List the releases of all periods with state, size, epsilon and receipt.

    "receipt" shows whether the coordinator's receipt is valid. For a charged release that was not
    sent it is the reason instead: operator, policy, undecided, too_late or not_drawn.
    """
    rows = []
    for each in _past_releases(home_of(context)):
        values = _release_values(each)
        is_valid = values["receipt_valid"]
        receipt = Fact("receipt", is_valid, "receipt", values["because"] or is_valid)
        rows.append([*named_facts(values, columns=COLUMNS), receipt])
    show_table(rows, json=json, empty="no release yet")


@app.command("slots")
def release_slots(context: typer.Context, json: Json = False) -> None:
    """List the slots of the period with their times (UTC) and privacy parameters.

    Before the first period, the slots are a plan, and a table shows what would change it.
    """
    from fedperf_client.commands import planned_releases
    from fedperf_client.commands.planned_releases import PlannedSlots
    from fedperf_client.release.policy import load_policy

    home, at = home_of(context), now()
    if home.ledgers:
        ledger = _ledgers(home)[-1]
        planned = PlannedSlots.load(home, ledger, load_policy(home.policy))
        _show_slots(planned, json=json)
        if not ledger.schedule.slots and not json:
            print(f"why: {planned.reason_for_none()}")
        return
    policy, expected = planned_releases.expected_schedule(home, at=at)
    _show_slots(PlannedSlots.expect(expected, policy), json=json)
    if json:
        planned_releases.note_of_expected(home, at=at)
    else:
        calendar = planned_releases.expected_calendar(home, at=at)
        planned_releases.print_forecast(policy, calendar, at=at)


def _show_slots(planned: "PlannedSlots", *, json: bool) -> None:
    from fedperf_client.commands.planned_releases import SPARE

    empty = "no release is planned in this period"
    show_table(planned.rows(), json=json, empty=empty, spare=SPARE)
    if not json:
        for note in planned.notes():
            print(note)


def _decide(context: typer.Context, slot: str, decision: str, *, json: bool) -> None:
    from fedperf_client.release.decisions import Decisions, Outcome
    from fedperf_client.release.policy import ReleaseMode, effective_policy, load_policy
    from fedperf_shared.errors import ConfigurationError

    home = home_of(context)
    ledger, key = _find_slot(home, slot)
    policy = load_policy(home.policy)
    kind, mode = key.kind.name.lower(), effective_policy(home, policy).mode(key.kind)
    outcome = Outcome(decision)
    approves = outcome is Outcome.APPROVED
    if approves and policy.mode(key.kind) is ReleaseMode.NEVER:
        raise ConfigurationError(
            f"{slot}: {home.policy} sets {kind} to never; change that to ask or auto first"
        )
    Decisions(ledger).decide(key, outcome, at=now())
    if approves and mode is ReleaseMode.NEVER:
        print(
            f"note: the running daemon started with {kind} set to never, so restart it to send "
            f"{slot}",
            file=sys.stderr,
        )
    facts = {
        "slot": slot,
        "decision": decision,
        "charged": key in {entry.key for entry in ledger.entries()},
        "opens_at": ledger.schedule.opens_at(key),
        "send_at": ledger.schedule.replies_at(key) if approves else None,
    }
    show_facts(named_facts(facts), json=json)


def _ledgers(home: "Home") -> list["PrivacyLedger"]:
    from fedperf_client.release.ledger import PrivacyLedger

    return [PrivacyLedger.open(path) for path in home.ledgers]


def _find_slot(home: "Home", text: str) -> tuple["PrivacyLedger", "SlotKey"]:
    """Return the ledger and the planned slot of a name, or raise UnknownSlotError."""
    from fedperf_client.release.schedule import UnknownSlotError, parse_slot_name

    ledgers = _ledgers(home)
    if not ledgers:
        raise UnknownSlotError(text, reason="no period has begun; join and start fedperf daemon")
    place, key = parse_slot_name(text, [each.schedule.calendar.period for each in ledgers])
    if ledgers[place].schedule.slot(key) is None:
        raise UnknownSlotError(text, reason="the schedule of the period does not have it")
    return ledgers[place], key


def _past_releases(home: "Home") -> tuple["PastRelease", ...]:
    from fedperf_client.node.enrollment import Membership
    from fedperf_client.node.exchange import read_receipt
    from fedperf_client.release.history import past_releases
    from fedperf_shared.errors import ConfigurationError

    ledgers, read = _ledgers(home), None
    with suppress(ConfigurationError):
        read = partial(read_receipt, membership=Membership.load(home.identity))
    return past_releases(ledgers, home.receipts, read=read)


def _is_own(home: "Home", payload: bytes, signature: bytes) -> bool:
    from fedperf_client.node.enrollment import load_or_create_key
    from fedperf_shared.identity import InvalidSignatureError, verify

    try:
        verify(load_or_create_key(home.identity).public_key(), payload, signature)
    except InvalidSignatureError:
        return False
    return True


def _planned_slots(home: "Home", *, at: datetime) -> "PlannedSlots":
    """Return the slots of the current or the next period."""
    from fedperf_client.commands.planned_releases import PlannedSlots, public_calendar
    from fedperf_client.release.policy import load_policy
    from fedperf_client.release.schedule import plan_schedule

    policy, ledgers = load_policy(home.policy), _ledgers(home)
    if not ledgers or not at < ledgers[-1].schedule.calendar.period.end:
        calendar = public_calendar(home, at=at).release_calendar
        if not home.ledger(calendar.period.start).exists():
            return PlannedSlots.expect(plan_schedule(policy, calendar, at=at), policy)
    return PlannedSlots.load(home, ledgers[-1], policy)


def _release_values(release: "PastRelease") -> dict[str, object]:
    receipt = release.receipt
    return {
        "slot": release.name,
        "kind": release.kind,
        "window": release.key.window,
        "index": release.key.index,
        "state": release.state,
        "because": release.because,
        "decision": None if release.decision is None else str(release.decision.outcome),
        "charged_at": release.entry.reserved_at,
        "reconciled": release.entry.reconciled,
        "bytes": release.entry.payload_bytes,
        "epsilon": release.epsilon,
        "epsilon_replace_one": release.replace_one_epsilon,
        "payload_sha256": release.payload_sha256,
        "receipt_valid": receipt is not None and not receipt.problem,
        "receipt_sequence": None if receipt is None else receipt.sequence,
        "receipt_received_at": None if receipt is None else receipt.received_at,
        "receipt_problem": "none was received" if receipt is None else receipt.problem,
    }
