"""One new workflow: platforms chosen per operator by prediction, then measured for real.

The choice and every plan on a single platform are run the same number of times, in
turns, so that whatever else the machine does meets all of them alike.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_client.advice.job import profiler_here
from fedperf_client.advice.turns import in_turns
from fedperf_client.optimizer.enumeration import Choice, choose
from fedperf_client.optimizer.plan_scores import Assignment
from fedperf_client.platforms.program import Program
from fedperf_client.platforms.support import EMBEDDED_PLATFORMS, installed_platforms, supports
from fedperf_client.prediction.mixture.personal import Personalized
from fedperf_client.profiling.trials.machine import cluster_config
from fedperf_client.profiling.trials.profiler import Profiler
from fedperf_client.workloads.data import prepare
from fedperf_client.workloads.families import Family, draw_program, single_platforms, workload_name
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.demo.summary import ChoiceResult, PlatformTime

FAMILY = Family.CREDIT
"""Joins and aggregates, then clusters or scores: relational and learning operators."""

TIMEOUT_SECONDS = 60.0
_DRAWS = 100
_SEED = 23


class NoNewWorkflowError(InvalidInputError):
    """Every drawn workflow was known already."""


def new_program(known: Collection[str], *, seed: int, rows: int) -> Program:
    """A program of several operator classes whose workload is not in `known`.

    Raises:
        NoNewWorkflowError: none came up.
    """
    rng = np.random.default_rng([seed, _SEED])
    for _ in range(_DRAWS):
        program = draw_program(FAMILY, rng=rng, rows=rows)
        if workload_name(program) not in known:
            return program
    raise NoNewWorkflowError(f"no workflow that is new in {_DRAWS} draws")


def chosen_and_measured(
    program: Program,
    predictor: Personalized,
    *,
    organization: str,
    rows: int,
    data_directory: Path,
    repeats: int,
    clock: Callable[[], datetime],
) -> ChoiceResult:
    """Choose platforms for `program` with `predictor`, then run the choice and its rivals."""
    prepare(program.datasets, data_directory)
    cluster = cluster_config(1)
    with profiler_here(
        data_directory,
        timeout_seconds=TIMEOUT_SECONDS,
        clock=clock,
        new_id=lambda: "not stored",
    ) as profiler:
        workflow = profiler.workflow(program)
        choice = _choose(program, workflow, cluster, predictor)
        single = {p: (p,) * len(program.steps) for p in single_platforms(program)}
        plans = [choice.plan.platforms, *single.values()]
        seconds = _measured(profiler, program, plans, repeats)
    predicted = predictor.predict([SizedPlan(Plan(workflow, p), cluster) for p in single.values()])
    prediction = choice.prediction
    return ChoiceResult(
        organization=organization,
        family=str(FAMILY),
        rows=rows,
        operators=tuple(each.kind.name.lower() for each in workflow.operators),
        platforms=tuple(each.name.lower() for each in choice.plan.platforms),
        method=choice.method,
        plans_scored=choice.plans_scored,
        predicted_seconds=prediction.median_seconds,
        interval=(prediction.lower_seconds, prediction.upper_seconds),
        level=prediction.level,
        extrapolating=prediction.extrapolating,
        measured_seconds=seconds[choice.plan.platforms],
        single={
            platform.name.lower(): PlatformTime(each.median_seconds, seconds[assignment])
            for (platform, assignment), each in zip(single.items(), predicted, strict=True)
        },
    )


def _choose(
    program: Program, workflow: Workflow, cluster: ClusterConfig, predictor: Personalized
) -> Choice:
    def can_run(position: int, platform: Platform) -> bool:
        return supports(program.steps[position].operation, platform)

    platforms = installed_platforms(EMBEDDED_PLATFORMS)
    return choose(workflow, cluster, platforms, predictor.predict, supports=can_run)


def _measured(
    profiler: Profiler, program: Program, plans: Sequence[Assignment], repeats: int
) -> dict[Assignment, float | None]:
    """Median wall seconds of each plan; None where one of its runs did not end well."""
    different = tuple(dict.fromkeys(plans))
    runs = in_turns(partial(profiler.trial, program, threads=1), different, repeats=repeats)
    return {plan: each.runtime_seconds for plan, each in zip(different, runs, strict=True)}
