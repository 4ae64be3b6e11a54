"""The round calendar finds the round that is due, and the model version from which it starts.

Every window has the calendar's model slots. A window with which a drift regime begins has extra
ones, in at most `extra_windows` windows of the period. Rounds run one after the other, so a slot is
due when it has opened and all before it are closed.

Every round is stored with its base version and the version that it made. The current version is the
newest promoted one. Older candidates were skipped: they are steps towards it, or were worse. Newer
candidates wait for a decision. All candidates of the windows before the reports are decided
together.

All rounds share one ground version: the current version, or the newest candidate derived from it
whose decision was inconclusive. A round starts from the ground, or from the newest candidate that
rounds of its own window derived from it. Such steps are decided together. A round never starts from
an undecided candidate of an earlier window, because that may be rejected at any time.

While a candidate waits for a decision that can come in time, the round waits too, for at most
`PATIENCE` of its slot. After that it starts from the current version. A decision is expected once
all reports of the round's window are due and their grace period is over, however many arrived. If
that is too late, the round does not wait at all. So calendars should have reports well before
rounds. Otherwise every round starts from the version of the window before the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from fedperf_server.state import registry
from fedperf_server.state.database import ModelRound, VersionStatus, slot_key
from fedperf_server.state.drift_regimes import regime_at, regime_starts
from fedperf_server.state.registry import ModelVersion
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import ReleaseKind, SlotKey

PATIENCE = 0.25  # maximum share of its slot for which a round waits. The rest remains for training.


@dataclass(frozen=True, slots=True)
class RoundStart:
    """The base version of a round, and the number of the regime's rounds that led to it."""

    version: ModelVersion
    steps_made: int


def closed_rounds(session: Session, calendar: ReleaseCalendar) -> list[ModelRound]:
    """Return all closed rounds of the period, in order."""
    query = (
        select(ModelRound)
        .where(ModelRound.period_start == calendar.period.start, ModelRound.closed_at.is_not(None))
        .order_by(ModelRound.number)
    )
    return [*session.scalars(query)]


def new_round(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, base_version: int, *, at: datetime
) -> ModelRound:
    """Store a round that begins now, with the next number."""
    row = ModelRound(
        **slot_key(calendar.period, slot),
        number=(session.scalar(select(func.max(ModelRound.number))) or 0) + 1,
        base_version=base_version,
        opened_at=at,
        reply_rows=[],
    )
    session.add(row)
    return row


def due_slot(session: Session, calendar: ReleaseCalendar, *, now: datetime) -> SlotKey | None:
    """Return the first slot that is not closed, if it has opened."""
    query = select(ModelRound.window, ModelRound.index).where(
        ModelRound.period_start == calendar.period.start, ModelRound.closed_at.is_not(None)
    )
    closed = {(window, index) for window, index in session.execute(query)}
    period, times = calendar.period, calendar.model_times
    first_windows = {period.first_window(each) for each in regime_starts(session)}
    ordinary, extra_left = len(calendar.model_slots), calendar.extra_windows
    for window in range(period.windows):
        has_extra = window in first_windows and extra_left > 0
        extra_left -= has_extra
        indices = range(len(times) if has_extra else ordinary)
        for index in sorted(indices, key=lambda each: times[each].opens_after):
            if (window, index) not in closed:
                slot = SlotKey(ReleaseKind.MODEL_UPDATE, window, index)
                return slot if opens_at(calendar, slot) <= now else None
    return None


def opens_at(calendar: ReleaseCalendar, slot: SlotKey) -> datetime:
    """Return the time at which a model slot opens."""
    start = calendar.period.window_start(slot.window)
    return start + calendar.model_times[slot.index].opens_after


def replies_at(calendar: ReleaseCalendar, slot: SlotKey) -> datetime:
    """Return the time at which the replies to a model slot are due."""
    start = calendar.period.window_start(slot.window)
    return start + calendar.model_times[slot.index].replies_after


