"""The executors of an application as its log tells them up to now.

Who was there is asked when a stage or a job ends: asked later, executors that came since would
count as well, since an executor that claims to be newer than the end is taken to have another
clock (`cluster.Executors`).
"""

from dataclasses import dataclass, field

from fedperf_client.sources.spark.cluster import Executors, UnknownClusterError
from fedperf_client.sources.spark.fields import Event, milliseconds
from fedperf_shared.execution import ClusterConfig

CLOCKS_APART = 60_000
"""Milliseconds; events are told within a second or so of their time."""


@dataclass(slots=True)
class PresentExecutors:
    """Those that are known now.

    Attributes:
        known: all of them.
    """

    known: Executors = field(default_factory=Executors)
    _newest: int = 0

    def added(self, event: Event) -> None:
        """An executor is there."""
        self.known.added(event)
        self._newest = max(self._newest, milliseconds(event, "Timestamp"))

    def during(self, start: int, end: int) -> ClusterConfig | None:
        """The resources between two moments, the later of which is now.

        None where no executor is known, or where their clock is not that of the tasks, so
        that nobody can tell who was there.
        """
        if self._newest > end + CLOCKS_APART:
            return None
        try:
            return self.known.during(start, max(start, end))
        except UnknownClusterError:
            return None

    def are_there(self, at: int) -> bool:
        """Whether there is one now."""
        try:
            self.known.during(at, at + 1)
        except UnknownClusterError:
            return False
        return True
