"""Storage of the organizations' schedules, reports, receipts and refusals, and of linear queries.

A schedule is stored once per organization and period. A stored schedule whose parameters exceed
today's bounds is ignored. A release is stored once under its id. The same bytes get the same
receipt again, and other bytes are refused. An organization that sends other bytes has lost its
record of the first release and gets the receipt of that. Receipts count an organization's accepted
releases, so the sequence never exceeds the number of charges in the organization's ledger.

The linear query of a directed slot is stored once, before it is sent, and never changes.
"""

import hashlib
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.inference.corrections import QueryResponse, ReceivedReport
from fedperf_server.state.database import (
    Member,
    QueryRow,
    ReceiptRow,
    RejectionRow,
    ReportRow,
    ScheduleRow,
    slot_key,
)
from fedperf_server.state.validation import Reason, RejectedReleaseError
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.identity import sign
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    NotDeclarableError,
    Report,
    ReportParameters,
    ResidualReport,
    Schedule,
    SignedRelease,
    SlotKey,
    require_declarable,
)
from fedperf_shared.wire import codec
from fedperf_shared.wire.codec import decode_cell_query, encode_cell_query


def has_query(session: Session, period: Period, slot: SlotKey) -> bool:
    """Return whether the slot has a linear query."""
    return session.get(QueryRow, slot_key(period, slot)) is not None


def load_query(session: Session, period: Period, slot: SlotKey) -> CellQuery | None:
    """Return the linear query of the slot, or None if there is none."""
    row = session.get(QueryRow, slot_key(period, slot))
    return decode_cell_query(row.payload) if row else None


def newest_query_version(session: Session) -> int:
    """Return the number of the newest linear query of all periods, 0 without any."""
    return session.scalar(select(func.max(QueryRow.version))) or 0


def stored_queries(session: Session, period: Period) -> Iterator[CellQuery]:
    """Yield the linear queries of a period, oldest slot first."""
    query = (
        select(QueryRow)
        .where(QueryRow.period_start == period.start)
        .order_by(QueryRow.window, QueryRow.index)
    )
    return (decode_cell_query(row.payload) for row in session.scalars(query))


def store_query(session: Session, period: Period, query: CellQuery, *, at: datetime) -> None:
    """Store a linear query that was designed at that time."""
    session.add(
        QueryRow(
            **slot_key(period, query.slot),
            version=query.version,
            payload=encode_cell_query(query),
            designed_at=at,
        )
    )


class DifferentScheduleError(InvalidInputError):
    """Raised when a second, different schedule is declared for the same period."""


ReportKey = tuple[int, int, bytes]  # window, index of the slot, and organization of a report


def declare_schedule(
    session: Session, organization_id: bytes, schedule: Schedule, *, at: datetime
) -> bool:
    """Store the schedule and return whether it is new.

    Raises:
        DifferentScheduleError: a different one was declared for this period.
    """
    start = schedule.calendar.period.start
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
            declared_at=at,
        )
    )
    return True


def declared_schedule(session: Session, organization_id: bytes, period: Period) -> Schedule | None:
    """Return the organization's declared schedule for the period, or None."""
    row = session.get(ScheduleRow, (organization_id, period.start))
    return _usable(row.payload) if row else None


def declared_schedules(session: Session, period: Period) -> list[tuple[bytes, Schedule]]:
    """Return the current members' schedules for the period, with and ordered by their ids."""
    query = (
        select(ScheduleRow)
        .join(Member, Member.organization_id == ScheduleRow.organization_id)
        .where(
            ScheduleRow.period_start == period.start,
            Member.revoked_at.is_(None),
        )
        .order_by(ScheduleRow.organization_id)
    )
    stored = [(row.organization_id, _usable(row.payload)) for row in session.scalars(query)]
    return [(organization_id, each) for organization_id, each in stored if each is not None]


def declared_calendar(session: Session) -> ReleaseCalendar | None:
    """Return the newest calendar that a current member declared a schedule for, or None."""
    newest = (
        select(ScheduleRow)
        .join(Member, Member.organization_id == ScheduleRow.organization_id)
        .where(Member.revoked_at.is_(None))
        .order_by(ScheduleRow.period_start.desc())
    )
    schedules = (_usable(row.payload) for row in session.scalars(newest))
    return next((each.calendar for each in schedules if each is not None), None)


