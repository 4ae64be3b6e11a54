"""Private rows of a table: noisy counts of cells, and noisy histograms of numbers within them.

One record lies in one cell, and in every numeric column in one bin of that cell's
histogram. Adding or removing it therefore changes one count of the cells by 1 and one count
of each column's histograms by 1, and nothing else: as lists, bounds and bins are public
(`public_table`), no other record's place depends on it. So the cells' counts have L1
sensitivity 1, and so have the counts of each column.

Noise. Two-sided geometric with parameter exp(-share) on whole counts of sensitivity 1 is
share-DP, exactly and without rounding (Ghosh, Roughgarden, Sundararajan 2009). Half of
epsilon goes to the cells, half evenly to the numeric columns; the shares add up to epsilon
(sequential composition), all to the cells where there are no numbers. The rows drawn
afterwards, and how many they are, follow from noisy counts alone and cost nothing more.

Refused: an epsilon that is not positive and finite.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.data.public_table import Codes, Columns, Floats, PublicTable

BINS = 16
"""Of every numeric column, evenly between its bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class CellHistogram:
    """The released counts of a table; none of it is secret any more.

    Attributes:
        columns: what was public before.
        cells: noisy count of each cell, not below 0, [cells].
        bins: noisy counts of each numeric column within each cell, [columns, cells, BINS].
    """

    columns: Columns
    cells: Codes
    bins: Codes

    @property
    def count(self) -> int:
        """The noisy number of rows."""
        return int(self.cells.sum())

    def rows(self, rng: np.random.Generator) -> PublicTable:
        """As many rows as counted; numbers are drawn within their cell, each for itself."""
        cells = np.repeat(np.arange(self.columns.cells), self.cells)
        bins = np.stack([_drawn(each[cells], rng) for each in self.bins], axis=1)
        numbers = (bins + rng.random(bins.shape)) * (2 / BINS) - 1
        return self.columns.of_cells(cells, numbers)


def release(
    table: PublicTable, columns: Columns, *, epsilon: float, rng: np.random.Generator
) -> CellHistogram:
    """The noisy counts of `table`, epsilon-DP for adding or removing one record.

    Raises:
        ConfigurationError: epsilon is not positive and finite.
    """
    if not 0 < epsilon < math.inf:
        raise ConfigurationError(f"epsilon must be positive and finite, got {epsilon!r}")
    share = epsilon / 2 if columns.numeric else epsilon
    cell, size = columns.cell_of(table), columns.cells
    cells = noisy(np.bincount(cell, minlength=size), share, rng)
    bins = [
        noisy(_histogram(cell, numbers, size), share / columns.numeric, rng)
        for numbers in table.numbers.T
    ]
    shape = (columns.numeric, size, BINS)
    return CellHistogram(columns, cells, np.array(bins, dtype=np.int64).reshape(shape))


def noisy(counts: Codes, epsilon: float, rng: np.random.Generator) -> Codes:
    """Counts of L1 sensitivity 1 with two-sided geometric noise; what falls below 0 is 0."""
    stops = -math.expm1(-epsilon)
    noise = rng.geometric(stops, counts.shape) - rng.geometric(stops, counts.shape)
    return np.maximum(counts + noise, 0)


def _histogram(cell: Codes, numbers: Floats, cells: int) -> Codes:
    """Counts of one numeric column within each cell, [cells, BINS]."""
    bins = np.clip((numbers + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
    return np.bincount(cell * BINS + bins, minlength=cells * BINS).reshape(cells, BINS)


def _drawn(counts: Codes, rng: np.random.Generator) -> Codes:
    """A bin for each row by its counts [rows, BINS]; evenly where nothing was counted."""
    weights = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, 1)
    until = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(counts), 1)) * until[:, -1:] >= until).sum(axis=1))
