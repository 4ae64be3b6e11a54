"""Tests of the evaluated predictors: the product without local executions, and local only."""

import pytest

from fedperf_client.prediction.encoding import History
from fedperf_shared.execution import PlanOnCluster
from fedperf_simulations.experiments.intervals.figures import (
    LEVEL,
    NOTHING,
    local_only,
    shipped_model,
    with_pretrained_model,
)
from tests.unit.simulations.experiments.intervals.synthetic_queries import queries

EXECUTIONS = queries(12, seed=3)
PLANS = [PlanOnCluster(each.plan, each.cluster) for each in EXECUTIONS]


def test_predictions_without_local_executions_equal_the_pretrained_model() -> None:
    answers = with_pretrained_model(NOTHING, PLANS, shipped_model())
    said = shipped_model()(PLANS)
    assert [each.confidence_level for each in answers] == [LEVEL] * len(PLANS)
    for answer, log_seconds in zip(answers, said.tolist(), strict=True):
        assert answer.median_seconds == pytest.approx(2.718281828459045**log_seconds)


def test_local_only_predictions_ignore_the_pretrained_model() -> None:
    home = History.from_executions(EXECUTIONS[:6])
    wrong = with_pretrained_model(home, PLANS[6:], lambda asked: shipped_model()(asked) + 5.0)
    right = with_pretrained_model(home, PLANS[6:], shipped_model())
    assert [each.median_seconds for each in wrong] != [each.median_seconds for each in right]
    assert all(each.median_seconds < 100 for each in local_only(home, PLANS[6:]))