def find_receipt(session: Session, organization_id: bytes, release_id: bytes) -> ReceiptRow | None:
    """Return the receipt of the bytes that were accepted under the id, or None."""
    return session.get(ReceiptRow, (organization_id, release_id))


def receipts_in(session: Session, organization_id: bytes, period: Period) -> list[SignedReceipt]:
    """Return all receipts of the organization for the period, newest first."""
    schedule = declared_schedule(session, organization_id, period)
    slots = () if schedule is None else schedule.slots
    query = (
        select(ReceiptRow)
        .where(ReceiptRow.organization_id == organization_id)
        .where(ReceiptRow.release_id.in_([slot.key.release_id(period) for slot in slots]))
        .order_by(ReceiptRow.sequence.desc())
    )
    return [row.signed for row in session.scalars(query)]


def give_receipt(
    session: Session,
    organization_id: bytes,
    release_id: bytes,
    signed: SignedRelease,
    *,
    key: ec.EllipticCurvePrivateKey,
    at: datetime,
) -> SignedReceipt:
    """Return the receipt of an accepted release: the earlier one of the same bytes, or a new one.

    Raises:
        RejectedReleaseError: other bytes were accepted under this id.
    """
    earlier = find_receipt(session, organization_id, release_id)
    if earlier is not None:
        if not earlier.confirms(signed):
            raise RejectedReleaseError(Reason.DIFFERENT_BYTES)
        return earlier.signed
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
    return row.signed


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
    """Store an accepted report as it was signed, with its reference version."""
    session.add(
        ReportRow(
            organization_id=organization_id,
            release_id=report.slot.release_id(period),
            period_start=period.start,
            window=report.slot.window,
            index=report.slot.index,
            reference_version=reference_version,
            payload=signed.payload,
            signature=signed.signature,
            received_at=at,
        )
    )


def stored_reports(
    session: Session, period: Period, *, but: Collection[ReportKey] = ()
) -> dict[ReportKey, ReceivedReport | QueryResponse]:
    """Return accepted reports of the period except those with a key in `but`."""
    of_period = ReportRow.period_start == period.start
    keys = select(ReportRow.window, ReportRow.index, ReportRow.organization_id).where(of_period)
    new = {(window, index, owner) for window, index, owner in session.execute(keys)} - set(but)
    query = select(ReportRow).where(of_period, ReportRow.window.in_({each[0] for each in new}))
    schedules: dict[bytes, Schedule | None] = {}
    reports: dict[ReportKey, ReceivedReport | QueryResponse] = {}
    for row in session.scalars(query):
        owner = row.organization_id
        if (key := (row.window, row.index, owner)) not in new:
            continue
        if owner not in schedules:
            schedules[owner] = declared_schedule(session, owner, period)
        schedule, report = schedules[owner], codec.decode_release(row.payload)
        if schedule is None:
            continue
        slot = schedule.slot(report.slot)
        match report, slot and slot.parameters:
            case ResidualReport(), ReportParameters() as parameters:
                is_first = schedule.calendar.is_first_report(report.slot.index)
                reports[key] = ReceivedReport(owner.hex(), report, parameters, is_first)
            case DirectedReport(), DirectedParameters() as parameters:
                reports[key] = QueryResponse(owner.hex(), report, parameters)
            case _:
                raise TypeError("a stored report does not fit its declared slot")
    return reports


def count_reports(session: Session, period: Period) -> int:
    """Return the number of accepted reports of the period."""
    query = select(func.count()).where(ReportRow.period_start == period.start)
    return session.scalar(query) or 0


def count_rejection(session: Session, organization_id: bytes, kind: str, reason: Reason) -> None:
    """Count a refusal of something that an organization sent."""
    row = session.get(RejectionRow, (organization_id, kind, reason.value))
    if row is None:
        row = RejectionRow(organization_id=organization_id, kind=kind, reason=reason.value, count=0)
        session.add(row)
    row.count += 1
    session.flush()


def rejections(session: Session) -> dict[tuple[bytes, str, str], int]:
    """Return the numbers of refusals by organization, kind and reason."""
    rows = session.scalars(select(RejectionRow))
    return {(row.organization_id, row.kind, row.reason): row.count for row in rows}


@lru_cache(maxsize=10_000)
def _usable(payload: bytes) -> Schedule | None:
    """Return the stored schedule, or None if it may not be declared any more."""
    schedule = codec.decode_schedule(payload)
    try:
        require_declarable(schedule)
    except NotDeclarableError:
        return None
    return schedule
