"""Processor time of the coordinator and of the members, where both share one process.

Sections nest: while a member computes, the coordinator's clock stands still, and the other way
round. Times are seconds of the process (`time.process_time`).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum, unique


@unique
class Side(StrEnum):
    """The side that computes."""

    COORDINATOR = "coordinator"
    MEMBERS = "members"
    NOBODY = "nobody"


@dataclass(slots=True)
class CpuMeter:
    """Charges the processor's time to one side after the other.

    Attributes:
        timer: seconds of the processor.
        seconds: by side.
    """

    timer: Callable[[], float] = time.process_time
    seconds: dict[Side, float] = field(default_factory=lambda: defaultdict(float))
    _now: Side = Side.NOBODY
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._since = self.timer()

    @contextmanager
    def of(self, side: Side) -> Iterator[None]:
        """Charge what happens inside to `side`."""
        before = self._turn(side)
        try:
            yield
        finally:
            self._turn(before)

    def _turn(self, side: Side) -> Side:
        before, at = self._now, self.timer()
        self.seconds[before] += at - self._since
        self._now, self._since = side, at
        return before
