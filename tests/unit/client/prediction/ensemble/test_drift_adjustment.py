"""Drift adjustment rescales older executions: predictions recover sooner and never get worse."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.predictor import LearnerPool, fit_personalized_ensemble
from fedperf_client.prediction.learners.base_learners import PUBLIC, local_learners, public_learners
from tests.unit.client.prediction.drifting_jobs import (
    BEFORE,
    QUICK,
    SHIFT,
    STARTS,
    asked,
    error_of,
    history,
    on_duckdb,
    without,
)
from tests.unit.client.prediction.synthetic import true_log_seconds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_predictions_recover_from_drift_with_under_100_new_executions(seed: int) -> None:
    """Fewer than 100 later executions suffice. Twice as many do not without drift detection."""
    soon, late = history(250, seed=seed), history(500, seed=seed)
    always = error_of(fit_personalized_ensemble(history(250, seed=seed, since=0), STARTS, QUICK))
    recovered = error_of(fit_personalized_ensemble(soon, STARTS, QUICK))
    assert np.count_nonzero(on_duckdb(soon.queries[BEFORE:])) < 100
    assert recovered <= always + 0.05
    for lagging in (without(soon), without(late)):
        assert recovered <= error_of(fit_personalized_ensemble(lagging, STARTS, QUICK))


def test_predictions_without_drift_are_unchanged_by_detection() -> None:
    calm = history(250, shift=0.0)
    own, same = (fit_personalized_ensemble(each, STARTS, QUICK) for each in (calm, without(calm)))
    assert own.pool.summary.drifts == ()
    np.testing.assert_array_equal(own.predict_log(asked()), same.predict_log(asked()))
    assert own.weights_for().by_name == same.weights_for().by_name


def test_level_shift_moves_only_older_executions_of_the_drifted_platform() -> None:
    known = history(250)
    current = LearnerPool.from_history(known, STARTS, QUICK).training.log_seconds
    moved = current != known.log_seconds
    assert 50 < np.count_nonzero(moved) < BEFORE
    assert on_duckdb(tuple(np.array(known.queries, object)[moved])).all()
    np.testing.assert_allclose((current - known.log_seconds)[moved], SHIFT, atol=0.1)


def test_intervals_after_a_drift_cover_recent_executions() -> None:
    known = history(250)
    own = fit_personalized_ensemble(known, STARTS, QUICK)
    recent = [row for row in range(BEFORE + 100, len(known)) if on_duckdb(known.queries)[row]]
    answers = own.predict([known.queries[row] for row in recent])
    seconds = np.exp(known.log_seconds[recent])
    inside = [each.covers(measured) for each, measured in zip(answers, seconds, strict=True)]
    assert np.mean(inside) >= 0.8


def test_drift_detection_is_independent_of_fetched_models() -> None:
    """A fetched shared model, better or worse, raises no alarm."""
    known = history(250)
    fetched = {**STARTS, "shared": true_log_seconds, "reference": lambda q: np.zeros(len(q))}
    drifts = LearnerPool.from_history(known, STARTS, QUICK).summary.drifts
    assert drifts
    assert LearnerPool.from_history(known, fetched, QUICK).summary.drifts == drifts


def test_drift_of_recurring_jobs_is_detected_with_useless_pretrained_model() -> None:
    known = history(250)
    [drift] = LearnerPool.from_history(
        known, {PUBLIC: lambda q: np.zeros(len(q))}, QUICK
    ).summary.drifts
    assert drift.log_shift == pytest.approx(SHIFT, abs=0.1)


def test_drift_of_single_run_jobs_needs_an_accurate_pretrained_model() -> None:
    known = history(250)
    once = replace(known, workloads=tuple(map(str, range(len(known)))))
    [drift] = LearnerPool.from_history(once, STARTS, QUICK).summary.drifts
    assert drift.log_shift == pytest.approx(SHIFT, abs=0.1)
    assert (
        LearnerPool.from_history(once, {PUBLIC: lambda q: np.zeros(len(q))}, QUICK).summary.drifts
        == ()
    )


def test_drift_detection_requires_timestamps_and_pretrained_model() -> None:
    known = history(250)
    assert LearnerPool.from_history(without(known), STARTS, QUICK).summary.drifts == ()
    assert LearnerPool.from_history(known, {}, local_learners()).summary.drifts == ()


@pytest.mark.slow
def test_ensemble_of_all_public_learners_recovers_from_drift() -> None:
    soon = history(250)
    recovered, lagging = (
        error_of(fit_personalized_ensemble(each, STARTS, public_learners()))
        for each in (soon, without(soon))
    )
    assert recovered < 0.7 * lagging
