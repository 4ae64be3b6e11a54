"""The rounds of a period in the order of their slots, and the one that is due.

Every window has the timetable's model slots. A window with which an epoch begins has extra ones, as
often in the period as the timetable says. Rounds run one after the other, so a slot is due when it
has opened and all before it are closed.
"""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.state.database import RoundRow
from fedperf_server.state.epochs import epoch_starts
from fedperf_shared.releases.period import Timetable, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey


def due_slot(session: Session, timetable: Timetable, *, now: datetime) -> SlotKey | None:
    """The first slot that is not closed, if it has opened."""
    slot = next(_unclosed(session, timetable), None)
    return slot if slot is not None and opens_at(timetable, slot) <= now else None


def opens_at(timetable: Timetable, slot: SlotKey) -> datetime:
    """The time at which a model slot opens."""
    start = timetable.period.window_start(slot.window)
    return start + timetable.model_times[slot.index].opens_after


def replies_at(timetable: Timetable, slot: SlotKey) -> datetime:
    """The time at which the replies to a model slot are due."""
    start = timetable.period.window_start(slot.window)
    return start + timetable.model_times[slot.index].replies_after


def _unclosed(session: Session, timetable: Timetable) -> Iterator[SlotKey]:
    closed = _closed(session, timetable)
    return (slot for slot in _slots(session, timetable) if (slot.window, slot.index) not in closed)


def _slots(session: Session, timetable: Timetable) -> Iterator[SlotKey]:
    """In the order in which they open."""
    period, times = timetable.period, timetable.model_times
    begun = {period.first_window(each) for each in epoch_starts(session)}
    ordinary, extra_left = len(timetable.model_slots), timetable.extra_windows
    for window in range(period.windows):
        has_extra = window in begun and extra_left > 0
        extra_left -= has_extra
        indices = range(len(times) if has_extra else ordinary)
        for index in sorted(indices, key=lambda each: times[each].opens_after):
            yield SlotKey(ReleaseKind.MODEL_UPDATE, window, index)


def _closed(session: Session, timetable: Timetable) -> set[tuple[int, int]]:
    """Window and index of every closed round of the period."""
    query = select(RoundRow.window, RoundRow.index).where(
        RoundRow.period_start == to_unix_ms(timetable.period.start),
        RoundRow.closed_at.is_not(None),
    )
    return {(window, index) for window, index in session.execute(query)}
