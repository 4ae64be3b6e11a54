"""The SQLite files under the privacy ledger: their tables, and that nothing in them changes.

Every table is append-only by triggers that live in the file, so they bind any program
that opens it. Charges are numbered without a gap, so that the newest number is their
count. Refused: files of another kind, damaged ones, those of another schema.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedperf_shared.errors import StorageError

_BUSY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The contents of one kind of file.

    Attributes:
        name: in error messages.
        application_id: marks files of the kind.
        schema_version: of the tables; a file of any other version is refused.
        tables: SQL that makes them, and what else is to hold in them.
        keys: the key column of every table.
    """

    name: str
    application_id: int
    schema_version: int
    tables: tuple[str, ...]
    keys: Mapping[str, str]


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
)

# The insert trigger also stops INSERT OR REPLACE, which deletes without delete triggers
# unless the connection asked for recursive ones.
_TRIGGERS = """
CREATE TRIGGER {table}_is_not_replaced BEFORE INSERT ON {table}
    WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: already there'); END;
CREATE TRIGGER {table}_is_not_updated BEFORE UPDATE ON {table}
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: no update'); END;
CREATE TRIGGER {table}_is_not_deleted BEFORE DELETE ON {table}
    BEGIN SELECT RAISE (ABORT, 'the ledger is append-only: no delete'); END;
"""


def connect(path: Path) -> sqlite3.Connection:
    """An open connection in autocommit that syncs every commit and waits for other writers."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    # FULL may lose the last commit with the power: the deleted journal can come back.
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")
    return connection


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A scratch file that becomes `path` when it is complete: it is there whole or not at all.

    Raises:
        FileExistsError: another process made `path` meanwhile; its file stays.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    scratch.unlink(missing_ok=True)
    scratch.touch(mode=0o600)
    try:
        yield scratch
        os.link(scratch, path)
    finally:
        scratch.unlink()


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Run one durable, exclusive transaction. An exception inside rolls it back.

    Raises:
        StorageError: the file cannot be used.
    """
    with errors_named(path), closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def create_tables(path: Path, connection: sqlite3.Connection, layout: FileLayout) -> None:
    """Make the empty file inside the open transaction.

    Raises:
        StorageError: the file is not empty.
    """
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StorageError(f"{layout.name} {path}: there is a database already")
    connection.execute(f"PRAGMA application_id = {layout.application_id}")
    connection.execute(f"PRAGMA user_version = {layout.schema_version}")
    statements = list(layout.tables)
    for table, key in layout.keys.items():
        triggers = _TRIGGERS.format(table=table, key=key)
        statements += [f"{each} END" for each in triggers.split(" END;\n") if each.strip()]
    for statement in statements:
        connection.execute(statement)


def require_layout(path: Path, connection: sqlite3.Connection, layout: FileLayout) -> None:
    """Check that this is an undamaged file of that kind, which this version can read.

    Raises:
        StorageError: it is not.
    """
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


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Give errors of SQLite and of the file system as one `StorageError` that names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StorageError(f"ledger {path}: cannot be used: {error}") from error
    except OSError as error:
        raise StorageError(f"ledger {path}: {error.strerror or error}") from error
