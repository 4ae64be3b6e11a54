"""Failures of tasks, jobs and executors: their kinds, their causes, and advice.

Failures with the same cause are reported as one. Files that a removed executor had are missed
elsewhere and later: then the cause is the reason of its removal. The kinds of failures, the texts
that identify them and the settings against them are in `failures.toml`. `_COMPUTED` has the
settings that depend on a message or on other settings. A computed value is at least twice what
the application had, rounded up. Names of settings are those of Spark's messages and pages.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from fedperf_client.sources.spark.fields import MIB, Event, part, size_bytes, words
from fedperf_client.sources.spark.settings import SparkSettings, memory_setting

LONGEST_LINE = 300  # most characters of a message that are shown
EXECUTOR_REMOVED = "ExecutorRemoved"  # the end reason of a text about the removal of an executor
_SIGNALS = 128  # an exit code above it is this plus the signal
# Characters of a message that are searched, and in which causes are searched; number of causes.
_HEAD, _LONGEST, _MOST_CAUSES = 4000, 100_000, 3

_CAUSES = re.compile(r"^Caused by: .{0,400}", re.MULTILINE)
# The pattern of the name of a setting; no class has such a name.
SETTING = (
    r"(?<![\w.])spark\.(?:sql|driver|executor|task|stage|shuffle|storage|memory|network|rpc|files|io"
    r"|hadoop|hive|python|pyspark|scheduler|dynamicAllocation|serializer|broadcast|yarn|kubernetes"
    r"|mesos|checkpoint|rdd|ui|locality|cleaner|blacklist|excludeOnFailure)\.[a-z][\w.]*\w"
)

_TRACEBACK = "Traceback (most recent call last)"
_LAST_LINE = re.compile(
    r"^(?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE
)


# End reasons of attempts that count as failed only by their text.
KILLED = frozenset({"TaskKilled", "TaskCommitDenied"})

_OF_A_TASK = re.compile(r"Lost task|ExecutorLostFailure|\bexecutor \w+\)", re.IGNORECASE)
_ABOUT_EXECUTORS = frozenset({EXECUTOR_REMOVED, "ExecutorLostFailure", "FetchFailed"})


@dataclass(frozen=True, slots=True)
class FailureKind:
    """A kind of failure; `failures.toml` describes the attributes."""

    reason: str
    action: str
    settings: Sequence[str] = ()
    roles: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """Texts that identify a kind; `failures.toml` describes the attributes."""

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
    """Return the kinds of failures by name, and the patterns in their order."""
    table = tomllib.loads(Path(__file__).with_name("failures.toml").read_text("utf-8"))
    kinds = {name: FailureKind(**values) for name, values in table["kind"].items()}
    return kinds, tuple(FailurePattern(**values) for values in table["pattern"])


@cache
def _compiled() -> tuple[tuple[FailurePattern, re.Pattern[str]], ...]:
    flags = re.IGNORECASE | re.MULTILINE
    return tuple((row, re.compile("|".join(row.expressions), flags)) for row in failure_table()[1])


def has_role(kind: str | None, role: str) -> bool:
    """Return whether a kind of failure has a role of `failures.toml`; an unknown kind has none."""
    return kind is not None and role in failure_table()[0][kind].roles


def is_out_of_memory(kind: str | None) -> bool:
    """Return whether memory ran out."""
    return kind is not None and kind.endswith(" memory")


def reason_of(message: str, end_reason: str = "") -> str | None:
    """Return the kind of failure of a text; None if it is unknown.

    Args:
        message: everything that the log has about one failure.
        end_reason: "Reason" of a task's end, or `EXECUTOR_REMOVED`; empty for the text of a job,
            a stage or a query.
    """
    return _reason(message[:_LONGEST], end_reason)


@lru_cache(maxsize=64)  # the tasks of a stage fail with the same message
def _reason(text: str, end_reason: str) -> str | None:
    head = (each for each in text[:_HEAD].splitlines() if not each.startswith("\tat "))
    message = "\n".join((*head, *_CAUSES.findall(text, _HEAD)[-_MOST_CAUSES:]))
    of_executor = message if end_reason in _ABOUT_EXECUTORS else ""
    if not end_reason:
        of_executor = message[start:] if (start := message.find("ExecutorLostFailure")) >= 0 else ""
    for row, pattern in _compiled():
        if row.only and end_reason not in row.only:
            continue
        searched = of_executor if row.of_executors else message
        if end_reason in row.ends or (searched and pattern.search(searched)):
            if row.kind == "executor memory" and not (end_reason or _OF_A_TASK.search(message)):
                return "driver memory"
            return row.kind
    return "named setting" if re.search(SETTING, message) else None


def best_line(message: str) -> str:
    """Return the most informative line: the first, or the last of a Python traceback."""
    first = message.lstrip()[:LONGEST_LINE].partition("\n")[0].partition("<br")[0].strip()
    if _TRACEBACK in message[:_HEAD]:
        for raised in reversed(tuple(_LAST_LINE.finditer(message[:_LONGEST]))):
            return raised[0][:LONGEST_LINE].strip()
    return first


# The end reason of an attempt that could not fetch another task's output.
FETCH_FAILED = "FetchFailed"

_LONGEST_NAME, _LONGEST_MESSAGE = 120, 1000
_MESSAGES = ("Description", "Loss Reason", "Kill Reason", "Message")


@dataclass(frozen=True, slots=True)
class EndReason:
    """The reason why attempts at tasks did not succeed; local text."""

    name: str  # in one word of the log, such as the class of an exception
    message: str = ""  # of the log, cut where it is long
    kind: str | None = None  # None if it is unknown
    # Id and host of the executor whose files they could not fetch; otherwise empty.
    missed: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, end: Event) -> "EndReason":
        """Read the reason of a "Task End Reason"."""
        reason, raised = words(end, "Reason"), words(end, "Class Name")
        message = "\n".join(each for name in _MESSAGES if (each := words(end, name)))
        place = part(end, "Block Manager Address")
        whole = f"{raised}: {message}\n{words(end, 'Full Stack Trace')}" if raised else message
        return cls(
            (raised.rpartition(".")[2] or reason or "unknown")[:_LONGEST_NAME],
            shortened_text(message),
            reason_of(whole, reason or "unknown"),
            (words(place, "Executor ID")[:_LONGEST_NAME], words(place, "Host")[:_LONGEST_NAME]),
        )

    @property
    def is_called_off(self) -> bool:
        """Return whether it was no failure: another attempt was first, or none was needed."""
        return self.name in KILLED and (self.kind is None or has_role(self.kind, "called off"))


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a task that did not succeed, but took its slot."""

    stage: int  # number of its stage
    executor: tuple[str, str]  # id and host; empty if unknown
    launched: int  # launched, finished: as the driver saw it
    finished: int
    reason: EndReason  # why it ended

    @property
    def duration(self) -> int:
        """The duration in milliseconds."""
        return max(0, self.finished - self.launched)

    @property
    def place(self) -> tuple[str, str]:
        """Id and host of the executor that it failed with: its own, or that of missed files.

        Empty if it missed files of an unknown executor.
        """
        return self.reason.missed if self.reason.name == FETCH_FAILED else self.executor


