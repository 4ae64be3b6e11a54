"""Platforms are trusted with jobs up to ten times larger than any that they ran."""

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.intervals import WIDENING
from fedperf_client.prediction.ensemble.learner_catalogue import public_learners
from fedperf_client.prediction.ensemble.platform_size_limits import TIMES, PlatformSizeLimits
from fedperf_client.prediction.ensemble.predictor import (
    PersonalizedEnsemble,
    fit_personalized_ensemble,
)
from fedperf_client.prediction.query_encoding import History
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.prediction.synthetic import PLATFORMS, draw_history, excellent, hull_around

CLUSTER = ClusterConfig(1, 2, 2**34)


def plan(rows: float, platform: Platform) -> Plan:
    kinds = (OperatorKind.TABLE_SOURCE, OperatorKind.FILTER)
    operators = tuple(
        Operator(kind, OperatorClass.RELATIONAL, (number - 1,) if number else (), rows, 40.0)
        for number, kind in enumerate(kinds)
    )
    return Plan.on_one_platform(Workflow(operators), platform)


def test_reach_is_the_largest_job_of_every_platform() -> None:
    history = draw_history(np.random.default_rng(1), 40)
    reach = PlatformSizeLimits.of(hull_around(history.questions))
    for platform in PLATFORMS:
        mine = [
            q.plan.workflow.source_rows for q in history.questions if platform in q.plan.platforms
        ]
        assert reach.rows[platform] == pytest.approx(max(mine), rel=1e-6)
    assert set(reach.rows) == set(PLATFORMS)
    assert PlatformSizeLimits.of(hull_around(())).rows == {}


def test_beyond_is_more_than_ten_times_what_a_platform_of_the_plan_ran() -> None:
    reach = PlatformSizeLimits({Platform.DUCKDB: 100.0, Platform.SPARK: 1e9})
    assert reach.beyond(plan(100 * TIMES, Platform.DUCKDB)) == ()
    assert reach.beyond(plan(100 * TIMES + 1, Platform.DUCKDB)) == (Platform.DUCKDB,)
    assert reach.beyond(plan(1e9, Platform.SPARK)) == ()
    assert reach.beyond(plan(1e9, Platform.POLARS)) == ()  # the hull knows of that


@pytest.mark.slow
def test_beyond_reach_the_same_median_extrapolates() -> None:
    history = draw_history(np.random.default_rng(2), 40)
    predictor = predictor_of(history)
    on_duckdb = [each for each in history.questions if Platform.DUCKDB in each.plan.platforms]
    largest = max(question.plan.workflow.source_rows for question in on_duckdb)
    asked = [PlanOnCluster(plan(largest, Platform.DUCKDB), CLUSTER)]
    [inside] = predictor.estimate(asked)
    assert not inside.prediction.extrapolating
    [near] = PlatformSizeLimits({Platform.DUCKDB: largest}).estimate(predictor.estimate, asked)
    [far] = PlatformSizeLimits({Platform.DUCKDB: largest / 100}).estimate(predictor.estimate, asked)
    assert near.prediction == inside.prediction
    assert far.prediction.extrapolating
    assert far.prediction.median_seconds == pytest.approx(inside.prediction.median_seconds)
    width, before = (
        np.log(each.prediction.upper_seconds / each.prediction.median_seconds)
        for each in (far, inside)
    )
    assert width == pytest.approx(WIDENING * before)
    assert far.widened() is far
    late = inside.p90_seconds
    assert far.chance_within(late) < inside.chance_within(late)


def predictor_of(history: History) -> PersonalizedEnsemble:
    return fit_personalized_ensemble(history, {"public": excellent}, public_learners())