def find_round_start(session: Session, calendar: ReleaseCalendar, *, window: int) -> RoundStart:
    """Return the start of a round of that window, if it began now.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    period, base = calendar.period, _newest_step(session, calendar, window)
    regime = regime_at(session, period.window_start(window))
    first = period.window_at(regime.begins_at) or 0
    path = _path_to(base, _bases(session, calendar, since_window=first))
    return RoundStart(registry.get_version(session, base), len(path))


def must_wait(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, *, grace: timedelta, now: datetime
) -> bool:
    """Return whether a round waits because a candidate is about to be decided.

    It waits only for a decision that comes in time, at most for a share (`PATIENCE`) of its slot.

    Args:
        session: the caller's transaction.
        calendar: the calendar.
        slot: slot of the round.
        grace: how late the reports for the decision may be.
        now: current time.
    """
    opens, replies = opens_at(calendar, slot), replies_at(calendar, slot)
    latest = opens + PATIENCE * (replies - opens)
    is_in_time = calendar.reported_window(latest - grace) >= slot.window
    waiting = undecided(session, calendar, window=slot.window, grace=grace)
    return now < latest and is_in_time and bool(waiting)


def undecided(
    session: Session, calendar: ReleaseCalendar, *, window: int, grace: timedelta
) -> tuple[int, ...]:
    """Return the candidates that wait for the reports of `window`, oldest first.

    They were made by rounds of earlier windows and are newer than the current version. The
    reports may be `grace` late. Once the newest candidate was inconclusive, none waits.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    current, statuses = registry.current_version(session), registry.statuses(session)
    start = calendar.period.start
    made_before = select(ModelRound.new_version).where(
        or_(
            ModelRound.period_start < start,
            and_(ModelRound.period_start == start, ModelRound.window < window),
        ),
        ModelRound.new_version > current,
    )
    waiting = tuple(
        version
        for version in session.scalars(made_before.order_by(ModelRound.new_version))
        if version is not None and statuses[version] is VersionStatus.CANDIDATE
    )
    decided_at = registry.inconclusive(session).get(waiting[-1]) if waiting else None
    if decided_at is not None and calendar.reported_window(decided_at - grace) >= window:
        return ()
    return waiting


def candidates_after(session: Session, version: int) -> tuple[int, ...]:
    """Return all candidates that are newer than `version`, oldest first."""
    statuses = registry.statuses(session)
    return tuple(
        each for each in statuses if each > version and statuses[each] is VersionStatus.CANDIDATE
    )


def _newest_step(session: Session, calendar: ReleaseCalendar, window: int) -> int:
    """Return the newest candidate that the window's rounds made of the ground, or the ground."""
    statuses = registry.statuses(session)
    ground, made = _ground(session, calendar), _bases(session, calendar, since_window=window)
    bases = {each: made[each] for each in made if statuses[each] is VersionStatus.CANDIDATE}
    steps = (each for each in bases if ground in _ancestors(each, bases))
    return max(steps, default=ground)


def _ground(session: Session, calendar: ReleaseCalendar) -> int:
    """Return the newest inconclusive candidate made of the current version, else that version."""
    current, bases = registry.current_version(session), _bases(session, calendar, since_window=0)
    descendants = (
        each for each in registry.inconclusive(session) if current in _ancestors(each, bases)
    )
    return max(descendants, default=current)


def _ancestors(version: int, bases: Mapping[int, int]) -> list[int]:
    """Return its base, the base of that, and so on, up to an unknown base."""
    return [bases[each] for each in _path_to(version, bases)]


def _path_to(version: int, bases: Mapping[int, int]) -> list[int]:
    """Return the version, its base, and so on, up to an unknown base."""
    path: list[int] = []
    while version in bases:
        path.append(version)
        version = bases[version]
    return path


def _bases(session: Session, calendar: ReleaseCalendar, *, since_window: int) -> dict[int, int]:
    """Return the base of each version that the period's rounds made from that window on."""
    query = select(ModelRound.new_version, ModelRound.base_version).where(
        ModelRound.new_version.is_not(None),
        ModelRound.period_start == calendar.period.start,
        ModelRound.window >= since_window,
    )
    return {made: base for made, base in session.execute(query) if made is not None}
