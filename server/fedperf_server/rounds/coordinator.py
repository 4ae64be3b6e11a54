"""The coordinator: runs the model rounds of the timetable, one slot after the other.

A durable state machine. A round is written down before anybody is asked and closed in
one transaction together with the new model version, the receipts and the counts of
what was refused. Killed in between, it is found open and run again: organizations
answer with the bytes that they stored, so nothing is drawn twice. A slot whose time
passed while the coordinator was down is closed as missed.

How a round trains is the business of its method (`round_method`): what it asks beside the model
is made before the round is written down, and stored with it, so that a coordinator that
was killed asks the same again.

No organization can hold up or spoil a round: whoever does not answer by the deadline
is missing, whatever is not valid is refused and counted, and with fewer accepted
updates than the quorum the model stays as it is. So it does where no usable model can be made
of what was accepted: the round is closed as failed, which the operator sees.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.membership.enrollment import Enrollment, Member
from fedperf_server.rehearsal import buffer
from fedperf_server.rounds.round_method import Answer, RoundMethod
from fedperf_server.state import audit, promotion_graph, registry, releases, round_calendar
from fedperf_server.state.database import (
    DATABASE,
    Database,
    DatabaseError,
    ReplyRow,
    RoundQuestionRow,
    RoundRow,
)
from fedperf_server.state.registry import Arrays, ModelFormat
from fedperf_server.state.rounds import (
    ACCEPTED,
    Outcome,
    RoundResult,
    result_of,
    row_key,
)
from fedperf_server.state.validation import Reason, RejectedReleaseError, check_place, open_update
from fedperf_shared.errors import ConfigurationError, FedperfError, InvalidInputError
from fedperf_shared.exchange import Refusal, SyntheticRow, TrainRequest
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.period import Timetable, to_unix_ms
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey
from fedperf_shared.wire.codec import (
    decode_tangent_question,
    encode_tangent_question,
    encode_train_request,
)

_log = structlog.get_logger()

Evaluate = Callable[[Arrays], float]
"""The model's error on public data."""


class Reply(Protocol):
    """What an organization answered; `body` is None where it refused, for `refusal`."""

    @property
    def organization_id(self) -> bytes:
        """Whose it is."""

    @property
    def body(self) -> bytes | None:
        """A serialized SignedRelease."""

    @property
    def refusal(self) -> Refusal | None:
        """Why it refused; None where it did not say, or not in our words."""


