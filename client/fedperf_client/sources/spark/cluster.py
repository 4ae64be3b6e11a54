"""The resources of a query: what the executors had while it ran, not what was asked for.

Executors come and go; cores and memory are means over the part of the query's time in which any
was there, weighted by how long each lived during it. Machines are the distinct hosts among them.

Who was there is asked when a stage or a query ends: asked later, executors that came since would
count as well, since one that claims to be newer than the end is taken to have another clock.
"""

import math
import re
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace

from fedperf_client.sources.spark import fields
from fedperf_client.sources.spark.failures import Removal
from fedperf_client.sources.spark.fields import MIB, Event
from fedperf_client.sources.spark.query import covered
from fedperf_shared.execution import ClusterConfig

DEFAULT_MEMORY_BYTES = 1024 * MIB  # spark's default for an executor (spark.executor.memory)
UNIFIED_SHARE = 0.6  # Of an executor's memory that its block manager counts (spark.memory.fraction)
MAX_EXECUTORS = 5_000  # executors remembered; of more the oldest that ended are forgotten
MAX_CORES = 100_000  # Of one executor; one that claims more is not believed
MAX_RESOURCES = 20  # kinds of them that are told apart beside cores, such as GPUs
MAX_REMOVALS = 1_000  # Of executors, that are remembered with their reason; of more the newest
CLOCKS_APART = 60_000  # milliseconds; events are told within a second or so of their time

DRIVER = "driver"

_LONGEST_NAME = 120
_LOCAL = re.compile(r"local(?:\[(\d{1,6})(?:,\s*\w+)?\])?")
_AMOUNT = re.compile(r"spark\.(task|executor)\.resource\.([\w-]{1,60})\.amount")

Amounts = Mapping[str, float]  # Of resources by their names


def profile_of(info: Event) -> int:
    """The resource profile that an executor has, or a stage asks for; the default is 0."""
    found = info.get("Resource Profile Id")
    return found if isinstance(found, int) else 0


@dataclass(frozen=True, slots=True)
class _Profile:
    """What executors of a resource profile have, and what its tasks ask for."""

    memory_bytes: int = 0
    of_executor: Amounts = field(default_factory=dict)
    of_task: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Executor:
    identity: str
    profile: int
    host: str
    cores: int
    memory_bytes: int
    added_at: int
    removed_at: float = math.inf
    resources: Amounts = field(default_factory=dict)


_Lived = tuple[_Executor, float, float]  # from when on it was there, and until when


