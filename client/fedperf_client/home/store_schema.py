"""The tables of the store, and how a file comes to have them.

A new file gets the present schema; an older one is brought up to it, and what it holds
stays. What later schemas added stands apart, so that all ways end with the same tables.

Refused: a database of another program, or of a schema that is not known; it is left as it was.
"""

import sqlite3
from pathlib import Path

from fedperf_client.home.counted_rows import TABLE as _COUNTED_ROWS
from fedperf_client.home.segments import TABLES as _SEGMENTS
from fedperf_shared.errors import StorageError

SCHEMA_VERSION = 6
APPLICATION_ID = 0x66705354
"""Marks the file as a store of fedperf ("fpST")."""

_SCHEMA = """
CREATE TABLE execution (
    execution_id TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    plan BLOB NOT NULL,
    nodes INTEGER NOT NULL,
    cores INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    machine_speed REAL NOT NULL,
    status INTEGER NOT NULL,
    runtime_seconds REAL,
    cpu_seconds REAL,
    peak_memory_bytes INTEGER,
    read_bytes INTEGER,
    written_bytes INTEGER,
    finished_at INTEGER NOT NULL
) STRICT
"""
_ORIGIN_COLUMNS = (
    "source TEXT NOT NULL DEFAULT ''",
    "node_type TEXT NOT NULL DEFAULT ''",
    "architecture TEXT NOT NULL DEFAULT ''",
    "rows_known REAL NOT NULL DEFAULT 1.0",
    "remarks TEXT NOT NULL DEFAULT ''",
)
_SOURCES = """
CREATE TABLE source (path BLOB PRIMARY KEY, modified INTEGER NOT NULL, size INTEGER NOT NULL) STRICT
"""
"""What schema 2 added to schema 1: origins, and which sources were read as they were when."""
_START_COLUMNS = (
    "queries_before INTEGER NOT NULL DEFAULT 0",
    "startup_seconds REAL NOT NULL DEFAULT 0.0",
)
"""What schema 3 added: how warm the engine was, and how long its application took to start."""
_NAME_COLUMNS = (
    "application TEXT NOT NULL DEFAULT ''",
    "application_id TEXT NOT NULL DEFAULT ''",
    "record TEXT NOT NULL DEFAULT ''",
    "description TEXT NOT NULL DEFAULT ''",
    "file TEXT NOT NULL DEFAULT ''",
    "failure TEXT NOT NULL DEFAULT ''",
    "operator_seconds BLOB NOT NULL DEFAULT x''",
)
"""What schema 4 added: by what its people know an execution, and where its time went."""
_SIZE_COLUMNS = (
    "rows_within REAL NOT NULL DEFAULT 1.0",
    "tasks INTEGER NOT NULL DEFAULT 0",
)
"""What schema 6 added: how surely source rows are known, and tasks; and what runs counted."""
_ADDED = ((2, _ORIGIN_COLUMNS), (3, _START_COLUMNS), (4, _NAME_COLUMNS), (6, _SIZE_COLUMNS))

COLUMNS = 14 + sum(len(columns) for _, columns in _ADDED)
"""Of the table of executions."""

_INDEXES = (
    "CREATE INDEX execution_by_time ON execution (finished_at, execution_id)",
    "CREATE INDEX execution_by_workload ON execution (workload, finished_at, execution_id)",
)


def check_or_create(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, and bring an older one up to date.

    Raises:
        StorageError: it is not a store, or of a schema that is not known.
    """
    if _is_empty(connection):
        connection.execute(_SCHEMA)
        for index in _INDEXES:
            connection.execute(index)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _bring_up_to_date(connection, 1)
        return
    _bring_up_to_date(connection, _known_version(connection, path))


def check_present(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what cannot be read as it is.

    Raises:
        StorageError: it is not a store, or not of the present schema.
    """
    version = _known_version(connection, path)
    if version < SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this fedperf reads {SCHEMA_VERSION}; bring it up to "
            "date with: fedperf status (nothing was changed)"
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    marks = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
    return all(connection.execute(each).fetchone() == (0,) for each in marks)


def _known_version(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StorageError(
            f"{path} is a database of another program; name another file (nothing was changed)"
        )
    if not 1 <= version <= SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this fedperf knows {SCHEMA_VERSION}; "
            "use the fedperf that wrote it, or a newer one (nothing was changed)"
        )
    return int(version)


def _bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    for added_in, columns in _ADDED:
        for column in columns if version < added_in else ():
            connection.execute(f"ALTER TABLE execution ADD COLUMN {column}")
    if version < 2:  # noqa: PLR2004
        connection.execute(_SOURCES)
    if version < 5:  # noqa: PLR2004
        for each in _SEGMENTS:
            connection.execute(each)
    if version < 6:  # noqa: PLR2004
        connection.execute(_COUNTED_ROWS)
    if version < SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
