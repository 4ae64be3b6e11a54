"""Settings with values that would keep a failure from coming again.

Names are those that Spark's own messages and pages give. A value is computed from what the
application had: at least twice as much, rounded up.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from fedperf_client.sources.spark.failures.reasons import SETTING
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.settings import SparkSettings, memory_setting

_GIB = 2**30
_LARGEST_MIB = 2047
"""Of a message between driver and executors, and of Kryo's buffer: Spark allows no more."""

_LEAST_OVERHEAD, _OVERHEAD, _PYTHON_OVERHEAD = 384 * MIB, 0.1, 0.4
_MOST_NAMED = 3

_OFFERS = (
    "spark.decommission.enabled",
    "spark.storage.decommission.enabled",
    "spark.storage.decommission.shuffleBlocks.enabled",
)
_FALLBACK = "spark.storage.decommission.fallbackStorage.path"
SERVICE = "spark.shuffle.service.enabled"
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"

_SIZE = re.compile(r"results of \d+ tasks \((\d{1,9}(?:\.\d{1,3})?) ([KMGT])i?B\)")
_SENT = re.compile(r"was (\d{1,12}) bytes")
_REQUIRED = re.compile(r"required: (\d{1,12})")
_WAITED = re.compile(r"broadcast in (\d{1,9}) sec")
_TIME = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_NAMED = re.compile(SETTING)
_ORDERED = re.compile(rf"\bset(?:ting)? [\"'`]?({SETTING})[\"'`]? to [\"'`]?(-?\w[\w.]{{0,20}})")


@dataclass(frozen=True, slots=True)
class FailureCase:
    """What is known of one failure: its message, and the settings of its application."""

    message: str
    given: SparkSettings

    def seconds(self, name: str, default: int) -> int:
        """The seconds of a setting."""
        found = _TIME.fullmatch(self.given.properties.get(name, "").strip().lower())
        return (round(int(found[1]) * _SECONDS[found[2] or "s"]) if found else 0) or default

    def number(self, pattern: re.Pattern[str]) -> int:
        """The number that the message tells; 0 where it does not."""
        found = pattern.search(self.message)
        return int(found[1]) if found else 0


Settings = Callable[[FailureCase], tuple[str, ...]]
"""Settings against one kind of failure, each as its name, or as `name=value`."""


def named(*names: str) -> Settings:
    """Always the same ones."""
    return lambda _: names


def both(*settings: Settings) -> Settings:
    """Those of all."""
    return lambda case: tuple(name for each in settings for name in each(case))


def overhead(case: FailureCase) -> tuple[str, ...]:
    """Memory of a container beside the heap; Spark's own workers and local mode have none."""
    if case.given.runs_on("spark:", "local"):
        return ("spark.executor.memory",)
    name = "spark.executor.memoryOverhead"
    if case.given.runs_on("mesos"):
        name = "spark.mesos.executor.memoryOverhead"
    elif case.given.runs_on("k8s") and not case.given.knows((2, 4)):
        name = "spark.kubernetes.executor.memoryOverhead"
    elif not case.given.knows((2, 3)):
        name = "spark.yarn.executor.memoryOverhead"
    # The older name of a setting still counts where it is the only one.
    now = case.given.size(name, 0) or case.given.size("spark.yarn.executor.memoryOverhead", 0)
    wanted = 2 * (now or _given_overhead(case))
    if name == "spark.executor.memoryOverhead":
        return (f"{name}={-(-wanted // _GIB)}g",)
    return (f"{name}={-(-wanted // _GIB) * 1024}",)  # those settings count MiB, without a unit


def _given_overhead(case: FailureCase) -> int:
    """What a container gets beside its heap where nobody said how much."""
    is_python = case.given.properties.get("spark.kubernetes.resource.type", "java") != "java"
    factor = _PYTHON_OVERHEAD if is_python and case.given.runs_on("k8s") else _OVERHEAD
    for name in ("spark.kubernetes.memoryOverheadFactor", "spark.executor.memoryOverheadFactor"):
        found = re.fullmatch(r"\d{0,4}\.?\d{1,9}", case.given.properties.get(name, ""))
        factor = float(found[0]) if found else factor
    least = case.given.size("spark.executor.minMemoryOverhead", _LEAST_OVERHEAD)
    return max(least, round(factor * case.given.size("spark.executor.memory", _GIB)))


def heap(case: FailureCase) -> tuple[str, ...]:
    """The memory of tasks, which local mode has in the driver."""
    return _twice(case, case.given.memory_name)


def driver(case: FailureCase) -> tuple[str, ...]:
    """The memory of the driver."""
    return _twice(case, "spark.driver.memory")


def _twice(case: FailureCase, name: str) -> tuple[str, ...]:
    return (f"{name}={memory_setting(2 * case.given.size(name, _GIB))}",)


