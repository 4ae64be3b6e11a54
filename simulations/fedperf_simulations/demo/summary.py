"""The findings of a demo, as `summary.json` and the page show them.

The error of a model on workloads is a factor: exp of the mean of |log(predicted / run time)|.
Whether one error is smaller than another is judged by resampling the same workloads.

Each finding is one line of text with its interval. A difference is only named if its interval
leaves out 0. Windows count from 1. The last output of a demo is three small tables and these lines.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.harness.paired import PairedComparison

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an error, in percent of what it was. Below 0 is better.

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
        """Return the change from absolute log errors on the same workloads.

        Raises:
            InvalidInputError: there are fewer than two workloads.
        """
        comparison = PairedComparison.percent(after, before)
        if comparison.interval is None:
            raise InvalidInputError(
                f"{comparison.cases} workloads give no interval, two are needed"
            )
        return cls(comparison.mean, *comparison.interval, comparison.cases)

    @property
    def is_distinguishable(self) -> bool:
        """Return whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high

    @property
    def is_better(self) -> bool:
        """Return whether all of the interval is."""
        return self.high < 0


def factor_of(errors: Floats) -> float:
    """Return the factor by which predictions are off, from absolute log errors."""
    return math.exp(float(errors.mean()))


@dataclass(frozen=True, slots=True)
class NewParticipantResult:
    """Errors of a new participant's predictions, as factors.

    Attributes:
        own_runs: that it has.
        alone: local-only predictions; None without own runs.
        start: with the model pretrained without its platform and family.
        joined: with what the organizations learned.
        shipped: with the shipped model, which was trained on both.
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
        window: whose reports showed it.
        platforms: that changed.
        factor: by which run times grew.
        organizations: who showed it.
        epoch_window: with which a regime began; None where the year had no window left.
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
        platform: of the new participant.
        family: of its jobs.
        windows: errors at the end of each.
        cap_window: with which the cap came.
        newcomer: without and with own runs.
        machines: the old one, then the new one.
        noticed: None where no reports showed the cap.
        false_alarms: drifts that reports showed before it.
        rehearsed: synthetic rows of the old machine that rounds of the new regime rehearse.
        promoted: versions that the gate let through.
        last_word: the gate's verdict on the newest version.
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
        """The findings that the demo could not show, in one line. Empty where it showed all."""
        parts = []
        if not self.year.promoted:
            parts.append(f"nothing was promoted ({self.year.last_word})")
        if self.lost:
            parts.append(f"lost: {', '.join(self.lost)}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, object]:
        """Return the content of `summary.json`."""
        return {"name": "demo", **asdict(self), "lost": self.lost, "shortfall": self.shortfall}


SPREAD = "over workloads, of this one training"
"""The source of variation of the demo's intervals. Another training moves errors by more."""

FIVE_SEEDS = Path(__file__).with_name("five_seeds.json")
"""Errors of new participants in five whole demos, and the commit at which these ran."""


def describe_change(change: Change) -> str:
    """Return the change of an error in words, with its 95 % interval."""
    if not change.is_distinguishable:
        return f"no difference ({change.low:+z.0f} to {change.high:+z.0f} %)"
    if change.is_better:
        return f"{-change.percent:.0f} % less error ({-change.high:.0f} to {-change.low:.0f} %)"
    return f"{change.percent:.0f} % more error ({change.low:.0f} to {change.high:.0f} %)"


def factor(value: float | None) -> str:
    """Return the factor by which predictions are off, in words."""
    return "none" if value is None else f"x{value:.2f}"


def runs(result: NewParticipantResult) -> str:
    """Return the number of a new participant's own runs, in words."""
    return f"{result.own_runs} own runs" if result.own_runs else "no own runs"


def lines(summary: DemoSummary) -> list[str]:
    """Return all findings, a line each, with the letter of its part in front."""
    year = summary.year
    return [
        *(f"(a) A new participant with {describe_new_participant(each)}" for each in year.newcomer),
        f"(b) {noticed(year)}",
        *(f"(b) On {machine(each)}" for each in reversed(year.machines)),
        f"(c) {left(summary.organizations)}",
    ]


def describe_new_participant(result: NewParticipantResult) -> str:
    """Return the gain of joining with so many own runs, in words."""
    return (
        f"{runs(result)}: off by {factor(result.joined)} joined, {factor(result.start)} with the "
        f"base model: {describe_change(result.change)} {SPREAD}"
    )


