"""The database of an organization's executions: one SQLite file that never leaves.

Invariants: an execution is stored once, however often it is added. A call of `add` stores all of
its executions or none, also when the process is killed in the middle. Several processes may read
and write at once. Plans are stored as compact bytes, times as microseconds since 1970.

A new file gets the present schema, an older one is migrated and keeps its rows. A database of
another program or of a newer schema is refused and left unchanged.
"""

import math
import os
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.home import segments
from fedperf_client.home.execution_record import from_record, to_record
from fedperf_client.home.sqlite_file import (
    clear_errors,
    is_read_only,
    open_database,
    open_unchanged,
    transaction,
)
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution, ExecutionStatus, InvalidExecutionError
from fedperf_shared.runtime.process import Closing
from fedperf_shared.wire.codec import decode_plan
from fedperf_shared.workflow.vocabulary import Platform

SCHEMA_VERSION = 7
APPLICATION_ID = 0x66705354  # marks the file as a store of fedperf ("fpST")
MAX_ROW_COUNTS = 100  # row counts that are stored of one table; older ones are deleted
SHORTEST_ID = 8  # characters of an id that are shown at least
MOST_NAMED = 5  # executions that are named where a prefix of an id is ambiguous
_Parameters = Mapping[str, Any] | Sequence[Any]

_LARGEST_INTEGER = 2**63 - 1  # of SQLite
_LONGEST_WORKLOAD = 40
_PAGE_ROWS = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_COLUMNS_1 = {
    "execution_id": "TEXT PRIMARY KEY",
    "workload": "TEXT NOT NULL",
    "plan": "BLOB NOT NULL",
    "nodes": "INTEGER NOT NULL",
    "cores": "INTEGER NOT NULL",
    "memory_bytes": "INTEGER NOT NULL",
    "machine_speed": "REAL NOT NULL",
    "status": "INTEGER NOT NULL",
    "runtime_seconds": "REAL",
    "cpu_seconds": "REAL",
    "peak_memory_bytes": "INTEGER",
    "read_bytes": "INTEGER",
    "written_bytes": "INTEGER",
    "finished_at": "INTEGER NOT NULL",
}
_TEXT, _NUMBER = "TEXT NOT NULL DEFAULT ''", "INTEGER NOT NULL DEFAULT 0"
# Columns of the table `execution` that each later schema added.
_ADDED_COLUMNS = {
    2: {
        **dict.fromkeys(("source", "node_type", "architecture"), _TEXT),
        "rows_known": "REAL NOT NULL DEFAULT 1.0",
        "remarks": _TEXT,
    },
    3: {"queries_before": _NUMBER, "startup_seconds": "REAL NOT NULL DEFAULT 0.0"},
    4: {
        **dict.fromkeys(
            ("application", "application_id", "record", "description", "file", "failure"), _TEXT
        ),
        "operator_seconds": "BLOB NOT NULL DEFAULT x''",
    },
    6: {"rows_within": "REAL NOT NULL DEFAULT 1.0", "tasks": _NUMBER},
    7: dict.fromkeys(("statement", "operator_keys", "columns"), _TEXT),
}

