"""The attempts at a stage's tasks: of each its interval, its executor, its end and its figures.

Numbers stand in one array. What attempts said that did not succeed is kept once for all of a job
that said the same.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field

from fedperf_client.sources.spark.fields import Event, MalformedEventError, integer, milliseconds

CALLED_OFF = frozenset({"TaskKilled", "TaskCommitDenied"})
"""Ends that are no failures: another attempt was first, or nobody needed it any more."""

RESUBMITTED = "Resubmitted"
"""Told of a task that had succeeded, when what it wrote was gone with its executor."""

SUCCEEDED = -1
"""Among the ends of attempts, which else are numbers of reasons."""

COLUMNS = 7
"""Launched, finished, executor, end, run time, bytes read, rows read: of each attempt."""

MAX_REASONS, MAX_NAMES = 500, 5_000
"""Told apart in one job: reasons, and executors. Later ones have no message, and no name."""

_LONGEST_NAME, _LONGEST_MESSAGE, _LINES = 120, 1000, 3
_NANOSECONDS = 1_000_000
"""In a millisecond."""

_MESSAGES = ("Description", "Loss Reason", "Kill Reason", "Message")
_NO_MEMORY = ("OutOfMemory", "exceeding memory limits", "exit code 137", "exit code 143")


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why attempts did not succeed; local text.

    Attributes:
        name: in one word of the log, such as the class of an exception.
        message: the first lines of what the log says.
        is_called_off: that was no failure, see `CALLED_OFF`.
        is_out_of_memory: whether the log says that memory ran out.
    """

    name: str
    message: str = ""
    is_called_off: bool = False
    is_out_of_memory: bool = False

    @classmethod
    def of(cls, end: Event) -> "EndReason":
        """The reason of a "Task End Reason"."""
        reason, told = end.get("Reason"), end.get("Class Name")
        named = told if isinstance(told, str) else reason if isinstance(reason, str) else "unknown"
        said = "\n".join(each for name in _MESSAGES if isinstance(each := end.get(name), str))
        words = (named, said, end.get("Full Stack Trace"))
        return cls(
            named.rpartition(".")[2][:_LONGEST_NAME],
            first_lines(said),
            str(reason) in CALLED_OFF,
            any(each in word for word in words if isinstance(word, str) for each in _NO_MEMORY),
        )


def first_lines(said: object) -> str:
    """The first lines of a text, cut where they are long; empty where it is none."""
    if not isinstance(said, str):
        return ""
    return "\n".join(said[:_LONGEST_MESSAGE].strip().splitlines()[:_LINES])


@dataclass(slots=True)
class Names:
    """Executors with their hosts, and reasons of ends, that attempts of one job refer to."""

    executors: dict[tuple[str, str], int] = field(default_factory=dict)
    reasons: dict[EndReason, int] = field(default_factory=dict)

    def executor(self, info: Event) -> int:
        """The number of a task's executor; -1 where it is unknown."""
        identity, host = info.get("Executor ID"), info.get("Host")
        if not isinstance(identity, str):
            return -1
        key = identity[:_LONGEST_NAME], host[:_LONGEST_NAME] if isinstance(host, str) else ""
        if key not in self.executors and len(self.executors) >= MAX_NAMES:
            return -1
        return self.executors.setdefault(key, len(self.executors))

    def reason(self, end: Event) -> int:
        """The number of the reason why a task ended."""
        found = EndReason.of(end)
        if found not in self.reasons and len(self.reasons) >= MAX_REASONS:
            found = EndReason("unknown", "", found.is_called_off, found.is_out_of_memory)
        return self.reasons.setdefault(found, len(self.reasons))


