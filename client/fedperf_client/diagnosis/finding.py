"""One finding: what is wrong with a job, how the log shows it, and what would change it.

The time at stake is a bound: the job would be faster by so much at most, were the finding
mended and nothing else changed. Bounds of several findings overlap and do not add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique


@unique
class Symptom(StrEnum):
    """What a finding is about."""

    SPILL = "spill"
    SKEW = "skew"
    STRAGGLER = "straggler"
    FEW_TASKS = "few tasks"
    LAST_WAVE = "last wave"
    TINY_TASKS = "tiny tasks"
    EXECUTOR_WAIT = "executor wait"
    DRIVER = "driver alone"
    GARBAGE = "garbage collection"
    SHUFFLE_WAIT = "shuffle wait"
    SHUFFLE_GROWTH = "shuffle growth"
    BROADCAST = "broadcast"
    FAILURES = "failures"
    DROPPED_EVENTS = "dropped events"
    OUTSIDE_JOBS = "outside jobs"


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What a rule found."""

    symptom: Symptom  # what it is about
    place: str  # the stage, or the job as a whole
    seconds: float  # of the job's time that are at stake, at most
    evidence: str  # figures of the log, for people who look them up there
    advice: str  # what would change it
    conf: tuple[str, ...] = ()  # the same as settings, each like `spark.sql.shuffle.partitions=400`
    # those of the evidence, for programs
    figures: Mapping[str, float | str | tuple[str, ...]] = field(default_factory=dict)
    share: float | None = None  # of the job's cost at stake, where that is not that of its time

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"the time at stake must not be negative, got {self.seconds}")
