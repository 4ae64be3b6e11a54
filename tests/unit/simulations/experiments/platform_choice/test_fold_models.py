"""Tests of fold models: their training plans exclude every workload of the fold."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_simulations.baselines.cost_models import TrainingPlan
from fedperf_simulations.baselines.prefixes import plan_prefix
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED
from fedperf_simulations.corpus.comparisons import FOLDS
from fedperf_simulations.corpus.training_set import Measurements
from fedperf_simulations.experiments.platform_choice.models import Folds, prediction_rows
from fedperf_simulations.experiments.platform_choice.tables import ModelPredictions, case_queries
from tests.unit.simulations.comparison_cases import (
    CLUSTER,
    DUCKDB,
    PANDAS,
    POLARS,
    case,
    everywhere,
    workflow,
)


def measurements() -> Measurements:
    """Return cases whose seconds, and those of their prefixes, identify the workload."""
    cases = tuple(
        case(
            f"c{number}",
            {everywhere(DUCKDB): 1.0 + number, everywhere(PANDAS): math.inf},
            workload=f"w{number}",
        )
        for number in range(20)
    )
    plan = plan_prefix(Plan(workflow(), everywhere(POLARS)), [0])
    prefixes = {
        f"w{number}": [MeasuredPlan(plan, CLUSTER, math.log(1.0 + number))] for number in range(20)
    }
    return Measurements(cases, (), prefixes, seed=0)


def test_fold_training_plan_excludes_workloads_of_the_held_out_fold() -> None:
    folds = Folds.of(measurements())
    for fold in range(FOLDS):
        asked = {each.seconds[everywhere(DUCKDB)] for each in folds.held_out_cases(fold)}
        learnt = np.exp(folds.training_plan(fold).log_seconds).round(6).tolist()
        assert asked
        assert asked | set(learnt) == {1.0 + number for number in range(20)}
        assert not asked & set(learnt)
        assert len(learnt) == 2 * len(set(learnt))  # the successful plan and the prefix


def test_fold_training_plan_adds_further_cases_except_held_out_workloads() -> None:
    known = measurements()
    further = (
        case("c0", {everywhere(DUCKDB): 100.0}, workload="w0"),
        case("c1", {everywhere(DUCKDB): 200.0}, workload="of the lessons alone"),
    )
    folds = Folds.of(replace(known, further=further))
    assert len(folds.cases) == len(known.cases)
    for fold in range(FOLDS):
        learnt = set(np.exp(folds.training_plan(fold).log_seconds).round(6).tolist())
        assert 200.0 in learnt
        assert (100.0 in learnt) is (folds.fold_of["w0"] != fold)


def test_training_plan_groups_plans_by_workflow_and_cluster() -> None:
    plans = [
        MeasuredPlan(Plan(workflow(rows), everywhere(platform)), cluster, 0.0)
        for rows in (10, 1000)
        for cluster in (CLUSTER, replace(CLUSTER, cores=4))
        for platform in (DUCKDB, POLARS)
    ]
    assert TrainingPlan.of(plans).query_numbers.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_fold_predictions_cover_each_plan_with_both_cardinality_modes() -> None:
    folds = Folds.of(measurements())

    def learn(fold: int) -> PredictLog:
        assert fold == 0

        def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
            counted = queries[0].plan.workflow == workflow()
            return np.array([0.5, 1.5]) if counted else np.array([2.5, 3.5])

        return predict_log

    rows = list(prediction_rows(folds, learn, 0))
    for information, expected in ((ACTUAL, [0.5, 1.5]), (ESTIMATED, [2.5, 3.5])):
        said = ModelPredictions.of("model", rows, information)
        assert {name: values.tolist() for name, values in said.log_seconds.items()} == {
            each.name: expected for each in folds.held_out_cases(0)
        }
    assert len(case_queries(folds.held_out_cases(0)[0], ESTIMATED)) == 2