@dataclass(frozen=True, slots=True)
class Removal:
    """An executor that was removed, with the message of the log; local text."""

    executor: str
    host: str
    at: int
    reason: str
    kind: str | None

    @classmethod
    def of(cls, executor: str, host: str, at: int, text: object) -> "Removal":
        """Read a removal, with or without a message."""
        message = text if isinstance(text, str) else ""
        kind = reason_of(message, EXECUTOR_REMOVED)
        return cls(executor[:_LONGEST_NAME], host, at, shortened_text(message), kind)


@dataclass(frozen=True, slots=True)
class FailureText:
    """The message of a query, a job or a stage that failed; local text."""

    message: str
    kind: str | None

    @classmethod
    def of(cls, text: object) -> "FailureText":
        """Read a message, which may be missing."""
        message = text if isinstance(text, str) else ""
        return cls(shortened_text(message), reason_of(message))


def last_text(texts: Iterable[FailureText]) -> FailureText | None:
    """Return the most informative message: the last that is not about cancelling."""
    messages = [each for each in texts if each.message]
    failures = [each for each in messages if each.kind != "cancelled"]
    return (failures or messages)[-1] if messages else None


def shortened_text(text: str) -> str:
    """Return the part of a message to keep: its beginning, or the last line of a traceback."""
    line = best_line(text)
    return text[:_LONGEST_MESSAGE].strip() if text.lstrip().startswith(line) else line


Place = tuple[str, str]

TOGETHER = 1000  # milliseconds within which failures count as simultaneous
# Milliseconds before and after a failure in which the removal of its executor explains it.
_BEFORE, _AFTER = 600_000, 120_000

_OF_TASKS, _LAST_OF_SEVERAL = "stage failure", "most recent failure"

