"""An operator's decisions about single slots: to send their releases or to withhold them.

They lie in one small SQLite file beside the ledger. Decisions are only added; the last one counts.
When a slot's release is about to leave, the slot is *settled* in the same file: then it leaves, or
stays for ever, and no later decision is taken. So `withheld` is never said of a release that
leaves. A decision gives back no charge and allows no second draw. That a release is absent tells
the coordinator nothing but the decision, which an operator takes blind or from noised bytes.

Refused: unknown slots, and decisions about what has left. Approval is refused at or after the fixed
time at which the slot leaves, when a slot that nobody decided counts as withheld. Approval of what
was withheld is refused once the slot has opened. No clock is read: moments are passed in.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique

from fedperf_client.release.ledger.entries import ReleaseState
from fedperf_client.release.ledger.errors import SlotNotPlannedError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.ledger.ledger_file import errors_named, transaction
from fedperf_client.release.policy import ReleaseMode
from fedperf_client.release.slot_names import slot_name
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey

_TABLE = """
CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, window INTEGER NOT NULL,
    slot INTEGER NOT NULL, verdict TEXT NOT NULL, decided_unix_ms INTEGER NOT NULL,
    settled INTEGER NOT NULL, because TEXT
) STRICT
"""


@unique
class Verdict(StrEnum):
    """The decision whether a slot's release is sent."""

    APPROVED = "approved"
    WITHHELD = "withheld"


@unique
class WithholdReason(StrEnum):
    """Why a slot's release is withheld."""

    OPERATOR = "operator"
    POLICY = "policy"
    UNDECIDED = "undecided"
    TOO_LATE = "too_late"
    METHOD_REMOVED = "method_removed"


class DecisionTooLateError(PrivacyRefusedError):
    """A decision cannot be taken any more."""

    def __init__(self, key: SlotKey, *, verdict: Verdict, reason: str) -> None:
        super().__init__(f"{slot_name(key)} cannot be {verdict} any more: {reason}")
        self.key = key
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """The last word on a slot; `settled` when nothing changes it any more.

    `because` is None for what is approved, and where an older version did not record it.
    """

    verdict: Verdict
    at: datetime
    settled: bool
    because: WithholdReason | None = None


