"""The daemon's look at sources: in a process of its own, one look at a time.

Reading logs takes as long as they are; what the daemon owes the coordinator at fixed
moments does not wait for it, nor share an interpreter with it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from fedperf_client.sources.ingestion import FollowTask, SourceCheckResult, SourceState
from fedperf_client.workers.background import BackgroundRunner
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.failure_tracker import FailureTracker

if TYPE_CHECKING:
    from concurrent.futures import Future

NEEDED_FOR_FOLLOWING = ("fedperf_client.sources.ingestion",)
"""Modules that the watching process imports."""

FOLLOWING = "following the history"
"""The name of this failure."""

log = structlog.get_logger()


class SourceWatch:
    """Takes in what is new under the paths that are followed."""

    def __init__(
        self,
        store: Path,
        *,
        compute: TaskRunner,
        start: BackgroundRunner,
        failures: FailureTracker | None = None,
    ) -> None:
        """Take executions into `store`, by `compute`, begun by `start`."""
        self._store = store
        self._compute = compute
        self._start = start
        self._failures = failures or FailureTracker()
        self._seen: dict[Path, SourceState] = {}
        self._problems: tuple[str, ...] = ()
        self._looking: Future[SourceCheckResult] | None = None

    def look(self, paths: tuple[Path, ...]) -> None:
        """Begin a look, unless the one before is still going on; say what that one brought."""
        self._conclude()
        if paths and self._looking is None and not self._failures.in_backoff(FOLLOWING):
            task = FollowTask(self._store, paths, self._seen)
            self._looking = self._start(lambda: self._compute(task))
            self._conclude()

    def _conclude(self) -> None:
        if self._looking is None or not self._looking.done():
            return
        looked, self._looking = self._looking, None
        try:
            found = looked.result()
        except (FedperfError, OSError) as error:
            self._failures.failed(FOLLOWING, error)
            return
        self._failures.worked(FOLLOWING)
        self._seen = found.seen
        for problem in found.problems:
            if problem not in self._problems:
                log.warning("following the history failed", reason=problem)
        for problem in self._problems:
            if problem not in found.problems:
                log.info("following the history works again", reason=problem)
        self._problems = found.problems
        if found.taken.new or found.taken.skipped:
            log.info("history", new=found.taken.new, skipped=dict(found.taken.skipped))
