"""What to do about a kind of failure."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedperf_client.sources.spark.failures import setting_lines as s
from fedperf_client.sources.spark.failures.causes import FailureCause
from fedperf_client.sources.spark.failures.reasons import FailureKind
from fedperf_client.sources.spark.settings import SparkSettings


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
    named = against(s.FailureCase(message, settings))
    return FailureAdvice(
        reason,
        action,
        tuple(dict.fromkeys(each.partition("=")[0] for each in named)),
        tuple(each for each in named if "=" in each),
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


_NOTHING = s.named()
_AWAY = "let executors hand over their blocks before they go, or keep shuffle files in a service"
_OWN_CODE = "change the code that the message names"
_K = FailureKind
_ADVICE: Mapping[FailureKind, tuple[str, str, s.Settings]] = {
    _K.CONTAINER_MEMORY: (
        "memory ran out: a container was killed for taking more than it may",
        "leave more memory beside the heap, or run fewer tasks at once in an executor",
        s.overhead,
    ),
    _K.VIRTUAL_MEMORY: (
        "memory ran out: YARN killed a container for its virtual memory",
        "more memory beside the heap, or no check of virtual memory by YARN",
        s.both(s.overhead, s.named("yarn.nodemanager.vmem-check-enabled")),
    ),
    _K.EXECUTOR_MEMORY: (
        "memory ran out: the heap was full",
        "more heap, or more partitions so that each task holds less",
        s.heap,
    ),
    _K.DRIVER_MEMORY: (
        "memory ran out: the heap of the driver was full",
        "more heap for the driver, or collect less to it",
        s.driver,
    ),
    _K.BROADCAST_MEMORY: (
        "memory ran out: the driver could not hold a table that all executors were to get",
        "more heap for the driver, or no broadcast join",
        s.both(s.driver, s.named(f"{s.THRESHOLD}=-1")),
    ),
    _K.PYTHON_MEMORY: (
        "memory ran out in a Python worker",
        "more memory for Python, or smaller batches",
        s.python,
    ),
    _K.DIRECT_MEMORY: (
        "memory ran out: buffers outside of the heap, whose limit is that of the heap",
        "a larger limit and memory for it",
        s.both(s.heap, s.overhead),
    ),
    _K.CLASS_MEMORY: (
        "memory ran out: the part of the JVM that holds classes",
        "raise -XX:MaxMetaspaceSize, or leave it out",
        s.named("spark.executor.extraJavaOptions"),
    ),
    _K.THREADS: (
        "the system allowed no more threads",
        "raise the limit of processes (ulimit -u, pids.max), or fewer cores in an executor",
        s.named("spark.executor.cores"),
    ),
    _K.DISK_FULL: (
        "a local disk was full",
        "larger or more local disks, or less to shuffle and spill",
        s.disk,
    ),
    _K.PREEMPTED: (
        "an executor was preempted for other work: not the job's fault",
        _AWAY,
        s.moving,
    ),
    _K.DECOMMISSIONED: ("an executor was decommissioned: not the job's fault", _AWAY, s.moving),
    _K.NODE_LOST: ("the machine of an executor was lost: not the job's fault", _AWAY, s.moving),
    _K.TERMINATED: (
        "an executor was told to end (SIGTERM): preempted, decommissioned or stopped",
        _AWAY,
        s.moving,
    ),
    _K.HEARTBEAT: (
        "an executor sent no heartbeat for too long: mostly it collected garbage",
        "more heap, or a longer wait",
        s.both(s.wait("spark.network.timeout", 120), s.heap),
    ),
    _K.DISASSOCIATED: (
        "an executor went away without a word: killed for its memory, or out of reach",
        "more memory beside the heap, if its manager's log says that it was killed",
        s.overhead,
    ),
    _K.SCALED_DOWN: (
        "Spark itself ended an executor that it thought idle",
        "keep executors while their shuffle files are needed",
        s.scaled,
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
        s.both(s.retries("spark.shuffle.io.maxRetries", 3), s.named(s.SERVICE)),
    ),
    _K.RESULT_LOST: (
        "the result of a task was lost before the driver fetched it",
        "smaller results: larger ones than this wait in the memory of an executor",
        s.named("spark.task.maxDirectResultSize"),
    ),
    _K.STAGE_ATTEMPTS: (
        "a stage failed too many times in a row",
        "find why executors or their files are lost; more attempts bridge it",
        s.retries("spark.stage.maxConsecutiveAttempts", 4),
    ),
    _K.INDETERMINATE: (
        "a stage whose rows differ from run to run cannot run again",
        "checkpoint its rows, or give them an order, before they are repartitioned",
        _NOTHING,
    ),
    _K.EXCLUDED: (
        "all executors that could run a task were excluded for earlier failures",
        "find the earlier failures; executors come back after the timeout",
        s.excluded,
    ),
    _K.TASK_REAPED: (
        "a task that was killed did not end, so its executor was ended",
        "code that can be interrupted, or a longer wait",
        s.named("spark.task.reaper.killTimeout"),
    ),
    _K.BARRIER_SLOTS: (
        "a barrier stage has more tasks than there are slots",
        "fewer partitions, or more executors",
        s.named("spark.executor.instances"),
    ),
    _K.BARRIER_TIMEOUT: (
        "tasks of a barrier stage waited too long for one another",
        "even tasks, or a longer wait",
        s.barrier,
    ),
    _K.BARRIER_DYNAMIC: (
        "barrier stages do not run with dynamic allocation",
        "a fixed number of executors",
        s.named("spark.dynamicAllocation.enabled=false"),
    ),
    _K.BARRIER: ("a task of a barrier stage failed, so all did", _OWN_CODE, _NOTHING),
    _K.RESULT_SIZE: (
        "results for the driver were above spark.driver.maxResultSize",
        "collect less to the driver, or allow more",
        s.result,
    ),
    _K.RPC_SIZE: (
        "a message to an executor was above spark.rpc.message.maxSize",
        "send large values as broadcast variables, or allow larger messages",
        s.rpc,
    ),
    _K.KRYO_BUFFER: (
        "a record was above spark.kryoserializer.buffer.max",
        "a larger buffer",
        s.kryo,
    ),
    _K.BROADCAST_TIMEOUT: (
        "a broadcast took longer than spark.sql.broadcastTimeout",
        "a longer wait, or no broadcast join",
        s.broadcast_wait,
    ),
    _K.BROADCAST_SIZE: (
        "a table is too large to be sent to all executors",
        "no broadcast join",
        s.named(f"{s.THRESHOLD}=-1"),
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
        s.crash,
    ),
    _K.PYTHON_START: (
        "a Python worker did not start in time",
        "a longer wait; see whether Python is there on every machine",
        s.connect,
    ),
    _K.PYTHON_CODE: ("Python code raised an error", _OWN_CODE, _NOTHING),
    _K.FILES_CHANGED: (
        "files changed while they were read",
        "REFRESH TABLE, or read what nobody writes",
        _NOTHING,
    ),
    _K.NAMED_SETTING: ("Spark's message names a setting", "see whether it should change", s.told),
    _K.COMMIT_DENIED: ("another attempt had committed its output", "nothing", _NOTHING),
    _K.SUPERSEDED: ("another attempt was first", "nothing", _NOTHING),
    _K.CANCELLED: ("it was called off", "see who called it off", _NOTHING),
}