_ADDED_TABLES = {
    2: (
        "CREATE TABLE source (path BLOB PRIMARY KEY, modified INTEGER NOT NULL, "
        "size INTEGER NOT NULL) STRICT",
    ),
    5: segments.TABLES,
    6: (
        """
CREATE TABLE counted_rows (
    place TEXT NOT NULL,
    announced INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    UNIQUE (place, announced, counted, parts)
) STRICT
""",
    ),
}
_INDEXES = (
    "CREATE INDEX execution_by_time ON execution (finished_at, execution_id)",
    "CREATE INDEX execution_by_workload ON execution (workload, finished_at, execution_id)",
)
_TYPES = {
    name: definition.partition(" ")[0]
    for columns in (_COLUMNS_1, *_ADDED_COLUMNS.values())
    for name, definition in columns.items()
}
_INSERT = "INSERT INTO execution (*) VALUES (?) ON CONFLICT (execution_id) DO NOTHING".replace(
    "*", ", ".join(_TYPES)
).replace("?", ", ".join(f":{name}" for name in _TYPES))
_ORDER = "ORDER BY finished_at, execution_id"
_CHANGED = "UPDATE state SET token = randomblob(32)"
# Executions that are rows of tables of past runs, which have columns or say so.
_OF_TABLES = "(columns <> '' OR source GLOB 'table*')"
_COUNT_OF_TABLES = """
SELECT workload, count(*) FROM execution WHERE {} AND OF_TABLES GROUP BY workload
""".replace("OF_TABLES", _OF_TABLES)
_ROWS_OF_TABLES = """
SELECT rowid, columns FROM (
    SELECT rowid, columns, finished_at, execution_id, row_number() OVER (
        PARTITION BY columns ORDER BY finished_at DESC, execution_id DESC) AS place
    FROM execution WHERE workload = ? AND OF_TABLES)
WHERE place <= ? ORDER BY finished_at DESC, execution_id DESC
""".replace("OF_TABLES", _OF_TABLES)
_SELECT_RANGE = """
SELECT rowid AS number, * FROM execution WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?
"""
_CONDITIONS = {
    "workload": """
        (workload = :workload OR (
            NOT EXISTS (SELECT 1 FROM execution WHERE workload = :workload)
            AND instr(lower(workload), lower(:workload)) > 0))
    """,
    "text": """
        instr(lower(
            execution_id || char(10) || workload || char(10) || application || char(10)
            || application_id || char(10) || record || char(10) || description || char(10)
            || file || char(10) || failure || char(10) || source), lower(:text)) > 0
    """,
    "status": "status = :status",
    "platform": "runs_on(plan, :platform)",
    "statement": "substr(statement, 1, length(:statement)) = :statement",
    "operator_keys": "instr(operator_keys, :operator_keys) > 0",
    "since": "finished_at >= :since",
    "until": "finished_at < :until",
}


class UnknownExecutionError(InvalidInputError):
    """Raised when the store has no execution of an id."""

    def __init__(self, execution_id: str, stored: int) -> None:
        super().__init__(
            f"there is no execution {execution_id!r} among the {stored} in the store; "
            + ("fedperf runs lists them" if stored else "take some in with: fedperf ingest FILE")
        )
        self.execution_id = execution_id


class AmbiguousExecutionError(InvalidInputError):
    """Raised when several executions have ids that begin with a prefix."""

    def __init__(self, prefix: str, count: int, examples: Sequence[tuple[str, str]]) -> None:
        """`examples` are short ids and workloads of some of the `count` executions."""
        names = [f"{each} ({workload[:_LONGEST_WORKLOAD]})" for each, workload in examples]
        if count > len(examples):
            names.append(f"{count - len(examples)} more")
        super().__init__(
            f"several executions, {count}, have an id that begins with {prefix!r}: "
            f"{', '.join(names)}; name one, or list them with: fedperf runs --search {prefix}"
        )
        self.prefix = prefix


@dataclass(frozen=True, slots=True)
class Selection:
    """The executions that meet every condition that is not None."""

    # Their workload. If no workload has exactly this name, all workloads that contain it are
    # selected, case-insensitively.
    workload: str | None = None
    # A part of their id, workload, application or its id, record, description, file, failure or
    # source, case-insensitively.
    text: str | None = None
    status: ExecutionStatus | None = None  # how they ended
    platform: Platform | None = None  # at least one of their operators ran there
    statement: str | None = None  # how their `ExecutionMetadata.statement` begins
    operator_keys: str | None = None  # one of their `ExecutionMetadata.operator_keys`
    since: datetime | None = None  # they finished at or after this timestamp (with time zone)
    until: datetime | None = None  # they finished before this timestamp (with time zone)

    def condition(self) -> tuple[str, dict[str, str | int]]:
        """Return the condition of an SQL statement, and its parameters.

        Raises:
            InvalidExecutionError: a timestamp has no time zone.
        """
        values = {name: getattr(self, name) for name in _CONDITIONS}
        parameters = {
            name: _microseconds(value) if isinstance(value, datetime) else value
            for name, value in values.items()
            if value is not None
        }
        return " AND ".join(["1", *(_CONDITIONS[name] for name in parameters)]), parameters


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """The contents of a store in numbers."""

    executions: int  # stored executions
    workloads: int  # distinct workloads, the unit of privacy


