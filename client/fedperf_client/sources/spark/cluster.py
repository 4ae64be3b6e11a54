"""The resources of a query: what the executors had while it ran, not what was asked for.

Executors come and go; cores and memory are means over the query's time, weighted by how
long each executor lived during it. Machines are the distinct hosts among them.
"""

import math
from collections.abc import Container
from dataclasses import dataclass, field, replace

from fedperf_client.sources.spark.fields import (
    MIB,
    Event,
    integer,
    mapping,
    milliseconds,
    size_bytes,
    text,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig

DEFAULT_MEMORY_BYTES = 1024 * MIB
"""Spark's default for an executor (spark.executor.memory)."""

UNIFIED_SHARE = 0.6
"""Of an executor's memory that its block manager counts (spark.memory.fraction)."""

MAX_EXECUTORS = 5_000
"""Executors remembered; of more the oldest that ended are forgotten."""

MAX_CORES = 100_000
"""Of one executor; one that claims more is not believed."""

DRIVER = "driver"


class UnknownClusterError(InvalidInputError):
    """No executor is known for the time of a query."""

    def __init__(self) -> None:
        super().__init__("no executor is known for its time")


def profile_of(info: Event) -> int:
    """The resource profile that an executor has, or a stage asks for; the default is 0."""
    found = info.get("Resource Profile Id")
    return found if isinstance(found, int) else 0


@dataclass(frozen=True, slots=True)
class _Executor:
    identity: str
    profile: int
    host: int
    cores: int
    memory_bytes: int
    added_at: int
    removed_at: float = math.inf


@dataclass(slots=True)
class Executors:
    """All executors of an application so far."""

    _known: dict[str, _Executor] = field(default_factory=dict)
    _ended: list[_Executor] = field(default_factory=list)
    _hosts: dict[str, int] = field(default_factory=dict)
    _profiles: dict[int, int] = field(default_factory=dict)
    _managed: dict[str, int] = field(default_factory=dict)
    _configured_bytes: int = 0

    def configured(self, properties: Event) -> None:
        """Take the memory of an executor from Spark's properties."""
        sizes = [
            size_bytes(properties.get(name))
            for name in ("spark.executor.memory", "spark.executor.memoryOverhead")
        ]
        self._configured_bytes = sum(sizes)

    def resource_profile(self, event: Event) -> None:
        """Take the memory of a resource profile (MiB)."""
        requests = mapping(event, "Executor Resource Requests")
        amounts = [
            integer(mapping(requests, name), "Amount")
            for name in ("memory", "memoryOverhead", "offHeap")
            if name in requests
        ]
        if len(self._profiles) < MAX_EXECUTORS:
            self._profiles[integer(event, "Resource Profile Id")] = sum(amounts) * MIB

    def added(self, event: Event) -> None:
        """An executor is there."""
        info = mapping(event, "Executor Info")
        profile = profile_of(info)
        memory = self._profiles.get(profile, 0)
        identity = text(event, "Executor ID")
        memory = memory or self._configured_bytes
        if identity == DRIVER:  # local mode: what executors would have tells nothing of it
            memory = 0
        found = _Executor(
            identity=identity,
            profile=profile,
            host=self._host(text(info, "Host")),
            cores=integer(info, "Total Cores"),
            memory_bytes=memory or self._managed.get(identity, 0) or DEFAULT_MEMORY_BYTES,
            added_at=milliseconds(event, "Timestamp"),
        )
        if len(self._known) < MAX_EXECUTORS and 0 < found.cores <= MAX_CORES:
            self._known[identity] = found

    def block_manager_added(self, event: Event) -> None:
        """Its memory, where nothing else tells it; comes before or after the executor."""
        identity = text(mapping(event, "Block Manager ID"), "Executor ID")
        memory = round(integer(event, "Maximum Memory") / UNIFIED_SHARE)
        if len(self._managed) < MAX_EXECUTORS:
            self._managed[identity] = memory
        if identity == DRIVER and DRIVER in self._known and memory > 0:
            self._known[DRIVER] = replace(self._known[DRIVER], memory_bytes=memory)

    def removed(self, event: Event) -> None:
        """An executor has gone; one that was never added counts for nothing."""
        found = self._known.pop(text(event, "Executor ID"), None)
        if found is not None:
            self._ended.append(replace(found, removed_at=milliseconds(event, "Timestamp")))
            del self._ended[:-MAX_EXECUTORS]

    @property
    def any_ended(self) -> bool:
        """Whether there is anything to forget."""
        return bool(self._ended)

    def forget_before(self, at: int) -> None:
        """Forget those that ended before the oldest query that still runs began."""
        self._ended = [each for each in self._ended if each.removed_at >= at]

    def during(
        self,
        start: int,
        end: int,
        *,
        profile: int | None = None,
        only: Container[str] | None = None,
    ) -> ClusterConfig:
        """The resources between two moments (milliseconds), the later of which has passed.

        An executor that is known by then and claims to have come later has another clock; it
        counts in full.

        Args:
            start: the earlier of them.
            end: the later.
            profile: of the executors that count; those of any by default.
            only: ids of the executors that count; all by default.

        Raises:
            UnknownClusterError: no executor lived then.
        """
        span = max(end - start, 1)
        shares = [
            (each, (min(each.removed_at, start + span) - max(added_at, start)) / span)
            for each in (*self._ended, *self._known.values())
            if profile in (None, each.profile) and (only is None or each.identity in only)
            for added_at in [each.added_at if each.added_at <= end else start]
        ]
        lived = [(each, share) for each, share in shares if share > 0]
        if not lived:
            raise UnknownClusterError
        memory = sum(share * each.memory_bytes for each, share in lived)
        return ClusterConfig(
            nodes=len({each.host for each, _ in lived}),
            cores=max(1, round(sum(share * each.cores for each, share in lived))),
            memory_bytes=max(1, round(memory)),
        )

    def _host(self, name: str) -> int:
        if len(self._hosts) >= MAX_EXECUTORS:
            self._hosts.clear()
        return self._hosts.setdefault(name, len(self._hosts))
