"""The organization's embedded database of executions: one SQLite file that never leaves home.

Invariants: an execution is stored once, whatever often it is added; a call of `add`
is stored wholly or not at all, also when the process is killed in the middle;
several processes may read and write at once. Plans are stored as compact bytes.

Refuses a file that is not a store of fedperf, one of a newer schema, and rows that
no domain class accepts; a refused file is left as it was.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from fedperf_client.sqlite_file import clear_errors, open_database, transaction
from fedperf_shared.closing import Closing
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    InvalidExecutionError,
    Measurement,
)
from fedperf_shared.wire.codec import decode_plan, encode_plan

SCHEMA_VERSION = 1
APPLICATION_ID = 0x66705354
"""Marks the file as a store of fedperf ("fpST")."""

_PAGE_ROWS = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_INTEGER = 2**63 - 1

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
_INDEXES = (
    "CREATE INDEX execution_by_time ON execution (finished_at, execution_id)",
    "CREATE INDEX execution_by_workload ON execution (workload, finished_at, execution_id)",
)
_INSERT = (
    "INSERT INTO execution VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (execution_id) DO NOTHING"
)
_SELECT = """
SELECT * FROM execution
WHERE (finished_at, execution_id) > (:after_time, :after_id)
  AND (:workload IS NULL OR workload = :workload)
  AND (:status IS NULL OR status = :status)
