"""The organization's embedded database of executions: one SQLite file that never leaves home.

Invariants: an execution is stored once, whatever often it is added; a call of `add`
is stored wholly or not at all, also when the process is killed in the middle;
several processes may read and write at once. Plans are stored as compact bytes.

Refuses a file that is not a store of fedperf, one of a newer schema, and rows that
no domain class accepts; a refused file is left as it was.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.home import segments
from fedperf_client.home.counted_rows import CountedRows
from fedperf_client.home.execution_rows import (
    LARGEST_INTEGER,
    execution_of,
    micros_of,
    row_of,
    runs_on,
)
from fedperf_client.home.selection import (
    CONDITION,
    EVERYTHING,
    MOST_NAMED,
    PLATFORM_FUNCTION,
    SHORTEST_ID,
    AmbiguousExecutionError,
    Selection,
    UnknownExecutionError,
)
from fedperf_client.home.sqlite_file import (
    clear_errors,
    is_read_only,
    open_database,
    open_unchanged,
    transaction,
)
from fedperf_client.home.store_schema import COLUMNS, check_or_create, check_present
from fedperf_shared.execution import Execution, ExecutionStatus
from fedperf_shared.runtime.process import Closing

_PAGE_ROWS = 500
_INSERT = "INSERT INTO execution VALUES (...) ON CONFLICT (execution_id) DO NOTHING".replace(
    "...", ", ".join(["?"] * COLUMNS)
)
_SELECT = """
SELECT * FROM execution
WHERE (finished_at, execution_id) > (:after_time, :after_id)
  AND (:until IS NULL OR finished_at < :until)
  AND (:workload IS NULL OR workload = :workload)
  AND (:status IS NULL OR status = :status)
ORDER BY finished_at, execution_id
LIMIT :limit
"""
_SELECT_NEWEST = """
SELECT * FROM execution WHERE ... ORDER BY finished_at DESC, execution_id DESC LIMIT :limit
""".replace("...", CONDITION)
_SELECT_IDS = """
SELECT execution_id FROM execution WHERE ... ORDER BY finished_at, execution_id
""".replace("...", CONDITION)
_SELECT_PREFIX = """
SELECT * FROM execution
WHERE execution_id >= :prefix AND substr(execution_id, 1, length(:prefix)) = :prefix
ORDER BY execution_id LIMIT :limit
"""
_COUNT_PREFIX = """
SELECT count(*) FROM execution
WHERE execution_id >= :prefix AND substr(execution_id, 1, length(:prefix)) = :prefix
"""
_COUNT_CHOSEN = "SELECT count(*) FROM execution WHERE ...".replace("...", CONDITION)
_SELECT_BESIDE = """
SELECT (SELECT max(execution_id) FROM execution WHERE execution_id < :id),
       (SELECT min(execution_id) FROM execution WHERE execution_id > :id)
