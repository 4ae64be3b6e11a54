"""The coordinator's database holds everything that must survive a crash.

By default it is SQLite in the server's directory (WAL, synchronous=FULL). A URL may name
PostgreSQL. Times are stored as Unix milliseconds and ids as bytes, which have the same meaning in
both. Columns convert values, so rows hold timestamps, platforms and enumerations.
`Database.transaction` writes all or nothing.

The audit log (`record_event`) records every action in order and is never changed. Each entry stores
a hash of itself and of the previous entry, so that changed and removed entries are detected.
Entries hold ids and counts, never contents of releases.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum, unique
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import (
    BigInteger,
    Dialect,
    ForeignKey,
    LargeBinary,
    String,
    TypeDecorator,
    UniqueConstraint,
    and_,
    create_engine,
    event,
    select,
)
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    foreign,
    mapped_column,
    relationship,
)
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeEngine

from fedperf_shared import identity
from fedperf_shared.errors import StorageError
from fedperf_shared.exchange import SignedReceipt
from fedperf_shared.releases.period import Period, from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SignedRelease, SlotKey
from fedperf_shared.runtime.process import close_to_others, create_private
from fedperf_shared.workflow.vocabulary import Platform

DATABASE = "the database"  # name of the database in the failure tracker
ACCEPTED = "accepted"  # outcome of a reply that was accepted. Others are the reason of refusal.
_BUSY_MILLISECONDS = 20_000


class DatabaseError(StorageError):
    """Raised when the coordinator's database cannot be read or written."""


@unique
class RoundOutcome(StrEnum):
    """The outcome of a round. `FAILED`: the accepted updates gave no usable model."""

    NEW_VERSION = "new_version"
    NO_QUORUM = "no_quorum"
    FAILED = "failed"
    MISSED = "missed"


@unique
class VersionStatus(StrEnum):
    """The status of a version."""

    CANDIDATE = "candidate"
    PROMOTED = "promoted"
    REJECTED = "rejected"


@unique
class RegimeTrigger(StrEnum):
    """The reason why a regime began."""

    START = "start"
    SHARED_DRIFT = "shared drift"
    DECLARED = "announced"


class _Converted(TypeDecorator[object]):
    """A column that stores `encode(value)` and loads `decode(stored)`."""

    impl = String
    cache_ok = True

    def __init__(
        self,
        encode: Callable[..., object],
        decode: Callable[..., object],
        stored: TypeEngine[Any] | None = None,
    ) -> None:
        super().__init__()
        self.encode, self.decode = encode, decode
        self.impl = stored or self.impl  # type: ignore[assignment]  # an instance, not a class

    def process_bind_param(self, value: object, dialect: Dialect) -> object:
        del dialect
        return None if value is None else self.encode(value)

    def process_result_value(self, value: object, dialect: Dialect) -> object:
        del dialect
        return None if value is None else self.decode(value)


@lru_cache(maxsize=10_000)
def _load_key(stored: bytes) -> ec.EllipticCurvePublicKey:
    """Return a public key, cached as members are loaded at every tick and call."""
    key = serialization.load_der_public_key(stored)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise StorageError("the database holds a key that is not an elliptic-curve key")
    return key


class DatabaseTable(DeclarativeBase):
    """The base class of all tables."""

    type_annotation_map = {  # noqa: RUF012  SQLAlchemy's way
        bytes: LargeBinary,
        int: BigInteger,
        datetime: _Converted(to_unix_ms, from_unix_ms, BigInteger()),
        ec.EllipticCurvePublicKey: _Converted(identity.public_bytes, _load_key, LargeBinary()),
        RoundOutcome: _Converted(str, RoundOutcome),
        VersionStatus: _Converted(str, VersionStatus),
        RegimeTrigger: _Converted(str, RegimeTrigger),
        Platform: _Converted(attrgetter("name"), Platform.__getitem__),
        tuple[Platform, ...]: _Converted(
            lambda platforms: " ".join(each.name for each in platforms),
            lambda names: tuple(Platform[each] for each in names.split()),
        ),
        tuple[str, ...]: _Converted(" ".join, lambda words: tuple(words.split())),
        Mapping[Platform, float]: _Converted(
            lambda errors: json.dumps({each.name: error for each, error in errors.items()}),
            lambda text: {Platform[name]: error for name, error in json.loads(text).items()},
        ),
    }


