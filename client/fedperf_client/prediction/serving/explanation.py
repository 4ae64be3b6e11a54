"""Explanations of predictions: the weights of an ensemble, and notes on a prediction.

A prediction that rests on own runs holds under the conditions of those runs. Where a change is
significant, older runs count on the newer level (`changes`). Where others used the machine, the
run time without that interference is unobserved: CPU time is a bound, and the interval is wider.

Run times are those of plans on engines that run already, as their logs and profiles have them. To
meet a deadline, add the wait for resources and the start of the application. For an own execution
that was its application's first, the log shows the latter.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Self

import numpy as np

from fedperf_client.formatting.facts import Fact, values_of
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import UNNAMED, engine_bit, hash64
from fedperf_client.prediction.ensemble.changes import (
    CONFIDENCE_LEVEL,
    StreamDrift,
    WorkloadChange,
    recent_drift,
)
from fedperf_client.prediction.ensemble.ensemble import (
    SMALLEST_WEIGHT,
    STACKED_FROM,
    EnsembleMember,
    EnsembleWeights,
)
from fedperf_client.prediction.prediction import QueryRegime
from fedperf_client.prediction.serving.predictor_cache import CachedPredictor
from fedperf_client.prediction.serving.reconfiguration import ASSUMPTION
from fedperf_client.prediction.serving.what_if import (
    ClusterPrediction,
    PlanQuery,
    by_input,
    deadline_sentence,
    equivalence_sentence,
    p90_discontinuity_note,
    smallest_equivalent,
    smallest_meeting_deadline,
)
from fedperf_shared.execution import Execution, ExecutionWarning
from fedperf_shared.runtime.quantities import counted, duration_text
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform


def member_facts(outcomes: Iterable[EnsembleWeights]) -> list[list[Fact]]:
    """Return the facts of each member of each ensemble, of most weight first."""
    rows = []
    for outcome in outcomes:
        for member in sorted(outcome.members, key=lambda each: (-each.weight, each.error)):
            error = math.exp(member.error) if math.isfinite(member.error) else None
            rows.append(
                [
                    Fact("regime", outcome.regime.value, "regime"),
                    Fact("levels_held_out", outcome.levels_held_out or None, "levels_held_out"),
                    Fact("folds", outcome.folds, "folds"),
                    Fact("held_out", len(outcome.errors), "held_out"),
                    Fact("member", member.name, "learner"),
                    Fact("weight", member.weight, "weight", f"{member.weight:.0%}"),
                    Fact("error", error, "error", None if error is None else f"{error:.3f}x"),
                    Fact("why", _reason(member, outcome), "why"),
                ]
            )
    return rows


def accuracy_sentence(outcomes: Iterable[EnsembleWeights]) -> str | None:
    """Summarize the errors to expect in one sentence, None where nothing ran yet."""
    inside = [each for each in outcomes if each.regime is QueryRegime.SEEN and len(each.errors)]
    if not inside:
        return None
    _, group = np.unique(np.concatenate([each.groups for each in inside]), return_inverse=True)
    absolute = np.abs(np.concatenate([each.errors for each in inside]))
    errors = np.bincount(group, absolute) / np.bincount(group)
    half, most = (math.exp(float(np.quantile(errors, share))) for share in (0.5, 0.9))
    return (
        f"in short: half of the workloads that never ran here are predicted within {half:.2f} "
        f"times, nine of ten within {most:.2f} (cross-validation on {len(errors)} workloads); "
        "workloads that ran before are predicted from their own runs"
    )


def weighting_rules(outcomes: Iterable[EnsembleWeights]) -> list[str]:
    """Explain how weights follow from errors, a sentence for each rule that was used."""
    evaluated = [each for each in outcomes if len(each.errors)]
    sentences = []
    if any(not _is_stacked(each) for each in evaluated):
        sentences.append(
            "weights fall with the error, more steeply the more workloads ran here; weights below "
            f"{SMALLEST_WEIGHT:.0%} are set to zero"
        )
    if any(_is_stacked(each) for each in evaluated):
        sentences.append(
            f"from {STACKED_FROM} workloads on, weights minimize the error of the ensemble: a "
            "learner with a larger error has weight where its errors differ from those of others"
        )
    if evaluated:
        sentences += [
            "error: the factor by which a learner is typically off on held-out runs of yours",
            "learners: 'pretrained' ships with fedperf, '+bias' and '+ridge' correct it by your "
            "runs, and 'local' ones learn from your runs alone (GP: Gaussian process)",
            "regime 'observed': cores and input size are among those of your runs",
        ]
    return sentences


def engine_names(engines: int) -> str:
    """Return the engines of an ensemble for people, from the bits of `engine_bit`."""
    named = {engine_bit((OperatorKind.OTHER, each)): each.name.lower() for each in NAMED_PLATFORMS}
    commands = {
        engine_bit((OperatorKind.COMMAND, each)): f"commands on {each.name.lower()}"
        for each in NAMED_PLATFORMS
    }
    of_bits = {**named, **commands, UNNAMED: "others"}
    return ", ".join(name for bit, name in of_bits.items() if bit & engines)


def _reason(member: EnsembleMember, outcome: EnsembleWeights) -> str:
    """Explain a weight by the error."""
    if not len(outcome.errors):
        return "nothing ran yet" if member.weight == 0 else "trusted first: nothing ran yet"
    least = min(each.error for each in outcome.members)
    is_least = member.error == least
    error = "least error" if is_least else f"{math.exp(member.error - least):.2f}x the least error"
    if member.weight > 0:
        return error
    return f"{error}, adds nothing" if _is_stacked(outcome) else f"{error}, weight below 1%"


def _is_stacked(outcome: EnsembleWeights) -> bool:
    return len(set(outcome.groups.tolist())) >= STACKED_FROM


# Least and largest factor by which interference makes a run longer, if most runs had it.
LEAST_LOAD, MOST_LOAD = 2.0, 10.0

MOSTLY = 0.5  # share of the runs from which on their interference counts


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Interference: other load on the machine while own runs were made."""

    runs: int  # that a prediction rests on
    disturbed: int  # runs of these with interference
    cpu_seconds: float | None = None  # median CPU time of these; None where it was not measured
    wall_seconds: float | None = None  # median wall time of these; None without any
    busy_cores: float | None = None  # median cores used by others; None where it was not measured
    cores: int | None = None  # of the machine; None where unknown

    @classmethod
    def of(cls, runs: Sequence[Execution]) -> Self:
        """Return the interference of executions that ended well."""
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
        """Growth of the 90 % interval on either side, log seconds; squares add.

        It is the factor by which the load made runs longer. Bounds are the idle cores and the
        ratio of wall to CPU time.
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
        """The interference in a sentence; empty without any."""
        if self.disturbed == 0:
            return ""
        some = "all" if self.disturbed == self.runs else str(self.disturbed)
        runs = "the run was" if self.runs == 1 else f"{some} of {self.runs} runs were"
        busy = "the machine"
        if self.busy_cores is not None and self.cores is not None:
            busy = f"{self.busy_cores:.1f} of {counted(self.cores, 'core')}"
        sentence = f"{runs} made while others kept {busy} busy"
        if self.cpu_seconds is not None:
            sentence += f"; CPU time is {duration_text(self.cpu_seconds)}"
        return sentence + ("; intervals are wider for it" if self.half_width else "")

    def as_row(self) -> dict[str, object]:
        """Return the figures by name."""
        return {
            "runs": self.runs,
            "disturbed": self.disturbed,
            "busy_cores": self.busy_cores,
            "machine_cores": self.cores,
            "cpu_seconds": self.cpu_seconds,
            "sentence": self.sentence or None,
        }


def change_sentence(change: WorkloadChange, source: str) -> str:
    """Describe the change of a job's times that its predictions include, for people.

    Args:
        change: that is significant.
        source: recorder of the first run since, with its version.
    """
    lower, upper = change.change.ratio_interval
    day = f"{change.since:%Y-%m-%d}"
    since = f"{source}, first on {day}" if change.is_upgrade else day
    return (
        f"it takes {math.exp(change.change.log_ratio):.3g} times as long since {since} "
        f"({CONFIDENCE_LEVEL:.0%} interval {lower:.3g} to {upper:.3g}; "
        f"{counted(change.runs_since, 'run')} since, {change.runs_before} before), as fedperf "
        "compare shows; older runs count on that level"
    )


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
class PredictionNotes:
    """The facts that accompany the predictions of a plan."""

    plan: Plan  # that is predicted
    own: Execution | None  # the stored run that is named, if any
    drift: StreamDrift | None  # a recent one of such work
    change: WorkloadChange | None  # of the job's own times
    change_source: str  # recorder of the first run since that change, with its version
    load: Disturbance  # interference while its runs were made

    @classmethod
    def of(
        cls,
        query: PlanQuery,
        cached: CachedPredictor,
        store: ExecutionStore,
        *,
        load: Disturbance,
        now: datetime,
    ) -> Self:
        """Return the notes on a query; drift is recent at `now`."""
        summary = cached.predictor.pool.summary
        drift, change = recent_drift(summary.drifts, query.plan, now=now), None
        if query.own is not None:
            number = hash64(query.own.workload.encode())
            change = next((each for each in summary.changes if each.workload == number), None)
        source = "" if change is None else store.numbered([change.first])[0].origin.source
        return cls(query.plan, query.own, drift, change, source, load)

    @property
    def timing_scope(self) -> str:
        """The part of a job that its run time covers, for people."""
        platforms = set(self.plan.platforms)
        return _SEVERAL if len(platforms) > 1 else _SCOPES.get(platforms.pop(), _ELSEWHERE)

    @property
    def startup_seconds(self) -> float | None:
        """Seconds from submission to start of its application, where a run shows them.

        They are not part of the run time.
        """
        measured = None if self.own is None else self.own.measurement
        return None if measured is None else measured.startup_seconds or None

    def lines(
        self,
        predictions: Sequence[ClusterPrediction],
        deadline_seconds: float | None,
        *,
        of_nodes: bool,
    ) -> list[str]:
        """Return the lines below the table; `of_nodes` where nodes were listed, and no cores."""
        scope = f"times are of {self.timing_scope}, without queueing and start-up"
        startup = self.startup_seconds
        lines = [scope if startup is None else f"{scope}, {duration_text(startup)} when it ran"]
        if self.plan.workflow.rows_are_estimates:
            lines.append("rows between operators are estimates; intervals are wider for it")
        if any(each.scaled is not None and each.scaled.factor != 1 for each in predictions):
            lines.append(f"assumed: {ASSUMPTION}")
        if self.drift is not None:
            drift = f"{self.drift.stream_name} is {self.drift.sentence}"
            lines.append(f"note: {drift}, which predictions include")
        if self.change is not None:
            lines.append(f"note: {change_sentence(self.change, self.change_source)}")
        if self.load.sentence:
            lines.append(f"note: {self.load.sentence}")
        if note := p90_discontinuity_note(predictions):
            lines.append(note)
        parts = by_input(predictions)
        for part in parts:
            before = f"{part[0].scaled.words}: " if len(parts) > 1 and part[0].scaled else ""
            if sentence := equivalence_sentence(part):
                lines.append(before + sentence)
            if deadline_seconds is not None:
                lines.append(before + deadline_sentence(part, deadline_seconds, of_nodes=of_nodes))
        reasons = dict.fromkeys(each.no_promise for each in predictions if each.no_promise)
        return lines + [f"no promise: {reason}" for reason in reasons]

    def values(
        self, predictions: Sequence[ClusterPrediction], deadline_seconds: float | None
    ) -> dict[str, object]:
        """Return predictions and notes for programs."""
        least = smallest_equivalent(by_input(predictions)[0])
        values: dict[str, object] = {
            "predictions": [values_of(each.facts) for each in predictions],
            "smallest_equivalent_cores": None if least is None else least[0].cores,
            "drift": None if self.drift is None else self.drift.as_row(),
            "change": None if self.change is None else self._change_values(self.change),
            "load": self.load.as_row(),
            "timing_scope": self.timing_scope,
            "startup_seconds": self.startup_seconds,
            "rows_are_estimates": self.plan.workflow.rows_are_estimates,
        }
        if any(each.scaled is not None for each in predictions):
            values["assumed"] = ASSUMPTION
        if deadline_seconds is not None:
            values["deadline_seconds"] = deadline_seconds
            values["smallest_cores"] = smallest_meeting_deadline(predictions)
        return values

    def _change_values(self, change: WorkloadChange) -> dict[str, object]:
        lower, upper = change.change.ratio_interval
        return {
            "ratio": math.exp(change.change.log_ratio),
            "lower": lower,
            "upper": upper,
            "confidence_level": CONFIDENCE_LEVEL,
            "since": change.since.isoformat(),
            "source": self.change_source if change.is_upgrade else None,
            "runs_before": change.runs_before,
            "runs_since": change.runs_since,
            "sentence": change_sentence(change, self.change_source),
        }