_OF_FILES = frozenset({FETCH_FAILED, "Resubmitted"})
# End reasons of attempts that fail with an executor.
_LOST = frozenset({"ExecutorLostFailure", "TaskResultLost"}) | _OF_FILES


@dataclass(slots=True)
class FailureCause:
    """Failures with one cause."""

    kind: str | None  # None if it is unknown
    name: str  # of the failures, in one word of the log
    message: str = ""  # of one of them
    failures: list[LostAttempt] = field(default_factory=list)  # attempts at tasks
    # Executors with their hosts that they failed with.
    places: set[Place] = field(default_factory=set)
    ends_job: bool = False  # the job failed for it
    summary: str | None = None  # the kind under which Spark reports them when it gives up

    @property
    def line(self) -> str:
        """The most informative line of the message."""
        return best_line(self.message)

    @property
    def missing(self) -> int:
        """Number of attempts that missed files of a shuffle, or lost their own."""
        return sum(each.reason.name in _OF_FILES for each in self.failures)

    @property
    def executor(self) -> str | None:
        """The only executor of all failures, or None."""
        return _only(executor for executor, _ in self.places)

    @property
    def host(self) -> str | None:
        """The only host of all failures, or None."""
        return _only(host for _, host in self.places)

    @property
    def stage(self) -> int | None:
        """The only stage of all failures, or None."""
        stages = {each.stage for each in self.failures}
        return stages.pop() if len(stages) == 1 else None

    @property
    def moment(self) -> int | None:
        """The first end of all failures, if they were simultaneous."""
        ends = [each.finished for each in self.failures]
        return min(ends) if ends and max(ends) - min(ends) <= TOGETHER else None

    @property
    def evidence(self) -> Iterator[str]:
        """The places and the message of the failures, for people."""
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
        texts = ("" if self.kind else self.name, repr(self.line) if self.line else "")
        if any(texts):
            yield ": ".join(filter(None, texts))

    @property
    def figures(self) -> dict[str, float | str]:
        """The evidence for programs, without values that differ or are unknown."""
        figures = {
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
            **{name: value for name, value in figures.items() if value is not None},
        }


def causes_of(
    lost: Iterable[LostAttempt], removals: Iterable[Removal], own_text: FailureText | None = None
) -> list[FailureCause]:
    """Return the causes of the failures of a job: that of its own failure first, then by attempts.

    Args:
        lost: attempts at its tasks that did not succeed.
        removals: of executors of its application.
        own_text: the message of the job; None if it succeeded.
    """
    causes: dict[tuple[str | None, str], FailureCause] = {}
    gone: dict[str, list[Removal]] = {"": []}
    for removal in removals:
        if not _is_consequence(removal.kind):
            gone.setdefault(removal.executor, []).append(removal)
            gone[""].append(removal)
    for each in lost:
        if each.reason.is_called_off:
            continue
        kind, message, place = _explain(each, gone)
        key = kind, "" if kind else each.reason.name
        cause = causes.setdefault(key, FailureCause(kind, each.reason.name, message))
        cause.failures.append(each)
        cause.places.add(place)
    if own_text is not None:
        _cause_of_job(causes, own_text).ends_job = True
    return sorted(causes.values(), key=lambda cause: (not cause.ends_job, -len(cause.failures)))


def _explain(lost: LostAttempt, gone: Mapping[str, list[Removal]]) -> tuple[str | None, str, Place]:
    """Return kind, message and place of a failure, or why the executor that it needed was removed.

    Args:
        lost: the failure, which may not name the executor whose files it missed.
        gone: removals with an explanation by executor, and all of them under an empty name.
    """
    reason = lost.reason
    if reason.name in _LOST and _is_consequence(reason.kind):
        for each in reversed(gone.get(lost.place[0], [])):
            if lost.launched - _BEFORE <= each.at <= lost.finished + _AFTER:
                return each.kind, each.reason, (each.executor, each.host or lost.place[1])
    return reason.kind, reason.message, lost.place


def _is_consequence(kind: str | None) -> bool:
    """Return whether the removal of its executor may explain a failure better than its kind."""
    return kind is None or has_role(kind, "consequence")


def _cause_of_job(
    causes: dict[tuple[str | None, str], FailureCause], own_text: FailureText
) -> FailureCause:
    """Return the cause of a job's failure: one of its attempts', if their messages agree."""
    kind, message = own_text.kind, own_text.message
    is_summary = has_role(kind, "summary")
    same = causes.get((kind, "")) if kind else None
    if same is None and causes and (is_summary or _is_consequence(kind)):
        named = [
            each
            for each in causes.values()
            if each.name in message or (each.line and each.line in message)
        ]
        if named or is_summary or _OF_TASKS in message or not message:
            same = max(named or causes.values(), key=lambda cause: len(cause.failures))
            same.summary = kind if is_summary else None
    if same is None:
        same = causes.setdefault((kind, ""), FailureCause(kind, "", message))
    elif same.kind == kind and _LAST_OF_SEVERAL not in message.lower():
        same.message = message or same.message
    return same


