"""Methods against forgetting: the rows kept of a segment, and the rows of later steps.

Every method makes the same steps of the same number of rows. Where something is rehearsed,
half of the rows are of the current segment and half of what was kept, evenly over the
earlier segments. A teacher, the model as it was before the segment, labels inputs that
carry no target of their own.

* naive: nothing is kept; frozen: nothing is learned after the first segment.
* cumulative: every row of every segment, the reference.
* own history: all rows are drawn from everything, every segment as often as any other; for
  the sequence of one organization, which keeps its own data anyway.
* raw buffer: a share of all rows that there will be, evenly over the segments seen.
* DER++: the same buffer, by halves with targets and with the model's earlier predictions (Buzzega
  et al., NeurIPS 2020).
* private inputs: rows of a private release of each segment (`cell_histogram`); random
  inputs: rows from the public bounds, no data at all. Both are labelled by the teacher.

Private rows of a table: noisy counts of cells, and noisy histograms of numbers within them.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.data.public_table import Codes, Columns, Floats, PublicTable

BINS = 16
"""Bins of every numeric column, evenly between its bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class CellHistogram:
    """The released counts of a table. None of it is secret any more.

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
        """Return as many rows as counted. Each number is sampled within its cell."""
        cells = np.repeat(np.arange(self.columns.cells), self.cells)
        bins = np.stack([_drawn(each[cells], rng) for each in self.bins], axis=1)
        numbers = (bins + rng.random(bins.shape)) * (2 / BINS) - 1
        return self.columns.of_cells(cells, numbers)


def release(
    table: PublicTable, columns: Columns, *, epsilon: float, rng: np.random.Generator
) -> CellHistogram:
    """Return the noisy counts of `table`, epsilon-DP for adding or removing one record.

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
    """Counts of L1 sensitivity 1 with two-sided geometric noise. What falls below 0 is 0."""
    stops = -math.expm1(-epsilon)
    noise = rng.geometric(stops, counts.shape) - rng.geometric(stops, counts.shape)
    return np.maximum(counts + noise, 0)


def _histogram(cell: Codes, numbers: Floats, cells: int) -> Codes:
    """Counts of one numeric column within each cell, [cells, BINS]."""
    bins = np.clip((numbers + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
    return np.bincount(cell * BINS + bins, minlength=cells * BINS).reshape(cells, BINS)


def _drawn(counts: Codes, rng: np.random.Generator) -> Codes:
    """Return a bin for each row by its counts [rows, BINS]. Evenly where nothing was counted."""
    weights = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, 1)
    until = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(counts), 1)) * until[:, -1:] >= until).sum(axis=1))


ROWS = 128
"""Rows of one step: all current, or half of them rehearsed."""

Rows32 = NDArray[np.float32]
Teacher = Callable[[Rows32], Rows32]


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Rows to learn from.

    Attributes:
        inputs: of the model, [rows, inputs].
        targets: scaled, [rows].
    """

    inputs: Rows32
    targets: Rows32

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int) -> "Records":
        """Return the first `count` records at most. Segments are in random order."""
        return Records(self.inputs[:count], self.targets[:count])

    def labelled(self, teacher: Teacher) -> "Records":
        """Return the same inputs with the teacher's predictions."""
        return Records(self.inputs, teacher(self.inputs))


@dataclass(frozen=True, slots=True, eq=False)
class RowSource:
    """A source of rows for each step: a stratum by chance, then one of its rows.

    Attributes:
        strata: none of them empty.
        rows: of each step.
    """

    strata: Sequence[Records]
    rows: int = ROWS // 2

    def draw(self, steps: int, rng: np.random.Generator) -> Records:
        """Rows of all steps, [steps * rows]."""
        sizes = np.array([len(each) for each in self.strata])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        stratum = rng.integers(len(sizes), size=steps * self.rows)
        places = starts[stratum] + rng.integers(sizes[stratum])
        together = joined(self.strata)
        return Records(together.inputs[places], together.targets[places])


@dataclass(frozen=True, slots=True, eq=False)
class ClosedSegment:
    """A segment that is over, as its method may look at it once.

    Attributes:
        table: its training rows, in random order.
        records: the same for the model.
        model: as it is now.
        rng: for what is released of it.
    """

    table: PublicTable
    records: Records
    model: Teacher
    rng: np.random.Generator