class ExecutionStore(Closing):
    """Executions of one organization; one object per thread, any number of processes."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, is_unchanged: bool = False
    ) -> None:
        connection.row_factory = sqlite3.Row
        connection.create_function("runs_on", 2, _runs_on, deterministic=True)
        self._connection = connection
        self._path = path
        self._is_unchanged = is_unchanged

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the store at `path`, creating the file (not its directory) where there is none.

        Raises:
            StorageError: the file cannot be read or written, is not a store, or is newer.
        """
        return cls(open_database(path, lambda opened: _create_or_migrate(opened, path)), path)

    @classmethod
    def open_unchanged(cls, path: Path) -> Self:
        """Open the store at `path` for reading, without changing the file or its directory.

        Raises:
            StorageError: the file cannot be read, is not a store, or not of the present schema.
        """
        connection = open_unchanged(path, lambda opened: _require_present(opened, path))
        return cls(connection, path, is_unchanged=True)

    @classmethod
    def open_to_read(cls, path: Path) -> Self:
        """Open the store as `open` does, or as `open_unchanged` where the home is read-only."""
        return cls.open_unchanged(path) if is_read_only(path) else cls.open(path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def add(self, executions: Iterable[Execution], encoder: segments.Encoder | None = None) -> int:
        """Store executions, all or none, and return how many were new; stored ids are left alone.

        Args:
            executions: any number.
            encoder: makes the columns that are stored with them; without it, `columns` adds them.

        Raises:
            InvalidExecutionError: a value does not fit the store; nothing was stored.
            StorageError: the file cannot be written; nothing was stored.
        """
        batch = list(executions)
        rows = [_to_row(execution) for execution in batch]
        missing = [] if encoder is None else self.missing(batch)
        encoded = None if encoder is None or not missing else encoder.encode(missing)
        with clear_errors(self._path), transaction(self._connection):
            ((last,),) = self._rows("SELECT coalesce(max(rowid), 0) FROM execution")
            before = self._connection.total_changes
            self._connection.executemany(_INSERT, rows)
            added = self._connection.total_changes - before
            if added:
                self._connection.execute(_CHANGED)
            if added and encoder is not None and encoded is not None:
                query = "SELECT execution_id, rowid FROM execution WHERE rowid > ?"
                numbers = dict(self._connection.execute(query, (last,)).fetchall())
                new = [numbers[e.execution_id] for e in missing if e.execution_id in numbers]
                if len(new) == len(missing) == added:  # otherwise `columns` encodes them
                    covered = last + 1, last + added
                    segments.append(self._connection, encoder.key, encoded, new, covered)
        return added

    def sources(self) -> dict[str, tuple[int, int]]:
        """Return modification time and size of every source when it was last read to its end.

        A source is named by its path or address.
        """
        rows = self._rows("SELECT path, modified, size FROM source")
        return {os.fsdecode(path): (int(at), int(size)) for path, at, size in rows}

    def source_was_read(self, path: str, modified: int, size: int) -> None:
        """Record that a source was read to its end.

        Raises:
            StorageError: the file cannot be written.
        """
        row = (os.fsencode(path), modified, size)
        with clear_errors(self._path), transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO source VALUES (?, ?, ?)", row)

    def add_row_counts(self, counts: Iterable[tuple[str, int, int, int]]) -> None:
        """Store row counts of tables; a count that is stored already stays as it is.

        Runs count the rows of tables that other runs only estimate. The newest `MAX_ROW_COUNTS`
        of each table stay.

        Args:
            counts: digest of the table's name, announced rows, counted rows, parts.

        Raises:
            StorageError: the file cannot be written.
        """
        rows = sorted(set(counts))
        if not rows:
            return
        prune = """
            DELETE FROM counted_rows WHERE place = :place AND rowid NOT IN (
                SELECT rowid FROM counted_rows WHERE place = :place ORDER BY rowid DESC LIMIT :kept)
        """
        with clear_errors(self._path), transaction(self._connection):
            insert = "INSERT OR IGNORE INTO counted_rows VALUES (?, ?, ?, ?)"
            self._connection.executemany(insert, rows)
            places = sorted({row[0] for row in rows})
            self._connection.executemany(
                prune, [{"place": each, "kept": MAX_ROW_COUNTS} for each in places]
            )

    def row_counts(self, place: str) -> list[tuple[str, int, int, int]]:
        """Return the stored row counts of one table, see `add_row_counts`."""
        query = "SELECT place, announced, counted, parts FROM counted_rows WHERE place = ?"
        return [tuple(row) for row in self._rows(query, (place,))]

    def missing(self, executions: Iterable[Execution]) -> list[Execution]:
        """Return the executions whose ids are not stored."""
        query = "SELECT 1 FROM execution WHERE execution_id = ?"
        return [each for each in executions if not self._rows(query, (each.execution_id,))]

    def executions(
        self,
        *,
        workload: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Execution]:
        """Yield executions in the order of `finished_at`, read page by page.

        Args:
            workload: the exact name of their workload.
            since: they finished at or after this timestamp (with time zone).
            until: they finished before this timestamp (with time zone).

        Raises:
            StorageError: the file or a row of it cannot be read.
        """
        selection = Selection(until=until)
        exact = "" if workload is None else "AND workload = :exact"
        rest = f"{exact} AND (finished_at, execution_id) > (:time, :id) {_ORDER} LIMIT :limit"
        after: dict[str, object] = {
            "time": -_LARGEST_INTEGER if since is None else _microseconds(since),
            "id": "",
        }
        while True:
            rows = self._select("*", selection, rest, exact=workload, limit=_PAGE_ROWS, **after)
            yield from self._executions(rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = {"time": rows[-1]["finished_at"], "id": rows[-1]["execution_id"]}

    def workloads(self) -> tuple[str, ...]:
        """Return the names of all workloads, sorted."""
        rows = self._rows("SELECT DISTINCT workload FROM execution ORDER BY workload")
        return tuple(str(name) for (name,) in rows)

    def newest(self, count: int, selection: Selection = EVERYTHING) -> tuple[Execution, ...]:
        """Return at most `count` executions of a selection, the one that finished last first."""
        latest = "ORDER BY finished_at DESC, execution_id DESC LIMIT :limit"
        return tuple(self._executions(self._select("*", selection, latest, limit=count)))

    def count(self, selection: Selection = EVERYTHING) -> int:
        """Return the number of executions of a selection."""
        ((count,),) = self._select("count(*)", selection)
        return int(count)

    def ids(self, selection: Selection = EVERYTHING) -> tuple[str, ...]:
        """Return the ids of a selection, in the order of `finished_at`."""
        return tuple(str(each) for (each,) in self._select("execution_id", selection, _ORDER))

    def delete(self, ids: Iterable[str]) -> int:
        """Delete the executions of these whole ids, all or none; return how many there were.

        Raises:
            StorageError: the file cannot be written; nothing was deleted.
        """
        query = "SELECT rowid FROM execution WHERE execution_id = ?"
        with clear_errors(self._path), transaction(self._connection):
            rows = [self._connection.execute(query, (each,)).fetchone() for each in ids]
            numbers = sorted({int(row[0]) for row in rows if row is not None})
            self._connection.executemany(
                "DELETE FROM execution WHERE rowid = ?", ((each,) for each in numbers)
            )
            segments.forget(self._connection, numbers)
            if numbers:
                self._connection.execute(_CHANGED)
            return len(numbers)

    def find(self, prefix: str) -> Execution:
        """Return the execution of an id, or the only one whose id begins with `prefix`.

        Raises:
            UnknownExecutionError: there is none.
            AmbiguousExecutionError: there are several, and `prefix` is none of their whole ids.
            StorageError: the file or the row cannot be read.
        """
        begins = (
            "AND execution_id >= :prefix AND substr(execution_id, 1, length(:prefix)) = :prefix"
        )
        some = f"{begins} ORDER BY execution_id LIMIT {MOST_NAMED}"
        rows = self._select("*", EVERYTHING, some, prefix=prefix)
        if not rows or not prefix:
            raise UnknownExecutionError(prefix, self.counts().executions)
        if len(rows) > 1 and str(rows[0]["execution_id"]) != prefix:
            ((count,),) = self._select("count(*)", EVERYTHING, begins, prefix=prefix)
            examples = [(self.short_id(row["execution_id"]), row["workload"]) for row in rows]
            raise AmbiguousExecutionError(prefix, count, examples)
        return next(self._executions(rows))

    def short_id(self, execution_id: str) -> str:
        """Return the shortest prefix, of `SHORTEST_ID` characters at least, that `find` accepts."""
        query = """
            SELECT (SELECT max(execution_id) FROM execution WHERE execution_id < :id),
                   (SELECT min(execution_id) FROM execution WHERE execution_id > :id)
        """
        (neighbours,) = self._rows(query, {"id": execution_id})
        pairs = ([execution_id, each or ""] for each in neighbours)
        shared = max(len(os.path.commonprefix(pair)) for pair in pairs)  # noqa: RUF071 - of letters
        return execution_id[: max(SHORTEST_ID, shared + 1)]

    def digest(self) -> bytes:
        """Return 32 bytes that no other state of this or another store ever had; local."""
        ((token,),) = self._rows("SELECT token FROM state")
        return bytes(token)

    def columns(self, encoder: segments.Encoder, *, keep: bool = True) -> dict[str, NDArray[Any]]:
        """Return the encoded columns of all executions, without `segments.WIDE`, by `NUMBER`.

        Executions that were not encoded yet are encoded now. The result is stored if `keep` and
        the store can be written.

        Raises:
            StorageError: the file or a row of it cannot be read, or the file not written.
        """
        with clear_errors(self._path):
            if keep and not self._is_unchanged:
                with transaction(self._connection):  # drop what other encoders made
                    self._connection.execute("DELETE FROM segment WHERE key <> ?", (encoder.key,))
            gaps = segments.gaps(self._connection, encoder.key)
            parts = list(segments.read(self._connection, encoder.key))
            for begin, end in gaps:
                parts += self._encode(encoder, begin, end, keep=keep)
        parts = parts or [dict(encoder.encode([]))]
        parts[0].pop(segments.WIDE, None)
        order = np.argsort(np.concatenate([each[segments.NUMBER] for each in parts]))
        return {name: np.concatenate([each[name] for each in parts])[order] for name in parts[0]}

    def features(self, encoder: segments.Encoder, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return `segments.WIDE` of at least one execution, by ascending number."""
        with clear_errors(self._path):
            stored, parts = segments.wide_of(self._connection, encoder.key, numbers)
        missing = np.setdiff1d(numbers, stored)
        if len(missing):
            parts.append(encoder.encode(self.numbered(missing.tolist()))[segments.WIDE])
        return np.concatenate(parts)[np.argsort(np.concatenate([stored, missing]))]

    def jobs_of_tables(self, workload: str | None = None) -> dict[str, int]:
        """Return the number of rows of tables of past runs, by workload; of all, or of one."""
        if workload is None:
            rows = self._rows(_COUNT_OF_TABLES.format("1"))
        else:
            rows = self._rows(_COUNT_OF_TABLES.format("workload = ?"), (workload,))
        return {str(name): int(count) for name, count in rows}

    def rows_of_tables(self, workload: str, *, repeats: int) -> list[tuple[int, str]]:
        """Return number and columns of rows of tables of a workload, the newest first.

        Args:
            workload: its whole name.
            repeats: executions of equal columns, at most; the newest ones.
        """
        rows = self._rows(_ROWS_OF_TABLES, (workload, repeats))
        return [(int(number), str(text)) for number, text in rows]

    def in_order(self) -> NDArray[np.int64]:
        """Return the number of every execution, in the order of `executions`."""
        rows = self._rows("SELECT rowid FROM execution ORDER BY finished_at, execution_id")
        return np.array([number for (number,) in rows], np.int64)

    def numbered(self, numbers: Iterable[int]) -> list[Execution]:
        """Return the executions of these numbers."""
        query = "SELECT * FROM execution WHERE rowid = ?"
        return list(self._executions(row for each in numbers for row in self._rows(query, (each,))))

    def counts(self) -> StoreCounts:
        """Return how many executions and workloads there are."""
        ((executions, workloads),) = self._select("count(*), count(DISTINCT workload)", EVERYTHING)
        return StoreCounts(int(executions), int(workloads))

    def _encode(
        self, encoder: segments.Encoder, begin: int, end: int, *, keep: bool
    ) -> Iterator[dict[str, NDArray[Any]]]:
        while begin <= end:
            rows = self._connection.execute(_SELECT_RANGE, (begin, end, _PAGE_ROWS)).fetchall()
            numbers = [int(row["number"]) for row in rows]
            last = numbers[-1] if len(rows) == _PAGE_ROWS else end
            encoded = encoder.encode(list(self._executions(rows)))
            if keep and not self._is_unchanged:
                with transaction(self._connection):
                    again = self._connection.execute(_SELECT_RANGE, (begin, last, _PAGE_ROWS))
                    if again.fetchall() == rows:  # otherwise another process deletes: next time
                        segments.append(
                            self._connection, encoder.key, encoded, numbers, (begin, last)
                        )
            narrow = segments.numbered(encoded, numbers)
            del narrow[segments.WIDE]  # too large to hold for many executions
            yield narrow
            begin = last + 1

    def _rows(self, query: str, parameters: _Parameters = ()) -> list[sqlite3.Row]:
        with clear_errors(self._path):
            return self._connection.execute(query, parameters).fetchall()

    def _select(
        self, columns: str, selection: Selection, rest: str = "", **parameters: object
    ) -> list[sqlite3.Row]:
        condition, selected = selection.condition()
        query = " ".join(("SELECT", columns, "FROM execution WHERE", condition, rest))
        return self._rows(query, {**selected, **parameters})

    def _executions(self, rows: Iterable[sqlite3.Row]) -> Iterator[Execution]:
        for row in rows:
            record = dict(row)
            try:
                record["finished_at"] = _EPOCH + timedelta(microseconds=record["finished_at"])
                record["operator_seconds"] = tuple(
                    None if math.isnan(each) else each
                    for each in array("d", record["operator_seconds"])
                )
                yield from_record(record)
            except (InvalidInputError, ValueError, OverflowError) as error:
                raise StorageError(
                    f"{self._path}: execution {record['execution_id']!r} cannot be read "
                    f"({error}); restore a backup"
                ) from error


def _to_row(execution: Execution) -> dict[str, object]:
    record = to_record(execution)
    seconds = (math.nan if each is None else each for each in record["operator_seconds"])
    record["operator_seconds"] = array("d", seconds).tobytes()
    for name in ("execution_id", "workload"):
        if not record[name]:
            raise InvalidExecutionError(f"{name} must not be empty")
    row = {name: _stored_value(name, record[name]) for name in _TYPES if name != "finished_at"}
    return {**row, "finished_at": _microseconds(execution.finished_at)}


def _stored_value(name: str, value: Any) -> object:  # noqa: ANN401 (of any column)
    if value is None:
        return None
    match _TYPES[name]:
        case "INTEGER":
            if not 0 <= value <= _LARGEST_INTEGER:
                raise InvalidExecutionError(
                    f"{name} must be at most {_LARGEST_INTEGER}, got {value!r}"
                )
            return int(value)
        case "REAL":
            return float(value)
        case "TEXT":
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise InvalidExecutionError(f"not valid text: {value!r}") from error
    return value


def _microseconds(timestamp: datetime) -> int:
    if timestamp.tzinfo is None:
        raise InvalidExecutionError(f"a moment without a time zone: {timestamp.isoformat()}")
    return (timestamp - _EPOCH) // timedelta(microseconds=1)


def _runs_on(plan: bytes, platform: int) -> bool:
    """Return whether a stored plan uses a platform; False if the plan cannot be read."""
    try:
        return platform in decode_plan(plan).platforms
    except InvalidInputError:
        return False


def _create_or_migrate(connection: sqlite3.Connection, path: Path) -> None:
    marks = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
    if all(connection.execute(each).fetchone() == (0,) for each in marks):
        columns = ", ".join(f"{name} {definition}" for name, definition in _COLUMNS_1.items())
        for statement in (f"CREATE TABLE execution ({columns}) STRICT", *_INDEXES):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        version = 1
    else:
        version = _check_version(connection, path)
    for added_in in range(version + 1, SCHEMA_VERSION + 1):
        for name, definition in _ADDED_COLUMNS.get(added_in, {}).items():
            connection.execute(f"ALTER TABLE execution ADD COLUMN {name} {definition}")
        for statement in _ADDED_TABLES.get(added_in, ()):
            connection.execute(statement)
    if version < SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _require_present(connection: sqlite3.Connection, path: Path) -> None:
    version = _check_version(connection, path)
    if version < SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this fedperf reads {SCHEMA_VERSION}; bring it up to "
            "date with: fedperf status (nothing was changed)"
        )


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StorageError(
            f"{path} is a database of another program; name another file (nothing was changed)"
        )
    if not 1 <= version <= SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this fedperf reads {SCHEMA_VERSION}; "
            "use the fedperf that wrote it, or a newer one (nothing was changed)"
        )
    return int(version)
