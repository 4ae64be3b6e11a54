"""Tests of the lifetime record: one budget limits all periods, even if ledgers are lost."""

import shutil
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client.release import ledger as ledger_module
from fedperf_client.release.accountant import PrivacyBudget, epsilon, to_events
from fedperf_client.release.history import read_spending
from fedperf_client.release.ledger import PrivacyLedger, reconcile_lifetime
from fedperf_client.release.ledger_files import counter_path
from fedperf_client.release.lifetime import (
    ActivePeriod,
    LifetimeDisagreesError,
    LifetimeExceededError,
    LifetimeRecord,
    PeriodOverlapsError,
    lifetime_path,
)
from fedperf_shared.errors import PrivacyRefusedError, StorageError
from fedperf_shared.releases.release import ReportParameters, Schedule
from tests.unit.client.release.periods import BUDGET, START, open_at, report_key, schedule

YEAR = timedelta(days=364)
NARROW = PrivacyBudget(2.4, BUDGET.delta)


def of_year(number: int, *, noise: float = 10.0) -> Schedule:
    first = schedule(report=ReportParameters(noise, 1.5))
    period = replace(first.calendar.period, start=START + number * YEAR)
    return replace(first, calendar=replace(first.calendar, period=period))


def begin(
    directory: Path, number: int, *, lifetime: PrivacyBudget = NARROW, noise: float = 10.0
) -> PrivacyLedger:
    return PrivacyLedger.create(
        directory / f"ledger-{number}.sqlite",
        BUDGET,
        of_year(number, noise=noise),
        lifetime=lifetime,
    )


def record(directory: Path) -> LifetimeRecord:
    return LifetimeRecord.open(lifetime_path(directory))


def cost(*schedules: Schedule) -> float:
    return epsilon(to_events(slot for each in schedules for slot in each.slots), BUDGET.delta)


def test_lifetime_record_refuses_a_period_beyond_the_lifetime_budget(tmp_path: Path) -> None:
    for number in range(10):
        total = cost(*(of_year(earlier) for earlier in range(number + 1)))
        if total > NARROW.epsilon:
            break
        begin(tmp_path, number)
    assert 2 <= number <= 5
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(LifetimeExceededError, match=r"the lifetime budget is 2\.4") as refused:
        begin(tmp_path, number)
    assert refused.value.epsilon_after == pytest.approx(total)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert len(record(tmp_path).periods()) == number
    earlier = PrivacyLedger.open(tmp_path / "ledger-0.sqlite")
    earlier.reserve(report_key(0), open_at(0))  # an active period continues


def test_lifetime_budget_of_first_period_cannot_be_raised(tmp_path: Path) -> None:
    begin(tmp_path, 0, lifetime=BUDGET)
    with pytest.raises(LifetimeExceededError):
        begin(tmp_path, 1, lifetime=PrivacyBudget(1000.0, BUDGET.delta))
    assert record(tmp_path).promise == BUDGET


def test_lifetime_record_accepts_periods_up_to_exactly_the_lifetime_budget(tmp_path: Path) -> None:
    both = PrivacyBudget(cost(of_year(0), of_year(1)), BUDGET.delta)
    begin(tmp_path, 0, lifetime=both)
    begin(tmp_path, 1, lifetime=both)
    assert len(record(tmp_path).periods()) == 2


def test_lifetime_budget_defaults_to_ten_periods(tmp_path: Path) -> None:
    PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, schedule())
    assert record(tmp_path).promise == BUDGET.default_lifetime == PrivacyBudget(10.0, BUDGET.delta)


@pytest.mark.parametrize("days", [-100, 100])
def test_overlapping_periods_are_refused(tmp_path: Path, days: int) -> None:
    begin(tmp_path, 0)
    moved = of_year(0)
    period = replace(moved.calendar.period, start=START + timedelta(days=days))
    moved = replace(moved, calendar=replace(moved.calendar, period=period))
    with pytest.raises(PeriodOverlapsError, match="overlaps with the one from 2027-01-01"):
        PrivacyLedger.create(tmp_path / "other.sqlite", BUDGET, moved)
    assert not (tmp_path / "other.sqlite").exists()


def test_lifetime_period_that_ends_where_another_begins_is_accepted(tmp_path: Path) -> None:
    begin(tmp_path, 1)
    begin(tmp_path, 0)
    assert [each.period.start for each in record(tmp_path).periods()] == [START, START + YEAR]


def test_ledger_create_after_interruption_keeps_recorded_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(ledger_module, "create_file", fail)
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, 0)
    begun = begin(tmp_path, 0, noise=11.0)  # the policy was changed meanwhile
    assert begun.schedule == of_year(0)
    assert PrivacyLedger.open(begun.path).schedule == of_year(0)
    assert len(record(tmp_path).periods()) == 1
    begun.reserve(report_key(0), open_at(0))