ORDER BY finished_at, execution_id
LIMIT :limit
"""
_SELECT_WORKLOAD = _SELECT.replace(
    "(:workload IS NULL OR workload = :workload)", "workload = :workload"
)


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """What a store holds.

    Attributes:
        executions: stored executions.
        workloads: distinct workloads, the unit of privacy.
        by_status: executions of each status; every status has an entry.
    """

    executions: int
    workloads: int
    by_status: dict[ExecutionStatus, int]


class UnknownExecutionError(InvalidInputError):
    """The store has no execution of that id."""

    def __init__(self, execution_id: str, stored: int) -> None:
        super().__init__(
            f"there is no execution {execution_id!r} among the {stored} in the store; take "
            "executions in with: fedperf ingest FILE"
        )
        self.execution_id = execution_id


class ExecutionStore(Closing):
    """Executions of one organization; one object per thread, any number of processes."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the store at `path`, creating the file (not its directory) where there is none.

        Raises:
            StorageError: the file cannot be read or written, is not a store, or is newer.
        """
        connection = open_database(path, lambda opened: _check_or_create(opened, path))
        return cls(connection, path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def add(self, executions: Iterable[Execution]) -> int:
        """Store the executions, all or none; ids that are stored already are left alone.

        Returns:
            How many were new.

        Raises:
            InvalidExecutionError: a value does not fit the store; nothing was stored.
            StorageError: the file cannot be written; nothing was stored.
        """
        rows = [_to_row(execution) for execution in executions]
        with clear_errors(self._path), transaction(self._connection):
            before = self._connection.total_changes
            self._connection.executemany(_INSERT, rows)
            return self._connection.total_changes - before

    def executions(
        self,
        *,
        workload: str | None = None,
        status: ExecutionStatus | None = None,
        since: datetime | None = None,
    ) -> Iterator[Execution]:
        """The executions in the order of `finished_at`, read page by page.

        Args:
            workload: only those of this workload.
            status: only those that ended so.
            since: only those that finished at or after this moment (with time zone).

        Raises:
            StorageError: the file or a row of it cannot be read.
        """
        after: tuple[int, str] = (-_LARGEST_INTEGER if since is None else _to_micros(since), "")
        while True:
            rows = self._page(after, workload, status)
            for row in rows:
                yield _from_row(row, self._path)
            if len(rows) < _PAGE_ROWS:
                return
            after = (int(rows[-1][-1]), str(rows[-1][0]))

    def workloads(self) -> tuple[str, ...]:
        """Names of all workloads, sorted."""
        with clear_errors(self._path):
            found = self._connection.execute(
                "SELECT DISTINCT workload FROM execution ORDER BY workload"
            ).fetchall()
        return tuple(str(name) for (name,) in found)

    def execution(self, execution_id: str) -> Execution:
        """The execution of that id.

        Raises:
            UnknownExecutionError: there is none.
            StorageError: the file or the row cannot be read.
        """
        with clear_errors(self._path):
            row = self._connection.execute(
                "SELECT * FROM execution WHERE execution_id = ?", (execution_id,)
            ).fetchone()
        if row is None:
            raise UnknownExecutionError(execution_id, self.counts().executions)
        return _from_row(row, self._path)

    def digest(self) -> bytes:
        """32 bytes that differ where any stored execution does; local."""
        found = hashlib.sha256()
        with clear_errors(self._path):
            rows = self._connection.execute("SELECT * FROM execution ORDER BY execution_id")
            for row in rows:
                found.update(repr(tuple(row)).encode())
        return found.digest()

    def counts(self) -> StoreCounts:
        """How many executions and workloads there are."""
        with clear_errors(self._path):
            grouped = self._connection.execute(
                "SELECT status, count(*) FROM execution GROUP BY status"
            ).fetchall()
            (workloads,) = self._connection.execute(
                "SELECT count(DISTINCT workload) FROM execution"
            ).fetchone()
        found = {int(status): int(count) for status, count in grouped}
        by_status = {status: found.get(status, 0) for status in ExecutionStatus}
        return StoreCounts(sum(found.values()), int(workloads), by_status)

    def _page(
        self, after: tuple[int, str], workload: str | None, status: ExecutionStatus | None
    ) -> list[sqlite3.Row]:
        parameters = {
            "after_time": after[0],
            "after_id": after[1],
            "workload": workload,
            "status": None if status is None else int(status),
            "limit": _PAGE_ROWS,
        }
        query = _SELECT if workload is None else _SELECT_WORKLOAD
        with clear_errors(self._path):
            return self._connection.execute(query, parameters).fetchall()


def _check_or_create(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if (application, version, tables) == (0, 0, 0):
        connection.execute(_SCHEMA)
        for index in _INDEXES:
            connection.execute(index)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return
    if application != APPLICATION_ID:
        raise StorageError(
            f"{path} is a database of another program; name another file (nothing was changed)"
        )
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this fedperf knows {SCHEMA_VERSION}; "
            "use the fedperf that wrote it, or a newer one (nothing was changed)"
        )


def _to_row(execution: Execution) -> tuple[object, ...]:
    cluster, measured = execution.cluster, execution.measurement
    numbers: tuple[object, ...] = (None,) * 5
    if measured is not None:
        numbers = (
            float(measured.runtime_seconds),
            float(measured.cpu_seconds),
            _integer("peak_memory_bytes", measured.peak_memory_bytes),
            _integer("read_bytes", measured.read_bytes),
            _integer("written_bytes", measured.written_bytes),
        )
    return (
        _text("execution_id", execution.execution_id),
        _text("workload", execution.workload),
        encode_plan(execution.plan),
        _integer("nodes", cluster.nodes),
        _integer("cores", cluster.cores),
        _integer("memory_bytes", cluster.memory_bytes),
        float(cluster.machine_speed),
        int(execution.status),
        *numbers,
        _to_micros(execution.finished_at),
    )


def _from_row(row: sqlite3.Row, path: Path) -> Execution:
    execution_id, workload, plan, nodes, cores, memory, speed, status, *numbers, finished = row
    try:
        return Execution(
            execution_id=execution_id,
            workload=workload,
            plan=decode_plan(plan),
            cluster=ClusterConfig(nodes, cores, memory, speed),
            status=ExecutionStatus(status),
            measurement=None if numbers[0] is None else Measurement(*numbers),
            finished_at=_EPOCH + timedelta(microseconds=finished),
        )
    except (InvalidInputError, ValueError, OverflowError) as error:
        raise StorageError(
            f"{path}: execution {execution_id!r} cannot be read ({error}); restore a backup"
        ) from error


def _integer(name: str, value: int) -> int:
    if not 0 <= value <= _LARGEST_INTEGER:
        raise InvalidExecutionError(f"{name} must be at most {_LARGEST_INTEGER}, got {value!r}")
    return int(value)


def _text(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidExecutionError(f"{name} is not valid text: {value!r}") from error
    if not value:
        raise InvalidExecutionError(f"{name} must not be empty")
    return value


def _to_micros(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidExecutionError(f"a moment without a time zone: {moment.isoformat()}")
    return (moment - _EPOCH) // timedelta(microseconds=1)
