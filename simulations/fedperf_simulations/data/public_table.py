"""Rows of a table whose columns are public: categories from lists, numbers inside of bounds.

Lists and bounds are constants of the declared table, never read off its rows; so a
row's cell, its bins and its place in the inputs of a model depend on that row alone. A
number outside of its bounds is moved to the nearest bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PublicTable:
    """Some rows.

    Attributes:
        codes: place in the list of each categorical column, [rows, categorical columns].
        numbers: scaled so that the bounds are -1 and 1, [rows, numeric columns].
    """

    codes: Codes
    numbers: Floats

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, places: Codes) -> "PublicTable":
        """Return the rows at `places`."""
        return PublicTable(self.codes[places], self.numbers[places])


@dataclass(frozen=True, slots=True)
class Columns:
    """The public columns of a table.

    Attributes:
        sizes: of the list of each categorical column.
        numeric: how many numeric columns there are.
    """

    sizes: tuple[int, ...]
    numeric: int

    @property
    def cells(self) -> int:
        """Combinations of the categories."""
        return int(np.prod(self.sizes))

    @property
    def inputs(self) -> int:
        """Width of a model's inputs."""
        return sum(self.sizes) + self.numeric

    def encoded(self, table: PublicTable) -> Floats:
        """Inputs of a model: every category as one-hot, then the numbers, [rows, inputs]."""
        hot = [np.eye(size)[table.codes[:, place]] for place, size in enumerate(self.sizes)]
        return np.concatenate([*hot, table.numbers], axis=1)

    def cell_of(self, table: PublicTable) -> Codes:
        """Return the combination of categories that each row has, [rows]."""
        return np.asarray(np.ravel_multi_index(tuple(table.codes.T), self.sizes), np.int64)

    def of_cells(self, cells: Codes, numbers: Floats) -> PublicTable:
        """Rows with the categories of `cells` and their numbers."""
        return PublicTable(np.stack(np.unravel_index(cells, self.sizes), axis=1), numbers)

    def random(self, count: int, rng: np.random.Generator) -> PublicTable:
        """Rows drawn evenly from all possible values. They carry no private information."""
        cells = rng.integers(self.cells, size=count)
        return self.of_cells(cells, rng.uniform(-1, 1, (count, self.numeric)))


def code_of(name: str, values: Sequence[str], names: Sequence[str]) -> Codes:
    """Return the place of each value in a public list.

    Raises:
        InvalidInputError: a value is not in it.
    """
    strangers = set(values) - set(names)
    if strangers:
        raise InvalidInputError(
            f"{name} {min(strangers)!r} is not in its public list: {', '.join(names)}"
        )
    places = {value: place for place, value in enumerate(names)}
    return np.array([places[value] for value in values], dtype=np.int64)


def scaled(values: Floats, lower: float, upper: float) -> Floats:
    """`values` linearly so that the bounds become -1 and 1. What lies outside is moved there.

    Raises:
        InvalidInputError: a value is not a number.
    """
    if np.isnan(values).any():
        raise InvalidInputError(f"a value between {lower:g} and {upper:g} is missing")
    return np.clip(2 * (values - lower) / (upper - lower) - 1, -1.0, 1.0)
