"""The files of the privacy ledger: append-only SQLite files, each with its witnesses.

Triggers inside the SQLite files refuse every update and deletion, so they bind any program that
opens the file. Charges are numbered without a gap: the newest number is their count.

Two small files next to an SQLite file reveal a restored backup. One holds the number of charges,
the other the last receipt of the coordinator. Both are replaced atomically and synced to disk. A
witness that cannot be read is an error and never counts as absent.
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedperf_shared.errors import InvalidInputError, StorageError

_BUSY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The contents of one kind of file."""

    name: str  # in error messages
    application_id: int  # marks files of the kind
    schema_version: int  # of the tables; a file of any other version is refused
    tables: tuple[str, ...]  # SQL statements that create them, with their constraints
    keys: Mapping[str, str]  # the key column of every table
    unit: str  # what its entries are called in error messages
    count: str  # SQL query of the number of its entries


PERIOD_LEDGER = FileLayout(
    name="ledger",
    application_id=0x66704C67,  # "fpLg"
    schema_version=2,
    tables=(
        """CREATE TABLE promise (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            epsilon REAL NOT NULL, delta REAL NOT NULL, schedule BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE reserved (
            release_id BLOB PRIMARY KEY, number INTEGER NOT NULL, kind INTEGER NOT NULL,
            window INTEGER NOT NULL, slot INTEGER NOT NULL, reserved_unix_ms INTEGER NOT NULL,
            reconciled INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX reserved_by_number ON reserved (number)",
        """CREATE TRIGGER reserved_is_numbered BEFORE INSERT ON reserved
            WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM reserved)
            BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: not the next number'); END""",
        """CREATE TABLE drawn (
            release_id BLOB PRIMARY KEY REFERENCES reserved (release_id),
            payload BLOB NOT NULL, signature BLOB NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE handed_out (
            release_id BLOB PRIMARY KEY REFERENCES drawn (release_id),
            handed_out_unix_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE reconciliation (
            id INTEGER PRIMARY KEY, reconciled_unix_ms INTEGER NOT NULL,
            charges INTEGER NOT NULL, disagreement TEXT NOT NULL
        ) STRICT""",
    ),
    keys={
        "promise": "id",
        "reserved": "release_id",
        "drawn": "release_id",
        "handed_out": "release_id",
        "reconciliation": "id",
    },
    unit="charges",
    count="SELECT coalesce(max(number), 0) FROM reserved",
)

LIFETIME_RECORD = FileLayout(
    name="lifetime record",
    application_id=0x66704C74,  # "fpLt"
    schema_version=1,
    tables=(
        """CREATE TABLE promise (
            id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL NOT NULL, delta REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE period (
            start_unix_ms INTEGER PRIMARY KEY, ledger TEXT NOT NULL,
            epsilon REAL NOT NULL, delta REAL NOT NULL, schedule BLOB NOT NULL
        ) STRICT""",
    ),
    keys={"promise": "id", "period": "start_unix_ms"},
    unit="periods",
    count="SELECT count(*) FROM period",
)

# The insert trigger also stops INSERT OR REPLACE, which deletes without delete triggers
# unless the connection enabled recursive ones.
_TRIGGERS = (
    """CREATE TRIGGER {table}_is_not_replaced BEFORE INSERT ON {table}
    WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: already there'); END""",
    """CREATE TRIGGER {table}_is_not_updated BEFORE UPDATE ON {table}
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: no update'); END""",
    """CREATE TRIGGER {table}_is_not_deleted BEFORE DELETE ON {table}
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: no delete'); END""",
)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file in autocommit, waiting for other writers; StorageError where it is unusable."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with (
        storage_errors(path),
        closing(
            sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as connection,
    ):
        # FULL may lose the last commit with the power: the deleted journal can come back.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")
        yield connection


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Run one durable, exclusive transaction. An exception inside rolls it back.

    Raises:
        StorageError: the file cannot be used.
    """
    with reading(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as one `StorageError` that names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StorageError(f"ledger {path}: cannot be used: {error}") from error
    except OSError as error:
        raise StorageError(f"ledger {path}: {error.strerror or error}") from error


def create_file(path: Path, layout: FileLayout, *promise: object) -> bool:
    """Create the file with the row of its promise: it exists whole or not at all.

    Returns:
        False if another process created `path` meanwhile; its file stays.

    Raises:
        StorageError: it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    statements = [
        f"PRAGMA application_id = {layout.application_id}",
        f"PRAGMA user_version = {layout.schema_version}",
        *layout.tables,
    ]
    for table, key in layout.keys.items():
        statements += [each.format(table=table, key=key) for each in _TRIGGERS]
    with storage_errors(path):
        scratch.unlink(missing_ok=True)
        scratch.touch(mode=0o600)
        try:
            with transaction(scratch) as connection:
                for statement in statements:
                    connection.execute(statement)
                marks = ", ".join("?" for _ in promise)
                connection.execute(f"INSERT INTO promise VALUES (1, {marks})", promise)  # noqa: S608
            os.link(scratch, path)
        except FileExistsError:
            return False
        finally:
            scratch.unlink()
    return True


