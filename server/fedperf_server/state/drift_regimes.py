"""Drift regimes are the runs of consecutive windows between two declared drifts.

A regime begins with a window: the first that starts at or after the declared time, which may be the
end of the previous calendar. A regime is public. It fixes the reference version for residuals,
groups the reports, and defines how an organization stratifies its own history. The first regime
began before all data. Declaring is one transaction, and at most one regime begins with a window. A
coordinator that was killed and declares again finds the regime that it had declared.

Reports lag behind by a window, because a report covers windows that are over. So the reports of a
regime's first window still belong to the previous regime, with its reference, queries and evidence.
Training has no such lag: the extra rounds of a regime are in its first windows. A report about a
regime covers nothing that finished before the regime began. An execution that is stored after its
report was made is in no report. It is used in local training and in model updates.

A report may arrive months late. It is evidence about the regime that its window covers. It is not
used once that regime is over: corrections, drift detection and promotion use the current regime,
the buffer stores a regime once, and a decision is never changed.

A regime is declared by an operator, or after a drift that the reports of several organizations show
(`controllers.drift`). Both depend on public data and on releases only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state import registry
from fedperf_server.state.database import (
    ModelVersionRow,
    PromotionRecord,
    RegimeRow,
    RegimeTrigger,
    record_event,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.vocabulary import Platform

FIRST_REGIME = 1

BEFORE_EVERYTHING = datetime(1970, 1, 1, tzinfo=UTC)  # start of the first regime

_DECISION_COUNTS = select(
    select(func.max(ModelVersionRow.version)).scalar_subquery(),
    select(func.max(PromotionRecord.number)).scalar_subquery(),
    select(func.count()).select_from(RegimeRow).scalar_subquery(),
    select(func.max(RegimeRow.begins_at)).scalar_subquery(),
)


@dataclass(frozen=True, slots=True)
class DriftRegime:
    """A drift regime."""

    number: int  # from 1
    begins_at: datetime  # start of its first window, or the end of the previous calendar
    reference_version: int  # model version that residuals refer to
    cause: RegimeTrigger  # why it began
    platforms: tuple[Platform, ...] = ()  # platforms that changed; empty if unknown
    note: str = ""  # the operator's words, which are never sent


def regimes(session: Session) -> tuple[DriftRegime, ...]:
    """Return all regimes, the first one included, oldest first.

    Raises:
        UnknownVersionError: no model was promoted yet.
    """
    first = DriftRegime(
        FIRST_REGIME, BEFORE_EVERYTHING, registry.first_promoted(session), RegimeTrigger.START
    )
    rows = session.scalars(select(RegimeRow).order_by(RegimeRow.begins_at))
    later = (
        DriftRegime(
            number, row.begins_at, row.reference_version, row.cause, row.platforms, row.note
        )
        for number, row in enumerate(rows, FIRST_REGIME + 1)
    )
    return (first, *later)


def decision_counts(session: Session) -> tuple[int, ...]:
    """Return newest version and decision, the number of regimes, and the start of the last one.

    Rows are only added. So while these numbers are equal, the current version and the regimes are
    the same.
    """
    return tuple(each or 0 for each in session.execute(_DECISION_COUNTS).one())


def regime_at(session: Session, timestamp: datetime) -> DriftRegime:
    """Return the regime at `timestamp`; raises as `regimes`."""
    return [each for each in regimes(session) if each.begins_at <= timestamp][-1]


def find_reported_regime(
    declared: Sequence[DriftRegime], period: Period, *, window: int
) -> DriftRegime:
    """Return the regime that reports of `window` cover.

    Reports cover completed windows, so it is the regime of the window before.

    Args:
        declared: all regimes, oldest first, the first one included.
        period: the period whose windows are counted.
        window: from 0.
    """
    return [each for each in declared if period.first_window(each.begins_at) < window][-1]


def regime_starts(session: Session) -> frozenset[datetime]:
    """Return the starts of all regimes after the first one."""
    return frozenset(session.scalars(select(RegimeRow.begins_at)))


def declare(
    session: Session,
    period: Period,
    cause: RegimeTrigger,
    *,
    platforms: Sequence[Platform] = (),
    note: str = "",
    at: datetime,
) -> DriftRegime:
    """Declare that a regime begins with the window after `at`.

    Its reference is the newest promoted version. If a regime begins with that window already,
    nothing is changed and that regime is returned.

    Args:
        session: the caller's transaction.
        period: the period whose windows are counted.
        cause: why it begins.
        platforms: platforms that changed; empty if unknown.
        note: the operator's words.
        at: current time.

    Raises:
        InvalidInputError: the calendar has ended.
        UnknownVersionError: no model was promoted yet.
    """
    if not at < period.end:
        raise InvalidInputError(
            f"the calendar ended at {period.end.isoformat()}; set the next "
            "period_start in [calendar] first"
        )
    window = period.window_at(at)
    begins_at = period.start if window is None else period.window_start(window + 1)
    if session.get(RegimeRow, begins_at) is None:
        reference = registry.get_version(session, 0).version
        session.add(
            RegimeRow(
                begins_at=begins_at,
                reference_version=reference,
                cause=cause,
                platforms=tuple(platforms),
                note=note,
                declared_at=at,
            )
        )
        session.flush()
        record_event(
            session,
            "epoch_declared",
            at=at,
            begins_at=begins_at.isoformat(),
            cause=str(cause),
            reference_version=reference,
        )
    return next(each for each in regimes(session) if each.begins_at == begins_at)


def declare_change(
    session: Session, period: Period, *, platforms: Sequence[Platform], note: str, at: datetime
) -> DriftRegime:
    """Declare a regime for an operator; the same declaration again returns the same regime.

    Raises:
        InvalidInputError: another one begins with that window already, or the calendar has ended.
        UnknownVersionError: no model was promoted yet.
    """
    regime = declare(session, period, RegimeTrigger.DECLARED, platforms=platforms, note=note, at=at)
    declared = (RegimeTrigger.DECLARED, tuple(platforms), note)
    if (regime.cause, regime.platforms, regime.note) != declared:
        names = ", ".join(each.name.lower() for each in regime.platforms) or "not known"
        stated = f", note: {regime.note!r}" if regime.note else ""
        raise InvalidInputError(
            f"a drift regime begins at {regime.begins_at.isoformat()} already ({regime.cause}, "
            f"platforms: {names}{stated}) and covers your change as well; nothing was changed"
        )
    return regime
