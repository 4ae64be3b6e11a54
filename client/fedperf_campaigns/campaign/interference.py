"""Was the machine quiet enough during a trial, and is its time like that of its repeats?

Flags only: a noisy trial is still data. The thresholds are constants of the code, so that
campaigns can be compared.
"""

import math
import os
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from fedperf_client.workers.machine import InterferenceMonitor

MAX_FOREIGN_SHARE = 0.1
"""Of the machine's cores, that others may keep busy, stolen time included."""

MAX_STOLEN_SHARE = 0.02
"""Of the machine's cores, that its own host may take."""

FEWEST_REPEATS = 3
"""Of the same configuration, before one can be far from them."""

_FAR_DEVIATIONS = 6.0
_LEAST_FAR_LOG = math.log(1.25)
"""Repeats that agree to the millisecond do not make one that is 1 % off a stranger."""

_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class InterferenceSample:
    """What the rest of the machine did during a trial."""

    foreign_cores: float
    stolen_cores: float
    load_before: float
    load_after: float
    cores: int


class Host:
    """Watches the machine around trials; their processes are waited for before `end`."""

    def __init__(self) -> None:
        """Start no watch yet."""
        self._watch = InterferenceMonitor(own_seconds)
        self._moment, self._stolen, self._load = 0.0, 0.0, 0.0

    def begin(self) -> None:
        """A trial begins."""
        self._moment, self._stolen, self._load = time.monotonic(), _stolen_seconds(), _load()
        self._watch.begin()

    def end(self) -> InterferenceSample:
        """It has ended, and all its processes are reaped."""
        seconds = max(time.monotonic() - self._moment, 0.25)
        return InterferenceSample(
            foreign_cores=self._watch.busy_cores_since_begin(),
            stolen_cores=max(0.0, _stolen_seconds() - self._stolen) / seconds,
            load_before=self._load,
            load_after=_load(),
            cores=os.cpu_count() or 1,
        )


def noise_of(reading: InterferenceSample, seconds: float, repeats: Sequence[float]) -> str:
    """Why a trial of `seconds` is flagged; empty where it is not.

    Args:
        reading: of the machine meanwhile.
        seconds: wall time, above 0.
        repeats: wall seconds of the other trials of the same configuration.
    """
    if not reading.foreign_cores <= MAX_FOREIGN_SHARE * reading.cores:
        return f"others kept {reading.foreign_cores:.2f} of {reading.cores} cores busy"
    if not reading.stolen_cores <= MAX_STOLEN_SHARE * reading.cores:
        return f"the machine's host took {reading.stolen_cores:.2f} of {reading.cores} cores"
    if is_far(seconds, repeats):
        return f"far from its repeats, whose median is {statistics.median(repeats):.4g} s"
    return ""


def is_far(seconds: float, repeats: Sequence[float]) -> bool:
    """Whether a time is far outside of the others, by the median of their deviations."""
    if len(repeats) < FEWEST_REPEATS or not seconds > 0:
        return False
    logs = [math.log(each) for each in repeats]
    middle = statistics.median(logs)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(each - middle) for each in logs)
    return abs(math.log(seconds) - middle) > max(_LEAST_FAR_LOG, _FAR_DEVIATIONS * deviation)


def own_seconds() -> float:
    """CPU time of this process and of the trials, whose processes have all been waited for."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime


def _stolen_seconds() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _load() -> float:
    return os.getloadavg()[0]
