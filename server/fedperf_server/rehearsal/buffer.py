"""The buffer of the coordinator: synthetic rows of the epochs before this one, for rehearsal.

The batch that an epoch published last is kept once: when the reports of the next one's first
window are in, which are its last (`epochs`), so before the first rounds of the next one; and in
any case before another epoch publishes, however late its last reports may be and however many
epochs began while the coordinator was away. For that a batch is stored with the epoch that it
is about (`publish`). Its inputs are labelled anew by the teacher: the model that was in force
when the epoch was declared over, which is what the next models shall not forget; where that was
taken back since, the newest one before it that was not. Where nothing was promoted in the epoch
the teacher is who the batch was published by, and rows keep the labels that they came with: its
answers and what reports said that these are off. By its answers alone, whatever learned from the
epoch would seem to have forgotten it. Rows that are kept already get the labels of their new
teacher, for their inputs are as good as before, and without them nobody would notice what is
forgotten. All of it follows from released reports: kept, drawn from and rehearsed as often as one
likes, rows cost no privacy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.rehearsal.synthetic_batch import PredictLog, RehearsalBuffer
from fedperf_server.state import registry
from fedperf_server.state.database import BufferRow, BufferTeacherRow, PublishedEpochRow
from fedperf_server.state.drift_regimes import DriftRegime, epochs, reported_among
from fedperf_server.state.registry import VersionStatus
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.period import Period, from_unix_ms, to_unix_ms
from fedperf_shared.wire.codec import decode_synthetic_rows, encode_synthetic_rows

ROWS_PER_SEGMENT = 200
"""Of a platform at most, the newest ones; a public number."""


@dataclass(frozen=True, slots=True)
class PreviousRegimeRows:
    """The rows and the teacher that an ended epoch left.

    Attributes:
        begins_at: start of that epoch.
        rows: as they were published, or as they were kept.
        teacher: checkpoint of the model that labels them.
        teacher_version: its number.
        is_labelled: whether rows have its labels already, with the correction of the epoch.
    """

    begins_at: datetime
    rows: tuple[SyntheticRow, ...]
    teacher: bytes
    teacher_version: int
    is_labelled: bool = False

    def labelled(self, predict_with: Callable[[bytes], PredictLog]) -> "PreviousRegimeRows":
        """The same rows with the labels of their teacher."""
        if self.is_labelled:
            return self
        entries = [PlanOnCluster(row.plan, row.cluster) for row in self.rows]
        labels = predict_with(self.teacher)(entries).tolist() if entries else []
        rows = (
            replace(row, log_seconds=label) for row, label in zip(self.rows, labels, strict=True)
        )
        return replace(self, rows=tuple(rows), is_labelled=True)


def publish(
    session: Session, rows: Sequence[SyntheticRow], *, about: datetime, at: datetime
) -> None:
    """Replace the published rows by these, which are about the epoch that began at `about`."""
    registry.publish_synthetic_rows(session, rows, at=at)
    row = PublishedEpochRow(kind=registry.SYNTHETIC_ROWS, epoch_begins_at=to_unix_ms(about))
    session.merge(row)


def waiting(session: Session, period: Period, *, window: int) -> PreviousRegimeRows | None:
    """The rows of an ended epoch that are not yet kept with their teacher's labels; else None.

    To be asked when the reports of `window` are in, or when no more of them count, and before
    those of the next window are evaluated; again until there is nothing. An epoch that
    published nothing, since nobody reported about it, leaves nothing.
    """
    known = epochs(session)
    ended = _published_about(session, period, known)
    now = reported_among(known, period, window=window + 1)
    kept = {from_unix_ms(key) for key in session.scalars(select(BufferRow.epoch_begins_at))}
    if ended is not None and ended < now.begins_at and ended not in kept:
        return _left(session, known, ended, registry.published_rows(session), is_published=True)
    for each in sorted(kept):
        labelled_by = session.get(BufferTeacherRow, to_unix_ms(each))
        if labelled_by is None or labelled_by.version != _teacher(session, known, each):
            kept_row = session.get_one(BufferRow, to_unix_ms(each))
            return _left(session, known, each, decode_synthetic_rows(kept_row.payload))
    return None


def keep(session: Session, earlier: PreviousRegimeRows, *, at: datetime) -> None:
    """Keep it, once by a teacher: kept before with its labels, it stays as it is."""
    key, version = to_unix_ms(earlier.begins_at), earlier.teacher_version
    labelled_by = session.get(BufferTeacherRow, key)
    if labelled_by is None or labelled_by.version != version:
        payload = encode_synthetic_rows(earlier.rows)
        session.merge(BufferRow(epoch_begins_at=key, payload=payload, stored_at=to_unix_ms(at)))
        session.merge(BufferTeacherRow(epoch_begins_at=key, version=version))
        session.flush()


def rows(session: Session) -> tuple[SyntheticRow, ...]:
    """The rows to rehearse: those of earlier epochs, bounded and balanced over the segments."""
    buffer = RehearsalBuffer(ROWS_PER_SEGMENT)
    for row in session.scalars(select(BufferRow).order_by(BufferRow.epoch_begins_at)):
        buffer = buffer.with_rows(decode_synthetic_rows(row.payload))
    return buffer.rows


def _left(
    session: Session,
    known: Sequence[DriftRegime],
    ended: datetime,
    found: tuple[SyntheticRow, ...],
    *,
    is_published: bool = False,
) -> PreviousRegimeRows:
    teacher = registry.get_version(session, _teacher(session, known, ended))
    published_by = {each.reference_version for each in known if each.begins_at == ended}
    is_labelled = is_published and teacher.version in published_by
    return PreviousRegimeRows(ended, found, teacher.checkpoint, teacher.version, is_labelled)


def _teacher(session: Session, known: Sequence[DriftRegime], ended: datetime) -> int:
    """Of what the epoch left: the newest version by the next one's reference that still stands."""
    reference = next(each for each in known if each.begins_at > ended).reference_version
    stand = registry.standings(session)
    promoted = [
        each for each in stand if stand[each] is VersionStatus.PROMOTED and each <= reference
    ]
    return max(promoted, default=reference)


def _published_about(
    session: Session, period: Period, known: Sequence[DriftRegime]
) -> datetime | None:
    """Start of the epoch that the published rows are about; None where there are none.

    Of rows from before that was stored: the epoch that was evaluated when they were published.
    """
    row = session.get(PublishedEpochRow, registry.SYNTHETIC_ROWS)
    if row is not None:
        return from_unix_ms(row.epoch_begins_at)
    at = registry.published_at(session, registry.SYNTHETIC_ROWS)
    if at is None:
        return None
    return reported_among(known, period, window=period.nearest_window(at)).begins_at
