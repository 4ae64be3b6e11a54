"""The privacy ledger: what an organization has released in a period, and may release.

One SQLite file per organization and period with the budget and the schedule inside. A
slot is *reserved* (charged) before its noise is drawn, *drawn* when its signed bytes are
stored, *handed out* when they left. Each step is one durable transaction, and nothing is
ever changed or deleted: there is no refund. A crash between reserving and drawing
wastes the slot; it is spent, has no release, and is never drawn again.

A ledger that was restored from a backup has forgotten charges. So a counter file beside
it, written after every charge and before its noise is drawn, and the coordinator's last
signed receipt must agree with it, or every charge is refused until an operator calls
`reconcile`, which charges all slots that could have been drawn.

Refused: slots outside of the schedule or not yet due, slots that are spent, charges that
overspend the budget, files that are no ledger or of a newer schema. The clock is never
read here: moments are passed in.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import Self

from fedperf_client.privacy.accountant import PrivacyBudget, epsilon, event_of, events_of
from fedperf_client.release.ledger_file import (
    connect,
    create_tables,
    errors_named,
    new_file,
    require_schema,
)
from fedperf_client.release.tamper import (
    ConfirmedRelease,
    read_confirmed,
    read_counter,
    remove_confirmed,
    write_confirmed,
    write_counter,
)
from fedperf_shared.errors import FedperfError, PrivacyRefusedError, StorageError
from fedperf_shared.period import from_unix_ms, to_unix_ms
from fedperf_shared.release import ReleaseKind, Schedule, SignedRelease, Slot, SlotKey
from fedperf_shared.wire.codec import decode_schedule, encode_schedule


class SlotNotPlannedError(PrivacyRefusedError):
    """A release was asked for that the schedule does not have."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(f"{_name(key)} is not in the schedule of this period; nothing is released")
        self.key = key


class SlotNotDueError(PrivacyRefusedError):
    """A slot was asked for before it opens or after its period has ended."""

    def __init__(
        self, key: SlotKey, *, at: datetime, opens_at: datetime, ends_at: datetime
    ) -> None:
        super().__init__(
            f"{_name(key)} may be made from {opens_at.isoformat()} until {ends_at.isoformat()}, "
            f"not at {at.isoformat()}"
        )
        self.key = key
        self.opens_at = opens_at


class SlotSpentError(PrivacyRefusedError):
    """A slot was charged already; it is never drawn twice."""

    def __init__(self, key: SlotKey, state: "ReleaseState") -> None:
        super().__init__(f"{_name(key)} is spent ({state}); a slot is never drawn twice")
        self.key = key
        self.state = state


