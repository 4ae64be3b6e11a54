"""A finding of a check: ok, a warning or a problem, with advice on what to do.

Every finding names its check and says what was found. The advice is empty where nothing is to be
done.
"""

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Severity(StrEnum):
    """How good or bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Attributes:
        check: which one.
        verdict: how good or bad it is.
        what: what was found.
        advice: what to do, empty where nothing is to be done.
    """

    check: str
    verdict: Severity
    what: str
    advice: str = ""

    def as_row(self) -> dict[str, object]:
        """For programs."""
        return {
            "check": self.check,
            "verdict": self.verdict,
            "what": self.what,
            "advice": self.advice,
        }


Statement = tuple[Severity, str, str]


def ok(what: str) -> Statement:
    """A finding that asks for nothing."""
    return Severity.OK, what, ""


def warning(what: str, advice: str) -> Statement:
    """A finding that may wait, with what to do."""
    return Severity.WARNING, what, advice


def problem(what: str, advice: str) -> Statement:
    """A finding that stops something, with what to do."""
    return Severity.PROBLEM, what, advice