class _SlotKeyed:
    """The primary key, or its beginning, of rows that belong to a slot."""

    period_start: Mapped[datetime] = mapped_column(primary_key=True)
    window: Mapped[int] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)


def slot_key(period: Period, slot: SlotKey) -> dict[str, Any]:
    """Return the columns of `_SlotKeyed` for a slot of the period."""
    return {"period_start": period.start, "window": slot.window, "index": slot.index}


class Member(DatabaseTable):
    """An organization that joined. It is a member until it is revoked.

    It has the operator's name for it, a random id on the wire, and its key.
    """

    __tablename__ = "organization"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    public_key: Mapped[ec.EllipticCurvePublicKey] = mapped_column(index=True)
    joined_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of its key, which the organization's programs show too."""
        return identity.fingerprint(self.public_key)


class SightingRow(DatabaseTable):
    """The last call of a member, to the minute."""

    __tablename__ = "sighting"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    seen_at: Mapped[datetime]


class InvitationRow(DatabaseTable):
    """The hash of a token that lets one organization join once."""

    __tablename__ = "invitation"
    token_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ScheduleRow(DatabaseTable):
    """The schedule that an organization declared for a period. It is never changed."""

    __tablename__ = "schedule"
    organization_id: Mapped[bytes] = mapped_column(
        ForeignKey("organization.organization_id"), primary_key=True
    )
    period_start: Mapped[datetime] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    declared_at: Mapped[datetime]


class ModelRound(_SlotKeyed, DatabaseTable):
    """A model round."""

    __tablename__ = "round"
    number: Mapped[int] = mapped_column(unique=True)  # number of the round, from 1 over all periods
    base_version: Mapped[int]  # version of the model that it started from
    opened_at: Mapped[datetime]
    closed_at: Mapped[datetime | None]  # empty while it is open
    outcome: Mapped[RoundOutcome | None]  # how it ended
    # Number of organizations whose schedule contains the slot.
    expected: Mapped[int] = mapped_column("asked", default=0)
    replies: Mapped[int] = mapped_column(default=0)  # number of accepted updates
    seconds: Mapped[float | None]  # from its opening to its end
    new_version: Mapped[int | None]  # the model version that it made
    public_error: Mapped[float | None]  # error of that version on public data
    reply_rows: Mapped[list["ReplyRow"]] = relationship(
        primaryjoin=lambda: and_(
            *(
                foreign(getattr(ReplyRow, each)) == getattr(ModelRound, each)
                for each in ("period_start", "window", "index")
            )
        ),
        lazy="selectin",
    )

    @property
    def slot(self) -> SlotKey:
        """Return the slot of the round."""
        return SlotKey(ReleaseKind.MODEL_UPDATE, self.window, self.index)

    def close(self, outcome: RoundOutcome, *, at: datetime) -> None:
        """Set how the round ended, when, and how long it took."""
        self.outcome, self.closed_at = outcome, at
        self.seconds = max(0, to_unix_ms(at) - to_unix_ms(self.opened_at)) / 1000

    @property
    def failures(self) -> dict[str, int]:
        """Return the numbers of updates not accepted, by reason (`missing`: no reply)."""
        outcomes = Counter(each.outcome for each in self.reply_rows)
        return {reason: count for reason, count in outcomes.items() if reason != ACCEPTED}


class RoundQueryRow(_SlotKeyed, DatabaseTable):
    """The linear query of a model round, stored once when the round is opened."""

    __tablename__ = "round_question"
    payload: Mapped[bytes]


class ReplyRow(_SlotKeyed, DatabaseTable):
    """An organization's reply in a round. `outcome` is "accepted" or the reason of refusal."""

    __tablename__ = "reply"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    outcome: Mapped[str]
    payload_sha256: Mapped[bytes | None]
    size: Mapped[int]


class UpdateRow(_SlotKeyed, DatabaseTable):
    """An accepted model update as it was signed."""

    __tablename__ = "model_update"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    signature: Mapped[bytes]
    received_at: Mapped[datetime]


