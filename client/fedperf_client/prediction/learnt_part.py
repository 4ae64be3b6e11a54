"""The own executions that are learnt from: all of them up to a size, beyond it a part of them.

Learners are weighed and fitted on at most `MOST_LEARNT` executions, so an answer costs the same
however many there are. Fixed rules choose the part. It holds a few of the newest executions of as
many workloads as possible, in an order that has nothing to do with what they measured. It holds
some of every cell of the basis, so that rare work is there. And it holds those at the ends of
scales and sizes. Runs of exactly what is asked about are looked up among all executions, not in
this part.

The part is chosen again when a tenth more executions came, or a drift was noticed. The executions
that finished before then decide, and nothing else, so the same question gets the same answer.
"""

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.columns import ExecutionColumns, numbered

MOST_LEARNT = 3_000
"""Executions; of fewer all are learnt from."""

STEP = 1.1
TOGETHER = 3
"""Newest executions of a workload that are taken before another workload's."""

LEAST_OF_CELL = 20

Ints = NDArray[np.int64]


def learnt_until(count: int, noticed: int) -> int:
    """The number of oldest executions among which the part is chosen.

    Args:
        count: all of them.
        noticed: of them up to the last alarm of drift; 0 without one.
    """
    if count <= MOST_LEARNT:
        return count
    steps = int(np.log(count / MOST_LEARNT) / np.log(STEP))
    return max(noticed, min(count, int(MOST_LEARNT * STEP**steps)))


def learnt_part(columns: ExecutionColumns) -> Ints:
    """Rows to learn from, ascending."""
    count = len(columns)
    if count <= MOST_LEARNT:
        return np.arange(count)
    rank = _rank(columns.workload)
    # Hashes of names: as good as drawn, and the same whatever else is stored.
    order = np.lexsort((rank, columns.workload, rank // TOGETHER))
    of_cell = np.empty(count, np.int64)
    of_cell[order] = _place_in(columns.cell[order])
    ends = [
        each(values)
        for values in (columns.cores, columns.source_rows)
        for each in (np.argmin, np.argmax)
    ]
    first = np.zeros(count, np.bool_)
    first[ends] = True
    first |= of_cell < LEAST_OF_CELL
    chosen = np.concatenate([order[first[order]], order[~first[order]]])[:MOST_LEARNT]
    return np.sort(chosen)


def _rank(workload: Ints) -> Ints:
    """How many executions of its workload are newer, of each."""
    return _place_in(workload[::-1])[::-1]


def _place_in(groups: Ints) -> Ints:
    """How many of its group stand before it, of each."""
    numbers = numbered(groups)
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.empty(len(groups), np.int64)
    place[order] = np.arange(len(groups)) - begins
    return place
