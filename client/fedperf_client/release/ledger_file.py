"""The SQLite file under the privacy ledger: its tables, and that nothing in them changes.

Every table is append-only by triggers that live in the file, so they bind any program
that opens it. Refused: files that are no ledger, damaged ones, those of a newer schema.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedperf_shared.errors import StorageError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x66704C67
"""Marks the file as a ledger of fedperf ("fpLg")."""

_BUSY_SECONDS = 60.0

_TABLES = """
CREATE TABLE promise (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epsilon REAL NOT NULL, delta REAL NOT NULL, schedule BLOB NOT NULL
) STRICT;
CREATE TABLE reserved (
    release_id BLOB PRIMARY KEY, kind INTEGER NOT NULL, window INTEGER NOT NULL,
    slot INTEGER NOT NULL, reserved_unix_ms INTEGER NOT NULL, reconciled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE drawn (
    release_id BLOB PRIMARY KEY REFERENCES reserved (release_id),
    payload BLOB NOT NULL, signature BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE handed_out (
    release_id BLOB PRIMARY KEY REFERENCES drawn (release_id),
    handed_out_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE reconciliation (
    id INTEGER PRIMARY KEY, reconciled_unix_ms INTEGER NOT NULL, disagreement TEXT NOT NULL
) STRICT;
"""

_KEY_COLUMNS = {
    "promise": "id",
    "reserved": "release_id",
    "drawn": "release_id",
    "handed_out": "release_id",
    "reconciliation": "id",
}

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


def create_tables(path: Path, connection: sqlite3.Connection) -> None:
    """Make the empty ledger inside the open transaction.

    Raises:
        StorageError: the file is not empty.
    """
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StorageError(f"ledger {path}: there is a database already; a period starts once")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    statements = [each for each in _TABLES.split(";\n") if each.strip()]
    for table, key in _KEY_COLUMNS.items():
        triggers = _TRIGGERS.format(table=table, key=key)
        statements += [f"{each} END" for each in triggers.split(" END;\n") if each.strip()]
    for statement in statements:
        connection.execute(statement)


def require_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Check that this is an undamaged ledger that this version can read.

    Raises:
        StorageError: it is not.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StorageError(f"ledger {path}: not a ledger of fedperf")
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"ledger {path}: written by a newer fedperf (schema {version}, this one reads "
            f"{SCHEMA_VERSION}); please upgrade"
        )
    (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if check != "ok":
        raise StorageError(f"ledger {path}: damaged: {check.splitlines()[-1]}")


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Give errors of SQLite and of the file system as one `StorageError` that names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StorageError(f"ledger {path}: cannot be used: {error}") from error
    except OSError as error:
        raise StorageError(f"ledger {path}: {error.strerror or error}") from error
