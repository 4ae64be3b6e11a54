"""Rounds as they are stored, and what a closed one says."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.state.database import ReplyRow, RoundRow
from fedperf_shared.releases.period import Timetable, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey

ACCEPTED = "accepted"


@unique
class RoundOutcome(StrEnum):
    """The outcome of a round; `FAILED`: the accepted updates made no usable model."""

    NEW_VERSION = "new_version"
    NO_QUORUM = "no_quorum"
    FAILED = "failed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One closed round.

    Attributes:
        number: rounds count from 1 over all periods.
        slot: its slot.
        outcome: how it ended.
        asked: organizations whose schedule holds the slot.
        replies: accepted updates.
        failures: how many were not accepted, by reason (`missing`: no answer).
        seconds: from its opening to its end.
        new_version: the model version that it made.
        public_error: of that version, on public data.
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


def round_results(session: Session, timetable: Timetable) -> list[RoundResult]:
    """All closed rounds of the period, in order."""
    start = to_unix_ms(timetable.period.start)
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
        results.append(result_of(row, slot, Counter(outcomes)))
    return results


def result_of(row: RoundRow, slot: SlotKey, failures: Mapping[str, int]) -> RoundResult:
    """The result in a row, together with its failures by reason."""
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


def row_key(timetable: Timetable, slot: SlotKey) -> tuple[int, int, int]:
    """The primary key of the slot's round."""
    return to_unix_ms(timetable.period.start), slot.window, slot.index
