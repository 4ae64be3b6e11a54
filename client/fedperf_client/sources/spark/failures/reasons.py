"""Why something of a Spark application failed, by what Spark and its cluster managers write.

A message changes from version to version; the table holds the parts that stayed from Spark 2.4 to
4.0. Its rows are in order: what names a cause comes before what only names its consequence.
"""

import re
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import lru_cache

LONGEST_LINE = 300
"""Of a message that is shown."""

EXECUTOR_REMOVED = "ExecutorRemoved"
"""The end reason of a text that tells why an executor was removed."""

_HEAD, _LONGEST, _MOST_CAUSES = 4000, 100_000, 3
"""Characters of a message that are searched, and in which causes behind them are; of these."""

_CAUSES = re.compile(r"^Caused by: .{0,400}", re.MULTILINE)
SETTING = (
    r"(?<![\w.])spark\.(?:sql|driver|executor|task|stage|shuffle|storage|memory|network|rpc|files|io"
    r"|hadoop|hive|python|pyspark|scheduler|dynamicAllocation|serializer|broadcast|yarn|kubernetes"
    r"|mesos|checkpoint|rdd|ui|locality|cleaner|blacklist|excludeOnFailure)\.[a-z][\w.]*\w"
)
"""The pattern of the name of a setting; no class has such a name."""

_TRACEBACK = "Traceback (most recent call last)"
_LAST_LINE = re.compile(
    r"^(?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE
)


@unique
class FailureKind(StrEnum):
    """What made a task, a job or an executor fail."""

    CONTAINER_MEMORY = "container memory"
    VIRTUAL_MEMORY = "virtual memory"
    EXECUTOR_MEMORY = "executor memory"
    DRIVER_MEMORY = "driver memory"
    BROADCAST_MEMORY = "broadcast memory"
    PYTHON_MEMORY = "python memory"
    DIRECT_MEMORY = "direct memory"
    CLASS_MEMORY = "class memory"
    THREADS = "threads"
    DISK_FULL = "disk full"
    PREEMPTED = "preempted"
    DECOMMISSIONED = "decommissioned"
    NODE_LOST = "node lost"
    TERMINATED = "terminated"
    HEARTBEAT = "heartbeat"
    DISASSOCIATED = "disassociated"
    SCALED_DOWN = "scaled down"
    SHUT_DOWN = "shut down"
    EXECUTOR_LOST = "executor lost"
    SHUFFLE_LOST = "shuffle files lost"
    RESULT_LOST = "result lost"
    STAGE_ATTEMPTS = "stage attempts"
    INDETERMINATE = "indeterminate stage"
    EXCLUDED = "excluded executors"
    TASK_REAPED = "task reaper"
    BARRIER_SLOTS = "barrier slots"
    BARRIER_TIMEOUT = "barrier timeout"
    BARRIER_DYNAMIC = "barrier with dynamic allocation"
    BARRIER = "barrier task"
    RESULT_SIZE = "result size"
    RPC_SIZE = "message size"
    KRYO_BUFFER = "kryo buffer"
    BROADCAST_TIMEOUT = "broadcast timeout"
    BROADCAST_SIZE = "broadcast size"
    ROW_SIZE = "row size"
    NOT_SERIALIZABLE = "not serializable"
    PYTHON_CRASH = "python crash"
    PYTHON_START = "python start"
    PYTHON_CODE = "python code"
    FILES_CHANGED = "files changed"
    NAMED_SETTING = "named setting"
    COMMIT_DENIED = "commit denied"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out."""
        return self.value.endswith(" memory")

    @property
    def is_outside(self) -> bool:
        """Whether the job has no part in it: it was called off, or lost its machine."""
        return self in _OUTSIDE


@dataclass(frozen=True, slots=True)
class Row:
    """The texts by which a kind is known.

    Attributes:
        kind: that they tell.
        patterns: regular expressions, without regard to case.
        of_executors: they count only where an executor's end is told: elsewhere such words may be
            those of a user's own data.
        ends: end reasons of tasks that tell the kind where no text does.
        only: end reasons with which alone they count; all where it is empty.
    """

    kind: FailureKind
    patterns: tuple[str, ...]
    of_executors: bool = False
    ends: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def _exit(code: int, signal: int = 0) -> str:
    """The pattern of an exit code, as YARN, Kubernetes and Spark's own workers write it."""
    died = rf"|died from signal {signal}\b" if signal else ""
    return rf"(?:exit|exited with)[ -](?:code|status)\b[ :(=]*(?:is )?{code}\b{died}"


