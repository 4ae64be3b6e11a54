"""What to do about a kind of failure, with settings that would keep it from coming again.

Names are those that Spark's own messages and pages give. A value is computed from what the
application had: at least twice as much, rounded up. Which settings are for which kind stands in
`failures.toml`; `_COMPUTED` has those that depend on more than one setting.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedperf_client.sources.spark.failures import SETTING, FailureCause, failure_table
from fedperf_client.sources.spark.fields import MIB, size_bytes
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
_SERVICE = "spark.shuffle.service.enabled"

_SIZE = re.compile(r"results of \d+ tasks \((\d{1,9}(?:\.\d{1,3})?) ([KMGT])i?B\)")
_SENT = re.compile(r"was (\d{1,12}) bytes")
_REQUIRED = re.compile(r"required: (\d{1,12})")
_WAITED = re.compile(r"broadcast in (\d{1,9}) sec")
_TIME = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_NAMED = re.compile(SETTING)
_ORDERED = re.compile(rf"\bset(?:ting)? [\"'`]?({SETTING})[\"'`]? to [\"'`]?(-?\w[\w.]{{0,20}})")


@dataclass(frozen=True, slots=True)
class _Failure:
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


def _overhead(case: _Failure) -> tuple[str, ...]:
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


def _given_overhead(case: _Failure) -> int:
    """What a container gets beside its heap where nobody said how much."""
    is_python = case.given.properties.get("spark.kubernetes.resource.type", "java") != "java"
    factor = _PYTHON_OVERHEAD if is_python and case.given.runs_on("k8s") else _OVERHEAD
    for name in ("spark.kubernetes.memoryOverheadFactor", "spark.executor.memoryOverheadFactor"):
        found = re.fullmatch(r"\d{0,4}\.?\d{1,9}", case.given.properties.get(name, ""))
        factor = float(found[0]) if found else factor
    least = case.given.size("spark.executor.minMemoryOverhead", _LEAST_OVERHEAD)
    return max(least, round(factor * case.given.size("spark.executor.memory", _GIB)))


def _twice(case: _Failure, name: str, default: str) -> str:
    """The setting with twice its value, or twice a default: a count, seconds, or memory."""
    if default.isdecimal():
        return f"{name}={2 * case.given.number(name, int(default))}"
    if default.endswith("s"):
        return f"{name}={2 * case.seconds(name, int(default[:-1]))}s"
    return f"{name}={memory_setting(2 * case.given.size(name, size_bytes(default)))}"


def _python(case: _Failure) -> tuple[str, ...]:
    """Python's own limit where there is one, else what it shares with all beside the heap."""
    name = "spark.executor.pyspark.memory"
    return (_twice(case, name, "1g"),) if case.given.size(name, 0) else _overhead(case)


def _moving(case: _Failure) -> tuple[str, ...]:
    """What lets an executor hand over its blocks before it goes, or keeps them elsewhere."""
    service = () if case.given.runs_on("k8s") or case.given.is_on(_SERVICE) else (_SERVICE,)
    if not case.given.knows((3, 1)):
        return tuple(f"{each}=true" for each in service)
    off = tuple(f"{each}=true" for each in _OFFERS if not case.given.is_on(each))
    return (off or (_FALLBACK,)) + service


def _scaled(case: _Failure) -> tuple[str, ...]:
    """What keeps executors whose shuffle files are still needed."""
    tracking = "spark.dynamicAllocation.shuffleTracking.enabled"
    kept = case.given.is_on(_SERVICE) or case.given.is_on(tracking) or not case.given.knows((3, 0))
    idle = "spark.dynamicAllocation.executorIdleTimeout"
    return (idle,) if kept else (f"{tracking}=true", idle)


def _barrier(case: _Failure) -> tuple[str, ...]:
    """How long tasks of a barrier stage wait; a year where nobody said."""
    name = "spark.barrier.sync.timeout"
    return (_twice(case, name, "1s"),) if name in case.given.properties else (name,)


def _result(case: _Failure) -> tuple[str, ...]:
    """What the driver takes of results: more than the message counted."""
    name = "spark.driver.maxResultSize"
    found = _SIZE.search(case.message)
    units = {"K": 2**10, "M": MIB, "G": _GIB, "T": 2**40}
    seen = float(found[1]) * units[found[2]] if found else 0
    return (f"{name}={memory_setting(2 * max(case.given.size(name, _GIB, unit=1), seen))}",)


