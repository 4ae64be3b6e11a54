"""Blend of ensemble and pretrained model, weighted by their errors on similar executions."""

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.ensemble import Reliability
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.prediction import USUAL_HALF_WIDTH, StudentT
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.unit.client.prediction.ensemble.test_intervals import question
from tests.unit.client.prediction.synthetic import evidence_of

SORT, JOIN = OperatorKind.SORT, OperatorKind.JOIN


def errors(size: float, count: int = 12) -> np.ndarray:
    return size * np.where(np.arange(count) % 2, 1.0, -1.0)


@pytest.mark.parametrize(("of_start", "of_mix", "to_mix"), [(0.1, 2.0, False), (0.6, 0.1, True)])
def test_reliability_favours_predictor_with_smaller_errors_on_similar_runs(
    of_start: float, of_mix: float, to_mix: bool
) -> None:
    found = Reliability.of_both(errors(of_start), errors(of_mix), np.arange(12))
    assert (found.weight > 0.9) is to_mix
    assert (found.weight < 0.1) is not to_mix
    assert found.distribution.half_width(0.9) < 0.2
    assert found.shrinkage < 0.1


def test_reliability_of_inaccurate_pretrained_model_shifts_weight_to_ensemble() -> None:
    good, bad = (
        Reliability.of_both(errors(size), errors(0.5), np.arange(12))
        for size in (USUAL_HALF_WIDTH / 4, 3 * USUAL_HALF_WIDTH)
    )
    assert good.weight_at(0.0) < 0.01
    assert bad.weight_at(0.0) > 0.95


def test_reliability_on_one_workload_uses_errors_of_weights_fitted_without_it() -> None:
    found = Reliability.of_both(errors(0.4), errors(0.01), np.zeros(12, np.int64))
    of_it = StudentT.within()
    squares = of_it.degrees * of_it.scale**2 + 0.16  # prior of the pretrained model
    assert found.variance == pytest.approx(squares / (of_it.degrees + 1))


def test_reliability_weighs_only_pretrained_model_or_only_ensemble_if_alone() -> None:
    pretrained = Reliability.of_pretrained()
    assert pretrained.weight_at(1.0) == 0
    assert pretrained.distribution.half_width(0.9) == pytest.approx(USUAL_HALF_WIDTH)
    assert Reliability.of_ensemble(errors(0.1), np.arange(12)).weight_at(1.0) == 1


def known_of(*questions: PlanOnCluster) -> TrainingSet:
    home, samples = evidence_of(questions)
    return home.with_features(samples.features, {})


def test_similar_runs_share_operator_kind_and_platform_and_have_comparable_rows() -> None:
    asked = question(1e5, kind=SORT, platform=Platform.POLARS)
    known = known_of(
        asked,
        question(1e4, kind=SORT, platform=Platform.POLARS),
        question(1e8, kind=SORT, platform=Platform.POLARS),
        question(1e5, kind=JOIN, platform=Platform.POLARS),
        question(1e5, kind=SORT, platform=Platform.SPARK),
        question(1e5, kind=SORT, platform=Platform.OTHER),
    )
    assert known.similar_to(asked).tolist() == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    unnamed = question(1e5, kind=JOIN, platform=Platform.OTHER)
    assert known.similar_to(unnamed).tolist() == [False] * 5 + [True]
    pairs = known._pairs.reshape(len(OperatorKind), -1, len(known))
    assert pairs.any(axis=0).sum(axis=0).tolist() == [1] * 5 + [0]