class FleetRound(Protocol):
    """One round's messages."""

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body`; False while the organization is offline or was asked already."""

    def replies(self) -> Sequence[Reply]:
        """What arrived since the last call."""


class Fleet(Protocol):
    """The connected organizations; `gateway.Gateway` in real life."""

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Let exactly these organizations take part."""

    def round(self) -> AbstractContextManager[FleetRound]:
        """Open a round's channel; late replies are refused when it closes."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What holds for every round.

    Attributes:
        quorum: accepted updates that a new version needs, at least 1.
        grace: how long after the reply time replies are still taken.
        poll: pause between looks at the fleet.
        promote: whether a new version is promoted at once; otherwise it stays a
            candidate until somebody promotes it.
    """

    quorum: int
    grace: timedelta
    poll: timedelta = timedelta(seconds=0.15)
    promote: bool = False

    def __post_init__(self) -> None:
        if not self.quorum >= 1:
            raise ConfigurationError(f"quorum must be at least 1, got {self.quorum!r}")


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a round starts from and asks."""

    slot: SlotKey
    base_version: int
    current: Arrays
    question: TangentQuestion | None


@dataclass(slots=True)
class _Gathered:
    """What a round has so far, by organization."""

    schedules: dict[bytes, Schedule] = field(default_factory=dict)
    accepted: dict[bytes, tuple[SignedRelease, Answer]] = field(default_factory=dict)
    refused: dict[bytes, Reason] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)

    def answered(self, organization_id: bytes) -> bool:
        return organization_id in self.accepted or organization_id in self.refused

    def is_complete(self) -> bool:
        """Whether there is somebody and everybody answered."""
        return bool(self.schedules) and all(map(self.answered, self.schedules))


class Coordinator:
    """Runs the rounds; `step` for one at a time, `run` until told to stop."""

    def __init__(
        self,
        database: Database,
        enrollment: Enrollment,
        fleet: Fleet,
        *,
        timetable: Timetable,
        rules: RoundRules,
        model_format: ModelFormat,
        signing_key: ec.EllipticCurvePrivateKey,
        method: RoundMethod,
        evaluate: Evaluate,
        clock: Callable[[], datetime],
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._database = database
        self._enrollment = enrollment
        self._fleet = fleet
        self._timetable = timetable
        self._rules = rules
        self._format = model_format
        self._key = signing_key
        self._method = method
        self._evaluate = evaluate
        self._clock = clock

    def run(
        self,
        stop: threading.Event,
        *,
        idle: timedelta = timedelta(seconds=0.5),
        on_round: Callable[[RoundResult], None] = lambda result: None,
    ) -> None:
        """Run rounds as they fall due until `stop` is set.

        A step that the database does not let through is taken again: what it wrote was stored
        whole or not at all, and organizations answer again with the bytes that they stored.
        """
        while not stop.is_set():
            result = self._try_step(stop)
            if result is not None:
                on_round(result)
            else:
                stop.wait(idle.total_seconds())

    def _try_step(self, stop: threading.Event) -> RoundResult | None:
        """A step, unless the database fails or did so a moment ago."""
        if self._troubles.rests(DATABASE):
            return None
        try:
            result = self.step(stop)
        except DatabaseError as error:
            self._troubles.failed(DATABASE, error, source="rounds")
            return None
        self._troubles.worked(DATABASE, source="rounds")
        return result

    def step(self, stop: threading.Event) -> RoundResult | None:
        """Let new members in; run the round that is due, if one is.

        Returns None where none is due or the one that is waits for a verdict (`lineage`), and
        where `stop` ended a round early: it stays open and is run again.
        """
        self._admit()
        with self._database.transaction() as session:
            slot = round_calendar.due_slot(session, self._timetable, now=self._clock())
        if slot is None:
            return None
        opened = self._stored(slot)
        if opened is None and self._clock() > round_calendar.replies_at(self._timetable, slot):
            return self._miss(slot)
        if opened is None and self._has_to_wait(slot):
            return None
        return self._round(opened or self._open(slot), stop)

    def finished(self) -> bool:
        """Whether every round of the period is closed."""
        with self._database.transaction() as session:
            return round_calendar.is_over(session, self._timetable)

    def _admit(self) -> list[Member]:
        members = self._enrollment.members()
        self._fleet.set_members({each.organization_id: each.public_key for each in members})
        return members

    def _has_to_wait(self, slot: SlotKey) -> bool:
        with self._database.transaction() as session:
            return promotion_graph.has_to_wait(
                session, self._timetable, slot, grace=self._rules.grace, now=self._clock()
            )

    def _round(self, opened: _Opened, stop: threading.Event) -> RoundResult | None:
        began = self._clock()
        gathered = _Gathered()
        request = self._request(opened)
        deadline = (
            max(round_calendar.replies_at(self._timetable, opened.slot), began) + self._rules.grace
        )
        with self._fleet.round() as channel:
            while self._clock() < deadline and not stop.is_set():
                self._exchange(channel, opened, gathered, request)
                if gathered.is_complete():
                    break
                stop.wait(self._rules.poll.total_seconds())
        if stop.is_set():
            return None
        for organization_id in gathered.schedules:
            if not gathered.answered(organization_id):
                gathered.refused[organization_id] = Reason.MISSING
        return self._close(opened, gathered)

    def _stored(self, slot: SlotKey) -> _Opened | None:
        """The round as it was written down; None where it was not begun."""
        key = row_key(self._timetable, slot)
        with self._database.transaction() as session:
            row, asked = session.get(RoundRow, key), session.get(RoundQuestionRow, key)
            if row is None:
                return None
            base = registry.get_version(session, row.base_version)
        question = decode_tangent_question(asked.payload) if asked else None
        return _Opened(slot, base.version, self._format.decode(base.checkpoint), question)

    def _open(self, slot: SlotKey) -> _Opened:
        """Write down that the round began, from which model, and what it asks."""
        with self._database.transaction() as session:
            start = promotion_graph.start_of(session, self._timetable, window=slot.window)
        base = start.version
        current = self._format.decode(base.checkpoint)
        question = self._method.question(current, steps_made=start.steps_made)
        with self._database.transaction() as session:
            row = self._new_row(session, slot, base.version)
            session.add(row)
            if question is not None:
                session.add(self._question_row(slot, question))
            audit.record(session, "round_opened", {"round": row.number}, at=self._clock())
        return _Opened(slot, base.version, current, question)

    def _question_row(self, slot: SlotKey, question: TangentQuestion) -> RoundQuestionRow:
        period_start, window, index = row_key(self._timetable, slot)
        return RoundQuestionRow(
            period_start=period_start,
            window=window,
            index=index,
            payload=encode_tangent_question(question),
        )

    def _new_row(self, session: Session, slot: SlotKey, base_version: int) -> RoundRow:
        period_start, window, index = row_key(self._timetable, slot)
        return RoundRow(
            period_start=period_start,
            window=window,
            index=index,
            number=(session.scalar(select(func.max(RoundRow.number))) or 0) + 1,
            base_version=base_version,
            opened_at=to_unix_ms(self._clock()),
            asked=0,
            replies=0,
        )

    def _participants(self, slot: SlotKey, gathered: _Gathered) -> dict[bytes, Member]:
        """The members of now whose schedule holds the slot; who declares late is let in."""
        found: dict[bytes, Member] = {}
        members = self._admit()
        with self._database.transaction() as session:
            for member in members:
                organization_id = member.organization_id
                if organization_id not in gathered.schedules:
                    schedule = releases.declared_schedule(
                        session, organization_id, self._timetable.period
                    )
                    if schedule is None or schedule.slot(slot) is None:
                        continue
                    gathered.schedules[organization_id] = schedule
                found[organization_id] = member
        return found

    def _rehearsed(self) -> tuple[SyntheticRow, ...]:
        with self._database.transaction() as session:
            return buffer.rows(session)

    def _request(self, opened: _Opened) -> bytes:
        return encode_train_request(
            TrainRequest(
                opened.slot,
                self._format.architecture,
                opened.base_version,
                tuple(opened.current),
                opened.question,
                self._rehearsed() if self._method.rehearses_at_home else (),
            )
        )

    def _exchange(
        self, channel: FleetRound, opened: _Opened, gathered: _Gathered, request: bytes
    ) -> None:
        """Ask whoever came online, take what arrived."""
        members = self._participants(opened.slot, gathered)
        for organization_id in gathered.schedules:
            if organization_id not in members:
                gathered.accepted.pop(organization_id, None)
                gathered.refused[organization_id] = Reason.REVOKED
            elif not gathered.answered(organization_id):
                channel.ask(organization_id, request)
        for reply in channel.replies():
            member = members.get(reply.organization_id)
            if member is not None and not gathered.answered(reply.organization_id):
                self._judge(reply, member, opened, gathered)

    def _judge(self, reply: Reply, member: Member, opened: _Opened, gathered: _Gathered) -> None:
        organization_id = member.organization_id
        gathered.sizes[organization_id] = len(reply.body or b"")
        try:
            signed, update = open_update(reply.body, member.public_key, refusal=reply.refusal)
            slot = check_place(
                update,
                gathered.schedules[organization_id],
                slot=opened.slot,
                base_version=opened.base_version,
            )
            self._method.check(update, slot)
            gathered.accepted[organization_id] = (signed, Answer(update, slot))
        except RejectedReleaseError as error:
            gathered.refused[organization_id] = error.reason

    def _close(self, opened: _Opened, gathered: _Gathered) -> RoundResult:
        """Make the new version, if there is one, and store everything at once."""
        slot = opened.slot
        self._drop_stale(slot, gathered)
        outcome, arrays, error = self._made(opened, gathered)
        now = self._clock()
        with self._database.transaction() as session:
            row = session.get_one(RoundRow, row_key(self._timetable, slot))
            if arrays is not None:
                row.new_version = registry.add_version(
                    session,
                    self._format,
                    arrays,
                    at=now,
                    public_error=error,
                    promoted=self._rules.promote,
                )
                promotion_graph.follow(session, row.new_version, base=opened.base_version, at=now)
            row.outcome = outcome
            row.asked, row.replies = len(gathered.schedules), len(gathered.accepted)
            row.public_error = error
            self._finish(session, row, now)
            self._store_replies(session, slot, gathered, now)
            failures = Counter(reason.value for reason in gathered.refused.values())
            result = result_of(row, slot, failures)
            detail: audit.Detail = {
                "round": row.number,
                "replies": row.replies,
                "outcome": row.outcome,
            }
            audit.record(session, "round_closed", detail, at=now)
        return result

    def _drop_stale(self, slot: SlotKey, gathered: _Gathered) -> None:
        """Refuse what contradicts a receipt that was given before."""
        release_id = slot.release_id(self._timetable.period)
        with self._database.transaction() as session:
            for organization_id, (signed, _) in list(gathered.accepted.items()):
                try:
                    releases.receipt_for(session, organization_id, release_id, signed)
                except RejectedReleaseError as error:
                    del gathered.accepted[organization_id]
                    gathered.refused[organization_id] = error.reason

    def _made(
        self, opened: _Opened, gathered: _Gathered
    ) -> tuple[Outcome, Arrays | None, float | None]:
        """How the round ends; the next model and its error, if there is one."""
        if len(gathered.accepted) < self._rules.quorum:
            return Outcome.NO_QUORUM, None, None
        try:
            return Outcome.NEW_VERSION, *self._next(opened, gathered)
        except AggregationError as error:
            _log.warning("a round failed, the model stays as it is", exc_info=error)
            return Outcome.FAILED, None, None

    def _next(self, opened: _Opened, gathered: _Gathered) -> tuple[Arrays, float]:
        """The next model and its error.

        Raises:
            AggregationError: none that could be used.
        """
        answers = [answer for _, (_, answer) in sorted(gathered.accepted.items())]
        rehearsed = () if self._method.rehearses_at_home else self._rehearsed()
        try:
            made = self._method.next(opened.current, answers, opened.question, rehearsed=rehearsed)
            arrays = [np.asarray(array, dtype=np.float32) for array in made]
            if not _well_formed(arrays, self._format.shapes):
                raise AggregationError("it is not finite or has another shape")
            return arrays, float(self._evaluate(arrays))
        except _ARITHMETIC_ERRORS as error:
            raise AggregationError(f"{type(error).__name__}: {error}") from error

    def _store_replies(
        self, session: Session, slot: SlotKey, gathered: _Gathered, now: datetime
    ) -> None:
        release_id = slot.release_id(self._timetable.period)
        for organization_id, (signed, _) in gathered.accepted.items():
            releases.give_receipt(
                session, organization_id, release_id, signed, key=self._key, at=now
            )
            digest = hashlib.sha256(signed.payload).digest()
            session.add(self._reply_row(slot, organization_id, ACCEPTED, gathered, digest))
        for organization_id, reason in gathered.refused.items():
            releases.count_rejection(session, organization_id, "model_update", reason)
            session.add(self._reply_row(slot, organization_id, reason.value, gathered, None))

    def _reply_row(
        self,
        slot: SlotKey,
        organization_id: bytes,
        outcome: str,
        gathered: _Gathered,
        digest: bytes | None,
    ) -> ReplyRow:
        period_start, window, index = row_key(self._timetable, slot)
        return ReplyRow(
            period_start=period_start,
            window=window,
            index=index,
            organization_id=organization_id,
            outcome=outcome,
            payload_sha256=digest,
            size=gathered.sizes.get(organization_id, 0),
        )

    def _miss(self, slot: SlotKey) -> RoundResult:
        now = self._clock()
        with self._database.transaction() as session:
            start = promotion_graph.start_of(session, self._timetable, window=slot.window)
            row = self._new_row(session, slot, start.version.version)
            row.outcome = Outcome.MISSED
            self._finish(session, row, now)
            session.add(row)
            audit.record(session, "round_missed", {"round": row.number}, at=now)
            return result_of(row, slot, {})

    def _finish(self, session: Session, row: RoundRow, now: datetime) -> None:
        row.closed_at = to_unix_ms(now)
        row.seconds = max(0, row.closed_at - row.opened_at) / 1000
        session.flush()


class AggregationError(FedperfError):
    """The method of the rounds made no model of what was accepted, or none that can be used."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no usable model could be made of what was accepted: {why}")


_ARITHMETIC_ERRORS = (
    ArithmeticError,
    ValueError,
    RuntimeError,
    InvalidInputError,
    ConfigurationError,
)
"""What numpy (ValueError), torch (RuntimeError) and our own checks raise over numbers that cannot
be computed with: the same again at every try. After any other failure, such as the database's,
the round stays open and is run again."""


def _well_formed(arrays: Sequence[NDArray[np.float32]], shapes: Sequence[tuple[int, ...]]) -> bool:
    if [array.shape for array in arrays] != [tuple(shape) for shape in shapes]:
        return False
    return all(bool(np.isfinite(array).all()) for array in arrays)
