"""The daemon's drift check, which is local: the coordinator does not receive its results.

Looked for in the process that follows the history, when executions came since the last look
and that one took a small share of the time since. What is found goes to the log, each recent
drift once in the life of a daemon.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.ensemble.changes import StreamDrift, load_drift_streams
from fedperf_client.workers.background import BackgroundRunner
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.failure_tracker import FailureTracker

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOKING_SHARE = 0.02
"""The share of the time since the last check that another check may take."""

_AFTER_FAILURE_SECONDS = 60.0

LOOKING = "looking for drift"
"""The name of this failure."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DriftCheckResult:
    """The result of one drift check.

    Attributes:
        executions: in the store by then.
        drifts: in all streams, in order of time within each.
        seconds: that it took.
    """

    executions: int
    drifts: tuple[StreamDrift, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DriftTask:
    """One drift check, which runs in another process and can be pickled.

    Attributes:
        store: the organization's database of executions.
        before: what the look before brought; None at first.
    """

    store: Path
    before: DriftCheckResult | None

    def __call__(self) -> DriftCheckResult:
        """Check the present streams, or return `before`; errors as `load_drift_streams`."""
        begun = time.monotonic()
        with ExecutionStore.open(self.store) as store:
            executions = store.counts().executions
            if self.before is not None and executions == self.before.executions:
                return self.before
            streams = load_drift_streams(store)
        found = tuple(drift for stream in streams for drift in stream.drifts)
        return DriftCheckResult(executions, found, time.monotonic() - begun)


class DriftWatch:
    """Logs drift in the store while the daemon has spare time."""

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
        """Look into `store` by `compute`, begun by `start`; drifts are recent by `clock`."""
        self._store = store
        self._compute = compute
        self._start = start
        self._clock = clock
        self._timer = timer
        self._failures = failures or FailureTracker(timer=timer)
        self._noticed: DriftCheckResult | None = None
        self._looking: Future[DriftCheckResult] | None = None
        self._next_at = -float("inf")
        self._said: set[tuple[object, ...]] = set()

    def look(self) -> None:
        """Begin a look, unless one is going on or it is too early; say what the last brought."""
        self._conclude()
        if self._looking is None and self._timer() >= self._next_at:
            task = DriftTask(self._store, self._noticed)
            self._looking = self._start(lambda: self._compute(task))
            self._conclude()

    def _conclude(self) -> None:
        if self._looking is None or not self._looking.done():
            return
        looked, self._looking = self._looking, None
        try:
            found = looked.result()
        except (FedperfError, OSError) as error:
            self._failures.failed(LOOKING, error)
            self._next_at = self._timer() + _AFTER_FAILURE_SECONDS
            return
        self._failures.worked(LOOKING)
        if found != self._noticed:
            self._next_at = self._timer() + found.seconds / LOOKING_SHARE
        self._noticed = found
        for each in found.drifts:
            self._say(each)

    def _say(self, drift: StreamDrift) -> None:
        key = (drift.platform, drift.operator_class, drift.noticed_at)
        if key not in self._said and drift.is_recent(self._clock()):
            kind = " and ".join(drift.kinds)
            log.warning("drift", what=drift.stream_name, change=drift.sentence, kind=kind)
        self._said.add(key)
