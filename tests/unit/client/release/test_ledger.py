import hashlib
import shutil
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_client.release.accountant import PrivacyBudget, epsilon, to_events
from fedperf_client.release.ledger import (
    BudgetExceededError,
    LedgerDisagreesError,
    PrivacyLedger,
    ReleaseState,
    SlotNotDueError,
    SlotNotPlannedError,
    SlotNotReservedError,
    SlotSpentError,
)
from fedperf_client.release.ledger_files import ConfirmedRelease, counter_path, read_confirmed
from fedperf_shared.errors import PrivacyRefusedError, StorageError
from fedperf_shared.releases.release import ReportParameters, SignedRelease, SlotKey
from tests.unit.client.release.periods import (
    BUDGET,
    START,
    new_ledger,
    open_at,
    report_key,
    schedule,
    update_key,
)

END = START + timedelta(days=6 * 28)
BYTES = SignedRelease(b"payload", b"signature")


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    return new_ledger(tmp_path)


def receipt(ledger: PrivacyLedger, key: SlotKey, *, sequence: int = 1) -> ConfirmedRelease:
    release_id = key.release_id(ledger.schedule.calendar.period)
    return ConfirmedRelease(release_id, hashlib.sha256(BYTES.payload).digest(), sequence, b"signed")


def backup_of(path: Path) -> Path:
    copy = path.with_name("backup")
    shutil.copy(path, copy)
    return copy


def test_slot_passes_from_reserved_to_sampled_to_sent(ledger: PrivacyLedger) -> None:
    key, at = report_key(0), open_at(0)
    states = []
    slot = ledger.reserve(key, at)
    states.append(ledger.entries()[0].state)
    ledger.commit(key, BYTES)
    states.append(ledger.entries()[0].state)
    ledger.dispatch(key, at)
    ledger.dispatch(key, at + timedelta(hours=1))
    states.append(ledger.entries()[0].state)
    assert slot.parameters == ReportParameters(20.0, 1.5)
    assert states == [ReleaseState.RESERVED, ReleaseState.DRAWN, ReleaseState.HANDED_OUT]
    assert ledger.stored(key) == BYTES
    assert ledger.entries()[0].payload_bytes == len(BYTES.payload)


def test_ledger_reopened_restores_budget_schedule_and_entries(ledger: PrivacyLedger) -> None:
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), BYTES)
    again = PrivacyLedger.open(ledger.path)
    assert (again.budget, again.schedule) == (ledger.budget, ledger.schedule)
    assert again.entries() == ledger.entries()
    assert again.stored(report_key(0)) == BYTES


def test_ledger_reserves_a_slot_only_once(ledger: PrivacyLedger) -> None:
    ledger.reserve(report_key(0), open_at(0))
    with pytest.raises(SlotSpentError, match="is spent \\(reserved\\)"):
        ledger.reserve(report_key(0), open_at(1))
    ledger.commit(report_key(0), BYTES)
    with pytest.raises(SlotSpentError, match="is spent \\(drawn\\)"):
        PrivacyLedger.open(ledger.path).reserve(report_key(0), open_at(1))


def test_ledger_reserve_of_unplanned_slot_is_refused_and_not_stored(
    ledger: PrivacyLedger,
) -> None:
    with pytest.raises(SlotNotPlannedError, match="report-9-0 is not in the schedule"):
        ledger.reserve(report_key(9), open_at(0))
    assert ledger.entries() == ()


def test_ledger_reserve_before_slot_opens_or_after_period_is_refused(ledger: PrivacyLedger) -> None:
    for at in (START, open_at(1) - timedelta(hours=2), END + timedelta(seconds=1)):
        with pytest.raises(SlotNotDueError):
            ledger.reserve(report_key(1), at)
    assert ledger.entries() == ()


def test_ledger_create_with_overspending_schedule_is_refused(tmp_path: Path) -> None:
    too_loud = schedule(report=ReportParameters(2.0, 1.5))
    with pytest.raises(PrivacyRefusedError, match="the schedule would cost epsilon"):
        PrivacyLedger.create(tmp_path / "ledger", BUDGET, too_loud)
    assert list(tmp_path.iterdir()) == []


