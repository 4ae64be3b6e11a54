"""The executors of an application as its log tells them up to now.

Who was there is asked when a stage or a job ends: asked later, executors that came since would
count as well, since an executor that claims to be newer than the end is taken to have another
clock (`cluster.Executors`).
"""

from collections.abc import Container, Mapping
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

    @property
    def have_come(self) -> bool:
        """Whether there ever was one."""
        return self._newest > 0

    def added(self, event: Event) -> None:
        """An executor is there."""
        self.known.added(event)
        self._newest = max(self._newest, milliseconds(event, "Timestamp"))

    def during(
        self,
        start: int,
        end: int,
        *,
        profile: int | None = None,
        only: Container[str] | None = None,
    ) -> ClusterConfig | None:
        """The resources between two moments, the later of which is now; see `Executors.during`.

        None where no executor is known, or where their clock is not that of the tasks, so
        that nobody can tell who was there.
        """
        if self._newest > end + CLOCKS_APART:
            return None
        try:
            return self.known.during(start, max(start, end), profile=profile, only=only)
        except UnknownClusterError:
            return None

    def slots_of(
        self, takers: Mapping[str, int], start: int, end: int, *, profile: int, task_cores: int
    ) -> int:
        """Tasks of a stage that its executors could run at once; 0 where none is known.

        Those of another profile take none of its tasks. Where tasks waited for a place on the
        executors that took some, the others were not to be had: they were going, or had just come.

        Args:
            takers: number of its tasks that each executor took, by id.
            start: of its first task.
            end: of its last; now.
            profile: that the stage asks for.
            task_cores: cores that a task takes.
        """
        mine = self.during(start, end, profile=profile, only=takers)
        slots = 0 if mine is None else mine.cores // task_cores
        if slots and sum(takers.values()) > slots:
            return slots
        everybody = self.during(start, end, profile=profile)
        return 0 if everybody is None else everybody.cores // task_cores

    def are_there(self, at: int, profile: int) -> bool:
        """Whether there is one of a profile now."""
        try:
            self.known.during(at, at + 1, profile=profile)
        except UnknownClusterError:
            return False
        return True
