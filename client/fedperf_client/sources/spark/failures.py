"""Ends that were no success, and their causes: failures with the same cause are told as one.

Attempts at tasks end so, jobs and stages, and executors. What an executor took with it when it left
fails elsewhere and later: the cause is why it left. The kinds of failures, and the texts by which
they are known, stand in `failures.toml`.

What to do about a kind of failure, with settings that would keep it from coming again.

Names are those that Spark's own messages and pages give. A value is computed from what the
application had: at least twice as much, rounded up. Which settings are for which kind stands in
`failures.toml`; `_COMPUTED` has those that depend on more than one setting.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from fedperf_client.sources.spark.fields import MIB, Event, part, size_bytes, words
from fedperf_client.sources.spark.settings import SparkSettings, memory_setting

LONGEST_LINE = 300
"""Of a message that is shown."""

EXECUTOR_REMOVED = "ExecutorRemoved"
"""The end reason of a text that tells why an executor was removed."""

_SIGNALS = 128  # an exit code above it tells the signal
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


KILLED = frozenset({"TaskKilled", "TaskCommitDenied"})
"""End reasons of attempts that failed only where their text says so."""

_OF_A_TASK = re.compile(r"Lost task|ExecutorLostFailure|\bexecutor \w+\)", re.IGNORECASE)
_ABOUT_EXECUTORS = frozenset({EXECUTOR_REMOVED, "ExecutorLostFailure", "FetchFailed"})


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What made a task, a job or an executor fail; `failures.toml` describes the attributes."""

    reason: str
    action: str
    settings: Sequence[str] = ()
    roles: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """The texts by which a kind is known; `failures.toml` describes the attributes."""

    kind: str
    texts: Sequence[str] = ()
    exits: Sequence[int] = ()
    of_executors: bool = False
    ends: Sequence[str] = ()
    only: Sequence[str] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """All texts, with exit codes as YARN, Kubernetes and Spark's own workers write them."""
        codes = (
            rf"(?:exit|exited with)[ -](?:code|status)\b[ :(=]*(?:is )?{each}\b"
            + (rf"|died from signal {each - _SIGNALS}\b" if each > _SIGNALS else "")
            for each in self.exits
        )
        return (*self.texts, *codes)


@cache
def failure_table() -> tuple[dict[str, FailureKind], tuple[FailurePattern, ...]]:
    """The kinds of failures by name, and the patterns in their order."""
    table = tomllib.loads(Path(__file__).with_name("failures.toml").read_text("utf-8"))
    kinds = {name: FailureKind(**values) for name, values in table["kind"].items()}
    return kinds, tuple(FailurePattern(**values) for values in table["pattern"])


@cache
def _compiled() -> tuple[tuple[FailurePattern, re.Pattern[str]], ...]:
    flags = re.IGNORECASE | re.MULTILINE
    return tuple((row, re.compile("|".join(row.expressions), flags)) for row in failure_table()[1])


def has_role(kind: str | None, role: str) -> bool:
    """Whether a kind of failure has a role of `failures.toml`; an unknown one has none."""
    return kind is not None and role in failure_table()[0][kind].roles


def is_out_of_memory(kind: str | None) -> bool:
    """Whether memory ran out."""
    return kind is not None and kind.endswith(" memory")


def reason_of(message: str, end_reason: str = "") -> str | None:
    """The kind of failure that a text tells; None where it tells none that is known.

    Args:
        message: all that the log says of one failure.
        end_reason: "Reason" of a task's end, or `EXECUTOR_REMOVED`; empty for the text of a job,
            a stage or a query.
    """
    return _reason(message[:_LONGEST], end_reason)


@lru_cache(maxsize=64)  # the tasks of a stage fail with the same words
def _reason(said: str, end_reason: str) -> str | None:
    head = (each for each in said[:_HEAD].splitlines() if not each.startswith("\tat "))
    message = "\n".join((*head, *_CAUSES.findall(said, _HEAD)[-_MOST_CAUSES:]))
    of_executor = message if end_reason in _ABOUT_EXECUTORS else ""
    if not end_reason:
        of_executor = message[start:] if (start := message.find("ExecutorLostFailure")) >= 0 else ""
    for row, pattern in _compiled():
        if row.only and end_reason not in row.only:
            continue
        told = of_executor if row.of_executors else message
        if end_reason in row.ends or (told and pattern.search(told)):
            if row.kind == "executor memory" and not (end_reason or _OF_A_TASK.search(message)):
                return "driver memory"
            return row.kind
    return "named setting" if re.search(SETTING, message) else None


def told_line(message: str) -> str:
    """The line of a message that tells most: its first, or the end of a Python traceback."""
    first = message.lstrip()[:LONGEST_LINE].partition("\n")[0].partition("<br")[0].strip()
    if _TRACEBACK in message[:_HEAD]:
        for raised in reversed(tuple(_LAST_LINE.finditer(message[:_LONGEST]))):
            return raised[0][:LONGEST_LINE].strip()
    return first


