"""The lifetime record: every period that an organization began, against one promise for good.

One append-only SQLite file beside the ledgers of the periods. A period is charged whole
when it begins: all slots of its schedule, whether they will be made or not, composed with
those of all earlier periods. So charges inside a period need not look here. The promise is
fixed when the first period begins.

Refused: a period that would take the total past the promise; one that overlaps in time
with another, whatever coordinator it is of, as one budget is all that leaves in that time;
any new period once a file beside the record knows of periods that it has forgotten, until
an operator reconciles them.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedperf_client.privacy.accountant import MAX_EPSILON, PrivacyBudget, epsilon, events_of
from fedperf_client.release.ledger.ledger_file import (
    LIFETIME_RECORD,
    connect,
    create_tables,
    errors_named,
    new_file,
    require_layout,
    transaction,
)
from fedperf_client.release.ledger.tamper import (
    counter_disagreement,
    counter_path,
    counters_beside,
    read_counter,
    write_counter,
)
from fedperf_shared.errors import FedperfError, PrivacyRefusedError, StorageError
from fedperf_shared.releases.period import Period, to_unix_ms
from fedperf_shared.releases.release import Schedule
from fedperf_shared.wire.codec import decode_schedule, encode_schedule

PERIODS_OF_A_LIFETIME = 10
"""The default promise for good is this many times a period's epsilon, at the same delta."""


class LifetimeExceededError(PrivacyRefusedError):
    """A period was not begun because all periods together would pass the lifetime budget."""

    def __init__(self, period: Period, *, epsilon_after: float, promise: PrivacyBudget) -> None:
        super().__init__(
            f"the period from {period.start.isoformat()} cannot begin: all periods together "
            f"would cost epsilon {epsilon_after:.6g}, the lifetime budget is "
            f"{promise.epsilon:g} at delta={promise.delta:g}"
        )
        self.epsilon_after = epsilon_after


class PeriodOverlapsError(PrivacyRefusedError):
    """A period was not begun because another one, perhaps of another coordinator, is on."""

    def __init__(self, period: Period, other: Period) -> None:
        super().__init__(
            f"the period from {period.start.isoformat()} to {period.end.isoformat()} cannot "
            f"begin: it overlaps with the one from {other.start.isoformat()} to "
            f"{other.end.isoformat()}, whose budget is for all that leaves in that time"
        )
        self.other = other


class LifetimeDisagreesError(PrivacyRefusedError):
    """The record has forgotten a period, as a restored backup does; an operator decides."""

    def __init__(self, path: Path, disagreement: str) -> None:
        super().__init__(
            f"lifetime record {path}: {disagreement}; was it restored from a backup? No period "
            "begins until an operator reconciles it"
        )
        self.disagreement = disagreement


@dataclass(frozen=True, slots=True)
class ActivePeriod:
    """A period that counts: the name of its ledger's file, its budget and its schedule."""

    ledger: str
    budget: PrivacyBudget
    schedule: Schedule

    @property
    def period(self) -> Period:
        """The dates of the period."""
        return self.schedule.calendar.period


def lifetime_of(budget: PrivacyBudget) -> PrivacyBudget:
    """The default lifetime budget where a period's is `budget`."""
    return PrivacyBudget(min(PERIODS_OF_A_LIFETIME * budget.epsilon, MAX_EPSILON), budget.delta)


def lifetime_path(directory: Path) -> Path:
    """Return the path of the record of the ledgers in `directory`."""
    return directory / "lifetime.sqlite"


