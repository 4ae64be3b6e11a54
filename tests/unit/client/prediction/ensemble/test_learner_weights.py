from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.ensemble import fold_of, mixed_errors, mixing_weights
from fedperf_client.prediction.ensemble.predictor import (
    PersonalizedEnsemble,
    fit_personalized_ensemble,
)
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    CellCorrection,
    Constant,
    Learner,
    LogRidge,
    NoLearnerError,
    UncorrectedModel,
    joined_learners,
    local_learners,
    public_learners,
)
from fedperf_client.prediction.prediction import PredictLog, PredictorFailedError
from fedperf_shared.releases.basis import CELLS
from tests.unit.client.prediction.synthetic import (
    draw_history,
    draw_questions,
    excellent,
    garbage,
    median_q_error,
    true_log_seconds,
)

NOTHING = History((), (), np.zeros(0))


def joined(history: History, shared: PredictLog, seed: int = 0) -> PersonalizedEnsemble:
    starts = {SHARED: shared, REFERENCE: shared, PUBLIC: garbage(seed + 1000)}
    return fit_personalized_ensemble(history, starts, joined_learners(), seed=seed)


def local(history: History, seed: int = 0) -> PersonalizedEnsemble:
    return fit_personalized_ensemble(history, {}, local_learners(), seed=seed)


def mean_log_q(predictors: Sequence[PersonalizedEnsemble], seeds: Sequence[int]) -> float:
    logs = []
    for predictor, seed in zip(predictors, seeds, strict=True):
        questions = draw_questions(np.random.default_rng(10_000 + seed), 80)
        q = median_q_error(predictor.predict_log(questions), true_log_seconds(questions))
        logs.append(np.log(q))
    return float(np.mean(logs))


FEW = 24
"""Executions on three platforms, eight on each. No platform is informative about another."""


@pytest.mark.parametrize(
    ("executions", "repeats"),
    [
        (FEW, 6),
        pytest.param(30, 2, marks=pytest.mark.slow),
        pytest.param(40, 3, marks=pytest.mark.slow),
        pytest.param(120, 1, marks=pytest.mark.slow),
    ],
)
def test_useless_shared_model_raises_error_by_at_most_five_percent(
    executions: int, repeats: int
) -> None:
    seeds = range(repeats)
    histories = [draw_history(np.random.default_rng(seed), executions) for seed in seeds]
    alone = mean_log_q([local(h, s) for h, s in zip(histories, seeds, strict=True)], seeds)
    with_garbage = mean_log_q(
        [joined(h, garbage(s), s) for h, s in zip(histories, seeds, strict=True)], seeds
    )
    assert with_garbage <= 1.05 * alone


@pytest.mark.parametrize(("executions", "repeats"), [(9, 6), (12, 3), (24, 3)])
def test_accurate_shared_model_is_used_with_few_executions(executions: int, repeats: int) -> None:
    seeds = range(repeats)
    histories = [draw_history(np.random.default_rng(seed), executions) for seed in seeds]
    alone = mean_log_q([local(h, s) for h, s in zip(histories, seeds, strict=True)], seeds)
    together = mean_log_q(
        [joined(h, excellent, s) for h, s in zip(histories, seeds, strict=True)], seeds
    )
    assert together < 0.4 * alone
    assert together < np.log(1.25)


def test_ensemble_without_executions_uses_corrected_reference_and_extrapolates() -> None:
    mean = np.full(CELLS, 0.25)
    learners = joined_learners(CellCorrection(mean, 0.1 * np.eye(CELLS)))
    predictor = fit_personalized_ensemble(NOTHING, {REFERENCE: excellent}, learners)
    questions = draw_questions(np.random.default_rng(0), 5)
    np.testing.assert_allclose(predictor.predict_log(questions), excellent(questions) + 0.25)
    assert all(prediction.extrapolating for prediction in predictor.predict(questions))
    assert predictor.weights_for().by_name == {"reference+cells": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executions", "most"), [(0, 2), (1, 2), (4, 2), (5, 3), (9, 3), (10, 6), (30, 9)]
)
def test_ensemble_has_few_members_with_few_executions(executions: int, most: int) -> None:
    history = draw_history(np.random.default_rng(1), executions)
    members = joined(history, excellent).weights_for().members
    assert len(members) <= most
    has_local = any(member.name.startswith("local") for member in members)
    assert has_local == (executions >= 5)


@pytest.mark.slow
def test_ensemble_weights_sum_to_one_and_favor_the_lowest_error() -> None:
    predictor = joined(draw_history(np.random.default_rng(1), 40), excellent)
    assert sum(predictor.weights_for().by_name.values()) == pytest.approx(1.0)
    assert min(predictor.weights_for().by_name.values()) >= 0.0
    best = min(predictor.weights_for().members, key=lambda each: each.error).name
    assert predictor.weights_for().by_name[best] == max(predictor.weights_for().by_name.values())
    assert predictor.weights_for().errors.shape == (40,)


def test_mixing_weights_fall_with_error_and_more_sharply_with_workloads() -> None:
    errors = np.array([[0.1] * 100, [0.2] * 100])
    few = mixing_weights(errors[:, :5], np.arange(5))
    many = mixing_weights(errors, np.arange(100))
    assert few[0] > few[1] > many[1] >= 0
    np.testing.assert_allclose(mixing_weights(np.zeros((3, 4)), np.arange(4)), 1 / 3)
    np.testing.assert_array_equal(mixing_weights(np.zeros((2, 0)), np.arange(0)), [1.0, 0.0])


