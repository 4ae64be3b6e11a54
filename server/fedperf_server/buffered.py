"""The buffer of the coordinator: synthetic rows of the epochs before this one, for rehearsal.

The batch that an epoch published last is kept once, when the reports of the next one's first
window are in, which are its last (`epochs`): before the first rounds of the next one. Its
inputs are labelled anew by the teacher: the model that was in force when the epoch was
declared over, which is what the next models shall not forget. All of it follows from
released reports: kept, drawn from and rehearsed as often as one likes, rows cost no privacy.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server import registry
from fedperf_server.database import BufferRow
from fedperf_server.epochs import epochs
from fedperf_server.rehearsal import CatalogueEntry, PredictLog, RehearsalBuffer
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.period import Period, to_unix_ms
from fedperf_shared.wire.codec import decode_synthetic_rows, encode_synthetic_rows

ROWS_PER_SEGMENT = 200
"""Of a platform at most, the newest ones; a public number."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an epoch that ended left.

    Attributes:
        begins_at: start of that epoch.
        rows: as they were published.
        teacher: checkpoint of the model that was in force at its end.
    """

    begins_at: datetime
    rows: tuple[SyntheticRow, ...]
    teacher: bytes

    def labelled(self, predict_with: Callable[[bytes], PredictLog]) -> "Earlier":
        """The same rows with the labels of their teacher."""
        entries = [CatalogueEntry(row.plan, row.cluster) for row in self.rows]
        labels = predict_with(self.teacher)(entries).tolist() if entries else []
        rows = (
            replace(row, log_runtime_seconds=label)
            for row, label in zip(self.rows, labels, strict=True)
        )
        return replace(self, rows=tuple(rows))


def waiting(session: Session, period: Period, *, window: int) -> Earlier | None:
    """What the epoch before that of `window` left, as long as it is not kept; else None.

    To be asked when the reports of `window` are in, before the next epoch publishes anything.
    An epoch that published nothing, since nobody reported about it, leaves nothing.
    """
    begun = [each for each in epochs(session) if each.begins_at <= period.window_start(window)]
    if len(begun) < 2:  # noqa: PLR2004  the first epoch has none before it
        return None
    ended, now = begun[-2:]
    published_at = registry.published_at(session, registry.SYNTHETIC_ROWS)
    first_reports = ended.begins_at + period.window
    if published_at is None or published_at < first_reports:
        return None
    if session.get(BufferRow, to_unix_ms(ended.begins_at)) is not None:
        return None
    rows = decode_synthetic_rows(registry.publication(session, registry.SYNTHETIC_ROWS))
    teacher = registry.get_version(session, now.reference_version).checkpoint
    return Earlier(ended.begins_at, rows, teacher)


def keep(session: Session, earlier: Earlier, *, at: datetime) -> None:
    """Keep it, once: kept before, it stays as it is."""
    key = to_unix_ms(earlier.begins_at)
    if session.get(BufferRow, key) is None:
        payload = encode_synthetic_rows(earlier.rows)
        session.add(BufferRow(epoch_begins_at=key, payload=payload, stored_at=to_unix_ms(at)))
        session.flush()


def rows(session: Session) -> tuple[SyntheticRow, ...]:
    """What is rehearsed: rows of earlier epochs, bounded and balanced over the segments."""
    buffer = RehearsalBuffer(ROWS_PER_SEGMENT)
    for row in session.scalars(select(BufferRow).order_by(BufferRow.epoch_begins_at)):
        buffer = buffer.with_rows(decode_synthetic_rows(row.payload))
    return buffer.rows