def of_five_seeds(own_runs: int) -> str:
    """Return what seeds 0 to 4 found, each with a training of its own, as means and ranges."""
    every = orjson.loads(FIVE_SEEDS.read_bytes())["newcomers"]
    matching = [each for each in every if each["own_runs"] == own_runs]
    joined, start = ([each[name] for each in matching] for name in ("joined", "start"))
    changes = [100 * (math.log(j) / math.log(s) - 1) for j, s in zip(joined, start, strict=True)]
    return (
        f"mean and range of seeds 0 to 4: {_range('x{:.2f}', joined)} joined, "
        f"{_range('x{:.2f}', start)} with the base model, {_range('{:+.0f} %', changes)} error"
    )


def _range(form: str, values: Sequence[float]) -> str:
    mean, low, high = sum(values) / len(values), min(values), max(values)
    return f"{form.format(mean)} ({form.format(low)} to {form.format(high)})"


def noticed(year: YearResult) -> str:
    """Return whether reports gave the cap away."""
    came = f"Half a core from window {year.cap_window + 1} of {len(year.windows)} on"
    alarms = "" if not year.false_alarms else f"; {year.false_alarms} false alarms before"
    if year.noticed is None:
        return f"{came}: not noticed{alarms}"
    drifts = year.noticed
    began = (
        "no window was left to learn it apart"
        if drifts.epoch_window is None
        else f"from window {drifts.epoch_window + 1} on (a new regime) it is learned separately"
    )
    return (
        f"{came}, unannounced: the noisy reports of window {drifts.window + 1} gave it away, as "
        f"jobs on {' and '.join(drifts.platforms)} took {factor(drifts.factor)} the time expected "
        f"at {drifts.organizations} of {year.organizations} members; {began}{alarms}"
    )


def machine(result: MachineResult) -> str:
    """Return the change of the predictions on one machine, in words."""
    return (
        f"{result.name}: off by {factor(result.before)} before the cap, {factor(result.after)} at "
        f"the end: {describe_change(result.change)}"
    )


def left(results: Iterable[OrganizationResult]) -> str:
    """Return the releases of all organizations that ran as programs, in words."""
    every = tuple(results)
    spent = max((each.epsilon_spent for each in every), default=0.0)
    units = " or ".join(sorted({each.unit for each in every}))
    return (
        f"{sum(each.releases for each in every)} releases left {len(every)} organizations, "
        f"{amount(sum(each.bytes_out for each in every))} in all, nothing else; epsilon "
        f"{spent:.3f} at most for one {units}"
    )


def amount(count: float) -> str:
    """Bytes for reading."""
    for unit in ("bytes", "kB"):
        if count < 1000:  # noqa: PLR2004 - the next unit
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} MB"


def show_summary(summary: DemoSummary, console: Console) -> None:
    """Print what was found."""
    year = summary.year
    console.print(
        f"[bold](a) a new participant: {year.family} jobs on {year.platform}, absent from "
        "pretraining; off by a factor of[/]"
    )
    console.print(_new_participant_table(year))
    console.print(Text(f"intervals are {SPREAD}"))
    for each in year.newcomer:
        console.print(Text(f"{runs(each)}, {of_five_seeds(each.own_runs)}"))
    console.print(Text(f"(b) {noticed(year)}; off by a factor of", style="bold"))
    console.print(_machines_table(year))
    console.print("[bold](c) what left, for how much[/]")
    console.print(_left_table(summary.organizations))


def _new_participant_table(year: YearResult) -> Table:
    table = _table("own runs", "alone", "base", "joined", "shipped", "joined against base")
    for each in year.newcomer:
        errors = map(factor, (each.alone, each.start, each.joined, each.shipped))
        table.add_row(str(each.own_runs or "none"), *errors, _verdict(each.change))
    return table


def _machines_table(year: YearResult) -> Table:
    table = _table("on", "before", "at the end", "change")
    for each in reversed(year.machines):
        table.add_row(each.name, factor(each.before), factor(each.after), _verdict(each.change))
    return table


def _left_table(results: tuple[OrganizationResult, ...]) -> Table:
    table = _table("organization", "releases", "bytes", "epsilon")
    for each in results:
        spent = f"{each.epsilon_spent:.3f} of {each.epsilon_budget:g} for a {each.unit}"
        who = f"{each.name} ({each.size_class})"
        table.add_row(who, str(each.releases), amount(each.bytes_out), spent)
    return table


def _table(*columns: str) -> Table:
    """Narrow enough for any terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        is_text = place in (0, len(columns) - 1)
        table.add_column(name, justify="left" if is_text else "right")
    return table


def _verdict(change: Change) -> Text:
    style = "" if not change.is_distinguishable else "green" if change.is_better else "red"
    return Text(describe_change(change), style=style)