class ReportRow(DatabaseTable):
    """An accepted report, residual or directed, as it was signed."""

    __tablename__ = "report"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    release_id: Mapped[bytes] = mapped_column(primary_key=True)
    period_start: Mapped[datetime]
    window: Mapped[int]
    index: Mapped[int]
    reference_version: Mapped[int]
    payload: Mapped[bytes]
    signature: Mapped[bytes]
    received_at: Mapped[datetime]


class RegimeRow(DatabaseTable):
    """A declared drift regime. `begins_at` is the start of a window. The first has no row."""

    __tablename__ = "epoch"
    begins_at: Mapped[datetime] = mapped_column(primary_key=True, autoincrement=False)
    reference_version: Mapped[int]
    cause: Mapped[RegimeTrigger]
    platforms: Mapped[tuple[Platform, ...]]
    note: Mapped[str]
    declared_at: Mapped[datetime]


class DriftRow(DatabaseTable):
    """A drift detected in the reports of a period about one regime. It is never changed."""

    __tablename__ = "drift"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    period_start: Mapped[datetime]
    regime_begins_at: Mapped[datetime] = mapped_column("epoch_begins_at")
    platform: Mapped[Platform]
    since: Mapped[int]
    detected_in: Mapped[int] = mapped_column("found")
    log_factor: Mapped[float]
    standard_error: Mapped[float]
    organizations: Mapped[tuple[str, ...]]
    shared: Mapped[bool]
    seen_at: Mapped[datetime]


class QueryRow(_SlotKeyed, DatabaseTable):
    """The linear query of a directed slot, stored once. `version` counts from 1."""

    __tablename__ = "question"
    version: Mapped[int] = mapped_column(unique=True)
    payload: Mapped[bytes]
    designed_at: Mapped[datetime] = mapped_column("asked_at")


class ReceiptRow(DatabaseTable):
    """A signed receipt. `sequence` counts an organization's releases from 1."""

    __tablename__ = "receipt"
    __table_args__ = (UniqueConstraint("organization_id", "sequence"),)
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    release_id: Mapped[bytes] = mapped_column(primary_key=True)
    sequence: Mapped[int]
    payload_sha256: Mapped[bytes]
    payload: Mapped[bytes]
    signature: Mapped[bytes]

    @property
    def signed(self) -> SignedReceipt:
        """Return the receipt as the organization gets it."""
        return SignedReceipt(self.payload, self.signature)

    def confirms(self, signed: SignedRelease) -> bool:
        """Return whether these bytes were accepted."""
        return self.payload_sha256 == hashlib.sha256(signed.payload).digest()


class RejectionRow(DatabaseTable):
    """The number of refusals of an organization, by kind and reason."""

    __tablename__ = "rejection"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(default=0)


class ModelVersionRow(DatabaseTable):
    """A version of the shared model, which is a candidate until it is promoted."""

    __tablename__ = "model_version"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    checkpoint: Mapped[bytes]
    created_at: Mapped[datetime]
    promoted_at: Mapped[datetime | None]
    public_error: Mapped[float | None]


class PromotionRecord(DatabaseTable):
    """A decision about a version. The latest one counts, and none is ever changed."""

    __tablename__ = "verdict"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(index=True)  # the version that was decided
    # Its status from now on. An inconclusive candidate stays a candidate.
    status: Mapped[VersionStatus] = mapped_column("standing")
    reason: Mapped[str]  # text for the operator
    # Reduction in mean squared log error against the promoted version, estimated from reports; None
    # without reports.
    gain: Mapped[float | None]
    gain_error: Mapped[float | None]  # standard error of the gain
    # Mean absolute log error on the buffer's rows of each segment.
    by_segment: Mapped[Mapping[Platform, float]]
    decided_at: Mapped[datetime]  # time of the decision

    @property
    def promoted(self) -> bool:
        """Return whether organizations may fetch the version."""
        return self.status is VersionStatus.PROMOTED


class BufferRow(DatabaseTable):
    """The synthetic rows of a regime for rehearsal in later regimes."""

    __tablename__ = "buffer"
    regime_begins_at: Mapped[datetime] = mapped_column(
        "epoch_begins_at", primary_key=True, autoincrement=False
    )
    payload: Mapped[bytes]
    stored_at: Mapped[datetime]


class BufferTeacherRow(DatabaseTable):
    """The model version that labelled the rows of a regime in the buffer."""

    __tablename__ = "buffer_teacher"
    regime_begins_at: Mapped[datetime] = mapped_column(
        "epoch_begins_at", primary_key=True, autoincrement=False
    )
    version: Mapped[int]


