"""Own executions brought to the level of today, where the same work takes longer or shorter since.

Drift is looked for in what the public start was off by: it is the same for the whole history,
whatever was fetched since, and nobody outside has a say in it. Executions from before a
concept drift count with what they would take today, in the fit of every member and in the
folds that weigh them. Leaving them out instead forgets what they tell about sizes and jobs:
in made-up worlds errors were up to 6 % larger so than without looking for drift at all, with
their level mended up to two thirds smaller and never larger.

Drift needs dozens of runs. A single workload that an upgrade or a day made slower or faster is
found by itself, in what drift leaves over: the median of its runs since against that of before, on
the same resources and at the same rows, as `fedperf compare` judges them. Its older runs count on
the newer level as well.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from fedperf_client.drift.streams import ObservedExecutions, Stream
from fedperf_client.prediction.execution_table import ExecutionTable, Ints, Mask, numbered
from fedperf_client.prediction.mixture.repeat_spread import CLOCK_SD, RepeatBelief, Repeats
from fedperf_client.prediction.mixture.spreads import Student
from fedperf_client.prediction.prediction import Floats

SURE = 0.98
"""Level of the interval of a change, 1 % on either side: of a hundred workloads that did not change
one is called slower by chance."""

ALIKE_ROWS = 1.2
"""Rows that differ by less are the same."""

MOST_CHANGES = 3
"""Of the days since which a workload changed."""

_BOTH_CHOSEN = 2
"""As so many looks counts one at a day that the runs chose: those on either side of it agree better
than repeats do, and they tell how much these differ."""

_MEDIAN_SD = math.sqrt(math.pi / 2)
"""By how much the median of many is less sure than their mean."""

_FEW = 2
"""Of so few the median is the mean."""

_DAY_US = 86_400_000_000


class MedianChange(NamedTuple):
    """How the median run time changed.

    Attributes:
        log_ratio: of the medians, after over before.
        half: half width of its interval, log seconds.
    """

    log_ratio: float
    half: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        return abs(self.log_ratio) > self.half

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of the ratio."""
        low, high = (min(max(self.log_ratio + s * self.half, -700), 700) for s in (-1, 1))
        return math.exp(low), math.exp(high)


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The last change of a workload's run times at the same work that is sure.

    Attributes:
        workload: its number, as in `ExecutionTable`.
        first: number of the first run since, as in `ExecutionTable`.
        since: when that finished.
        is_upgrade: whether runs since are those on the version of its newest run, and runs before
            those on others; else those from a day on.
        change: of the median.
        runs_before, runs_since: how many there are, on the resources that were compared.
    """

    workload: int
    first: int
    since: datetime
    is_upgrade: bool
    change: MedianChange
    runs_before: int
    runs_since: int


def median_change(
    before: Sequence[float] | Floats,
    after: Sequence[float] | Floats,
    belief: RepeatBelief,
    level: float = SURE,
) -> MedianChange:
    """How the median of some runs differs from that of others, at the same work.

    Args:
        before: log seconds, at least one.
        after: the same.
        belief: what other work tells of the variance of a repeat.
        level: of the interval.
    """
    sides = [np.array(each, np.float64) for each in (before, after)]
    degrees = belief.count + len(before) + len(after) - 2
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in sides)
    variance = (belief.count * belief.sd**2 + squares) / degrees
    of_medians = sum((1.0 if len(each) <= _FEW else _MEDIAN_SD**2) / len(each) for each in sides)
    earlier, later = (float(np.median(each)) for each in sides)
    half = Student(math.sqrt(variance * of_medians), degrees).quantile((1 + level) / 2)
    return MedianChange(later - earlier, half)


def workload_changes(
    columns: ExecutionTable, platforms: Ints, log_seconds: Floats
) -> tuple[Floats, Mask, tuple[WorkloadChange, ...]]:
    """Log seconds as they would be today, which are moved, and each workload's last change.

    Args:
        columns: executions that ended well, in the order in which they finished.
        platforms: a number for the set that each uses.
        log_seconds: of each, without what changed whole kinds of work.
    """
    today, found = log_seconds.copy(), dict[int, WorkloadChange]()
    moved = np.zeros(len(today), np.bool_)
    workload = columns.workload_index()
    newest = np.zeros(workload.max(initial=-1) + 1, np.int64)
    newest[workload] = columns.source  # the last one of each stays
    upgraded = (columns.source == newest[workload]).astype(np.int64)
    is_first = (columns.queries_before == 0).astype(np.int64)
    same = _together(workload, platforms, columns.nodes, columns.cores, is_first, columns.mark)
    has_rows = columns.source_rows > 0
    size = np.log1p(np.where(has_rows, columns.source_rows, columns.read_bytes))
    days = columns.finished_at // _DAY_US
    for is_upgrade, sides in ((True, upgraded), *[(False, days)] * MOST_CHANGES):
        splits = _splits(_Work(workload, same, sides, size), today)
        repeats_of = 2 * same + upgraded
        for number, (_, after, _) in enumerate(splits):
            repeats_of[after] = -1 - number  # each side repeats for itself, as in `compare`
        repeats = Repeats.of(repeats_of, np.zeros_like(same), today)
        for before, after, tries in splits:
            belief = repeats.belief(int(repeats_of[before[0]]))
            sides_of = today[before], today[after], belief
            looks = tries if is_upgrade else _BOTH_CHOSEN * tries
            if not median_change(*sides_of, 1 - (1 - SURE) / looks).is_sure:
                continue
            change = median_change(*sides_of)
            since = int(after[0])
            before_it = (workload == workload[since]) & (sides < sides[since])
            today[before_it] += change.log_ratio
            moved |= before_it
            one = WorkloadChange(
                int(columns.workload[since]),
                int(columns.number[since]),
                columns.take(after[:1]).moments()[0],
                is_upgrade,
                change,
                len(before),
                len(after),
            )
            if one.workload not in found or one.since > found[one.workload].since:
                found[one.workload] = one
    return today, moved, tuple(found.values())


class _Work(NamedTuple):
    """Runs as changes are looked for in them, in the order in which they finished, [executions].

    Attributes:
        workload: its number, from 0 on.
        same: the same for those of a workload on the same resources.
        sides: runs of one side are never told apart.
        log_size: of the rows of all sources; of unknown ones of the bytes that were read.
    """

    workload: Ints
    same: Ints
    sides: Ints
    log_size: Floats


def _splits(work: _Work, log_seconds: Floats) -> list[tuple[Ints, Ints, float]]:
    """For each workload that may have changed the likeliest split, of how many that were possible.

    Returns:
        Runs before, runs after, and splits.
    """
    order = np.lexsort((work.sides, work.same))
    same, sides, workload = work.same[order], work.sides[order], work.workload[order]
    is_first = np.diff(same, prepend=-1) != 0
    begins = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(begins[1:], len(order))
    at = np.flatnonzero(~is_first & (np.diff(sides, prepend=-1) != 0))
    tries = np.bincount(workload[at], minlength=workload.max(initial=-1) + 1)
    begin, end = begins[group[at]], ends[group[at]]
    rows, logs = _Halves.of(work.log_size[order], begin, at, end), log_seconds[order]
    times = _Halves.of(logs, begin, at, end)
    alike = np.abs(rows.apart) <= math.log(ALIKE_ROWS)
    chance = np.where(alike, times.chance * tries[workload[at]], 1.0)
    found: dict[int, int] = {}
    for place in np.flatnonzero(chance < 1 - SURE).tolist():
        number = int(workload[at[place]])
        if number not in found or chance[place] < chance[found[number]]:
            found[number] = place
    return [
        (
            np.sort(order[begin[place] : at[place]]),
            np.sort(order[at[place] : end[place]]),
            float(tries[number]),
        )
        for number, place in found.items()
    ]


class _Halves(NamedTuple):
    """Groups of values split in two.

    Attributes:
        apart: the mean of the second part less that of the first, [splits].
        chance: that they lie so far apart though nothing changed, if repeats of other work
            agreed like the best, [splits].
    """

    apart: Floats
    chance: Floats

    @classmethod
    def of(cls, values: Floats, begin: Ints, at: Ints, end: Ints) -> "_Halves":
        """Of groups that lie together: from `begin` to `at`, and from there to `end`."""
        values = values - (values.mean() if len(values) else 0.0)
        sums, squares = (np.append(0.0, np.cumsum(each)) for each in (values, values**2))
        many, more = at - begin, end - at
        left, right = (sums[at] - sums[begin]) / many, (sums[end] - sums[at]) / more
        within = squares[end] - squares[begin] - many * left**2 - more * right**2
        degrees = many + more
        variance = (np.maximum(within, 0.0) + 2 * CLOCK_SD**2) / degrees
        apart = right - left
        far = np.abs(apart) / np.sqrt(variance * (1 / many + 1 / more))
        return cls(apart, 2 * stdtr(degrees, -far))


def _together(*values: Ints) -> Ints:
    """A number for executions that agree in all of these, [executions] each."""
    found = np.zeros(len(values[0]), np.int64)
    for each in map(numbered, values):
        found = numbered(found * (each.max(initial=0) + 1) + each)
    return found


def observed_in(columns: ExecutionTable) -> ObservedExecutions:
    """Own executions that ended well, in the order in which they finished."""
    return ObservedExecutions(
        columns.cell,
        columns.workload_index(),
        columns.log_seconds - columns.start,
        columns.inputs(),
        columns.moments(),
    )


def as_of_today(log_seconds: Floats, streams: Iterable[Stream]) -> Floats:
    """What was measured, log seconds [executions], as it would be today."""
    today = log_seconds.copy()
    for stream in streams:
        today[stream.rows] += stream.lags()
    return today
