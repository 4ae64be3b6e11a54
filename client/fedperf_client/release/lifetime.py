"""The lifetime record holds every period that an organization began to one promise for good.

It is one append-only SQLite file next to the ledgers of the periods. A period is charged whole
when it begins: all slots of its schedule, whether they are released or not, composed with those of
all earlier periods. So charges inside a period need not read this file. The promise is fixed when
the first period begins.

Refused: a period that would take the total past the promise; a period that overlaps in time with
another one, of any coordinator, as one budget covers all that is sent in that time; any new period
once a file next to the record holds periods that it has forgotten, until an operator reconciles
them.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedperf_client.release.accountant import PrivacyBudget, epsilon, to_events
from fedperf_client.release.ledger_files import (
    COUNTER_SUFFIX,
    LIFETIME_RECORD,
    AppendOnlyFile,
    create_file,
    read_counter,
    read_promise,
    reading,
    transaction,
    write_counter,
)
from fedperf_shared.errors import FedperfError, PrivacyRefusedError, StorageError
from fedperf_shared.releases.period import Period, to_unix_ms
from fedperf_shared.releases.release import Schedule
from fedperf_shared.wire.codec import decode_schedule, encode_schedule


class LifetimeExceededError(PrivacyRefusedError):
    """Raised for a period with which all periods together would pass the lifetime budget."""

    def __init__(self, period: Period, *, epsilon_after: float, promise: PrivacyBudget) -> None:
        super().__init__(
            f"the period from {period.start.isoformat()} cannot begin: all periods together "
            f"would cost epsilon {epsilon_after:.6g}, the lifetime budget is "
            f"{promise.epsilon:g} at delta={promise.delta:g}"
        )
        self.epsilon_after = epsilon_after


class PeriodOverlapsError(PrivacyRefusedError):
    """Raised for a period that overlaps with another, perhaps of another coordinator."""

    def __init__(self, period: Period, other: Period) -> None:
        super().__init__(
            f"the period from {period.start.isoformat()} to {period.end.isoformat()} cannot "
            f"begin: it overlaps with the one from {other.start.isoformat()} to "
            f"{other.end.isoformat()}, whose budget is for all that leaves in that time"
        )


class LifetimeDisagreesError(PrivacyRefusedError):
    """Raised when the record has forgotten a period, as a restored backup does."""

    def __init__(self, path: Path, disagreement: str) -> None:
        super().__init__(
            f"lifetime record {path}: {disagreement}; was it restored from a backup? No period "
            "begins until an operator reconciles it"
        )


@dataclass(frozen=True, slots=True)
class ActivePeriod:
    """A period that began: the name of its ledger's file, its budget and its schedule."""

    ledger: str
    budget: PrivacyBudget
    schedule: Schedule

    @property
    def period(self) -> Period:
        """Return the dates of the period."""
        return self.schedule.calendar.period


def lifetime_path(directory: Path) -> Path:
    """Return the path of the record of the ledgers in `directory`."""
    return directory / "lifetime.sqlite"


