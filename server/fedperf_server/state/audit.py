"""The audit log records every action of the coordinator in order and is never changed.

Each entry stores a hash of itself and of the previous entry, so that changed and removed entries
are detected. Entries hold ids and counts, never contents of releases.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.state.database import EventRow
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.period import to_unix_ms

Detail = Mapping[str, str | int | float | None]
_START = bytes(32)


class AuditBrokenError(StorageError):
    """Raised when the audit log was changed after it was written."""

    def __init__(self, event_id: int) -> None:
        super().__init__(
            f"the audit log was changed at entry {event_id}; restore the database from a backup"
        )
        self.event_id = event_id


def record(session: Session, kind: str, detail: Detail, *, at: datetime) -> None:
    """Append an entry in the caller's transaction."""
    last = session.scalars(select(EventRow).order_by(EventRow.event_id.desc()).limit(1)).first()
    row = EventRow(
        event_id=last.event_id + 1 if last else 1,
        at=to_unix_ms(at),
        kind=kind,
        detail=json.dumps(detail, sort_keys=True),
        chain=b"",
    )
    row.chain = _chain(last.chain if last else _START, row)
    session.add(row)
    session.flush()


def verify(session: Session) -> int:
    """Return the number of entries.

    Raises:
        AuditBrokenError: an entry was changed or removed.
    """
    chain, count = _START, 0
    for row in session.scalars(select(EventRow).order_by(EventRow.event_id)):
        chain, count = _chain(chain, row), count + 1
        if row.chain != chain or row.event_id != count:
            raise AuditBrokenError(row.event_id)
    return count


def _chain(previous: bytes, row: EventRow) -> bytes:
    text = f"{row.event_id} {row.at} {row.kind} {row.detail}"
    return hashlib.sha256(previous + text.encode()).digest()
