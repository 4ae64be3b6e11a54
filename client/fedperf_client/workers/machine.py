"""This machine: its resources, the speed of one core, and the load of other programs."""

import hashlib
import os
import platform
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import psutil

from fedperf_shared.execution import ClusterConfig

REFERENCE_SECONDS = 0.0123  # time of one pass of the speed loop on the reference machine
_PASSES = 7
_ROWS = 120_000
_HASHED_BYTES = 1 << 20
_HASHES = 8
# /proc/stat counts in ticks of 10 ms: a shorter window would measure the ticks
_SHORTEST_WINDOW_SECONDS = 0.25


def cluster_config(threads: int) -> ClusterConfig:
    """Return this machine with `threads` cores in use; takes a fraction of a second."""
    return ClusterConfig(
        nodes=1,
        cores=threads,
        memory_bytes=psutil.virtual_memory().total,
        machine_speed=machine_speed(),
    )


def usable_cores() -> int:
    """Return the number of cores that this process and its children may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def machine_speed(timer: Callable[[], float] = time.thread_time) -> float:
    """Measure the speed of one core relative to the reference machine: 2.0 is twice as fast.

    It is the best of a few passes over a fixed mix of sorting, gathering, arithmetic and hashing,
    in CPU time: the load of other programs is no property of the machine.
    """
    import numpy as np

    keys = (np.arange(_ROWS, dtype=np.int64) * 2_654_435_761) % 1_000_003
    block = bytes(_HASHED_BYTES)

    def one_pass() -> float:
        start = timer()
        order = np.argsort(keys, kind="stable")
        total = np.cumsum(np.sqrt(keys[order].astype(np.float64)))
        counts = np.bincount(keys % 1024, weights=total, minlength=1024)
        for _ in range(_HASHES):
            hashlib.blake2b(block, key=counts[:4].tobytes()).digest()
        return timer() - start

    return REFERENCE_SECONDS / min(one_pass() for _ in range(_PASSES))


class InterferenceMonitor:
    """Measures how many cores other programs kept busy during a trial.

    Readings pair the CPU time of the whole machine with the CPU time of the trials and of the
    program that runs them; the difference is interference.
    """

    def __init__(
        self,
        own_seconds: Callable[[], float],
        *,
        busy_seconds: Callable[[], float] | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch the machine; `own_seconds` is the CPU time that does not count as interference."""
        self._own_seconds = own_seconds
        self._busy_seconds = busy_seconds or host_busy_seconds
        self._timer = timer
        self._readings: deque[tuple[float, float]] = deque(maxlen=64)

    def restart(self) -> None:
        """Forget earlier readings: the set of own processes has changed."""
        self._readings.clear()

    def begin(self) -> None:
        """Take the reading at the start of a trial."""
        self._readings.append(self._read())

    def busy_cores_since_begin(self) -> float:
        """Return the interference in cores since `begin`, at least over a quarter of a second."""
        now, foreign = self._read()
        started = (
            each for each in reversed(self._readings) if now - each[0] >= _SHORTEST_WINDOW_SECONDS
        )
        at, before = next(started, self._readings[0])
        self._readings.append((now, foreign))
        return max(0.0, foreign - before) / max(now - at, _SHORTEST_WINDOW_SECONDS)

    def _read(self) -> tuple[float, float]:
        """Return the time, and the seconds that other programs have kept a core busy."""
        return self._timer(), self._busy_seconds() - self._own_seconds()


def host_busy_seconds() -> float:
    """Return the CPU time that the machine has spent, including time stolen by its host."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts guests inside user time already.
    return float(
        sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    )


def available_memory_bytes() -> int:
    """Return the memory that new trials can use without swapping."""
    return int(psutil.virtual_memory().available)


def machine_name() -> str:
    """Return the processor's model, as provenance; never the host's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown processor"


def architecture() -> str:
    """Return the system's name of the instruction set."""
    return platform.machine() or "unknown"


def product_name() -> str:
    """Return the maker's or the cloud's name of this type of machine; empty if there is none."""
    try:
        name = Path("/sys/class/dmi/id/product_name").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return name.strip()[:200]


def boot_id() -> str:
    """Return an id that differs after every start of the machine; local."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"