def test_interruption_before_a_period_is_recorded_does_not_block_another_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(LifetimeRecord, "begin", fail)
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, 0)
    assert counter_path(tmp_path / "ledger-0.sqlite").exists()
    begin(tmp_path, 1)
    assert [each.schedule for each in record(tmp_path).periods()] == [of_year(1)]


def test_period_whose_ledger_and_counter_are_lost_cannot_begin_again(tmp_path: Path) -> None:
    ledger = begin(tmp_path, 0)
    ledger.reserve(report_key(0), open_at(0))
    ledger.path.unlink()
    counter_path(ledger.path).unlink()
    with pytest.raises(StorageError, match="the lifetime record holds its period"):
        begin(tmp_path, 0)


def lose_record(directory: Path) -> None:
    lifetime_path(directory).unlink()


def lose_record_and_counter(directory: Path) -> None:
    lose_record(directory)
    counter_path(lifetime_path(directory)).unlink()


def lose_counter(directory: Path) -> None:
    counter_path(lifetime_path(directory)).unlink()


def take_a_foreign_counter(directory: Path) -> None:
    shutil.copy(counter_path(directory / "ledger-0.sqlite"), counter_path(lifetime_path(directory)))


@pytest.mark.parametrize(
    "spoil", [lose_record, lose_record_and_counter, lose_counter, take_a_foreign_counter]
)
def test_incomplete_lifetime_record_refuses_periods_until_reconciled(
    tmp_path: Path, spoil: object
) -> None:
    ledger = begin(tmp_path, 0)
    ledger.reserve(report_key(0), open_at(0))
    assert callable(spoil)
    spoil(tmp_path)
    with pytest.raises(LifetimeDisagreesError, match="until an operator reconciles it"):
        begin(tmp_path, 1)
    assert not (tmp_path / "ledger-1.sqlite").exists()
    problem, _ = reconcile_lifetime([ledger], NARROW)
    assert problem
    assert [each.schedule for each in record(tmp_path).periods()] == [of_year(0)]
    begin(tmp_path, 1)


def test_lifetime_record_restored_from_backup_is_detected_and_reconciled(tmp_path: Path) -> None:
    first = begin(tmp_path, 0)
    backup = lifetime_path(tmp_path).with_suffix(".backup")
    shutil.copy(lifetime_path(tmp_path), backup)
    second, third = begin(tmp_path, 1), begin(tmp_path, 2)
    backup.replace(lifetime_path(tmp_path))
    with pytest.raises(LifetimeDisagreesError, match="holds 3 periods, the ledger holds 1"):
        begin(tmp_path, 3)
    _, lost = reconcile_lifetime([first, second, third], NARROW)
    assert [each.ledger for each in lost] == ["ledger-1.sqlite", "ledger-2.sqlite"]
    assert record(tmp_path).disagreement() is None


def test_lifetime_record_that_is_missing_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file; fedperf reconcile"):
        record(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", ["promise", "period"])
def test_lifetime_record_is_append_only(tmp_path: Path, table: str) -> None:
    begin(tmp_path, 0)
    connection = sqlite3.connect(lifetime_path(tmp_path))
    try:
        for statement in (
            "DELETE FROM {table}",
            "UPDATE {table} SET epsilon = 9",
            "INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement.format(table=table))
    finally:
        connection.close()


def test_lifetime_record_charges_a_period_once(tmp_path: Path) -> None:
    begin(tmp_path, 0)
    each = record(tmp_path)
    each.begin(ActivePeriod("ledger-0.sqlite", BUDGET, of_year(0)))
    assert len(each.periods()) == 1
    with pytest.raises(PrivacyRefusedError):
        each.begin(ActivePeriod("ledger-0.sqlite", BUDGET, of_year(0, noise=11.0)))


def test_read_spending_matches_accountant_by_period_and_lifetime(
    tmp_path: Path,
) -> None:
    ledgers = [begin(tmp_path, number) for number in range(2)]
    ledgers[0].reserve(report_key(0), open_at(0))
    ledgers[0].reserve(report_key(1), open_at(1))
    ledgers[1].reserve(report_key(0), open_at(0) + YEAR)
    at = datetime.max.replace(tzinfo=START.tzinfo)
    lifetime, *periods = read_spending([each.path for each in ledgers], at=START + 2 * YEAR)
    reports = [slot for slot in of_year(0).slots if slot.key.kind is report_key(0).kind]
    assert [each.made for each in (lifetime, *periods)] == [3, 2, 1]
    assert lifetime.spent == epsilon(to_events(reports[:3]), BUDGET.delta)
    assert lifetime.planned == cost(of_year(0), of_year(1))
    assert lifetime.left == NARROW.epsilon - lifetime.spent
    assert [each.spent for each in periods] == [each.spent(at - YEAR) for each in ledgers]
    assert all(each.spent_replace_one > each.spent for each in (lifetime, *periods))
    assert read_spending([], at=START) == ()
