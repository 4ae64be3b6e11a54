"""The questions of directed slots, as they are stored: once, before anybody gets them.

A stored question never changes, so whoever asks for it again gets the same.
"""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state.database import QuestionRow
from fedperf_shared.releases.period import Period, to_unix_ms
from fedperf_shared.releases.questions import CellQuestion
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import decode_question, encode_question


def is_asked(session: Session, period: Period, slot: SlotKey) -> bool:
    """Whether the slot has a question."""
    return session.get(QuestionRow, _key(period, slot)) is not None


def asked_question(session: Session, period: Period, slot: SlotKey) -> CellQuestion | None:
    """The question of the slot; None where none was made."""
    row = session.get(QuestionRow, _key(period, slot))
    return decode_question(row.payload) if row else None


def newest_question(session: Session) -> int:
    """The number of the newest question of all periods; 0 where there is none."""
    return session.scalar(select(func.max(QuestionRow.version))) or 0


def stored_questions(session: Session, period: Period) -> Iterator[CellQuestion]:
    """The questions of a period, oldest slot first."""
    query = (
        select(QuestionRow)
        .where(QuestionRow.period_start == to_unix_ms(period.start))
        .order_by(QuestionRow.window, QuestionRow.index)
    )
    return (decode_question(row.payload) for row in session.scalars(query))


def store_question(
    session: Session, period: Period, question: CellQuestion, *, at: datetime
) -> None:
    """Keep a question that was made at that moment."""
    period_start, window, index = _key(period, question.slot)
    session.add(
        QuestionRow(
            period_start=period_start,
            window=window,
            index=index,
            version=question.version,
            payload=encode_question(question),
            asked_at=to_unix_ms(at),
        )
    )


def _key(period: Period, slot: SlotKey) -> tuple[int, int, int]:
    return to_unix_ms(period.start), slot.window, slot.index
