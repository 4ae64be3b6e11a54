"""Executors of an application, and the resources that a query had.

Executors come and go. Cores and memory of a query are means over the part of its time in which
there was any executor, weighted by how long each lived during it. Nodes are the distinct hosts
among them. These are the resources that existed, not those that were requested.

Read them when a stage or a query ends. Later, executors that came since would count as well,
because an executor that claims to be newer than the end is taken to have another clock.
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

DEFAULT_MEMORY_BYTES = 1024 * MIB  # spark.executor.memory by default
UNIFIED_SHARE = 0.6  # of its memory that an executor's block manager counts (spark.memory.fraction)
MAX_EXECUTORS = 5_000  # executors that are kept; the oldest that ended are dropped first
MAX_CORES = 100_000  # of one executor; one that claims more is ignored
MAX_RESOURCES = 20  # kinds of resources other than cores, such as GPUs
MAX_REMOVALS = 1_000  # newest removals that are kept
CLOCKS_APART = 60_000  # milliseconds; events are logged within a second or so

DRIVER = "driver"

_LONGEST_NAME = 120
_LOCAL = re.compile(r"local(?:\[(\d{1,6})(?:,\s*\w+)?\])?")
_AMOUNT = re.compile(r"spark\.(task|executor)\.resource\.([\w-]{1,60})\.amount")

Amounts = Mapping[str, float]  # of resources by name


def profile_of(info: Event) -> int:
    """Return the resource profile of an executor, or of a stage; the default is 0."""
    profile = info.get("Resource Profile Id")
    return profile if isinstance(profile, int) else 0


@dataclass(frozen=True, slots=True)
class _Profile:
    """The resources that executors of a profile have, and that its tasks require."""

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


_Lifetime = tuple[_Executor, float, float]  # from when until when


@dataclass(slots=True)
class Executors:
    """All executors of an application so far."""

    removals: list[Removal] = field(default_factory=list)  # the latest removals
    _gone: list[_Executor] = field(default_factory=list)
    _present: dict[str, _Executor] = field(default_factory=dict)
    _ended: list[_Executor] = field(default_factory=list)
    _profiles: dict[int, _Profile] = field(default_factory=dict)
    _managed: dict[str, int] = field(default_factory=dict)
    _configured: _Profile = field(default_factory=_Profile)
    _local_cores: int = 0
    _newest: int = 0

    def configured(self, properties: Event) -> None:
        """Read what an executor has and what a task requires from the properties."""
        sizes = [
            fields.size_bytes(properties.get(name))
            for name in ("spark.executor.memory", "spark.executor.memoryOverhead")
        ]
        amounts: dict[str, dict[str, float]] = {"task": {}, "executor": {}}
        for name, value in properties.items():
            match = _AMOUNT.fullmatch(name) if name.endswith(".amount") else None
            if match and len(amounts[match[1]]) < MAX_RESOURCES:
                amounts[match[1]][match[2]] = _number(value)
        amounts["task"]["cpus"] = _number(properties.get("spark.task.cpus"))
        self._configured = _Profile(sum(sizes), amounts["executor"], amounts["task"])
        master = properties.get("spark.master")
        local = _LOCAL.fullmatch(master) if isinstance(master, str) else None
        self._local_cores = int(local[1] or 1) if local else 0

    def resource_profile(self, event: Event) -> None:
        """Read the memory (MiB) and the other resources of a profile."""
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
        """Add an executor."""
        info = fields.mapping(event, "Executor Info")
        profile = profile_of(info)
        identity = fields.text(event, "Executor ID")
        memory = self._profiles.get(profile, _Profile()).memory_bytes
        memory = memory or self._configured.memory_bytes
        if identity == DRIVER:  # local mode, where settings of executors do not apply
            memory = 0
        executor = _Executor(
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
        if len(self._present) < MAX_EXECUTORS and 0 < executor.cores <= MAX_CORES:
            self._present[identity] = executor
        self._newest = max(self._newest, executor.added_at)

    def block_manager_added(self, event: Event) -> None:
        """Read the memory of an executor, for want of a setting; may precede the executor."""
        identity = fields.text(fields.mapping(event, "Block Manager ID"), "Executor ID")
        memory = round(fields.integer(event, "Maximum Memory") / UNIFIED_SHARE)
        if len(self._managed) < MAX_EXECUTORS:
            self._managed[identity] = memory
        if identity == DRIVER and DRIVER in self._present and memory > 0:
            self._present[DRIVER] = replace(self._present[DRIVER], memory_bytes=memory)

    def removed(self, event: Event) -> None:
        """Remove an executor, and keep the reason."""
        identity, at = fields.text(event, "Executor ID"), fields.milliseconds(event, "Timestamp")
        executor = self._present.pop(identity, None)
        host = "" if executor is None else executor.host
        self.removals.append(Removal.of(identity, host, at, event.get("Removed Reason")))
        del self.removals[:-MAX_REMOVALS]
        if executor is not None:
            self._ended.append(replace(executor, removed_at=at))
            del self._ended[:-MAX_EXECUTORS]

    @property
    def have_come(self) -> bool:
        """Return whether there ever was an executor."""
        return self._newest > 0 or self._local_cores > 0

    @property
    def lifetimes(self) -> list[tuple[int, float]]:
        """Times from which and to which every executor was there, in order."""
        every = (*self._gone, *self._ended, *self._present.values())
        return sorted((each.added_at, each.removed_at) for each in every)

    def forget_before(self, at: int) -> None:
        """Forget executors that ended before the oldest running query began."""
        self._gone += [each for each in self._ended if each.removed_at < at]
        self._ended = [each for each in self._ended if each.removed_at >= at]
        del self._gone[:-MAX_EXECUTORS]

    def arrival(self, at: int, end: int, *, needed: int) -> int | None:
        """Return when the first executor came; None if there was one at `at`, or none came.

        Args:
            at: the submission of the work.
            end: latest time of its arrival.
            needed: when work began. Executors that had gone by then did none of it.
        """
        first = None
        for each in (*self._ended, *self._present.values()):
            if at < needed and each.removed_at <= needed:
                continue
            if each.removed_at > at and not at < each.added_at <= end:
                return None
            if each.added_at > at and (first is None or each.added_at < first):
                first = each.added_at
        return first

    def during(self, start: int, end: int) -> ClusterConfig | None:
        """Return the mean resources between two timestamps (milliseconds), both in the past.

        An executor that claims to have come later has another clock and counts in full. Times
        without executors are left out. None if there was no executor at all.
        """
        lifetimes = self._lifetimes(start, end)
        return _mean(lifetimes, covered(each[1:] for each in lifetimes))

    def core_time_during(self, start: int, end: int) -> float:
        """Return the core-milliseconds of executors between two timestamps, as `during`."""
        return sum((b - a) * each.cores for each, a, b in self._lifetimes(start, end))

    def whole(self, start: int, end: int) -> ClusterConfig | None:
        """Return the mean resources in the time of an application; None without executors."""
        self._ended, self._gone = [*self._gone, *self._ended], []
        return _mean(self._lifetimes(start, end), max(end - start, 1))

    def slots_of(
        self, start: int, end: int, *, profile: int = 0, takers: Mapping[str, int] | None = None
    ) -> int:
        """Return how many tasks executors could run at once; 0 if unknown.

        Executors of another profile run none of these tasks. If tasks waited although other
        executors had free slots, only executors that took some count: the others were leaving,
        or had just come.

        Args:
            start: of the first task.
            end: of the last task; now.
            profile: that the tasks require.
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
        """Return whether an executor can run tasks of a profile now."""
        return bool(self._lifetimes(at, at + 1, profile))

    def _slots(self, start: int, end: int, profile: int, only: Container[str] | None) -> int:
        lifetimes = self._lifetimes(start, end, profile, only)
        slot_time = sum((b - a) * self._slots_on(each, profile) for each, a, b in lifetimes)
        return (
            max(1, round(slot_time / covered(each[1:] for each in lifetimes))) if slot_time else 0
        )

    def _slots_on(self, executor: _Executor, profile: int) -> int:
        """Return how many tasks of a profile an executor runs at once, by its scarcest resource.

        Source: Spark's `ResourceProfile.calculateTasksAndLimitingResource`.
        """
        configured = self._configured.of_task
        required = {
            **(configured if profile == 0 else {"cpus": configured.get("cpus", 0)}),
            **self._profiles.get(profile, _Profile()).of_task,
        }
        own = self._profiles.get(executor.profile, _Profile()).of_executor
        has = {**self._configured.of_executor, **own, **executor.resources}
        fits = [executor.cores // max(1, round(required.pop("cpus", 1) or 1))]
        for name, amount in required.items():
            if amount > 0 and has.get(name, 0) > 0:
                each = int(1 / amount + 1e-9) if amount < 1 else 1 / amount  # a share is of one
                fits.append(int(has[name] * each + 1e-9))
        return min(fits)

    def _lifetimes(
        self, start: int, end: int, profile: int | None = None, only: Container[str] | None = None
    ) -> list[_Lifetime]:
        """Return executors that run tasks of a profile, each with its part of the time."""
        if profile is not None and profile in self._profiles:
            is_of_tasks = not self._profiles[profile].of_executor
            profile = 0 if is_of_tasks else profile  # it requests no executors of its own
        span = max(end - start, 1)
        every = [*self._ended, *self._present.values()]
        if not self._newest and self._local_cores:  # local mode, which only its properties show
            memory = self._managed.get(DRIVER, 0) or DEFAULT_MEMORY_BYTES
            every = [_Executor(DRIVER, 0, DRIVER, self._local_cores, memory, 0)]
        last, lifetimes = start + span, list[_Lifetime]()
        for each in every:
            if profile in (None, each.profile) and (only is None or each.identity in only):
                added_at = each.added_at if start < each.added_at <= end else start
                removed_at = each.removed_at if each.removed_at < last else last
                if removed_at > added_at:
                    lifetimes.append((each, added_at, removed_at))
        return lifetimes


def _mean(lifetimes: Collection[_Lifetime], span: float) -> ClusterConfig | None:
    if not lifetimes:
        return None
    cores = sum((b - a) * each.cores for each, a, b in lifetimes) / span
    memory = sum((b - a) * each.memory_bytes for each, a, b in lifetimes) / span
    return ClusterConfig(
        nodes=len({each.host for each, _, _ in lifetimes}),
        cores=max(1, round(cores)),
        memory_bytes=max(1, round(memory)),
    )


def _number(value: object) -> float:
    """Return a number, also if it is written as text; 0 if it is out of range."""
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return number if 0 <= number < MAX_CORES else 0.0


def _amounts(requests: Event) -> Amounts:
    return {
        name[:_LONGEST_NAME]: _number(each.get("Amount"))
        for name, each in list(requests.items())[:MAX_RESOURCES]
        if isinstance(each, dict)
    }
