"""The model rounds of a calendar, one slot after the other, as a durable state machine.

Each call takes the replies that have arrived and advances the round. It never waits. A round and
its linear query are stored before requests are sent. Closing it stores the new model version, the
receipts and the counts of refusals in one transaction. A coordinator that was killed in between
finds the round open and runs it again with the same query. Organizations then send the bytes that
they stored, so that noise is never sampled twice. A slot that passed while the coordinator was down
is closed as missed, and so are the slots of a calendar that trains by DP-SGD.

No organization can delay or spoil a round. A reply that does not arrive by the deadline is missing.
An invalid reply is refused and counted. With fewer accepted updates than the quorum the model is
not changed. If the updates give no usable model, it is not changed either, and the round is closed
as failed. A usable model is finite, has the shapes of its format, and has an error on public data.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

import numpy as np
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy.orm import Session

from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rehearsal import buffer
from fedperf_server.rounds.open_round import (
    Fleet,
    FleetRound,
    OpenRound,
    RoundRules,
    RoundStrategy,
)
from fedperf_server.state import registry, releases, round_calendar
from fedperf_server.state.database import (
    ACCEPTED,
    Database,
    DatabaseError,
    Member,
    ModelRound,
    ReplyRow,
    RoundOutcome,
    RoundQueryRow,
    UpdateRow,
    VersionStatus,
    record_event,
    slot_key,
)
from fedperf_server.state.registry import ModelFormat
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import (
    decode_linearized_query,
    encode_linearized_query,
    encode_train_request,
)

Evaluate = Callable[[Weights], float]  # returns the model's error on public data

# Errors of numpy (ValueError), torch (RuntimeError) and our own checks over invalid numbers, which
# every repetition raises again. After any other failure, such as of the database, the round stays
# open and is run again.
_ARITHMETIC_ERRORS = (
    ArithmeticError,
    ValueError,
    RuntimeError,
    InvalidInputError,
    ConfigurationError,
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _RunningRound:
    """An open round in this process, its request and its channel.

    `deadline` is the time at which missing replies are not waited for any more.
    """

    opened: OpenRound
    request: bytes
    channel: FleetRound
    deadline: datetime


@dataclass(slots=True, eq=False, repr=False)
class ModelRounds:
    """Runs the rounds of a calendar as they become due."""

    database: Database
    enrollment: Enrollment
    fleet: Fleet
    _: KW_ONLY
    calendar: ReleaseCalendar
    rules: RoundRules
    model_format: ModelFormat
    signing_key: ec.EllipticCurvePrivateKey
    strategy: RoundStrategy
    evaluate: Evaluate
    _running: _RunningRound | None = field(default=None, init=False)

    def run_once(self, *, at: datetime) -> tuple[ModelRound, ...]:
        """Admit new members, begin or advance the due round, and return closed rounds.

        A call that fails in the database can be repeated. Transactions are stored whole or not at
        all, and organizations send the bytes that they stored.
        """
        members = {each.organization_id: each for each in self.enrollment.members()}
        self.fleet.set_members({key: each.public_key for key, each in members.items()})
        try:
            if self._running is None:
                missed = self._begin(at)
                if missed is not None:
                    return (missed,)
            if self._running is None:
                return ()
            return self._advance(self._running, members, at=at)
        except DatabaseError:
            raise
        except Exception:
            self.interrupt()
            raise

    def interrupt(self) -> None:
        """Interrupt the open round; the next call finds it open and runs it again."""
        if self._running is not None:
            self._running.channel.close()
            self._running = None

    def _begin(self, at: datetime) -> ModelRound | None:
        """Begin the due round, or begin a stored one again. Return it if it was missed."""
        calendar, opened = self.calendar, None
        with self.database.transaction() as session:
            slot = round_calendar.due_slot(session, calendar, now=at)
            if slot is None:
                return None
            is_over = at > round_calendar.replies_at(calendar, slot)
            is_skipped = calendar.model_method is ModelMethod.UNSPECIFIED
            if not is_skipped:
                opened = self._load(session, slot)
            if opened is None and is_over:
                return self._miss(session, slot, at=at)
            if opened is None and (
                is_skipped
                or round_calendar.must_wait(session, calendar, slot, grace=self.rules.grace, now=at)
            ):
                return None
        opened = opened or self._open(slot, at=at)
        request = TrainRequest(
            slot,
            self.model_format.architecture,
            opened.base_version,
            tuple(opened.current),
            opened.query,
        )
        deadline = max(round_calendar.replies_at(calendar, slot), at) + self.rules.grace
        self._running = _RunningRound(
            opened, encode_train_request(request), self.fleet.round(), deadline
        )
        return None

    def _load(self, session: Session, slot: SlotKey) -> OpenRound | None:
        """Return the stored round, or None if it was not begun."""
        key = slot_key(self.calendar.period, slot)
        row, stored_query = session.get(ModelRound, key), session.get(RoundQueryRow, key)
        if row is None:
            return None
        base = registry.get_version(session, row.base_version)
        query = decode_linearized_query(stored_query.payload) if stored_query else None
        current = self.model_format.decode(base.checkpoint)
        return OpenRound(row.number, slot, base.version, current, query)

    def _open(self, slot: SlotKey, *, at: datetime) -> OpenRound:
        """Store that the round began, with its base model and linear query."""
        with self.database.transaction() as session:
            start = round_calendar.find_round_start(session, self.calendar, window=slot.window)
        base = start.version
        current = self.model_format.decode(base.checkpoint)
        query = self.strategy.design_query(current, steps_made=start.steps_made)
        with self.database.transaction() as session:
            row = round_calendar.new_round(session, self.calendar, slot, base.version, at=at)
            if query is not None:
                key, payload = slot_key(self.calendar.period, slot), encode_linearized_query(query)
                session.add(RoundQueryRow(**key, payload=payload))
            record_event(session, "round_opened", at=at, round=row.number)
            return OpenRound(row.number, slot, base.version, current, query)

    def _advance(
        self, running: _RunningRound, members: Mapping[bytes, Member], *, at: datetime
    ) -> tuple[ModelRound, ...]:
        """Exchange messages, and close the round once all replied or its time is over."""
        opened = running.opened
        self._admit_to_round(opened, members)
        opened.reject_revoked(members.keys())
        for organization_id in opened.missing:
            running.channel.send(organization_id, running.request)
        for reply in running.channel.replies():
            if reply.organization_id in members:
                key = members[reply.organization_id].public_key
                opened.receive(reply, key, check=self.strategy.check)
        is_complete = opened.schedules and not opened.missing
        if at < running.deadline and not is_complete:
            return ()
        opened.refused |= dict.fromkeys(opened.missing, Reason.MISSING)
        result = self._close(opened, at=at)
        self.interrupt()
        return (result,)

    def _admit_to_round(self, opened: OpenRound, members: Mapping[bytes, Member]) -> None:
        """Admit members whose schedule contains the slot, also during the round."""
        new = members.keys() - opened.schedules.keys() - opened.others
        if not new:
            return
        with self.database.transaction() as session:
            for organization_id in sorted(new):
                schedule = releases.declared_schedule(
                    session, organization_id, self.calendar.period
                )
                if schedule is None:
                    continue
                if schedule.slot(opened.slot) is None:
                    opened.others.add(organization_id)
                else:
                    opened.schedules[organization_id] = schedule

    def _close(self, opened: OpenRound, *, at: datetime) -> ModelRound:
        """Make the new version, if there is one, and store everything in one transaction."""
        slot = opened.slot
        with self.database.transaction() as session:
            self._reject_contradictions(session, opened)
        outcome, arrays, error = self._aggregate(opened)
        with self.database.transaction() as session:
            row = session.get_one(ModelRound, slot_key(self.calendar.period, slot))
            if arrays is not None:
                row.new_version = registry.add_version(
                    session,
                    self.model_format,
                    arrays,
                    at=at,
                    public_error=error,
                    promoted=self.rules.promote,
                )
                if registry.statuses(session)[opened.base_version] is VersionStatus.REJECTED:
                    reason = f"trained from version {opened.base_version}, which was rejected"
                    registry.reject(session, row.new_version, reason, at=at)
            row.close(outcome, at=at)
            row.expected, row.replies = len(opened.schedules), len(opened.accepted)
            row.public_error = error
            self._store_replies(session, row, opened, at=at)
            record_event(
                session,
                "round_closed",
                at=at,
                round=row.number,
                replies=row.replies,
                outcome=row.outcome,
            )
            return row

    def _reject_contradictions(self, session: Session, opened: OpenRound) -> None:
        """Refuse replies that contradict an earlier receipt."""
        release_id = opened.slot.release_id(self.calendar.period)
        for organization_id, (signed, _) in list(opened.accepted.items()):
            receipt = releases.find_receipt(session, organization_id, release_id)
            if receipt is not None and not receipt.confirms(signed):
                del opened.accepted[organization_id]
                opened.refused[organization_id] = Reason.DIFFERENT_BYTES

    def _aggregate(self, opened: OpenRound) -> tuple[RoundOutcome, Weights | None, float | None]:
        """Return the outcome of the round, and the next model with its error if there is one."""
        if len(opened.accepted) < self.rules.quorum:
            return RoundOutcome.NO_QUORUM, None, None
        with self.database.transaction() as session:
            rehearsed = buffer.rows(session)
        updates = [update for _, (_, update) in sorted(opened.accepted.items())]
        try:
            weights = self.strategy.next(opened.current, updates, opened.query, rehearsed=rehearsed)
            arrays = [np.asarray(array, dtype=np.float32) for array in weights]
            shapes = [tuple(each) for each in self.model_format.shapes]
            is_finite = all(bool(np.isfinite(array).all()) for array in arrays)
            if [array.shape for array in arrays] != shapes or not is_finite:
                raise ValueError("the next model is not finite or has a wrong shape")
            return RoundOutcome.NEW_VERSION, arrays, float(self.evaluate(arrays))
        except _ARITHMETIC_ERRORS as error:
            _log.warning("a round failed, the model is not changed", exc_info=error)
            return RoundOutcome.FAILED, None, None

    def _store_replies(
        self, session: Session, row: ModelRound, opened: OpenRound, *, at: datetime
    ) -> None:
        """Store accepted replies with their receipts, and count refused ones."""
        release_id = opened.slot.release_id(self.calendar.period)
        for organization_id, (signed, _) in opened.accepted.items():
            releases.give_receipt(
                session, organization_id, release_id, signed, key=self.signing_key, at=at
            )
            session.add(
                UpdateRow(
                    **slot_key(self.calendar.period, opened.slot),
                    organization_id=organization_id,
                    payload=signed.payload,
                    signature=signed.signature,
                    received_at=at,
                )
            )
            row.reply_rows.append(
                ReplyRow(
                    organization_id=organization_id,
                    outcome=ACCEPTED,
                    payload_sha256=hashlib.sha256(signed.payload).digest(),
                    size=opened.sizes.get(organization_id, 0),
                )
            )
        for organization_id, reason in opened.refused.items():
            releases.count_rejection(session, organization_id, "model_update", reason)
            size = opened.sizes.get(organization_id, 0)
            row.reply_rows.append(
                ReplyRow(organization_id=organization_id, outcome=reason.value, size=size)
            )

    def _miss(self, session: Session, slot: SlotKey, *, at: datetime) -> ModelRound:
        """Close a slot that passed without a round."""
        row = session.get(ModelRound, slot_key(self.calendar.period, slot))
        if row is None:
            start = round_calendar.find_round_start(session, self.calendar, window=slot.window)
            version = start.version.version
            row = round_calendar.new_round(session, self.calendar, slot, version, at=at)
        row.close(RoundOutcome.MISSED, at=at)
        record_event(session, "round_missed", at=at, round=row.number)
        return row