FETCH_FAILED = "FetchFailed"
"""The end of an attempt that could not fetch what another task had written."""

_LONGEST_NAME, _LONGEST_MESSAGE = 120, 1000
_MESSAGES = ("Description", "Loss Reason", "Kill Reason", "Message")


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why attempts at tasks did not succeed; local text.

    Attributes:
        name: in one word of the log, such as the class of an exception.
        message: what the log says, cut where it is long.
        kind: None where it is not known.
        missed: id and host of the executor whose files they could not fetch; empty elsewhere.
    """

    name: str
    message: str = ""
    kind: str | None = None
    missed: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, end: Event) -> "EndReason":
        """The reason of a "Task End Reason"."""
        reason, raised = words(end, "Reason"), words(end, "Class Name")
        said = "\n".join(each for name in _MESSAGES if (each := words(end, name)))
        place = part(end, "Block Manager Address")
        whole = f"{raised}: {said}\n{words(end, 'Full Stack Trace')}" if raised else said
        return cls(
            (raised.rpartition(".")[2] or reason or "unknown")[:_LONGEST_NAME],
            kept_text(said),
            reason_of(whole, reason or "unknown"),
            (words(place, "Executor ID")[:_LONGEST_NAME], words(place, "Host")[:_LONGEST_NAME]),
        )

    @property
    def is_called_off(self) -> bool:
        """Whether that was no failure: another attempt was first, or nobody needed it any more."""
        return self.name in KILLED and (self.kind is None or has_role(self.kind, "called off"))


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a task that did not succeed; it took its place all the same."""

    stage: int  # of it
    executor: tuple[str, str]  # with its host, where it ran; empty where that is unknown
    launched: int  # launched, finished: as the driver saw it
    finished: int
    reason: EndReason  # why it ended

    @property
    def duration(self) -> int:
        """Milliseconds."""
        return max(0, self.finished - self.launched)

    @property
    def place(self) -> tuple[str, str]:
        """Id and host of the executor that it failed with: its own, or whose files it missed.

        Empty where it missed files that nobody is known to have had.
        """
        return self.reason.missed if self.reason.name == FETCH_FAILED else self.executor


@dataclass(frozen=True, slots=True)
class Removal:
    """An executor that went away, with what the log says of it; local text."""

    executor: str
    host: str
    at: int
    reason: str
    kind: str | None

    @classmethod
    def of(cls, executor: str, host: str, at: int, said: object) -> "Removal":
        """A removal, for a reason that the log tells or does not."""
        known = said if isinstance(said, str) else ""
        kind = reason_of(known, EXECUTOR_REMOVED)
        return cls(executor[:_LONGEST_NAME], host, at, kept_text(known), kind)


@dataclass(frozen=True, slots=True)
class FailureText:
    """What the log says of a query, a job or a stage that failed; local text."""

    what: str
    message: str
    kind: str | None

    @classmethod
    def of(cls, what: str, said: object) -> "FailureText":
        """Of a text that the log has, or has not."""
        known = said if isinstance(said, str) else ""
        return cls(what, kept_text(known), reason_of(known))


def last_text(texts: Iterable[FailureText]) -> FailureText | None:
    """What tells most of why something failed: the last words that are not about calling off."""
    told = [each for each in texts if each.message]
    own = [each for each in told if each.kind != "cancelled"]
    return (own or told)[-1] if told else None


def kept_text(said: str) -> str:
    """What is kept of a text: its beginning, or what Python raised at the end of a traceback."""
    line = told_line(said)
    return said[:_LONGEST_MESSAGE].strip() if said.lstrip().startswith(line) else line


Place = tuple[str, str]

TOGETHER = 1000
"""Milliseconds within which failures have a moment in common."""

_BEFORE, _AFTER = 600_000, 120_000
"""Milliseconds before and after a failure in which the removal of its executor explains it."""

_OF_TASKS, _LAST_OF_SEVERAL = "stage failure", "most recent failure"

_OF_FILES = frozenset({FETCH_FAILED, "Resubmitted"})
_LOST = frozenset({"ExecutorLostFailure", "TaskResultLost"}) | _OF_FILES
"""End reasons of attempts that fail with an executor."""


