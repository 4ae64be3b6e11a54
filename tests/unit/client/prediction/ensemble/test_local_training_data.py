"""Training data from stored columns equals training data from the executions themselves."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedperf_client.prediction.encoding import ExecutionTable, History, encode_executions
from fedperf_client.prediction.ensemble.predictor import LearnerPool
from fedperf_client.prediction.ensemble.training_data import TrainingData
from fedperf_client.prediction.learners.base_learners import PUBLIC, public_learners
from fedperf_shared.execution import Execution, ExecutionStatus, Measurement
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.prediction.synthetic import excellent
from tests.unit.client.prediction.synthetic_executions import executions_of_world

ONCE = executions_of_world(1, 40, "own")
OWN = [
    *ONCE,
    *(replace(each, measurement=Measurement(2.5)) for each in ONCE[5:15]),
    *(replace(each, status=ExecutionStatus.TIMEOUT) for each in executions_of_world(2, 5, "cut")),
]


def of_columns(executions: list[Execution]) -> TrainingData:
    return TrainingData.from_table(
        ExecutionTable.from_columns(encode_executions(executions, excellent))
    )


def of_history(executions: list[Execution]) -> LearnerPool:
    history = History.from_executions(executions)
    return LearnerPool.from_history(history, {PUBLIC: excellent}, public_learners())


def test_training_data_from_columns_equals_that_from_executions() -> None:
    home, same = of_columns(OWN), of_history(OWN)
    known = home.with_features(
        same.training.samples.features, {PUBLIC: home.table.pretrained_log_seconds}
    )
    np.testing.assert_array_equal(known.log_seconds, same.training.log_seconds)
    np.testing.assert_array_equal(known.groups, same.training.groups)
    np.testing.assert_array_equal(known.samples.cells, same.training.samples.cells)
    np.testing.assert_array_equal(
        known.samples.base_predictions[PUBLIC], same.training.samples.base_predictions[PUBLIC]
    )
    np.testing.assert_array_equal(known.places.size, same.training.places.size)
    np.testing.assert_array_equal(known.places.scale, same.training.places.scale)
    np.testing.assert_array_equal(
        home.summary.censored.configurations, same.summary.censored.configurations
    )
    assert home.summary.drifts == same.summary.drifts


def test_repeats_from_columns_equal_those_from_executions() -> None:
    home, same = of_columns(OWN), of_history(OWN)
    numbers = same.training.samples.configurations()
    assert max(Counter(numbers.tolist()).values()) == 2
    for number in numbers.tolist():
        np.testing.assert_array_equal(
            home.summary.repeats.runs_of(number), same.summary.repeats.runs_of(number)
        )
        assert home.summary.repeats.posterior(number) == same.summary.repeats.posterior(number)


def test_training_support_from_columns_equals_that_from_executions() -> None:
    home, same = of_columns(OWN).summary.support, of_history(OWN).summary.support
    assert home.ranges.keys() == same.ranges.keys()
    for pair, ends in home.ranges.items():
        for own, other in zip(ends, same.ranges[pair], strict=True):
            assert own == pytest.approx(other)


def test_clusters_are_listed_by_platform_most_frequent_first() -> None:
    ended = [each for each in OWN if each.is_ok]
    clusters = of_columns(OWN).summary.clusters
    for platform in {one for each in ended for one in each.plan.platforms}:
        counts = Counter(each.cluster for each in ended if platform in each.plan.platforms)
        assert clusters[platform] == tuple(each for each, _ in counts.most_common())
    counts = Counter(each.cluster for each in ended)
    assert clusters[Platform.UNASSIGNED] == tuple(each for each, _ in counts.most_common())


def test_training_data_without_executions_is_empty() -> None:
    home = of_columns([])
    assert len(home.table) == 0
    assert (home.summary.support.ranges, home.summary.clusters) == ({}, {})
