"""The coordinator's database holds everything that must survive a crash.

By default it is SQLite in the server's directory (WAL, synchronous=FULL); a URL may name
PostgreSQL. Times are Unix milliseconds and ids are bytes, which have the same meaning in both.
Everything is written by `transaction`, which stores all or nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    LargeBinary,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import ConnectionPoolEntry

from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import close_to_others, create_private

DATABASE = "the database"
"""Name of the database in the failure tracker."""

_BUSY_MILLISECONDS = 20_000


class DatabaseError(StorageError):
    """Raised when the coordinator's database cannot be read or written."""


class DatabaseTable(DeclarativeBase):
    """The base class of all tables."""

    type_annotation_map = {bytes: LargeBinary, int: BigInteger}  # noqa: RUF012  SQLAlchemy's way


class _SlotKeyed:
    """The primary key, or its beginning, of rows that belong to a slot."""

    period_start: Mapped[int] = mapped_column(primary_key=True)
    window: Mapped[int] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)


class OrganizationRow(DatabaseTable):
    """A member with the operator's name for it, its random id on the wire, and its key."""

    __tablename__ = "organization"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    public_key: Mapped[bytes] = mapped_column(index=True)
    joined_at: Mapped[int]
    revoked_at: Mapped[int | None]


class SightingRow(DatabaseTable):
    """The last call of a member, to the minute."""

    __tablename__ = "sighting"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    seen_at: Mapped[int]


class InvitationRow(DatabaseTable):
    """The hash of a token that lets one organization join once."""

    __tablename__ = "invitation"
    token_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    expires_at: Mapped[int]
    used_at: Mapped[int | None]


class ScheduleRow(DatabaseTable):
    """The schedule that an organization declared for a period. It is never changed."""

    __tablename__ = "schedule"
    organization_id: Mapped[bytes] = mapped_column(
        ForeignKey("organization.organization_id"), primary_key=True
    )
    period_start: Mapped[int] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    declared_at: Mapped[int]


class RoundRow(_SlotKeyed, DatabaseTable):
    """A model round. `closed_at` is empty while it is open."""

    __tablename__ = "round"
    number: Mapped[int] = mapped_column(unique=True)
    base_version: Mapped[int]
    opened_at: Mapped[int]
    closed_at: Mapped[int | None]
    outcome: Mapped[str | None]
    asked: Mapped[int] = mapped_column(default=0)
    replies: Mapped[int] = mapped_column(default=0)
    seconds: Mapped[float | None]
    new_version: Mapped[int | None]
    public_error: Mapped[float | None]


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
    received_at: Mapped[int]


class ReportRow(DatabaseTable):
    """An accepted report, residual or directed, as it was signed."""

    __tablename__ = "report"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    release_id: Mapped[bytes] = mapped_column(primary_key=True)
    period_start: Mapped[int]
    window: Mapped[int]
    index: Mapped[int]
    reference_version: Mapped[int]
    payload: Mapped[bytes]
    signature: Mapped[bytes]
    received_at: Mapped[int]


class RegimeRow(DatabaseTable):
    """A declared drift regime. `begins_at` is the start of a window. The first has no row."""

    __tablename__ = "epoch"
    begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    reference_version: Mapped[int]
    cause: Mapped[str]
    platforms: Mapped[str]
    note: Mapped[str]
    declared_at: Mapped[int]


class DriftRow(DatabaseTable):
    """A drift detected in the reports of a period about one regime. It is never changed."""

    __tablename__ = "drift"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    period_start: Mapped[int]
    epoch_begins_at: Mapped[int]
    platform: Mapped[str]
    since: Mapped[int]
    found: Mapped[int]
    log_factor: Mapped[float]
    standard_error: Mapped[float]
    organizations: Mapped[str]
    shared: Mapped[bool]
    seen_at: Mapped[int]


class QueryRow(_SlotKeyed, DatabaseTable):
    """The linear query of a directed slot, stored once. `version` counts from 1."""

    __tablename__ = "question"
    version: Mapped[int] = mapped_column(unique=True)
    payload: Mapped[bytes]
    asked_at: Mapped[int]


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
    created_at: Mapped[int]
    promoted_at: Mapped[int | None]
    public_error: Mapped[float | None]


class DecisionRow(DatabaseTable):
    """A decision about a version. The latest one counts, and none is ever changed."""

    __tablename__ = "verdict"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(index=True)
    standing: Mapped[str]
    reason: Mapped[str]
    gain: Mapped[float | None]
    gain_error: Mapped[float | None]
    by_segment: Mapped[str]
    decided_at: Mapped[int]


class BufferRow(DatabaseTable):
    """The synthetic rows of a regime for rehearsal in later regimes."""

    __tablename__ = "buffer"
    epoch_begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    payload: Mapped[bytes]
    stored_at: Mapped[int]


class BufferTeacherRow(DatabaseTable):
    """The model version that labelled the rows of a regime in the buffer."""

    __tablename__ = "buffer_teacher"
    epoch_begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]


class PublicationRow(DatabaseTable):
    """A publication for all organizations, one serialized message per kind."""

    __tablename__ = "publication"
    kind: Mapped[str] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    published_at: Mapped[int]


class PublishedRegimeRow(DatabaseTable):
    """The regime of a publication, by its start."""

    __tablename__ = "published_epoch"
    kind: Mapped[str] = mapped_column(primary_key=True)
    epoch_begins_at: Mapped[int]


class EventRow(DatabaseTable):
    """An entry of the audit log."""

    __tablename__ = "event"
    event_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[int]
    kind: Mapped[str]
    detail: Mapped[str]
    chain: Mapped[bytes]


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