def read_promise(path: Path, layout: FileLayout) -> tuple[Any, ...]:
    """Check the file and return the row of its promise without its id; empty if it has none.

    Raises:
        StorageError: it is damaged, or no file of this kind, or of another version.
    """
    with reading(path) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != layout.application_id:
            raise StorageError(f"{layout.name} {path}: not a {layout.name} of fedperf")
        if version != layout.schema_version:
            age = "a newer" if version > layout.schema_version else "an older"
            raise StorageError(
                f"{layout.name} {path}: written by {age} fedperf (schema {version}, this one reads "
                f"{layout.schema_version}); please use that one"
            )
        (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if check != "ok":
            raise StorageError(f"{layout.name} {path}: damaged: {check.splitlines()[-1]}")
        row = connection.execute("SELECT * FROM promise").fetchone()
    return () if row is None else tuple(row[1:])


_COUNTER = "fedperf-counter/1"
COUNTER_SUFFIX = ".counter"
_CONFIRMED = "fedperf-receipt/1"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class ConfirmedRelease:
    """The content of a verified receipt: the coordinator received these bytes for this slot.

    Raises:
        InvalidInputError: these are no digests, or the sequence does not start at 1.
    """

    release_id: bytes  # of the slot
    payload_sha256: bytes  # of the bytes
    sequence: int  # counts the organization's releases from 1
    signed: bytes  # the serialized SignedReceipt, which an operator can show

    def __post_init__(self) -> None:
        lengths = {len(self.release_id), len(self.payload_sha256)}
        if lengths != {_DIGEST_BYTES} or not self.sequence >= 1:
            raise InvalidInputError("a receipt names a release, a SHA-256 and a sequence from 1")


def counter_path(ledger: Path) -> Path:
    """Return the path of a ledger's counter."""
    return ledger.with_name(ledger.name + COUNTER_SUFFIX)


def confirmed_path(ledger: Path) -> Path:
    """Return the path of a ledger's last receipt."""
    return ledger.with_name(ledger.name + ".receipt")


def read_counter(ledger: Path) -> tuple[str, int] | None:
    """Return the identity of the ledger and its number of charges, or None without a file."""
    path = counter_path(ledger)
    words = _read_witness(path, _COUNTER, 2)
    if words is None:
        return None
    try:
        return words[0], int(words[1])
    except ValueError as error:
        raise StorageError(f"{path}: damaged counter: {error}") from error


def write_counter(ledger: Path, identity: str, charges: int) -> None:
    """Replace the counter durably."""
    _write_witness(counter_path(ledger), f"{_COUNTER} {identity} {charges}\n")


def read_confirmed(ledger: Path) -> ConfirmedRelease | None:
    """Return the last receipt, or None without a file."""
    path = confirmed_path(ledger)
    words = _read_witness(path, _CONFIRMED, 4)
    if words is None:
        return None
    try:
        release_id, digest, signed = (bytes.fromhex(words[place]) for place in (0, 1, 3))
        return ConfirmedRelease(release_id, digest, int(words[2]), signed)
    except (ValueError, InvalidInputError) as error:
        raise StorageError(f"{path}: damaged receipt: {error}") from error


def write_confirmed(ledger: Path, confirmed: ConfirmedRelease) -> None:
    """Replace the last receipt durably."""
    _write_witness(
        confirmed_path(ledger),
        f"{_CONFIRMED} {confirmed.release_id.hex()} {confirmed.payload_sha256.hex()} "
        f"{confirmed.sequence} {confirmed.signed.hex()}\n",
    )


def _read_witness(path: Path, mark: str, count: int) -> list[str] | None:
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    words = text.split()
    if len(words) != count + 1 or words[0] != mark:
        raise StorageError(f"{path}: not a file of fedperf's ledger, or damaged")
    return words[1:]


def _write_witness(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


class AppendOnlyFile:
    """A file of one layout and its counter; several threads and processes may share them."""

    layout: ClassVar[FileLayout]

    def __init__(self, path: Path, promise: bytes) -> None:
        """Use the file at `path`; a hash of `promise` names it in its counter."""
        self.path = path
        self._identity = hashlib.sha256(promise).hexdigest()

    def disagreement(self) -> str | None:
        """Describe what the witness files hold and this file lacks; None if they agree."""
        with transaction(self.path) as connection:
            return self._find_disagreement(connection)

    def _find_disagreement(self, connection: sqlite3.Connection) -> str | None:
        count, unit, counter = self._count(connection), self.layout.unit, read_counter(self.path)
        if counter is None:
            missing = f"the counter file is missing, {self.path.name} holds {count} {unit}"
            return missing if count else None
        if counter[0] != self._identity:
            return "the counter file belongs to another ledger"
        # One charge ahead of its counter is a crash right after the charge: nothing is hidden.
        if not count - 1 <= counter[1] <= count:
            return f"the counter file holds {counter[1]} {unit}, the ledger holds {count}"
        return None

    def _count(self, connection: sqlite3.Connection) -> int:
        (count,) = connection.execute(self.layout.count).fetchone()
        return int(count)

    def _advance_counter(self) -> None:
        """Write the present count under the lock, so that no slower writer turns it back."""
        with transaction(self.path) as connection:
            write_counter(self.path, self._identity, self._count(connection))
