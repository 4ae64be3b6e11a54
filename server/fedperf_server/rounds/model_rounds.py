"""The model rounds of a calendar, one slot after the other, as a durable state machine.

Each call takes the replies that have arrived and advances the round. It never waits. A round is
stored before requests are sent. Closing it stores the new model version, the receipts and the
counts of refusals in one transaction. A coordinator that was killed in between finds the round open
and runs it again. Organizations then send the bytes that they stored, so that noise is never
sampled twice. A slot that passed while the coordinator was down is closed as missed.

A Flower `Strategy` (`round_strategy`) defines how a round trains. It uses a `Grid` of the members
(`member_grid`), and its hooks are called as messages are sent and arrive, perhaps days apart. Its
linear query is stored with the round. So a coordinator that was killed sends the same query again.

The slots of a calendar that trains by DP-SGD are closed as missed.

No organization can delay or spoil a round. A reply that does not arrive by the deadline is missing.
An invalid reply is refused and counted. With fewer accepted updates than the quorum the model is
not changed. If the updates give no usable model, it is not changed either, and the round is closed
as failed. A usable model is finite, has the shapes of its format, and has an error on public data.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from fedperf_server.membership.enrollment import Enrollment, Member
from fedperf_server.rehearsal import buffer
from fedperf_server.rounds.member_grid import MemberGrid, message_id
from fedperf_server.rounds.open_round import Fleet, OpenRound, RoundRules
from fedperf_server.rounds.round_record import (
    finish,
    query_row,
    reject_contradictions,
    round_row,
    store_replies,
)
from fedperf_server.rounds.round_strategy import (
    RoundStrategy,
    round_arrays,
    round_config,
    weights_in,
)
from fedperf_server.state import audit, promotion_graph, registry, releases, round_calendar
from fedperf_server.state.database import Database, DatabaseError, RoundQueryRow, RoundRow
from fedperf_server.state.registry import ModelFormat
from fedperf_server.state.round_calendar import RoundOutcome, RoundResult, row_key, to_result
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import ConfigurationError, FedperfError, InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import decode_tangent_question

Evaluate = Callable[[Weights], float]
"""Returns the model's error on public data."""


