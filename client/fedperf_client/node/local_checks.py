"""Local checks of the daemon: for new executions in the sources, and for drift in the store.

Each runs in a process of its own, one check at a time. Reading logs takes as long as they are, and
the daemon's fixed times towards the coordinator must not depend on it. The coordinator receives no
result of a check.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.ensemble.changes import StreamDrift, load_drift_streams
from fedperf_client.sources.ingestion import SourceCheckResult, SourceState, follow
from fedperf_client.workers.worker_process import BackgroundRunner, TaskRunner
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.addresses import Address
from fedperf_shared.runtime.failure_tracker import FailureTracker

T = TypeVar("T")

# Modules that the process of the checks imports.
NEEDED_FOR_FOLLOWING = ("fedperf_client.sources.ingestion",)

FOLLOWING = "following the history"
DRIFT_CHECK = "looking for drift"  # names of the checks in the failure tracker
# The share of the time since the last drift check that another one may take.
DRIFT_CHECK_SHARE = 0.02

_AFTER_FAILURE_SECONDS = 60.0

log = structlog.get_logger()


class SourceWatch:
    """Ingests new executions under the watched paths."""

    def __init__(
        self,
        store: Path,
        *,
        compute: TaskRunner,
        start: BackgroundRunner,
        failures: FailureTracker | None = None,
    ) -> None:
        """Ingest executions into `store` by `compute`, begun by `start`."""
        self._store = store
        self._compute = compute
        self._start = start
        self._failures = failures or FailureTracker()
        self._states: dict[str, SourceState] = {}
        self._problems: tuple[str, ...] = ()
        self._running: Future[SourceCheckResult] | None = None

    def look(self, paths: tuple[Path | Address, ...]) -> None:
        """Log the result of the previous check, and begin one unless it is still running."""
        self._conclude()
        if paths and self._running is None and not self._failures.in_backoff(FOLLOWING):
            task = partial(follow, paths, self._states, self._store)
            self._running = self._start(lambda: self._compute(task))
            self._conclude()

    def _conclude(self) -> None:
        if self._running is None or not self._running.done():
            return
        running, self._running = self._running, None
        result = _find_result(running, FOLLOWING, self._failures)
        if result is None:
            return
        self._states = result.states
        for problem in result.problems:
            if problem not in self._problems:
                log.warning("following the history failed", reason=problem)
        for problem in self._problems:
            if problem not in result.problems:
                log.info("following the history works again", reason=problem)
        self._problems = result.problems
        if result.taken.new or result.taken.skipped:
            log.info("history", new=result.taken.new, skipped=dict(result.taken.skipped))


@dataclass(frozen=True, slots=True)
class DriftCheckResult:
    """The result of one drift check."""

    executions: int  # number in the store by then
    drifts: tuple[StreamDrift, ...]  # in all streams, in order of time within each
    seconds: float  # its duration


@dataclass(frozen=True, slots=True)
class DriftTask:
    """One drift check, which runs in another process and can be pickled."""

    store: Path  # the organization's database of executions
    before: DriftCheckResult | None  # result of the previous check; None at first

    def __call__(self) -> DriftCheckResult:
        """Check the present streams, or return `before`; errors as `load_drift_streams`."""
        start = time.monotonic()
        with ExecutionStore.open(self.store) as store:
            executions = store.counts().executions
            if self.before is not None and executions == self.before.executions:
                return self.before
            streams = load_drift_streams(store)
        drifts = tuple(drift for stream in streams for drift in stream.drifts)
        return DriftCheckResult(executions, drifts, time.monotonic() - start)


class DriftWatch:
    """Logs each recent drift in the store once, while the daemon has spare time."""

    def __init__(
        self,
        store: Path,
        *,
        compute: TaskRunner,
        start: BackgroundRunner,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = time.monotonic,
        failures: FailureTracker | None = None,
    ) -> None:
        """Check `store` by `compute`, begun by `start`; drifts are recent by `clock`."""
        self._store = store
        self._compute = compute
        self._start = start
        self._clock = clock
        self._timer = timer
        self._failures = failures or FailureTracker(timer=timer)
        self._last: DriftCheckResult | None = None
        self._running: Future[DriftCheckResult] | None = None
        self._next_at = -float("inf")
        self._logged: set[tuple[object, ...]] = set()

    def look(self) -> None:
        """Log the result of the previous check, and begin one unless it is too early."""
        self._conclude()
        if self._running is None and self._timer() >= self._next_at:
            task = DriftTask(self._store, self._last)
            self._running = self._start(lambda: self._compute(task))
            self._conclude()

    def _conclude(self) -> None:
        if self._running is None or not self._running.done():
            return
        running, self._running = self._running, None
        result = _find_result(running, DRIFT_CHECK, self._failures)
        if result is None:
            self._next_at = self._timer() + _AFTER_FAILURE_SECONDS
            return
        if result != self._last:
            self._next_at = self._timer() + result.seconds / DRIFT_CHECK_SHARE
        self._last = result
        for drift in result.drifts:
            key = (drift.platform, drift.operator_class, drift.noticed_at)
            if key not in self._logged and drift.is_recent(self._clock()):
                kind = " and ".join(drift.kinds)
                log.warning("drift", what=drift.stream_name, change=drift.sentence, kind=kind)
            self._logged.add(key)


def _find_result(running: Future[T], name: str, failures: FailureTracker) -> T | None:
    """Return the result of a check that ended; None, and a line in the log, if it failed."""
    try:
        result = running.result()
    except (FedperfError, OSError) as error:
        failures.failed(name, error)
        return None
    failures.worked(name)
    return result
