"""Stored schedules, reports, receipts, refusals and questions of organizations.

A schedule is stored once per organization and period. One with parameters that may not be declared,
stored before these had bounds, counts as none. A release is stored once under its id. The same
bytes get the same receipt again; other bytes are refused. Whoever sends other bytes has forgotten
what left before, and is shown the receipt of that. A receipt counts an organization's accepted
releases, so its sequence never passes the number of releases that the organization's own ledger has
charged.

The question of a directed slot is stored once, before anybody gets it, and never changes.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state.database import (
    OrganizationRow,
    QuestionRow,
    ReceiptRow,
    RejectionRow,
    ReportRow,
    ScheduleRow,
)
from fedperf_server.state.validation import Reason, RejectedReleaseError
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.identity import sign
from fedperf_shared.releases.declared_bounds import NotDeclarableError, require_declarable
from fedperf_shared.releases.kinds import fits, is_report
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar, to_unix_ms
from fedperf_shared.releases.release import Report, Schedule, SignedRelease, Slot, SlotKey
from fedperf_shared.wire import codec
from fedperf_shared.wire.codec import decode_question, encode_question


def has_query(session: Session, period: Period, slot: SlotKey) -> bool:
    """Whether the slot has a question."""
    return session.get(QuestionRow, _question_key(period, slot)) is not None


def load_query(session: Session, period: Period, slot: SlotKey) -> CellQuery | None:
    """The question of the slot; None where none was made."""
    row = session.get(QuestionRow, _question_key(period, slot))
    return decode_question(row.payload) if row else None


def newest_question(session: Session) -> int:
    """The number of the newest question of all periods; 0 where there is none."""
    return session.scalar(select(func.max(QuestionRow.version))) or 0


def stored_questions(session: Session, period: Period) -> Iterator[CellQuery]:
    """The questions of a period, oldest slot first."""
    query = (
        select(QuestionRow)
        .where(QuestionRow.period_start == to_unix_ms(period.start))
        .order_by(QuestionRow.window, QuestionRow.index)
    )
    return (decode_question(row.payload) for row in session.scalars(query))


def store_question(session: Session, period: Period, question: CellQuery, *, at: datetime) -> None:
    """Keep a question that was made at that moment."""
    session.add(
        QuestionRow(
            **_question_key(period, question.slot),
            version=question.version,
            payload=encode_question(question),
            asked_at=to_unix_ms(at),
        )
    )


def _question_key(period: Period, slot: SlotKey) -> dict[str, int]:
    return {
        "period_start": to_unix_ms(period.start),
        "window": slot.window,
        "index": slot.index,
    }


class DifferentScheduleError(InvalidInputError):
    """A second, different schedule was declared for the same period."""


ReportKey = tuple[int, int, bytes]
"""Window, slot in it, and organization of a report."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """An accepted report, its organization, its slot as declared, and whether it is a first one."""

    organization_id: bytes
    report: Report
    slot: Slot
    is_first: bool = False


def declare_schedule(
    session: Session, organization_id: bytes, schedule: Schedule, *, at: datetime
) -> bool:
    """Store the schedule; False where the same one was stored already.

    Raises:
        DifferentScheduleError: another one was declared for this period.
    """
    start = to_unix_ms(schedule.calendar.period.start)
    payload = codec.encode_schedule(schedule)
    row = session.get(ScheduleRow, (organization_id, start))
    if row is not None:
        if row.payload != payload:
            raise DifferentScheduleError("this period's schedule was declared already")
        return False
    session.add(
        ScheduleRow(
            organization_id=organization_id,
            period_start=start,
            payload=payload,
            declared_at=to_unix_ms(at),
        )
    )
    return True


def declared_schedule(session: Session, organization_id: bytes, period: Period) -> Schedule | None:
    """The organization's declared schedule for the period; None if there is none yet."""
    row = session.get(ScheduleRow, (organization_id, to_unix_ms(period.start)))
    return _usable(row.payload) if row else None


def declared_schedules(session: Session, period: Period) -> list[tuple[bytes, Schedule]]:
    """The schedules of today's members for the period, with their ids, in the order of these."""
    query = (
        select(ScheduleRow)
        .join(OrganizationRow, OrganizationRow.organization_id == ScheduleRow.organization_id)
        .where(
            ScheduleRow.period_start == to_unix_ms(period.start),
            OrganizationRow.revoked_at.is_(None),
        )
        .order_by(ScheduleRow.organization_id)
    )
    found = [(row.organization_id, _usable(row.payload)) for row in session.scalars(query)]
    return [(organization_id, each) for organization_id, each in found if each is not None]


def promised_calendar(session: Session) -> ReleaseCalendar | None:
    """The newest calendar that a member of today declared a schedule for; None where none did."""
    newest = (
        select(ScheduleRow)
        .join(OrganizationRow, OrganizationRow.organization_id == ScheduleRow.organization_id)
        .where(OrganizationRow.revoked_at.is_(None))
        .order_by(ScheduleRow.period_start.desc())
    )
    found = (_usable(row.payload) for row in session.scalars(newest))
    return next((each.calendar for each in found if each is not None), None)


