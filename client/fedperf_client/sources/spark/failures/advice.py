"""What to do about a kind of failure, with settings that would keep it from coming again.

Names are those that Spark's own messages and pages give. A value is computed from what the
application had: at least twice as much, rounded up.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedperf_client.sources.spark.failures.causes import FailureCause
from fedperf_client.sources.spark.failures.reasons import SETTING, FailureKind
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


def advice_on(kind: FailureKind, message: str, settings: SparkSettings) -> FailureAdvice:
    """What to do about a failure.

    Args:
        kind: of the failure.
        message: all that the log says of it: some messages tell sizes.
        settings: of the application.
    """
    reason, action, against = _ADVICE[kind]
    lines = against(FailureCase(message, settings))
    return FailureAdvice(
        reason,
        action,
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


_NOTHING = named()
_AWAY = "let executors hand over their blocks before they go, or keep shuffle files in a service"
_OWN_CODE = "change the code that the message names"
_K = FailureKind
_ADVICE: Mapping[FailureKind, tuple[str, str, Settings]] = {
    _K.CONTAINER_MEMORY: (
        "memory ran out: a container was killed for taking more than it may",
        "leave more memory beside the heap, or run fewer tasks at once in an executor",
        overhead,
    ),
    _K.VIRTUAL_MEMORY: (
        "memory ran out: YARN killed a container for its virtual memory",
        "more memory beside the heap, or no check of virtual memory by YARN",
        both(overhead, named("yarn.nodemanager.vmem-check-enabled")),
    ),
    _K.EXECUTOR_MEMORY: (
        "memory ran out: the heap was full",
        "more heap, or more partitions so that each task holds less",
        heap,
    ),
    _K.DRIVER_MEMORY: (
        "memory ran out: the heap of the driver was full",
        "more heap for the driver, or collect less to it",
        driver,
    ),
    _K.BROADCAST_MEMORY: (
        "memory ran out: the driver could not hold a table that all executors were to get",
        "more heap for the driver, or no broadcast join",
        both(driver, named(f"{THRESHOLD}=-1")),
    ),
    _K.PYTHON_MEMORY: (
        "memory ran out in a Python worker",
        "more memory for Python, or smaller batches",
        python,
    ),
    _K.DIRECT_MEMORY: (
        "memory ran out: buffers outside of the heap, whose limit is that of the heap",
        "a larger limit and memory for it",
        both(heap, overhead),
    ),
    _K.CLASS_MEMORY: (
        "memory ran out: the part of the JVM that holds classes",
        "raise -XX:MaxMetaspaceSize, or leave it out",
        named("spark.executor.extraJavaOptions"),
    ),
    _K.THREADS: (
        "the system allowed no more threads",
        "raise the limit of processes (ulimit -u, pids.max), or fewer cores in an executor",
        named("spark.executor.cores"),
    ),
    _K.DISK_FULL: (
        "a local disk was full",
        "larger or more local disks, or less to shuffle and spill",
        disk,
    ),
    _K.PREEMPTED: ("an executor was preempted for other work: not the job's fault", _AWAY, moving),
    _K.DECOMMISSIONED: ("an executor was decommissioned: not the job's fault", _AWAY, moving),
    _K.NODE_LOST: ("the machine of an executor was lost: not the job's fault", _AWAY, moving),
    _K.TERMINATED: (
        "an executor was told to end (SIGTERM): preempted, decommissioned or stopped",
        _AWAY,
        moving,
    ),
    _K.HEARTBEAT: (
        "an executor sent no heartbeat for too long: mostly it collected garbage",
        "more heap, or a longer wait",
        both(wait("spark.network.timeout", 120), heap),
    ),
    _K.DISASSOCIATED: (
        "an executor went away without a word: killed for its memory, or out of reach",
        "more memory beside the heap, if its manager's log says that it was killed",
        overhead,
    ),
    _K.SCALED_DOWN: (
        "Spark itself ended an executor that it thought idle",
        "keep executors while their shuffle files are needed",
        scaled,
    ),
    _K.SHUT_DOWN: ("the application was shut down meanwhile", "see who ended it", _NOTHING),
    _K.EXECUTOR_LOST: (
        "an executor was lost, and Spark was not told why",
        "see the log of that executor, and its manager's",
        _NOTHING,
    ),
    _K.SHUFFLE_LOST: (
        "files of a shuffle were lost or out of reach",
        "keep shuffle files where executors may go, or try longer where the network fails",
        both(retries("spark.shuffle.io.maxRetries", 3), named(SERVICE)),
    ),
    _K.RESULT_LOST: (
        "the result of a task was lost before the driver fetched it",
        "smaller results: larger ones than this wait in the memory of an executor",
        named("spark.task.maxDirectResultSize"),
    ),
    _K.STAGE_ATTEMPTS: (
        "a stage failed too many times in a row",
        "find why executors or their files are lost; more attempts bridge it",
        retries("spark.stage.maxConsecutiveAttempts", 4),
    ),
    _K.INDETERMINATE: (
        "a stage whose rows differ from run to run cannot run again",
        "checkpoint its rows, or give them an order, before they are repartitioned",
        _NOTHING,
    ),
    _K.EXCLUDED: (
        "all executors that could run a task were excluded for earlier failures",
        "find the earlier failures; executors come back after the timeout",
        excluded,
    ),
    _K.TASK_REAPED: (
        "a task that was killed did not end, so its executor was ended",
        "code that can be interrupted, or a longer wait",
        named("spark.task.reaper.killTimeout"),
    ),
    _K.BARRIER_SLOTS: (
        "a barrier stage has more tasks than there are slots",
        "fewer partitions, or more executors",
        named("spark.executor.instances"),
    ),
    _K.BARRIER_TIMEOUT: (
        "tasks of a barrier stage waited too long for one another",
        "even tasks, or a longer wait",
        barrier,
    ),
    _K.BARRIER_DYNAMIC: (
        "barrier stages do not run with dynamic allocation",
        "a fixed number of executors",
        named("spark.dynamicAllocation.enabled=false"),
    ),
    _K.BARRIER: ("a task of a barrier stage failed, so all did", _OWN_CODE, _NOTHING),
    _K.RESULT_SIZE: (
        "results for the driver were above spark.driver.maxResultSize",
        "collect less to the driver, or allow more",
        result,
    ),
    _K.RPC_SIZE: (
        "a message to an executor was above spark.rpc.message.maxSize",
        "send large values as broadcast variables, or allow larger messages",
        rpc,
    ),
    _K.KRYO_BUFFER: ("a record was above spark.kryoserializer.buffer.max", "a larger buffer", kryo),
    _K.BROADCAST_TIMEOUT: (
        "a broadcast took longer than spark.sql.broadcastTimeout",
        "a longer wait, or no broadcast join",
        broadcast_wait,
    ),
    _K.BROADCAST_SIZE: (
        "a table is too large to be sent to all executors",
        "no broadcast join",
        named(f"{THRESHOLD}=-1"),
    ),
    _K.ROW_SIZE: (
        "one row is larger than 2 GiB",
        "smaller rows: collect less into one, or split it",
        _NOTHING,
    ),
    _K.NOT_SERIALIZABLE: (
        "something cannot be sent between driver and executors",
        _OWN_CODE,
        _NOTHING,
    ),
    _K.PYTHON_CRASH: (
        "a Python worker died: killed for its memory, or by native code",
        "more memory for Python; its stack where native code failed",
        crash,
    ),
    _K.PYTHON_START: (
        "a Python worker did not start in time",
        "a longer wait; see whether Python is there on every machine",
        connect,
    ),
    _K.PYTHON_CODE: ("Python code raised an error", _OWN_CODE, _NOTHING),
    _K.FILES_CHANGED: (
        "files changed while they were read",
        "REFRESH TABLE, or read what nobody writes",
        _NOTHING,
    ),
    _K.NAMED_SETTING: ("Spark's message names a setting", "see whether it should change", told),
    _K.COMMIT_DENIED: ("another attempt had committed its output", "nothing", _NOTHING),
    _K.SUPERSEDED: ("another attempt was first", "nothing", _NOTHING),
    _K.CANCELLED: ("it was called off", "see who called it off", _NOTHING),
}
