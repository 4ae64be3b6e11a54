"""Epochs: consecutive windows between two declared drifts, and what they freeze.

An epoch begins with a window, never inside one: the first that starts at or after the moment that
was declared, which may be the end of the calendar before. It is public: what residuals are taken
against (its reference version), which reports belong together, and how an organization
stratifies its own history all follow from it. The first one began before everything.
Declaring is one transaction, and at most one epoch begins with a window: a coordinator that
was killed and declares again finds what it had declared.

Reports lag behind by a window: those made in a window are about windows that are over. So in the
first window of an epoch they still belong to the one before, with its reference, its questions and
its evidence. Training has no such lag: the extra rounds of an epoch are in its first windows.
About an epoch a report says nothing of what finished before it began, even where the
organization's report before that one lies further back; and what is stored only after its report
was made is in none, but in training at home and in model updates.

A report may come months late, and is evidence of the epoch that its window is about. Where that
is over nothing is read from it any more: corrections, drift and verdicts rest on the epoch of now,
what the buffer keeps of an epoch it keeps once, and a verdict that was made stays.

Who declares: the operator, who announces an upgrade, or the drift that several organizations'
reports show (`desks.drift`). Both are functions of public things and of releases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum, unique

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state import audit, registry
from fedperf_server.state.database import EpochRow, ModelVersionRow, VerdictRow
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.period import Period, from_unix_ms, to_unix_ms
from fedperf_shared.workflow.vocabulary import Platform

FIRST_EPOCH = 1

BEFORE_EVERYTHING = datetime(1970, 1, 1, tzinfo=UTC)
"""When the first epoch began."""

_DECIDED = select(
    select(func.max(ModelVersionRow.version)).scalar_subquery(),
    select(func.max(VerdictRow.number)).scalar_subquery(),
    select(func.count()).select_from(EpochRow).scalar_subquery(),
    select(func.max(EpochRow.begins_at)).scalar_subquery(),
)


class NoNextWindowError(InvalidInputError):
    """An epoch was declared after the end of the calendar."""

    def __init__(self, period: Period) -> None:
        super().__init__(
            f"the calendar ended at {period.end.isoformat()}; give the server the next period's "
            "calendar first"
        )


class RegimeAlreadyDeclaredError(InvalidInputError):
    """An operator announced an epoch where another one begins already."""

    def __init__(self, epoch: "DriftRegime") -> None:
        platforms = ", ".join(each.name.lower() for each in epoch.platforms) or "not known"
        note = f", note: {epoch.note!r}" if epoch.note else ""
        super().__init__(
            f"an epoch begins with {epoch.begins_at.isoformat()} already ({epoch.cause}, "
            f"platforms: {platforms}{note}) and parts what you announce from before as well; "
            "nothing was changed"
        )
        self.epoch = epoch


@unique
class RegimeTrigger(StrEnum):
    """Why an epoch began."""

    START = "start"
    SHARED_DRIFT = "shared drift"
    ANNOUNCED = "announced"


@dataclass(frozen=True, slots=True)
class DriftRegime:
    """One epoch.

    Attributes:
        number: from 1.
        begins_at: start of its first window, or the end of the calendar before that.
        reference_version: model version that residuals are taken against.
        cause: why it began.
        platforms: that changed, as far as is known.
        note: the operator's words, which stay here.
    """

    number: int
    begins_at: datetime
    reference_version: int
    cause: RegimeTrigger
    platforms: tuple[Platform, ...] = ()
    note: str = ""


def epochs(session: Session) -> tuple[DriftRegime, ...]:
    """All that were declared, the first one included, oldest first.

    Raises:
        UnknownVersionError: no model was promoted yet, so there is nothing to refer to.
    """
    first = DriftRegime(
        FIRST_EPOCH, BEFORE_EVERYTHING, registry.first_promoted(session), RegimeTrigger.START
    )
    rows = session.scalars(select(EpochRow).order_by(EpochRow.begins_at))
    return (first, *(_epoch(number, row) for number, row in enumerate(rows, FIRST_EPOCH + 1)))


def decided(session: Session) -> tuple[int, ...]:
    """The newest version and verdict, how many epochs there are, and when the last one begins.

    None of them is changed or taken away: while this is the same, so are the version in force and
    all epochs.
    """
    return tuple(each or 0 for each in session.execute(_DECIDED).one())


def epoch_at(session: Session, moment: datetime) -> DriftRegime:
    """The epoch that holds `moment`; errors as `epochs`."""
    return [each for each in epochs(session) if each.begins_at <= moment][-1]


def reported(session: Session, period: Period, *, window: int) -> DriftRegime:
    """The epoch that reports of `window` are about; errors as `epochs`."""
    return reported_among(epochs(session), period, window=window)


def reported_among(known: Sequence[DriftRegime], period: Period, *, window: int) -> DriftRegime:
    """The epoch that reports of `window` are about.

    Reports are about windows that are completed, so it is the epoch of the window before.

    Args:
        known: all epochs, oldest first, the first one included.
        period: whose windows are counted.
        window: from 0.
    """
    return [each for each in known if period.first_window(each.begins_at) < window][-1]


def epoch_starts(session: Session) -> frozenset[datetime]:
    """The beginnings of the epochs after the first one."""
    return frozenset(map(from_unix_ms, session.scalars(select(EpochRow.begins_at))))


def declare(
    session: Session,
    period: Period,
    cause: RegimeTrigger,
    *,
    platforms: Sequence[Platform] = (),
    note: str = "",
    at: datetime,
) -> DriftRegime:
    """Let an epoch begin with the window after `at`.

    Its reference is the newest promoted version of now. Where an epoch begins with that window
    already, nothing is changed and that one is given.

    Args:
        session: of the caller's transaction.
        period: whose windows are counted.
        cause: why it begins.
        platforms: that changed, as far as it is known.
        note: of an operator.
        at: now.

    Raises:
        NoNextWindowError: the calendar has ended.
        UnknownVersionError: no model was promoted yet.
    """
    begins_at = _next_window(period, at)
    if session.get(EpochRow, to_unix_ms(begins_at)) is None:
        reference = registry.get_version(session, 0).version
        session.add(
            EpochRow(
                begins_at=to_unix_ms(begins_at),
                reference_version=reference,
                cause=cause,
                platforms=" ".join(platform.name for platform in platforms),
                note=note,
                declared_at=to_unix_ms(at),
            )
        )
        session.flush()
        detail: audit.Detail = {
            "begins_at": begins_at.isoformat(),
            "cause": str(cause),
            "reference_version": reference,
        }
        audit.record(session, "epoch_declared", detail, at=at)
    return next(each for each in epochs(session) if each.begins_at == begins_at)


def announce(
    session: Session, period: Period, *, platforms: Sequence[Platform], note: str, at: datetime
) -> DriftRegime:
    """`declare` for an operator: said again in the same words, it is the same epoch.

    Raises:
        EpochAlreadyDeclaredError: another one begins with that window already.
        NoNextWindowError: the calendar has ended.
        UnknownVersionError: no model was promoted yet.
    """
    epoch = declare(session, period, RegimeTrigger.ANNOUNCED, platforms=platforms, note=note, at=at)
    if (epoch.cause, epoch.platforms, epoch.note) != (
        RegimeTrigger.ANNOUNCED,
        tuple(platforms),
        note,
    ):
        raise RegimeAlreadyDeclaredError(epoch)
    return epoch


def _next_window(period: Period, at: datetime) -> datetime:
    """Start of the first window after `at`; the end of the period is the next one's start."""
    if not at < period.end:
        raise NoNextWindowError(period)
    window = period.window_at(at)
    return period.start if window is None else period.window_start(window + 1)


def _epoch(number: int, row: EpochRow) -> DriftRegime:
    return DriftRegime(
        number,
        from_unix_ms(row.begins_at),
        row.reference_version,
        RegimeTrigger(row.cause),
        tuple(Platform[name] for name in row.platforms.split()),
        row.note,
    )