def _larger(case: _Failure, name: str, mib: int, told: re.Pattern[str], unit: str) -> str:
    """A size that is twice as large, or twice what the message tells, as far as Spark allows."""
    now = max(case.given.size(name, mib * MIB), case.number(told)) / MIB
    return f"{name}={min(_LARGEST_MIB, -int(-2 * now // 1))}{unit}"


def _broadcast_wait(case: _Failure) -> tuple[str, ...]:
    """A longer wait for broadcasts."""
    now = case.number(_WAITED) or case.seconds("spark.sql.broadcastTimeout", 300)
    return (f"spark.sql.broadcastTimeout={2 * now}",)


def _told(case: _Failure) -> tuple[str, ...]:
    """The settings that the message names, with the value that it asks for."""
    ordered = {found[1]: f"={found[2]}" for found in _ORDERED.finditer(case.message[:4000])}
    names = dict.fromkeys(_NAMED.findall(case.message[:4000]))
    return tuple(f"{each}{ordered.get(each, '')}" for each in names)[:_MOST_NAMED]


_COMPUTED: Mapping[str, Callable[[_Failure], tuple[str, ...]]] = {
    "overhead": _overhead,
    "task_memory": lambda case: (_twice(case, case.given.memory_name, "1g"),),
    "python": _python,
    "faulthandler": lambda case: (
        ("spark.python.worker.faulthandler.enabled=true",) if case.given.knows((3, 2)) else ()
    ),
    "moving": _moving,
    "scaled": _scaled,
    # On YARN it is YARN that names the local disks.
    "disk": lambda case: (
        ("yarn.nodemanager.local-dirs" if case.given.runs_on("yarn") else "spark.local.dir"),
    ),
    "excluded": lambda case: tuple(
        f"spark.{'excludeOnFailure' if case.given.knows((3, 1)) else 'blacklist'}.{each}"
        for each in ("enabled", "timeout")
    ),
    "barrier": _barrier,
    # How long Spark waits for a Python worker; fixed before Spark 3.1.
    "connect": lambda case: (
        (_twice(case, "spark.python.authenticate.socketTimeout", "15s"),)
        if case.given.knows((3, 1))
        else ()
    ),
    "result": _result,
    # In MiB without a unit.
    "rpc": lambda case: (_larger(case, "spark.rpc.message.maxSize", 128, _SENT, ""),),
    "kryo": lambda case: (_larger(case, "spark.kryoserializer.buffer.max", 64, _REQUIRED, "m"),),
    "broadcast_wait": _broadcast_wait,
    "told": _told,
}
"""Settings against a failure that follow from its message, or from several settings."""


def _lines(settings: Sequence[str], case: _Failure) -> Iterator[str]:
    """The settings that a kind of `failures.toml` has, each as its name, or as `name=value`."""
    for each in settings:
        name, _, value = each.partition("=")
        if each.startswith("@"):
            yield from _COMPUTED[each[1:]](case)
        elif value.startswith("2*"):
            yield _twice(case, name, value[2:])
        else:
            yield each


@dataclass(frozen=True, slots=True)
class FailureAdvice:
    """What to do about a failure.

    Attributes:
        reason: what happened, for people.
        action: what would change it.
        settings: their names, those without a computed value too.
        conf: settings with values, each like `spark.executor.memory=8g`.
    """

    reason: str
    action: str
    settings: tuple[str, ...] = ()
    conf: tuple[str, ...] = ()


def advice_on(kind: str, message: str, settings: SparkSettings) -> FailureAdvice:
    """What to do about a failure.

    Args:
        kind: of the failure.
        message: all that the log says of it: some messages tell sizes.
        settings: of the application.
    """
    known = failure_table()[0][kind]
    lines = tuple(_lines(known.settings, _Failure(message, settings)))
    return FailureAdvice(
        known.reason,
        known.action,
        tuple(dict.fromkeys(each.partition("=")[0] for each in lines)),
        tuple(each for each in lines if "=" in each),
    )


def advice_for(cause: FailureCause, settings: SparkSettings) -> FailureAdvice:
    """What to do about a cause, and about the limit at which Spark gave up for it.

    The action names the settings that have no computed value; arguments are as in `advice_on`.
    """
    kinds = [each for each in (cause.kind, cause.summary) if each]
    found = [advice_on(each, cause.message, settings) for each in kinds]
    if not found:
        return FailureAdvice("of no known reason", "see what the code does at that place")
    names = tuple(name for each in found for name in each.settings)
    conf = tuple(line for each in found for line in each.conf)
    bare = [each for each in names if each not in {line.partition("=")[0] for line in conf}]
    named = f" ({', '.join(bare)})" if bare else ""
    return FailureAdvice(found[0].reason, found[0].action + named, names, conf)