class AggregationError(FedperfError):
    """Raised when the accepted updates give no usable model."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the accepted updates give no usable model: {reason}")


def next_model(
    number: int,
    replies: Sequence[Message],
    *,
    strategy: RoundStrategy,
    model_format: ModelFormat,
    evaluate: Evaluate,
) -> tuple[Weights, float]:
    """Return the model after round `number`, which was configured, and its error.

    Raises:
        AggregationError: there is no usable model.
    """
    try:
        aggregated, _ = strategy.aggregate_train(number, replies)
        if aggregated is None:
            raise AggregationError("there was no reply")
        arrays = [np.asarray(array, dtype=np.float32) for array in weights_in(aggregated)]
        if not _is_well_formed(arrays, model_format.shapes):
            raise AggregationError("it is not finite or has a wrong shape")
        return arrays, float(evaluate(arrays))
    except _ARITHMETIC_ERRORS as error:
        raise AggregationError(f"{type(error).__name__}: {error}") from error


_ARITHMETIC_ERRORS = (
    ArithmeticError,
    ValueError,
    RuntimeError,
    InvalidInputError,
    ConfigurationError,
)
"""Errors of numpy (ValueError), torch (RuntimeError) and our own checks over invalid numbers, which
every repetition raises again. After any other failure, such as of the database, the round stays
open and is run again."""


def _is_well_formed(
    arrays: Sequence[NDArray[np.float32]], shapes: Sequence[tuple[int, ...]]
) -> bool:
    if [array.shape for array in arrays] != [tuple(shape) for shape in shapes]:
        return False
    return all(bool(np.isfinite(array).all()) for array in arrays)


_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _RunningRound:
    """The state of an open round in this process.

    Attributes:
        opened: the round as it was stored.
        arrays: model and linear query for configuring the strategy.
        grid: members of the round.
        deadline: time at which missing replies are not waited for any more.
    """

    opened: OpenRound
    arrays: ArrayRecord
    grid: MemberGrid
    deadline: datetime


class ModelRounds:
    """Runs the rounds of a calendar as they become due."""

    def __init__(
        self,
        database: Database,
        enrollment: Enrollment,
        fleet: Fleet,
        *,
        calendar: ReleaseCalendar,
        rules: RoundRules,
        model_format: ModelFormat,
        signing_key: ec.EllipticCurvePrivateKey,
        strategy: RoundStrategy,
        evaluate: Evaluate,
    ) -> None:
        self._database = database
        self._enrollment = enrollment
        self._fleet = fleet
        self._calendar = calendar
        self._rules = rules
        self._format = model_format
        self._key = signing_key
        self._strategy = replace(strategy, rehearsed=self._rehearsed)
        self._evaluate = evaluate
        self._running: _RunningRound | None = None

    def run_once(self, *, at: datetime) -> tuple[RoundResult, ...]:
        """Admit new members, begin or advance the due round, and return closed rounds.

        A call that fails in the database can be repeated. Transactions are stored whole or not at
        all, and organizations send the bytes that they stored.
        """
        members = self._admit()
        try:
            if self._running is None:
                slot = self._due(at)
                if slot is None:
                    return ()
                if self._calendar.model_method is ModelMethod.UNSPECIFIED:
                    is_over = at > round_calendar.replies_at(self._calendar, slot)
                    return (self._miss(slot, at=at),) if is_over else ()
                opened = self._load(slot)
                if opened is None and at > round_calendar.replies_at(self._calendar, slot):
                    return (self._miss(slot, at=at),)
                if opened is None and self._must_wait(slot, at=at):
                    return ()
                self._running = self._begin(opened or self._open(slot, at=at), at=at)
            return self._advance(self._running, members, at=at)
        except DatabaseError:
            raise
        except Exception:
            self.interrupt()
            raise

    def interrupt(self) -> None:
        """Interrupt the open round; the next call finds it open and runs it again."""
        if self._running is not None:
            self._running.grid.close()
            self._running = None

    def _admit(self) -> Mapping[bytes, Member]:
        members = {each.organization_id: each for each in self._enrollment.members()}
        self._fleet.set_members({key: each.public_key for key, each in members.items()})
        return members

    def _due(self, at: datetime) -> SlotKey | None:
        with self._database.transaction() as session:
            return round_calendar.due_slot(session, self._calendar, now=at)

    def _must_wait(self, slot: SlotKey, *, at: datetime) -> bool:
        with self._database.transaction() as session:
            return promotion_graph.must_wait(
                session, self._calendar, slot, grace=self._rules.grace, now=at
            )

    def _begin(self, opened: OpenRound, *, at: datetime) -> _RunningRound:
        replies_at = round_calendar.replies_at(self._calendar, opened.slot)
        deadline = max(replies_at, at) + self._rules.grace
        grid = MemberGrid(self._fleet.round(), opened, check=self._strategy.check)
        return _RunningRound(opened, round_arrays(opened.current, opened.query), grid, deadline)

    def _advance(
        self, running: _RunningRound, members: Mapping[bytes, Member], *, at: datetime
    ) -> tuple[RoundResult, ...]:
        """Exchange messages, and close the round once all replied or its time is over."""
        replies = running.grid.replies
        self._exchange(running, members)
        if at < running.deadline and not replies.is_complete():
            return ()
        for organization_id in replies.schedules:
            if not replies.answered(organization_id):
                replies.refused[organization_id] = Reason.MISSING
        result = self._close(running.opened, running.grid, at=at)
        self.interrupt()
        return (result,)

    def _load(self, slot: SlotKey) -> OpenRound | None:
        """Return the stored round, or None if it was not begun."""
        key = row_key(self._calendar, slot)
        with self._database.transaction() as session:
            row, stored_query = session.get(RoundRow, key), session.get(RoundQueryRow, key)
            if row is None:
                return None
            base = registry.get_version(session, row.base_version)
        query = decode_tangent_question(stored_query.payload) if stored_query else None
        current = self._format.decode(base.checkpoint)
        return OpenRound(row.number, slot, base.version, current, query)

    def _open(self, slot: SlotKey, *, at: datetime) -> OpenRound:
        """Store that the round began, with its base model and linear query."""
        with self._database.transaction() as session:
            start = promotion_graph.find_round_start(session, self._calendar, window=slot.window)
        base = start.version
        current = self._format.decode(base.checkpoint)
        query = self._strategy.question(current, steps_made=start.steps_made)
        with self._database.transaction() as session:
            row = round_row(session, self._calendar, slot, base.version, at=at)
            session.add(row)
            if query is not None:
                session.add(query_row(self._calendar, slot, query))
            audit.record(session, "round_opened", {"round": row.number}, at=at)
            return OpenRound(row.number, slot, base.version, current, query)

    def _admit_to_round(self, members: Mapping[bytes, Member], running: _RunningRound) -> None:
        """Admit members whose schedule contains the slot, also during the round."""
        slot, replies = running.opened.slot, running.grid.replies
        new = members.keys() - replies.schedules.keys() - replies.others
        if not new:
            return
        with self._database.transaction() as session:
            for organization_id in sorted(new):
                schedule = releases.declared_schedule(
                    session, organization_id, self._calendar.period
                )
                if schedule is None:
                    continue
                if schedule.slot(slot) is None:
                    replies.others.add(organization_id)
                else:
                    replies.schedules[organization_id] = schedule

    def _rehearsed(self) -> tuple[SyntheticRow, ...]:
        with self._database.transaction() as session:
            return buffer.rows(session)

    def _exchange(self, running: _RunningRound, members: Mapping[bytes, Member]) -> None:
        """Send requests to connected nodes, and receive replies."""
        opened, grid = running.opened, running.grid
        self._admit_to_round(members, running)
        grid.set_members(members)
        config = round_config(
            opened.slot,
            architecture=self._format.architecture,
            base_version=opened.base_version,
        )
        grid.push_messages(
            self._strategy.configure_train(opened.number, running.arrays, config, grid)
        )
        grid.receive()

    def _close(self, opened: OpenRound, grid: MemberGrid, *, at: datetime) -> RoundResult:
        """Make the new version, if there is one, and store everything in one transaction."""
        slot, replies = opened.slot, grid.replies
        with self._database.transaction() as session:
            reject_contradictions(session, self._calendar, slot, replies)
        outcome, arrays, error = self._aggregate(opened, grid)
        with self._database.transaction() as session:
            row = session.get_one(RoundRow, row_key(self._calendar, slot))
            if arrays is not None:
                row.new_version = registry.add_version(
                    session,
                    self._format,
                    arrays,
                    at=at,
                    public_error=error,
                    promoted=self._rules.promote,
                )
                promotion_graph.reject_with_base(
                    session, row.new_version, base=opened.base_version, at=at
                )
            row.outcome = outcome
            row.asked, row.replies = len(replies.schedules), len(replies.accepted)
            row.public_error = error
            finish(session, row, at=at)
            store_replies(session, self._calendar, slot, replies, key=self._key, at=at)
            failures = Counter(reason.value for reason in replies.refused.values())
            result = to_result(row, slot, failures)
            detail: audit.Detail = {
                "round": row.number,
                "replies": row.replies,
                "outcome": row.outcome,
            }
            audit.record(session, "round_closed", detail, at=at)
        return result

    def _aggregate(
        self, opened: OpenRound, grid: MemberGrid
    ) -> tuple[RoundOutcome, Weights | None, float | None]:
        """Return the outcome of the round, and the next model with its error if there is one."""
        if len(grid.replies.accepted) < self._rules.quorum:
            return RoundOutcome.NO_QUORUM, None, None
        try:
            return RoundOutcome.NEW_VERSION, *next_model(
                opened.number,
                grid.pull_messages(map(message_id, grid.replies.accepted)),
                strategy=self._strategy,
                model_format=self._format,
                evaluate=self._evaluate,
            )
        except AggregationError as error:
            _log.warning("a round failed, the model is not changed", exc_info=error)
            return RoundOutcome.FAILED, None, None

    def _miss(self, slot: SlotKey, *, at: datetime) -> RoundResult:
        with self._database.transaction() as session:
            start = promotion_graph.find_round_start(session, self._calendar, window=slot.window)
            row = session.get(RoundRow, row_key(self._calendar, slot)) or round_row(
                session, self._calendar, slot, start.version.version, at=at
            )
            row.outcome = RoundOutcome.MISSED
            finish(session, row, at=at)
            session.add(row)
            audit.record(session, "round_missed", {"round": row.number}, at=at)
            return to_result(row, slot, {})