class PublicationRow(DatabaseTable):
    """A publication for all organizations, one serialized message per kind."""

    __tablename__ = "publication"
    kind: Mapped[str] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    published_at: Mapped[datetime]


class PublishedRegimeRow(DatabaseTable):
    """The regime of a publication, by its start."""

    __tablename__ = "published_epoch"
    kind: Mapped[str] = mapped_column(primary_key=True)
    regime_begins_at: Mapped[datetime] = mapped_column("epoch_begins_at")


class EventRow(DatabaseTable):
    """An entry of the audit log. Its time stays a number, which the hash covers."""

    __tablename__ = "event"
    event_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[int]
    kind: Mapped[str]
    detail: Mapped[str]
    chain: Mapped[bytes]


def record_event(
    session: Session, kind: str, /, *, at: datetime, **detail: str | int | float | None
) -> None:
    """Append an entry to the audit log in the caller's transaction."""
    last = session.scalars(select(EventRow).order_by(EventRow.event_id.desc()).limit(1)).first()
    row = EventRow(
        event_id=last.event_id + 1 if last else 1,
        at=to_unix_ms(at),
        kind=kind,
        detail=json.dumps(detail, sort_keys=True),
        chain=b"",
    )
    row.chain = chain_hash(last.chain if last else bytes(32), row)
    session.add(row)
    session.flush()


def chain_hash(previous: bytes, row: EventRow) -> bytes:
    """Return the hash of an entry and of all before it; 32 zeros come before the first."""
    text = f"{row.event_id} {row.at} {row.kind} {row.detail}"
    return hashlib.sha256(previous + text.encode()).digest()


class Database:
    """Transactions on the coordinator's database."""

    def __init__(self, url: str) -> None:
        """Open the database and create missing tables.

        Raises:
            DatabaseError: the URL or the file cannot be used.
        """
        displayed = displayed_url(url)
        try:
            self._engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
            if self._engine.dialect.name == "sqlite":
                _configure_sqlite(self._engine)
                file = Path(self._engine.url.database or "")
                create_private(file)
                for suffix in ("", "-wal", "-shm"):
                    close_to_others(Path(f"{file}{suffix}"))
            DatabaseTable.metadata.create_all(self._engine)
        except (SQLAlchemyError, ImportError) as error:
            raise DatabaseError(f"cannot open the database {displayed}: {_line(error)}") from error

    @classmethod
    def existing(cls, url: str) -> Self:
        """Open an existing database. A lost file is not replaced by an empty one.

        Raises:
            DatabaseError: the file is missing, or as for the constructor.
        """
        file = url.removeprefix("sqlite:///").partition("?")[0]
        if url.startswith("sqlite:///") and not Path(file).exists():
            raise DatabaseError(
                f"the database {file} is missing; fix database_url or restore it from a backup. "
                "Members and models are stored nowhere else. Without a backup, make a new server "
                "with `fedperf-server init` in an empty directory and invite the members again"
            )
        return cls(url)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a session whose writes are stored together at the end, or not at all.

        Raises:
            DatabaseError: the database does not respond, or refuses a write.
        """
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session
        except DBAPIError as error:
            raise DatabaseError(f"the database cannot be used: {_line(error)}") from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def displayed_url(url: str) -> str:
    """Return a database URL for messages, without password and query.

    Raises:
        DatabaseError: it is no URL. Its text is not repeated, as it may contain a password.
    """
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        raise DatabaseError(
            "database_url cannot be parsed; expected an SQLAlchemy URL such as "
            "postgresql+psycopg://user:password@host:5432/name, with %40 for @ in a password"
        ) from None


def _configure_sqlite(engine: Engine) -> None:
    """Configure durable commits, concurrent readers, and transactions that lock at the start."""

    @event.listens_for(engine, "connect")
    def connect(connection: object, record: ConnectionPoolEntry) -> None:
        del record
        cursor = connection.cursor()  # type: ignore[attr-defined]
        connection.isolation_level = None  # type: ignore[attr-defined]
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={_BUSY_MILLISECONDS}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: object) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # type: ignore[attr-defined]


def _line(error: Exception) -> str:
    return str(error.__cause__ or error).splitlines()[0]
