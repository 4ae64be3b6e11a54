"""Detection of level changes in a stream of residuals, by ADWIN on each one's distance from usual.

A residual is log seconds measured - log seconds predicted by one model for the whole stream,
so that a new version of a model is no change. Jobs differ far more from each other than from
themselves, so each residual is taken relative to the first ones of its own job. On the year of I/O
probes this finds a shift to half as long again within 150 executions in 59 of 60 streams; without
it 42 are found (`home_detection` of the simulations). What is found in a stream stays found when
the stream goes on in the same way.

A. Bifet, R. Gavalda: Learning from time-changing data with adaptive windowing, SDM 2007: an alarm
when the mean of the newest values differs from that of those before. The window is kept as sums of
1, 2, 4, ... values, at most `MOST_SUMS` of each length; every `CLOCK` values all cuts between two
sums are tested by the paper's bound for normal means. Alarms come where those of
`river.drift.ADWIN` do, which a test compares. A detector serves until its first alarm, so nothing
is ever dropped from the window.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

DELTA = 0.002
"""Chance that ADWIN may take for a change what is none, per look."""

CLOCK = 32
"""Values between two looks."""

MOST_SUMS = 5
"""Of one length; one more, and the two oldest become one of twice the length."""

LEAST_SIDE = 5
"""Values on either side of a cut."""


@dataclass(slots=True)
class Adwin:
    """The detector.

    Attributes:
        quiet: values before any alarm.
    """

    quiet: int
    _width: int = 0
    _total: float = 0.0
    _squares: float = 0.0
    """Squared distances from the mean, in all."""
    _sums: list[list[float]] = field(default_factory=lambda: [[]])
    """By the binary logarithm of their length; the newest last."""

    def __call__(self, value: float) -> bool:
        """Take a value, and say whether there is an alarm."""
        if self._width:
            apart = value - self._total / self._width
            self._squares += self._width * apart * apart / (self._width + 1.0)
        self._width += 1
        self._total += value
        self._sums[0].append(value)
        if len(self._sums[0]) > MOST_SUMS:
            self._merge()
        return self._width % CLOCK == 0 and self._width > self.quiet and self._has_changed()

    def _merge(self) -> None:
        for row, sums in enumerate(self._sums):
            if len(sums) <= MOST_SUMS:
                return
            if row + 1 == len(self._sums):
                self._sums.append([])
            self._sums[row + 1].append(sums.pop(0) + sums.pop(0))

    def _has_changed(self) -> bool:
        """Whether the means before and after some cut differ by more than chance allows."""
        log_chance = math.log(2 * math.log(self._width) / DELTA)
        variance = self._squares / self._width
        before, after = 0, self._width
        sum_before, sum_after = 0.0, self._total
        for row in reversed(range(len(self._sums))):
            for each in self._sums[row]:
                before, after = before + 2**row, after - 2**row
                sum_before, sum_after = sum_before + each, sum_after - each
                if before < LEAST_SIDE or after < LEAST_SIDE:
                    continue
                share = 1.0 / (before - LEAST_SIDE + 1) + 1.0 / (after - LEAST_SIDE + 1)
                least = math.sqrt(2 * share * variance * log_chance) + 2 / 3 * log_chance * share
                if abs(sum_before / before - sum_after / after) > least:
                    return True
        return False


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GUARD = 30
"""Executions before any alarm, and after one."""

USUAL_FROM = 5
"""Executions of a job, its first ones, whose mean is its usual residual."""

MOST_SURPRISING = 2.0
"""Log seconds beyond which a residual counts no more."""

LEAST_APART = 5
"""Executions on either side of a change."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level.

    Attributes:
        at: the first execution after it.
        noticed: the execution that raised the alarm.
    """

    at: int
    noticed: int


def changes(residuals: Floats, jobs: Ints) -> list[LevelChange]:
    """Where the level changed, in the order of the stream.

    Args:
        residuals: log seconds, [executions], in the order they finished.
        jobs: number of the job of each, [executions].
    """
    found: list[LevelChange] = []
    begin, quiet = 0, GUARD
    while True:
        surprising = surprises(residuals[begin:], jobs[begin:])
        alarm = _first_alarm(surprising, quiet)
        if alarm is None:
            return found
        split = _split(surprising[: alarm + 1])
        found.append(LevelChange(begin + split, begin + alarm))
        begin, quiet = begin + split, alarm - split + GUARD


def surprises(residuals: Floats, jobs: Ints) -> Floats:
    """How far each residual is from what was usual, [executions].

    Usual is the mean of the job's first `USUAL_FROM` residuals, as far as they are known by
    then. The first of a job tells nothing where most jobs run again; where most run once, it
    counts from the mean of the stream's first `GUARD`.
    """
    stream = _Usual(GUARD if 2 * len(np.unique(jobs)) > len(jobs) else 0)
    by_job: dict[int, _Usual] = {}
    found = np.zeros(len(residuals))
    for place, (residual, job) in enumerate(zip(residuals.tolist(), jobs.tolist(), strict=True)):
        of_job = by_job.setdefault(job, _Usual(USUAL_FROM))
        usual = of_job if of_job.count else stream
        found[place] = residual - usual.level if usual.count else 0.0
        of_job.add(residual)
        stream.add(residual)
    return np.clip(found, -MOST_SURPRISING, MOST_SURPRISING)


@dataclass(slots=True)
class _Usual:
    """The mean of the first values."""

    most: int
    count: int = 0
    level: float = 0.0

    def add(self, value: float) -> None:
        if self.count < self.most:
            self.count += 1
            self.level += (value - self.level) / self.count


def _first_alarm(values: Floats, quiet: int) -> int | None:
    """The first alarm after `quiet` values."""
    if len(values) <= quiet:
        return None
    raises_alarm = Adwin(quiet)
    return next((place for place, each in enumerate(values.tolist()) if raises_alarm(each)), None)


def _split(values: Floats) -> int:
    """Where a step up or down explains most of the variance."""
    sizes = np.arange(LEAST_APART, len(values) - LEAST_APART + 1)
    before = np.cumsum(values)[sizes - 1]
    after = values.sum() - before
    explained = before**2 / sizes + after**2 / (len(values) - sizes)
    return int(sizes[np.argmax(explained)])
