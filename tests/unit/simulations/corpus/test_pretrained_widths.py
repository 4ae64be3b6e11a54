"""Tests of pretrained interval widths: errors on left-out shapes and on larger inputs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.baselines.cost_models import TrainingPlan
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.corpus.pretraining import (
    LEAST_WORKLOADS,
    LEFT_OUT,
    measure_widths,
    quantile_over_workloads,
)
from fedperf_simulations.corpus.training_set import Measurements
from tests.unit.client.executions import make_execution
from tests.unit.simulations.comparison_cases import case

WORKLOADS = LEFT_OUT * LEAST_WORKLOADS
SHAPE, DECADE, OF_ESTIMATES = 0.7, 0.4, 1.5
"""Errors of the model: on unseen shapes, per decade of rows beyond, and of estimates."""


def chain(length: int, rows: float) -> Plan:
    relational = OperatorClass.RELATIONAL
    source = Operator(OperatorKind.FILE_SOURCE, relational, (), rows, 40)
    work = [Operator(OperatorKind.MAP, relational, (i,), rows, 40) for i in range(length)]
    return Plan.on_one_platform(Workflow((source, *work)), Platform.DUCKDB)


def execution(number: int, rows: float) -> Execution:
    made = make_execution(number, workload=f"workload-{number}", plan=chain(1 + number, rows))
    return replace(made, cluster=replace(made.cluster, cores=1))


class Mistaken:
    """Model that memorizes its training plans and errs by a fixed rule on all others."""

    def __init__(self, measured: Measurements) -> None:
        self.training_plans: list[TrainingPlan] = []
        self._true = {
            (len(each.plan.workflow.operators), each.plan.workflow.source_rows): float(
                np.log(each.measurement.runtime_seconds)
            )
            for each in measured.executions
            if each.measurement is not None
        }

    def __call__(self, training_plan: TrainingPlan) -> PredictLog:
        self.training_plans.append(training_plan)
        lengths = {len(each.plan.workflow.operators) for each in training_plan.queries}
        most = max(each.plan.workflow.source_rows for each in training_plan.queries)

        def predict(asked: object) -> np.ndarray:
            answers = []
            for each in asked:  # type: ignore[attr-defined]
                workflow = each.plan.workflow
                length, rows = len(workflow.operators), workflow.source_rows
                beyond = np.log10(max(1.0, rows / most))
                squared = (length not in lengths) * SHAPE**2 + (DECADE * beyond) ** 2
                answers.append(self._true[length, rows] + np.sqrt(squared))
            return np.array(answers)

        return predict


@pytest.mark.slow
def test_interval_widths_match_errors_on_left_out_shapes_and_larger_inputs() -> None:
    small = [execution(number, 1e4) for number in range(WORKLOADS)]
    large = [execution(WORKLOADS + number, 1e7) for number in range(LEAST_WORKLOADS)]
    measured = Measurements((), (*small, *large), {}, 0)
    start = Mistaken(measured)
    width = measure_widths(measured, start)[Platform.DUCKDB]
    assert width.half_width == pytest.approx(SHAPE)
    # The small model never saw the large shapes. That part of its error is due to shapes.
    assert width.per_decade == pytest.approx(DECADE * 3 / np.log10(30), rel=0.01)
    assert (width.most_rows, width.most_cores) == (1e7, 1.0)
    all_but_shapes, small_only = start.training_plans
    assert len(all_but_shapes.queries) == len(measured.executions) * (1 - 1 / LEFT_OUT)
    assert {each.plan.workflow.source_rows for each in small_only.queries} == {1e4}


def training_plan(number: int, operator_class: OperatorClass) -> Case:
    """Return a program whose filter keeps half of its rows, while the estimate is a third."""
    source, *work = chain(300 + number, 1e4).workflow.operators
    source = replace(source, operator_class=operator_class)
    half = replace(work[0], kind=OperatorKind.FILTER, output_rows=5e3)
    workflow = Workflow((source, half, *work[1:]))
    alone = (Platform.DUCKDB,) * len(workflow.operators)
    return replace(case(f"lesson-{number}", {alone: 1.0}), workflow=workflow)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OperatorClass.RELATIONAL, OperatorClass.GRAPH])
def test_interval_widths_of_estimates_match_errors_on_left_out_programs(
    kind: OperatorClass,
) -> None:
    small = [execution(number, 1e4) for number in range(WORKLOADS)]
    executions = (*small, *(execution(WORKLOADS + number, 1e7) for number in range(5)))
    training_plans = tuple(training_plan(number, kind) for number in range(WORKLOADS))
    measured = Measurements((), executions, {}, 0, further=training_plans)

    def start(taught: TrainingPlan) -> PredictLog:
        of_counted = Mistaken(measured)(taught)
        known = {len(each.plan.platforms) for each in taught.queries}

        def predict(asked: Sequence[PlanOnCluster]) -> np.ndarray:
            if not any(each.plan.workflow.rows_are_estimates for each in asked):
                return of_counted(asked)
            assert not known & {len(each.plan.platforms) for each in asked}
            return np.full(len(asked), np.hypot(SHAPE, OF_ESTIMATES))

        return predict

    width = measure_widths(measured, start)[Platform.DUCKDB]
    found = [width.of_estimates, width.of_other_estimates]
    is_relational = kind is OperatorClass.RELATIONAL
    assert found == pytest.approx([OF_ESTIMATES, 0] if is_relational else [0, OF_ESTIMATES])


def test_interval_widths_omit_platform_with_few_workloads() -> None:
    few = tuple(execution(number, 10.0**number) for number in range(5))
    measured = Measurements((), few, {}, 0)
    assert measure_widths(measured, Mistaken(measured)) == {}


def test_quantile_over_workloads_weights_each_workload_equally() -> None:
    errors = np.array([*[9.0] * 90, *np.arange(1.0, 10.0)])
    names = [*["often"] * 90, *(str(number) for number in range(9))]
    assert quantile_over_workloads(errors, names, 0.9) == 9.0
    assert quantile_over_workloads(errors, names, 0.8) == 8.0
