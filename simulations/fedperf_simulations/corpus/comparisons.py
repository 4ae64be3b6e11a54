"""The comparison set as cases: one workload at one size, with what each of its plans took.

A case's plans ran on the same machine under the same memory cap; repeated runs count by their
median, a plan of which a run failed has no run time. Cases of one workload (one logical plan, at
any size) always share a fold, so that a model trained without a fold has seen none of its logical
plans.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_client.sources.history_file import executions_of
from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.platforms.program import Program, from_json
from fedperf_engines.workloads.families import Family
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.measured_log import Role

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """Plans of one workflow that were measured side by side.

    Attributes:
        name: of its tasks.
        role: why it was measured.
        family: of its workload.
        workload: the logical plan.
        rows: size of its sources.
        program: what ran.
        workflow: its operators with the rows that flowed.
        cluster: the resources it had.
        seconds: median run time of every plan; infinity where it did not end well.
    """

    name: str
    role: Role
    family: Family
    workload: str
    rows: int
    program: Program
    workflow: Workflow
    cluster: ClusterConfig
    seconds: Mapping[Assignment, float]

    @property
    def best_seconds(self) -> float:
        """Seconds of the fastest plan that was measured."""
        return min(self.seconds.values())

    def on_one_platform(self) -> dict[Platform, float]:
        """Seconds of the plans that keep to one platform."""
        return {plan[0]: s for plan, s in self.seconds.items() if len(set(plan)) == 1}

    def regret(self, plan: Assignment) -> float:
        """Return the plan's extra time over the fastest, as a share of the fastest.

        Infinity where it was not measured, or did not end well.
        """
        return self.seconds.get(plan, math.inf) / self.best_seconds - 1


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a measured comparison set, in the order of their names.

    Raises:
        InvalidInputError: a row cannot be read.
    """
    from pyarrow import parquet

    columns = ("role", "family", "drawn_rows", "program")
    table = parquet.read_table(path, columns=list(columns))
    runs: dict[str, list[tuple[Execution, tuple[str, str, int, str]]]] = defaultdict(list)
    values = zip(*(table[name].to_pylist() for name in columns), strict=True)
    for execution, row in zip(executions_of(path), values, strict=True):
        runs[execution.execution_id.partition("-")[0]].append((execution, row))
    return tuple(_case(name, runs[name]) for name in sorted(runs))


def folds_of(cases: Iterable[Case], *, seed: int) -> dict[str, int]:
    """Return the fold of every workload. Each role and family is split evenly."""
    kinds: dict[tuple[Role, Family], set[str]] = defaultdict(set)
    for case in cases:
        kinds[case.role, case.family].add(case.workload)
    folds: dict[str, int] = {}
    rng = np.random.default_rng([seed, FOLDS])
    for kind in sorted(kinds):
        workloads = sorted(kinds[kind] - folds.keys())
        for position in rng.permutation(len(workloads)).tolist():
            folds[workloads[position]] = len(folds) % FOLDS
    return folds


def _case(name: str, runs: Sequence[tuple[Execution, tuple[str, str, int, str]]]) -> Case:
    first, (role, family, rows, program) = runs[0]
    seconds: dict[Assignment, list[float]] = defaultdict(list)
    for execution, _ in runs:
        seconds[execution.plan.platforms].append(_seconds(execution))
    return Case(
        name,
        Role(role),
        Family(family),
        first.workload,
        rows,
        from_json(program.encode()),
        first.plan.workflow,
        first.cluster,
        {plan: statistics.median(each) for plan, each in seconds.items()},
    )


def _seconds(execution: Execution) -> float:
    measured = execution.measurement
    return measured.runtime_seconds if execution.is_ok and measured is not None else math.inf
