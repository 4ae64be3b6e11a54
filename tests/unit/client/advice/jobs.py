"""Jobs and a predictor for tests of advice. Seconds depend on platforms, rows and cores."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from fedperf_client.prediction.prediction import ErrorDistribution, Prediction
from fedperf_engines.advice.advice import Advice, advise
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.job import Job
from fedperf_engines.optimizer.additive_surrogate import SHAPES, AdditiveSurrogate
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
GIB: Final = 2**30
FOUR_CORES: Final = ClusterConfig(1, 4, 8 * GIB)
DUCKDB, POLARS, PANDAS, SKLEARN, SPARK = (
    Platform.DUCKDB,
    Platform.POLARS,
    Platform.PANDAS,
    Platform.SKLEARN,
    Platform.SPARK,
)
ALL: Final = (DUCKDB, POLARS, PANDAS, SKLEARN, SPARK)
SPREAD: Final = ErrorDistribution.from_errors(np.linspace(-0.2, 0.2, 41), np.arange(41))

Seconds = Callable[[PlanOnCluster], float]


def operator(kind: OperatorKind, *inputs: int, rows: float = 1000.0) -> Operator:
    return Operator(kind, OperatorClass.RELATIONAL, inputs, rows, 40.0)


def learning(rows: float = 1e6) -> Workflow:
    """Return a workflow: two tables, a filter, a join, a model trained on it and a sink."""
    kinds = OperatorKind
    return Workflow(
        (
            operator(kinds.FILE_SOURCE, rows=rows),
            operator(kinds.FILE_SOURCE, rows=rows / 10),
            operator(kinds.FILTER, 0, rows=rows / 2),
            operator(kinds.JOIN, 2, 1, rows=rows / 2),
            operator(kinds.ML_TRAIN, 3, rows=10),
            operator(kinds.SINK, 4, rows=10),
        )
    )


def job(workflow: Workflow | None = None, today: Platform = Platform.UNASSIGNED) -> Job:
    return Job(Plan.on_one_platform(workflow or learning(), today), FOUR_CORES)


def estimates_of(
    seconds: Seconds, *, inside: bool = True
) -> Callable[[Sequence[PlanOnCluster]], list[Prediction]]:
    def estimate(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [
            Prediction(float(np.log(seconds(each))), SPREAD, extrapolating=not inside)
            for each in questions
        ]

    return estimate


def made_up(seed: int) -> Seconds:
    """Return a random predictor.

    Every operator has one speed per platform. Switches of platform cost time. More cores speed up
    a share of the work.
    """
    speeds = np.random.default_rng(seed).lognormal(size=(64, 10))
    share = float(np.random.default_rng(seed).uniform(0.2, 1))

    def seconds(question: PlanOnCluster) -> float:
        plan = question.plan
        work = sum(speeds[at, platform] for at, platform in enumerate(plan.platforms))
        switches = sum(plan.platforms[a] != plan.platforms[b] for a, b in plan.workflow.edges)
        cores = question.cluster.cores
        return float(work * (1 - share + share / cores) + 0.2 * switches)

    return seconds


def head(seed: int = 0) -> AdditiveSurrogate:
    rng = np.random.default_rng(seed)
    return AdditiveSurrogate(
        {n: (rng.normal(size=s) / 8).astype(np.float32) for n, s in SHAPES.items()}
    )


def advised(
    seconds: Seconds,
    wishes: PlanConstraints | None = None,
    *,
    sizes: Sequence[ClusterConfig] = (FOUR_CORES,),
    what: Job | None = None,
    deadline_seconds: float | None = None,
    inside: bool = True,
) -> Advice:
    return advise(
        what or job(),
        sizes,
        wishes or PlanConstraints(ALL),
        estimates_of(seconds, inside=inside),
        head(),
        deadline_seconds=deadline_seconds,
    )
