"""Workloads that take longer since an upgrade or a date, found one by one.

A workload's slowdown is the ratio of the median run times after and before. Its interval follows
from how repeats differ. The variance of log seconds is that of the workload's own repeats and what
the home's other workloads tell of theirs (`repeat_spread`). So one run after is enough for a large
change, and many are not enough for a small one. The interval leaves 1 % on either side: of a
hundred workloads that did not change, one is called slower by chance. Nothing is adjusted for what
else changed; that is shown beside.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum, unique

import numpy as np

from fedperf_client.formatting.durations import duration_text
from fedperf_client.formatting.facts import Fact
from fedperf_client.prediction.ensemble.repeats import (
    SURE,
    Repeats,
    VariancePosterior,
    median_change,
)
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.command_line import shortened
from fedperf_shared.workflow.vocabulary import OperatorKind

LONGEST_NAME = 40
"""Characters of a workload that people see."""

CHANGED = 1.2
"""Rows or cores that differ by less are not told."""


@unique
class RegressionStatus(StrEnum):
    """The verdict about a workload."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no difference"
    TOO_FEW = "too few runs"


_ORDER = {
    RegressionStatus.SLOWER: 0,
    RegressionStatus.TOO_FEW: 1,
    RegressionStatus.NO_DIFFERENCE: 1,
    RegressionStatus.FASTER: 2,
}


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The part of one execution that the comparison reads.

    Attributes:
        finished_at: with time zone.
        source: what recorded it, with its version.
        log_seconds: natural log of its time; None where it did not end well.
        rows: of its sources.
        cores: that it had.
        was_first: no query of its application had worked before.
        kinds: of its operators, by count.
    """

    finished_at: datetime
    source: str
    log_seconds: float | None
    rows: float
    cores: int
    was_first: bool
    kinds: Mapping[OperatorKind, int]

    @classmethod
    def of(cls, execution: Execution) -> "TimedRun":
        """Of an execution."""
        measured, operators = execution.measurement, execution.plan.workflow.operators
        is_ok = execution.is_ok and measured is not None
        return cls(
            execution.finished_at,
            execution.origin.source,
            math.log(measured.runtime_seconds) if measured is not None and is_ok else None,
            execution.plan.workflow.source_rows,
            execution.cluster.cores,
            execution.cluster.queries_before == 0,
            Counter(each.kind for each in operators),
        )


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """The runs of a workload on one side; at least one ended well."""

    runs: Sequence[TimedRun]
    times: Sequence[float] = field(init=False)

    def __post_init__(self) -> None:
        found = [each.log_seconds for each in self.runs if each.log_seconds is not None]
        object.__setattr__(self, "times", found)

    @property
    def median_seconds(self) -> float:
        """Median seconds of the runs that ended well."""
        return math.exp(float(np.median(self.times)))

    @property
    def failed(self) -> int:
        """How many did not end well."""
        return len(self.runs) - len(self.times)

    @property
    def sources(self) -> tuple[str, ...]:
        """What recorded its runs, with versions; the most frequent one first."""
        return tuple(name for name, _ in Counter(run.source for run in self.runs).most_common())

    def median_of(self, what: Callable[[TimedRun], float]) -> float:
        """Median of a figure of the runs that ended well."""
        return float(np.median([what(each) for each in self.runs if each.log_seconds is not None]))


@dataclass(frozen=True, slots=True)
class Slowdown:
    """One workload before and after.

    Attributes:
        workload: its name; local.
        before, after: its runs.
        ratio: of the medians, after over before.
        lower, upper: ends of the interval of the ratio, at `SURE`.
        verdict: what that tells.
        changes: what else differs, for people.
    """

    workload: str
    before: ComparisonSide
    after: ComparisonSide
    ratio: float
    lower: float
    upper: float
    verdict: RegressionStatus
    changes: tuple[str, ...]

    @property
    def lost_seconds(self) -> float:
        """By how much all its runs after took longer; negative where they took less."""
        apart = self.after.median_seconds - self.before.median_seconds
        return apart * len(self.after.times)

    @property
    def facts(self) -> list[Fact]:
        """As `fedperf compare` shows it."""
        before, after = self.before, self.after
        lost = f"{'-' if self.lost_seconds < 0 else ''}{duration_text(abs(self.lost_seconds))}"
        runs = f"{len(before.times)}, {len(after.times)}"
        interval = f"{self.lower:.3g} to {self.upper:.3g}"
        return [
            Fact("workload", self.workload, "workload", shortened(self.workload, LONGEST_NAME)),
            Fact("verdict", self.verdict.value, "verdict"),
            Fact("before_seconds", before.median_seconds, "before"),
            Fact("after_seconds", after.median_seconds, "after"),
            Fact("ratio", self.ratio, "ratio", f"{self.ratio:.3g}"),
            Fact("lower", self.lower),
            Fact("upper", self.upper),
            Fact("confidence_level", SURE, f"{SURE:.0%} interval", interval),
            Fact("runs_before", len(before.times), "runs", runs),
            Fact("runs_after", len(after.times)),
            Fact("sources_before", list(before.sources)),
            Fact("sources_after", list(after.sources)),
            Fact("added_seconds", self.lost_seconds, "added", lost),
            Fact("changes", list(self.changes), "what else changed", ", ".join(self.changes)),
        ]


Split = Callable[[Sequence[TimedRun]], tuple[Sequence[TimedRun], Sequence[TimedRun]]]
"""The runs of a workload before and after."""


def runs_by_workload(executions: Iterable[Execution]) -> dict[str, list[TimedRun]]:
    """Of every workload; one that ran on several platforms is one for each set of them."""
    found: dict[tuple[str, str], list[TimedRun]] = defaultdict(list)
    for each in executions:
        platforms = "+".join(sorted({one.name.lower() for one in each.plan.platforms}))
        found[each.workload, platforms].append(TimedRun.of(each))
    names = Counter(workload for workload, _ in found)
    return {
        workload if names[workload] == 1 else f"{workload} on {platforms}": runs
        for (workload, platforms), runs in found.items()
    }


def since(moment: datetime) -> Split:
    """After is what finished at this moment or later."""
    return lambda runs: (
        [each for each in runs if each.finished_at < moment],
        [each for each in runs if each.finished_at >= moment],
    )


def on_newest_source(runs: Sequence[TimedRun]) -> tuple[Sequence[TimedRun], Sequence[TimedRun]]:
    """After is what ran on what the newest run was recorded by, such as a version of Spark."""
    newest = max(runs, key=lambda each: each.finished_at).source
    return (
        [each for each in runs if each.source != newest],
        [each for each in runs if each.source == newest],
    )


def slowdowns(
    pairs: Mapping[str, tuple[Sequence[TimedRun], Sequence[TimedRun]]],
) -> tuple[list[Slowdown], list[str]]:
    """Workloads that ran well on both sides, those that lost most time first; and the others."""
    both: dict[str, tuple[ComparisonSide, ComparisonSide]] = {}
    alone: list[str] = []
    for workload, (earlier, later) in pairs.items():
        before, after = ComparisonSide(earlier), ComparisonSide(later)
        if before.times and after.times:
            both[workload] = before, after
        else:
            alone.append(workload)
    repeats = _repeats(both)
    found = [
        _slowdown(name, before, after, repeats.posterior(2 * number))
        for number, (name, (before, after)) in enumerate(both.items())
    ]
    return sorted(found, key=lambda each: (_ORDER[each.verdict], -each.lost_seconds)), alone


def _repeats(both: Mapping[str, tuple[ComparisonSide, ComparisonSide]]) -> Repeats:
    """All sides of all workloads, each a configuration of its own: two of each in turn."""
    times = [side.times for sides in both.values() for side in sides]
    numbers = np.repeat(np.arange(len(times)), [len(each) for each in times])
    return Repeats.from_runs(numbers, np.zeros_like(numbers), np.concatenate([np.zeros(0), *times]))


def _slowdown(
    name: str, before: ComparisonSide, after: ComparisonSide, posterior: VariancePosterior
) -> Slowdown:
    change = median_change(before.times, after.times, posterior)
    lower, upper = change.ends
    if lower > 1:
        verdict = RegressionStatus.SLOWER
    elif upper < 1:
        verdict = RegressionStatus.FASTER
    elif min(len(before.times), len(after.times)) == 1:
        verdict = RegressionStatus.TOO_FEW
    else:
        verdict = RegressionStatus.NO_DIFFERENCE
    return Slowdown(
        name,
        before,
        after,
        math.exp(change.log_ratio),
        lower,
        upper,
        verdict,
        _changes(before, after),
    )


def _changes(before: ComparisonSide, after: ComparisonSide) -> tuple[str, ...]:
    old_source, new_source = before.sources[0], after.sources[0]
    found = [] if old_source == new_source else [f"{old_source} to {new_source}"]
    for words, what in (("rows", lambda run: run.rows), ("cores", lambda run: run.cores)):
        old, new = before.median_of(what), after.median_of(what)
        if not 1 / CHANGED <= (new + 1) / (old + 1) <= CHANGED:
            found.append(f"{words} {old:,.0f} to {new:,.0f}")
    cold = [side.median_of(lambda run: run.was_first) for side in (before, after)]
    if cold == [0, 1]:
        found.append("first query of its application now")
    elif cold == [1, 0]:
        found.append("no longer first query of its application")
    old_kinds, new_kinds = before.runs[-1].kinds, after.runs[-1].kinds
    for kind in sorted({*old_kinds, *new_kinds}):
        more = new_kinds.get(kind, 0) - old_kinds.get(kind, 0)
        if more:
            found.append(f"{more:+d} {kind.name.lower().replace('_', ' ')}")
    if after.failed or before.failed:
        found.append(f"failed {before.failed} to {after.failed}")
    return tuple(found)
