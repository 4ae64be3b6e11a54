"""Opening of SQLite files of a home, their transactions, and errors that say what to do."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import close_to_others, create_private

BUSY_SECONDS = 30.0
"""How long a program waits for another one that writes."""

_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DENIED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def open_database(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open a file for durable writing by several programs, creating it where there is none.

    Only its owner can read it, and what SQLite writes beside it; one that was open to others
    is closed to them.

    Args:
        path: of the file, whose directory exists.
        check: refuses a file of another kind and makes the tables of a new one; what it
            writes is kept wholly or not at all.

    Raises:
        StorageError: it cannot be read or written, or `check` refuses it.
    """
    create_private(path)
    with clear_errors(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        with clear_errors(path):
            with transaction(connection):
                check(connection)
            # After the check: a file of somebody else must not be changed, nor its journal mode.
            for suffix in ("", "-wal", "-shm"):
                close_to_others(path.with_name(path.name + suffix))
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
    except StorageError:
        connection.close()
        raise
    return connection


def open_unchanged(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open a file that is there for reading, so that neither it nor its directory changes.

    Raises:
        StorageError: it cannot be read, or `check` refuses it.
    """
    # SQLite makes files beside one with a write-ahead log, unless it is told that nobody writes;
    # where a program has it open, they are there.
    log = path.with_name(f"{path.name}-wal")
    is_alone = not log.is_file() or log.stat().st_size == 0
    with clear_errors(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_alone else ''}",
            timeout=BUSY_SECONDS,
            isolation_level=None,
            uri=True,
        )
        try:
            check(connection)
        except (StorageError, sqlite3.Error):
            connection.close()
            raise
    return connection


def is_read_only(path: Path) -> bool:
    """Whether a file is there that can be read alone, or beside which nothing can be written."""
    return path.is_file() and not all(os.access(each, os.W_OK) for each in (path, path.parent))


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on; SQLite itself does not wait for who does so at the same time."""
    attempts = Retrying(
        retry=retry_if_exception(_is_busy),
        stop=stop_after_delay(BUSY_SECONDS),
        wait=wait_random(0.001, 0.05),
        reraise=True,
    )
    # Fetched, since a statement with a row left is in the way of every commit.
    attempts(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())


def _is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(_BUSY)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of what is written inside is stored, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Errors of SQLite become a `StorageError` with advice."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            f"{path}: {error}; {_advice(error, path)} (nothing was changed)"
        ) from error


def _advice(error: sqlite3.Error, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return "it is not a store of fedperf, name another file"
    if name.startswith("SQLITE_CORRUPT"):
        return "the file is damaged, restore a backup or save what `sqlite3 FILE .recover` finds"
    if name.startswith(_DENIED):
        return (
            "this home is read-only, make it writable or choose another --home"
            if is_read_only(path)
            else "the directory must exist and be writable, together with the file"
        )
    if name.startswith(_BUSY):
        return f"another process kept it locked for {BUSY_SECONDS:g} s, try again when it is done"
    if name.startswith("SQLITE_FULL"):
        return "the disk is full, make room and try again"
    return "check the file and the disk it lies on"
