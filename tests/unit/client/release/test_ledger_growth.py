"""A charge takes the same work after ten thousand charges as after ten."""

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import DpEvent, NeighboringRelation

from fedperf_client.release import accountant, ledger_files
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.ledger_files import write_counter
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, Schedule, Slot, SlotKey
from tests.unit.client.release.periods import START

WINDOWS, A_WINDOW = 400, 26
MANY = 10_000
END = START + timedelta(days=WINDOWS)


def long_schedule() -> Schedule:
    times = tuple(
        SlotTimes(timedelta(minutes=index), timedelta(minutes=index + 1))
        for index in range(A_WINDOW)
    )
    parameters = ReportParameters(500.0, 1.5)
    keys = [
        SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)
        for window in range(WINDOWS)
        for index in range(A_WINDOW)
    ]
    calendar = ReleaseCalendar(Period(START, timedelta(days=1), WINDOWS), times, ())
    return Schedule(calendar, tuple(Slot(key, parameters) for key in keys))


def charged(path: Path, schedule: Schedule, count: int) -> PrivacyLedger:
    """Return a ledger with `count` charges, inserted at once."""
    ledger = PrivacyLedger.create(path, PrivacyBudget(1.0, 1e-5), schedule)
    period = schedule.calendar.period
    rows = [
        (
            slot.key.release_id(period),
            number,
            int(slot.key.kind),
            slot.key.window,
            slot.key.index,
            to_unix_ms(schedule.opens_at(slot.key)),
            0,
        )
        for number, slot in enumerate(schedule.slots[:count], start=1)
    ]
    with ledger_files.transaction(path) as connection:
        connection.executemany("INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    write_counter(path, ledger._identity, count)
    return ledger


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> tuple[PrivacyLedger, PrivacyLedger]:
    schedule = long_schedule()
    few, many = (tmp_path_factory.mktemp(name) for name in ("few", "many"))
    return charged(few / "ledger", schedule, 10), charged(many / "ledger", schedule, MANY)


def next_slots(ledger: PrivacyLedger) -> list[SlotKey]:
    made = len(ledger.entries())
    return [slot.key for slot in ledger.schedule.slots[made:]]


def steps_of_a_charge(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the steps of SQLite's virtual machine for the next charge."""
    key = next_slots(ledger)[0]
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    connect = sqlite3.connect

    def counting(place: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(place, **options)
        connection.set_progress_handler(count, 1)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", counting)
        ledger.reserve(key, END)
    return steps


@pytest.mark.slow
def test_ledger_charge_takes_constant_sqlite_steps_after_ten_thousand(
    ledgers: tuple[PrivacyLedger, PrivacyLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (steps_of_a_charge(ledger, monkeypatch) for ledger in ledgers)
    print(f"steps of a charge: {few} after 10, {many} after {MANY}")
    assert few > 50
    assert abs(many - few) <= 10


def test_ledger_composes_mechanisms_once_per_opened_ledger(
    ledgers: tuple[PrivacyLedger, PrivacyLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    composed: list[frozenset[tuple[DpEvent, int]]] = []
    compute = accountant._cached_epsilon

    def counting(
        counts: frozenset[tuple[DpEvent, int]], delta: float, relation: NeighboringRelation
    ) -> float:
        composed.append(counts)
        return compute(counts, delta, relation)

    monkeypatch.setattr(accountant, "_cached_epsilon", counting)
    for ledger in ledgers:
        opened = PrivacyLedger.open(ledger.path)
        first, second = next_slots(opened)[:2]
        opened.reserve(first, END)
        opened.reserve(second, END)
    # Each process that opens a ledger composes once: one kind of event with its count.
    assert [[count for _, count in counts] for counts in composed] == [[WINDOWS * A_WINDOW]] * 2
