"""The demo's findings in words: one line of plain text each, with the verdict and its spread.

A difference is only called one where its interval leaves out 0. Windows count from 1 here.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from fedperf_simulations.demo.summary import (
    Change,
    DemoSummary,
    MachineResult,
    NewParticipantResult,
    OrganizationResult,
    YearResult,
)

SPREAD = "over workloads, of this one training"
"""What intervals of the demo are of; another training moves its errors by more."""

FIVE_SEEDS = Path(__file__).with_name("five_seeds.json")
"""What newcomers of five whole demos were off by, and the commit at which these ran."""


def told(change: Change) -> str:
    """The change of an error in words, with its 95 % interval."""
    if not change.is_told:
        return f"no difference ({change.low:+z.0f} to {change.high:+z.0f} %)"
    if change.is_better:
        return f"{-change.percent:.0f} % less error ({-change.high:.0f} to {-change.low:.0f} %)"
    return f"{change.percent:.0f} % more error ({change.low:.0f} to {change.high:.0f} %)"


def factor(value: float | None) -> str:
    """The factor by which answers are off, in words; None is no answer at all."""
    return "no answer" if value is None else f"x{value:.2f}"


def runs(found: NewParticipantResult) -> str:
    """The number of a newcomer's own runs, in words."""
    return f"{found.own_runs} own runs" if found.own_runs else "no own runs"


def lines(summary: DemoSummary) -> list[str]:
    """All findings, a line each, with the letter of its part in front."""
    year = summary.year
    return [
        *(f"(a) A newcomer with {newcomer(each)}" for each in year.newcomer),
        f"(b) {noticed(year)}",
        *(f"(b) On {machine(each)}" for each in reversed(year.machines)),
        f"(c) {left(summary.organizations)}",
    ]


def newcomer(found: NewParticipantResult) -> str:
    """The gain of joining with so many own runs, in words."""
    return (
        f"{runs(found)}: off by {factor(found.joined)} joined, {factor(found.start)} with the "
        f"start: {told(found.change)} {SPREAD}"
    )


def of_five_seeds(own_runs: int) -> str:
    """What seeds 0 to 4 found, each with a training of its own, as means and ranges."""
    every = orjson.loads(FIVE_SEEDS.read_bytes())["newcomers"]
    found = [each for each in every if each["own_runs"] == own_runs]
    joined, start = ([each[name] for each in found] for name in ("joined", "start"))
    changes = [100 * (math.log(j) / math.log(s) - 1) for j, s in zip(joined, start, strict=True)]
    return (
        f"mean and range of seeds 0 to 4: {_range('x{:.2f}', joined)} joined, "
        f"{_range('x{:.2f}', start)} with the start, {_range('{:+.0f} %', changes)} error"
    )


def _range(form: str, values: Sequence[float]) -> str:
    mean, low, high = sum(values) / len(values), min(values), max(values)
    return f"{form.format(mean)} ({form.format(low)} to {form.format(high)})"


def noticed(year: YearResult) -> str:
    """Whether reports gave the cap away."""
    came = f"Half a core from window {year.cap_window + 1} of {len(year.windows)} on"
    alarms = "" if not year.false_alarms else f"; {year.false_alarms} false alarms before"
    if year.noticed is None:
        return f"{came}: not noticed{alarms}"
    seen = year.noticed
    began = (
        "no window was left to learn it apart"
        if seen.epoch_window is None
        else f"from window {seen.epoch_window + 1} on (a new epoch) it is learnt apart"
    )
    return (
        f"{came}, unannounced: the noisy reports of window {seen.window + 1} gave it away, as jobs "
        f"on {' and '.join(seen.platforms)} took {factor(seen.factor)} the time expected at "
        f"{seen.organizations} of {year.organizations} members; {began}{alarms}"
    )


def machine(found: MachineResult) -> str:
    """The change of the answers on one machine, in words."""
    return (
        f"{found.name}: off by {factor(found.before)} before the cap, {factor(found.after)} at "
        f"the end: {told(found.change)}"
    )


def left(found: Iterable[OrganizationResult]) -> str:
    """The releases of all organizations that ran as programs, in words."""
    every = tuple(found)
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
