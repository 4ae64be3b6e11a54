"""The privacy ledger: what an organization has released in a period, and may release.

One SQLite file per organization and period with the budget and the schedule inside; the
periods together are held to a lifetime budget by the record beside them (`lifetime`). A
slot is *reserved* (charged) before its noise is drawn, *drawn* when its signed bytes are
stored, *handed out* when they left. Each step is one durable transaction, and nothing is
ever changed or deleted: there is no refund. A crash between reserving and drawing
wastes the slot; it is spent, has no release, and is never drawn again.

A charge costs the same work however many came before: the cost of all slots together is
held to the budget, each slot is charged at most once, and fewer slots never cost more. Extra
slots are equal to each other and charged up to a number that is fixed like everything else;
so whenever they are used, and by whatever was released before, it is the adaptive
composition of that many releases whose parameters depend on nothing.

A ledger that was restored from a backup has forgotten charges. So two witnesses must agree with
it: a counter file beside it, written after every charge and before its noise is drawn, and the
coordinator's last signed receipt. Where one does not, every charge is refused until an operator
calls `reconcile`, which charges all slots that could have been drawn. What is drawn and has not
left stays until then, and after it for good: its slot may have been drawn before. A receipt that
does not agree is kept, so that it is not forgotten by the next start; the operator's decision
settles the receipts of all slots charged until then.

Refused: slots outside of the schedule or not yet due, slots that are spent, schedules that
overspend the budget, files that are no ledger or of another schema. Moments are passed in.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from fedperf_client.privacy.accountant import PrivacyBudget, epsilon, events_of
from fedperf_client.release.ledger.entries import (
    LedgerEntry,
    ReleaseState,
    charges_in,
    entries_in,
    is_settled,
    receipt_disagreement,
    state_in,
)
from fedperf_client.release.ledger.errors import (
    BudgetExceededError,
    ExtraSlotsSpentError,
    LedgerDisagreesError,
    SlotNotDueError,
    SlotNotPlannedError,
    SlotNotReservedError,
    SlotSpentError,
)
from fedperf_client.release.ledger.ledger_file import (
    PERIOD_LEDGER,
    connect,
    create_tables,
    errors_named,
    new_file,
    require_layout,
    transaction,
)
from fedperf_client.release.ledger.lifetime import (
    ActivePeriod,
    LifetimeRecord,
    lifetime_of,
    lifetime_path,
)
from fedperf_client.release.ledger.tamper import (
    ConfirmedRelease,
    counter_disagreement,
    read_confirmed,
    read_counter,
    remove_confirmed,
    write_confirmed,
    write_counter,
)
from fedperf_shared.errors import FedperfError, StorageError
from fedperf_shared.releases.period import to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, Schedule, SignedRelease, Slot, SlotKey
from fedperf_shared.wire.codec import decode_schedule, encode_schedule


class PrivacyLedger:
    """The ledger of one organization and period; several threads and processes may share it."""

    def __init__(self, path: Path, budget: PrivacyBudget, schedule: Schedule) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.budget = budget
        self.schedule = schedule
        self._identity = _identity(budget, schedule)
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
            path: of the ledger; the lifetime record stands in the same directory.
            budget: of the period.
            schedule: all slots of the period.
            lifetime: promised for all periods, read when the first one begins; by default
                `lifetime_of(budget)`.

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
            lifetime_path(path.parent), lifetime or lifetime_of(budget)
        )
        wanted = ActivePeriod(path.name, budget, schedule)
        begun = record.admit(wanted, has_counter=counter is not None)
        ledger = cls(path, begun.budget, begun.schedule)
        # First the counter, then the record: a period that has begun without a counter is lost.
        write_counter(path, ledger._identity, 0)
        record.begin(begun)
        with errors_named(path), new_file(path) as scratch, transaction(scratch) as connection:
            create_tables(path, connection, PERIOD_LEDGER)
            connection.execute(
                "INSERT INTO promise VALUES (1, ?, ?, ?)",
                (begun.budget.epsilon, begun.budget.delta, encode_schedule(begun.schedule)),
            )
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
            require_layout(path, connection, PERIOD_LEDGER)
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
            ExtraSlotsSpentError: it is an extra one, and no more of these may be charged.
            BudgetExceededError: the schedule as a whole would pass the budget.
            LedgerDisagreesError: counter or receipt know more than the ledger.
            StorageError: the charge cannot be written.
        """
        slot = self._due_slot(key, at)
        self._require_budget()
        with self._transaction() as connection:
            self._require_agreement(connection)
            state = self._state(connection, key)
            if state is not None:
                raise SlotSpentError(key, state)
            if self.schedule.is_extra(key) and not self._extra_left(connection) > 0:
                raise ExtraSlotsSpentError(key, self.schedule.calendar.most_extra)
            # A crash may have left the counter one behind; two would be a disagreement.
            write_counter(self.path, self._identity, charges_in(connection))
            self._insert_reserved(connection, key, at, reconciled=False)
        self._advance_counter()
        return slot

    def commit(self, key: SlotKey, release: SignedRelease) -> None:
        """Store the sampled and signed bytes of a reserved slot.

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
        """Return the payload sampled for the slot, or None."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT payload, signature FROM drawn WHERE release_id = ?",
                (self._release_id(key),),
            ).fetchone()
        return None if row is None else SignedRelease(row[0], row[1])

    def dispatch(self, key: SlotKey, at: datetime) -> None:
        """Record that the slot's bytes were sent. A repeated call is no error.

        Raises:
            SlotNotReservedError: nothing was drawn for the slot.
            SlotSpentError: an operator reconciled before it left; it stays here.
            LedgerDisagreesError: counter or receipt know more than the ledger.
        """
        with self._transaction() as connection:
            self._require_agreement(connection)
            state = self._state(connection, key)
            if state is None or state is ReleaseState.RESERVED:
                raise SlotNotReservedError(key)
            if state is ReleaseState.DRAWN:
                if is_settled(connection, self._release_id(key)):
                    raise SlotSpentError(key, state)
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
            latest = read_confirmed(self.path)
            agreed = latest is None or receipt_disagreement(connection, latest) is None
            disagreement = receipt_disagreement(connection, confirmed)
            newer = latest is None or latest.sequence < confirmed.sequence
            if agreed and (newer or disagreement):
                write_confirmed(self.path, confirmed)
            if disagreement:
                raise LedgerDisagreesError(self.path, disagreement)

    def reconcile(self, at: datetime) -> tuple[SlotKey, ...]:
        """An operator's decision: charge every slot that opened until `at`, and go on.

        Whatever a lost part of the ledger held, only such slots can have been drawn. Nothing
        is drawn for those newly charged; they are given back as spent. Receipts for what is
        charged now are settled: whatever bytes they confirm, they stop nothing any more.
        """
        with self._transaction() as connection:
            problem = self._disagreement(connection)
            opened = [
                slot.key
                for slot in self.schedule.slots
                if self.schedule.opens_at(slot.key) <= at
                and self._state(connection, slot.key) is None
            ]
            lost = [key for key in opened if not self.schedule.is_extra(key)]
            # No more of them can have been drawn than were left: whichever, none is left now.
            extra = [key for key in opened if self.schedule.is_extra(key)]
            lost += extra[: self._extra_left(connection)]
            for key in lost:
                self._insert_reserved(connection, key, at, reconciled=True)
            connection.execute(
                "INSERT INTO reconciliation (reconciled_unix_ms, charges, disagreement)"
                " VALUES (?, ?, ?)",
                (to_unix_ms(at), charges_in(connection), problem or "none"),
            )
        remove_confirmed(self.path)
        self._advance_counter()
        return tuple(lost)

    def spent(self, at: datetime) -> float:
        """Epsilon of all slots charged until `at`, for add or remove one workload."""
        return epsilon(events_of(self.charged(at)), self.budget.delta)

    def charged(self, at: datetime) -> tuple[Slot, ...]:
        """The slots that were charged until `at`, in the order of their charges."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT kind, window, slot FROM reserved WHERE reserved_unix_ms <= ?"
                " ORDER BY number",
                (to_unix_ms(at),),
            ).fetchall()
        keys = [SlotKey(ReleaseKind(kind), window, index) for kind, window, index in rows]
        unplanned = [key for key in keys if key not in self._planned]
        if unplanned:
            raise StorageError(f"ledger {self.path}: damaged: unplanned {unplanned[0]}")
        return tuple(self._planned[key] for key in keys)

    def remaining(self, at: datetime) -> float:
        """The part of the budget's epsilon that is not spent at `at`."""
        return self.budget.epsilon - self.spent(at)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All charged slots in the order of their charges."""
        with self._reading() as connection:
            return entries_in(connection)

    def disagreement(self) -> str | None:
        """Describe an entry of counter or receipts that the ledger lacks; None if they agree."""
        with self._transaction() as connection:
            return self._disagreement(connection)

    def _due_slot(self, key: SlotKey, at: datetime) -> Slot:
        slot = self._planned.get(key)
        if slot is None:
            raise SlotNotPlannedError(key)
        opens_at, ends_at = self.schedule.opens_at(key), self.schedule.calendar.period.end
        if not opens_at <= at <= ends_at:
            raise SlotNotDueError(key, at=at, opens_at=opens_at, ends_at=ends_at)
        return slot

    def _require_budget(self) -> None:
        if self._is_within_budget:
            return
        total = epsilon(events_of(self.schedule.at_most()), self.budget.delta)
        if not total <= self.budget.epsilon:
            raise BudgetExceededError(epsilon_after=total, budget=self.budget)
        self._is_within_budget = True

    def _require_agreement(self, connection: sqlite3.Connection) -> None:
        problem = self._disagreement(connection)
        if problem is not None:
            raise LedgerDisagreesError(self.path, problem)

    def _disagreement(self, connection: sqlite3.Connection) -> str | None:
        charges = charges_in(connection)
        problem = counter_disagreement(self.path, self._identity, charges, "charges")
        if problem is not None:
            return problem
        confirmed = read_confirmed(self.path)
        return None if confirmed is None else receipt_disagreement(connection, confirmed)

    def _state(self, connection: sqlite3.Connection, key: SlotKey) -> ReleaseState | None:
        return state_in(connection, self._release_id(key))

    def _extra_left(self, connection: sqlite3.Connection) -> int:
        """So many extra slots may still be charged."""
        (charged,) = connection.execute(
            "SELECT count(*) FROM reserved WHERE kind = ? AND slot >= ?",
            (int(ReleaseKind.MODEL_UPDATE), len(self.schedule.calendar.model_slots)),
        ).fetchone()
        return self.schedule.calendar.most_extra - int(charged)

    def _insert_reserved(
        self, connection: sqlite3.Connection, key: SlotKey, at: datetime, *, reconciled: bool
    ) -> None:
        connection.execute(
            "INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self._release_id(key),
                charges_in(connection) + 1,
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
            write_counter(self.path, self._identity, charges_in(connection))

    def _release_id(self, key: SlotKey) -> bytes:
        return key.release_id(self.schedule.calendar.period)

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with errors_named(self.path), closing(connect(self.path)) as connection:
            yield connection


def _identity(budget: PrivacyBudget, schedule: Schedule) -> str:
    text = f"{budget.epsilon!r} {budget.delta!r} ".encode()
    return hashlib.sha256(text + encode_schedule(schedule)).hexdigest()
