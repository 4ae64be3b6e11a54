"""A workload that is unrelated to a query hardly changes the query's prediction."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.learners.base_learners import PUBLIC, public_learners
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.executions import START, make_execution
from tests.unit.client.prediction.synthetic import draw_questions, excellent, true_log_seconds

DRAWN = tuple(
    each
    for each in draw_questions(np.random.default_rng(3), 120)
    if each.plan.platforms[0] is Platform.DUCKDB
)
HOME, ASKED = DRAWN[:24], DRAWN[24:40]
RUNS = (1, 24, 240)


def execution(number: int, workload: str, question: PlanOnCluster, log_seconds: float) -> Execution:
    made = make_execution(number, workload=workload)
    if made.measurement is None:
        raise AssertionError
    return replace(
        made,
        plan=question.plan,
        cluster=question.cluster,
        measurement=replace(made.measurement, runtime_seconds=float(np.exp(log_seconds))),
        finished_at=START + timedelta(hours=number),
    )


def home() -> list[Execution]:
    noise = 0.2 * np.random.default_rng(1).standard_normal(len(HOME))
    truth = (true_log_seconds(HOME) + noise).tolist()
    told = enumerate(zip(HOME, truth, strict=True))
    return [execution(n, f"w{n}", question, took) for n, (question, took) in told]


def black_box(runs: int, platform: Platform = Platform.OTHER) -> list[Execution]:
    """Return runs of one command, at sizes and times that no other execution has."""

    def question(rows: float) -> PlanOnCluster:
        command = Operator(OperatorKind.COMMAND, OperatorClass.RELATIONAL, (), rows, 4.0)
        return PlanOnCluster(Plan.on_one_platform(Workflow((command,)), platform), HOME[0].cluster)

    sizes = [10.0 ** (2 + n % 8) for n in range(runs)]
    return [
        execution(1000 + n, "campaign", question(rows), np.log(rows) / 2)
        for n, rows in enumerate(sizes)
    ]


def same_engine(runs: int) -> list[Execution]:
    """Return repeated runs of one query."""
    noise = 0.1 * np.random.default_rng(2).standard_normal(runs)
    level = float(true_log_seconds(DRAWN[-1:])[0]) + 0.3
    return [
        execution(1000 + n, "added", DRAWN[-1], level + more)
        for n, more in enumerate(noise.tolist())
    ]


def start(questions: Sequence[PlanOnCluster]) -> Floats:
    """Return predictions of a model that is accurate for DuckDB and gives 1 s for commands."""
    return np.array(
        [
            0.0 if len(each.plan.platforms) == 1 else float(excellent([each])[0])
            for each in questions
        ]
    )


def answers(executions: list[Execution]) -> tuple[Floats, Floats]:
    """Return log medians and log widths of the intervals."""
    history = History.from_executions(executions)
    mix = fit_personalized_ensemble(history, {PUBLIC: start}, public_learners())
    found = mix.predict(ASKED)
    widths = np.log([each.upper_seconds / each.lower_seconds for each in found])
    return np.log([each.median_seconds for each in found]), widths


@pytest.mark.slow
@pytest.mark.parametrize("platform", [Platform.OTHER, Platform.DUCKDB, Platform.POLARS])
def test_ensemble_with_unrelated_command_runs_keeps_operator_predictions(
    platform: Platform,
) -> None:
    medians, widths = answers(home())
    for runs in RUNS:
        moved, wide = answers(home() + black_box(runs, platform))
        np.testing.assert_allclose(moved, medians, atol=np.log(1.05))
        assert (wide <= 1.2 * widths).all()


@pytest.mark.slow
def test_ensemble_counts_repeated_workload_of_same_engine_once() -> None:
    medians, widths = answers(home())
    once, often, always = (answers(home() + same_engine(runs)) for runs in RUNS)
    for moved, wide in (once, often, always):
        apart = np.abs(moved - medians)
        assert np.quantile(apart, 0.95) <= np.log(1.05)
        assert apart.max() <= np.log(1.15)
        assert (wide <= 1.2 * widths).all()
    np.testing.assert_allclose(always[0], often[0], atol=np.log(1.05))
