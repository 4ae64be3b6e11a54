"""The database rows of a round: the round, its linear query, and the outcome of every reply.

A round's row is written when the round begins and completed when it is closed. Its number is
unique. An accepted reply is stored with a receipt and the digest of its bytes. A refused reply is
counted under its reason. All rows belong to the caller's session, so that they are stored together
or not at all. A reply that contradicts an earlier receipt is refused.
"""

import hashlib
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.rounds.open_round import RoundReplies
from fedperf_server.state import releases
from fedperf_server.state.database import (
    ReplyRow,
    RoundQueryRow,
    RoundRow,
    UpdateRow,
)
from fedperf_server.state.round_calendar import ACCEPTED, row_key
from fedperf_server.state.validation import RejectedReleaseError
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.period import ReleaseCalendar, to_unix_ms
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import encode_tangent_question


def round_row(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, base_version: int, *, at: datetime
) -> RoundRow:
    """Return the row of a round that begins now, with the next number, not added yet."""
    return RoundRow(
        **row_key(calendar, slot),
        number=(session.scalar(select(func.max(RoundRow.number))) or 0) + 1,
        base_version=base_version,
        opened_at=to_unix_ms(at),
        asked=0,
        replies=0,
    )


def query_row(calendar: ReleaseCalendar, slot: SlotKey, query: LinearizedQuery) -> RoundQueryRow:
    """Return the linear query of a round as a row."""
    return RoundQueryRow(**row_key(calendar, slot), payload=encode_tangent_question(query))


def finish(session: Session, row: RoundRow, *, at: datetime) -> None:
    """Store when the round was closed, and how long it took."""
    row.closed_at = to_unix_ms(at)
    row.seconds = max(0, row.closed_at - row.opened_at) / 1000
    session.flush()


def reject_contradictions(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, replies: RoundReplies
) -> None:
    """Refuse replies that contradict an earlier receipt."""
    release_id = slot.release_id(calendar.period)
    for organization_id, (signed, _) in list(replies.accepted.items()):
        try:
            releases.receipt_for(session, organization_id, release_id, signed)
        except RejectedReleaseError as error:
            del replies.accepted[organization_id]
            replies.refused[organization_id] = error.reason


def store_replies(
    session: Session,
    calendar: ReleaseCalendar,
    slot: SlotKey,
    replies: RoundReplies,
    *,
    key: ec.EllipticCurvePrivateKey,
    at: datetime,
) -> None:
    """Store receipts, signed with `key`, for accepted replies, and count refused ones."""
    release_id = slot.release_id(calendar.period)
    round_key = row_key(calendar, slot)
    for organization_id, (signed, _) in replies.accepted.items():
        releases.give_receipt(session, organization_id, release_id, signed, key=key, at=at)
        session.add(
            UpdateRow(
                **round_key,
                organization_id=organization_id,
                payload=signed.payload,
                signature=signed.signature,
                received_at=to_unix_ms(at),
            )
        )
    for organization_id, reason in replies.refused.items():
        releases.count_rejection(session, organization_id, "model_update", reason)
    accepted = {
        organization_id: (ACCEPTED, hashlib.sha256(signed.payload).digest())
        for organization_id, (signed, _) in replies.accepted.items()
    }
    refused = {each: (reason.value, None) for each, reason in replies.refused.items()}
    session.add_all(
        ReplyRow(
            **round_key,
            organization_id=organization_id,
            outcome=outcome,
            payload_sha256=digest,
            size=replies.sizes.get(organization_id, 0),
        )
        for organization_id, (outcome, digest) in {**accepted, **refused}.items()
    )
