"""Tests of a private teacher: clipping, noise, sampling and privacy cost."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from fedperf_client.release.accountant import epsilon, to_event
from fedperf_shared.releases.release import TrainingParameters
from fedperf_simulations.baselines.batched_mlp import SeedModels
from fedperf_simulations.experiments.drift import private_chain
from fedperf_simulations.experiments.drift.continual import MAE, ReplicatedSequence
from fedperf_simulations.experiments.drift.private_chain import (
    CLIP,
    HOME,
    SAMPLING,
    SHARED,
    DpTraining,
    Promise,
    clipped_sums,
    dp_fit,
    learn_privately,
)
from fedperf_simulations.experiments.drift.rehearsal_methods import Records
from fedperf_simulations.federation.channel import DELTA
from tests.unit.simulations.two_segment_drift import two_levels

INPUTS, ROWS = 3, 12


def generators(count: int = 2) -> list[np.random.Generator]:
    return [np.random.default_rng([7, seed]) for seed in range(count)]


def models() -> SeedModels:
    return SeedModels.draw(INPUTS, generators())


def rows(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(8)
    inputs = torch.from_numpy(rng.uniform(-1, 1, (2, ROWS, INPUTS))).float()
    return inputs, scale * torch.from_numpy(rng.standard_normal((2, ROWS))).float()


def gradient(seed: int, row: int, scale: float) -> list[torch.Tensor]:
    """Return the gradient of one row's squared error from its own backward pass."""
    inputs, targets = rows(scale)
    loose = [each.clone().requires_grad_() for each in models().of_seed(seed).parameters]
    answer = SeedModels.of(loose)(inputs[seed : seed + 1, row : row + 1])
    return list(torch.autograd.grad((answer - targets[seed, row]).square().sum(), loose))


@pytest.mark.parametrize("scale", [0.05, 100.0])
def test_clipped_sums_equal_clipped_gradients_of_the_sampled_rows(scale: float) -> None:
    drawn = (torch.arange(2 * ROWS).view(2, ROWS) % 3 > 0).float()
    sums = clipped_sums(models(), *rows(scale), drawn)
    for seed in range(2):
        expected = [torch.zeros_like(each[:1]) for each in sums]
        for row in np.flatnonzero(drawn[seed].numpy()):
            mine = gradient(seed, int(row), scale)
            norm = float(torch.cat([each.flatten() for each in mine]).norm())
            for total, each in zip(expected, mine, strict=True):
                total.add_(each * min(1.0, CLIP / norm))
        for found, total in zip(sums, expected, strict=True):
            torch.testing.assert_close(found[seed : seed + 1], total, rtol=1e-3, atol=1e-5)


def test_clipped_sum_changes_by_exactly_the_clip_for_the_worst_record() -> None:
    inputs, targets = rows()
    targets[0, 0] = 1e6
    everybody = torch.ones(2, ROWS)
    others = everybody.clone()
    others[0, 0] = 0
    with_it, without = (
        clipped_sums(models(), inputs, targets, each) for each in (everybody, others)
    )
    moved = [a - b for a, b in zip(with_it, without, strict=True)]
    assert float(torch.cat([each[0].flatten() for each in moved]).norm()) == pytest.approx(
        CLIP, rel=1e-3
    )
    assert float(torch.cat([each[1].flatten() for each in moved]).norm()) == 0


def test_dp_fit_adds_noise_even_to_an_empty_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_chain, "SAMPLING", 1e-9)
    nobody = [Records(np.zeros((1, INPUTS), np.float32), np.zeros(1, np.float32))] * 2
    trained = dp_fit(models(), nobody, [1, 1], DpTraining(1.0, 1), generators=generators())
    for now, then in zip(trained.parameters, models().parameters, strict=True):
        assert not torch.equal(now, then)


@pytest.mark.parametrize("promised", [0.5, 1.0])
def test_noise_multiplier_spends_at_most_the_promised_epsilon(promised: float) -> None:
    sigma = Promise(1.0, promised).noise_multiplier(100)
    spent = epsilon([to_event(TrainingParameters(sigma, SAMPLING, 100, CLIP, 1.0))], DELTA)
    assert promised * 0.99 < spent <= promised
    assert Promise(1.0, promised).together == 1.0 + promised


@pytest.mark.slow
def test_shared_dp_model_depends_on_noise_and_local_model_learns_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    course = ReplicatedSequence.of(two_levels(), [[1], [2]], steps=300, dp_steps=60)
    found = learn_privately(course, Promise(1.0, 1.0))
    assert found[SHARED][MAE].shape == found[HOME][MAE].shape == (2, 2, 2)
    current = [found[whose][MAE][:, 1, 1].mean() for whose in (SHARED, HOME)]
    assert current[1] < 0.03 < current[0] < 0.2
    monkeypatch.setattr(Promise, "noise_multiplier", lambda *_: 1e6)
    blind = learn_privately(course, Promise(1.0, 1.0))
    assert blind[SHARED][MAE].mean() > 2 * found[SHARED][MAE].mean()


@pytest.mark.slow
def test_private_training_uses_noise_for_its_step_count_and_released_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Sequence[int], DpTraining]] = []

    def watched(
        models: SeedModels,
        records: Sequence[Records],
        counts: Sequence[int],
        training: DpTraining,
        **_: object,
    ) -> SeedModels:
        seen.append((counts, training))
        return models

    monkeypatch.setattr(private_chain, "dp_fit", watched)
    course = ReplicatedSequence.of(two_levels(), [[1], [2]], steps=2, dp_steps=7)
    promise = Promise(0.2, 1.0)
    learn_privately(course, promise)
    needed = DpTraining(promise.noise_multiplier(7), 7)
    assert [training for _, training in seen] == [needed] * 2
    # The counts are released ones, which differ from the true ones at so small an epsilon.
    counts = {count for counts, _ in seen for count in counts}
    assert len(counts) > 1
    assert min(abs(count - course.training_rows / 2) for count in counts) < 60
