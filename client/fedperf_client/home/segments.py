"""Columns of executions: what learning reads of each, computed once and kept in the store.

A segment stands for all executions whose row numbers lie in its range, and holds one array per
column, compressed, with a row for each of them that tells something. Segments do not overlap;
what lies between them was not encoded yet. Many small ones are put together. All of it can be
computed again from the executions: whoever encodes otherwise, by its `key`, drops what others
left. What is written here is part of the caller's transaction.
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

Columns = Mapping[str, NDArray[Any]]
"""Arrays of equally many rows. `NUMBER` is that of the execution, `WIDE` is read apart."""

Encode = Callable[[Sequence[Execution]], Columns]
"""Columns of executions, where `NUMBER` is the place in the sequence, ascending."""

NUMBER = "number"
WIDE = "features"

SEGMENT_ROWS = 1024
"""Smaller segments are put together as soon as they have so many rows."""

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
"""What schema 5 added to schema 4: segments, and a token that every change replaces."""

_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Encoder:
    """How executions become columns; can be pickled where `encode` can.

    Attributes:
        key: 32 bytes that differ where the columns would.
        encode: makes them.
    """

    key: bytes
    encode: Encode

    def __call__(self, executions: Sequence[Execution]) -> Columns:
        """The columns of `executions`."""
        return self.encode(executions)


def append(
    connection: sqlite3.Connection,
    key: bytes,
    columns: Columns,
    numbers: Sequence[int],
    covered: tuple[int, int],
) -> None:
    """Keep the columns of executions, put together with others; once, whoever else does so.

    Args:
        connection: to the store, in a transaction.
        key: of who encoded.
        columns: as `Encode` gives them.
        numbers: of the executions that were encoded.
        covered: the first and the last number that these are all executions of.
    """
    first, last = covered
    taken = "SELECT 1 FROM segment WHERE first <= ? AND last >= ?"
    if connection.execute(taken, (last, first)).fetchone() is None:
        _write(connection, key, numbered(columns, numbers), first=first, last=last)
        _merge(connection, key)


def numbered(columns: Columns, numbers: Sequence[int]) -> dict[str, NDArray[Any]]:
    """The columns of executions of these numbers, as `read` gives them."""
    return {**columns, NUMBER: np.array(numbers, np.int64)[columns[NUMBER]]}


def gaps(connection: sqlite3.Connection, key: bytes) -> list[tuple[int, int]]:
    """Ranges of numbers that may hold executions that were not encoded by `key`."""
    (end,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM execution").fetchone()
    query = "SELECT first, last FROM segment WHERE key = ? ORDER BY first"
    covered = connection.execute(query, (key,)).fetchall()
    begins = [1, *(last + 1 for _, last in covered)]
    ends = [*(first - 1 for first, _ in covered), end]
    return [each for each in zip(begins, ends, strict=True) if each[0] <= each[1]]


def drop_others(connection: sqlite3.Connection, key: bytes) -> None:
    """Forget what was encoded otherwise."""
    connection.execute("DELETE FROM segment WHERE key <> ?", (key,))


def forget(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Take executions that are deleted out of their segments."""
    gone = np.array(sorted(numbers), np.int64)
    query = "SELECT first, last, key, narrow, wide FROM segment WHERE first <= ? AND last >= ?"
    bounds = (int(gone[-1]), int(gone[0])) if len(gone) else (0, 1)
    for first, last, key, *blobs in connection.execute(query, bounds).fetchall():
        inside = gone[(gone >= first) & (gone <= last)]
        if len(inside) == 0:
            continue
        connection.execute("DELETE FROM segment WHERE first = ?", (first,))
        columns = {**_unpacked(blobs[0]), **_unpacked(blobs[1])}
        left = ~np.isin(columns[NUMBER], inside)
        # A number that is free at the end is given again; then it must not count as encoded.
        remaining = "SELECT max(rowid) FROM execution WHERE rowid BETWEEN ? AND ?"
        (end,) = connection.execute(remaining, (first, last)).fetchone()
        if end is not None:
            kept = {name: values[left] for name, values in columns.items()}
            _write(connection, key, kept, first=first, last=end)


def wide_of(
    connection: sqlite3.Connection, key: bytes, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Those of the numbers that were encoded by `key`, and `WIDE` of them in parts."""
    kept, parts = [np.empty(0, np.int64)], []
    for each in read(connection, key, wide=True):
        chosen = np.isin(each[NUMBER], numbers, assume_unique=True)
        kept.append(each[NUMBER][chosen])
        parts.append(each[WIDE][chosen])
    return np.concatenate(kept), parts


def read(
    connection: sqlite3.Connection, key: bytes, *, wide: bool = False
) -> Iterator[dict[str, NDArray[Any]]]:
    """The columns of one segment after the other, in the order of the numbers.

    Args:
        connection: to the store.
        key: of who encoded.
        wide: only `NUMBER` and `WIDE`; all others without.
    """
    query = "SELECT narrow, wide FROM segment WHERE rows > 0 AND key = ? ORDER BY first"
    if not wide:
        query = query.replace("narrow, wide", "narrow")
    for blobs in connection.execute(query, (key,)):
        narrow = _unpacked(blobs[0])
        yield {NUMBER: narrow[NUMBER], **_unpacked(blobs[1])} if wide else narrow


def _merge(connection: sqlite3.Connection, key: bytes) -> None:
    """Put the small segments at the end together, once they have enough rows."""
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
    together = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
    _write(connection, key, together, first=first, last=last)


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
