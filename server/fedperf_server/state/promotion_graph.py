"""The graph of model versions: where a round starts, and which candidates wait for a verdict.

Every round is stored with the version that it started from and the one that it made. The version in
force is the newest promoted one. Older candidates were passed over: they are steps towards it, or
lost to it. Newer ones wait for their verdict: all those of the windows before the reports that
judge them, together.

Rounds stand on one ground: the version in force, or the newest candidate made of it that a verdict
left open. A round starts from the ground, or from the newest candidate that rounds of its own
window made of it: steps that are judged together. It never starts from a candidate of an earlier
window that nobody has judged, since that may be rejected at any moment.

While such a candidate waits for a verdict that can come in time, the round waits too. It waits for
at most `PATIENCE` of its slot, and starts from the version in force then. A verdict is expected
once all reports of the round's window are due and their grace is over, however many were made:
nobody's report is waited for longer. Where that is too late the round does not wait at all. So
calendars have reports well before rounds: in one that has them after, every round starts from what
the window before the last one made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from fedperf_server.state import registry
from fedperf_server.state.database import RoundRow
from fedperf_server.state.drift_regimes import epoch_at
from fedperf_server.state.registry import ModelVersion, VersionStatus
from fedperf_server.state.round_calendar import opens_at, replies_at
from fedperf_shared.releases.period import ReleaseCalendar, to_unix_ms
from fedperf_shared.releases.release import SlotKey

PATIENCE = 0.25
"""Share of its slot for which a round waits at most; the rest is left for training."""


@dataclass(frozen=True, slots=True)
class RoundStart:
    """The version that a round starts from, and the number of the epoch's rounds that made it."""

    version: ModelVersion
    steps_made: int


def start_of(session: Session, calendar: ReleaseCalendar, *, window: int) -> RoundStart:
    """The start of a round of that window, if it began now.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    period, start = calendar.period, _newest_step(session, calendar, window)
    epoch = epoch_at(session, period.window_start(window))
    first = period.window_at(epoch.begins_at) or 0
    way = _way_to(start, _bases(session, calendar, since_window=first))
    return RoundStart(registry.get_version(session, start), len(way))


def has_to_wait(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, *, grace: timedelta, now: datetime
) -> bool:
    """Whether a round waits because a candidate is about to be judged.

    It waits only for a verdict that comes in time: at most for a share (`PATIENCE`) of its slot.

    Args:
        session: of the caller's transaction.
        calendar: the calendar.
        slot: of the round.
        grace: how late reports may be, on which the verdict rests.
        now: the moment.
    """
    opens, replies = opens_at(calendar, slot), replies_at(calendar, slot)
    latest = opens + PATIENCE * (replies - opens)
    is_in_time = calendar.reported_window(latest - grace) >= slot.window
    waiting = undecided(session, calendar, window=slot.window, grace=grace)
    return now < latest and is_in_time and bool(waiting)


def undecided(
    session: Session, calendar: ReleaseCalendar, *, window: int, grace: timedelta
) -> tuple[int, ...]:
    """Candidates that wait for the reports of `window`, oldest first.

    They were made by rounds of windows before it and are newer than the version in force. The
    reports may be `grace` late. Once their verdict left the newest candidate open, none waits.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    in_force, stand = registry.in_force(session), registry.standings(session)
    waiting = tuple(
        version
        for version in sorted(_made_before(session, calendar, window))
        if version > in_force and stand[version] is VersionStatus.CANDIDATE
    )
    looked_at = registry.left_open(session).get(waiting[-1]) if waiting else None
    if looked_at is not None and calendar.reported_window(looked_at - grace) >= window:
        return ()
    return waiting


def candidates_after(session: Session, version: int) -> tuple[int, ...]:
    """All candidates that are newer than `version`, oldest first."""
    stand = registry.standings(session)
    return tuple(
        each for each in stand if each > version and stand[each] is VersionStatus.CANDIDATE
    )


def follow(session: Session, version: int, *, base: int, at: datetime) -> None:
    """Reject a version whose base was rejected or taken back while its round was under way."""
    if registry.standings(session)[base] is VersionStatus.REJECTED:
        said = f"trained from version {base}, which was rejected"
        registry.reject(session, version, said, at=at)


def _made_before(session: Session, calendar: ReleaseCalendar, window: int) -> set[int]:
    """Versions that rounds of windows before that one made, in this period or an earlier one."""
    start = to_unix_ms(calendar.period.start)
    query = select(RoundRow.new_version).where(
        RoundRow.new_version.is_not(None),
        or_(
            RoundRow.period_start < start,
            and_(RoundRow.period_start == start, RoundRow.window < window),
        ),
    )
    return {version for version in session.scalars(query) if version is not None}


def _newest_step(session: Session, calendar: ReleaseCalendar, window: int) -> int:
    """The newest candidate that the window's rounds made of the ground, or the ground itself."""
    stand = registry.standings(session)
    ground, made = _ground(session, calendar), _bases(session, calendar, since_window=window)
    bases = {each: made[each] for each in made if stand[each] is VersionStatus.CANDIDATE}
    steps = (each for each in bases if ground in _bases_of(each, bases))
    return max(steps, default=ground)


def _ground(session: Session, calendar: ReleaseCalendar) -> int:
    """The newest candidate left open that was made of the version in force, else that version."""
    in_force, bases = registry.in_force(session), _bases(session, calendar, since_window=0)
    made_of_it = (
        each for each in registry.left_open(session) if in_force in _bases_of(each, bases)
    )
    return max(made_of_it, default=in_force)


def _bases_of(version: int, bases: Mapping[int, int]) -> list[int]:
    """Its base, that of this, and so on, as long as they are known."""
    return [bases[each] for each in _way_to(version, bases)]


def _way_to(version: int, bases: Mapping[int, int]) -> list[int]:
    """The version, its base, and so on, as long as the base of each is known."""
    way: list[int] = []
    while version in bases:
        way.append(version)
        version = bases[version]
    return way


def _bases(session: Session, calendar: ReleaseCalendar, *, since_window: int) -> dict[int, int]:
    """The base of each version that the period's rounds made from that window on."""
    query = select(RoundRow.new_version, RoundRow.base_version).where(
        RoundRow.new_version.is_not(None),
        RoundRow.period_start == to_unix_ms(calendar.period.start),
        RoundRow.window >= since_window,
    )
    return {made: base for made, base in session.execute(query) if made is not None}
