"""The rehearsal buffer stores synthetic rows of earlier drift regimes.

The last published batch of a regime is stored once, when the reports of the next regime's first
window have arrived. These are the old regime's last reports (`drift_regimes`), and the first rounds
of the next regime come later. In any case the batch is stored before another regime publishes,
however late the last reports are and however many regimes began while the coordinator was down. For
that a batch is stored with its regime (`publish`).

A teacher labels the rows again: the model that was current when the regime ended, since the next
models shall not forget it. If that model was rolled back, the teacher is the newest promoted one
before it. If nothing was promoted in the regime, the teacher is the regime's reference, and the
rows keep their published labels, which include the correction by reports. With its predictions
alone as labels, a model that learned from the regime would seem to have forgotten it. Stored rows
are labelled again when their teacher changes, because their inputs are still valid for measuring
forgetting. Everything follows from released reports, so storing and rehearsing costs no privacy.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.state import registry
from fedperf_server.state.database import (
    BufferRow,
    BufferTeacherRow,
    PublishedRegimeRow,
    VersionStatus,
)
from fedperf_server.state.drift_regimes import DriftRegime, find_reported_regime, regimes
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.period import Period
from fedperf_shared.wire.codec import decode_synthetic_rows, encode_synthetic_rows
from fedperf_shared.workflow.vocabulary import Platform

ROWS_PER_SEGMENT = 200  # maximum number of rows per platform, the newest ones. A public constant.


@dataclass(frozen=True, slots=True)
class PreviousRegimeRows:
    """The rows and the teacher of an ended regime."""

    begins_at: datetime  # start of that regime
    rows: tuple[SyntheticRow, ...]  # rows as they were published or stored
    teacher: bytes  # checkpoint of the model that labels them
    teacher_version: int  # number of the teacher
    # Whether the rows have labels of the teacher, corrected by the regime's reports.
    is_labelled: bool = False

    def labelled(self, predict_with: Callable[[bytes], PredictLog]) -> "PreviousRegimeRows":
        """Return the rows with the labels of their teacher."""
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
    """Replace the published rows by rows about the regime that began at `about`."""
    registry.publish_synthetic_rows(session, rows, at=at)
    row = PublishedRegimeRow(kind=registry.SYNTHETIC_ROWS, regime_begins_at=about)
    session.merge(row)


def find_unstored(session: Session, period: Period, *, window: int) -> PreviousRegimeRows | None:
    """Return rows of an ended regime that are not stored with their teacher's labels, or None.

    Call it when the reports of `window` have arrived or are not used any more, before those of the
    next window are evaluated. Repeat until it returns None. A regime without reports has no rows.
    """
    declared = regimes(session)
    ended = _published_regime(session, period, declared)
    current = find_reported_regime(declared, period, window=window + 1)
    stored = set(session.scalars(select(BufferRow.regime_begins_at)))
    if ended is not None and ended < current.begins_at and ended not in stored:
        published = registry.published_rows(session)
        return _with_teacher(session, declared, ended, published, is_published=True)
    for each in sorted(stored):
        labelled_by = session.get(BufferTeacherRow, each)
        if labelled_by is None or labelled_by.version != _find_teacher(session, declared, each):
            row = session.get_one(BufferRow, each)
            return _with_teacher(session, declared, each, decode_synthetic_rows(row.payload))
    return None


def store(session: Session, labelled: PreviousRegimeRows, *, at: datetime) -> None:
    """Store labelled rows, unless rows with the labels of that teacher are stored already."""
    key, version = labelled.begins_at, labelled.teacher_version
    labelled_by = session.get(BufferTeacherRow, key)
    if labelled_by is None or labelled_by.version != version:
        payload = encode_synthetic_rows(labelled.rows)
        session.merge(BufferRow(regime_begins_at=key, payload=payload, stored_at=at))
        session.merge(BufferTeacherRow(regime_begins_at=key, version=version))
        session.flush()


def rows(session: Session) -> tuple[SyntheticRow, ...]:
    """Return the rehearsal rows of earlier regimes, bounded and balanced over the segments."""
    payloads = session.scalars(select(BufferRow.payload).order_by(BufferRow.regime_begins_at))
    stored = [row for payload in payloads for row in decode_synthetic_rows(payload)]
    return newest_rows(stored, capacity=ROWS_PER_SEGMENT)


def newest_rows(stored: Sequence[SyntheticRow], *, capacity: int) -> tuple[SyntheticRow, ...]:
    """Return the newest rows, at most `capacity` of every segment, oldest first.

    A platform with many reports does not displace one with few.
    """
    newest: list[SyntheticRow] = []
    counts = Counter[Platform]()
    for row in reversed(stored):
        if counts[row.segment] < capacity:
            counts[row.segment] += 1
            newest.append(row)
    return tuple(reversed(newest))


def _with_teacher(
    session: Session,
    declared: Sequence[DriftRegime],
    ended: datetime,
    regime_rows: tuple[SyntheticRow, ...],
    *,
    is_published: bool = False,
) -> PreviousRegimeRows:
    teacher = registry.get_version(session, _find_teacher(session, declared, ended))
    published_by = {each.reference_version for each in declared if each.begins_at == ended}
    is_labelled = is_published and teacher.version in published_by
    return PreviousRegimeRows(ended, regime_rows, teacher.checkpoint, teacher.version, is_labelled)


def _find_teacher(session: Session, declared: Sequence[DriftRegime], ended: datetime) -> int:
    """Return the newest promoted version up to the next regime's reference."""
    reference = next(each for each in declared if each.begins_at > ended).reference_version
    statuses = registry.statuses(session)
    promoted = [
        each for each in statuses if statuses[each] is VersionStatus.PROMOTED and each <= reference
    ]
    return max(promoted, default=reference)


def _published_regime(
    session: Session, period: Period, declared: Sequence[DriftRegime]
) -> datetime | None:
    """Return the start of the regime of the published rows, or None without any.

    If the regime was not stored with the rows, it is the one evaluated at their publication.
    """
    row = session.get(PublishedRegimeRow, registry.SYNTHETIC_ROWS)
    if row is not None:
        return row.regime_begins_at
    at = registry.published_at(session, registry.SYNTHETIC_ROWS)
    if at is None:
        return None
    return find_reported_regime(declared, period, window=period.nearest_window(at)).begins_at
