"""Settings of an application that findings and advice use.

They are those of the application, overlaid with those that a session set. A missing value is
Spark's default; a value that cannot be parsed counts as missing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedperf_client.sources.spark.fields import MIB, size_bytes

DATABRICKS = "spark.databricks."
DEFAULT_PARTITIONS = 200  # spark.sql.shuffle.partitions by default
DEFAULT_BROADCAST_BYTES = 10 * MIB  # spark.sql.autoBroadcastJoinThreshold by default
DEFAULT_FILE_BYTES = 128 * MIB  # spark.sql.files.maxPartitionBytes by default
ADAPTIVE_BY_DEFAULT = (3, 2)  # the version that turned it on by default

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
        yarn.executor.memoryOverhead python.worker.reuse shuffle.compress sql.exchange.reuse
        dynamicAllocation.executorIdleTimeout
"""
_USED = frozenset(f"spark.{name}" for name in _NAMES.split())

_LONGEST_VALUE = 100
_TIME = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings that an application was started with, or that a query ran with."""

    version: str = ""  # of Spark; empty if unknown
    properties: Mapping[str, str] = field(default_factory=dict)  # those of `_USED` that were set
    is_databricks: bool = False  # machines are chosen as on Databricks

    @classmethod
    def of(cls, version: str, properties: Mapping[str, object]) -> "SparkSettings":
        """Select the used settings from all properties of an application."""
        is_databricks = any(name.startswith(DATABRICKS) for name in properties)
        return cls(version[:_LONGEST_VALUE], used_settings(properties), is_databricks)

    def overlaid(self, session: Mapping[str, str]) -> "SparkSettings":
        """Return these settings with those that a session, or code, set; see `used_settings`."""
        return replace(self, properties={**self.properties, **session}) if session else self

    @property
    def is_local(self) -> bool:
        """Return whether everything runs in the driver's process."""
        return self.runs_on("local")

    def runs_on(self, *managers: str) -> bool:
        """Return whether the master is one of these cluster managers."""
        return self.properties.get("spark.master", "").startswith(managers)

    @property
    def cores_per_task(self) -> int:
        """Cores per task."""
        return max(1, self.number("spark.task.cpus", 1))

    @property
    def partitions(self) -> int:
        """Partitions of a shuffle of a query."""
        return self.number("spark.sql.shuffle.partitions", DEFAULT_PARTITIONS)

    @property
    def is_adaptive(self) -> bool:
        """Return whether queries are replanned while they run (AQE)."""
        is_default = bool(self.version) and self.has_version(ADAPTIVE_BY_DEFAULT)
        return self.is_on("spark.sql.adaptive.enabled", default=is_default)

    @property
    def with_adaptive(self) -> tuple[str, ...]:
        """The setting that turns AQE on, unless it is on."""
        return () if self.is_adaptive else ("spark.sql.adaptive.enabled=true",)

    def has_version(self, since: tuple[int, int]) -> bool:
        """Return whether Spark is of this version or newer; True if its version is unknown."""
        match = _VERSION.match(self.version)
        return match is None or (int(match[1]), int(match[2])) >= since

    def smaller_files(self, size: int) -> tuple[str, ...]:
        """Return the setting that limits the file bytes of a task to `size`, if that is less."""
        name = "spark.sql.files.maxPartitionBytes"
        return (f"{name}={size}",) if size < self.size(name, DEFAULT_FILE_BYTES, unit=1) else ()

    @property
    def executor_cores(self) -> int:
        """Cores of an executor; 0 if not set."""
        return self.number("spark.executor.cores", 0)

    @property
    def has_dynamic_executors(self) -> bool:
        """Return whether executors are allocated dynamically."""
        return self.is_on("spark.dynamicAllocation.enabled")

    @property
    def memory_name(self) -> str:
        """The setting that gives tasks their memory."""
        return "spark.driver.memory" if self.is_local else "spark.executor.memory"

    @property
    def memory_bytes(self) -> int:
        """The value of `memory_name`; Spark's 1 GiB if not set."""
        return self.size(self.memory_name, 2**30)

    def times_memory(self, factor: int) -> str:
        """Return the setting that gives tasks `factor` times the memory."""
        return f"{self.memory_name}={memory_setting(factor * self.memory_bytes)}"

    def number(self, name: str, default: int) -> int:
        """Return a whole number."""
        value = self.properties.get(name, "")
        is_number = value.isascii() and value.isdecimal() and len(value) <= 9  # noqa: PLR2004
        return int(value) if is_number else default

    def seconds(self, name: str, default: int) -> int:
        """Return the seconds of a time, which has a unit or is a number of seconds."""
        match = _TIME.fullmatch(self.properties.get(name, "").strip().lower())
        return (round(int(match[1]) * _SECONDS[match[2] or "s"]) if match else 0) or default

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """Return whether a setting is true."""
        return {"true": True, "false": False}.get(self.properties.get(name, "").lower(), default)

    def size(self, name: str, default: int, *, unit: int = MIB) -> int:
        """Return the bytes of a size; `unit` are those of a number without a unit."""
        return size_bytes(self.properties.get(name), unit=unit) or default


def memory_setting(size: float) -> str:
    """Return a size as Spark accepts it: whole GiB, otherwise MiB, rounded up."""
    return f"{-int(-size // MIB)}m" if size % 2**30 else f"{int(size // 2**30)}g"


def used_settings(properties: Mapping[str, object]) -> dict[str, str]:
    """Select the settings that findings and advice use."""
    return {
        name: value
        for name in _USED
        if isinstance(value := properties.get(name), str) and len(value) <= _LONGEST_VALUE
    }
