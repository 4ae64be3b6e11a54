"""A trial: one run of a program on one assignment of platforms, and how it ended.

Every outcome is data: a trial that failed, ran out of time or of memory is a `Trial`
with that status, never an exception of the process that asked for it.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform


class InvalidTrialError(InvalidInputError):
    """A trial was asked for that cannot be made."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What to run.

    Attributes:
        program: the program as JSON (`platforms.program.to_json`).
        platforms: one platform per step.
        data_directory: where the data sets of the program lie.
        threads: threads that the engines may use.
        memory_bytes: memory cap of the run: engines that can be told arrange themselves
            with it, all are stopped beyond it. None: the engines' own defaults.
    """

    program: bytes
    platforms: tuple[Platform, ...]
    data_directory: Path
    threads: int
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and not self.memory_bytes > 0:
            raise InvalidTrialError(f"memory_bytes must be positive, got {self.memory_bytes!r}")
        if not 1 <= self.threads <= 1024:  # noqa: PLR2004 (a bound against typing errors)
            raise InvalidTrialError(f"threads must be between 1 and 1024, got {self.threads!r}")
        if not self.platforms:
            raise InvalidTrialError("a trial needs one platform per step, got none")


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What a trial may use before it is stopped.

    Attributes:
        timeout_seconds: wall time of one run.
        memory_bytes: resident memory of the whole process tree, engines included.
    """

    timeout_seconds: float
    memory_bytes: int

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds <= MAX_RUNTIME_SECONDS:
            raise InvalidTrialError(
                f"timeout_seconds must be in (0, {MAX_RUNTIME_SECONDS:g}], "
                f"got {self.timeout_seconds!r}"
            )
        if not (math.isfinite(self.memory_bytes) and self.memory_bytes > 0):
            raise InvalidTrialError(f"memory_bytes must be positive, got {self.memory_bytes!r}")

    def within(self, memory_bytes: int | None) -> "TrialLimits":
        """These limits, with the memory cap of a request where it is the lower one."""
        if memory_bytes is None or memory_bytes >= self.memory_bytes:
            return self
        return replace(self, memory_bytes=memory_bytes)


@dataclass(frozen=True, slots=True)
class SegmentSeconds:
    """Wall time of one segment: consecutive steps on one platform."""

    platform: Platform
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """How a run ended.

    Attributes:
        platforms: what ran where.
        status: how it ended.
        measurement: what was measured; up to the end of a run that was stopped,
            None where nothing could be measured.
        segments: wall time of each segment, empty unless the status is `OK`.
        host_busy_cores: cores that the rest of the machine kept busy meanwhile, over
            at least a quarter of a second.
        reason: why it did not end well, empty otherwise; local text, never released.
    """

    platforms: tuple[Platform, ...]
    status: ExecutionStatus
    measurement: Measurement | None
    segments: tuple[SegmentSeconds, ...] = ()
    host_busy_cores: float = 0.0
    reason: str = ""
