"""The database rows of a round: the round, its question, and the outcome of every reply.

A round's row is written when the round begins and completed when it is closed. Its number is
unique. For an accepted reply a receipt and the digest of its bytes are stored; a refused one is
counted under its reason. All rows go into the caller's session, so they are stored together or
not at all. Refused: a reply that contradicts a receipt that was given before.
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
    RoundQuestionRow,
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
    """A round that begins now, under the next number; not added yet."""
    return RoundRow(
        **row_key(calendar, slot),
        number=(session.scalar(select(func.max(RoundRow.number))) or 0) + 1,
        base_version=base_version,
        opened_at=to_unix_ms(at),
        asked=0,
        replies=0,
    )


def question_row(
    calendar: ReleaseCalendar, slot: SlotKey, question: LinearizedQuery
) -> RoundQuestionRow:
    """The question of a round as a row; a coordinator that was killed asks the same again."""
    return RoundQuestionRow(**row_key(calendar, slot), payload=encode_tangent_question(question))


def finish(session: Session, row: RoundRow, *, at: datetime) -> None:
    """Write down when the round was closed, and how long it took."""
    row.closed_at = to_unix_ms(at)
    row.seconds = max(0, row.closed_at - row.opened_at) / 1000
    session.flush()


def drop_stale(
    session: Session, calendar: ReleaseCalendar, slot: SlotKey, replies: RoundReplies
) -> None:
    """Refuse what contradicts a receipt that was given before."""
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
    """Give receipts, signed with `key`, for what was accepted, and count what was refused."""
    release_id = slot.release_id(calendar.period)
    place = row_key(calendar, slot)
    for organization_id, (signed, _) in replies.accepted.items():
        releases.give_receipt(session, organization_id, release_id, signed, key=key, at=at)
        session.add(
            UpdateRow(
                **place,
                organization_id=organization_id,
                payload=signed.payload,
                signature=signed.signature,
                received_at=to_unix_ms(at),
            )
        )
    for organization_id, reason in replies.refused.items():
        releases.count_rejection(session, organization_id, "model_update", reason)
    accepted = {
        whose: (ACCEPTED, hashlib.sha256(signed.payload).digest())
        for whose, (signed, _) in replies.accepted.items()
    }
    refused = {whose: (reason.value, None) for whose, reason in replies.refused.items()}
    session.add_all(
        ReplyRow(
            **place,
            organization_id=organization_id,
            outcome=outcome,
            payload_sha256=digest,
            size=replies.sizes.get(organization_id, 0),
        )
        for organization_id, (outcome, digest) in {**accepted, **refused}.items()
    )
