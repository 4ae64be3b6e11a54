"""Platform size limits: at most ten times the largest job that ran on the platform."""

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import (
    PersonalizedEnsemble,
    fit_personalized_ensemble,
)
from fedperf_client.prediction.ensemble.training_data import ROWS, TIMES
from fedperf_client.prediction.learners.base_learners import public_learners
from fedperf_client.prediction.prediction import WIDENING
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.prediction.synthetic import (
    PLATFORMS,
    draw_history,
    excellent,
    hull_around,
    support_up_to,
)

CLUSTER = ClusterConfig(1, 2, 2**34)


def plan(rows: float, platform: Platform) -> Plan:
    kinds = (OperatorKind.TABLE_SOURCE, OperatorKind.FILTER)
    operators = tuple(
        Operator(kind, OperatorClass.RELATIONAL, (number - 1,) if number else (), rows, 40.0)
        for number, kind in enumerate(kinds)
    )
    return Plan.on_one_platform(Workflow(operators), platform)


def test_most_rows_is_the_largest_job_of_each_platform() -> None:
    history = draw_history(np.random.default_rng(1), 40)
    support = hull_around(history.queries)
    for platform in PLATFORMS:
        mine = [
            q.plan.workflow.source_rows for q in history.queries if platform in q.plan.platforms
        ]
        assert support.most(platform, ROWS) == pytest.approx(max(mine), rel=1e-6)
    assert support.most(Platform.SPARK, ROWS) == 0


def test_platforms_exceeded_lists_platforms_beyond_ten_times_their_rows() -> None:
    support = support_up_to({Platform.DUCKDB: 100.0, Platform.SPARK: 1e9})
    assert support.platforms_exceeded(plan(99 * TIMES, Platform.DUCKDB)) == ()
    assert support.platforms_exceeded(plan(101 * TIMES, Platform.DUCKDB)) == (Platform.DUCKDB,)
    assert support.platforms_exceeded(plan(1e9, Platform.SPARK)) == ()
    assert support.platforms_exceeded(plan(1e9, Platform.POLARS)) == ()  # no run on Polars


@pytest.mark.slow
def test_prediction_marked_as_extrapolation_keeps_median_and_widens() -> None:
    history = draw_history(np.random.default_rng(2), 40)
    predictor = predictor_of(history)
    on_duckdb = [each for each in history.queries if Platform.DUCKDB in each.plan.platforms]
    largest = max(question.plan.workflow.source_rows for question in on_duckdb)
    asked = [PlanOnCluster(plan(largest, Platform.DUCKDB), CLUSTER)]
    [inside] = predictor.predict(asked)
    assert not inside.extrapolating
    assert predictor.predict_across_platforms(asked) == [inside]
    far = inside.as_extrapolation()
    assert far.extrapolating
    assert far.median_seconds == pytest.approx(inside.median_seconds)
    width, before = (np.log(each.upper_seconds / each.median_seconds) for each in (far, inside))
    assert width == pytest.approx(WIDENING * before)
    assert far.as_extrapolation() is far
    late = inside.p90_seconds
    assert far.probability_within(late) < inside.probability_within(late)


def predictor_of(history: History) -> PersonalizedEnsemble:
    return fit_personalized_ensemble(history, {"public": excellent}, public_learners())
