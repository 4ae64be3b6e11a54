"""Boosted trees learn by the loss that GGFN has."""

import numpy as np

from fedperf_shared.execution import MeasuredPlan, SizedPlan
from fedperf_shared.workflow.graph import Plan
from fedperf_simulations.baselines.cost_models import Lesson, boosting
from tests.unit.simulations.compared import CLUSTER, DUCKDB, POLARS, everywhere, workflow

APART = 0.3
"""Log seconds by which Polars is faster, whatever the workload."""


def lesson(levels: np.ndarray) -> Lesson:
    return Lesson.of(
        [
            MeasuredPlan(Plan(workflow(1000.0 + number), everywhere(platform)), CLUSTER, level - by)
            for number, level in enumerate(levels)
            for platform, by in ((DUCKDB, 0.0), (POLARS, APART))
        ]
    )


def apart(lesson: Lesson) -> float:
    asked = [
        SizedPlan(Plan(workflow(900.0), everywhere(each)), CLUSTER) for each in (DUCKDB, POLARS)
    ]
    on_duckdb, on_polars = boosting(rounds=200, seed=0)(lesson)(asked)
    return float(on_duckdb - on_polars)


def test_how_plans_of_a_question_differ_is_learnt_though_levels_scatter() -> None:
    levels = np.random.default_rng(1).normal(0.0, 1.0, 60)
    known = lesson(levels)
    each_by_itself = Lesson(known.questions, known.log_seconds, np.arange(len(known.questions)))
    found = apart(known)
    assert 0.7 * APART < found < 1.3 * APART
    assert abs(found - APART) < abs(apart(each_by_itself) - APART)