def python(case: FailureCase) -> tuple[str, ...]:
    """Python's own limit where there is one, else what it shares with all beside the heap."""
    name = "spark.executor.pyspark.memory"
    return _twice(case, name) if case.given.size(name, 0) else overhead(case)


def crash(case: FailureCase) -> tuple[str, ...]:
    """Memory for Python, and what makes it tell where it died."""
    tells = ("spark.python.worker.faulthandler.enabled=true",) if case.given.knows((3, 2)) else ()
    return python(case) + tells


def moving(case: FailureCase) -> tuple[str, ...]:
    """What lets an executor hand over its blocks before it goes, or keeps them elsewhere."""
    service = () if case.given.runs_on("k8s") or case.given.is_on(SERVICE) else (SERVICE,)
    if not case.given.knows((3, 1)):
        return tuple(f"{each}=true" for each in service)
    off = tuple(f"{each}=true" for each in _OFFERS if not case.given.is_on(each))
    return (off or (_FALLBACK,)) + service


def scaled(case: FailureCase) -> tuple[str, ...]:
    """What keeps executors whose shuffle files are still needed."""
    tracking = "spark.dynamicAllocation.shuffleTracking.enabled"
    kept = case.given.is_on(SERVICE) or case.given.is_on(tracking) or not case.given.knows((3, 0))
    idle = "spark.dynamicAllocation.executorIdleTimeout"
    return (idle,) if kept else (f"{tracking}=true", idle)


def disk(case: FailureCase) -> tuple[str, ...]:
    """Where the local disks are named; on YARN it is YARN that does."""
    return ("yarn.nodemanager.local-dirs",) if case.given.runs_on("yarn") else ("spark.local.dir",)


def excluded(case: FailureCase) -> tuple[str, ...]:
    """When executors are excluded, and for how long; renamed in Spark 3.1."""
    name = "excludeOnFailure" if case.given.knows((3, 1)) else "blacklist"
    return (f"spark.{name}.enabled", f"spark.{name}.timeout")


def retries(name: str, default: int) -> Settings:
    """A count that is twice as large."""
    return lambda case: (f"{name}={2 * case.given.number(name, default)}",)


def wait(name: str, default: int) -> Settings:
    """A time that is twice as long."""
    return lambda case: (f"{name}={2 * case.seconds(name, default)}s",)


def barrier(case: FailureCase) -> tuple[str, ...]:
    """How long tasks of a barrier stage wait; a year where nobody said."""
    name = "spark.barrier.sync.timeout"
    return wait(name, 1)(case) if name in case.given.properties else (name,)


def connect(case: FailureCase) -> tuple[str, ...]:
    """How long Spark waits for a Python worker; fixed before Spark 3.1."""
    name = "spark.python.authenticate.socketTimeout"
    return wait(name, 15)(case) if case.given.knows((3, 1)) else ()


def result(case: FailureCase) -> tuple[str, ...]:
    """What the driver takes of results: more than the message counted."""
    name = "spark.driver.maxResultSize"
    found = _SIZE.search(case.message)
    units = {"K": 2**10, "M": MIB, "G": _GIB, "T": 2**40}
    seen = float(found[1]) * units[found[2]] if found else 0
    return (f"{name}={memory_setting(2 * max(case.given.size(name, _GIB, unit=1), seen))}",)


def _larger(name: str, mib: int, told: re.Pattern[str], unit: str = "") -> Settings:
    """A size that is twice as large, or twice what the message tells, as far as Spark allows."""

    def settings(case: FailureCase) -> tuple[str, ...]:
        now = max(case.given.size(name, mib * MIB), case.number(told)) / MIB
        return (f"{name}={min(_LARGEST_MIB, -int(-2 * now // 1))}{unit}",)

    return settings


rpc = _larger("spark.rpc.message.maxSize", 128, _SENT)  # in MiB without a unit
kryo = _larger("spark.kryoserializer.buffer.max", 64, _REQUIRED, "m")


def broadcast_wait(case: FailureCase) -> tuple[str, ...]:
    """A longer wait for broadcasts, or none of them."""
    now = case.number(_WAITED) or case.seconds("spark.sql.broadcastTimeout", 300)
    return (f"spark.sql.broadcastTimeout={2 * now}", f"{THRESHOLD}=-1")


def told(case: FailureCase) -> tuple[str, ...]:
    """The settings that the message names, with the value that it asks for."""
    ordered = {found[1]: f"={found[2]}" for found in _ORDERED.finditer(case.message[:4000])}
    names = dict.fromkeys(_NAMED.findall(case.message[:4000]))
    return tuple(f"{each}{ordered.get(each, '')}" for each in names)[:_MOST_NAMED]
