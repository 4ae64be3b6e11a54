"""The round calendar orders the rounds of a period, finds the round that is due, and lists results.

Every window has the calendar's model slots. A window with which a drift regime begins has extra
ones, in at most `extra_windows` windows of the period. Rounds run one after the other, so a slot is
due when it has opened and all before it are closed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state.database import ReplyRow, RoundRow
from fedperf_server.state.drift_regimes import regime_starts
from fedperf_shared.releases.period import ReleaseCalendar, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey

ACCEPTED = "accepted"


@unique
class RoundOutcome(StrEnum):
    """The outcome of a round. `FAILED`: the accepted updates gave no usable model."""

    NEW_VERSION = "new_version"
    NO_QUORUM = "no_quorum"
    FAILED = "failed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a closed round.

    Attributes:
        number: number of the round, from 1 over all periods.
        slot: its slot.
        outcome: how it ended.
        asked: number of organizations whose schedule contains the slot.
        replies: number of accepted updates.
        failures: numbers of updates not accepted, by reason (`missing`: no reply).
        seconds: from its opening to its end.
        new_version: the model version that it made.
        public_error: error of that version on public data.
    """

    number: int
    slot: SlotKey
    outcome: RoundOutcome
    asked: int
    replies: int
    failures: Mapping[str, int]
    seconds: float
    new_version: int | None
    public_error: float | None


def round_results(session: Session, calendar: ReleaseCalendar) -> list[RoundResult]:
    """Return all closed rounds of the period, in order."""
    start = to_unix_ms(calendar.period.start)
    query = (
        select(RoundRow)
        .where(RoundRow.period_start == start, RoundRow.closed_at.is_not(None))
        .order_by(RoundRow.number)
    )
    results: list[RoundResult] = []
    for row in session.scalars(query).all():
        outcomes = session.scalars(
            select(ReplyRow.outcome).where(
                ReplyRow.period_start == start,
                ReplyRow.window == row.window,
                ReplyRow.index == row.index,
                ReplyRow.outcome != ACCEPTED,
            )
        )
        slot = SlotKey(ReleaseKind.MODEL_UPDATE, row.window, row.index)
        results.append(to_result(row, slot, Counter(outcomes)))
    return results


def to_result(row: RoundRow, slot: SlotKey, failures: Mapping[str, int]) -> RoundResult:
    """Return the result stored in a row, together with its failures by reason."""
    return RoundResult(
        number=row.number,
        slot=slot,
        outcome=RoundOutcome(row.outcome or RoundOutcome.MISSED),
        asked=row.asked,
        replies=row.replies,
        failures=dict(failures),
        seconds=row.seconds or 0.0,
        new_version=row.new_version,
        public_error=row.public_error,
    )


def new_round(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, base_version: int, *, at: datetime
) -> RoundRow:
    """Store a round that begins now, with the next number."""
    row = RoundRow(
        **row_key(calendar, slot),
        number=(session.scalar(select(func.max(RoundRow.number))) or 0) + 1,
        base_version=base_version,
        opened_at=to_unix_ms(at),
        asked=0,
        replies=0,
    )
    session.add(row)
    return row


def finish(session: Session, row: RoundRow, *, at: datetime) -> None:
    """Store when the round was closed, and how long it took."""
    row.closed_at = to_unix_ms(at)
    row.seconds = max(0, row.closed_at - row.opened_at) / 1000
    session.flush()


def row_key(calendar: ReleaseCalendar, slot: SlotKey) -> dict[str, int]:
    """Return the primary key of the slot's round, by column."""
    return {
        "period_start": to_unix_ms(calendar.period.start),
        "window": slot.window,
        "index": slot.index,
    }


def due_slot(session: Session, calendar: ReleaseCalendar, *, now: datetime) -> SlotKey | None:
    """Return the first slot that is not closed, if it has opened."""
    slot = next(_unclosed(session, calendar), None)
    return slot if slot is not None and opens_at(calendar, slot) <= now else None


def opens_at(calendar: ReleaseCalendar, slot: SlotKey) -> datetime:
    """Return the time at which a model slot opens."""
    start = calendar.period.window_start(slot.window)
    return start + calendar.model_times[slot.index].opens_after


def replies_at(calendar: ReleaseCalendar, slot: SlotKey) -> datetime:
    """Return the time at which the replies to a model slot are due."""
    start = calendar.period.window_start(slot.window)
    return start + calendar.model_times[slot.index].replies_after


def _unclosed(session: Session, calendar: ReleaseCalendar) -> Iterator[SlotKey]:
    closed = _closed(session, calendar)
    return (slot for slot in _slots(session, calendar) if (slot.window, slot.index) not in closed)


def _slots(session: Session, calendar: ReleaseCalendar) -> Iterator[SlotKey]:
    """Yield the model slots in the order in which they open."""
    period, times = calendar.period, calendar.model_times
    first_windows = {period.first_window(each) for each in regime_starts(session)}
    ordinary, extra_left = len(calendar.model_slots), calendar.extra_windows
    for window in range(period.windows):
        has_extra = window in first_windows and extra_left > 0
        extra_left -= has_extra
        indices = range(len(times) if has_extra else ordinary)
        for index in sorted(indices, key=lambda each: times[each].opens_after):
            yield SlotKey(ReleaseKind.MODEL_UPDATE, window, index)


def _closed(session: Session, calendar: ReleaseCalendar) -> set[tuple[int, int]]:
    """Return window and index of every closed round of the period."""
    query = select(RoundRow.window, RoundRow.index).where(
        RoundRow.period_start == to_unix_ms(calendar.period.start),
        RoundRow.closed_at.is_not(None),
    )
    return {(window, index) for window, index in session.execute(query)}