"""
_SELECT_LAST = "SELECT coalesce(max(rowid), 0) FROM execution"
_SELECT_ADDED = "SELECT execution_id, rowid FROM execution WHERE rowid > ?"
_SELECT_NUMBER = "SELECT rowid FROM execution WHERE execution_id = ?"
_SELECT_ORDER = "SELECT rowid FROM execution ORDER BY finished_at, execution_id"
_SELECT_RANGE = """
SELECT rowid AS number, * FROM execution WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?
"""
_CHANGED = "UPDATE state SET token = randomblob(32)"
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


class ExecutionStore(Closing):
    """Executions of one organization; one object per thread, any number of processes."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, is_unchanged: bool = False
    ) -> None:
        connection.row_factory = sqlite3.Row
        connection.create_function(PLATFORM_FUNCTION, 2, runs_on, deterministic=True)
        self._connection = connection
        self._path = path
        self._is_unchanged = is_unchanged
        self.counted_rows = CountedRows(connection, path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the store at `path`, creating the file (not its directory) where there is none.

        Raises:
            StorageError: the file cannot be read or written, is not a store, or is newer.
        """
        return cls(open_database(path, lambda opened: check_or_create(opened, path)), path)

    @classmethod
    def open_unchanged(cls, path: Path) -> Self:
        """Open the store that is at `path` for reading alone; nothing of the home changes.

        Raises:
            StorageError: the file cannot be read, is not a store, or not of the present schema.
        """
        return cls(open_unchanged(path, lambda o: check_present(o, path)), path, is_unchanged=True)

    @classmethod
    def open_to_read(cls, path: Path) -> Self:
        """Open the store as `open` does, or as `open_unchanged` where the home is read-only."""
        return cls.open_unchanged(path) if is_read_only(path) else cls.open(path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def add(self, executions: Iterable[Execution], encoder: segments.Encoder | None = None) -> int:
        """Store executions, all or none, and return how many were new; known ids are left alone.

        Args:
            executions: any number.
            encoder: of the columns that are kept with them; without one, `columns` adds them.

        Raises:
            InvalidExecutionError: a value does not fit the store; nothing was stored.
            StorageError: the file cannot be written; nothing was stored.
        """
        chosen = list(executions)
        rows = [row_of(execution) for execution in chosen]
        fresh = [] if encoder is None else self.missing(chosen)
        encoded = None if encoder is None or not fresh else encoder(fresh)
        with clear_errors(self._path), transaction(self._connection):
            (last,) = self._connection.execute(_SELECT_LAST).fetchone()
            before = self._connection.total_changes
            self._connection.executemany(_INSERT, rows)
            added = self._connection.total_changes - before
            if added:
                self._connection.execute(_CHANGED)
            if added and encoder is not None and encoded is not None:
                numbers = dict(self._connection.execute(_SELECT_ADDED, (last,)).fetchall())
                now = [numbers[e.execution_id] for e in fresh if e.execution_id in numbers]
                if len(now) == len(fresh) == added:  # or else `columns` looks again
                    covered = last + 1, last + added
                    segments.append(self._connection, encoder.key, encoded, now, covered)
        return added

    def sources(self) -> dict[Path, tuple[int, int]]:
        """The sources that were read to their end, with the modification time and size then."""
        with clear_errors(self._path):
            rows = self._connection.execute("SELECT path, modified, size FROM source").fetchall()
        return {Path(os.fsdecode(path)): (int(at), int(size)) for path, at, size in rows}

    def source_was_read(self, path: Path, modified: int, size: int) -> None:
        """Remember that a source was read to its end as it was then.

        Raises:
            StorageError: the file cannot be written.
        """
        row = (os.fsencode(path), modified, size)
        with clear_errors(self._path), transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO source VALUES (?, ?, ?)", row)

    def missing(self, executions: Iterable[Execution]) -> list[Execution]:
        """Those of them that `add` would find to be new."""
        found = "SELECT 1 FROM execution WHERE execution_id = ?"
        with clear_errors(self._path):
            return [
                each
                for each in executions
                if self._connection.execute(found, (each.execution_id,)).fetchone() is None
            ]

    def executions(
        self,
        *,
        workload: str | None = None,
        status: ExecutionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Execution]:
        """The executions in the order of `finished_at`, read page by page.

        Args:
            workload: only those of this workload.
            status: only those that ended so.
            since: only those that finished at or after this moment (with time zone).
            until: only those that finished before this moment (with time zone).

        Raises:
            StorageError: the file or a row of it cannot be read.
        """
        after: tuple[int, str] = (-LARGEST_INTEGER if since is None else micros_of(since), "")
        chosen = {
            "workload": workload,
            "status": None if status is None else int(status),
            "until": None if until is None else micros_of(until),
        }
        while True:
            rows = self._page(after, chosen)
            for row in rows:
                yield execution_of(row, self._path)
            if len(rows) < _PAGE_ROWS:
                return
            after = (int(rows[-1]["finished_at"]), str(rows[-1]["execution_id"]))

    def workloads(self) -> tuple[str, ...]:
        """Names of all workloads, sorted."""
        with clear_errors(self._path):
            query = "SELECT DISTINCT workload FROM execution ORDER BY workload"
            found = self._connection.execute(query).fetchall()
        return tuple(str(name) for (name,) in found)

    def newest(self, count: int, selection: Selection = EVERYTHING) -> tuple[Execution, ...]:
        """At most `count` executions of a selection, the one that finished last first."""
        with clear_errors(self._path):
            rows = self._connection.execute(
                _SELECT_NEWEST, {**selection.parameters, "limit": count}
            ).fetchall()
        return tuple(execution_of(row, self._path) for row in rows)

    def count(self, selection: Selection = EVERYTHING) -> int:
        """How many executions a selection has."""
        with clear_errors(self._path):
            (found,) = self._connection.execute(_COUNT_CHOSEN, selection.parameters).fetchone()
        return int(found)

    def ids(self, selection: Selection = EVERYTHING) -> tuple[str, ...]:
        """The ids of a selection, in the order of `finished_at`."""
        with clear_errors(self._path):
            rows = self._connection.execute(_SELECT_IDS, selection.parameters).fetchall()
        return tuple(str(each) for (each,) in rows)

    def delete(self, ids: Iterable[str]) -> int:
        """Forget the executions of these whole ids, all or none; how many there were.

        Raises:
            StorageError: the file cannot be written; nothing was deleted.
        """
        with clear_errors(self._path), transaction(self._connection):
            found = [self._connection.execute(_SELECT_NUMBER, (each,)).fetchone() for each in ids]
            numbers = sorted({int(each[0]) for each in found if each is not None})
            rows = ((each,) for each in numbers)
            self._connection.executemany("DELETE FROM execution WHERE rowid = ?", rows)
            segments.forget(self._connection, numbers)
            if numbers:
                self._connection.execute(_CHANGED)
            return len(numbers)

    def find(self, prefix: str) -> Execution:
        """The execution of that id, or the only one whose id begins so.

        Raises:
            UnknownExecutionError: there is none.
            AmbiguousExecutionError: there are several, and none has it as its whole id.
            StorageError: the file or the row cannot be read.
        """
        with clear_errors(self._path):
            rows = self._connection.execute(
                _SELECT_PREFIX, {"prefix": prefix, "limit": MOST_NAMED}
            ).fetchall()
        if not rows or not prefix:
            raise UnknownExecutionError(prefix, self.counts().executions)
        if len(rows) > 1 and str(rows[0]["execution_id"]) != prefix:
            with clear_errors(self._path):
                (count,) = self._connection.execute(_COUNT_PREFIX, {"prefix": prefix}).fetchone()
            first = [(self.short_id(row["execution_id"]), row["workload"]) for row in rows]
            raise AmbiguousExecutionError(prefix, count, first)
        return execution_of(rows[0], self._path)

    def short_id(self, execution_id: str) -> str:
        """The shortest prefix, of 8 characters at least, that `find` takes for this id."""
        with clear_errors(self._path):
            beside = self._connection.execute(_SELECT_BESIDE, {"id": execution_id}).fetchone()
        pairs = ([execution_id, each or ""] for each in beside)
        shared = max(len(os.path.commonprefix(pair)) for pair in pairs)  # noqa: RUF071 - of letters
        return execution_id[: max(SHORTEST_ID, shared + 1)]

    def digest(self) -> bytes:
        """32 bytes that no other state of this store, and no other store, ever had; local."""
        with clear_errors(self._path):
            (token,) = self._connection.execute("SELECT token FROM state").fetchone()
        return bytes(token)

    def columns(self, encoder: segments.Encoder, *, keep: bool = True) -> dict[str, NDArray[Any]]:
        """What the encoder makes of all executions, but `segments.WIDE`, in order of `NUMBER`.

        What was not encoded yet is encoded now, and kept unless that is not wanted or possible.

        Raises:
            StorageError: the file or a row of it cannot be read, or the file not written.
        """
        with clear_errors(self._path):
            if keep and not self._is_unchanged:
                with transaction(self._connection):
                    segments.drop_others(self._connection, encoder.key)
            gaps = segments.gaps(self._connection, encoder.key)
            parts = list(segments.read(self._connection, encoder.key))
            for begin, end in gaps:
                parts += self._encode(encoder, begin, end, keep=keep)
        parts = parts or [dict(encoder([]))]
        parts[0].pop(segments.WIDE, None)
        order = np.argsort(np.concatenate([each[segments.NUMBER] for each in parts]))
        return {name: np.concatenate([each[name] for each in parts])[order] for name in parts[0]}

    def features(self, encoder: segments.Encoder, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """`segments.WIDE` of these, at least one, ascending; what `columns` did not keep anew."""
        with clear_errors(self._path):
            kept, parts = segments.wide_of(self._connection, encoder.key, numbers)
        missing = np.setdiff1d(numbers, kept)
        if len(missing):
            parts.append(encoder(self.numbered(missing.tolist()))[segments.WIDE])
        return np.concatenate(parts)[np.argsort(np.concatenate([kept, missing]))]

    def in_order(self) -> NDArray[np.int64]:
        """The number of every execution, in the order of `executions`."""
        with clear_errors(self._path):
            rows = self._connection.execute(_SELECT_ORDER)
            return np.fromiter((number for (number,) in rows), np.int64)

    def numbered(self, numbers: Iterable[int]) -> list[Execution]:
        """The executions of these numbers."""
        query = "SELECT * FROM execution WHERE rowid = ?"
        with clear_errors(self._path):
            rows = [self._connection.execute(query, (each,)).fetchone() for each in numbers]
        return [execution_of(row, self._path) for row in rows]

    def _encode(
        self, encoder: segments.Encoder, begin: int, end: int, *, keep: bool
    ) -> Iterator[dict[str, NDArray[Any]]]:
        while begin <= end:
            found = self._connection.execute(_SELECT_RANGE, (begin, end, _PAGE_ROWS)).fetchall()
            numbers = [int(row["number"]) for row in found]
            last = numbers[-1] if len(found) == _PAGE_ROWS else end
            encoded = encoder([execution_of(tuple(row)[1:], self._path) for row in found])
            if keep and not self._is_unchanged:
                with transaction(self._connection):
                    again = self._connection.execute(_SELECT_RANGE, (begin, last, _PAGE_ROWS))
                    if again.fetchall() == found:  # or else somebody deletes: next time
                        segments.append(
                            self._connection, encoder.key, encoded, numbers, (begin, last)
                        )
            narrow = segments.numbered(encoded, numbers)
            del narrow[segments.WIDE]  # of many executions it is too much to hold
            yield narrow
            begin = last + 1

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
        self, after: tuple[int, str], chosen: Mapping[str, str | int | None]
    ) -> list[sqlite3.Row]:
        place = {"after_time": after[0], "after_id": after[1], "limit": _PAGE_ROWS}
        query = _SELECT if chosen["workload"] is None else _SELECT_WORKLOAD
        with clear_errors(self._path):
            return self._connection.execute(query, {**chosen, **place}).fetchall()