class LifetimeRecord:
    """The record of one organization; several processes may share it."""

    def __init__(self, path: Path, promise: PrivacyBudget) -> None:
        """Use `open` or `open_or_create`."""
        self.path = path
        self.promise = promise
        text = f"lifetime {promise.epsilon!r} {promise.delta!r}"
        self._identity = hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def open(cls, path: Path) -> Self:
        """The record that `open_or_create` made.

        Raises:
            StorageError: no such file, or none of this kind, damaged or of another schema.
        """
        if not path.is_file():
            raise StorageError(
                f"lifetime record {path}: no such file; fedperf reconcile makes it from the ledgers"
            )
        with errors_named(path), closing(connect(path)) as connection:
            require_layout(path, connection, LIFETIME_RECORD)
            row = connection.execute("SELECT epsilon, delta FROM promise").fetchone()
        try:
            return cls(path, PrivacyBudget(*(row or (None, None))))
        except FedperfError as error:
            raise StorageError(f"lifetime record {path}: damaged: {error}") from error

    @classmethod
    def open_or_create(cls, path: Path, promise: PrivacyBudget) -> Self:
        """The record of `path`, made with `promise` where there is none.

        Raises:
            LifetimeDisagreesError: there was one before, by its counter file.
            StorageError: it cannot be used.
        """
        if path.exists():
            return cls.open(path)
        counter = read_counter(path)
        if counter is not None and counter[1] > 0:
            raise LifetimeDisagreesError(path, f"it is missing, it had {counter[1]} periods")
        return cls._create(path, promise)

    @classmethod
    def restore(cls, path: Path, promise: PrivacyBudget) -> tuple[Self, str | None]:
        """The record, empty and with `promise` where it is lost, and what is wrong with it.

        Only for an operator who reconciles it next; errors as `open`.
        """
        if not path.exists():
            return cls._create(path, promise), "it was missing"
        record = cls.open(path)
        return record, record.disagreement()

    @classmethod
    def _create(cls, path: Path, promise: PrivacyBudget) -> Self:
        with errors_named(path):
            try:
                with new_file(path) as scratch, transaction(scratch) as connection:
                    create_tables(path, connection, LIFETIME_RECORD)
                    connection.execute(
                        "INSERT INTO promise VALUES (1, ?, ?)", (promise.epsilon, promise.delta)
                    )
            except FileExistsError:  # another process was faster; its promise holds
                return cls.open(path)
        return cls(path, promise)

    def periods(self) -> tuple[ActivePeriod, ...]:
        """Every period that began, oldest first."""
        with errors_named(self.path), closing(connect(self.path)) as connection:
            return self._periods(connection)

    def admit(self, wanted: ActivePeriod, *, has_counter: bool) -> ActivePeriod:
        """The period that a new ledger is for; records nothing.

        A start that was cut off after `begin` goes on with what it had recorded, even if
        another schedule is wanted now: one period is charged once.

        Args:
            wanted: the period.
            has_counter: whether the ledger's counter file is there, as it is before `begin`.

        Raises:
            PrivacyRefusedError: as `begin`.
            StorageError: the period began long ago, and its ledger is lost with its counter.
        """
        with transaction(self.path) as connection:
            known = {each.period.start: each for each in self._periods(connection)}
            begun = known.get(wanted.period.start)
            if begun is None:
                self._require_room(connection, wanted)
                return wanted
        if not has_counter or begun.ledger != wanted.ledger:
            raise StorageError(
                f"ledger {begun.ledger}: lost, the lifetime record says that its period began"
            )
        return begun

    def begin(self, new: ActivePeriod) -> None:
        """Charge a period durably, or raise and record nothing; the same again is no error.

        Raises:
            LifetimeExceededError: the total would pass the promise.
            PeriodOverlapsError: another period has a part of its time.
            LifetimeDisagreesError: a period was forgotten here.
            StorageError: it cannot be written.
        """
        with transaction(self.path) as connection:
            if new in self._periods(connection):
                return
            self._require_room(connection, new)
            write_counter(self.path, self._identity, _count(connection))
            _insert(connection, new)
        self._advance_counter()

    def disagreement(self) -> str | None:
        """Describe what other files hold and the record lacks; None if they agree."""
        with transaction(self.path) as connection:
            return self._disagreement(connection)

    def reconcile(self, found: Sequence[ActivePeriod]) -> tuple[ActivePeriod, ...]:
        """An operator's decision: count these periods as well, past the promise or not; go on.

        Args:
            found: the periods of all ledgers that there are.

        Returns:
            Those that had been forgotten.
        """
        with transaction(self.path) as connection:
            known = {each.period.start for each in self._periods(connection)}
            lost = tuple(each for each in found if each.period.start not in known)
            for each in lost:
                _insert(connection, each)
        self._advance_counter()
        return lost

    def _periods(self, connection: sqlite3.Connection) -> tuple[ActivePeriod, ...]:
        rows = connection.execute(
            "SELECT ledger, epsilon, delta, schedule FROM period ORDER BY start_unix_ms"
        ).fetchall()
        try:
            return tuple(
                ActivePeriod(name, PrivacyBudget(spend, delta), decode_schedule(schedule))
                for name, spend, delta, schedule in rows
            )
        except FedperfError as error:
            raise StorageError(f"lifetime record {self.path}: damaged: {error}") from error

    def _require_room(self, connection: sqlite3.Connection, new: ActivePeriod) -> None:
        problem = self._disagreement(connection)
        if problem is not None:
            raise LifetimeDisagreesError(self.path, problem)
        earlier = self._periods(connection)
        for other in (each.period for each in earlier):
            if other.start < new.period.end and new.period.start < other.end:
                raise PeriodOverlapsError(new.period, other)
        slots = [slot for each in (*earlier, new) for slot in each.schedule.at_most()]
        total = epsilon(events_of(slots), self.promise.delta)
        if not total <= self.promise.epsilon:
            raise LifetimeExceededError(new.period, epsilon_after=total, promise=self.promise)

    def _disagreement(self, connection: sqlite3.Connection) -> str | None:
        problem = counter_disagreement(self.path, self._identity, _count(connection), "periods")
        if problem is not None:
            return problem
        known = {each.ledger for each in self._periods(connection)}
        own = counter_path(self.path)
        for ledger, charges in counters_beside(self.path):
            if counter_path(ledger) != own and charges > 0 and ledger.name not in known:
                return f"{ledger.name} has {charges} charges of a period that is not in it"
        return None

    def _advance_counter(self) -> None:
        with transaction(self.path) as connection:
            write_counter(self.path, self._identity, _count(connection))


def _insert(connection: sqlite3.Connection, each: ActivePeriod) -> None:
    connection.execute(
        "INSERT INTO period VALUES (?, ?, ?, ?, ?)",
        (
            to_unix_ms(each.period.start),
            each.ledger,
            each.budget.epsilon,
            each.budget.delta,
            encode_schedule(each.schedule),
        ),
    )


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM period").fetchone()
    return int(count)