class SlotNotReservedError(PrivacyRefusedError):
    """Bytes were to be stored for a slot that is not waiting for them."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(f"{_name(key)} was not reserved first; its bytes are thrown away")
        self.key = key


class BudgetExceededError(PrivacyRefusedError):
    """A release was refused because it would overspend the budget."""

    def __init__(self, key: SlotKey, *, epsilon_after: float, budget: PrivacyBudget) -> None:
        super().__init__(
            f"{_name(key)} refused: epsilon would be {epsilon_after:.4g}, "
            f"the budget is {budget.epsilon:.4g} at delta={budget.delta:g}"
        )
        self.key = key
        self.epsilon_after = epsilon_after


class LedgerDisagreesError(PrivacyRefusedError):
    """The ledger has forgotten something, as a restored backup does; an operator decides."""

    def __init__(self, path: Path, disagreement: str) -> None:
        super().__init__(
            f"ledger {path}: {disagreement}; was it restored from a backup? Nothing is released "
            "until an operator reconciles it, which charges every slot opened so far"
        )
        self.disagreement = disagreement


@unique
class ReleaseState(StrEnum):
    """How far a slot has come. One that stays `RESERVED` was wasted by a crash."""

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


class PrivacyLedger:
    """The ledger of one organization and period; several threads and processes may share it."""

    def __init__(self, path: Path, budget: PrivacyBudget, schedule: Schedule) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.budget = budget
        self.schedule = schedule
        self._identity = _identity(budget, schedule)

    @classmethod
    def create(cls, path: Path, budget: PrivacyBudget, schedule: Schedule) -> Self:
        """Start the ledger of a period.

        Raises:
            PrivacyRefusedError: the whole schedule would overspend the budget.
            StorageError: there is one already, or was by its counter file, or it cannot
                be written.
        """
        total = epsilon(events_of(schedule.slots), budget.delta)
        if not total <= budget.epsilon:
            raise PrivacyRefusedError(
                f"the schedule would cost epsilon {total:.6g}, the budget is {budget.epsilon:g}"
            )
        counter = read_counter(path)
        # A counter of 0 is what a crash in here leaves: nothing was ever drawn under it.
        if counter is not None and counter[1] > 0:
            raise StorageError(f"ledger {path}: its counter file is there, so it existed before")
        if path.exists():
            raise StorageError(f"ledger {path}: there is a file already; a period starts once")
        ledger = cls(path, budget, schedule)
        with errors_named(path), new_file(path) as scratch:
            with cls(scratch, budget, schedule)._transaction() as connection:
                create_tables(path, connection)
                connection.execute(
                    "INSERT INTO promise VALUES (1, ?, ?, ?)",
                    (budget.epsilon, budget.delta, encode_schedule(schedule)),
                )
            write_counter(path, ledger._identity, 0)
        return ledger

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ledger that `create` wrote.

        Raises:
            StorageError: no such file, or it is no ledger, damaged or of a newer schema.
        """
        if not path.is_file():
            raise StorageError(f"ledger {path}: no such file")
        with errors_named(path), closing(connect(path)) as connection:
            require_schema(path, connection)
            row = connection.execute("SELECT epsilon, delta, schedule FROM promise").fetchone()
        if row is None:
            raise StorageError(f"ledger {path}: damaged: it holds no schedule")
        try:
            return cls(path, PrivacyBudget(row[0], row[1]), decode_schedule(row[2]))
        except FedperfError as error:
            raise StorageError(f"ledger {path}: damaged: {error}") from error

    def reserve(self, key: SlotKey, at: datetime) -> Slot:
        """Charge the slot durably and give it with its parameters, or raise and record nothing.

        Only the caller that gets the slot may draw its noise, once.

        Raises:
            SlotNotPlannedError: the schedule does not have it.
            SlotNotDueError: it is not open at `at`.
            SlotSpentError: it was reserved before.
            BudgetExceededError: the total would pass the budget.
            LedgerDisagreesError: counter or receipt know more than the ledger.
            StorageError: the charge cannot be written.
        """
        slot = self._due_slot(key, at)
        with self._transaction() as connection:
            self._require_agreement(connection)
            state = self._state(connection, key)
            if state is not None:
                raise SlotSpentError(key, state)
            self._require_budget(connection, slot)
            # A crash may have left the counter one behind; two would be a disagreement.
            write_counter(self.path, self._identity, _count(connection))
            self._insert_reserved(connection, key, at, reconciled=False)
        self._advance_counter()
        return slot

    def commit(self, key: SlotKey, release: SignedRelease) -> None:
        """Store the drawn and signed bytes of a reserved slot.

        Raises:
            SlotNotReservedError: the slot is not reserved, or was drawn before.
        """
        with self._transaction() as connection:
            if self._state(connection, key) is not ReleaseState.RESERVED:
                raise SlotNotReservedError(key)
            connection.execute(
                "INSERT INTO drawn VALUES (?, ?, ?)",
                (self._release_id(key), release.payload, release.signature),
            )

    def stored(self, key: SlotKey) -> SignedRelease | None:
        """What was drawn for the slot, None if nothing was."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT payload, signature FROM drawn WHERE release_id = ?",
                (self._release_id(key),),
            ).fetchone()
        return None if row is None else SignedRelease(row[0], row[1])

    def hand_out(self, key: SlotKey, at: datetime) -> None:
        """Record that the slot's bytes left; again is no error.

        Raises:
            SlotNotReservedError: nothing was drawn for the slot.
        """
        with self._transaction() as connection:
            state = self._state(connection, key)
            if state is None or state is ReleaseState.RESERVED:
                raise SlotNotReservedError(key)
            if state is ReleaseState.DRAWN:
                connection.execute(
                    "INSERT INTO handed_out VALUES (?, ?)",
                    (self._release_id(key), to_unix_ms(at)),
                )

    def confirm(self, confirmed: ConfirmedRelease) -> None:
        """Keep the coordinator's latest receipt outside of the database, already verified.

        Raises:
            LedgerDisagreesError: it confirms bytes that this ledger did not draw.
        """
        with self._transaction() as connection:
            disagreement = self._disagreement_with(connection, confirmed)
            if disagreement:
                raise LedgerDisagreesError(self.path, disagreement)
            latest = read_confirmed(self.path)
            if latest is None or latest.sequence < confirmed.sequence:
                write_confirmed(self.path, confirmed)

    def reconcile(self, at: datetime) -> tuple[SlotKey, ...]:
        """An operator's decision: charge every slot that opened until `at`, and go on.

        Whatever a lost part of the ledger held, only such slots can have been drawn. Nothing
        is drawn for those newly charged; they are given back as spent.
        """
        with self._transaction() as connection:
            problem = self._disagreement(connection)
            lost = [
                slot.key
                for slot in self.schedule.slots
                if self.schedule.opens_at(slot.key) <= at
                and self._state(connection, slot.key) is None
            ]
            for key in lost:
                self._insert_reserved(connection, key, at, reconciled=True)
            connection.execute(
                "INSERT INTO reconciliation (reconciled_unix_ms, disagreement) VALUES (?, ?)",
                (to_unix_ms(at), problem or "none"),
            )
        remove_confirmed(self.path)
        self._advance_counter()
        return tuple(lost)

    def spent(self, at: datetime) -> float:
        """Epsilon of all slots charged until `at`, for add or remove one workload."""
        keys = [entry.key for entry in self.entries() if entry.reserved_at <= at]
        return epsilon(events_of(self._slots(keys)), self.budget.delta)

    def remaining(self, at: datetime) -> float:
        """The part of the budget's epsilon that is not spent at `at`."""
        return self.budget.epsilon - self.spent(at)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All charged slots in the order of their charges."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT kind, window, slot, reserved_unix_ms, reconciled, length(payload),"
                " handed_out_unix_ms FROM reserved LEFT JOIN drawn USING (release_id)"
                " LEFT JOIN handed_out USING (release_id)"
                " ORDER BY reserved_unix_ms, window, kind, slot"
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

    def disagreement(self) -> str | None:
        """What counter or receipt know and the ledger does not, in words; None if they agree."""
        with self._transaction() as connection:
            return self._disagreement(connection)

    def _due_slot(self, key: SlotKey, at: datetime) -> Slot:
        slot = self.schedule.slot(key)
        if slot is None:
            raise SlotNotPlannedError(key)
        opens_at, ends_at = self.schedule.opens_at(key), self.schedule.timetable.period.end
        if not opens_at <= at <= ends_at:
            raise SlotNotDueError(key, at=at, opens_at=opens_at, ends_at=ends_at)
        return slot

    def _require_budget(self, connection: sqlite3.Connection, slot: Slot) -> None:
        rows = connection.execute("SELECT kind, window, slot FROM reserved").fetchall()
        charged = self._slots(SlotKey(ReleaseKind(k), window, index) for k, window, index in rows)
        events = [*events_of(charged), event_of(slot.parameters)]
        epsilon_after = epsilon(events, self.budget.delta)
        if not epsilon_after <= self.budget.epsilon:
            raise BudgetExceededError(slot.key, epsilon_after=epsilon_after, budget=self.budget)

    def _require_agreement(self, connection: sqlite3.Connection) -> None:
        problem = self._disagreement(connection)
        if problem is not None:
            raise LedgerDisagreesError(self.path, problem)

    def _disagreement(self, connection: sqlite3.Connection) -> str | None:
        charges = _count(connection)
        counter = read_counter(self.path)
        if counter is None and charges > 0:
            return f"the counter file is missing, the ledger holds {charges} charges"
        identity, counted = counter or (self._identity, 0)
        if identity != self._identity:
            return "the counter file belongs to another ledger"
        # One charge ahead of its counter is a crash right after the charge: nothing is hidden.
        if not charges - 1 <= counted <= charges:
            return f"the counter file says {counted} charges, the ledger holds {charges}"
        confirmed = read_confirmed(self.path)
        return None if confirmed is None else self._disagreement_with(connection, confirmed)

    def _disagreement_with(
        self, connection: sqlite3.Connection, confirmed: ConfirmedRelease
    ) -> str | None:
        row = connection.execute(
            "SELECT payload FROM drawn WHERE release_id = ?", (confirmed.release_id,)
        ).fetchone()
        if row is None:
            return f"receipt {confirmed.sequence} confirms a release that the ledger does not hold"
        if hashlib.sha256(row[0]).digest() != confirmed.payload_sha256:
            return f"receipt {confirmed.sequence} confirms other bytes than the ledger holds"
        return None

    def _state(self, connection: sqlite3.Connection, key: SlotKey) -> ReleaseState | None:
        row = connection.execute(
            "SELECT drawn.release_id, handed_out.release_id FROM reserved"
            " LEFT JOIN drawn USING (release_id) LEFT JOIN handed_out USING (release_id)"
            " WHERE reserved.release_id = ?",
            (self._release_id(key),),
        ).fetchone()
        return None if row is None else _state_of(row[0] is not None, row[1] is not None)

    def _insert_reserved(
        self, connection: sqlite3.Connection, key: SlotKey, at: datetime, *, reconciled: bool
    ) -> None:
        connection.execute(
            "INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?)",
            (
                self._release_id(key),
                int(key.kind),
                key.window,
                key.index,
                to_unix_ms(at),
                int(reconciled),
            ),
        )

    def _advance_counter(self) -> None:
        """Write the present count under the lock, so that no slower writer turns it back."""
        with self._transaction() as connection:
            write_counter(self.path, self._identity, _count(connection))

    def _slots(self, keys: "Iterator[SlotKey] | list[SlotKey]") -> list[Slot]:
        by_key = {slot.key: slot for slot in self.schedule.slots}
        try:
            return [by_key[key] for key in keys]
        except KeyError as error:
            raise StorageError(f"ledger {self.path}: damaged: unplanned {error}") from error

    def _release_id(self, key: SlotKey) -> bytes:
        return key.release_id(self.schedule.timetable.period)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with errors_named(self.path), closing(connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with errors_named(self.path), closing(connect(self.path)) as connection:
            yield connection


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM reserved").fetchone()
    return int(count)


def _state_of(drawn: bool, handed_out: bool) -> ReleaseState:
    if handed_out:
        return ReleaseState.HANDED_OUT
    return ReleaseState.DRAWN if drawn else ReleaseState.RESERVED


def _identity(budget: PrivacyBudget, schedule: Schedule) -> str:
    text = f"{budget.epsilon!r} {budget.delta!r} ".encode()
    return hashlib.sha256(text + encode_schedule(schedule)).hexdigest()


def _name(key: SlotKey) -> str:
    kind = key.kind.name.lower().replace("_", " ")
    return f"{kind} {key.index} of window {key.window}"
