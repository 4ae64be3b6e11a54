"""How versions descend from each other: where a round starts, and which candidates are judged.

Every round is stored with the version that it started from and the one that it made. The
version in force is the newest promoted one. Candidates that are older were passed over: they
are steps towards it, or lost to it. Those that are newer wait for their verdict, all of the
windows before the reports that judge them together.
"""

from datetime import datetime

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from fedperf_server import registry
from fedperf_server.database import RoundRow
from fedperf_server.registry import Standing
from fedperf_shared.period import Timetable, to_unix_ms


def undecided(session: Session, timetable: Timetable, *, window: int) -> tuple[int, ...]:
    """Candidates that wait for the reports of `window`, oldest first.

    They were made by rounds of windows before it and are newer than the version in force.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    in_force, stand = registry.in_force(session), registry.standings(session)
    return tuple(
        version
        for version in sorted(_made_before(session, timetable, window))
        if version > in_force and stand[version] is Standing.CANDIDATE
    )


def candidates_after(session: Session, version: int) -> tuple[int, ...]:
    """All candidates that are newer than `version`, oldest first."""
    stand = registry.standings(session)
    return tuple(each for each in stand if each > version and stand[each] is Standing.CANDIDATE)


def follow(session: Session, version: int, *, base: int, at: datetime) -> None:
    """Reject a version whose base was rejected or taken back while its round was under way."""
    if registry.standings(session)[base] is Standing.REJECTED:
        said = f"trained from version {base}, which was rejected"
        registry.reject(session, version, said, at=at)


def steps_to(session: Session, timetable: Timetable, version: int, *, since_window: int) -> int:
    """By how many rounds of the period, from that window on, the version was made."""
    bases, steps = _bases(session, timetable, since_window), 0
    while version in bases:
        version, steps = bases[version], steps + 1
    return steps


def _made_before(session: Session, timetable: Timetable, window: int) -> set[int]:
    """Versions that rounds of windows before that one made, in this period or an earlier one."""
    start = to_unix_ms(timetable.period.start)
    query = select(RoundRow.new_version).where(
        RoundRow.new_version.is_not(None),
        or_(
            RoundRow.period_start < start,
            and_(RoundRow.period_start == start, RoundRow.window < window),
        ),
    )
    return {version for version in session.scalars(query) if version is not None}


def _bases(session: Session, timetable: Timetable, since_window: int) -> dict[int, int]:
    """What each version was made of that rounds of the period made from that window on."""
    query = select(RoundRow.new_version, RoundRow.base_version).where(
        RoundRow.new_version.is_not(None),
        RoundRow.period_start == to_unix_ms(timetable.period.start),
        RoundRow.window >= since_window,
    )
    return {made: base for made, base in session.execute(query) if made is not None}