_K = FailureKind
ROWS: tuple[Row, ...] = (
    Row(_K.COMMIT_DENIED, (r"TaskCommitDenied|Commit denied for",), ends=("TaskCommitDenied",)),
    Row(
        _K.SUPERSEDED,
        (r"another attempt succeeded", r"^Stage finished"),
        only=("TaskKilled",),
    ),
    Row(_K.RESULT_SIZE, (r"maxResultSize",)),
    Row(_K.RPC_SIZE, (r"spark\.rpc\.message\.maxSize",)),
    Row(
        _K.KRYO_BUFFER,
        (r"spark\.kryoserializer\.buffer", r"Kryo serialization failed: Buffer overflow"),
    ),
    Row(_K.BROADCAST_TIMEOUT, (r"Could not execute broadcast in",)),
    Row(_K.BROADCAST_SIZE, (r"Cannot broadcast the table",)),
    Row(_K.BROADCAST_MEMORY, (r"Not enough memory to build and broadcast",)),
    Row(_K.PYTHON_MEMORY, (r"python[\s\S]*^(?!.*OutOf)[\w.]*MemoryError\b",)),
    Row(
        _K.VIRTUAL_MEMORY,
        (
            r"(?:exceeding|beyond) (?:the )?'?virtual'? memory limit",
            r"exceeding memory limits.{0,60}virtual memory used",
        ),
        of_executors=True,
    ),
    Row(
        _K.CONTAINER_MEMORY,
        (
            r"(?:exceeding|beyond) (?:the )?(?:'?physical'? )?memory limit",
            r"OOMKilled",
            r"container OOM",
            r"low on resource: memory",
            r"Memory limit exceeded",
        ),
        of_executors=True,
    ),
    Row(
        _K.DISK_FULL,
        (
            r"No space left on device",
            r"not enough space on the disk",
            r"Disk quota exceeded",
        ),
    ),
    Row(
        _K.DISK_FULL,
        (
            r"ephemeral[- ](?:local )?storage",
            r"DiskStore failed to create",
            r"bad spark\.local\.dir",
            r"local-dirs (?:are bad|have errors|usable space)|Exit status: -101",
            _exit(53),
        ),
        of_executors=True,
    ),
    Row(_K.CLASS_MEMORY, (r"OutOfMemoryError: (?:Metaspace|Compressed class space|PermGen)",)),
    Row(_K.THREADS, (r"unable to create (?:new )?native thread",)),
    Row(
        _K.DIRECT_MEMORY,
        (r"direct buffer memory", r"allocate direct buffer", r"\(s\) of direct memory"),
    ),
    Row(
        _K.EXECUTOR_MEMORY,
        (
            r"OutOfMemoryError",
            r"Java heap space",
            r"GC overhead limit",
            r"Unable to acquire \d+ bytes of memory",
            r"acquire \d+ bytes memory to build hash relation",
            r"\bno[t]? enough memory (?:to build hash map|for aggregation|to grow)",
            r"Could not allocate memory to grow",
            r"Unable to grow the pointer array",
        ),
    ),
    Row(_K.EXECUTOR_MEMORY, (r"\(JVM OOM\)", _exit(52)), of_executors=True),
    Row(_K.PREEMPTED, (r"preempt",), of_executors=True),
    Row(_K.DECOMMISSIONED, (r"decommission",), of_executors=True),
    Row(
        _K.NODE_LOST,
        (
            r"\*?lost\*? node",
            r"worker lost",
            r"Worker \S+ removed",
            r"Worker shutting down",
            r"Mesos (?:slave|agent) lost",
            r"finished with state LOST|TASK_(?:LOST|GONE|UNREACHABLE)|Task \S+ was lost",
            r"reason: ?(?:Evicted|NodeLost|Terminated)|low on resource|node shutdown",
            r"deleted by a user or the framework",
            r"not found in the\s+cluster",
        ),
        of_executors=True,
    ),
    Row(_K.CONTAINER_MEMORY, (_exit(137, signal=9),), of_executors=True),
    Row(
        _K.HEARTBEAT,
        (r"heartbeat timed out", r"Unable to send heartbeats", _exit(56)),
        of_executors=True,
    ),
    Row(_K.TASK_REAPED, (r"TaskReaper", r"could not be stopped within"), of_executors=True),
    Row(
        _K.SHUT_DOWN,
        (
            r"SparkContext was shut down",
            r"application ended before it",
            r"SparkContext (?:is|has been) (?:stopped|shutdown)",
        ),
    ),
    Row(
        _K.SHUT_DOWN,
        (
            r"Driver commanded a shutdown",
            r"after Application shutdown",
            r"Application has been (?:stopped|killed)",
        ),
        of_executors=True,
    ),
    Row(
        _K.SCALED_DOWN,
        (
            r"killed by (?:the )?(?:driver|ApplicationMaster)",
            r"explicit termination request",
            r"idle timeout",
        ),
        of_executors=True,
    ),
    Row(_K.TERMINATED, (_exit(143, signal=15),), of_executors=True),
    Row(
        _K.EXCLUDED,
        (
            r"cannot run anywhere due to node and executor",
            r"because of complete blacklisting",
            r"all executors excluded",
            r"all available nodes are (?:blacklisted|excluded)",
        ),
    ),
    Row(
        _K.EXCLUDED,
        (r"Executor is (?:blacklisted|excluded)",),
        of_executors=True,
    ),
    Row(_K.BARRIER_DYNAMIC, (r"SPARK-24942",)),
    Row(_K.BARRIER_SLOTS, (r"SPARK-24819", r"barrier stage that requires more slots")),
    Row(_K.BARRIER_TIMEOUT, (r"barrier sync requests for barrier epoch",)),
    Row(_K.BARRIER, (r"barrier task", r"barrier (?:Result)?Stage", r"Barrier execution mode")),
    Row(_K.INDETERMINATE, (r"indeterminate output",)),
    Row(_K.STAGE_ATTEMPTS, (r"maximum\s+allowable\s+number\s+of\s+times",)),
    Row(
        _K.SHUFFLE_LOST,
        (
            r"FetchFailed",
            r"Missing (?:an|all) output location",
            r"resubmitted due to lost executor",
        ),
        ends=("FetchFailed", "Resubmitted"),
    ),
    Row(_K.RESULT_LOST, (r"result lost from block manager",), ends=("TaskResultLost",)),
    Row(_K.DISASSOCIATED, (r"RPC client disassociated", r"got disassociated"), of_executors=True),
    Row(
        _K.EXECUTOR_LOST,
        (
            r"Executor Process Lost",
            r"(?:slave|agent) lost",
            r"executor exit code",
            r"exited with code",
            r"exited with exit code",
            r"finished with state",
            r"Container (?:marked as failed|from a bad node)",
            r"Pending loss reason",
        ),
        of_executors=True,
        ends=("ExecutorLostFailure",),
    ),
    Row(
        _K.NOT_SERIALIZABLE,
        (
            r"Task not serializable",
            r"not serializable result",
            r"NotSerializableException",
            r"Failed to serialize task",
            r"Task serialization failed",
        ),
    ),
    Row(_K.PYTHON_CRASH, (r"Python worker exited unexpectedly",)),
    Row(_K.PYTHON_START, (r"Python worker (?:failed )?to connect back",)),
    Row(
        _K.PYTHON_CODE,
        (r"thrown from the Python worker", r"api\.python\.PythonException"),
    ),
    Row(_K.ROW_SIZE, (r"Cannot grow (?:BufferHolder|internal buffer)", r"create BufferHolder")),
    Row(_K.FILES_CHANGED, (r"underlying files have been updated",)),
    Row(
        _K.CANCELLED,
        (
            r"\b(?:Job|Stage|Task) ?\S* (?:was )?cancell?ed",
            r"of cancelled job",
            r"cancellation of all jobs",
        ),
        only=("TaskKilled", ""),
    ),
    Row(_K.NAMED_SETTING, (rf"(?-i:{SETTING})",)),
)
"""All rows; the first that matches tells the kind."""

