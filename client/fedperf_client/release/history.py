"""Past releases with their receipts, and the privacy budget that they spent.

This module reads the ledgers of all periods, the decisions and the lifetime record next to them and
the receipts; it changes nothing. A receipt counts only if the coordinator signed it over this
release's id and bytes, with a sequence number of its own, not before the slot opened. The unit of
privacy is the workload, and epsilon is for adding or removing one; the figure for replacing one by
another is next to it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fedperf_client.formatting.facts import Fact
from fedperf_client.release.accountant import PrivacyBudget, epsilon, replace_one_epsilon, to_events
from fedperf_client.release.decisions import Decision, Decisions, Outcome
from fedperf_client.release.ledger import LedgerEntry, PrivacyLedger, ReleaseState
from fedperf_client.release.lifetime import LifetimeRecord, lifetime_path
from fedperf_client.release.schedule import slot_name
from fedperf_shared.errors import FedperfError, StorageError
from fedperf_shared.exchange import Receipt
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import Schedule, Slot, SlotKey
from fedperf_shared.wire.codec import decode_release

UNIT = "workload"

# Verifies the coordinator's signature and reads, or raises InvalidInputError.
ReadReceipt = Callable[[bytes], Receipt]

CLOCK_TOLERANCE = timedelta(minutes=5)  # the coordinator's clock may be behind by this much
LEFT = frozenset({"handed out", "confirmed"})  # states of releases that were sent
# Reason of a charged release that was not sent: its sampling is in progress, failed or was cut
# short.
NOT_DRAWN = "not_drawn"


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """The contents of a stored receipt. `problem` is empty if the receipt is valid."""

    sequence: int
    received_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True)
class PastRelease:
    """A slot that was charged."""

    name: str  # of the slot, with its period where that is not the newest
    key: SlotKey  # the slot
    kind: str  # name of the kind in `releases.kinds`
    period_start: datetime  # of its period
    entry: LedgerEntry  # of the ledger
    state: str  # charged (nothing was drawn), sealed, withheld, handed out or confirmed
    because: str | None  # why it was not sent: a `WithholdReason`, `NOT_DRAWN`, or None if it was
    decision: Decision | None  # the last decision about it, if any
    epsilon: float  # its cost alone
    replace_one_epsilon: float  # the same when one workload is replaced
    payload_sha256: str  # of the bytes that were drawn, hexadecimal; empty if none were
    receipt: ReceiptCheck | None  # the coordinator's; None if none was stored


@dataclass(frozen=True, slots=True)
class Spending:
    """One budget with its promise and the part that is spent."""

    period: Period | None  # that the budget is for; None for the lifetime
    budget: PrivacyBudget  # the promise
    planned: float  # epsilon of all slots of the schedules, made or not, extra ones as far as used
    spent: float  # epsilon of the slots that were charged
    spent_replace_one: float  # the same when one workload is replaced
    slots: int  # number of planned slots
    made: int  # number of charged ones

    @property
    def left(self) -> float:
        """Return the part of the promised epsilon that is not spent."""
        return self.budget.epsilon - self.spent

    @property
    def facts(self) -> list[Fact]:
        """Return the row of `fedperf budget`, rounded for people."""
        scope, start, heading = "lifetime", None, "lifetime"
        if self.period is not None:
            scope, start = "period", self.period.start.isoformat()
            heading = f"{self.period.start:%Y-%m-%d}"
        replaced = self.spent_replace_one
        return [
            Fact("scope", scope, "budget", heading),
            Fact("period_start", start),
            Fact("unit", UNIT),
            Fact("epsilon", self.budget.epsilon, "epsilon"),
            Fact("delta", self.budget.delta, "delta"),
            Fact("planned", self.planned, "planned", round(self.planned, 4)),
            Fact("spent", self.spent, "spent", round(self.spent, 4)),
            Fact("spent_replace_one", replaced, "replace one", round(replaced, 4)),
            Fact("left", self.left, "left", round(self.left, 4)),
            Fact("slots", self.slots),
            Fact("released", self.made, "released", f"{self.made} of {self.slots}"),
        ]


def receipt_path(directory: Path, ledger: PrivacyLedger, key: SlotKey) -> Path:
    """Return the path of the receipt for a slot's release."""
    release_id = key.release_id(ledger.schedule.calendar.period)
    return directory / f"{release_id.hex()}.receipt"


def past_releases(
    ledgers: Sequence[PrivacyLedger], receipts: Path, *, read: ReadReceipt | None
) -> tuple[PastRelease, ...]:
    """Return every charged slot of the periods, oldest first.

    Args:
        ledgers: of all periods, oldest first.
        receipts: directory of the receipts.
        read: None without a coordinator's key; then no receipt counts.

    Raises:
        StorageError: a ledger, its decisions or a receipt cannot be read.
    """
    charged = [
        (ledger, entry, decisions.get(entry.key), _check_receipt(receipts, ledger, entry.key, read))
        for ledger in ledgers
        for decisions in [Decisions(ledger).latest()]
        for entry in ledger.entries()
    ]
    uses = Counter(receipt.sequence for *_, receipt in charged if receipt)
    return tuple(
        _past_release(
            ledger,
            entry,
            decision,
            replace(receipt, problem="its sequence number is used twice")
            if receipt and not receipt.problem and uses[receipt.sequence] > 1
            else receipt,
            named_period=None if ledger is ledgers[-1] else ledger.schedule.calendar.period,
        )
        for ledger, entry, decision, receipt in charged
    )


