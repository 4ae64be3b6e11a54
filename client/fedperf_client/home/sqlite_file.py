"""SQLite files of a home: opening, transactions, and errors with advice."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import close_to_others, create_private

BUSY_SECONDS = 30.0  # seconds that a program waits for another program that writes
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DENIED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
_ADVICE = (
    (("SQLITE_NOTADB",), "it is not a store of fedperf, name another file"),
    (
        ("SQLITE_CORRUPT",),
        "the file is damaged, restore a backup or save what `sqlite3 FILE .recover` finds",
    ),
    (_DENIED, "the directory must exist and be writable, together with the file"),
    (_BUSY, f"another process kept it locked for {BUSY_SECONDS:g} s, try again when it is done"),
    (("SQLITE_FULL",), "the disk is full, make room and try again"),
)


def open_database(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open a file for durable writing by several programs, creating it if it does not exist.

    Only its owner can read it and the files that SQLite writes next to it. A file that others could
    read is closed to them.

    Args:
        path: of the file, whose directory exists.
        check: refuses a file of another kind, and creates the tables of a new one, in one
            transaction.

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
            # After the check, because a file of another program must not be changed.
            for suffix in ("", "-wal", "-shm"):
                close_to_others(path.with_name(path.name + suffix))
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
    except StorageError:
        connection.close()
        raise
    return connection


def open_unchanged(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open an existing file for reading, without changing it or its directory.

    Raises:
        StorageError: it cannot be read, or `check` refuses it.
    """
    # SQLite creates files next to one with a write-ahead log, unless the file is declared
    # immutable. If another program has it open, these files exist.
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
    """Return whether the file exists, and it or its directory cannot be written."""
    return path.is_file() and not all(os.access(each, os.W_OK) for each in (path, path.parent))


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log. SQLite itself does not wait for another program that does so."""
    attempts = Retrying(
        retry=retry_if_exception(
            lambda error: getattr(error, "sqlite_errorname", "").startswith(_BUSY)
        ),
        stop=stop_after_delay(BUSY_SECONDS),
        wait=wait_random(0.001, 0.05),
        reraise=True,
    )
    # An unfinished statement would block every commit.
    attempts(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Store everything that is written inside, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into a `StorageError` with advice."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        advices = (advice for names, advice in _ADVICE if name.startswith(names))
        advice = next(advices, "check the file and the disk it lies on")
        if name.startswith(_DENIED) and is_read_only(path):
            advice = "this home is read-only, make it writable or choose another --home"
        raise StorageError(f"{path}: {error}; {advice} (nothing was changed)") from error
