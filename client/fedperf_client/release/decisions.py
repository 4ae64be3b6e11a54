"""An operator's decisions about single slots: to send their releases or to withhold them.

They are stored in one small SQLite file next to the ledger. Decisions are only added, and the last
one counts. When a slot's release is about to be sent, the slot is *settled* in the same file: then
it is sent or withheld for good, and later decisions are refused. So `withheld` is never reported of
a release that is sent. A decision gives back no charge and allows no second draw. The absence of a
release reveals only the decision to the coordinator. An operator takes it blind or from noised
bytes.

Refused: unknown slots, and decisions about releases that were sent. Approval is refused at or after
the fixed time of sending, when a slot without a decision counts as withheld. Approval of a withheld
slot is refused once the slot has opened. No clock is read: timestamps are passed in.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique

from fedperf_client.release.ledger import PrivacyLedger, ReleaseState, SlotNotPlannedError
from fedperf_client.release.ledger_files import storage_errors, transaction
from fedperf_client.release.policy import ReleaseMode
from fedperf_client.release.schedule import slot_name
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
class Outcome(StrEnum):
    """Whether a slot's release is sent."""

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
    """Raised when a decision cannot be taken any more."""

    def __init__(self, key: SlotKey, outcome: Outcome, *, reason: str) -> None:
        super().__init__(f"{slot_name(key)} cannot be {outcome} any more: {reason}")


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a slot; `settled` when nothing changes it any more.

    `reason` is None for what is approved, and where an older version did not record it.
    """

    outcome: Outcome
    at: datetime
    settled: bool = False
    reason: WithholdReason | None = None


class Decisions:
    """The decisions of a ledger's period; several processes may share the file."""

    def __init__(self, ledger: PrivacyLedger) -> None:
        self._ledger = ledger
        self.path = ledger.path.with_name(ledger.path.name + ".decisions")

    def decide(self, key: SlotKey, outcome: Outcome, *, at: datetime) -> None:
        """Take an operator's decision durably, or raise and change nothing.

        Raises:
            SlotNotPlannedError: the schedule does not have the slot.
            DecisionTooLateError: see the module.
            StorageError: the file cannot be written.
        """
        schedule = self._ledger.schedule
        if schedule.slot(key) is None:
            raise SlotNotPlannedError(key)
        leaves_at, ends_at = schedule.replies_at(key), schedule.calendar.period.end
        if not at < ends_at:
            raise DecisionTooLateError(
                key, outcome, reason=f"its period ended at {ends_at.isoformat()}"
            )
        if outcome is Outcome.APPROVED and not at < leaves_at:
            raise DecisionTooLateError(
                key, outcome, reason=f"its time to leave was {leaves_at.isoformat()}"
            )
        with self._transaction() as connection:
            obstacle = self._find_obstacle(key, outcome, _read(connection).get(key), at=at)
            if obstacle:
                raise DecisionTooLateError(key, outcome, reason=obstacle)
            reason = WithholdReason.OPERATOR if outcome is Outcome.WITHHELD else None
            _insert(connection, key, Decision(outcome, at, reason=reason))

    def status(self, key: SlotKey, mode: ReleaseMode, *, at: datetime) -> Decision | None:
        """Return the decision by operator and policy; None while an operator may still take it."""
        return self._status(key, self.latest().get(key), mode, at=at)

    def settle(self, key: SlotKey, mode: ReleaseMode, *, at: datetime) -> Decision | None:
        """Return `status`, which is final from now on unless it is None."""
        with self._transaction() as connection:
            last = _read(connection).get(key)
            decision = self._status(key, last, mode, at=at)
            if decision is not None and not (last and last.settled):
                final = Decision(decision.outcome, at, settled=True, reason=decision.reason)
                _insert(connection, key, final)
        return decision

    def withhold(
        self, key: SlotKey, *, at: datetime, reason: WithholdReason = WithholdReason.TOO_LATE
    ) -> None:
        """Withhold the slot's release from now on; this overrides earlier decisions."""
        with self._transaction() as connection:
            last = _read(connection).get(key)
            if last is None or not last.settled:
                final = Decision(Outcome.WITHHELD, at, settled=True, reason=reason)
                _insert(connection, key, final)

    def latest(self) -> dict[SlotKey, Decision]:
        """Return the last decision on each slot that has one; creates no file."""
        if not self.path.is_file():
            return {}
        with self._transaction() as connection:
            return _read(connection)

    def _find_obstacle(
        self, key: SlotKey, outcome: Outcome, last: Decision | None, *, at: datetime
    ) -> str:
        """Return why the decision cannot be taken; empty if it can."""
        states = {entry.key: entry.state for entry in self._ledger.entries()}
        if states.get(key) is ReleaseState.HANDED_OUT:
            return "it has left"
        if last is None:
            return ""
        was_approved = last.outcome is Outcome.APPROVED
        if last.settled:
            return f"it {'left' if was_approved else 'was withheld'} at {last.at.isoformat()}"
        reverses = outcome is Outcome.APPROVED and not was_approved
        if reverses and not at < self._ledger.schedule.opens_at(key):
            return "it was withheld, which is final once the slot has opened"
        return ""

    def _status(
        self, key: SlotKey, last: Decision | None, mode: ReleaseMode, *, at: datetime
    ) -> Decision | None:
        if mode is ReleaseMode.NEVER:
            return Decision(Outcome.WITHHELD, at, reason=WithholdReason.POLICY)
        if last is not None:
            return last
        if mode is ReleaseMode.AUTO:
            return Decision(Outcome.APPROVED, at)
        if at < self._ledger.schedule.replies_at(key):
            return None
        return Decision(Outcome.WITHHELD, at, reason=WithholdReason.UNDECIDED)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with storage_errors(self.path):
            self.path.touch(mode=0o600)
        with transaction(self.path) as connection:
            connection.execute(_TABLE)
            columns = [row[1] for row in connection.execute("PRAGMA table_info(decision)")]
            if "because" not in columns:  # a file of an older version
                connection.execute("ALTER TABLE decision ADD COLUMN because TEXT")
            yield connection


def _read(connection: sqlite3.Connection) -> dict[SlotKey, Decision]:
    """Return the last decision on each slot that has one."""
    rows = connection.execute(
        "SELECT kind, window, slot, verdict, decided_unix_ms, settled, because"
        " FROM decision ORDER BY id"
    ).fetchall()
    return {
        SlotKey(ReleaseKind(kind), window, index): Decision(
            Outcome(outcome),
            from_unix_ms(decided),
            bool(settled),
            WithholdReason(reason) if reason else None,
        )
        for kind, window, index, outcome, decided, settled, reason in rows
    }


def _insert(connection: sqlite3.Connection, key: SlotKey, decision: Decision) -> None:
    reason = None if decision.reason is None else str(decision.reason)
    slot = (int(key.kind), key.window, key.index)
    values = (str(decision.outcome), to_unix_ms(decision.at), int(decision.settled), reason)
    connection.execute("INSERT INTO decision VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", (*slot, *values))
