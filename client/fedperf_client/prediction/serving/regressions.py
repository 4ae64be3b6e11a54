"""Performance regressions: workloads that take longer since an upgrade or a date.

The ratio of a workload's median run times, after over before, has an interval
(`ensemble.changes.median_change`). It follows from the variance of repeats of the workload itself
and of the home's other workloads. So one run after is enough for a large change, and many are not
enough for a small one. Nothing is adjusted for other differences, which are listed alongside.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum, unique

import numpy as np

from fedperf_client.formatting.facts import Fact
from fedperf_client.prediction.ensemble.changes import (
    CONFIDENCE_LEVEL,
    ChangeEstimate,
    median_change,
)
from fedperf_client.prediction.ensemble.repeats import Repeats
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.command_line import shortened
from fedperf_shared.runtime.quantities import duration_text
from fedperf_shared.workflow.vocabulary import OperatorKind

MAX_NAME = 40  # characters of a workload that people see
NOTABLE_RATIO = 1.2  # rows or cores that differ by a smaller factor are not reported


@unique
class RegressionStatus(StrEnum):
    """The outcome of comparing a workload."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no difference"
    TOO_FEW = "too few runs"


_ORDER = {RegressionStatus.SLOWER: 0, RegressionStatus.FASTER: 2}


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The part of one execution that the comparison reads."""

    finished_at: datetime  # with time zone
    source: str  # recorder and its version
    log_seconds: float | None  # natural log of its time; None where it did not end well
    rows: float  # of its sources
    cores: int  # of its cluster
    was_first: bool  # no query of its application had worked before
    kinds: Mapping[OperatorKind, int]  # of its operators, by count

    @classmethod
    def of(cls, execution: Execution) -> "TimedRun":
        """Return the run of an execution."""
        measured, workflow = execution.measurement, execution.plan.workflow
        is_ok = execution.is_ok and measured is not None
        return cls(
            execution.finished_at,
            execution.origin.source,
            math.log(measured.runtime_seconds) if measured is not None and is_ok else None,
            workflow.source_rows,
            execution.cluster.cores,
            execution.cluster.queries_before == 0,
            Counter(each.kind for each in workflow.operators),
        )


Sides = tuple[Sequence[TimedRun], Sequence[TimedRun]]  # the runs of a workload before and after


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """The runs of a workload on one side; at least one ended well."""

    runs: Sequence[TimedRun]
    times: Sequence[float] = field(init=False)

    def __post_init__(self) -> None:
        times = [each.log_seconds for each in self.runs if each.log_seconds is not None]
        object.__setattr__(self, "times", times)

    @property
    def median_seconds(self) -> float:
        """Median seconds of the runs that ended well."""
        return math.exp(float(np.median(self.times)))

    @property
    def failed(self) -> int:
        """Number of runs that did not end well."""
        return len(self.runs) - len(self.times)

    @property
    def sources(self) -> list[str]:
        """Recorders of its runs, with versions; the most frequent one first."""
        return [name for name, _ in Counter(run.source for run in self.runs).most_common()]

    def median_of(self, figure: Callable[[TimedRun], float]) -> float:
        """Return the median of a figure of the runs that ended well."""
        return float(np.median([figure(e) for e in self.runs if e.log_seconds is not None]))


@dataclass(frozen=True, slots=True)
class WorkloadComparison:
    """One workload before and after."""

    workload: str  # its name; local. before, after: its runs.
    before: ComparisonSide
    after: ComparisonSide
    change: ChangeEstimate  # of the median

    @property
    def ratio(self) -> float:
        """Ratio of the medians, after over before."""
        return math.exp(self.change.log_ratio)

    @property
    def status(self) -> RegressionStatus:
        """Return whether it became slower or faster, as far as the interval shows."""
        lower, upper = self.change.ratio_interval
        if lower > 1:
            return RegressionStatus.SLOWER
        if upper < 1:
            return RegressionStatus.FASTER
        is_single = min(len(self.before.times), len(self.after.times)) == 1
        return RegressionStatus.TOO_FEW if is_single else RegressionStatus.NO_DIFFERENCE

    @property
    def lost_seconds(self) -> float:
        """Extra seconds of all its runs after; negative where they took less."""
        apart = self.after.median_seconds - self.before.median_seconds
        return apart * len(self.after.times)

    @property
    def other_changes(self) -> list[str]:
        """Other differences between the two sides, for people."""
        before, after = self.before, self.after
        old_source, new_source = before.sources[0], after.sources[0]
        changes = [] if old_source == new_source else [f"{old_source} to {new_source}"]
        for name, figure in (("rows", lambda run: run.rows), ("cores", lambda run: run.cores)):
            old, new = before.median_of(figure), after.median_of(figure)
            if not 1 / NOTABLE_RATIO <= (new + 1) / (old + 1) <= NOTABLE_RATIO:
                changes.append(f"{name} {old:,.0f} to {new:,.0f}")
        cold = [side.median_of(lambda run: run.was_first) for side in (before, after)]
        if cold == [0, 1]:
            changes.append("first query of its application now")
        elif cold == [1, 0]:
            changes.append("no longer first query of its application")
        old_kinds, new_kinds = before.runs[-1].kinds, after.runs[-1].kinds
        for kind in sorted({*old_kinds, *new_kinds}):
            if more := new_kinds.get(kind, 0) - old_kinds.get(kind, 0):
                changes.append(f"{more:+d} {kind.name.lower().replace('_', ' ')}")
        if after.failed or before.failed:
            changes.append(f"failed {before.failed} to {after.failed}")
        return changes

    @property
    def facts(self) -> list[Fact]:
        """The row of `fedperf compare`."""
        before, after, changes = self.before, self.after, self.other_changes
        lower, upper = self.change.ratio_interval
        lost = f"{'-' if self.lost_seconds < 0 else ''}{duration_text(abs(self.lost_seconds))}"
        runs = f"{len(before.times)}, {len(after.times)}"
        interval, heading = f"{lower:.3g} to {upper:.3g}", f"{CONFIDENCE_LEVEL:.0%} interval"
        return [
            Fact("workload", self.workload, "workload", shortened(self.workload, MAX_NAME)),
            Fact("verdict", self.status.value, "verdict"),
            Fact("before_seconds", before.median_seconds, "before"),
            Fact("after_seconds", after.median_seconds, "after"),
            Fact("ratio", self.ratio, "ratio", f"{self.ratio:.3g}"),
            Fact("lower", lower),
            Fact("upper", upper),
            Fact("confidence_level", CONFIDENCE_LEVEL, heading, interval),
            Fact("runs_before", len(before.times), "runs", runs),
            Fact("runs_after", len(after.times)),
            Fact("sources_before", before.sources),
            Fact("sources_after", after.sources),
            Fact("added_seconds", self.lost_seconds, "added", lost),
            Fact("changes", changes, "what else changed", ", ".join(changes)),
        ]


def runs_by_workload(executions: Iterable[Execution]) -> dict[str, list[TimedRun]]:
    """Group runs by workload. One that ran on several platforms is one for each set of them."""
    groups: dict[tuple[str, str], list[TimedRun]] = defaultdict(list)
    for each in executions:
        platforms = "+".join(sorted({one.name.lower() for one in each.plan.platforms}))
        groups[each.workload, platforms].append(TimedRun.of(each))
    names = Counter(workload for workload, _ in groups)
    return {
        workload if names[workload] == 1 else f"{workload} on {platforms}": runs
        for (workload, platforms), runs in groups.items()
    }


def split_at(runs: Sequence[TimedRun], moment: datetime) -> Sides:
    """Split runs into those that finished before a moment and those that finished since."""
    return (
        [each for each in runs if each.finished_at < moment],
        [each for each in runs if each.finished_at >= moment],
    )


def split_by_newest_source(runs: Sequence[TimedRun]) -> Sides:
    """Split runs into those on older versions and those on the version of the newest run."""
    newest = max(runs, key=lambda each: each.finished_at).source
    return (
        [each for each in runs if each.source != newest],
        [each for each in runs if each.source == newest],
    )


def compare_workloads(
    pairs: Mapping[str, Sides],
) -> tuple[list[WorkloadComparison], list[str]]:
    """Compare the workloads that ran well on both sides; return the names of the others as well.

    Regressions come first, those that lost most time before others.
    """
    both: dict[str, tuple[ComparisonSide, ComparisonSide]] = {}
    unmatched: list[str] = []
    for workload, sides in pairs.items():
        before, after = map(ComparisonSide, sides)
        if before.times and after.times:
            both[workload] = before, after
        else:
            unmatched.append(workload)
    # Each side of each workload is a configuration that repeats for itself.
    times = [side.times for pair in both.values() for side in pair]
    numbers = np.repeat(np.arange(len(times)), [len(each) for each in times])
    repeats = Repeats.from_runs(
        numbers, np.zeros_like(numbers), np.concatenate([np.zeros(0), *times])
    )
    comparisons = [
        WorkloadComparison(
            name,
            before,
            after,
            median_change(before.times, after.times, repeats.posterior(2 * place)),
        )
        for place, (name, (before, after)) in enumerate(both.items())
    ]
    comparisons.sort(key=lambda each: (_ORDER.get(each.status, 1), -each.lost_seconds))
    return comparisons, unmatched
