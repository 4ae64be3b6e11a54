"""The privacy ledger records what an organization released in a period, and may release.

There is one SQLite file per organization and period, with the budget and the schedule inside. The
lifetime record next to them (`lifetime`) holds all periods together to one budget. A slot is
*reserved* (charged) before its noise is sampled, *drawn* once its signed bytes are stored, and
*handed out* when they are sent. Each step is one durable transaction. Nothing is ever changed or
deleted, so there is no refund. A crash between reserving and drawing wastes the slot: it is
charged, has no release, and is never drawn again.

A charge costs the same work however many came before: the cost of all slots together is
held to the budget, each slot is charged at most once, and fewer slots never cost more. Extra
slots are equal to each other and charged up to a number that is fixed like everything else.
At any time of use, and after any earlier releases, this is the adaptive composition of
that many releases, whose parameters depend on nothing.

A ledger that was restored from a backup has forgotten charges. So two witnesses must agree with
it: a counter file next to it, written after every charge and before its noise is sampled, and the
coordinator's last signed receipt. Where one disagrees, every charge is refused until an operator
calls `reconcile`, which charges all slots that could have been drawn. A release that is drawn and
not sent stays until then, and after it for good: its slot may have been drawn before.

The latest receipt is stored next to the ledger. A receipt for bytes that the ledger did not draw
shows that they were sent from here and forgotten. A data directory that was restored as a whole
agrees with itself, and only the coordinator can detect that. Such a receipt is kept too, so that
the next start does not forget it. The operator's decision settles the receipts of all slots charged
until then. A coordinator that lies can stop an organization, as it can by not replying, and gains
nothing.

Refused: slots outside of the schedule or not yet due, charged slots, schedules that overspend the
budget, files that are no ledger or of another schema. Timestamps are passed in.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import Self

from fedperf_client.release.accountant import PrivacyBudget, epsilon, to_events
from fedperf_client.release.ledger_files import (
    PERIOD_LEDGER,
    AppendOnlyFile,
    ConfirmedRelease,
    confirmed_path,
    create_file,
    read_confirmed,
    read_counter,
    read_promise,
    reading,
    transaction,
    write_confirmed,
    write_counter,
)
from fedperf_client.release.lifetime import ActivePeriod, LifetimeRecord, lifetime_path
from fedperf_client.release.schedule import slot_name
from fedperf_shared.errors import (
    FedperfError,
    InvalidInputError,
    PrivacyRefusedError,
    StorageError,
)
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, Schedule, SignedRelease, Slot, SlotKey
from fedperf_shared.wire.codec import decode_schedule, encode_schedule


@unique
class ReleaseState(StrEnum):
    """The state of a charged slot. One that stays `RESERVED` was wasted by a crash."""

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


class SlotNotPlannedError(PrivacyRefusedError):
    """Raised for a release that the schedule does not have."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(
            f"{slot_name(key)} is not in the schedule of this period; nothing is released"
        )
        self.key = key


class SlotNotDueError(PrivacyRefusedError):
    """Raised for a slot before it opens or after its period has ended."""

    def __init__(
        self, key: SlotKey, *, at: datetime, opens_at: datetime, ends_at: datetime
    ) -> None:
        super().__init__(
            f"{slot_name(key)} may be made from {opens_at.isoformat()} until "
            f"{ends_at.isoformat()}, not at {at.isoformat()}"
        )
        self.key = key


class SlotSpentError(PrivacyRefusedError):
    """Raised when a slot was charged before: its noise is never sampled twice."""

    def __init__(self, key: SlotKey, state: ReleaseState) -> None:
        super().__init__(f"{slot_name(key)} is spent ({state}); a slot is never drawn twice")
        self.key = key


class ExtraSlotsSpentError(PrivacyRefusedError):
    """Raised when the calendar's extra slots of the period are all charged."""

    def __init__(self, key: SlotKey, most: int) -> None:
        super().__init__(
            f"{slot_name(key)} is an extra slot, and all {most} of this period are spent; "
            "nothing is released"
        )
        self.key = key