class RehearsalMethod(Protocol):
    """One way of not forgetting."""

    @property
    def is_frozen(self) -> bool:
        """Return whether the model stays as it is after the first segment."""

    def keep(self, closed: ClosedSegment) -> Sequence[Records]:
        """The records that are kept of a segment, one or several views of it."""

    def sources(
        self, stored: Sequence[Sequence[Records]], current: Records, teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return the sources of the steps' rows. `stored` of each earlier segment, at least one."""


@dataclass(frozen=True, slots=True)
class Naive:
    """Goes on with the current segment alone, or not at all."""

    is_frozen: bool = False

    def keep(self, closed: ClosedSegment) -> Sequence[Records]:
        """Nothing."""
        return ()

    def sources(
        self, stored: Sequence[Sequence[Records]], current: Records, teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return the current segment."""
        return [RowSource([current], ROWS)]


@dataclass(frozen=True, slots=True)
class FullReplay:
    """Keeps all rows and draws from all of them. By segment where `is_even`."""

    is_even: bool
    is_frozen: bool = False

    def keep(self, closed: ClosedSegment) -> Sequence[Records]:
        """Return all rows."""
        return [closed.records]

    def sources(
        self, stored: Sequence[Sequence[Records]], current: Records, teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return one union."""
        segments = [*(each for (each,) in stored), current]
        return [RowSource(segments if self.is_even else [joined(segments)], ROWS)]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rehearses raw rows.

    Attributes:
        rows: that the buffer holds.
        is_dark: DER++: also rehearses earlier predictions.
    """

    rows: int
    is_dark: bool = False
    is_frozen: bool = False

    def keep(self, closed: ClosedSegment) -> Sequence[Records]:
        """Return the rows that fit into the buffer, with targets and current predictions."""
        raw = closed.records.first(self.rows)
        return [raw, raw.labelled(closed.model)] if self.is_dark else [raw]

    def sources(
        self, stored: Sequence[Sequence[Records]], current: Records, teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return the current segment, and an equal quota of every earlier one."""
        quota = max(1, self.rows // len(stored))
        views = [[each.first(quota) for each in view] for view in zip(*stored, strict=True)]
        rows = ROWS // 2 // len(views)
        return [RowSource([current]), *(RowSource(view, rows) for view in views)]


@dataclass(frozen=True, slots=True)
class TeacherLabelledInputs:
    """Rehearses inputs that the teacher labels.

    Attributes:
        columns: what is public.
        epsilon: of the release of each segment; None: random inputs, nothing is released.
    """

    columns: Columns
    epsilon: float | None
    is_frozen: bool = False

    def keep(self, closed: ClosedSegment) -> Sequence[Records]:
        """Inputs without targets."""
        if self.epsilon is None:
            table = self.columns.random(RANDOM_ROWS, closed.rng)
        else:
            released = release(closed.table, self.columns, epsilon=self.epsilon, rng=closed.rng)
            table = released.rows(closed.rng)
        return [unlabelled(table, self.columns)]

    def sources(
        self, stored: Sequence[Sequence[Records]], current: Records, teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return the current segment, and the inputs of every earlier one."""
        earlier = self.rehearsed(stored, teacher)
        return [RowSource([current]), *earlier] if earlier else [RowSource([current], ROWS)]

    def rehearsed(
        self, stored: Sequence[Sequence[Records]], teacher: Teacher
    ) -> Sequence[RowSource]:
        """Return the earlier segments alone. Empty where nothing was released of any."""
        earlier = [each.labelled(teacher) for (each,) in stored if len(each)]
        return [RowSource(earlier)] if earlier else []


RANDOM_ROWS = 2_000
"""Random inputs per segment. More of them change nothing."""


def unlabelled(table: PublicTable, columns: Columns) -> Records:
    """Inputs without targets."""
    inputs = columns.encoded(table).astype(np.float32)
    return Records(inputs, np.zeros(len(table), dtype=np.float32))


def joined(parts: Sequence[Records]) -> Records:
    """Return one after another."""
    return Records(
        np.concatenate([each.inputs for each in parts]),
        np.concatenate([each.targets for each in parts]),
    )
