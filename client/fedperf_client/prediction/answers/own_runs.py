"""What is known of the own runs of a job, beside their times: a change, and other load.

An answer that rests on own runs is about conditions as they were. Where a change is sure, older
runs count on the newer level already (`level_shifts`). Where others kept the machine busy, nobody
knows how long the job takes without them: the CPU time is a bound, and the interval is wider.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fedperf_client.prediction.mixture.level_shifts import SURE, WorkloadChange
from fedperf_client.text.durations import duration_text
from fedperf_client.text.numbers import counted
from fedperf_shared.execution import Execution, Remark

LEAST_LOAD, MOST_LOAD = 2.0, 10.0
"""By how much other load makes a run longer, where most runs were disturbed; at least, at most."""

MOSTLY = 0.5
"""Share of the runs from which on their disturbance counts."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Other load while own runs were made.

    Attributes:
        runs: that an answer rests on.
        disturbed: of these, while others kept the machine busy.
        cpu_seconds: their CPU time, the median; None where it was not seen.
        wall_seconds: their wall time, the median; None where none was disturbed.
        busy_cores: that others kept busy, the median; None where it was not seen.
        cores: of the machine; None where it is not known.
    """

    runs: int
    disturbed: int
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    busy_cores: float | None = None
    cores: int | None = None

    @classmethod
    def of(cls, runs: Sequence[Execution]) -> Self:
        """Of executions that ended well."""
        noisy = [
            each.measurement
            for each in runs
            if Remark.NOISY in each.origin.remarks and each.measurement is not None
        ]
        cpu = [each.cpu_seconds for each in noisy if each.cpu_seconds > 0]
        return cls(
            len(runs),
            len(noisy),
            statistics.median(cpu) if cpu else None,
            statistics.median(each.runtime_seconds for each in noisy) if noisy else None,
        )

    @property
    def half_width(self) -> float:
        """By how much the 90 % interval grows on either side, log seconds; squares add.

        It is how many times longer runs became by the load: at most what the load leaves, and what
        the wall time is of the CPU time.
        """
        if self.disturbed == 0 or self.disturbed < MOSTLY * self.runs:
            return 0.0
        bounds = [MOST_LOAD]
        if self.busy_cores is not None and self.cores is not None:
            idle = max(self.cores - self.busy_cores, self.cores / MOST_LOAD)
            bounds.append(self.cores / idle)
        if self.cpu_seconds is not None and self.wall_seconds is not None:
            bounds.append(self.wall_seconds / self.cpu_seconds)
        return math.log(max(LEAST_LOAD, min(bounds)))

    @property
    def sentence(self) -> str:
        """The same for people; empty where no run was disturbed."""
        if self.disturbed == 0:
            return ""
        some = "all" if self.disturbed == self.runs else str(self.disturbed)
        runs = "the run was" if self.runs == 1 else f"{some} of {self.runs} runs were"
        busy = "the machine"
        if self.busy_cores is not None and self.cores is not None:
            busy = f"{self.busy_cores:.1f} of {counted(self.cores, 'core')}"
        said = f"{runs} made while others kept {busy} busy"
        if self.cpu_seconds is not None:
            said += f"; CPU time is {duration_text(self.cpu_seconds)}"
        return said + ("; intervals are wider for it" if self.half_width else "")

    def as_row(self) -> dict[str, object]:
        """The figures by name."""
        return {
            "runs": self.runs,
            "disturbed": self.disturbed,
            "busy_cores": self.busy_cores,
            "machine_cores": self.cores,
            "cpu_seconds": self.cpu_seconds,
            "sentence": self.sentence or None,
        }


@dataclass(frozen=True, slots=True)
class JobChange:
    """The change of a job's times that its answers know of.

    Attributes:
        found: what is sure.
        source: what recorded the first run since, with its version.
    """

    found: WorkloadChange
    source: str

    @property
    def sentence(self) -> str:
        """The same for people."""
        found, (lower, upper) = self.found, self.found.change.ends
        day = f"{found.since:%Y-%m-%d}"
        since = f"{self.source}, first on {day}" if found.is_upgrade else day
        return (
            f"it takes {math.exp(found.change.log_ratio):.3g} times as long since {since} "
            f"({SURE:.0%} interval {lower:.3g} to {upper:.3g}; {counted(found.runs_since, 'run')} "
            f"since, {found.runs_before} before), as fedperf compare says; older runs count on "
            "that level"
        )

    def as_row(self) -> dict[str, object]:
        """The figures by name; the ratio is below 1 where it became faster."""
        found, (lower, upper) = self.found, self.found.change.ends
        return {
            "ratio": math.exp(found.change.log_ratio),
            "lower": lower,
            "upper": upper,
            "level": SURE,
            "since": found.since.isoformat(),
            "source": self.source if found.is_upgrade else None,
            "runs_before": found.runs_before,
            "runs_since": found.runs_since,
            "sentence": self.sentence,
        }