def receipt_for(
    session: Session, organization_id: bytes, release_id: bytes, signed: SignedRelease
) -> SignedReceipt | None:
    """The receipt that these bytes got before; None if the release is new.

    Raises:
        RejectedReleaseError: other bytes were accepted under this id.
    """
    row = session.get(ReceiptRow, (organization_id, release_id))
    if row is None:
        return None
    if row.payload_sha256 != hashlib.sha256(signed.payload).digest():
        raise RejectedReleaseError(Reason.DIFFERENT_BYTES)
    return SignedReceipt(row.payload, row.signature)


def first_receipt(
    session: Session, organization_id: bytes, release_id: bytes
) -> SignedReceipt | None:
    """The receipt of whatever bytes were accepted under the id; None if none were."""
    row = session.get(ReceiptRow, (organization_id, release_id))
    return None if row is None else SignedReceipt(row.payload, row.signature)


def receipts_in(session: Session, organization_id: bytes, period: Period) -> list[SignedReceipt]:
    """Every receipt that the organization was given for the period, newest first."""
    schedule = declared_schedule(session, organization_id, period)
    slots = () if schedule is None else schedule.slots
    query = (
        select(ReceiptRow)
        .where(ReceiptRow.organization_id == organization_id)
        .where(ReceiptRow.release_id.in_([slot.key.release_id(period) for slot in slots]))
        .order_by(ReceiptRow.sequence.desc())
    )
    return [SignedReceipt(row.payload, row.signature) for row in session.scalars(query)]


def give_receipt(
    session: Session,
    organization_id: bytes,
    release_id: bytes,
    signed: SignedRelease,
    *,
    key: ec.EllipticCurvePrivateKey,
    at: datetime,
) -> SignedReceipt:
    """The receipt of an accepted release: an old one for the same bytes, else the next.

    Raises:
        RejectedReleaseError: other bytes were accepted under this id.
    """
    earlier = receipt_for(session, organization_id, release_id, signed)
    if earlier is not None:
        return earlier
    query = select(func.max(ReceiptRow.sequence)).where(
        ReceiptRow.organization_id == organization_id
    )
    sequence = (session.scalar(query) or 0) + 1
    digest = hashlib.sha256(signed.payload).digest()
    payload = codec.encode_receipt(Receipt(organization_id, release_id, digest, sequence, at))
    row = ReceiptRow(
        organization_id=organization_id,
        release_id=release_id,
        sequence=sequence,
        payload_sha256=digest,
        payload=payload,
        signature=sign(key, payload),
    )
    session.add(row)
    session.flush()
    return SignedReceipt(row.payload, row.signature)


def store_report(
    session: Session,
    organization_id: bytes,
    report: Report,
    signed: SignedRelease,
    *,
    reference_version: int,
    period: Period,
    at: datetime,
) -> None:
    """Keep an accepted report as it was signed, with the model version that it is about."""
    session.add(
        ReportRow(
            organization_id=organization_id,
            release_id=report.slot.release_id(period),
            period_start=to_unix_ms(period.start),
            window=report.slot.window,
            index=report.slot.index,
            reference_version=reference_version,
            payload=signed.payload,
            signature=signed.signature,
            received_at=to_unix_ms(at),
        )
    )


def stored_reports(
    session: Session, period: Period, *, but: Collection[ReportKey] = ()
) -> dict[ReportKey, StoredReport]:
    """Accepted reports of the period, without those that are known already."""
    of_period = ReportRow.period_start == to_unix_ms(period.start)
    places = select(ReportRow.window, ReportRow.index, ReportRow.organization_id).where(of_period)
    new = {(window, index, whose) for window, index, whose in session.execute(places)} - set(but)
    query = select(ReportRow).where(of_period, ReportRow.window.in_({each[0] for each in new}))
    schedules: dict[bytes, Schedule | None] = {}
    found: dict[ReportKey, StoredReport] = {}
    for row in session.scalars(query):
        whose = row.organization_id
        if (key := (row.window, row.index, whose)) not in new:
            continue
        if whose not in schedules:
            schedules[whose] = declared_schedule(session, whose, period)
        schedule, report = schedules[whose], codec.decode_release(row.payload)
        if schedule is None or not is_report(report):
            continue
        slot = schedule.slot(report.slot)
        if slot is None or not fits(report, slot):
            raise TypeError("a stored report was accepted for the slot of its kind")
        found[key] = StoredReport(
            whose, report, slot, schedule.calendar.is_first_report(slot.key.index)
        )
    return found


def count_reports(session: Session, period: Period) -> int:
    """The number of accepted reports of the period."""
    query = select(func.count()).where(ReportRow.period_start == to_unix_ms(period.start))
    return session.scalar(query) or 0


def count_rejection(session: Session, organization_id: bytes, kind: str, reason: Reason) -> None:
    """Count that something of an organization was refused."""
    row = session.get(RejectionRow, (organization_id, kind, reason.value))
    if row is None:
        row = RejectionRow(organization_id=organization_id, kind=kind, reason=reason.value, count=0)
        session.add(row)
    row.count += 1
    session.flush()


def rejections(session: Session) -> dict[tuple[bytes, str, str], int]:
    """Counts by organization, kind and reason."""
    rows = session.scalars(select(RejectionRow))
    return {(row.organization_id, row.kind, row.reason): row.count for row in rows}


@lru_cache(maxsize=10_000)
def _usable(payload: bytes) -> Schedule | None:
    """The stored schedule; None where it may not be declared (any more); parsed once."""
    schedule = codec.decode_schedule(payload)
    try:
        require_declarable(schedule)
    except NotDeclarableError:
        return None
    return schedule