class LifetimeRecord(AppendOnlyFile):
    """The record of one organization."""

    layout = LIFETIME_RECORD

    def __init__(self, path: Path, promise: PrivacyBudget) -> None:
        """Use `open` or `open_or_create`."""
        super().__init__(path, f"lifetime {promise.epsilon!r} {promise.delta!r}".encode())
        self.promise = promise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the record that `open_or_create` wrote.

        Raises:
            StorageError: no such file, or none of this kind, damaged or of another schema.
        """
        if not path.is_file():
            raise StorageError(
                f"lifetime record {path}: no such file; fedperf reconcile makes it from the ledgers"
            )
        promise = read_promise(path, LIFETIME_RECORD) or (None, None)
        try:
            return cls(path, PrivacyBudget(*promise))
        except FedperfError as error:
            raise StorageError(f"lifetime record {path}: damaged: {error}") from error

    @classmethod
    def open_or_create(cls, path: Path, promise: PrivacyBudget) -> Self:
        """Open the record, created with `promise` where there is none.

        Raises:
            LifetimeDisagreesError: there was one before, by its counter file.
            StorageError: it cannot be used.
        """
        counter = None if path.exists() else read_counter(path)
        if counter is not None and counter[1] > 0:
            raise LifetimeDisagreesError(path, f"it is missing, it had {counter[1]} periods")
        return cls._open_or_write(path, promise)

    @classmethod
    def restore(cls, path: Path, promise: PrivacyBudget) -> tuple[Self, str | None]:
        """Return the record, empty and with `promise` where it is lost, and what is wrong with it.

        Only for an operator who reconciles it next; errors as `open`.
        """
        was_missing = not path.exists()
        record = cls._open_or_write(path, promise)
        return record, "it was missing" if was_missing else record.disagreement()

    @classmethod
    def _open_or_write(cls, path: Path, promise: PrivacyBudget) -> Self:
        if not path.exists() and create_file(path, LIFETIME_RECORD, promise.epsilon, promise.delta):
            return cls(path, promise)
        return cls.open(path)  # if another process was faster, its promise holds

    def periods(self) -> tuple[ActivePeriod, ...]:
        """Return every period that began, oldest first."""
        with reading(self.path) as connection:
            return self._periods(connection)

    def admit(self, new: ActivePeriod, *, has_counter: bool) -> ActivePeriod:
        """Return the period that a new ledger is for, and record nothing.

        A start that was cut off after `begin` goes on with the schedule that it had recorded, even
        if the new one differs: one period is charged once.

        Args:
            new: the period.
            has_counter: whether the ledger's counter file is there, as it is before `begin`.

        Raises:
            PrivacyRefusedError: as `begin`.
            StorageError: the period began long ago, and its ledger is lost with its counter.
        """
        with transaction(self.path) as connection:
            recorded = {each.period.start: each for each in self._periods(connection)}
            period = recorded.get(new.period.start)
            if period is None:
                self._require_room(connection, new)
                return new
        if not has_counter or period.ledger != new.ledger:
            raise StorageError(
                f"ledger {period.ledger}: lost, the lifetime record holds its period"
            )
        return period

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
            write_counter(self.path, self._identity, self._count(connection))
            _insert(connection, new)
        self._advance_counter()

    def reconcile(self, periods: Sequence[ActivePeriod]) -> tuple[ActivePeriod, ...]:
        """Count these periods as well, past the promise or not, as an operator decided.

        Args:
            periods: of all ledgers in the directory.

        Returns:
            The periods that had been forgotten.
        """
        with transaction(self.path) as connection:
            recorded = {each.period.start for each in self._periods(connection)}
            lost = tuple(each for each in periods if each.period.start not in recorded)
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
        problem = self._find_disagreement(connection)
        if problem is not None:
            raise LifetimeDisagreesError(self.path, problem)
        earlier = self._periods(connection)
        for other in (each.period for each in earlier):
            if other.start < new.period.end and new.period.start < other.end:
                raise PeriodOverlapsError(new.period, other)
        slots = [slot for each in (*earlier, new) for slot in each.schedule.at_most()]
        total = epsilon(to_events(slots), self.promise.delta)
        if not total <= self.promise.epsilon:
            raise LifetimeExceededError(new.period, epsilon_after=total, promise=self.promise)

    def _find_disagreement(self, connection: sqlite3.Connection) -> str | None:
        problem = super()._find_disagreement(connection)
        if problem is not None:
            return problem
        recorded = {self.path.name, *(each.ledger for each in self._periods(connection))}
        counters = sorted(self.path.parent.glob("*" + COUNTER_SUFFIX))
        ledgers = [each.with_name(each.name.removesuffix(COUNTER_SUFFIX)) for each in counters]
        for ledger, counter in [(each, read_counter(each)) for each in ledgers]:
            if counter is not None and counter[1] > 0 and ledger.name not in recorded:
                return f"{ledger.name} has {counter[1]} charges of a period that is not in it"
        return None


def _insert(connection: sqlite3.Connection, period: ActivePeriod) -> None:
    connection.execute(
        "INSERT INTO period VALUES (?, ?, ?, ?, ?)",
        (
            to_unix_ms(period.period.start),
            period.ledger,
            period.budget.epsilon,
            period.budget.delta,
            encode_schedule(period.schedule),
        ),
    )
