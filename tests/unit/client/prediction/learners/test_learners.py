"""Individual base learners. `tests/contract/test_learners.py` holds tests of all of them."""

import numpy as np
import pytest

from fedperf_campaigns.tables.learners import (
    Ernest,
    Forest,
    ResidualProcess,
    fit_ernest,
    table_learners,
)
from fedperf_client.prediction.encoding import EncodedQueries, encode
from fedperf_client.prediction.learners.base_learners import (
    REFERENCE,
    SHARED,
    Boosting,
    CellCorrectedModel,
    CellCorrection,
    Constant,
    InvalidCorrectionError,
    Learner,
    LocalProcess,
    LogRidge,
    Nearest,
    UncorrectedModel,
    shrunken_mean,
)
from fedperf_client.prediction.learners.ridge import MARGIN
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.releases.basis import CELLS
from tests.unit.client.prediction.jobs import grid, law, layout, noisy, samples
from tests.unit.client.prediction.synthetic import draw_history, draw_samples, true_log_seconds

SCALING_LAWS = {"prior slopes", "local ernest", "local ernest+process"}


@pytest.mark.parametrize("learner", [LogRidge(), Boosting(), Forest(), Nearest(), LocalProcess()])
def test_learner_with_enough_executions_beats_constant(learner: Learner) -> None:
    history = draw_history(np.random.default_rng(2), 250)
    test = draw_history(np.random.default_rng(3), 150)
    samples, asked = encode(history.queries, {}), encode(test.queries, {})
    truth = true_log_seconds(test.queries)

    def error(each: Learner) -> float:
        return float(np.mean(np.abs(each.fit(samples, history.log_seconds)(asked) - truth)))

    assert error(learner) < 0.8 * error(Constant())


def test_shrunken_mean_shrinks_uncertain_bias_to_zero_and_keeps_clear_one() -> None:
    def of(*residuals: float, share: float = 1.0) -> float:
        return shrunken_mean(np.array(residuals), np.full(len(residuals), share))

    assert of() == of(0.1) == of(0.5, -0.4, 0.1) == 0.0
    assert of(*[1.0] * 50) == pytest.approx(1.0, abs=0.01)
    assert 0.0 < of(0.6, 0.6) < of(*[0.6] * 20) < 0.6
    assert of(*[0.6] * 20, share=0.1) == pytest.approx(of(0.6, 0.6))


def test_cell_corrected_model_without_executions_applies_coordinator_correction() -> None:
    mean = np.linspace(-1, 1, CELLS)
    learner = CellCorrectedModel(CellCorrection(mean, 0.1 * np.eye(CELLS)))
    nothing, asked = draw_samples(0)[0], draw_samples(9)[0]
    answers = learner.fit(nothing, np.zeros(0))(asked)
    np.testing.assert_allclose(answers - asked.base_predictions[REFERENCE], mean[asked.cells])


def test_cell_corrected_model_approaches_local_residuals_with_more_executions() -> None:
    learner = CellCorrectedModel(CellCorrection(np.full(CELLS, 1.0), 0.05 * np.eye(CELLS)))
    distances = []
    for count in (1, 10, 300):
        samples, _ = draw_samples(count)
        own = samples.base_predictions[REFERENCE] - 0.5
        distances.append(
            float(
                np.mean(
                    learner.fit(samples, own)(samples) - samples.base_predictions[REFERENCE] + 0.5
                )
            )
        )
    assert distances[0] > distances[1] > distances[2]
    assert abs(distances[2]) < 0.1


def test_cell_corrected_model_limits_influence_of_one_outlier() -> None:
    samples, _ = draw_samples(5)
    calm = samples.base_predictions[REFERENCE] + 0.1
    wild = calm + np.array([0, 0, 6.0, 0, 0])
    learner = CellCorrectedModel(CellCorrection.uninformative())
    moved = [
        learner.fit(samples, own)(samples) - samples.base_predictions[REFERENCE]
        for own in (calm, wild)
    ]
    assert np.abs(moved[1] - moved[0]).mean() < 0.3


