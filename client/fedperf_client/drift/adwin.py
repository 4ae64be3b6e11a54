"""ADWIN: an alarm when the mean of the newest values differs from that of those before.

A. Bifet, R. Gavalda: Learning from time-changing data with adaptive windowing, SDM 2007. The
window is kept as sums of 1, 2, 4, ... values, at most `MOST_SUMS` of each length; every
`CLOCK` values all cuts between two sums are tested by the paper's bound for normal means.
Alarms come where those of `river.drift.ADWIN` do, which a test compares. A detector serves
until its first alarm, so nothing is ever dropped from the window.
"""

import math
from dataclasses import dataclass, field

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
