"""The settings that findings and advice speak about, as a log tells them.

They are those of an application, and of its sessions where these set their own.

Values that are missing are Spark's defaults; one that cannot be read counts as missing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedperf_client.sources.spark.fields import MIB, size_bytes

DATABRICKS = "spark.databricks."
DEFAULT_PARTITIONS = 200  # spark.sql.shuffle.partitions where nobody set it
DEFAULT_BROADCAST_BYTES = 10 * MIB  # spark.sql.autoBroadcastJoinThreshold where nobody set it
DEFAULT_FILE_BYTES = 128 * MIB  # spark.sql.files.maxPartitionBytes where nobody set it
ADAPTIVE_BY_DEFAULT = (3, 2)  # the version from which on it is on where nobody set it

_NAMES = """
        master task.cpus driver.memory executor.memory executor.cores dynamicAllocation.enabled
        sql.shuffle.partitions sql.adaptive.enabled sql.autoBroadcastJoinThreshold
        sql.files.maxPartitionBytes speculation scheduler.listenerbus.eventqueue.capacity
        decommission.enabled storage.decommission.enabled
        storage.decommission.shuffleBlocks.enabled storage.decommission.fallbackStorage.path
        shuffle.service.enabled barrier.sync.timeout driver.maxResultSize
        dynamicAllocation.shuffleTracking.enabled executor.memoryOverhead
        executor.memoryOverheadFactor executor.minMemoryOverhead executor.pyspark.memory
        kryoserializer.buffer.max kubernetes.executor.memoryOverhead
        kubernetes.memoryOverheadFactor kubernetes.resource.type mesos.executor.memoryOverhead
        network.timeout python.authenticate.socketTimeout rpc.message.maxSize
        shuffle.io.maxRetries sql.broadcastTimeout stage.maxConsecutiveAttempts
        yarn.executor.memoryOverhead
"""
_KEPT = frozenset(f"spark.{name}" for name in _NAMES.split())
"""Settings that findings and advice speak about."""

_LONGEST_VALUE = 100
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What an application was started with, or what a query of it ran with."""

    version: str = ""  # of Spark; empty where the log does not tell
    properties: Mapping[str, str] = field(default_factory=dict)  # of `_KEPT` those that were set
    is_databricks: bool = False  # whether machines are chosen as those of a Databricks cluster are

    @classmethod
    def of(cls, version: str, properties: Mapping[str, object]) -> "SparkSettings":
        """Of all properties of an application those that count."""
        is_databricks = any(name.startswith(DATABRICKS) for name in properties)
        return cls(version[:_LONGEST_VALUE], kept(properties), is_databricks)

    def overlaid(self, own: Mapping[str, str]) -> "SparkSettings":
        """The same where a session, or code, set some of its own; see `kept`."""
        return replace(self, properties={**self.properties, **own}) if own else self

    @property
    def is_local(self) -> bool:
        """Whether all runs in the driver's process."""
        return self.runs_on("local")

    def runs_on(self, *managers: str) -> bool:
        """Whether the master is of one of these managers."""
        return self.properties.get("spark.master", "").startswith(managers)

    @property
    def cores_per_task(self) -> int:
        """Cores that a task takes."""
        return max(1, self.number("spark.task.cpus", 1))

    @property
    def partitions(self) -> int:
        """Partitions of a shuffle of a query."""
        return self.number("spark.sql.shuffle.partitions", DEFAULT_PARTITIONS)

    @property
    def is_adaptive(self) -> bool:
        """Whether queries are planned anew while they run."""
        is_default = bool(self.version) and self.knows(ADAPTIVE_BY_DEFAULT)
        return self.is_on("spark.sql.adaptive.enabled", default=is_default)

    @property
    def with_adaptive(self) -> tuple[str, ...]:
        """The setting with which they are, if they are not."""
        return () if self.is_adaptive else ("spark.sql.adaptive.enabled=true",)

    def knows(self, since: tuple[int, int]) -> bool:
        """Whether a setting that there is since a version of Spark counts; unless that is told."""
        found = _VERSION.match(self.version)
        return found is None or (int(found[1]), int(found[2])) >= since

    def smaller_files(self, size: int) -> tuple[str, ...]:
        """The setting with which a task reads that much of files; none if it read no more."""
        name = "spark.sql.files.maxPartitionBytes"
        return (f"{name}={size}",) if size < self.size(name, DEFAULT_FILE_BYTES, unit=1) else ()

    @property
    def executor_cores(self) -> int:
        """Cores of an executor; 0 where nobody set them."""
        return self.number("spark.executor.cores", 0)

    @property
    def has_dynamic_executors(self) -> bool:
        """Whether executors come and go as they are needed."""
        return self.is_on("spark.dynamicAllocation.enabled")

    @property
    def memory_name(self) -> str:
        """The setting that gives tasks their memory."""
        return "spark.driver.memory" if self.is_local else "spark.executor.memory"

    @property
    def memory_bytes(self) -> int:
        """What `memory_name` was; Spark's 1 GiB where nobody set it."""
        return self.size(self.memory_name, 2**30)

    def times_memory(self, factor: int) -> str:
        """The setting that gives tasks that many times the memory."""
        return f"{self.memory_name}={memory_setting(factor * self.memory_bytes)}"

    def number(self, name: str, default: int) -> int:
        """A whole number."""
        value = self.properties.get(name, "")
        is_number = value.isascii() and value.isdecimal() and len(value) <= 9  # noqa: PLR2004
        return int(value) if is_number else default

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """Whether it is switched on."""
        return {"true": True, "false": False}.get(self.properties.get(name, "").lower(), default)

    def size(self, name: str, default: int, *, unit: int = MIB) -> int:
        """The bytes of a size; `unit` of a number without one."""
        return size_bytes(self.properties.get(name), unit=unit) or default


def memory_setting(size: float) -> str:
    """A size as Spark takes it: GiB where they are whole, else MiB, rounded up."""
    return f"{-int(-size // MIB)}m" if size % 2**30 else f"{int(size // 2**30)}g"


def kept(properties: Mapping[str, object]) -> dict[str, str]:
    """Of many properties those that findings speak about."""
    return {
        name: value
        for name in _KEPT
        if isinstance(value := properties.get(name), str) and len(value) <= _LONGEST_VALUE
    }
