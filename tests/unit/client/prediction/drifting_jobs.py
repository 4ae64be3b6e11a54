"""Recurring jobs of the synthetic data that take longer from one day on."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import PersonalizedEnsemble
from fedperf_client.prediction.learners.base_learners import PUBLIC, public_learners
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import Execution, ExecutionStatus, Measurement, PlanOnCluster
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import START
from tests.unit.client.prediction.synthetic import draw_questions, excellent, true_log_seconds

BEFORE = 300
SHIFT = 0.4
GAUSSIAN = 0.1 * np.random.default_rng(1).standard_normal(10_000)
STARTS = {PUBLIC: excellent}
QUICK_NAMES = {"pretrained", "pretrained+bias", "local ridge"}
QUICK = [each for each in public_learners() if each.name in QUICK_NAMES]


def on_duckdb(questions: tuple[PlanOnCluster, ...]) -> Floats:
    return np.array([each.plan.platforms[0] is Platform.DUCKDB for each in questions], float)


def history(
    after: int,
    *,
    shift: float = SHIFT,
    seed: int = 0,
    since: int = BEFORE,
    noise: Floats = GAUSSIAN,
) -> History:
    """Return a history of recurring jobs.

    On DuckDB they take longer by `shift` log seconds from execution `since` on.
    """
    jobs = 40
    rng = np.random.default_rng(seed)
    pool, count = draw_questions(rng, jobs), BEFORE + after
    job = rng.integers(jobs, size=count)
    questions = tuple(pool[each] for each in job)
    later = np.arange(count) >= since
    log_seconds = true_log_seconds(questions) + shift * later * on_duckdb(questions)
    log_seconds += rng.choice(noise, count)
    moments = tuple(START + timedelta(hours=number) for number in range(count))
    return History(questions, tuple(f"w{each}" for each in job), log_seconds, moments)


def asked(seed: int = 100) -> tuple[PlanOnCluster, ...]:
    drawn = draw_questions(np.random.default_rng(seed), 90)
    return tuple(each for each in drawn if each.plan.platforms[0] is Platform.DUCKDB)


def error_of(own: PersonalizedEnsemble, *, shift: float = SHIFT) -> float:
    """Return the mean error on other DuckDB jobs at their current level, log seconds."""
    return float(np.abs(own.predict_log(asked()) - true_log_seconds(asked()) - shift).mean())


def without(known: History) -> History:
    """Return the history without timestamps, so that no drift can be detected."""
    return replace(known, finished_at=None)


def executions(begin: datetime = START) -> list[Execution]:
    """Return the history as stored executions, one an hour.

    The drift comes `BEFORE` hours after `begin`.
    """
    known = history(250)
    return [
        Execution(
            execution_id=f"own-{number}",
            workload=workload,
            plan=question.plan,
            cluster=question.cluster,
            status=ExecutionStatus.OK,
            measurement=Measurement(float(np.exp(log_seconds)), 0.0, 1, 0, 0),
            finished_at=begin + timedelta(hours=number),
        )
        for number, (question, workload, log_seconds) in enumerate(
            zip(known.queries, known.workloads, known.log_seconds, strict=True)
        )
    ]
