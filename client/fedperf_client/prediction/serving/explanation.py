"""What is said beside a prediction: weights, other load, changes of the job, what the time is of.

An answer that rests on own runs is about conditions as they were. Where a change is sure, older
runs count on the newer level already (`repeats`). Where others kept the machine busy, nobody knows
how long the job takes without them: the CPU time is a bound, and the interval is wider.

Run times are those of plans on engines that run already, as their logs and profiles have them. To
keep a deadline, add what comes before: waiting for resources and the start of the application. For
an own execution that was its application's first, the log tells how long that was.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from fedperf_client.formatting.durations import duration_text
from fedperf_client.formatting.facts import Fact
from fedperf_client.formatting.numbers import counted
from fedperf_client.prediction.ensemble.ensemble import EnsembleMember, EnsembleWeights
from fedperf_client.prediction.ensemble.repeats import SURE, WorkloadChange
from fedperf_client.prediction.ensemble.training_data import HULL_MARGIN
from fedperf_client.prediction.ensemble.weighting import SMALLEST_WEIGHT, STACKED_FROM
from fedperf_client.prediction.prediction import QueryRegime
from fedperf_client.prediction.query_encoding import UNNAMED, engine_bit
from fedperf_shared.execution import Execution, ExecutionWarning
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.template import fingerprint
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform


def member_facts(outcomes: Iterable[EnsembleWeights]) -> list[list[Fact]]:
    """The facts of each member of each mix, of most weight first."""
    found = []
    for outcome in outcomes:
        question = "inside" if outcome.regime is QueryRegime.SEEN else outcome.regime.value
        for member in sorted(outcome.members, key=lambda each: (-each.weight, each.error)):
            error = math.exp(member.error) if math.isfinite(member.error) else None
            found.append(
                [
                    Fact("regime", question, "regime"),
                    Fact("levels_held_out", outcome.levels_held_out or None, "levels_held_out"),
                    Fact("folds", outcome.folds, "folds"),
                    Fact("held_out", len(outcome.errors), "held_out"),
                    Fact("member", member.name, "member"),
                    Fact("weight", member.weight, "weight", f"{member.weight:.0%}"),
                    Fact("error", error, "error", None if error is None else f"{error:.3f}x"),
                    Fact("why", _why(member, outcome), "why"),
                ]
            )
    return found


def in_short(outcomes: Iterable[EnsembleWeights]) -> str | None:
    """What a person can expect of answers, in one sentence; None where nothing ran yet."""
    inside = [each for each in outcomes if each.regime is QueryRegime.SEEN and len(each.errors)]
    if not inside:
        return None
    _, group = np.unique(np.concatenate([each.groups for each in inside]), return_inverse=True)
    absolute = np.abs(np.concatenate([each.errors for each in inside]))
    errors = np.bincount(group, absolute) / np.bincount(group)
    half, most = (math.exp(float(np.quantile(errors, share))) for share in (0.5, 0.9))
    return (
        "in short: asked about each workload as if it had never run here, but others like it, "
        f"half of the answers are off by less than {half:.2f} times, nine of ten by less than "
        f"{most:.2f} ({len(errors)} workloads); what ran before is answered from its own runs"
    )


def rules_of(outcomes: Iterable[EnsembleWeights]) -> list[str]:
    """How weights followed from errors, a sentence for each rule that was used."""
    known = [each for each in outcomes if len(each.errors)]
    told = []
    if any(not _is_stacked(each) for each in known):
        told.append(
            "weights fall with the error, the more steeply the more workloads ran here; below "
            f"{SMALLEST_WEIGHT:.0%} there is none"
        )
    if any(_is_stacked(each) for each in known):
        told.append(
            f"from {STACKED_FROM} workloads on weights are those of the mix that errs least: a "
            "member with a larger error counts where it is off in other places than the others"
        )
    if known:
        told.append(
            "error: how many times too long or too short, typically, on own executions held out; "
            "in each question most weight comes first"
        )
    return told


def names_of(engines: int) -> str:
    """The engines of a mix for people, from bits as of `engine_bit`; commands are an own one."""
    named = {engine_bit((OperatorKind.OTHER, each)): each.name.lower() for each in NAMED_PLATFORMS}
    commands = {
        engine_bit((OperatorKind.COMMAND, each)): f"commands on {each.name.lower()}"
        for each in NAMED_PLATFORMS
    }
    of_bits = {**named, **commands, UNNAMED: "others"}
    return ", ".join(name for bit, name in of_bits.items() if bit & engines)


def _why(member: EnsembleMember, outcome: EnsembleWeights) -> str:
    """What its error has to do with its weight."""
    if not len(outcome.errors):
        return "nothing ran yet" if member.weight == 0 else "trusted first: nothing ran yet"
    least = min(each.error for each in outcome.members)
    is_least = member.error == least
    error = "least error" if is_least else f"{math.exp(member.error - least):.2f}x the least error"
    if member.weight > 0:
        return error
    return f"{error}, adds nothing" if _is_stacked(outcome) else f"{error}, below the smallest"


def _is_stacked(outcome: EnsembleWeights) -> bool:
    return len(set(outcome.groups.tolist())) >= STACKED_FROM


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans have one shape and platforms, and sizes within a factor of two."""
    sizes = [math.log1p(plan.workflow.source_rows) for plan in (one, other)]
    return abs(sizes[0] - sizes[1]) <= HULL_MARGIN and same_shape(one, other)


def same_shape(one: Plan, other: Plan) -> bool:
    """Whether two plans have one shape and platforms, at whatever sizes."""
    return sorted(one.platforms) == sorted(other.platforms) and (
        fingerprint(one.workflow) == fingerprint(other.workflow)
    )


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
            if ExecutionWarning.NOISY in each.origin.remarks and each.measurement is not None
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
            "confidence_level": SURE,
            "since": found.since.isoformat(),
            "source": self.source if found.is_upgrade else None,
            "runs_before": found.runs_before,
            "runs_since": found.runs_since,
            "sentence": self.sentence,
        }


_IN_PROCESS = "calls in a running process"
_SCOPES: Mapping[Platform, str] = MappingProxyType(
    {
        Platform.SPARK: "a query in a running application",
        Platform.FLINK: "a job on a running cluster",
        Platform.DUCKDB: "a query in an open connection",
        Platform.POLARS: _IN_PROCESS,
        Platform.PANDAS: _IN_PROCESS,
        Platform.SKLEARN: _IN_PROCESS,
    }
)
_ELSEWHERE = "a job from its own start on"
_SEVERAL = "a plan on engines that run already"


@dataclass(frozen=True, slots=True)
class TimingBreakdown:
    """The scope of a time.

    Attributes:
        times_of: what it is the time of, for people.
        startup_seconds: from the submission of its application to its start, where an own
            execution tells it; not in the time.
    """

    times_of: str
    startup_seconds: float | None

    @property
    def sentence(self) -> str:
        """The same in a sentence."""
        said = f"times are of {self.times_of}; waiting and start-up come on top"
        if self.startup_seconds is None:
            return said
        return f"{said}, {duration_text(self.startup_seconds)} when it ran"


def time_scope(plan: Plan, own: Execution | None) -> TimingBreakdown:
    """The scope of answers about `plan`; `own` is the execution asked about, if any."""
    platforms = set(plan.platforms)
    scope = _SEVERAL if len(platforms) > 1 else _SCOPES.get(platforms.pop(), _ELSEWHERE)
    startup = 0.0
    if own is not None and own.measurement is not None:
        startup = own.measurement.startup_seconds
    return TimingBreakdown(scope, startup or None)
