"""The coordinator's database: everything that must survive a crash, in one place.

SQLite in the server's directory by default (WAL, synchronous=FULL), PostgreSQL by
URL. Times are Unix milliseconds, ids are bytes, so that both mean the same.
`transaction` is the only way to write: all of it is stored or nothing.
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
from fedperf_shared.runtime.private_files import close_to_others, create_private

DATABASE = "the database"
"""What a trouble with it is called."""

_BUSY_MILLISECONDS = 20_000


class DatabaseError(StorageError):
    """The coordinator's database cannot be read or written."""


class DatabaseTable(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {bytes: LargeBinary, int: BigInteger}  # noqa: RUF012  SQLAlchemy's way


class _SlotKeyed:
    """The primary key of what is stored for a slot, or begins with it."""

    period_start: Mapped[int] = mapped_column(primary_key=True)
    window: Mapped[int] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)


class OrganizationRow(DatabaseTable):
    """A member: its operator's label, its random wire id, its key."""

    __tablename__ = "organization"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    public_key: Mapped[bytes] = mapped_column(index=True)
    joined_at: Mapped[int]
    revoked_at: Mapped[int | None]


class SightingRow(DatabaseTable):
    """The last call of a member, to a minute."""

    __tablename__ = "sighting"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    seen_at: Mapped[int]


class InvitationRow(DatabaseTable):
    """A token (only its hash is kept) that lets one organization join once."""

    __tablename__ = "invitation"
    token_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    expires_at: Mapped[int]
    used_at: Mapped[int | None]


class ScheduleRow(DatabaseTable):
    """The schedule that an organization declared for a period; never changed."""

    __tablename__ = "schedule"
    organization_id: Mapped[bytes] = mapped_column(
        ForeignKey("organization.organization_id"), primary_key=True
    )
    period_start: Mapped[int] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    declared_at: Mapped[int]


class RoundRow(_SlotKeyed, DatabaseTable):
    """One model round; `closed_at` is empty while it is under way."""

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


class RoundQuestionRow(_SlotKeyed, DatabaseTable):
    """The question of a model round at the tangent, made once, when the round is opened."""

    __tablename__ = "round_question"
    payload: Mapped[bytes]


class ReplyRow(_SlotKeyed, DatabaseTable):
    """One organization's answer in a round: `outcome` is "accepted" or the reason why not."""

    __tablename__ = "reply"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    outcome: Mapped[str]
    payload_sha256: Mapped[bytes | None]
    size: Mapped[int]


class UpdateRow(_SlotKeyed, DatabaseTable):
    """An accepted model update that is a sum, as signed; what the round made of it is a version."""

    __tablename__ = "model_update"
    organization_id: Mapped[bytes] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    signature: Mapped[bytes]
    received_at: Mapped[int]


class ReportRow(DatabaseTable):
    """An accepted report, residual or directed, as signed."""

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


class EpochRow(DatabaseTable):
    """A declared epoch; `begins_at` is the start of a window. The first one is not declared."""

    __tablename__ = "epoch"
    begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    reference_version: Mapped[int]
    cause: Mapped[str]
    platforms: Mapped[str]
    note: Mapped[str]
    declared_at: Mapped[int]


class DriftRow(DatabaseTable):
    """A drift that was found in the reports of a period about one epoch; never changed."""

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


class QuestionRow(_SlotKeyed, DatabaseTable):
    """The question of a directed slot, made once; `version` counts them from 1."""

    __tablename__ = "question"
    version: Mapped[int] = mapped_column(unique=True)
    payload: Mapped[bytes]
    asked_at: Mapped[int]


class ReceiptRow(DatabaseTable):
    """A signed confirmation; `sequence` counts an organization's releases from 1."""

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
    """A version of the shared model; a candidate until it is promoted."""

    __tablename__ = "model_version"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    checkpoint: Mapped[bytes]
    created_at: Mapped[int]
    promoted_at: Mapped[int | None]
    public_error: Mapped[float | None]


class VerdictRow(DatabaseTable):
    """A decision about a version; the latest one of a version counts, none is ever changed."""

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
    """The synthetic rows of one epoch that are rehearsed in later ones."""

    __tablename__ = "buffer"
    epoch_begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    payload: Mapped[bytes]
    stored_at: Mapped[int]


class BufferTeacherRow(DatabaseTable):
    """Which model version labelled the rows of an epoch in the buffer."""

    __tablename__ = "buffer_teacher"
    epoch_begins_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]


class PublicationRow(DatabaseTable):
    """A publication that every organization may fetch, one serialized message per kind."""

    __tablename__ = "publication"
    kind: Mapped[str] = mapped_column(primary_key=True)
    payload: Mapped[bytes]
    published_at: Mapped[int]


class PublishedEpochRow(DatabaseTable):
    """Which epoch a publication is about, by its start."""

    __tablename__ = "published_epoch"
    kind: Mapped[str] = mapped_column(primary_key=True)
    epoch_begins_at: Mapped[int]


class EventRow(DatabaseTable):
    """One entry of the audit log."""

    __tablename__ = "event"
    event_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[int]
    kind: Mapped[str]
    detail: Mapped[str]
    chain: Mapped[bytes]


class Database:
    """Sessions on the coordinator's database."""

    def __init__(self, url: str) -> None:
        """Open the database and make what tables are missing.

        Raises:
            DatabaseError: the URL or the file cannot be used.
        """
        shown = shown_url(url)
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
            raise DatabaseError(f"cannot open the database {shown}: {_line(error)}") from error

    @classmethod
    def existing(cls, url: str) -> Self:
        """Open a database that is there; a file that is lost is not replaced by an empty one.

        Raises:
            DatabaseError: as the constructor, or the file is missing.
        """
        file = url.removeprefix("sqlite:///").partition("?")[0]
        if url.startswith("sqlite:///") and not Path(file).exists():
            raise DatabaseError(
                f"the database {file} is missing; restore it from a backup, or correct "
                "database_url; members and models are in it and nowhere else, so where it is lost "
                "for good, make another server with `fedperf-server init` in an empty directory, "
                "which members join anew"
            )
        return cls(url)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session whose writes are stored together at the end, or not at all.

        Raises:
            DatabaseError: the database does not answer, or refuses what was written.
        """
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session
        except DBAPIError as error:
            raise DatabaseError(f"the database cannot be used: {_line(error)}") from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def shown_url(url: str) -> str:
    """A database's URL for messages: no password, and no query, which may hold one.

    Raises:
        DatabaseError: it is none; its text is not repeated, as a part of it may be a password.
    """
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        raise DatabaseError(
            "database_url cannot be read; expected a URL of SQLAlchemy such as "
            "postgresql+psycopg://user:password@host:5432/name, with %40 for @ in a password"
        ) from None


def _configure_sqlite(engine: Engine) -> None:
    """Durable commits, readers beside one writer, and transactions that take the lock first."""

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
