"""Ends that were no success: of attempts at tasks, of jobs and stages, and of executors."""

from collections.abc import Iterable
from dataclasses import dataclass

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
