"""A model of a fold has seen nothing of it."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.workflow.graph import Plan
from fedperf_simulations.comparisons import FOLDS
from fedperf_simulations.fold_models import Folds, answers, questions
from fedperf_simulations.lessons import MOST_PLANS, Measurements
from fedperf_simulations.measured_log import Role
from tests.unit.simulations.compared import (
    CLUSTER,
    DUCKDB,
    PANDAS,
    POLARS,
    case,
    everywhere,
    workflow,
)

if TYPE_CHECKING:
    from fedperf_client.optimizer.scoring import Assignment


def measurements() -> Measurements:
    """Cases whose seconds, and whose prefixes' seconds, tell the workload."""
    cases = tuple(
        case(
            f"c{number}",
            {everywhere(DUCKDB): 1.0 + number, everywhere(PANDAS): math.inf},
            workload=f"w{number}",
        )
        for number in range(20)
    )
    plan = Plan(workflow(), everywhere(POLARS)).prefix([0])
    prefixes = {
        f"w{number}": [MeasuredPlan(plan, CLUSTER, math.log(1.0 + number))] for number in range(20)
    }
    return Measurements(cases, (), prefixes, seed=0)


def test_no_workload_of_a_fold_is_in_its_lesson() -> None:
    folds = Folds.of(measurements())
    for fold in range(FOLDS):
        asked = {each.seconds[everywhere(DUCKDB)] for each in folds.asked(fold)}
        learnt = np.exp(folds.lesson(fold).log_seconds).round(6).tolist()
        assert asked
        assert asked | set(learnt) == {1.0 + number for number in range(20)}
        assert not asked & set(learnt)
        assert len(learnt) == 2 * len(set(learnt))  # the plan that ended well and the prefix


def test_lessons_are_learnt_from_but_not_those_of_a_workload_of_the_fold() -> None:
    known = measurements()
    further = (
        case("c0", {everywhere(DUCKDB): 100.0}, workload="w0"),
        case("c1", {everywhere(DUCKDB): 200.0}, workload="of the lessons alone"),
    )
    folds = Folds.of(replace(known, further=further))
    assert len(folds.cases) == len(known.cases)
    for fold in range(FOLDS):
        learnt = set(np.exp(folds.lesson(fold).log_seconds).round(6).tolist())
        assert 200.0 in learnt
        assert (100.0 in learnt) is (folds.fold_of["w0"] != fold)


def test_of_a_case_with_every_assignment_a_sample_is_learnt() -> None:
    alone = (DUCKDB, POLARS, PANDAS)
    many: dict[Assignment, float] = dict.fromkeys(product(alone, repeat=4), 1.0)
    whole = Measurements((case("x", many, role=Role.EXHAUSTIVE),), (), {}, seed=0)
    assert len(many) > MOST_PLANS
    assert len(whole.lesson(lambda _: True).questions) == MOST_PLANS


def test_answers_are_kept(tmp_path: Path) -> None:
    folds = Folds.of(measurements())
    asked: list[int] = []

    def learn(fold: int) -> PredictLog:
        asked.append(fold)

        def answer(questions: object) -> Floats:
            del questions
            return np.array([0.5, 1.5])

        return answer

    path = tmp_path / "answers" / "model-0.npz"
    first, second = (answers(folds, learn, 0, path) for _ in range(2))
    assert asked == [0]
    assert {name: said.tolist() for name, said in second.items()} == {
        each.name: [0.5, 1.5] for each in folds.asked(0)
    }
    assert first.keys() == second.keys()
    assert len(questions(folds.asked(0)[0])) == 2