def test_ledger_over_budget_refuses_first_charge_and_stores_no_entry(
    ledger: PrivacyLedger,
) -> None:
    total = epsilon(to_events(ledger.schedule.slots), BUDGET.delta)
    tight = PrivacyLedger(ledger.path, PrivacyBudget(0.99 * total, BUDGET.delta), ledger.schedule)
    counter_path(ledger.path).unlink()
    with pytest.raises(BudgetExceededError) as refused:
        tight.reserve(report_key(0), open_at(0))
    assert refused.value.epsilon_after == total
    assert ledger.entries() == ()


def test_ledger_accepts_charges_up_to_exactly_the_budget(ledger: PrivacyLedger) -> None:
    total = epsilon(to_events(ledger.schedule.slots), BUDGET.delta)
    exact = PrivacyLedger(ledger.path, PrivacyBudget(total, BUDGET.delta), ledger.schedule)
    counter_path(ledger.path).unlink()
    exact.reserve(report_key(0), open_at(0))
    assert len(ledger.entries()) == 1


def test_ledger_with_a_charge_outside_of_its_schedule_is_damaged(ledger: PrivacyLedger) -> None:
    ledger.reserve(report_key(0), open_at(0))
    others = tuple(slot for slot in ledger.schedule.slots if slot.key != report_key(0))
    smaller = PrivacyLedger(ledger.path, BUDGET, replace(ledger.schedule, slots=others))
    with pytest.raises(StorageError, match="damaged"):
        smaller.charged(END)


def test_ledger_spent_equals_epsilon_recomputed_from_schedule(ledger: PrivacyLedger) -> None:
    assert ledger.spent(END) == 0.0
    for window in range(3):
        ledger.reserve(report_key(window), open_at(window))
        ledger.reserve(update_key(window), open_at(window))
    done = [slot for slot in ledger.schedule.slots if slot.key.window < 3]
    assert ledger.spent(END) == epsilon(to_events(done), BUDGET.delta)
    first = [slot for slot in done if slot.key.window == 0]
    assert ledger.spent(open_at(0)) == epsilon(to_events(first), BUDGET.delta)


def test_ledger_stores_bytes_once_and_only_for_a_reserved_slot(ledger: PrivacyLedger) -> None:
    with pytest.raises(SlotNotReservedError):
        ledger.commit(report_key(0), BYTES)
    with pytest.raises(SlotNotReservedError):
        ledger.dispatch(report_key(0), open_at(0))
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), BYTES)
    with pytest.raises(SlotNotReservedError):
        ledger.commit(report_key(0), SignedRelease(b"other", b"bytes"))
    assert ledger.stored(report_key(0)) == BYTES


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table}",
        "UPDATE {table} SET {column} = {column}",
        "INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        "REPLACE INTO {table} SELECT * FROM {table}",
        "UPDATE OR REPLACE {table} SET {column} = {column}",
    ],
)
@pytest.mark.parametrize(
    ("table", "column"),
    [("promise", "epsilon"), ("reserved", "slot"), ("drawn", "payload"), ("handed_out", "rowid")],
)
def test_ledger_tables_refuse_update_delete_and_replace(
    ledger: PrivacyLedger, table: str, column: str, statement: str
) -> None:
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), BYTES)
    ledger.dispatch(report_key(0), open_at(0))
    column = "handed_out_unix_ms" if table == "handed_out" else column
    connection = sqlite3.connect(ledger.path)  # without the ledger's pragmas
    try:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement.format(table=table, column=column))
    finally:
        connection.close()


def test_ledger_charges_are_numbered_without_gaps(ledger: PrivacyLedger) -> None:
    ledger.reserve(report_key(0), open_at(0))
    connection = sqlite3.connect(ledger.path)
    try:
        for number in (1, 3):
            with pytest.raises(sqlite3.IntegrityError, match="not the next number"):
                connection.execute(
                    "INSERT OR REPLACE INTO reserved VALUES (x'00', ?, 1, 1, 0, 0, 0)", (number,)
                )
    finally:
        connection.close()