def summarize_payload(payload: bytes) -> dict[str, object]:
    """Return a payload's values as figures. All of them carry noise already."""
    release = decode_release(payload)
    numbers = release.natural()
    return {
        **release.public(),
        "values": numbers.size,
        "smallest": float(numbers.min()),
        "largest": float(numbers.max()),
        "root_mean_square": float(np.sqrt(np.mean(numbers**2))),
        "first_values": [round(float(number), 6) for number in numbers[:8]],
    }


def read_spending(ledgers: Sequence[Path], *, at: datetime) -> tuple[Spending, ...]:
    """Return the lifetime first, then every period, oldest first; nothing before the first period.

    Args:
        ledgers: files of all periods, oldest first, in one directory.
        at: charges until then count.

    Raises:
        StorageError: a ledger or the lifetime record cannot be read.
    """
    if not ledgers:
        return ()
    opened = [PrivacyLedger.open(path) for path in ledgers]
    record = LifetimeRecord.open(lifetime_path(ledgers[0].parent))
    planned = [slot for each in record.periods() for slot in each.schedule.at_most()]
    charged = [ledger.charged(at) for ledger in opened]
    periods = [
        _spending(ledger.schedule.calendar.period, ledger.budget, ledger.schedule.at_most(), slots)
        for ledger, slots in zip(opened, charged, strict=True)
    ]
    every = [slot for slots in charged for slot in slots]
    return (_spending(None, record.promise, planned, every), *periods)


def expected_spending(
    schedule: Schedule, budget: PrivacyBudget, lifetime: PrivacyBudget
) -> tuple[Spending, ...]:
    """Return the planned spending before the first period, with nothing spent."""
    planned = schedule.at_most()
    return (
        _spending(None, lifetime, planned, []),
        _spending(schedule.calendar.period, budget, planned, []),
    )


def _past_release(
    ledger: PrivacyLedger,
    entry: LedgerEntry,
    decision: Decision | None,
    receipt: ReceiptCheck | None,
    *,
    named_period: Period | None,
) -> PastRelease:
    state: str = "charged"
    because: str | None = NOT_DRAWN
    if entry.state is ReleaseState.HANDED_OUT:
        is_confirmed = receipt is not None and not receipt.problem
        state, because = "confirmed" if is_confirmed else "handed out", None
    elif decision is not None and decision.outcome is Outcome.WITHHELD:
        state, because = "withheld", decision.reason and str(decision.reason)
    elif entry.state is ReleaseState.DRAWN:
        state, because = "sealed", None
    slots = [slot for slot in ledger.schedule.slots if slot.key == entry.key]
    events, delta = to_events(slots), ledger.budget.delta
    stored = ledger.stored(entry.key)
    return PastRelease(
        name=slot_name(entry.key, period=named_period),
        key=entry.key,
        kind=kind_of(slots[0].parameters).name,
        period_start=ledger.schedule.calendar.period.start,
        entry=entry,
        state=state,
        because=because,
        decision=decision,
        epsilon=epsilon(events, delta),
        replace_one_epsilon=replace_one_epsilon(events, delta),
        payload_sha256="" if stored is None else hashlib.sha256(stored.payload).hexdigest(),
        receipt=receipt,
    )


def _check_receipt(
    directory: Path, ledger: PrivacyLedger, key: SlotKey, read: ReadReceipt | None
) -> ReceiptCheck | None:
    path = receipt_path(directory, ledger, key)
    if not path.exists():
        return None
    if read is None:
        return ReceiptCheck(0, None, "no coordinator's key is known here")
    try:
        receipt = read(path.read_bytes())
    except OSError as error:
        raise StorageError(f"receipt {path}: cannot be read: {error.strerror}") from error
    except FedperfError as error:
        return ReceiptCheck(0, None, str(error))
    stored = ledger.stored(key)
    digest = hashlib.sha256(b"" if stored is None else stored.payload).digest()
    earliest = ledger.schedule.opens_at(key) - CLOCK_TOLERANCE
    problems = {
        "for another release": (
            receipt.release_id != key.release_id(ledger.schedule.calendar.period)
        ),
        "for other bytes": receipt.payload_sha256 != digest,
        "its sequence number is none": not receipt.sequence >= 1,
        "from before the slot opened": not receipt.received_at >= earliest,
    }
    problem = next((text for text, holds in problems.items() if holds), "")
    return ReceiptCheck(receipt.sequence, receipt.received_at, problem)


def _spending(
    period: Period | None, budget: PrivacyBudget, planned: Sequence[Slot], charged: Sequence[Slot]
) -> Spending:
    events = to_events(charged)
    return Spending(
        period=period,
        budget=budget,
        planned=epsilon(to_events(planned), budget.delta),
        spent=epsilon(events, budget.delta),
        spent_replace_one=replace_one_epsilon(events, budget.delta),
        slots=len(planned),
        made=len(charged),
    )
