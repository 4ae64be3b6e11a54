"""Encoded columns of executions, computed once and stored in compressed segments.

A segment covers all executions whose row numbers lie in its range. It holds one array per column,
with a row for each of these executions that has training data. Segments do not overlap. Executions
between them are not encoded yet. Small segments are merged. All of it can be computed again: an
encoder with another key drops the segments of other encoders. Writes are part of the caller's
transaction.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedperf_shared.execution import Execution

# Arrays with equally many rows. `NUMBER` is the execution's, `WIDE` is read separately.
Columns = Mapping[str, NDArray[Any]]

# Makes columns of executions, with `NUMBER` the ascending position in the sequence.
Encode = Callable[[Sequence[Execution]], Columns]

NUMBER = "number"
WIDE = "features"

SEGMENT_ROWS = 1024  # smaller segments are merged as soon as they have this many rows together

# Tables of segments, and a token that every change of the store replaces.
TABLES = (
    """
CREATE TABLE segment (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    key BLOB NOT NULL,
    narrow BLOB NOT NULL,
    wide BLOB NOT NULL
) STRICT
""",
    "CREATE TABLE state (token BLOB NOT NULL) STRICT",
    "INSERT INTO state VALUES (randomblob(32))",
)

_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Encoder:
    """Makes columns of executions; can be pickled where `encode` can."""

    key: bytes  # 32 bytes that differ if the columns of an execution would differ
    encode: Encode


def append(
    connection: sqlite3.Connection,
    key: bytes,
    columns: Columns,
    numbers: Sequence[int],
    covered: tuple[int, int],
) -> None:
    """Store the columns of executions, unless a segment of their range is stored already.

    The columns are those that `Encode` makes of the executions with these row numbers. The range
    `covered`, from first to last number, holds no other execution.
    """
    first, last = covered
    taken = "SELECT 1 FROM segment WHERE first <= ? AND last >= ?"
    if connection.execute(taken, (last, first)).fetchone() is None:
        _write(connection, key, numbered(columns, numbers), first=first, last=last)
        _merge(connection, key)


def numbered(columns: Columns, numbers: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Return columns whose `NUMBER` is the row number of each execution."""
    return {**columns, NUMBER: np.array(numbers, np.int64)[columns[NUMBER]]}


def gaps(connection: sqlite3.Connection, key: bytes) -> list[tuple[int, int]]:
    """Return ranges of row numbers that the encoder of `key` has not encoded."""
    (end,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM execution").fetchone()
    query = "SELECT first, last FROM segment WHERE key = ? ORDER BY first"
    covered = connection.execute(query, (key,)).fetchall()
    begins = [1, *(last + 1 for _, last in covered)]
    ends = [*(first - 1 for first, _ in covered), end]
    return [each for each in zip(begins, ends, strict=True) if each[0] <= each[1]]


def forget(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Remove deleted executions from their segments."""
    deleted = np.array(sorted(numbers), np.int64)
    query = "SELECT first, last, key, narrow, wide FROM segment WHERE first <= ? AND last >= ?"
    bounds = (int(deleted[-1]), int(deleted[0])) if len(deleted) else (0, 1)
    for first, last, key, *blobs in connection.execute(query, bounds).fetchall():
        inside = deleted[(deleted >= first) & (deleted <= last)]
        if len(inside) == 0:
            continue
        connection.execute("DELETE FROM segment WHERE first = ?", (first,))
        columns = {**_unpacked(blobs[0]), **_unpacked(blobs[1])}
        is_remaining = ~np.isin(columns[NUMBER], inside)
        # SQLite reuses a free number at the end, which then must not count as encoded.
        remaining = "SELECT max(rowid) FROM execution WHERE rowid BETWEEN ? AND ?"
        (end,) = connection.execute(remaining, (first, last)).fetchone()
        if end is not None:
            rest = {name: values[is_remaining] for name, values in columns.items()}
            _write(connection, key, rest, first=first, last=end)


def wide_of(
    connection: sqlite3.Connection, key: bytes, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return the numbers that are encoded by `key`, and their `WIDE` in parts."""
    stored, parts = [np.empty(0, np.int64)], []
    for each in read(connection, key, wide=True):
        is_selected = np.isin(each[NUMBER], numbers, assume_unique=True)
        stored.append(each[NUMBER][is_selected])
        parts.append(each[WIDE][is_selected])
    return np.concatenate(stored), parts


def read(
    connection: sqlite3.Connection, key: bytes, *, wide: bool = False
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of each segment by number; `wide` reads `NUMBER` and `WIDE` alone."""
    query = "SELECT narrow, wide FROM segment WHERE rows > 0 AND key = ? ORDER BY first"
    if not wide:
        query = query.replace("narrow, wide", "narrow")
    for blobs in connection.execute(query, (key,)):
        narrow = _unpacked(blobs[0])
        yield {NUMBER: narrow[NUMBER], **_unpacked(blobs[1])} if wide else narrow


def _merge(connection: sqlite3.Connection, key: bytes) -> None:
    query = "SELECT first, last, rows, narrow, wide FROM segment ORDER BY first DESC"
    small: list[tuple[int, int, list[bytes]]] = []
    count = 0
    for first, last, rows, *blobs in connection.execute(query):
        if rows >= SEGMENT_ROWS or (small and last + 1 != small[-1][0]):
            break
        small.append((first, last, blobs))
        count += rows
        if count >= SEGMENT_ROWS:
            break
    if count < SEGMENT_ROWS or len(small) == 1:
        return
    small.reverse()
    first, last = small[0][0], small[-1][1]
    connection.execute("DELETE FROM segment WHERE first BETWEEN ? AND ?", (first, last))
    parts = [{**_unpacked(narrow), **_unpacked(wide)} for _, _, (narrow, wide) in small]
    merged = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
    _write(connection, key, merged, first=first, last=last)


def _write(
    connection: sqlite3.Connection, key: bytes, columns: Columns, *, first: int, last: int
) -> None:
    narrow = _packed({name: each for name, each in columns.items() if name != WIDE})
    row = (first, last, len(columns[NUMBER]), key, narrow, _packed({WIDE: columns[WIDE]}))
    connection.execute("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", row)


def _packed(columns: Columns) -> bytes:
    plain = {name: np.ascontiguousarray(values) for name, values in columns.items()}
    return zstandard.ZstdCompressor(_LEVEL).compress(save(plain))


def _unpacked(content: bytes) -> dict[str, NDArray[Any]]:
    return load(zstandard.ZstdDecompressor().decompress(content))