def test_ledger_reserves_each_slot_once_across_eight_threads(ledger: PrivacyLedger) -> None:
    won: list[SlotKey] = []
    lost: list[SlotKey] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for window in range(4):
            for key in (report_key(window), update_key(window)):
                try:
                    ledger.reserve(key, open_at(window))
                    won.append(key)
                except SlotSpentError:
                    lost.append(key)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == len(set(won)) == 8
    assert len(lost) == 56
    assert len(ledger.entries()) == 8
    assert ledger.disagreement() is None


def test_ledger_restored_from_backup_refuses_charges_until_reconciled(
    ledger: PrivacyLedger,
) -> None:
    ledger.reserve(report_key(0), open_at(0))
    backup = backup_of(ledger.path)
    ledger.reserve(report_key(1), open_at(1))
    ledger.commit(report_key(1), BYTES)
    backup.replace(ledger.path)
    restored = PrivacyLedger.open(ledger.path)
    with pytest.raises(LedgerDisagreesError, match="holds 2 charges, the ledger holds 1"):
        restored.reserve(report_key(1), open_at(1))
    lost = restored.reconcile(open_at(1))
    assert set(lost) == {report_key(1), update_key(0), update_key(1)}
    with pytest.raises(SlotSpentError):
        restored.reserve(report_key(1), open_at(1))
    restored.reserve(report_key(2), open_at(2))
    assert [entry.reconciled for entry in restored.entries()].count(True) == 3


def test_ledger_with_receipt_for_unrecorded_release_refuses_until_reconciled(
    ledger: PrivacyLedger,
) -> None:
    backup = backup_of(ledger.path)
    counter = counter_path(ledger.path).read_bytes()
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), BYTES)
    ledger.confirm(receipt(ledger, report_key(0)))
    backup.replace(ledger.path)
    counter_path(ledger.path).write_bytes(counter)  # also restored: only the receipt is newer
    restored = PrivacyLedger.open(ledger.path)
    with pytest.raises(LedgerDisagreesError, match="receipt 1 confirms a release"):
        restored.reserve(report_key(0), open_at(0))
    restored.reconcile(open_at(0))
    restored.reserve(report_key(1), open_at(1))


def test_ledger_with_receipt_for_other_bytes_refuses_until_reconciled(
    ledger: PrivacyLedger,
) -> None:
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), SignedRelease(b"others", b""))
    with pytest.raises(LedgerDisagreesError, match="other bytes"):
        ledger.confirm(receipt(ledger, report_key(0)))
    again = PrivacyLedger.open(ledger.path)
    with pytest.raises(LedgerDisagreesError, match="other bytes"):
        again.reserve(report_key(1), open_at(1))
    again.reconcile(open_at(0))
    again.confirm(receipt(ledger, report_key(0)))  # settled: it blocks no release any more
    again.reserve(report_key(1), open_at(1))


def test_ledger_disagreement_persists_after_a_later_valid_receipt(ledger: PrivacyLedger) -> None:
    for window, payload in ((0, b"others"), (1, BYTES.payload)):
        ledger.reserve(report_key(window), open_at(window))
        ledger.commit(report_key(window), SignedRelease(payload, b""))
    with pytest.raises(LedgerDisagreesError):
        ledger.confirm(receipt(ledger, report_key(0)))
    ledger.confirm(receipt(ledger, report_key(1), sequence=2))
    assert "receipt 1 confirms other bytes" in str(ledger.disagreement())


def test_ledger_keeps_newest_receipt(ledger: PrivacyLedger) -> None:
    for window in range(2):
        ledger.reserve(report_key(window), open_at(window))
        ledger.commit(report_key(window), BYTES)
    for window, sequence in ((0, 1), (1, 2), (0, 1)):
        ledger.confirm(receipt(ledger, report_key(window), sequence=sequence))
    assert read_confirmed(ledger.path) == receipt(ledger, report_key(1), sequence=2)


def test_ledger_backup_with_all_files_is_detected_by_next_receipt(
    ledger: PrivacyLedger,
) -> None:
    home = ledger.path.parent
    backup = shutil.copytree(home, home.with_name("backup"))
    ledger.reserve(report_key(0), open_at(0))
    ledger.commit(report_key(0), BYTES)
    ledger.confirm(receipt(ledger, report_key(0)))
    shutil.rmtree(home)
    shutil.copytree(backup, home)
    restored = PrivacyLedger.open(ledger.path)
    restored.reserve(report_key(0), open_at(0))
    restored.commit(report_key(0), SignedRelease(b"a second draw", b""))
    with pytest.raises(LedgerDisagreesError, match="other bytes"):
        restored.confirm(receipt(restored, report_key(0)))
    with pytest.raises(LedgerDisagreesError):
        restored.reserve(report_key(1), open_at(1))


