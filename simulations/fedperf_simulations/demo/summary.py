"""The findings of a demo, as `summary.json` and the page show them.

The error of a model on workloads is a factor: exp of the mean of |log(predicted / run time)|.
Whether one error is smaller than another is judged by resampling the same workloads.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_memory.paired import PairedComparison
from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an error, in percent of what it was; below 0 is better.

    Attributes:
        percent: of the mean.
        low: end of its 95 % bootstrap interval.
        high: the other end.
        workloads: that were resampled.
    """

    percent: float
    low: float
    high: float
    workloads: int

    @classmethod
    def between(cls, before: Floats, after: Floats) -> Self:
        """The change from absolute log errors on the same workloads.

        Raises:
            InvalidInputError: there are fewer than two workloads.
        """
        found = PairedComparison.percent(after, before)
        if found.interval is None:
            raise InvalidInputError(f"{found.cases} workloads give no interval, two are needed")
        return cls(found.mean, *found.interval, found.cases)

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high

    @property
    def is_better(self) -> bool:
        """Whether all of the interval is."""
        return self.high < 0


def factor_of(errors: Floats) -> float:
    """The factor by which answers are off, from absolute log errors."""
    return math.exp(float(errors.mean()))


@dataclass(frozen=True, slots=True)
class NewParticipantResult:
    """Errors of a newcomer's answers, as factors.

    Attributes:
        own_runs: that it has.
        alone: from these alone; None without any.
        start: with the start that never saw its platform and family.
        joined: with what the organizations learned.
        shipped: with the start that ships, which knows both.
        change: from `start` to `joined`.
    """

    own_runs: int
    alone: float | None
    start: float
    joined: float
    shipped: float
    change: Change


@dataclass(frozen=True, slots=True)
class MachineResult:
    """Errors of the version in force on one machine, as factors.

    Attributes:
        name: of the machine.
        before: its error before the cap came.
        after: its error at the end of the year.
        change: from `before` to `after`.
    """

    name: str
    before: float
    after: float
    change: Change


@dataclass(frozen=True, slots=True)
class DriftAlarm:
    """A drift that several organizations' reports showed.

    Attributes:
        window: whose reports gave it away.
        platforms: that changed.
        factor: by which run times grew.
        organizations: who showed it.
        epoch_window: with which an epoch began; None where the year had no window left.
    """

    window: int
    platforms: tuple[str, ...]
    factor: float
    organizations: int
    epoch_window: int | None


@dataclass(frozen=True, slots=True)
class WindowErrors:
    """Errors of the version in force at the end of a window, as factors."""

    newcomer: float
    old_machine: float
    new_machine: float


@dataclass(frozen=True, slots=True)
class YearResult:
    """The results of the year: errors, drifts and promoted versions.

    Attributes:
        organizations: how many they are.
        workloads: that each has.
        epsilon: of all releases of one of them.
        platform: of the newcomer.
        family: of its jobs.
        windows: errors at the end of each.
        cap_window: with which the cap came.
        newcomer: without and with own runs.
        machines: the old one, then the new one.
        noticed: None where no reports showed the cap.
        false_alarms: drifts that reports showed before it.
        rehearsed: synthetic rows of the old machine that rounds of the new epoch rehearse.
        promoted: versions that the gate let through.
        last_word: what the gate said of the newest version.
        seconds: of computing.
    """

    organizations: int
    workloads: int
    epsilon: float
    platform: str
    family: str
    windows: tuple[WindowErrors, ...]
    cap_window: int
    newcomer: tuple[NewParticipantResult, ...]
    machines: tuple[MachineResult, ...]
    noticed: DriftAlarm | None
    false_alarms: int
    rehearsed: int
    promoted: int
    last_word: str
    seconds: float


@dataclass(frozen=True, slots=True)
class UnscheduledSlots:
    """Slots that the schedule does not have, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """The releases of one kind: how many, and their bytes together."""

    kind: str
    releases: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class OrganizationResult:
    """The releases of one organization, and the epsilon that they cost.

    Attributes:
        name: who it is.
        size_class: declared.
        workloads: in its store.
        unit: of privacy.
        epsilon_spent: of all releases of the period, for add or remove one unit.
        replace_one_epsilon: the same, when one is replaced by another.
        epsilon_budget: promised for the period.
        delta: of the budget.
        left: by kind.
        slots_not_planned: what the schedule leaves out.
        lost: slots that did not leave, left as noise alone or have no receipt, each with why.
        fingerprint: of its key, the same on both sides.
    """

    name: str
    size_class: str
    workloads: int
    unit: str
    epsilon_spent: float
    replace_one_epsilon: float
    epsilon_budget: float
    delta: float
    left: tuple[ReleaseSummary, ...]
    slots_not_planned: tuple[UnscheduledSlots, ...]
    lost: tuple[str, ...]
    fingerprint: str

    @property
    def releases(self) -> int:
        """Number of releases that left."""
        return sum(each.releases for each in self.left)

    @property
    def bytes_out(self) -> int:
        """Bytes of all releases that left."""
        return sum(each.bytes_out for each in self.left)


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """One round, as the coordinator shows it.

    Attributes:
        round: its number.
        outcome: how it ended.
        asked: organizations whose schedule has the slot.
        replies: accepted updates.
        refused: the others, by reason.
    """

    round: int
    outcome: str
    asked: int
    replies: int
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """Everything that a demo found.

    Attributes:
        seed: of everything that is drawn.
        year: what organizations learned, in memory.
        organizations: what left three that ran as programs.
        rounds: that they took part in.
        total_seconds: of the demo.
        seconds: of each stage; some went on side by side.
        provenance: versions, data, machine.
    """

    seed: int
    year: YearResult
    organizations: tuple[OrganizationResult, ...]
    rounds: tuple[RoundSummary, ...]
    total_seconds: float
    seconds: Mapping[str, float]
    provenance: Mapping[str, object]

    @property
    def lost(self) -> tuple[str, ...]:
        """Every report or update that did not leave, was refused or held nothing, and why."""
        own = (f"{each.name}: {what}" for each in self.organizations for what in each.lost)
        refused = (
            f"round {each.round}: {count} {reason}"
            for each in self.rounds
            for reason, count in each.refused.items()
        )
        return (*own, *refused)

    @property
    def shortfall(self) -> str:
        """The findings that the demo could not show, in one line; empty where it showed all."""
        parts = []
        if not self.year.promoted:
            parts.append(f"nothing was promoted ({self.year.last_word})")
        if self.lost:
            parts.append(f"lost: {', '.join(self.lost)}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, object]:
        """The content of `summary.json`."""
        return {"name": "demo", **asdict(self), "lost": self.lost, "shortfall": self.shortfall}
