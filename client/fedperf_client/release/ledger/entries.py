"""The entries of a ledger: the charges in its file, read inside the caller's transaction.

An entry is one charged slot. It was reserved, then drawn, then handed out, and never goes
back. Entries are numbered from 1 without a gap, so the newest number is their count. What an
operator reconciled is settled: every entry up to the number of charges at that moment.

Nothing is written here. A receipt that does not agree with the entries is told in words.
"""

import hashlib
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique

from fedperf_client.release.ledger.tamper import ConfirmedRelease
from fedperf_shared.releases.period import from_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey


@unique
class ReleaseState(StrEnum):
    """The state of a slot. One that stays `RESERVED` was wasted by a crash."""

    RESERVED = "reserved"
    DRAWN = "drawn"
    HANDED_OUT = "handed out"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One charged slot; `reconciled` if an operator's decision charged it."""

    key: SlotKey
    state: ReleaseState
    reserved_at: datetime
    payload_bytes: int
    reconciled: bool


def charges_in(connection: sqlite3.Connection) -> int:
    """Return the number of charged slots: the newest number, found without counting."""
    (count,) = connection.execute("SELECT coalesce(max(number), 0) FROM reserved").fetchone()
    return int(count)


def entries_in(connection: sqlite3.Connection) -> tuple[LedgerEntry, ...]:
    """All charged slots in the order of their charges."""
    rows = connection.execute(
        "SELECT kind, window, slot, reserved_unix_ms, reconciled, length(payload),"
        " handed_out_unix_ms FROM reserved LEFT JOIN drawn USING (release_id)"
        " LEFT JOIN handed_out USING (release_id)"
        " ORDER BY number"
    ).fetchall()
    return tuple(
        LedgerEntry(
            key=SlotKey(ReleaseKind(kind), window, index),
            state=_state_of(size is not None, handed_out is not None),
            reserved_at=from_unix_ms(reserved),
            payload_bytes=size or 0,
            reconciled=bool(reconciled),
        )
        for kind, window, index, reserved, reconciled, size, handed_out in rows
    )


def state_in(connection: sqlite3.Connection, release_id: bytes) -> ReleaseState | None:
    """Return the state of the release's slot, or None if it was not charged."""
    row = connection.execute(
        "SELECT drawn.release_id, handed_out.release_id FROM reserved"
        " LEFT JOIN drawn USING (release_id) LEFT JOIN handed_out USING (release_id)"
        " WHERE reserved.release_id = ?",
        (release_id,),
    ).fetchone()
    return None if row is None else _state_of(row[0] is not None, row[1] is not None)


def is_settled(connection: sqlite3.Connection, release_id: bytes) -> bool:
    """Whether the release was charged when an operator last reconciled, or before."""
    row = connection.execute(
        "SELECT 1 FROM reserved WHERE release_id = ? AND number <="
        " (SELECT coalesce(max(charges), 0) FROM reconciliation)",
        (release_id,),
    ).fetchone()
    return row is not None


def receipt_disagreement(connection: sqlite3.Connection, confirmed: ConfirmedRelease) -> str | None:
    """Describe how a receipt contradicts the entries; None if they agree or it is settled."""
    row = connection.execute(
        "SELECT payload FROM drawn WHERE release_id = ?", (confirmed.release_id,)
    ).fetchone()
    if is_settled(connection, confirmed.release_id):
        return None
    if row is None:
        return f"receipt {confirmed.sequence} confirms a release that the ledger does not hold"
    if hashlib.sha256(row[0]).digest() != confirmed.payload_sha256:
        return f"receipt {confirmed.sequence} confirms other bytes than the ledger holds"
    return None


def _state_of(drawn: bool, handed_out: bool) -> ReleaseState:
    if handed_out:
        return ReleaseState.HANDED_OUT
    return ReleaseState.DRAWN if drawn else ReleaseState.RESERVED