def test_mixing_weights_with_many_workloads_exploit_cancelling_errors() -> None:
    rng = np.random.default_rng(0)
    common, own = rng.standard_normal(400), rng.standard_normal((3, 400))
    errors = np.array([0.1 * (common + own[0]), 0.1 * (own[1] - common), 0.3 * own[2]])
    weights = mixing_weights(errors, np.arange(400))
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights[:2], 0.5, atol=0.06)  # their shared errors cancel
    best_alone = np.abs(errors).mean(axis=1).min()
    assert np.abs(weights @ errors).mean() < 0.75 * best_alone


def test_mixing_weights_are_robust_to_single_large_errors() -> None:
    errors = 0.1 * np.random.default_rng(1).standard_normal((2, 400))
    errors[1] *= 2
    calm = mixing_weights(errors, np.arange(400))
    errors[0, :4] = 1e3
    np.testing.assert_allclose(mixing_weights(errors, np.arange(400)), calm, atol=0.05)


def test_mixed_errors_use_weights_from_other_folds() -> None:
    """Each learner is right in one fold only. Weights from the same fold would halve errors."""
    errors = np.array([[0.0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    rows = np.arange(6)
    mixed = mixed_errors(errors, rows, rows, np.array([0, 0, 0, 1, 1, 1]))
    np.testing.assert_array_equal(mixed, np.ones(6))


@pytest.mark.parametrize(("workloads", "folds"), [(2, 2), (20, 20), (40, 10), (300, 10), (301, 5)])
def test_folds_never_split_a_workload_and_are_balanced(workloads: int, folds: int) -> None:
    groups = np.repeat(np.arange(workloads), 3)
    assigned = fold_of(groups, seed=4)
    assert len(np.unique(assigned)) == folds
    for group in range(workloads):
        assert len(np.unique(assigned[groups == group])) == 1
    assert np.bincount(assigned).max() <= 3 * 3 * (workloads // folds + 1)


def test_fold_assignment_of_workloads_is_unchanged_by_one_more() -> None:
    names = np.random.default_rng(0).integers(-(2**62), 2**62, 60)
    together = [set(names[fold_of(names, 0) == fold].tolist()) for fold in range(10)]
    more = np.append(names, 7)
    assigned = fold_of(more, 0)
    for fold in together:
        assert len(set(assigned[np.isin(more, list(fold))].tolist())) == 1


@pytest.mark.slow
def test_repeats_of_a_workload_do_not_lower_cross_validated_error() -> None:
    history = draw_history(np.random.default_rng(2), 12, executions=8, noise=0.02)
    errors = {each.name: each.error for each in local(history).weights_for().members}
    assert errors["local ridge"] > 0.2


def test_single_workload_is_cross_validated_by_its_executions() -> None:
    history = draw_history(np.random.default_rng(3), 1, executions=12)
    predictor = joined(history, garbage(1))
    assert predictor.weights_for().folds == 12
    answer = predictor.predict_log(history.queries[:1])
    assert abs(answer[0] - np.median(history.log_seconds)) < 0.2


@pytest.mark.slow
def test_ensemble_with_same_seed_predicts_identically() -> None:
    history = draw_history(np.random.default_rng(5), 25)
    questions = draw_questions(np.random.default_rng(6), 10)
    one, other = joined(history, excellent), joined(history, excellent)
    np.testing.assert_array_equal(one.predict_log(questions), other.predict_log(questions))


def test_predict_of_no_queries_is_empty() -> None:
    assert joined(NOTHING, excellent).predict([]) == []


def test_ensemble_without_usable_learner_raises_no_learner_error() -> None:
    with pytest.raises(NoLearnerError, match="0 own executions"):
        fit_personalized_ensemble(NOTHING, {}, [UncorrectedModel(), LogRidge()])
    assert fit_personalized_ensemble(NOTHING, {}, [Constant()]).weights_for().by_name == {
        "local constant": 1.0
    }


def test_pretrained_model_predicting_nan_is_refused_by_name() -> None:
    history = draw_history(np.random.default_rng(0), 3)
    with pytest.raises(PredictorFailedError, match=r"'(shared|reference)'"):
        joined(history, lambda questions: np.full(len(questions), np.nan))


def test_public_learners_correct_and_use_an_accurate_pretrained_model() -> None:
    history = draw_history(np.random.default_rng(8), 20)
    predictor = fit_personalized_ensemble(history, {PUBLIC: excellent}, public_learners())
    assert {"pretrained", "pretrained+bias", "pretrained+ridge", "local ridge"} <= set(
        predictor.weights_for().by_name
    )
    assert mean_log_q([predictor], [8]) < np.log(1.25)


def _names(learners: Sequence[Learner]) -> list[str]:
    return [each.name for each in learners]


def test_learner_names_are_unique_in_each_catalogue() -> None:
    learners: Mapping[str, Sequence[Learner]] = {
        "joined": joined_learners(),
        "public": public_learners(),
        "local": local_learners(),
    }
    for each in learners.values():
        assert len(set(_names(each))) == len(each)