def _only(names: Iterable[str]) -> str | None:
    distinct = set(names)
    return (distinct.pop() or None) if len(distinct) == 1 else None


_GIB = 2**30
# Spark's limit for messages between driver and executors, and for Kryo's buffer
_LARGEST_MIB = 2047

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
_NAMED = re.compile(SETTING)
_ORDERED = re.compile(rf"\bset(?:ting)? [\"'`]?({SETTING})[\"'`]? to [\"'`]?(-?\w[\w.]{{0,20}})")


def _number(pattern: re.Pattern[str], message: str) -> int:
    """Return the number in a message; 0 if there is none."""
    match = pattern.search(message)
    return int(match[1]) if match else 0


def _overhead(settings: SparkSettings) -> tuple[str, ...]:
    """Return the setting of memory outside of the heap, which local mode does not have."""
    if settings.runs_on("spark:", "local"):
        return ("spark.executor.memory",)
    name = "spark.executor.memoryOverhead"
    if settings.runs_on("mesos"):
        name = "spark.mesos.executor.memoryOverhead"
    elif settings.runs_on("k8s") and not settings.has_version((2, 4)):
        name = "spark.kubernetes.executor.memoryOverhead"
    elif not settings.has_version((2, 3)):
        name = "spark.yarn.executor.memoryOverhead"
    # The older name of a setting still counts where it is the only one.
    now = settings.size(name, 0) or settings.size("spark.yarn.executor.memoryOverhead", 0)
    size = 2 * (now or _given_overhead(settings))
    if name == "spark.executor.memoryOverhead":
        return (f"{name}={-(-size // _GIB)}g",)
    return (f"{name}={-(-size // _GIB) * 1024}",)  # those settings count MiB, without a unit


def _given_overhead(settings: SparkSettings) -> int:
    is_python = settings.properties.get("spark.kubernetes.resource.type", "java") != "java"
    factor = _PYTHON_OVERHEAD if is_python and settings.runs_on("k8s") else _OVERHEAD
    for name in ("spark.kubernetes.memoryOverheadFactor", "spark.executor.memoryOverheadFactor"):
        match = re.fullmatch(r"\d{0,4}\.?\d{1,9}", settings.properties.get(name, ""))
        factor = float(match[0]) if match else factor
    least = settings.size("spark.executor.minMemoryOverhead", _LEAST_OVERHEAD)
    return max(least, round(factor * settings.size("spark.executor.memory", _GIB)))


def _twice(settings: SparkSettings, name: str, default: str) -> str:
    """Return the setting with twice its value or default: a count, seconds, or memory."""
    if default.isdecimal():
        return f"{name}={2 * settings.number(name, int(default))}"
    if default.endswith("s"):
        return f"{name}={2 * settings.seconds(name, int(default[:-1]))}s"
    return f"{name}={memory_setting(2 * settings.size(name, size_bytes(default)))}"


def _python(settings: SparkSettings) -> tuple[str, ...]:
    """Return the setting of Python's own limit, or of the memory outside of the heap."""
    name = "spark.executor.pyspark.memory"
    return (_twice(settings, name, "1g"),) if settings.size(name, 0) else _overhead(settings)


def _moving(settings: SparkSettings) -> tuple[str, ...]:
    """Return settings that move the blocks of an executor before it goes, or store them."""
    service = () if settings.runs_on("k8s") or settings.is_on(_SERVICE) else (_SERVICE,)
    if not settings.has_version((3, 1)):
        return tuple(f"{each}=true" for each in service)
    off = tuple(f"{each}=true" for each in _OFFERS if not settings.is_on(each))
    return (off or (_FALLBACK,)) + service


def _scaled(settings: SparkSettings) -> tuple[str, ...]:
    """Return settings that keep executors whose shuffle files are still needed."""
    tracking = "spark.dynamicAllocation.shuffleTracking.enabled"
    has_files = any(map(settings.is_on, (_SERVICE, tracking))) or not settings.has_version((3, 0))
    idle = "spark.dynamicAllocation.executorIdleTimeout"
    return (idle,) if has_files else (f"{tracking}=true", idle)


