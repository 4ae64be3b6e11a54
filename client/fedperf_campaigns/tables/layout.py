"""The layout of tables: executions without plans as `EncodedQueries`.

A job that is described by its arguments only (C3O, TOKIO, a campaign) is a row of columns. Positive
numbers are encoded as logs, others in units of the largest, words as one column per word. The
column that counts machines or other parallel units has its inverse in addition to the log: start-up
and other fixed parts add to a run time, which a log cannot express. Learners make products
themselves.

The words come from the table at home. A new word has 0 in every column, and its row lies outside of
the training support. A number that is not finite is refused, as is one that is not positive where
all known ones were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError

Table = Mapping[str, Sequence[float | str]]  # columns by name, each [rows]


class InvalidTableError(InvalidInputError):
    """A table has a column that its layout does not allow, or lacks one."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The encoding of one column as features."""

    name: str  # in the table
    words: tuple[str, ...] = ()  # that it may hold; none for a column of numbers
    logged: bool = False  # its numbers are positive and encoded as logs
    inverted: bool = False  # the inverse of its numbers is a feature too
    unit: float = 1.0  # divisor of numbers that are not logged, above 0

    def __post_init__(self) -> None:
        if self.inverted and not self.logged:
            raise InvalidTableError(f"column {self.name!r} needs positive numbers to be inverted")
        if not 0 < self.unit < np.inf:
            raise InvalidTableError(f"column {self.name!r} holds finite numbers")

    @property
    def width(self) -> int:
        """Number of its features."""
        return len(self.words) if self.words else 1 + self.inverted

    def features(self, values: Sequence[float | str]) -> Floats:
        """Return its features, [rows, width].

        Raises:
            InvalidTableError: a number is missing, not finite, or not positive.
        """
        if self.words:
            texts = np.array([str(value) for value in values])
            return np.asarray(texts[:, None] == np.array(self.words), dtype=np.float64)
        numbers = self._numbers(values)
        if not self.logged:
            return numbers[:, None] / self.unit
        columns = [np.log(numbers), 1.0 / numbers] if self.inverted else [np.log(numbers)]
        return np.column_stack(columns)

    def _numbers(self, values: Sequence[float | str]) -> Floats:
        try:
            numbers = np.array([float(value) for value in values])
        except ValueError as error:
            raise InvalidTableError(f"column {self.name!r} holds numbers: {error}") from error
        allowed = np.isfinite(numbers) & ((numbers > 0) | (not self.logged))
        if not allowed.all():
            kind = "positive" if self.logged else "finite"
            wrong = numbers[~allowed][0]
            raise InvalidTableError(f"column {self.name!r} holds {kind} numbers, got {wrong:g}")
        return numbers


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The encoding of a table as samples."""

    columns: tuple[TableColumn, ...]  # in the order of the features
    scale: str  # name of the column that counts machines or other parallel units
    size: str  # name of the column that holds the size of the input

    def __post_init__(self) -> None:
        for each in (self.scale, self.size):
            if not any(column.name == each and column.logged for column in self.columns):
                raise InvalidTableError(f"column {each!r} must be there and hold positive numbers")

    @classmethod
    def of(cls, table: Table, *, scale: str, size: str) -> Self:
        """Return the layout that fits the known rows of a table.

        Raises:
            InvalidTableError: `scale` or `size` are missing or not positive.
        """
        return cls(
            tuple(_column(name, values, inverted=name == scale) for name, values in table.items()),
            scale,
            size,
        )

    def samples(self, table: Table) -> EncodedQueries:
        """Encode the rows of `table`, without pretrained models and all in cell 0.

        Raises:
            InvalidTableError: a column is missing, or holds a value that it must not.
        """
        missing = [column.name for column in self.columns if column.name not in table]
        if missing:
            raise InvalidTableError(f"the table lacks the columns {', '.join(missing)}")
        parts = [column.features(table[column.name]) for column in self.columns]
        features = np.concatenate(parts, axis=1)
        return EncodedQueries(features, np.zeros(len(features), np.int64), {})

    @property
    def scale_feature(self) -> int:
        """Column of the log scale among the features."""
        return self._place(self.scale)

    @property
    def size_feature(self) -> int:
        """Column of the log size among the features."""
        return self._place(self.size)

    def _place(self, name: str) -> int:
        names = [column.name for column in self.columns]
        return sum(column.width for column in self.columns[: names.index(name)])


def distinct_rows(features: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct one, in order, and the number of each row's own."""
    _, first, place = np.unique(features, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.sort(first), rank[place.ravel()]


def _column(name: str, values: Sequence[float | str], *, inverted: bool) -> TableColumn:
    if any(isinstance(value, str) for value in values):
        return TableColumn(name, tuple(sorted({str(value) for value in values})))
    numbers = np.asarray(values, dtype=np.float64)
    positive = bool(np.all(numbers > 0))
    unit = 1.0 if positive else float(np.abs(numbers).max()) or 1.0
    return TableColumn(name, logged=positive, inverted=inverted and positive, unit=unit)
