"""Tests of continual learning: splits of a sequence, forgetting and independent seeds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedperf_simulations.baselines.batched_mlp import SeedModels, fit
from fedperf_simulations.experiments.drift.continual import (
    MAE,
    MAPE,
    Q50,
    Anchor,
    ReplicatedSequence,
    learn,
)
from fedperf_simulations.experiments.drift.rehearsal_methods import (
    FullReplay,
    Naive,
    RehearsalMethod,
    TeacherLabelledInputs,
)
from tests.unit.simulations.two_segment_drift import COLUMNS, two_levels

STEPS = 300


def course(*seeds: int) -> ReplicatedSequence:
    return ReplicatedSequence.of(two_levels(), [[each] for each in seeds or (1,)], steps=STEPS)


def few_steps(*seeds: int) -> ReplicatedSequence:
    """Return a sequence with so few steps that rounding errors do not grow."""
    return replace(course(*seeds), steps=20)


def final_of_first(method: RehearsalMethod, *, ewc: float | None = None) -> float:
    return float(learn(course(), method, ewc=ewc)[MAE][0, 1, 0])


def test_replicated_sequence_splits_segment_into_disjoint_training_and_test() -> None:
    (dealt,), _ = course().splits
    assert (len(dealt.training), len(dealt.test)) == (140, 60)
    assert course().training_rows == 280
    values = [each.inputs[:, -1].tolist() for each in (dealt.training, dealt.test)]
    assert sorted(values[0] + values[1]) == sorted(
        two_levels().segments[0].table.numbers[:, 0].astype(np.float32).tolist()
    )
    assert not set(values[0]) & set(values[1])
    np.testing.assert_array_equal(
        COLUMNS.encoded(dealt.table).astype(np.float32), dealt.training.inputs
    )


@pytest.mark.slow
def test_naive_training_forgets_and_rehearsal_does_not() -> None:
    assert final_of_first(Naive()) > 0.5
    for method in (
        FullReplay(is_even=False),
        FullReplay(is_even=True),
        TeacherLabelledInputs(COLUMNS, 4.0),
    ):
        assert final_of_first(method) < 0.15


def test_frozen_model_has_constant_errors() -> None:
    errors = learn(course(), Naive(is_frozen=True))[MAE]
    np.testing.assert_array_equal(errors[:, 0], errors[:, 1])


@pytest.mark.slow
def test_elastic_weight_consolidation_reduces_forgetting() -> None:
    assert final_of_first(Naive(), ewc=1e5) < 0.8 * final_of_first(Naive())


def test_replicated_training_results_are_independent_between_seeds() -> None:
    together = learn(few_steps(1, 2), TeacherLabelledInputs(COLUMNS, 1.0))
    for place, seed in enumerate((1, 2)):
        alone = learn(few_steps(seed), TeacherLabelledInputs(COLUMNS, 1.0))
        for metric in (MAE, MAPE, Q50):
            np.testing.assert_allclose(together[metric][place], alone[metric][0], rtol=1e-3)


def test_sequence_errors_are_in_natural_log_for_any_target_unit() -> None:
    some = ReplicatedSequence.of(replace(two_levels(), unit=2.0), [[1]])
    truth = 2.0 * some.splits[0][0].test.targets
    zero = SeedModels.of([torch.zeros_like(each) for each in some.untrained().parameters])
    errors = some.errors(zero)
    np.testing.assert_allclose(errors[MAE][0, 0], np.abs(truth).mean(), rtol=1e-6)
    np.testing.assert_allclose(
        errors[MAPE][0, 0], 100 * np.abs(np.exp(-truth) - 1).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(errors[Q50][0, 0], np.exp(np.median(np.abs(truth))), rtol=1e-6)


def test_ewc_anchor_stiffness_is_the_mean_squared_gradient_per_row() -> None:
    some = course()
    models = some.untrained()
    anchor = Anchor.of(models, some.splits[0])
    training = some.splits[0][0].training
    squares = [torch.zeros_like(each) for each in models.parameters]
    for inputs, target in zip(training.inputs, training.targets, strict=True):
        loose = [each.clone().requires_grad_() for each in models.parameters]
        answer = SeedModels.of(loose)(torch.from_numpy(inputs).view(1, 1, -1))
        gradients = torch.autograd.grad((answer - float(target)).square().sum(), loose)
        for total, each in zip(squares, gradients, strict=True):
            total.add_(each.square() / len(training))
    for stiff, expected in zip(anchor.stiffness, squares, strict=True):
        torch.testing.assert_close(stiff, expected, rtol=1e-4, atol=1e-6)


def test_continual_fit_does_not_modify_its_input_models() -> None:
    models = course().untrained()
    before = [each.clone() for each in models.parameters]
    trained = fit(models, torch.ones(1, 5, 8, COLUMNS.inputs), torch.ones(1, 5, 8))
    for now, then, new in zip(models.parameters, before, trained.parameters, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)
        assert not torch.equal(now, new)


def test_seed_models_predict_inputs_of_different_lengths() -> None:
    models = course(1, 2).untrained()
    inputs = [np.ones((3, COLUMNS.inputs), np.float32), np.zeros((5, COLUMNS.inputs), np.float32)]
    predictions = models.predictions(inputs)
    assert [len(each) for each in predictions] == [3, 5]
    np.testing.assert_allclose(
        models.of_seed(1).predictions([inputs[1]])[0], predictions[1], rtol=1e-6
    )
