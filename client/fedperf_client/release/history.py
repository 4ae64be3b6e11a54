"""Every release that was ever made, how far it came, and whether its receipt holds.

Reads the ledgers of all periods, the decisions beside them and the receipts; changes
nothing. A receipt counts only if the coordinator signed it over this release's id and
bytes, with a sequence number of its own, not before the slot opened.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fedperf_client.privacy.accountant import epsilon, events_of, replace_one_epsilon
from fedperf_client.release.decisions import Decision, Decisions, Verdict
from fedperf_client.release.ledger.entries import LedgerEntry, ReleaseState
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.slot_names import slot_name
from fedperf_shared.errors import FedperfError, StorageError
from fedperf_shared.exchange import Receipt
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import decode_release

ReadReceipt = Callable[[bytes], Receipt]
"""Verifies the coordinator's signature and reads, or raises InvalidInputError."""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""The coordinator's clock may be behind by this much."""


LEFT = frozenset({"handed out", "confirmed"})
"""States of releases that were sent."""


NOT_DRAWN = "not_drawn"
"""Why a charged release was not sent: its sampling is in progress, failed or was cut short."""


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """The contents of a stored receipt. `problem` is empty if the receipt is valid."""

    sequence: int
    received_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True)
class PastRelease:
    """A slot that was charged.

    Attributes:
        name: of the slot, with its period where that is not the newest.
        key: the slot.
        kind: what the slot releases, as `releases.kinds` says.
        period_start: of its period.
        entry: what the ledger says.
        state: charged (nothing was drawn), sealed, withheld, handed out or confirmed.
        because: why it did not leave: a `WithholdReason`, `NOT_DRAWN`, or None where it did.
        decision: the last word about it, if any.
        epsilon: what it costs alone.
        replace_one_epsilon: the same when one workload is replaced.
        payload_sha256: of the bytes that were drawn, hexadecimal; empty if none were.
        receipt: the coordinator's; None where none was kept.
    """

    name: str
    key: SlotKey
    kind: str
    period_start: datetime
    entry: LedgerEntry
    state: str
    because: str | None
    decision: Decision | None
    epsilon: float
    replace_one_epsilon: float
    payload_sha256: str
    receipt: ReceiptCheck | None


def receipt_path(directory: Path, ledger: PrivacyLedger, key: SlotKey) -> Path:
    """Return the path of the receipt for a slot's release."""
    release_id = key.release_id(ledger.schedule.calendar.period)
    return directory / f"{release_id.hex()}.receipt"


def past_releases(
    ledgers: Sequence[PrivacyLedger], receipts: Path, *, read: ReadReceipt | None
) -> tuple[PastRelease, ...]:
    """Every charged slot of the periods, oldest first.

    Args:
        ledgers: of all periods, oldest first.
        receipts: directory of the receipts.
        read: None where no coordinator's key is known, so that no receipt counts.

    Raises:
        StorageError: a ledger, its decisions or a receipt cannot be read.
    """
    found = [
        _past_release(ledger, entry, decisions.get(entry.key), receipts, read=read)
        for ledger in ledgers
        for decisions in [Decisions(ledger).every()]
        for entry in ledger.entries()
    ]
    newest = ledgers[-1].schedule.calendar.period if ledgers else None
    found = [
        replace(each, name=slot_name(each.key))
        if newest is not None and each.period_start == newest.start
        else each
        for each in found
    ]
    uses = Counter(each.receipt.sequence for each in found if each.receipt)
    return tuple(_with_state(_unique(each, uses)) for each in found)


def contents_of(payload: bytes) -> dict[str, object]:
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


def _past_release(
    ledger: PrivacyLedger,
    entry: LedgerEntry,
    decision: Decision | None,
    receipts: Path,
    *,
    read: ReadReceipt | None,
) -> PastRelease:
    period, delta = ledger.schedule.calendar.period, ledger.budget.delta
    slots = [slot for slot in ledger.schedule.slots if slot.key == entry.key]
    events = events_of(slots)
    stored = ledger.stored(entry.key)
    payload = b"" if stored is None else stored.payload
    path = receipt_path(receipts, ledger, entry.key)
    return PastRelease(
        name=slot_name(entry.key, period=period),
        key=entry.key,
        kind=kind_of(slots[0].parameters).name,
        period_start=period.start,
        entry=entry,
        state="",
        because=None,
        decision=decision,
        epsilon=epsilon(events, delta),
        replace_one_epsilon=replace_one_epsilon(events, delta),
        payload_sha256=hashlib.sha256(payload).hexdigest() if payload else "",
        receipt=_check(path, payload, ledger, entry.key, read=read) if path.exists() else None,
    )


def _check(
    path: Path, payload: bytes, ledger: PrivacyLedger, key: SlotKey, *, read: ReadReceipt | None
) -> ReceiptCheck:
    if read is None:
        return ReceiptCheck(0, None, "no coordinator's key is known here")
    try:
        receipt = read(path.read_bytes())
    except OSError as error:
        raise StorageError(f"receipt {path}: cannot be read: {error.strerror}") from error
    except FedperfError as error:
        return ReceiptCheck(0, None, str(error))
    earliest = ledger.schedule.opens_at(key) - CLOCK_TOLERANCE
    problems = {
        "for another release": (
            receipt.release_id != key.release_id(ledger.schedule.calendar.period)
        ),
        "for other bytes": receipt.payload_sha256 != hashlib.sha256(payload).digest(),
        "its sequence number is none": not receipt.sequence >= 1,
        "from before the slot opened": not receipt.received_at >= earliest,
    }
    problem = next((text for text, holds in problems.items() if holds), "")
    return ReceiptCheck(receipt.sequence, receipt.received_at, problem)


def _unique(found: PastRelease, uses: Counter[int]) -> PastRelease:
    receipt = found.receipt
    if receipt is None or receipt.problem or uses[receipt.sequence] == 1:
        return found
    return replace(found, receipt=replace(receipt, problem="its sequence number is used twice"))


def _with_state(found: PastRelease) -> PastRelease:
    if found.entry.state is ReleaseState.HANDED_OUT:
        is_confirmed = found.receipt is not None and not found.receipt.problem
        return replace(found, state="confirmed" if is_confirmed else "handed out")
    if found.decision is not None and found.decision.verdict is Verdict.WITHHELD:
        because = found.decision.because
        return replace(found, state="withheld", because=because and str(because))
    if found.entry.state is ReleaseState.DRAWN:
        return replace(found, state="sealed")
    return replace(found, state="charged", because=NOT_DRAWN)
