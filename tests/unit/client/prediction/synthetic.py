"""Synthetic workflows with known run times, for tests of prediction."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np

from fedperf_client.prediction.encoding import EncodedQueries, ExecutionTable, History, encode
from fedperf_client.prediction.ensemble.training_data import TrainingData, TrainingSupport
from fedperf_client.prediction.learners.base_learners import REFERENCE, SHARED
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

PLATFORMS: Final = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
KINDS: Final = (
    OperatorKind.MAP,
    OperatorKind.FILTER,
    OperatorKind.SORT,
    OperatorKind.GLOBAL_AGGREGATE,
    OperatorKind.DISTINCT,
)
_COST = {kind: 0.5 + number for number, kind in enumerate(KINDS)}
_SPEED = {Platform.DUCKDB: 0.0, Platform.POLARS: 0.3, Platform.PANDAS: 1.1}


def draw_questions(rng: np.random.Generator, count: int) -> tuple[PlanOnCluster, ...]:
    """Draw chains of 3 to 9 operators on one platform, with 10^3 to 10^7 rows and 1 to 8 cores."""
    return tuple(_question(rng) for _ in range(count))


def true_log_seconds(questions: Sequence[PlanOnCluster]) -> Floats:
    """Return the true run time, which depends on operator kinds, platform, rows and cores."""
    return np.array([_law(question) for question in questions])


def draw_history(
    rng: np.random.Generator, workloads: int, *, noise: float = 0.1, executions: int = 1
) -> History:
    """Draw a history with log-normal noise and `executions` runs of each workload."""
    questions = tuple(q for q in draw_questions(rng, workloads) for _ in range(executions))
    names = tuple(f"w{n // executions}" for n in range(len(questions)))
    log_seconds = true_log_seconds(questions) + noise * rng.standard_normal(len(questions))
    return History(questions, names, log_seconds)


def evidence_of(
    questions: Sequence[PlanOnCluster], starts: Mapping[str, PredictLog] | None = None
) -> tuple[TrainingData, EncodedQueries]:
    """Return training data and encoded queries of plans that ran once each.

    Every plan is its own workload and took one second.
    """
    names = tuple(map(str, range(len(questions))))
    history = History(tuple(questions), names, np.zeros(len(questions)))
    samples = encode(history.queries, starts or {})
    table = ExecutionTable.from_history(history, samples)
    return TrainingData.from_history(table, is_timed=False), samples


def hull_around(questions: Sequence[PlanOnCluster]) -> TrainingSupport:
    """Return the training support of plans that ran."""
    return evidence_of(questions)[0].summary.support


def support_up_to(rows: Mapping[Platform, float]) -> TrainingSupport:
    """Return the training support of jobs with at most these source rows by platform."""
    low, high = (0.0,) * 6, (10.0,) * 5
    return TrainingSupport(
        {
            (OperatorKind.FILTER, platform): (low, (float(np.log1p(most)), *high))
            for platform, most in rows.items()
        }
    )


@cache
def draw_samples(count: int, seed: int = 0) -> tuple[EncodedQueries, Floats]:
    """Return encoded executions with an accurate model's predictions, and their log seconds."""
    history = draw_history(np.random.default_rng(seed), count)
    return encode(history.queries, {SHARED: excellent, REFERENCE: excellent}), history.log_seconds


def excellent(questions: Sequence[PlanOnCluster]) -> Floats:
    """Predict with an accurate shared model: 15 % error around a constant factor of 1.35."""
    rows = np.array([len(question.plan.platforms) for question in questions])
    return true_log_seconds(questions) + 0.15 * np.sin(3.0 * rows) + 0.3


def garbage(seed: int) -> PredictLog:
    """Return a useless shared model: noise of sd 2 around a wrong level."""

    def predict(questions: Sequence[PlanOnCluster]) -> Floats:
        keys = [hash((seed, q.plan.platforms, *_rows(q))) % 2**32 for q in questions]
        return np.array([3.0 + 2.0 * np.random.default_rng(k).standard_normal() for k in keys])

    return predict


def median_q_error(predicted: Floats, truth: Floats) -> float:
    """Return the median of max(estimate / truth, truth / estimate)."""
    return float(np.exp(np.median(np.abs(predicted - truth))))


def _question(rng: np.random.Generator) -> PlanOnCluster:
    rows = 10 ** rng.uniform(3, 7)
    operators = [Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 40.0)]
    for position in range(1, int(rng.integers(3, 10))):
        kind = KINDS[rng.integers(len(KINDS))]
        rows = max(1.0, rows * (rng.uniform(0.1, 1.0) if kind is OperatorKind.FILTER else 1.0))
        operators.append(Operator(kind, OperatorClass.RELATIONAL, (position - 1,), rows, 40.0))
    platform = PLATFORMS[rng.integers(len(PLATFORMS))]
    cluster = ClusterConfig(1, int(2 ** rng.integers(0, 4)), 2**34)
    return PlanOnCluster(Plan.on_one_platform(Workflow(tuple(operators)), platform), cluster)


def _law(question: PlanOnCluster) -> float:
    operators = question.plan.workflow.operators
    work = sum(_COST[o.kind] * operators[o.inputs[0]].output_rows for o in operators if o.inputs)
    platform = question.plan.platforms[0]
    parallel = question.cluster.cores ** (0.2 if platform is Platform.PANDAS else 0.8)
    return float(np.log(0.02 + 2e-7 * work * np.exp(_SPEED[platform]) / parallel))


def _rows(question: PlanOnCluster) -> tuple[float, ...]:
    return tuple(operator.output_rows for operator in question.plan.workflow.operators)
