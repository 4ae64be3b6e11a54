"""The outcome of a campaign's trial: how it ended, and the resources that it used.

A figure that could not be seen, such as the memory of a function on another machine, is None; it is
never 0. `noisy` is a trial that went well on a machine that was disturbed: still data, but flagged.
`skipped` says that a trial never ran, which is no failure.
"""

from dataclasses import dataclass
from enum import StrEnum


class TrialStatus(StrEnum):
    """How a trial ended."""

    OK = "ok"
    WARMUP = "warmup"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SKIPPED = "skipped"
    NOISY = "noisy"

    @property
    def is_data(self) -> bool:
        """Whether its run time counts."""
        return self in (TrialStatus.OK, TrialStatus.NOISY)

    @property
    def is_failure(self) -> bool:
        """Whether it ran and did not end well."""
        return self in (TrialStatus.FAILED, TrialStatus.TIMEOUT, TrialStatus.OOM)


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What a trial or a component of it used; None where that cannot be seen.

    Attributes:
        cpu_seconds: of all its processes.
        peak_bytes: resident memory at its peak; of a trial the sum over its process tree,
            as sampled, of a component its largest process.
        read_bytes: asked for, also where the page cache answered.
        written_bytes: handed to the system.
        context_switches: of all its processes.
    """

    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None


@dataclass(frozen=True, slots=True)
class ComponentSpan:
    """One component within a trial.

    Attributes:
        component: its name.
        start_seconds: after the trial's start.
        end_seconds: after the trial's start.
        resources: what it used.
        queue_seconds: how long a remote function's answer was under way or waited for.
        compute_seconds: how long the function says that it computed.
    """

    component: str
    start_seconds: float
    end_seconds: float
    resources: ResourceUse = ResourceUse()
    queue_seconds: float | None = None
    compute_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """How a trial ended.

    Attributes:
        status: one of `TrialStatus`.
        reason: why it did not end well, or why it is flagged; local text, never released.
        wall_seconds: from the first component's start to the last one's end; of a trial
            that was stopped until then, None where it did not begin.
        startup_seconds: importing and connecting before that.
        resources: of the whole trial.
        spans: of its components that began and ended.
        foreign_cores: cores that others kept busy meanwhile, stolen time included.
        stolen_cores: cores that the machine's own host took.
        load_before: load average of the last minute, when it began.
        load_after: and when it ended.
    """

    status: TrialStatus
    reason: str = ""
    wall_seconds: float | None = None
    startup_seconds: float | None = None
    resources: ResourceUse = ResourceUse()
    spans: tuple[ComponentSpan, ...] = ()
    foreign_cores: float | None = None
    stolen_cores: float | None = None
    load_before: float | None = None
    load_after: float | None = None