class Decisions:
    """The decisions of a ledger's period; several processes may share the file."""

    def __init__(self, ledger: PrivacyLedger) -> None:
        self._ledger = ledger
        self.path = ledger.path.with_name(ledger.path.name + ".decisions")

    def decide(self, key: SlotKey, verdict: Verdict, *, at: datetime) -> None:
        """Take an operator's decision durably, or raise and change nothing.

        Raises:
            SlotNotPlannedError: the schedule does not have the slot.
            DecisionTooLateError: see the module.
            StorageError: the file cannot be written.
        """
        self._require_time(key, verdict, at)
        with self._transaction() as connection:
            last = _last(connection, key)
            reason = self._obstacle(key, verdict, last, at=at)
            if reason:
                raise DecisionTooLateError(key, verdict=verdict, reason=reason)
            because = WithholdReason.OPERATOR if verdict is Verdict.WITHHELD else None
            _insert(connection, key, Decision(verdict, at, settled=False, because=because))

    def standing(self, key: SlotKey, mode: ReleaseMode, *, at: datetime) -> Verdict | None:
        """Whether the slot's release is to leave; None while its operator may still say so."""
        verdict, _ = self._standing(key, self.last(key), mode, at=at)
        return verdict

    def because(self, key: SlotKey, mode: ReleaseMode, *, at: datetime) -> WithholdReason | None:
        """Why the slot's release is withheld; None where it is not."""
        _, because = self._standing(key, self.last(key), mode, at=at)
        return because

    def settle(self, key: SlotKey, mode: ReleaseMode, *, at: datetime) -> Verdict | None:
        """`standing`, and from now on it stays so unless it is None."""
        with self._transaction() as connection:
            last = _last(connection, key)
            verdict, because = self._standing(key, last, mode, at=at)
            if verdict is not None and not (last and last.settled):
                _insert(connection, key, Decision(verdict, at, settled=True, because=because))
        return verdict

    def withhold(
        self, key: SlotKey, *, at: datetime, because: WithholdReason = WithholdReason.TOO_LATE
    ) -> None:
        """From now on the slot's release is withheld, whatever was decided."""
        with self._transaction() as connection:
            last = _last(connection, key)
            if last is None or not last.settled:
                final = Decision(Verdict.WITHHELD, at, settled=True, because=because)
                _insert(connection, key, final)

    def last(self, key: SlotKey) -> Decision | None:
        """The last decision on the slot; None where there was none."""
        return self.every().get(key)

    def every(self) -> dict[SlotKey, Decision]:
        """The last decision on each slot that has one; makes no file."""
        if not self.path.is_file():
            return {}
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM decision ORDER BY id").fetchall()
        return {SlotKey(ReleaseKind(row[1]), row[2], row[3]): _decision(row) for row in rows}

    def _require_time(self, key: SlotKey, verdict: Verdict, at: datetime) -> None:
        schedule = self._ledger.schedule
        if schedule.slot(key) is None:
            raise SlotNotPlannedError(key)
        leaves_at, ends_at = schedule.replies_at(key), schedule.calendar.period.end
        if not at < ends_at:
            reason = f"its period ended at {ends_at.isoformat()}"
            raise DecisionTooLateError(key, verdict=verdict, reason=reason)
        if verdict is Verdict.APPROVED and not at < leaves_at:
            reason = f"its time to leave was {leaves_at.isoformat()}"
            raise DecisionTooLateError(key, verdict=verdict, reason=reason)

    def _obstacle(
        self, key: SlotKey, verdict: Verdict, last: Decision | None, *, at: datetime
    ) -> str:
        """Why the decision is not taken; empty if it is."""
        states = {entry.key: entry.state for entry in self._ledger.entries()}
        if states.get(key) is ReleaseState.HANDED_OUT:
            return "it has left"
        if last is None:
            return ""
        if last.settled:
            is_leaving = last.verdict is Verdict.APPROVED
            return f"it {'left' if is_leaving else 'was withheld'} at {last.at.isoformat()}"
        reversed_late = (last.verdict, verdict) == (Verdict.WITHHELD, Verdict.APPROVED)
        if reversed_late and not at < self._ledger.schedule.opens_at(key):
            return "it was withheld, which is final once the slot has opened"
        return ""

    def _standing(
        self, key: SlotKey, last: Decision | None, mode: ReleaseMode, *, at: datetime
    ) -> tuple[Verdict | None, WithholdReason | None]:
        if mode is ReleaseMode.NEVER:
            return Verdict.WITHHELD, WithholdReason.POLICY
        if last is not None:
            return last.verdict, last.because
        if mode is ReleaseMode.AUTO:
            return Verdict.APPROVED, None
        if at < self._ledger.schedule.replies_at(key):
            return None, None
        return Verdict.WITHHELD, WithholdReason.UNDECIDED

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with errors_named(self.path):
            self.path.touch(mode=0o600)
        with transaction(self.path) as connection:
            connection.execute(_TABLE)
            columns = [row[1] for row in connection.execute("PRAGMA table_info(decision)")]
            if "because" not in columns:  # a file of an older version
                connection.execute("ALTER TABLE decision ADD COLUMN because TEXT")
            yield connection


def _last(connection: sqlite3.Connection, key: SlotKey) -> Decision | None:
    row = connection.execute(
        "SELECT * FROM decision"
        " WHERE kind = ? AND window = ? AND slot = ? ORDER BY id DESC LIMIT 1",
        (int(key.kind), key.window, key.index),
    ).fetchone()
    return None if row is None else _decision(row)


def _decision(row: tuple[int, int, int, int, str, int, int, str | None]) -> Decision:
    because = WithholdReason(row[7]) if row[7] else None
    return Decision(Verdict(row[4]), from_unix_ms(row[5]), bool(row[6]), because)


def _insert(connection: sqlite3.Connection, key: SlotKey, decision: Decision) -> None:
    because = None if decision.because is None else str(decision.because)
    slot = (int(key.kind), key.window, key.index)
    said = (str(decision.verdict), to_unix_ms(decision.at), int(decision.settled), because)
    connection.execute("INSERT INTO decision VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", (*slot, *said))