def test_ledger_with_missing_foreign_or_damaged_counter_refuses_charges(
    ledger: PrivacyLedger, tmp_path: Path
) -> None:
    ledger.reserve(report_key(0), open_at(0))
    counter = counter_path(ledger.path)
    content = counter.read_text()
    counter.unlink()
    with pytest.raises(LedgerDisagreesError, match="counter file is missing"):
        ledger.reserve(report_key(1), open_at(1))
    counter.write_text(content.replace(content.split()[1], "0" * 64))
    with pytest.raises(LedgerDisagreesError, match="belongs to another ledger"):
        ledger.reserve(report_key(1), open_at(1))
    counter.write_text("nonsense")
    with pytest.raises(StorageError, match="damaged"):
        ledger.reserve(report_key(1), open_at(1))
    assert len(ledger.entries()) == 1


def test_ledger_counter_one_behind_after_a_crash_recovers(ledger: PrivacyLedger) -> None:
    before = counter_path(ledger.path).read_bytes()
    ledger.reserve(report_key(0), open_at(0))
    counter_path(ledger.path).write_bytes(before)
    ledger.reserve(report_key(1), open_at(1))
    assert ledger.disagreement() is None


def test_ledger_counter_never_advanced_over_several_crashes_recovers(
    ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(ledger, "_advance_counter", lambda: None)
        for window in range(3):
            ledger.reserve(report_key(window), open_at(window))
    assert ledger.disagreement() is None
    ledger.reserve(report_key(3), open_at(3))


def test_ledger_create_for_a_started_period_is_refused(ledger: PrivacyLedger) -> None:
    with pytest.raises(StorageError, match="a period starts once"):
        PrivacyLedger.create(ledger.path, BUDGET, schedule())
    ledger.reserve(report_key(0), open_at(0))
    ledger.path.unlink()
    with pytest.raises(StorageError, match="existed before"):
        PrivacyLedger.create(ledger.path, BUDGET, schedule())
    assert not ledger.path.exists()


def test_ledger_create_interrupted_leaves_no_file_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    for step in (
        "fedperf_client.release.ledger.create_file",
        "fedperf_client.release.ledger_files.transaction",
        "os.link",
    ):
        with monkeypatch.context() as crash:
            crash.setattr(step, fail)
            with pytest.raises(KeyboardInterrupt):
                PrivacyLedger.create(path, BUDGET, schedule())
        assert not path.exists()
    PrivacyLedger.create(path, BUDGET, schedule())
    assert PrivacyLedger.open(path).disagreement() is None


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()


def _of_version(path: Path, version: int) -> None:
    new_ledger(path.parent)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


def _newer(path: Path) -> None:
    _of_version(path, 99)


def _older(path: Path) -> None:
    _of_version(path, 1)


def _torn(path: Path) -> None:
    new_ledger(path.parent)
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 3] = bytes([7]) * 8192
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "no such file"),
        (lambda path: path.write_bytes(b"\0" * 5000), "cannot be used"),
        (lambda path: path.write_bytes(b"this is no database" * 300), "cannot be used"),
        (lambda path: path.write_bytes(b""), "not a ledger"),
        (_foreign, "not a ledger"),
        (_newer, "newer fedperf"),
        (_older, "older fedperf"),
        (_torn, "damaged|cannot be used"),
    ],
)
def test_ledger_open_of_invalid_file_raises_one_line_storage_error(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    make(path)
    with pytest.raises(StorageError, match=message) as refused:
        PrivacyLedger.open(path)
    assert "\n" not in str(refused.value)


def test_ledger_and_counter_are_readable_by_owner_only(ledger: PrivacyLedger) -> None:
    assert ledger.path.stat().st_mode & 0o077 == 0
    assert counter_path(ledger.path).stat().st_mode & 0o077 == 0