@dataclass(slots=True)
class Executors:
    """All executors of an application so far."""

    removals: list[Removal] = field(default_factory=list)  # of executors, the last of them
    _gone: list[_Executor] = field(default_factory=list)
    _known: dict[str, _Executor] = field(default_factory=dict)
    _ended: list[_Executor] = field(default_factory=list)
    _profiles: dict[int, _Profile] = field(default_factory=dict)
    _managed: dict[str, int] = field(default_factory=dict)
    _configured: _Profile = field(default_factory=_Profile)
    _local_cores: int = 0
    _newest: int = 0

    def configured(self, properties: Event) -> None:
        """Take from Spark's properties what an executor has and what a task asks for."""
        sizes = [
            fields.size_bytes(properties.get(name))
            for name in ("spark.executor.memory", "spark.executor.memoryOverhead")
        ]
        amounts: dict[str, dict[str, float]] = {"task": {}, "executor": {}}
        for name, value in properties.items():
            found = _AMOUNT.fullmatch(name) if name.endswith(".amount") else None
            if found and len(amounts[found[1]]) < MAX_RESOURCES:
                amounts[found[1]][found[2]] = _number(value)
        amounts["task"]["cpus"] = _number(properties.get("spark.task.cpus"))
        self._configured = _Profile(sum(sizes), amounts["executor"], amounts["task"])
        master = properties.get("spark.master")
        local = _LOCAL.fullmatch(master) if isinstance(master, str) else None
        self._local_cores = int(local[1] or 1) if local else 0

    def resource_profile(self, event: Event) -> None:
        """Take the memory of a resource profile (MiB), and its other resources."""
        requests = fields.mapping(event, "Executor Resource Requests")
        memory = [
            fields.integer(fields.mapping(requests, name), "Amount")
            for name in ("memory", "memoryOverhead", "offHeap")
            if name in requests
        ]
        if len(self._profiles) < MAX_EXECUTORS:
            self._profiles[fields.integer(event, "Resource Profile Id")] = _Profile(
                sum(memory) * MIB,
                _amounts(requests),
                _amounts(fields.part(event, "Task Resource Requests")),
            )

    def added(self, event: Event) -> None:
        """An executor is there."""
        info = fields.mapping(event, "Executor Info")
        profile = profile_of(info)
        identity = fields.text(event, "Executor ID")
        memory = self._profiles.get(profile, _Profile()).memory_bytes
        memory = memory or self._configured.memory_bytes
        if identity == DRIVER:  # local mode: what executors would have tells nothing of it
            memory = 0
        found = _Executor(
            identity=identity,
            profile=profile,
            host=fields.text(info, "Host")[:_LONGEST_NAME],
            cores=fields.integer(info, "Total Cores"),
            memory_bytes=memory or self._managed.get(identity, 0) or DEFAULT_MEMORY_BYTES,
            added_at=fields.milliseconds(event, "Timestamp"),
            resources={
                name[:_LONGEST_NAME]: len(each["addresses"])
                for name, each in list(fields.part(info, "Resources").items())[:MAX_RESOURCES]
                if isinstance(each, dict) and isinstance(each.get("addresses"), list)
            },
        )
        if len(self._known) < MAX_EXECUTORS and 0 < found.cores <= MAX_CORES:
            self._known[identity] = found
        self._newest = max(self._newest, found.added_at)

    def block_manager_added(self, event: Event) -> None:
        """Its memory, where nothing else tells it; comes before or after the executor."""
        identity = fields.text(fields.mapping(event, "Block Manager ID"), "Executor ID")
        memory = round(fields.integer(event, "Maximum Memory") / UNIFIED_SHARE)
        if len(self._managed) < MAX_EXECUTORS:
            self._managed[identity] = memory
        if identity == DRIVER and DRIVER in self._known and memory > 0:
            self._known[DRIVER] = replace(self._known[DRIVER], memory_bytes=memory)

    def removed(self, event: Event) -> None:
        """An executor has gone; one that was never added counts for nothing."""
        identity, at = fields.text(event, "Executor ID"), fields.milliseconds(event, "Timestamp")
        found = self._known.pop(identity, None)
        host = "" if found is None else found.host
        self.removals.append(Removal.of(identity, host, at, event.get("Removed Reason")))
        del self.removals[:-MAX_REMOVALS]
        if found is not None:
            self._ended.append(replace(found, removed_at=at))
            del self._ended[:-MAX_EXECUTORS]

    @property
    def have_come(self) -> bool:
        """Whether there ever was one."""
        return self._newest > 0 or self._local_cores > 0

    def forget_before(self, at: int) -> None:
        """Those that ended before the oldest query that still runs began count for no other."""
        self._gone += [each for each in self._ended if each.removed_at < at]
        self._ended = [each for each in self._ended if each.removed_at >= at]
        del self._gone[:-MAX_EXECUTORS]

    def arrival(self, at: int, end: int, *, needed: int) -> int | None:
        """When the first came, where none was there at a moment; None where one was, or none came.

        Args:
            at: the moment.
            end: the latest at which it may have come.
            needed: when work began; one that had gone by then did none.
        """
        first = None
        for each in (*self._ended, *self._known.values()):
            if at < needed and each.removed_at <= needed:
                continue
            if each.removed_at > at and not at < each.added_at <= end:
                return None
            if each.added_at > at and (first is None or each.added_at < first):
                first = each.added_at
        return first

    def during(self, start: int, end: int) -> ClusterConfig | None:
        """The resources between two moments (milliseconds), the later of which has passed.

        An executor that is known by then and claims to have come later has another clock; it
        counts in full. Times without any executor count for nothing; None if there was none at all.
        """
        lived = self._lived(start, end)
        return _mean(lived, covered(each[1:] for each in lived))

    def core_time_during(self, start: int, end: int) -> float:
        """Milliseconds of all cores that were there between two moments; as `during`."""
        return sum((b - a) * each.cores for each, a, b in self._lived(start, end))

    def whole(self, start: int, end: int) -> ClusterConfig | None:
        """The mean of all that were there in the time of an application; None without any."""
        self._ended, self._gone = [*self._gone, *self._ended], []
        return _mean(self._lived(start, end), max(end - start, 1))

    def slots_of(
        self, start: int, end: int, *, profile: int = 0, takers: Mapping[str, int] | None = None
    ) -> int:
        """Tasks that executors could run at once; 0 where none is known, or by another clock.

        Those of another profile take none of its tasks. Where tasks waited for a place on the
        executors that took some, the others were not to be had: they were going, or had just come.

        Args:
            start: of the first task.
            end: of the last; now.
            profile: that the tasks ask for.
            takers: number of tasks that each executor took, by id; those of all by default.
        """
        if self._newest > end + CLOCKS_APART:
            return 0
        every = self._slots(start, end, profile, None)
        if takers is None:
            return every
        slots = self._slots(start, end, profile, takers)
        return slots if slots and sum(takers.values()) > slots else every

    def are_there(self, at: int, profile: int) -> bool:
        """Whether there is one now that takes tasks of a profile."""
        return bool(self._lived(at, at + 1, profile))

    def _slots(self, start: int, end: int, profile: int, only: Container[str] | None) -> int:
        lived = self._lived(start, end, profile, only)
        found = sum((b - a) * self._slots_on(each, profile) for each, a, b in lived)
        return max(1, round(found / covered(each[1:] for each in lived))) if found else 0

    def _slots_on(self, executor: _Executor, profile: int) -> int:
        """Tasks of a profile that an executor runs at once: the least over all that they ask for.

        Source: Spark's `ResourceProfile.calculateTasksAndLimitingResource`.
        """
        configured = self._configured.of_task
        asked = {
            **(configured if profile == 0 else {"cpus": configured.get("cpus", 0)}),
            **self._profiles.get(profile, _Profile()).of_task,
        }
        own = self._profiles.get(executor.profile, _Profile()).of_executor
        has = {**self._configured.of_executor, **own, **executor.resources}
        fits = [executor.cores // max(1, round(asked.pop("cpus", 1) or 1))]
        for name, amount in asked.items():
            if amount > 0 and has.get(name, 0) > 0:
                each = int(1 / amount + 1e-9) if amount < 1 else 1 / amount  # a share is of one
                fits.append(int(has[name] * each + 1e-9))
        return min(fits)

    def _lived(
        self, start: int, end: int, profile: int | None = None, only: Container[str] | None = None
    ) -> list[_Lived]:
        """Executors that take tasks of a profile, with the part of the time that each lived."""
        if profile is not None and profile in self._profiles:
            is_of_tasks = not self._profiles[profile].of_executor
            profile = 0 if is_of_tasks else profile  # it asks for no executors of its own
        span = max(end - start, 1)
        every = [*self._ended, *self._known.values()]
        if not self._newest and self._local_cores:  # local mode, told by its properties alone
            memory = self._managed.get(DRIVER, 0) or DEFAULT_MEMORY_BYTES
            every = [_Executor(DRIVER, 0, DRIVER, self._local_cores, memory, 0)]
        last, lived = start + span, list[_Lived]()
        for each in every:
            if profile in (None, each.profile) and (only is None or each.identity in only):
                added_at = each.added_at if start < each.added_at <= end else start
                removed_at = each.removed_at if each.removed_at < last else last
                if removed_at > added_at:
                    lived.append((each, added_at, removed_at))
        return lived


def _mean(lived: Collection[_Lived], span: float) -> ClusterConfig | None:
    """What they had, a mean over a time; None without any."""
    if not lived:
        return None
    cores = sum((b - a) * each.cores for each, a, b in lived) / span
    memory = sum((b - a) * each.memory_bytes for each, a, b in lived) / span
    return ClusterConfig(
        nodes=len({each.host for each, _, _ in lived}),
        cores=max(1, round(cores)),
        memory_bytes=max(1, round(memory)),
    )


def _number(value: object) -> float:
    """A number, also where it is written as text; 0 where it is none that can be."""
    try:
        found = float(value) if isinstance(value, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return found if 0 <= found < MAX_CORES else 0.0


def _amounts(requests: Event) -> Amounts:
    """The amounts of resources that a profile requests, by name."""
    return {
        name[:_LONGEST_NAME]: _number(each.get("Amount"))
        for name, each in list(requests.items())[:MAX_RESOURCES]
        if isinstance(each, dict)
    }
