"""A grid of configurations as points: which are corners, which are near, which are well apart.

The first points of a campaign are spread without any run time: the corners of input size x
parallelism, then greedily whatever adds most to the projections. How close two points are is the
product over the columns of how far they are apart. So points are spread in every few columns taken
alone; in all of them together only corners would be far apart. Words are balanced: whichever a
column has had least of, by the root of its rows, is due.

Source: Joseph, Gul and Ba 2015, "Maximum projection designs for computer experiments"
(the product), and Joseph 2020 for columns of few levels and for words.
"""

from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import Table, TableColumn, TableLayout
from fedperf_client.prediction.learners.ridge import varying_columns
from fedperf_client.prediction.prediction import Floats

Rows = NDArray[np.int64]

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Spacing:
    """The points of a grid.

    Attributes:
        numbers: columns of numbers that vary, each in [0, 1] over the grid, [rows, numbers].
        levels: distinct values of each of those, [numbers].
        words: the word of each column of words as its number, [rows, columns].
        corners: rows at the corners of size x parallelism, those nearest to each.
    """

    numbers: Floats
    levels: Floats
    words: Rows
    corners: tuple[Rows, ...]

    @classmethod
    def of(cls, table: Table, layout: TableLayout) -> Self:
        """The points of `table`, whose layout is `layout`; at least one row."""
        numbers = [_logged(each, table) for each in layout.columns if not each.words]
        scaled = _unit(np.column_stack(numbers))
        words = [
            np.unique(np.array([str(value) for value in table[each.name]]), return_inverse=True)[1]
            for each in layout.columns
            if each.words
        ]
        ends = [_unit(_logged(each, table)[:, None]) for each in _axes(layout)]
        return cls(
            scaled,
            np.array([len(np.unique(column)) for column in scaled.T], dtype=np.float64),
            np.array(words, np.int64).reshape(len(words), len(scaled)).T,
            _corners(np.hstack(ends)),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def next(self, taken: Rows, free: Rows, tie: Rows) -> int:
        """The row that is due.

        Args:
            taken: rows that were measured.
            free: rows to choose from, at least one.
            tie: rank of each row of the grid, for those that are equally good.
        """
        due = self._at_a_corner(taken, free)
        due = self._of_rare_words(taken, due)
        crowded = self._crowding(taken, due)
        best = due[crowded <= crowded.min() * (1 + _CLOSE)]
        return int(best[np.argmin(tie[best])])

    def nearest(self, taken: Rows) -> NDArray[np.int64]:
        """For every row of the grid the place in `taken` of the nearest measured one."""
        apart = np.zeros((len(self), len(taken)))
        for column in self.numbers.T:
            apart += np.abs(np.subtract.outer(column, column[taken]))
        for column in self.words.T:
            apart += column[:, None] != column[taken]
        return np.asarray(apart.argmin(axis=1), dtype=np.int64)

    def _at_a_corner(self, taken: Rows, free: Rows) -> Rows:
        """Free rows of the first corner that none was taken at; all of them after the last."""
        for corner in self.corners:
            left = np.intersect1d(corner, free)
            if len(left) and not np.isin(corner, taken).any():
                return left
        return free

    def _of_rare_words(self, taken: Rows, free: Rows) -> Rows:
        had = np.zeros(len(free))
        for column in self.words.T:
            rows = np.bincount(column)
            counts = np.bincount(column[taken], minlength=len(rows))
            had += ((counts + 0.5) / np.sqrt(rows))[column[free]]
        return np.asarray(free[had <= had.min() + _CLOSE], dtype=np.int64)

    def _crowding(self, taken: Rows, free: Rows) -> Floats:
        """Sum over the taken rows of what the product of the distances is the inverse of."""
        logs = np.zeros((len(free), len(taken)))
        for column, levels in zip(self.numbers.T, self.levels, strict=True):
            logs += np.log(np.abs(np.subtract.outer(column[free], column[taken])) + 1 / levels)
        for column in self.words.T:
            logs += np.log((column[free][:, None] != column[taken]) + 1 / (column.max() + 1))
        return np.asarray(np.exp(-2 * logs).sum(axis=1))


def _axes(layout: TableLayout) -> list[TableColumn]:
    return [each for each in layout.columns if each.name in {layout.scale, layout.size}]


def _logged(column: TableColumn, table: Table) -> Floats:
    return column.features(table[column.name])[:, 0]


def _unit(columns: Floats) -> Floats:
    """Columns that vary, each into [0, 1]."""
    kept = columns[:, varying_columns(columns)]
    return np.asarray((kept - kept.min(axis=0)) / np.ptp(kept, axis=0))


def _corners(ends: Floats) -> tuple[Rows, ...]:
    """Rows nearest to each corner of a unit box, opposite corners one after the other."""
    width = ends.shape[1]
    found = []
    for half in product((0, 1), repeat=max(width - 1, 0)):
        for corner in ((0, *half), tuple(1 - each for each in (0, *half))):
            apart = np.abs(ends - np.array(corner[:width])).sum(axis=1)
            found.append(np.flatnonzero(apart <= apart.min() + _CLOSE))
    return tuple(found)