def _result(settings: SparkSettings, message: str) -> tuple[str, ...]:
    name = "spark.driver.maxResultSize"
    match = _SIZE.search(message)
    units = {"K": 2**10, "M": MIB, "G": _GIB, "T": 2**40}
    size = float(match[1]) * units[match[2]] if match else 0
    return (f"{name}={memory_setting(2 * max(settings.size(name, _GIB, unit=1), size))}",)


def _larger(settings: SparkSettings, name: str, mib: int, size: int) -> int:
    """Return twice a setting in MiB, or twice `size` (bytes) if that is more, up to the limit."""
    now = max(settings.size(name, mib * MIB), size) / MIB
    return min(_LARGEST_MIB, -int(-2 * now // 1))


def _named_settings(message: str) -> tuple[str, ...]:
    """Return the settings that the message names, with the values that it recommends."""
    values = {match[1]: f"={match[2]}" for match in _ORDERED.finditer(message[:_HEAD])}
    names = dict.fromkeys(_NAMED.findall(message[:_HEAD]))
    return tuple(f"{each}{values.get(each, '')}" for each in names)[:_MOST_NAMED]


_BARRIER = "spark.barrier.sync.timeout"  # a year by default
_RPC, _KRYO = "spark.rpc.message.maxSize", "spark.kryoserializer.buffer.max"
_BROADCAST = "spark.sql.broadcastTimeout"

# Settings that follow from the message, or from several settings.
_COMPUTED: Mapping[str, Callable[[SparkSettings, str], tuple[str, ...]]] = {
    "overhead": lambda settings, _: _overhead(settings),
    "python": lambda settings, _: _python(settings),
    "moving": lambda settings, _: _moving(settings),
    "scaled": lambda settings, _: _scaled(settings),
    "barrier": lambda settings, _: (
        _twice(settings, _BARRIER, "1s") if _BARRIER in settings.properties else _BARRIER,
    ),
    "result": _result,
    # In MiB without a unit.
    "rpc": lambda settings, text: (f"{_RPC}={_larger(settings, _RPC, 128, _number(_SENT, text))}",),
    "kryo": lambda settings, text: (
        f"{_KRYO}={_larger(settings, _KRYO, 64, _number(_REQUIRED, text))}m",
    ),
    "broadcast_wait": lambda settings, text: (
        f"{_BROADCAST}={2 * (_number(_WAITED, text) or settings.seconds(_BROADCAST, 300))}",
    ),
    "told": lambda _, text: _named_settings(text),
}


@dataclass(frozen=True, slots=True)
class FailureAdvice:
    """Advice about a failure."""

    reason: str  # what happened, for people
    action: str  # what would change it
    settings: tuple[str, ...] = ()  # names of all settings, also of those without a computed value
    conf: tuple[str, ...] = ()  # settings with values, each like `spark.executor.memory=8g`


def advice_for(cause: FailureCause, settings: SparkSettings) -> FailureAdvice:
    """Return the advice about a cause, and about the limit at which Spark gave up for it.

    The action names the settings that have no computed value. Some values follow from sizes in the
    message of the cause.
    """
    kinds = [failure_table()[0][each] for each in (cause.kind, cause.summary) if each]
    if not kinds:
        return FailureAdvice("of no known reason", "see what the code does at that place")
    names, conf = list[str](), list[str]()
    for kind in kinds:
        lines = list(_lines(kind.settings, cause.message, settings))
        names += dict.fromkeys(each.partition("=")[0] for each in lines)
        conf += [each for each in lines if "=" in each]
    bare = [each for each in names if each not in {line.partition("=")[0] for line in conf}]
    named = f" ({', '.join(bare)})" if bare else ""
    return FailureAdvice(kinds[0].reason, kinds[0].action + named, tuple(names), tuple(conf))


def _lines(names: Iterable[str], message: str, settings: SparkSettings) -> Iterator[str]:
    """Yield the settings of a kind of `failures.toml`, each as its name or as `name=value`."""
    for each in names:
        line, *condition = each.split()
        name, _, value = line.partition("=")
        if condition and not _holds(settings, *condition):
            continue
        if line.startswith("@"):
            yield from _COMPUTED[line[1:]](settings, message)
        elif value.startswith("2*"):
            yield _twice(settings, name, value[2:])
        else:
            yield line


def _holds(settings: SparkSettings, word: str, value: str) -> bool:
    """Return whether a condition on the version, or on the cluster manager, holds."""
    if word in ("on", "off"):
        return settings.runs_on(value) is (word == "on")
    major, minor = map(int, value.split("."))
    return settings.has_version((major, minor)) is (word == "since")
