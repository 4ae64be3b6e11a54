"""The buffer of the coordinator: synthetic rows of the epochs before this one, for rehearsal.

The batch that was published last in an epoch is kept when the next one publishes its first, in
the same transaction and once. All rows follow from released reports: kept, drawn from and
rehearsed as often as one likes, they cost no privacy.
"""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server import registry
from fedperf_server.database import BufferRow
from fedperf_server.epochs import epochs
from fedperf_server.rehearsal import RehearsalBuffer
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.period import to_unix_ms
from fedperf_shared.wire.codec import decode_synthetic_rows

ROWS_PER_SEGMENT = 200
"""Of a platform at most, the newest ones; a public number."""


def keep_earlier(session: Session, *, at: datetime) -> bool:
    """Keep what the epoch before that of `at` published last; False where it is kept already.

    To be called before the epoch of `at` publishes anything.
    """
    begun = [each for each in epochs(session) if each.begins_at <= at]
    payload = registry.publication(session, registry.SYNTHETIC_ROWS)
    if len(begun) < 2 or not payload:  # noqa: PLR2004  the first epoch has none before it
        return False
    begins_at = to_unix_ms(begun[-2].begins_at)
    if session.get(BufferRow, begins_at) is not None:
        return False
    session.add(BufferRow(epoch_begins_at=begins_at, payload=payload, stored_at=to_unix_ms(at)))
    session.flush()
    return True


def rows(session: Session) -> tuple[SyntheticRow, ...]:
    """What is rehearsed: rows of earlier epochs, bounded and balanced over the segments."""
    buffer = RehearsalBuffer(ROWS_PER_SEGMENT)
    for row in session.scalars(select(BufferRow).order_by(BufferRow.epoch_begins_at)):
        buffer = buffer.with_rows(decode_synthetic_rows(row.payload))
    return buffer.rows
