"""Verifies the hashes of the coordinator's audit log, as an auditor would."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.state.database import EventRow, chain_hash


class AuditBrokenError(Exception):
    """The audit log was changed after it was written."""

    def __init__(self, event_id: int) -> None:
        super().__init__(f"the audit log was changed at entry {event_id}")


def verify_events(session: Session) -> int:
    """Return the number of entries; raises AuditBrokenError if one was changed or removed."""
    chain, count = bytes(32), 0
    for row in session.scalars(select(EventRow).order_by(EventRow.event_id)):
        chain, count = chain_hash(chain, row), count + 1
        if row.chain != chain or row.event_id != count:
            raise AuditBrokenError(row.event_id)
    return count