@dataclass(slots=True)
class StageAttempt:
    """One attempt at a stage, as far as its log was read.

    Attributes:
        number, attempt: as the log counts them.
        name: the call that made it; local text.
        submitted_at: None where the log does not tell.
        announced: tasks that it was to have; 0 where the log does not tell.
        is_done: it was completed and did not fail.
        failure: why it failed; local text.
        profile: of resources, that it asks for.
        runs_python: beside the JVM, whose processor time the log tells.
        had_executors: whether one that it could use was there when it was submitted.
        at_start: none had ever been there by then: the application was starting.
        slots: tasks that its executors could run at once; 0 where that is unknown.
        succeeded: tasks of which the end was told one by one.
        has_ends: whether the end of any was told.
        columns: of every attempt at a task, if figures are asked for.
        sums: of figures of the tasks that succeeded.
        most_held: the most memory that one of these had.
    """

    number: int
    attempt: int
    name: str = ""
    submitted_at: int | None = None
    announced: int = 0
    is_done: bool = False
    failure: str = ""
    profile: int = 0
    runs_python: bool = False
    had_executors: bool = True
    at_start: bool = False
    slots: int = 0
    succeeded: int = 0
    has_ends: bool = False
    columns: "array[int]" = field(default_factory=lambda: array("q"))
    sums: Counter[str] = field(default_factory=Counter)
    most_held: int = 0

    def take(self, event: Event, info: Event, end: Event, names: Names) -> None:
        """Take the end of an attempt at a task with its figures."""
        launched, finished = milliseconds(info, "Launch Time"), milliseconds(info, "Finish Time")
        place = launched, finished, names.executor(info)
        if end.get("Reason") != "Success":
            self.columns.extend((*place, names.reason(end), 0, 0, 0))
            return
        figures = figures_of(_part(event, "Task Metrics"))
        read = figures["input_bytes"] + figures["shuffle_read"]
        rows = figures["rows_read"]
        self.columns.extend((*place, SUCCEEDED, figures.pop("run"), read, rows))
        self.most_held = max(self.most_held, figures["held"])
        self.sums.update(figures)


def figures_of(metrics: Event) -> dict[str, int]:
    """The figures of a task that succeeded, by names, all times in milliseconds but two.

    What the log has in nanoseconds stays in them: rounded, thousands of short tasks lose a fifth.

    Raises:
        MalformedEventError: a figure is no number, or negative.
    """
    read = _part(metrics, "Shuffle Read Metrics")
    written = _part(metrics, "Shuffle Write Metrics")
    given = _part(metrics, "Input Metrics")
    run, garbage = _count(metrics, "Executor Run Time"), _count(metrics, "JVM GC Time")
    fetch_wait, spilled = _count(read, "Fetch Wait Time"), _count(metrics, "Memory Bytes Spilled")
    return {
        "run": run,
        "rows_read": _count(read, "Total Records Read") + _count(given, "Records Read"),
        "rows_written": _count(written, "Shuffle Records Written"),
        "cpu": _count(metrics, "Executor CPU Time"),
        "garbage": min(garbage, run),
        "fetch_wait": min(fetch_wait, run),
        "shuffle_write": min(_count(written, "Shuffle Write Time"), run * _NANOSECONDS),
        "input_bytes": _count(given, "Bytes Read"),
        "shuffle_read": _count(read, "Remote Bytes Read") + _count(read, "Local Bytes Read"),
        "shuffle_written": _count(written, "Shuffle Bytes Written"),
        "spilled_memory": spilled,
        "spilled_disk": _count(metrics, "Disk Bytes Spilled"),
        "spilled_tasks": int(spilled > 0),
        "spilled_run": max(0, run - garbage - fetch_wait) if spilled else 0,
        "held": _count(metrics, "Peak Execution Memory"),
    }


def in_milliseconds(sums: Counter[str]) -> dict[str, int]:
    """The sums over tasks of `figures_of`, all times in milliseconds."""
    times = {name: sums[name] // _NANOSECONDS for name in ("cpu", "shuffle_write")}
    return {**sums, **times}


def _part(metrics: Event, name: str) -> Event:
    found = metrics.get(name)
    return found if isinstance(found, dict) else {}


def _count(metrics: Event, name: str) -> int:
    """A figure of a task; 0 where it is missing, as in logs of older versions."""
    if name not in metrics:
        return 0
    value = integer(metrics, name)
    if value < 0:
        raise MalformedEventError(name)
    return value
