"""The training set of cost models: plans and prefixes of everything that was measured.

It holds complete plans by their median run time, and a random prefix of executions with more than
one segment. The caller names the workloads that a model may train on.

The run times of prefixes follow from the timings of segments. A run materializes rows at the end of
every segment (`executor.segments_of`). So the first segments of a plan are a plan of their own
whose run time is the sum of theirs. A search scores such prefixes while plans grow. A model trained
on complete plans alone would extrapolate.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from fedperf_client.sources.history_file import executions_of
from fedperf_engines.platforms.executor import plan_segments
from fedperf_engines.platforms.program import Program, from_json
from fedperf_shared.execution import ClusterConfig, Execution, MeasuredPlan
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import MIN_RUNTIME_SECONDS
from fedperf_simulations.baselines.cost_models import TrainingPlan
from fedperf_simulations.baselines.prefixes import plan_prefix
from fedperf_simulations.corpus.comparisons import Case, read_cases
from fedperf_simulations.data.datasets import (
    COMPARISONS,
    DUCKDB_SESSIONS,
    LARGE,
    SPARK_SESSIONS,
    TRAINING,
    at_one_speed,
    is_measured,
    measured_executions,
    measured_files,
    of_one_speed,
)


def measured_prefixes(path: Path) -> Iterator[tuple[Execution, MeasuredPlan]]:
    """Yield every proper prefix of the executions of a measured set, with its execution.

    Raises:
        InvalidInputError: a row cannot be read.
    """
    from pyarrow import parquet

    table = parquet.read_table(path, columns=["program", "segment_seconds"])
    columns = (table[name].to_pylist() for name in table.column_names)
    for execution, program, seconds in zip(executions_of(path), *columns, strict=True):
        if execution.is_ok:
            for prefix in prefixes(execution, from_json(program), seconds):
                yield execution, prefix


def prefixes(
    execution: Execution, program: Program, segment_seconds: Sequence[float]
) -> Iterator[MeasuredPlan]:
    """The first segments of one execution, the first two, ... and so on. Never all of them."""
    segments = list(plan_segments(program, execution.plan.platforms).values())
    steps: list[int] = []
    total = 0.0
    for segment, seconds in zip(segments[:-1], segment_seconds[:-1], strict=True):
        steps += segment
        total += seconds
        label = math.log(max(total, MIN_RUNTIME_SECONDS))
        yield MeasuredPlan(plan_prefix(execution.plan, steps), execution.cluster, label)


SESSION_FOLDERS = (DUCKDB_SESSIONS, SPARK_SESSIONS, LARGE)

MOST_DISTILLED = 400
"""Workflows that a head is distilled from."""

TrainingFilter = Callable[[str], bool]
"""Whether a workload may be used for training."""

Sized = tuple[Workflow, ClusterConfig]


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """Everything that was measured, on one machine (`datasets.MACHINE_SPEED`).

    Attributes:
        cases: of the comparison set.
        executions: of the measured set.
        prefixes: of all three, by workload.
        seed: of what is drawn.
        further: cases of the training set, which nothing is judged by.
        sessions: executions of SQL and of large inputs, which nothing is judged by either.
    """

    cases: tuple[Case, ...]
    executions: tuple[Execution, ...]
    prefixes: Mapping[str, Sequence[MeasuredPlan]]
    seed: int
    further: tuple[Case, ...] = ()
    sessions: tuple[Execution, ...] = ()

    @classmethod
    def read(cls, seed: int) -> Self:
        """Return all sets, with the sessions that were measured.

        Raises the errors of `measured_files`.
        """
        compared, training_plans = measured_files(COMPARISONS), measured_files(TRAINING)
        rng = np.random.default_rng(seed)
        prefixes: dict[str, list[MeasuredPlan]] = {}
        for path in (*measured_files(), *compared, *training_plans):
            for workload, prefix in _prefixes(path, rng):
                prefixes.setdefault(workload, []).append(prefix)
        cases, further = (
            tuple(
                replace(case, cluster=of_one_speed(case.cluster))
                for path in paths
                for case in read_cases(path)
            )
            for paths in (compared, training_plans)
        )
        folders = [each for each in SESSION_FOLDERS if is_measured(each)]
        sessions = tuple(
            each for folder in folders for each in at_one_speed(measured_executions(folder))
        )
        executions = tuple(at_one_speed(measured_executions()))
        return cls(cases, executions, prefixes, seed, further, sessions)

    def training_plan(self, is_training: TrainingFilter) -> TrainingPlan:
        """Return the plans and prefixes of the training workloads.

        Those of sessions occur twice: with actual and with estimated cardinalities.
        """
        counted = measured_plans(each for each in self.sessions if is_training(each.workload))
        complete = [
            *counted,
            *(replace(each, plan=plan_with_estimated_cardinalities(each.plan)) for each in counted),
            *measured_plans(each for each in self.executions if is_training(each.workload)),
            *(
                plan
                for case in (*self.cases, *self.further)
                if is_training(case.workload)
                for plan in _ended(case)
            ),
        ]
        begun = [p for name, each in self.prefixes.items() if is_training(name) for p in each]
        return TrainingPlan.of([*complete, *begun])

    def workloads_of(self, shapes: Collection[str]) -> frozenset[str]:
        """Return the workloads with a plan, or a prefix of one, of such a shape (`fingerprint`)."""
        return frozenset(
            workload for workload, each in self._all_workflows() if fingerprint(each) in shapes
        )

    def _all_workflows(self) -> Iterator[tuple[str, Workflow]]:
        for each in (*self.executions, *self.sessions):
            yield each.workload, each.plan.workflow
        for case in (*self.cases, *self.further):
            yield case.workload, case.workflow
        for workload, prefixes in self.prefixes.items():
            for prefix in prefixes:
                yield workload, prefix.plan.workflow

    def workflows(self, is_training: TrainingFilter) -> list[Sized]:
        """Workflows of training cases, from which a head is distilled."""
        rng = np.random.default_rng([self.seed, 1])
        cases = (*self.cases, *self.further)
        training = [(case.workflow, case.cluster) for case in cases if is_training(case.workload)]
        return [
            training[place] for place in rng.permutation(len(training))[:MOST_DISTILLED].tolist()
        ]


def measured_plans(executions: Iterable[Execution]) -> tuple[MeasuredPlan, ...]:
    """Plans with run times of the executions that ended well."""
    return tuple(
        MeasuredPlan(each.plan, each.cluster, float(np.log(each.measurement.runtime_seconds)))
        for each in executions
        if each.is_ok and each.measurement is not None
    )


def _ended(case: Case) -> Iterator[MeasuredPlan]:
    for platforms, seconds in case.seconds.items():
        if seconds < math.inf:
            yield MeasuredPlan(Plan(case.workflow, platforms), case.cluster, math.log(seconds))


def _prefixes(path: Path, rng: np.random.Generator) -> Iterator[tuple[str, MeasuredPlan]]:
    """Workload and a random prefix of executions that have any."""
    by_workload: dict[str, list[tuple[str, MeasuredPlan]]] = {}
    for execution, prefix in measured_prefixes(path):
        by_workload.setdefault(execution.execution_id, []).append((execution.workload, prefix))
    for prefixes in by_workload.values():
        workload, prefix = prefixes[int(rng.integers(len(prefixes)))]
        yield workload, replace(prefix, cluster=of_one_speed(prefix.cluster))