_COMPILED = tuple(
    (row, re.compile("|".join(row.patterns), re.IGNORECASE | re.MULTILINE)) for row in ROWS
)

_OUTSIDE = frozenset(
    {
        _K.PREEMPTED,
        _K.DECOMMISSIONED,
        _K.NODE_LOST,
        _K.TERMINATED,
        _K.SCALED_DOWN,
        _K.SHUT_DOWN,
        _K.COMMIT_DENIED,
        _K.SUPERSEDED,
        _K.CANCELLED,
    }
)

KILLED = frozenset({"TaskKilled", "TaskCommitDenied"})
"""End reasons of attempts that failed only where their text says so."""

CALLED_OFF = frozenset({_K.SUPERSEDED, _K.COMMIT_DENIED, _K.CANCELLED, _K.SHUT_DOWN, None})
"""Kinds of such attempts that are no failures, and none at all."""

_OF_A_TASK = re.compile(r"Lost task|ExecutorLostFailure|\bexecutor \w+\)", re.IGNORECASE)
_ABOUT_EXECUTORS = frozenset({EXECUTOR_REMOVED, "ExecutorLostFailure", "FetchFailed"})


def reason_of(message: str, end_reason: str = "") -> FailureKind | None:
    """The kind of failure that a text tells; None where it tells none that is known.

    Args:
        message: all that the log says of one failure.
        end_reason: "Reason" of a task's end, or `EXECUTOR_REMOVED`; empty for the text of a job,
            a stage or a query.
    """
    return _reason(message[:_LONGEST], end_reason)


