"""Ends that were no success, and their causes: failures with the same cause are told as one.

Attempts at tasks end so, jobs and stages, and executors. What an executor took with it when it left
fails elsewhere and later: the cause is why it left.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fedperf_client.sources.spark.failures.reasons import (
    CALLED_OFF,
    EXECUTOR_REMOVED,
    KILLED,
    FailureKind,
    reason_of,
    told_line,
)
from fedperf_client.sources.spark.fields import Event, part, words

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
    kind: FailureKind | None = None
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
        return self.name in KILLED and self.kind in CALLED_OFF


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
    kind: FailureKind | None

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
    kind: FailureKind | None

    @classmethod
    def of(cls, what: str, said: object) -> "FailureText":
        """Of a text that the log has, or has not."""
        known = said if isinstance(said, str) else ""
        return cls(what, kept_text(known), reason_of(known))


def last_text(texts: Iterable[FailureText]) -> FailureText | None:
    """What tells most of why something failed: the last words that are not about calling off."""
    told = [each for each in texts if each.message]
    own = [each for each in told if each.kind is not FailureKind.CANCELLED]
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

_K = FailureKind
_CONSEQUENCES = frozenset(
    {None, _K.SHUFFLE_LOST, _K.RESULT_LOST, _K.EXECUTOR_LOST, _K.DISASSOCIATED, _K.TERMINATED}
)
"""Kinds that the removal of the executor may explain better, and none at all."""

_SUMMARIES = frozenset({_K.STAGE_ATTEMPTS, _K.EXCLUDED, _K.BARRIER})
"""Kinds of a job's failure for which others are the cause."""

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

    kind: FailureKind | None
    name: str
    message: str = ""
    failures: list[LostAttempt] = field(default_factory=list)
    places: set[Place] = field(default_factory=set)
    ends_job: bool = False
    summary: FailureKind | None = None

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
            "reason": self.kind and self.kind.value,
            "summary": self.summary and self.summary.value,
            "error": self.name or None,
            "message": self.line or None,
            "executor": self.executor,
            "host": self.host,
            "stage": self.stage,
        }
        return {
            "failed_tasks": len(self.failures),
            "missed_files": self.missing,
            "is_out_of_memory": self.kind is not None and self.kind.is_out_of_memory,
            "is_outside": self.kind is not None and self.kind.is_outside,
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
    found: dict[tuple[FailureKind | None, str], FailureCause] = {}
    gone: dict[str, list[Removal]] = {"": []}
    for removal in removals:
        if removal.kind not in _CONSEQUENCES:
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
) -> tuple[FailureKind | None, str, Place]:
    """Kind, message and place of a failure, or why the executor that it needs was removed.

    Args:
        lost: the failure; it may not tell whose files it missed.
        gone: removals that explain something by their executors, and all of them under no name.
    """
    reason = lost.reason
    if reason.name in _LOST and reason.kind in _CONSEQUENCES:
        for each in reversed(gone.get(lost.place[0], [])):
            if lost.launched - _BEFORE <= each.at <= lost.finished + _AFTER:
                return each.kind, each.reason, (each.executor, each.host or lost.place[1])
    return reason.kind, reason.message, lost.place


def _judged(
    found: dict[tuple[FailureKind | None, str], FailureCause], own_text: FailureText
) -> FailureCause:
    """The cause for which a job failed: one of its attempts', where their texts agree."""
    kind, said = own_text.kind, own_text.message
    same = found.get((kind, "")) if kind else None
    if same is None and found and kind in _CONSEQUENCES | _SUMMARIES:
        named = [
            each
            for each in found.values()
            if each.name in said or (each.line and each.line in said)
        ]
        if named or kind in _SUMMARIES or _OF_TASKS in said or not said:
            same = max(named or found.values(), key=lambda cause: len(cause.failures))
            same.summary = kind if kind in _SUMMARIES else None
    if same is None:
        same = found.setdefault((kind, ""), FailureCause(kind, "", said))
    elif same.kind is kind and _LAST_OF_SEVERAL not in said.lower():
        same.message = said or same.message
    return same


def _only(names: Iterable[str]) -> str | None:
    every = set(names)
    return (every.pop() or None) if len(every) == 1 else None
