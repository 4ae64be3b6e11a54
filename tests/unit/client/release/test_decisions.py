"""Tests of release decisions: durability, deadlines and consistency with sent releases."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client.release.decisions import (
    Decisions,
    DecisionTooLateError,
    Outcome,
    WithholdReason,
)
from fedperf_client.release.gate import ReleaseGate, WithheldError
from fedperf_client.release.ledger import PrivacyLedger, ReleaseState, SlotNotPlannedError
from fedperf_client.release.policy import ReleaseMode
from fedperf_shared.errors import StorageError
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import SlotKey
from tests.fakes.empty_reports import empty_report
from tests.fakes.released import release_now
from tests.unit.client.contributions.seeded_noise import seeded
from tests.unit.client.release.periods import START, new_ledger, open_at, report_key

KEY = report_key(0)
OPEN = open_at(0)
LEAVES = START + timedelta(days=21)
MOMENT = timedelta(milliseconds=1)
AUTO, ASK, NEVER = ReleaseMode.AUTO, ReleaseMode.ASK, ReleaseMode.NEVER
APPROVED, WITHHELD = Outcome.APPROVED, Outcome.WITHHELD


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    return new_ledger(tmp_path)


@pytest.fixture
def decisions(ledger: PrivacyLedger) -> Decisions:
    return Decisions(ledger)


@pytest.fixture
def gate(ledger: PrivacyLedger) -> ReleaseGate:
    return ReleaseGate(ledger, seeded(), new_private_key())


def outcome_of(
    decisions: Decisions, mode: ReleaseMode, at: datetime, key: SlotKey = KEY
) -> Outcome | None:
    decision = decisions.status(key, mode, at=at)
    return None if decision is None else decision.outcome


def reason_of(
    decisions: Decisions, mode: ReleaseMode, at: datetime, key: SlotKey = KEY
) -> WithholdReason | None:
    decision = decisions.status(key, mode, at=at)
    return None if decision is None else decision.reason


def settled_outcome(decisions: Decisions, mode: ReleaseMode) -> Outcome | None:
    decision = decisions.settle(KEY, mode, at=LEAVES)
    return None if decision is None else decision.outcome


@pytest.mark.parametrize(
    ("mode", "outcome", "at", "expected"),
    [
        (AUTO, None, OPEN, APPROVED),
        (AUTO, WITHHELD, OPEN, WITHHELD),
        (AUTO, APPROVED, OPEN, APPROVED),
        (ASK, None, LEAVES - MOMENT, None),
        (ASK, None, LEAVES, WITHHELD),
        (ASK, APPROVED, LEAVES, APPROVED),
        (ASK, WITHHELD, OPEN, WITHHELD),
        (NEVER, None, OPEN, WITHHELD),
        (NEVER, APPROVED, OPEN, WITHHELD),
    ],
)
def test_decision_status_follows_release_mode_decision_and_time(
    decisions: Decisions, mode: ReleaseMode, outcome: Outcome | None, at: datetime, expected: object
) -> None:
    if outcome is not None:
        decisions.decide(KEY, outcome, at=START)
    assert outcome_of(decisions, mode, at) is expected


def test_decisions_are_durable_and_the_last_one_counts(
    ledger: PrivacyLedger, decisions: Decisions
) -> None:
    assert decisions.latest() == {}
    assert not decisions.path.exists()
    for outcome in (WITHHELD, APPROVED):
        decisions.decide(KEY, outcome, at=START)
    last = Decisions(PrivacyLedger.open(ledger.path)).latest().get(KEY)
    assert last is not None
    assert (last.outcome, last.at, last.settled) == (APPROVED, START, False)
    assert decisions.path.stat().st_mode & 0o077 == 0
    assert report_key(1) not in decisions.latest()


def test_approval_is_refused_once_the_slot_is_due_to_be_sent(decisions: Decisions) -> None:
    decisions.decide(KEY, APPROVED, at=LEAVES - MOMENT)
    with pytest.raises(DecisionTooLateError, match=r"report-0-0 cannot be approved any more"):
        decisions.decide(KEY, APPROVED, at=LEAVES)


def test_withheld_decision_is_final_once_the_slot_has_opened(decisions: Decisions) -> None:
    decisions.decide(KEY, WITHHELD, at=START)
    with pytest.raises(DecisionTooLateError, match="final once the slot has opened"):
        decisions.decide(KEY, APPROVED, at=OPEN)
    assert outcome_of(decisions, ASK, OPEN) is WITHHELD


def test_decision_about_released_or_ended_or_unplanned_slot_is_refused(
    ledger: PrivacyLedger, decisions: Decisions, gate: ReleaseGate
) -> None:
    release_now(gate, KEY, empty_report, at=OPEN)
    with pytest.raises(DecisionTooLateError, match="left"):
        decisions.decide(KEY, WITHHELD, at=OPEN)
    decisions.path.unlink()  # also after the decisions file is lost
    with pytest.raises(DecisionTooLateError, match="left"):
        decisions.decide(KEY, WITHHELD, at=OPEN)
    with pytest.raises(DecisionTooLateError, match="period ended"):
        decisions.decide(report_key(1), WITHHELD, at=ledger.schedule.calendar.period.end)
    with pytest.raises(SlotNotPlannedError):
        decisions.decide(report_key(77), WITHHELD, at=START)


def test_settled_decision_is_final(decisions: Decisions) -> None:
    assert decisions.settle(KEY, ASK, at=OPEN) is None
    assert decisions.latest() == {}
    assert settled_outcome(decisions, ASK) is WITHHELD
    with pytest.raises(DecisionTooLateError, match="was withheld"):
        decisions.decide(KEY, WITHHELD, at=LEAVES)
    assert settled_outcome(decisions, AUTO) is WITHHELD


def test_withheld_decision_records_its_reason(decisions: Decisions) -> None:
    assert reason_of(decisions, AUTO, OPEN) is None
    assert reason_of(decisions, NEVER, OPEN) is WithholdReason.POLICY
    assert reason_of(decisions, ASK, OPEN) is None
    decisions.settle(KEY, ASK, at=LEAVES)
    decisions.decide(report_key(1), WITHHELD, at=START)
    decisions.withhold(report_key(2), at=START)
    found = [decision.reason for decision in decisions.latest().values()]
    assert found == [WithholdReason.UNDECIDED, WithholdReason.OPERATOR, WithholdReason.TOO_LATE]


def test_late_approved_release_is_withheld_and_settled_release_stays_approved(
    decisions: Decisions,
) -> None:
    decisions.decide(KEY, APPROVED, at=START)
    decisions.withhold(KEY, at=LEAVES)
    assert outcome_of(decisions, ASK, LEAVES) is WITHHELD
    decisions.settle(report_key(1), AUTO, at=START)
    decisions.withhold(report_key(1), at=LEAVES)
    assert outcome_of(decisions, AUTO, LEAVES, report_key(1)) is APPROVED


def test_decisions_in_older_file_format_count_without_reason(decisions: Decisions) -> None:
    with closing(sqlite3.connect(decisions.path)) as connection, connection:
        connection.execute(
            "CREATE TABLE decision (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
            " window INTEGER NOT NULL, slot INTEGER NOT NULL, verdict TEXT NOT NULL,"
            " decided_unix_ms INTEGER NOT NULL, settled INTEGER NOT NULL) STRICT"
        )
        connection.execute(
            "INSERT INTO decision VALUES (NULL, ?, 0, 0, 'withheld', 0, 1)", (KEY.kind,)
        )
    connection.close()
    assert outcome_of(decisions, AUTO, START) is WITHHELD
    assert reason_of(decisions, AUTO, START) is None
    decisions.withhold(report_key(1), at=START)
    assert reason_of(decisions, AUTO, START, report_key(1)) is WithholdReason.TOO_LATE


def test_release_withheld_in_advance_is_not_charged(
    ledger: PrivacyLedger, gate: ReleaseGate
) -> None:
    Decisions(ledger).decide(KEY, WITHHELD, at=START)
    for mode in ReleaseMode:
        with pytest.raises(WithheldError):
            gate.seal(KEY, empty_report, at=OPEN, mode=mode)
    assert ledger.entries() == ()


def test_release_in_ask_mode_is_sealed_and_dispatched_only_if_approved(
    ledger: PrivacyLedger, gate: ReleaseGate
) -> None:
    sealed = gate.seal(KEY, empty_report, at=OPEN, mode=ASK)
    with pytest.raises(WithheldError, match="not decided yet"):
        gate.dispatch(KEY, at=OPEN, mode=ASK)
    assert [entry.state for entry in ledger.entries()] == [ReleaseState.DRAWN]
    Decisions(ledger).decide(KEY, APPROVED, at=OPEN)
    assert gate.dispatch(KEY, at=LEAVES, mode=ASK) == sealed
    assert [entry.state for entry in ledger.entries()] == [ReleaseState.HANDED_OUT]


def test_withheld_sealed_release_is_neither_refunded_nor_sampled_again(
    ledger: PrivacyLedger, gate: ReleaseGate
) -> None:
    sealed = gate.seal(KEY, empty_report, at=OPEN, mode=ASK)
    spent = ledger.spent(OPEN)
    Decisions(ledger).decide(KEY, WITHHELD, at=OPEN)
    for mode in ReleaseMode:
        with pytest.raises(WithheldError):
            gate.dispatch(KEY, at=LEAVES, mode=mode)
        with pytest.raises(WithheldError):
            gate.seal(KEY, empty_report, at=LEAVES, mode=mode)
    assert ledger.stored(KEY) == sealed
    assert ledger.spent(LEAVES) == spent > 0
    assert [entry.state for entry in ledger.entries()] == [ReleaseState.DRAWN]


def test_corrupt_decisions_file_blocks_release(
    ledger: PrivacyLedger, decisions: Decisions, gate: ReleaseGate
) -> None:
    decisions.path.write_bytes(b"hello" * 500)
    with pytest.raises(StorageError):
        release_now(gate, KEY, empty_report, at=OPEN)
    assert ledger.entries() == ()


def test_decision_write_failure_keeps_previous_decision(
    decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions.decide(KEY, APPROVED, at=START)

    def dying(connection: sqlite3.Connection, *arguments: object, **options: object) -> None:
        connection.execute("DELETE FROM decision")
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr("fedperf_client.release.decisions._insert", dying)
    with pytest.raises(StorageError, match="disk full"):
        decisions.decide(KEY, WITHHELD, at=START)
    assert outcome_of(decisions, ASK, OPEN) is APPROVED
