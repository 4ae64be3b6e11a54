"""Promises of every learner, and of each alone."""

import numpy as np
import pytest

from fedperf_client.prediction.evidence import Samples, encode
from fedperf_client.prediction.learner import Learner
from fedperf_client.prediction.local import Boosting, Constant, Forest, LogRidge, Nearest
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.shared import (
    REFERENCE,
    SHARED,
    AsIs,
    CellCorrected,
    CellCorrection,
    InvalidCorrectionError,
    ResidualBoosting,
    ResidualRidge,
    ShrunkenBias,
    shrunken_mean,
)
from fedperf_shared.basis import CELLS
from tests.unit.client.prediction.synthetic import draw_history, excellent, true_log_seconds

LEARNERS: tuple[Learner, ...] = (
    AsIs(),
    ShrunkenBias(),
    CellCorrected(CellCorrection.nothing_known()),
    ResidualRidge(),
    ResidualBoosting(),
    Constant(),
    Nearest(),
    LogRidge(),
    Boosting(),
    Forest(),
)
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: each.name)


def draw_samples(count: int, seed: int = 0) -> tuple[Samples, Floats]:
    history = draw_history(np.random.default_rng(seed), count)
    return encode(history.questions, {SHARED: excellent, REFERENCE: excellent}), history.log_seconds


@every_learner
@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_any_number_of_executions_gives_finite_answers(learner: Learner, count: int) -> None:
    samples, log_seconds = draw_samples(max(count, learner.fewest - 1))
    asked, _ = draw_samples(9, seed=1)
    answers = learner.fit(samples, log_seconds)(asked)
    assert answers.shape == (9,)
    assert np.isfinite(answers).all()


@every_learner
def test_executions_that_are_all_the_same_give_finite_answers(learner: Learner) -> None:
    samples, log_seconds = draw_samples(1)
    same = np.zeros(40, np.int64)
    asked, _ = draw_samples(5, seed=1)
    answers = learner.fit(samples.take(same), log_seconds[same])(asked)
    assert np.isfinite(answers).all()


@every_learner
def test_the_same_evidence_gives_the_same_answers_bit_for_bit(learner: Learner) -> None:
    samples, log_seconds = draw_samples(60)
    asked, _ = draw_samples(20, seed=1)
    one, other = learner.fit(samples, log_seconds)(asked), learner.fit(samples, log_seconds)(asked)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "learner", [each for each in LEARNERS if each.start is None], ids=lambda each: each.name
)
def test_a_local_learner_reads_no_start_model(learner: Learner) -> None:
    samples, log_seconds = draw_samples(60)
    bare = Samples(samples.features, samples.cells, {})
    np.testing.assert_array_equal(
        learner.fit(bare, log_seconds)(bare), learner.fit(samples, log_seconds)(samples)
    )


@pytest.mark.parametrize("learner", [LogRidge(), Boosting(), Forest(), Nearest()])
def test_local_learners_beat_the_constant_with_enough_executions(learner: Learner) -> None:
    history = draw_history(np.random.default_rng(2), 250)
    test = draw_history(np.random.default_rng(3), 150)
    samples, asked = encode(history.questions, {}), encode(test.questions, {})
    truth = true_log_seconds(test.questions)

    def error(each: Learner) -> float:
        return float(np.mean(np.abs(each.fit(samples, history.log_seconds)(asked) - truth)))

    assert error(learner) < 0.8 * error(Constant())


def test_a_bias_that_may_be_chance_is_shrunken_and_a_clear_one_is_kept() -> None:
    assert shrunken_mean(np.array([])) == 0.0
    assert shrunken_mean(np.array([0.1])) == 0.0
    assert shrunken_mean(np.array([0.5, -0.4, 0.1])) == 0.0
    assert shrunken_mean(np.full(50, 1.0)) == pytest.approx(1.0, abs=0.01)
    few, many = shrunken_mean(np.full(2, 0.6)), shrunken_mean(np.full(20, 0.6))
    assert 0.0 < few < many < 0.6


def test_without_own_executions_the_coordinators_correction_is_taken() -> None:
    mean = np.linspace(-1, 1, CELLS)
    learner = CellCorrected(CellCorrection(mean, 0.1 * np.eye(CELLS)))
    nothing, asked = draw_samples(0)[0], draw_samples(9)[0]
    answers = learner.fit(nothing, np.zeros(0))(asked)
    np.testing.assert_allclose(answers - asked.starts[REFERENCE], mean[asked.cells])


def test_own_executions_overrule_the_coordinator_as_they_grow() -> None:
    learner = CellCorrected(CellCorrection(np.full(CELLS, 1.0), 0.05 * np.eye(CELLS)))
    distances = []
    for count in (1, 10, 300):
        samples, _ = draw_samples(count)
        own = samples.starts[REFERENCE] - 0.5
        distances.append(
            float(np.mean(learner.fit(samples, own)(samples) - samples.starts[REFERENCE] + 0.5))
        )
    assert distances[0] > distances[1] > distances[2]
    assert abs(distances[2]) < 0.1


def test_a_certain_correction_moves_less_than_an_uncertain_one() -> None:
    samples, _ = draw_samples(30)
    own = samples.starts[REFERENCE] + 1.0

    def correction(variance: float) -> float:
        prior = CellCorrection(np.zeros(CELLS), variance * np.eye(CELLS))
        learnt = CellCorrected(prior).fit(samples.take(np.arange(3)), own[:3])
        return float(np.mean(learnt(samples.take(np.arange(3))) - samples.starts[REFERENCE][:3]))

    assert 0 < correction(1e-6) < correction(1.0) < 1.0


@pytest.mark.parametrize(
    ("mean", "covariance", "complaint"),
    [
        (np.zeros(3), np.zeros((3, 3)), "cells"),
        (np.full(CELLS, np.nan), np.zeros((CELLS, CELLS)), "finite"),
        (np.zeros(CELLS), -np.eye(CELLS), "semi-definite"),
        (np.zeros(CELLS), np.triu(np.ones((CELLS, CELLS))), "symmetric"),
    ],
)
def test_a_correction_that_is_none_is_refused(
    mean: Floats, covariance: Floats, complaint: str
) -> None:
    with pytest.raises(InvalidCorrectionError, match=complaint):
        CellCorrection(mean, covariance)