class SlotNotReservedError(PrivacyRefusedError):
    """Raised for the bytes of a slot that is not waiting for them."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(f"{slot_name(key)} was not reserved first; its bytes are thrown away")
        self.key = key


class BudgetExceededError(PrivacyRefusedError):
    """Raised for a schedule whose slots together would overspend the budget."""

    def __init__(self, *, epsilon_after: float, budget: PrivacyBudget) -> None:
        super().__init__(
            f"the schedule would cost epsilon {epsilon_after:.6g}, the budget is "
            f"{budget.epsilon:g} at delta={budget.delta:g}; nothing is released"
        )
        self.epsilon_after = epsilon_after


class LedgerDisagreesError(PrivacyRefusedError):
    """Raised when the ledger has forgotten something, as a restored backup does."""

    def __init__(self, path: Path, disagreement: str) -> None:
        super().__init__(
            f"ledger {path}: {disagreement}; was it restored from a backup? Nothing is released "
            "until an operator calls fedperf reconcile, which charges every slot opened so far"
        )


class PrivacyLedger(AppendOnlyFile):
    """The ledger of one organization and period."""

    layout = PERIOD_LEDGER

    def __init__(self, path: Path, budget: PrivacyBudget, schedule: Schedule) -> None:
        """Use `create` or `open`."""
        promise = f"{budget.epsilon!r} {budget.delta!r} ".encode() + encode_schedule(schedule)
        super().__init__(path, promise)
        self.budget = budget
        self.schedule = schedule
        self._planned = {slot.key: slot for slot in schedule.slots}
        self._is_within_budget = False

    @classmethod
    def create(
        cls,
        path: Path,
        budget: PrivacyBudget,
        schedule: Schedule,
        *,
        lifetime: PrivacyBudget | None = None,
    ) -> Self:
        """Start the ledger of a period and charge the period to the organization's lifetime.

        Args:
            path: of the ledger; the lifetime record is in the same directory.
            budget: of the period.
            schedule: all slots of the period.
            lifetime: promised for all periods, read when the first one begins;
                `budget.default_lifetime` by default.

        Raises:
            BudgetExceededError: the whole schedule would overspend the budget.
            PrivacyRefusedError: the lifetime record refuses the period.
            StorageError: there is one already, or was by its counter file or the lifetime
                record, or it cannot be written.
        """
        cls(path, budget, schedule)._require_budget()
        counter = read_counter(path)
        # A counter of 0 is what a crash in here leaves: nothing was ever drawn under it.
        if counter is not None and counter[1] > 0:
            raise StorageError(f"ledger {path}: its counter file is there, so it existed before")
        if path.exists():
            raise StorageError(f"ledger {path}: there is a file already; a period starts once")
        record = LifetimeRecord.open_or_create(
            lifetime_path(path.parent), lifetime or budget.default_lifetime
        )
        period = record.admit(
            ActivePeriod(path.name, budget, schedule), has_counter=counter is not None
        )
        ledger = cls(path, period.budget, period.schedule)
        # First the counter, then the record: a period that has begun without a counter is lost.
        write_counter(path, ledger._identity, 0)
        record.begin(period)
        promise = (period.budget.epsilon, period.budget.delta, encode_schedule(period.schedule))
        if not create_file(path, PERIOD_LEDGER, *promise):
            raise StorageError(f"ledger {path}: another process has just started the period")
        return ledger

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the ledger that `create` wrote.

        Raises:
            StorageError: no such file, or it is no ledger, damaged or of a newer schema.
        """
        if not path.is_file():
            raise StorageError(f"ledger {path}: no such file")
        promise = read_promise(path, PERIOD_LEDGER)
        if not promise:
            raise StorageError(f"ledger {path}: damaged: it holds no schedule")
        try:
            return cls(path, PrivacyBudget(promise[0], promise[1]), decode_schedule(promise[2]))
        except FedperfError as error:
            raise StorageError(f"ledger {path}: damaged: {error}") from error

    def reserve(self, key: SlotKey, at: datetime) -> Slot:
        """Charge the slot durably and return it with its parameters, or raise and record nothing.

        Only the caller that receives the slot may sample its noise, once.

        Raises:
            SlotNotPlannedError: the schedule does not have it.
            SlotNotDueError: it is not open at `at`.
            SlotSpentError: it was reserved before.
            ExtraSlotsSpentError: it is an extra one, and no more of these may be charged.
            BudgetExceededError: the schedule as a whole would pass the budget.
            LedgerDisagreesError: counter or receipt hold more than the ledger.
            StorageError: the charge cannot be written.
        """
        slot = self._planned.get(key)
        if slot is None:
            raise SlotNotPlannedError(key)
        opens_at, ends_at = self.schedule.opens_at(key), self.schedule.calendar.period.end
        if not opens_at <= at <= ends_at:
            raise SlotNotDueError(key, at=at, opens_at=opens_at, ends_at=ends_at)
        self._require_budget()
        with transaction(self.path) as connection:
            self._require_agreement(connection)
            state = self._state(connection, key)
            if state is not None:
                raise SlotSpentError(key, state)
            if self.schedule.is_extra(key) and not self._count_extra_left(connection) > 0:
                raise ExtraSlotsSpentError(key, self.schedule.calendar.most_extra)
            # A crash may have left the counter one behind; two would be a disagreement.
            write_counter(self.path, self._identity, self._count(connection))
            self._insert_reserved(connection, key, at, reconciled=False)
        self._advance_counter()
        return slot

    def commit(self, key: SlotKey, release: SignedRelease) -> None:
        """Store the sampled and signed bytes of a reserved slot.

        Raises:
            SlotNotReservedError: the slot is not reserved, or was drawn before.
        """
        with transaction(self.path) as connection:
            if self._state(connection, key) is not ReleaseState.RESERVED:
                raise SlotNotReservedError(key)
            connection.execute(
                "INSERT INTO drawn VALUES (?, ?, ?)",
                (self._release_id(key), release.payload, release.signature),
            )

    def stored(self, key: SlotKey) -> SignedRelease | None:
        """Return the release sampled for the slot, or None."""
        with reading(self.path) as connection:
            row = connection.execute(
                "SELECT payload, signature FROM drawn WHERE release_id = ?",
                (self._release_id(key),),
            ).fetchone()
        return None if row is None else SignedRelease(row[0], row[1])

    def dispatch(self, key: SlotKey, at: datetime) -> None:
        """Record that the slot's bytes were sent. A repeated call is no error.

        Raises:
            SlotNotReservedError: nothing was drawn for the slot.
            SlotSpentError: an operator reconciled before it was sent, so it is not sent.
            LedgerDisagreesError: counter or receipt hold more than the ledger.
        """
        with transaction(self.path) as connection:
            self._require_agreement(connection)
            state = self._state(connection, key)
            if state is None or state is ReleaseState.RESERVED:
                raise SlotNotReservedError(key)
            if state is ReleaseState.DRAWN:
                if _is_settled(connection, self._release_id(key)):
                    raise SlotSpentError(key, state)
                connection.execute(
                    "INSERT INTO handed_out VALUES (?, ?)",
                    (self._release_id(key), to_unix_ms(at)),
                )

    def confirm(self, confirmed: ConfirmedRelease, *, key: SlotKey | None = None) -> None:
        """Keep the coordinator's latest receipt outside of the database.

        Args:
            confirmed: the content of a receipt whose signature was verified.
            key: the slot that it must be for; None for any slot of the period.

        Raises:
            InvalidInputError: it is for another slot or period.
            LedgerDisagreesError: it confirms bytes that this ledger did not draw.
        """
        keys = self._planned if key is None else [key]
        if confirmed.release_id not in map(self._release_id, keys):
            raise InvalidInputError("the coordinator's receipt is for another slot or period")
        with transaction(self.path) as connection:
            latest = read_confirmed(self.path)
            agreed = latest is None or _find_receipt_disagreement(connection, latest) is None
            disagreement = _find_receipt_disagreement(connection, confirmed)
            newer = latest is None or latest.sequence < confirmed.sequence
            if agreed and (newer or disagreement):
                write_confirmed(self.path, confirmed)
            if disagreement:
                raise LedgerDisagreesError(self.path, disagreement)

    def reconcile(self, at: datetime) -> tuple[SlotKey, ...]:
        """Charge every slot that opened until `at`, as an operator decided, and go on.

        Whatever a lost part of the ledger held, only such slots can have been drawn. Nothing is
        sampled for the slots charged now; they are returned. Receipts for what is charged now are
        settled: they stop nothing any more, for any bytes that they confirm.
        """
        with transaction(self.path) as connection:
            problem = self._find_disagreement(connection)
            opened = [
                slot.key
                for slot in self.schedule.slots
                if self.schedule.opens_at(slot.key) <= at
                and self._state(connection, slot.key) is None
            ]
            lost = [key for key in opened if not self.schedule.is_extra(key)]
            # No more of them can have been drawn than were left: whichever, none is left now.
            extra = [key for key in opened if self.schedule.is_extra(key)]
            lost += extra[: self._count_extra_left(connection)]
            for key in lost:
                self._insert_reserved(connection, key, at, reconciled=True)
            connection.execute(
                "INSERT INTO reconciliation (reconciled_unix_ms, charges, disagreement)"
                " VALUES (?, ?, ?)",
                (to_unix_ms(at), self._count(connection), problem or "none"),
            )
        confirmed_path(self.path).unlink(missing_ok=True)
        self._advance_counter()
        return tuple(lost)

    def spent(self, at: datetime) -> float:
        """Return epsilon of all slots charged until `at`, for add or remove one workload."""
        return epsilon(to_events(self.charged(at)), self.budget.delta)

    def charged(self, at: datetime) -> tuple[Slot, ...]:
        """Return the slots that were charged until `at`, in the order of their charges."""
        keys = [entry.key for entry in self.entries() if entry.reserved_at <= at]
        unplanned = [key for key in keys if key not in self._planned]
        if unplanned:
            raise StorageError(f"ledger {self.path}: damaged: unplanned {unplanned[0]}")
        return tuple(self._planned[key] for key in keys)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all charged slots in the order of their charges."""
        with reading(self.path) as connection:
            rows = connection.execute(
                "SELECT kind, window, slot, reserved_unix_ms, reconciled, length(payload),"
                " handed_out_unix_ms FROM reserved LEFT JOIN drawn USING (release_id)"
                " LEFT JOIN handed_out USING (release_id)"
                " ORDER BY number"
            ).fetchall()
        return tuple(
            LedgerEntry(
                key=SlotKey(ReleaseKind(kind), window, index),
                state=_to_state(is_drawn=size is not None, is_handed_out=handed_out is not None),
                reserved_at=from_unix_ms(reserved),
                payload_bytes=size or 0,
                reconciled=bool(reconciled),
            )
            for kind, window, index, reserved, reconciled, size, handed_out in rows
        )

    def _require_budget(self) -> None:
        if self._is_within_budget:
            return
        total = epsilon(to_events(self.schedule.at_most()), self.budget.delta)
        if not total <= self.budget.epsilon:
            raise BudgetExceededError(epsilon_after=total, budget=self.budget)
        self._is_within_budget = True

    def _require_agreement(self, connection: sqlite3.Connection) -> None:
        problem = self._find_disagreement(connection)
        if problem is not None:
            raise LedgerDisagreesError(self.path, problem)

    def _find_disagreement(self, connection: sqlite3.Connection) -> str | None:
        problem = super()._find_disagreement(connection)
        confirmed = read_confirmed(self.path)
        if problem is not None or confirmed is None:
            return problem
        return _find_receipt_disagreement(connection, confirmed)

    def _state(self, connection: sqlite3.Connection, key: SlotKey) -> ReleaseState | None:
        """Return the state of the slot, or None if it was not charged."""
        row = connection.execute(
            "SELECT drawn.release_id, handed_out.release_id FROM reserved"
            " LEFT JOIN drawn USING (release_id) LEFT JOIN handed_out USING (release_id)"
            " WHERE reserved.release_id = ?",
            (self._release_id(key),),
        ).fetchone()
        if row is None:
            return None
        return _to_state(is_drawn=row[0] is not None, is_handed_out=row[1] is not None)

    def _count_extra_left(self, connection: sqlite3.Connection) -> int:
        """Count the extra slots that may still be charged."""
        (charged,) = connection.execute(
            "SELECT count(*) FROM reserved WHERE kind = ? AND slot >= ?",
            (int(ReleaseKind.MODEL_UPDATE), len(self.schedule.calendar.model_slots)),
        ).fetchone()
        return self.schedule.calendar.most_extra - int(charged)

    def _insert_reserved(
        self, connection: sqlite3.Connection, key: SlotKey, at: datetime, *, reconciled: bool
    ) -> None:
        number = self._count(connection) + 1
        slot = (int(key.kind), key.window, key.index)
        connection.execute(
            "INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self._release_id(key), number, *slot, to_unix_ms(at), int(reconciled)),
        )

    def _release_id(self, key: SlotKey) -> bytes:
        return key.release_id(self.schedule.calendar.period)


def reconcile_lifetime(
    ledgers: Sequence[PrivacyLedger], promise: PrivacyBudget
) -> tuple[str | None, tuple[ActivePeriod, ...]]:
    """Count every period of `ledgers` in the lifetime record, as an operator decided.

    Args:
        ledgers: of all periods, in one directory; at least one.
        promise: for the lifetime, where the record is lost as a whole.

    Returns:
        A description of what was wrong with the record, None if nothing was; and the periods that
        it had forgotten.

    Raises:
        StorageError: the record cannot be read or written.
    """
    record, problem = LifetimeRecord.restore(lifetime_path(ledgers[0].path.parent), promise)
    periods = [ActivePeriod(each.path.name, each.budget, each.schedule) for each in ledgers]
    return problem, record.reconcile(periods)


def _is_settled(connection: sqlite3.Connection, release_id: bytes) -> bool:
    """Return whether the release was charged when an operator last reconciled, or before."""
    row = connection.execute(
        "SELECT 1 FROM reserved WHERE release_id = ? AND number <="
        " (SELECT coalesce(max(charges), 0) FROM reconciliation)",
        (release_id,),
    ).fetchone()
    return row is not None


def _find_receipt_disagreement(
    connection: sqlite3.Connection, confirmed: ConfirmedRelease
) -> str | None:
    """Describe how a receipt contradicts the entries; None if they agree or it is settled."""
    row = connection.execute(
        "SELECT payload FROM drawn WHERE release_id = ?", (confirmed.release_id,)
    ).fetchone()
    if _is_settled(connection, confirmed.release_id):
        return None
    if row is None:
        return f"receipt {confirmed.sequence} confirms a release that the ledger does not hold"
    if hashlib.sha256(row[0]).digest() != confirmed.payload_sha256:
        return f"receipt {confirmed.sequence} confirms other bytes than the ledger holds"
    return None


def _to_state(*, is_drawn: bool, is_handed_out: bool) -> ReleaseState:
    if is_handed_out:
        return ReleaseState.HANDED_OUT
    return ReleaseState.DRAWN if is_drawn else ReleaseState.RESERVED