@dataclass(slots=True)
class FailureCause:
    """Failures with one cause.

    Attributes:
        kind: None where it is not known.
        name: of the failures, in one word of the log.
        message: all that is said of one of them.
        failures: attempts at tasks.
        places: executors with their hosts that they failed with.
        ends_job: the job failed for it.
        summary: the kind by which Spark sums them up where it gave up.
    """

    kind: str | None
    name: str
    message: str = ""
    failures: list[LostAttempt] = field(default_factory=list)
    places: set[Place] = field(default_factory=set)
    ends_job: bool = False
    summary: str | None = None

    @property
    def line(self) -> str:
        """The line of the message that tells most."""
        return told_line(self.message)

    @property
    def missing(self) -> int:
        """How many of the attempts missed files of a shuffle, or lost those that they had made."""
        return sum(each.reason.name in _OF_FILES for each in self.failures)

    @property
    def executor(self) -> str | None:
        """The executor that all have in common."""
        return _only(executor for executor, _ in self.places)

    @property
    def host(self) -> str | None:
        """The host that all have in common."""
        return _only(host for _, host in self.places)

    @property
    def stage(self) -> int | None:
        """The stage that all have in common."""
        stages = {each.stage for each in self.failures}
        return stages.pop() if len(stages) == 1 else None

    @property
    def moment(self) -> int | None:
        """When all ended, where they did so together."""
        ends = [each.finished for each in self.failures]
        return min(ends) if ends and max(ends) - min(ends) <= TOGETHER else None

    @property
    def evidence(self) -> Iterator[str]:
        """What failed where, and the words for it, for people."""
        where = "several executors" if self.executor is None else f"executor {self.executor}"
        where += f" on {self.host}" if self.host else ""
        failed = len(self.failures) - self.missing
        counts = [
            f"{count} task{'s' * (count > 1)} {what} {where}"
            for count, what in ((failed, "failed on"), (self.missing, "missed files of"))
            if count
        ]
        if counts:
            at_once = self.moment is not None and len(self.failures) > 1
            yield f"{', '.join(counts)}{' at once' * at_once}"
        said = ("" if self.kind else self.name, repr(self.line) if self.line else "")
        if any(said):
            yield ": ".join(filter(None, said))

    @property
    def figures(self) -> dict[str, float | str]:
        """The same for programs; what is not shared, or not known, is left out."""
        known = {
            "reason": self.kind,
            "summary": self.summary,
            "error": self.name or None,
            "message": self.line or None,
            "executor": self.executor,
            "host": self.host,
            "stage": self.stage,
        }
        return {
            "failed_tasks": len(self.failures),
            "missed_files": self.missing,
            "is_out_of_memory": is_out_of_memory(self.kind),
            "is_outside": has_role(self.kind, "outside"),
            **{name: value for name, value in known.items() if value is not None},
        }


def causes_of(
    lost: Iterable[LostAttempt], removals: Iterable[Removal], own_text: FailureText | None = None
) -> list[FailureCause]:
    """The causes of what failed in a job, that of its own failure first, then by attempts lost.

    Args:
        lost: attempts at its tasks that did not succeed.
        removals: of executors of its application.
        own_text: on the job; None where it succeeded.
    """
    found: dict[tuple[str | None, str], FailureCause] = {}
    gone: dict[str, list[Removal]] = {"": []}
    for removal in removals:
        if not _is_consequence(removal.kind):
            gone.setdefault(removal.executor, []).append(removal)
            gone[""].append(removal)
    for each in lost:
        if each.reason.is_called_off:
            continue
        kind, message, place = _explained(each, gone)
        key = kind, "" if kind else each.reason.name
        cause = found.setdefault(key, FailureCause(kind, each.reason.name, message))
        cause.failures.append(each)
        cause.places.add(place)
    if own_text is not None:
        _judged(found, own_text).ends_job = True
    return sorted(found.values(), key=lambda cause: (not cause.ends_job, -len(cause.failures)))


def _explained(
    lost: LostAttempt, gone: Mapping[str, list[Removal]]
) -> tuple[str | None, str, Place]:
    """Kind, message and place of a failure, or why the executor that it needs was removed.

    Args:
        lost: the failure; it may not tell whose files it missed.
        gone: removals that explain something by their executors, and all of them under no name.
    """
    reason = lost.reason
    if reason.name in _LOST and _is_consequence(reason.kind):
        for each in reversed(gone.get(lost.place[0], [])):
            if lost.launched - _BEFORE <= each.at <= lost.finished + _AFTER:
                return each.kind, each.reason, (each.executor, each.host or lost.place[1])
    return reason.kind, reason.message, lost.place


def _is_consequence(kind: str | None) -> bool:
    """Whether the removal of its executor may explain a failure better than its own kind."""
    return kind is None or has_role(kind, "consequence")


def _judged(
    found: dict[tuple[str | None, str], FailureCause], own_text: FailureText
) -> FailureCause:
    """The cause for which a job failed: one of its attempts', where their texts agree."""
    kind, said = own_text.kind, own_text.message
    is_summary = has_role(kind, "summary")
    same = found.get((kind, "")) if kind else None
    if same is None and found and (is_summary or _is_consequence(kind)):
        named = [
            each
            for each in found.values()
            if each.name in said or (each.line and each.line in said)
        ]
        if named or is_summary or _OF_TASKS in said or not said:
            same = max(named or found.values(), key=lambda cause: len(cause.failures))
            same.summary = kind if is_summary else None
    if same is None:
        same = found.setdefault((kind, ""), FailureCause(kind, "", said))
    elif same.kind == kind and _LAST_OF_SEVERAL not in said.lower():
        same.message = said or same.message
    return same


def _only(names: Iterable[str]) -> str | None:
    every = set(names)
    return (every.pop() or None) if len(every) == 1 else None


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