def test_cell_corrected_model_with_certain_prior_moves_less() -> None:
    samples, _ = draw_samples(30)
    own = samples.base_predictions[REFERENCE] + 1.0

    def correction(variance: float) -> float:
        prior = CellCorrection(np.zeros(CELLS), variance * np.eye(CELLS))
        learnt = CellCorrectedModel(prior).fit(samples.take(np.arange(3)), own[:3])
        return float(
            np.mean(learnt(samples.take(np.arange(3))) - samples.base_predictions[REFERENCE][:3])
        )

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
def test_cell_correction_with_invalid_mean_or_covariance_is_refused(
    mean: Floats, covariance: Floats, complaint: str
) -> None:
    with pytest.raises(InvalidCorrectionError, match=complaint):
        CellCorrection(mean, covariance)


@pytest.mark.parametrize("learner", table_learners(layout()), ids=lambda each: each.name)
def test_table_learner_is_finite_far_away_and_fits_no_worse_than_constant(
    learner: Learner,
) -> None:
    measured = noisy()
    fitted = learner.fit(samples(), measured)
    absurd = {"nodes": [1e6, 0.1], "megabytes": [1e12, 1e12]}
    far = fitted(layout().samples(absurd | {"machine": ["new", "new"]}))
    if learner.name in SCALING_LAWS:  # they stay near their law instead
        near = law(absurd | {"machine": ["slow", "slow"]})
    else:
        near = np.clip(far, measured.min(), measured.max())
    assert np.abs(far - near).max() <= MARGIN
    constant = Constant().fit(samples(), measured)
    most = np.abs(constant(samples()) - law(grid())).mean()
    assert np.abs(fitted(samples()) - law(grid())).mean() <= most


def test_log_ridge_with_squares_fits_curve_and_stays_flat_beyond_support() -> None:
    across = np.linspace(-1, 1, 40)
    bent = EncodedQueries(across[:, None], np.zeros(40, np.int64), {})
    fitted = LogRidge(degree=2, strengths=(1e-4,)).fit(bent, 2 * across**2)
    assert np.abs(fitted(bent) - 2 * across**2).max() < 0.05
    beyond = EncodedQueries(np.array([[1.0], [2.5]]), np.zeros(2, np.int64), {})
    at_the_edge, outside = fitted(beyond)
    assert abs(outside - at_the_edge) < 0.1


def test_fit_ernest_recovers_its_runtime_terms() -> None:
    log_scale, log_size = np.log(np.tile([2.0, 4, 8], 3)), np.log(np.repeat([1.0, 2, 4], 3))
    seconds = 5 + 30 * np.exp(log_size - log_scale) + 0.5 * np.exp(log_scale)
    answer = fit_ernest(log_scale, log_size, np.log(seconds))
    np.testing.assert_allclose(answer(log_scale, log_size), np.log(seconds), atol=1e-6)
    more_work, less = answer(np.log([4.0, 4.0]), np.log([100.0, 4.0]))
    assert more_work == pytest.approx(np.log(5 + 30 * 25 + 2), abs=1e-6)
    assert more_work > less


def test_fit_ernest_weights_short_and_long_executions_equally() -> None:
    log_scale = np.zeros(3)
    answer = fit_ernest(log_scale, log_scale, np.log([1.0, 1.0, 1000.0]))
    assert answer(log_scale[:1], log_scale[:1])[0] == pytest.approx(np.log(1.0), abs=0.1)


def test_residual_process_reduces_error_of_its_base_learner() -> None:
    ernest = Ernest(layout().scale_feature, layout().size_feature)
    rows = np.random.default_rng(0).permutation(60)[:30]
    left = [
        np.abs(each.fit(samples().take(rows), noisy()[rows])(samples()) - law(grid())).mean()
        for each in (ernest, ResidualProcess(ernest))
    ]
    assert left[1] < left[0]
    assert ResidualProcess(UncorrectedModel(SHARED)).name == "shared+process"
    assert ResidualProcess(UncorrectedModel(SHARED)).base_model == SHARED


def test_table_learners_use_no_pretrained_model() -> None:
    assert all(each.base_model is None for each in table_learners(layout()))