@lru_cache(maxsize=64)  # the tasks of a stage fail with the same words
def _reason(said: str, end_reason: str) -> FailureKind | None:
    head = (each for each in said[:_HEAD].splitlines() if not each.startswith("\tat "))
    message = "\n".join((*head, *_CAUSES.findall(said, _HEAD)[-_MOST_CAUSES:]))
    of_executor = message if end_reason in _ABOUT_EXECUTORS else ""
    if not end_reason:
        of_executor = message[start:] if (start := message.find("ExecutorLostFailure")) >= 0 else ""
    for row, pattern in _COMPILED:
        if row.only and end_reason not in row.only:
            continue
        told = of_executor if row.of_executors else message
        if end_reason in row.ends or (told and pattern.search(told)):
            if row.kind is _K.EXECUTOR_MEMORY and not (end_reason or _OF_A_TASK.search(message)):
                return _K.DRIVER_MEMORY
            return row.kind
    return None


def told_line(message: str) -> str:
    """The line of a message that tells most: its first, or the end of a Python traceback."""
    first = message.lstrip()[:LONGEST_LINE].partition("\n")[0].partition("<br")[0].strip()
    if _TRACEBACK in message[:_HEAD]:
        for raised in reversed(tuple(_LAST_LINE.finditer(message[:_LONGEST]))):
            return raised[0][:LONGEST_LINE].strip()
    return first
