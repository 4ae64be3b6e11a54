"""What runs counted of the tables and files that they read, kept for runs that did not count.

A profile may announce how many rows a table has, times a number that it does not tell. What
another run counted of the same table undoes that. Tables are known by digests of their names;
of each, the newest `KEPT` counts stay.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fedperf_client.home.sqlite_file import clear_errors, transaction

KEPT = 100

TABLE = """
CREATE TABLE counted_rows (
    place TEXT NOT NULL,
    announced INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    UNIQUE (place, announced, counted, parts)
) STRICT
"""

_PRUNE = """
DELETE FROM counted_rows WHERE place = :place AND rowid NOT IN (
    SELECT rowid FROM counted_rows WHERE place = :place ORDER BY rowid DESC LIMIT :kept
)
"""


class RowCount(NamedTuple):
    """What one run counted of a table or of files.

    Attributes:
        place: digest of its name.
        announced: rows that the engine said it has, before it was read.
        counted: rows that came out of reading all of it.
        parts: that it was read in: row groups, or the share of each thread.
    """

    place: str
    announced: int
    counted: int
    parts: int = 0


class CountedRows:
    """The counts of a home, in the database of its executions."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def add(self, counts: Iterable[RowCount]) -> None:
        """Keep counts; one that is there already stays as it is.

        Raises:
            StorageError: the file cannot be written.
        """
        rows = sorted(set(counts))
        if not rows:
            return
        with clear_errors(self._path), transaction(self._connection):
            add = "INSERT OR IGNORE INTO counted_rows VALUES (?, ?, ?, ?)"
            self._connection.executemany(add, rows)
            places = [{"place": each, "kept": KEPT} for each in sorted({row.place for row in rows})]
            self._connection.executemany(_PRUNE, places)

    def of(self, place: str) -> list[RowCount]:
        """The counts of one table or of the same files."""
        found = "SELECT place, announced, counted, parts FROM counted_rows WHERE place = ?"
        with clear_errors(self._path):
            return [RowCount(*row) for row in self._connection.execute(found, (place,))]
