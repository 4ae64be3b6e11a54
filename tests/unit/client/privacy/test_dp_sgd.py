import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedperf_client.privacy.clipped_sums import ClippedSum, nothing
from fedperf_client.privacy.dp_sgd import (
    Example,
    PrivateOptimizer,
    Rehearsal,
    UnclippedGradientError,
    dp_train,
    draw,
    poisson_sample,
    sum_over,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.batches import collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.release import TrainingParameters
from tests.unit.client.privacy.oracle import random_example
from tests.unit.client.privacy.seeded_noise import NoNoise, SeededNoise

CLIP = 0.5


def model() -> GGFN:
    return GGFN(dropout=0.0, seed=1).eval()


def workloads(count: int = 8) -> list[list[Example]]:
    rng = np.random.default_rng(0)
    return [[random_example(rng, 2 + number % 5) for _ in range(2)] for number in range(count)]


def training(**changes: float) -> TrainingParameters:
    values: dict[str, float] = {
        "noise_multiplier": 1.0,
        "sampling_probability": 0.5,
        "clip_norm": CLIP,
        "nominal_workloads": 8,
    }
    return TrainingParameters(**{**values, **changes}, steps=3)


def optimizer(ggfn: GGFN, noise: SeededNoise, **changes: float) -> PrivateOptimizer:
    return PrivateOptimizer(ggfn, training(**changes), noise, learning_rate=0.01)


def gradients(ggfn: GGFN) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in ggfn.parameters() if p.grad is not None])


def flat(found: ClippedSum) -> Tensor:
    return torch.cat([value.reshape(-1) for value in found.gradients.values()])


def stepped(clipped: ClippedSum, ggfn: GGFN, noise: SeededNoise, **changes: float) -> Tensor:
    """The gradient that Adam saw."""
    private = optimizer(ggfn, noise, **changes)
    private.take(clipped)
    private.step()
    return gradients(ggfn)


def test_a_step_is_made_of_sum_plus_noise_over_the_declared_batch() -> None:
    ggfn = model()
    clipped = sum_over(ggfn, [members[0] for members in workloads()], CLIP)
    got = stepped(clipped, ggfn, SeededNoise(5), noise_multiplier=2.0)
    noise = torch.from_numpy(SeededNoise(5).gaussian(got.numel()))
    expected = (flat(clipped) + 2.0 * CLIP * noise) / (0.5 * 8)
    assert float((got - expected).abs().max()) < 1e-6


def test_an_empty_draw_is_noise_all_the_same() -> None:
    ggfn = model()
    got = stepped(nothing(ggfn, CLIP), ggfn, SeededNoise(1))
    assert float(got.std()) == pytest.approx(CLIP / 4, rel=0.01)


def test_a_step_is_refused_unless_the_engine_made_its_gradient() -> None:
    ggfn = model()
    before = [parameter.clone() for parameter in ggfn.parameters()]
    private = optimizer(ggfn, SeededNoise())
    batch = collate([members[0].graph for members in workloads()])
    ggfn(batch).sum().backward()
    with pytest.raises(UnclippedGradientError, match="the engine clipped"):
        private.step()
    private.take(nothing(ggfn, CLIP))
    private.step()
    with pytest.raises(UnclippedGradientError, match="the engine clipped"):
        private.step()  # one sum, one step
    assert any(not torch.equal(a, b) for a, b in zip(before, ggfn.parameters(), strict=True))


def test_a_stray_backward_pass_does_not_reach_the_step() -> None:
    ggfn, other = model(), model()
    ggfn(collate([workloads()[0][0].graph])).sum().backward()
    clean, stray = (stepped(nothing(each, CLIP), each, SeededNoise(2)) for each in (other, ggfn))
    assert torch.equal(clean, stray)


def test_a_sum_with_a_wider_bound_than_the_noise_is_refused() -> None:
    ggfn = model()
    private = optimizer(ggfn, SeededNoise())
    with pytest.raises(UnclippedGradientError, match="its own bound"):
        private.take(nothing(ggfn, 2 * CLIP))


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1e-200, 1e-200)])
def test_a_gradient_without_noise_is_refused(noise_multiplier: float, clip: float) -> None:
    with pytest.raises(ConfigurationError, match="never released without noise"):
        optimizer(model(), SeededNoise(), noise_multiplier=noise_multiplier, clip_norm=clip)


def test_poisson_draws_each_workload_on_its_own_and_maybe_none() -> None:
    uniforms = np.array([0.1, 0.25, 0.2499, 0.9])
    assert poisson_sample(4, 0.25, uniforms).tolist() == [0, 2]
    assert poisson_sample(4, 0.05, uniforms).tolist() == []
    assert poisson_sample(0, 0.5, np.empty(0)).tolist() == []
    with pytest.raises(ConfigurationError, match="4 workloads need 4 uniforms"):
        poisson_sample(4, 0.5, uniforms[:2])


def test_a_workload_is_drawn_as_one_of_its_executions() -> None:
    members = workloads(200)
    first = draw(members, 0.5, SeededNoise(3))
    owner = {id(each): number for number, one in enumerate(members) for each in one}
    owners = [owner[id(each)] for each in first]
    assert len(set(owners)) == len(owners)
    assert 70 < len(owners) < 130
    seconds = sum(each is members[number][1] for each, number in zip(first, owners, strict=True))
    assert 0.3 < seconds / len(owners) < 0.7
    assert draw([[]] * 5, 1.0, SeededNoise()) == []


def test_executions_are_drawn_as_often_as_their_shares_say() -> None:
    rng = np.random.default_rng(0)
    shares = (0.5, 0.125, 0.375)
    one = [replace(random_example(rng, 2), share=share) for share in shares]
    drawn = draw([one] * 4_000, 1.0, SeededNoise(5))
    found = [sum(each is member for each in drawn) / 4_000 for member in one]
    np.testing.assert_allclose(found, shares, atol=0.03)


def test_training_leaves_the_given_model_alone_and_moves_the_copy() -> None:
    ggfn = model().train()
    before = {name: value.clone() for name, value in ggfn.state_dict().items()}
    steps: list[int] = []
    state = dp_train(
        ggfn, workloads(), training(), SeededNoise(), learning_rate=0.01, on_step=steps.append
    )
    assert steps == [1, 2, 3]
    assert ggfn.training
    assert all(torch.equal(before[name], value) for name, value in ggfn.state_dict().items())
    assert all(not torch.equal(before[name], value) for name, value in state.items())


def test_training_makes_the_same_steps_and_stays_finite_on_hostile_data() -> None:
    bad = [Example(one[0].graph, target) for one in workloads(2) for target in (math.nan, 1e30)]
    steps: list[int] = []
    state = dp_train(
        model(),
        [[one] for one in bad],
        training(sampling_probability=1.0),
        SeededNoise(),
        learning_rate=0.01,
        on_step=steps.append,
    )
    assert steps == [1, 2, 3]
    assert all(bool(torch.isfinite(value).all()) for value in state.values())


def loss(state: dict[str, Tensor], examples: list[Example]) -> float:
    trained = model()
    trained.load_state_dict(state)
    with torch.no_grad():
        answers = trained(collate([each.graph for each in examples]))
    return float((answers - torch.tensor([each.target for each in examples])).abs().mean())


@pytest.mark.slow
def test_training_without_noise_lowers_the_loss() -> None:
    data = [members[:1] for members in workloads(20)]
    parameters = TrainingParameters(1.0, 1.0, 30, clip_norm=5.0, nominal_workloads=20)
    state = dp_train(model(), data, parameters, NoNoise(), learning_rate=3e-3)
    own = [members[0] for members in data]
    assert loss(state, own) < 0.5 * loss(model().state_dict(), own)


def test_rehearsal_rows_weigh_a_constant_and_need_no_data_of_ones_own() -> None:
    rows = [members[0] for members in workloads(6)]
    parameters = TrainingParameters(1.0, 0.5, 30, clip_norm=1e-9, nominal_workloads=8)
    state = dp_train(
        model(), [], parameters, NoNoise(), learning_rate=3e-3, rehearsal=Rehearsal([rows])
    )
    assert loss(state, rows) < 0.5 * loss(model().state_dict(), rows)


def test_the_gradient_of_rehearsal_is_divided_by_the_declared_batch_like_the_sum() -> None:
    one, other = model(), model()
    clipped = sum_over(one, [members[0] for members in workloads()], CLIP)
    alone = stepped(clipped, one, SeededNoise(5))
    private = optimizer(other, SeededNoise(5))
    private.take(clipped, clipped.gradients)
    private.step()
    expected = alone + flat(clipped) / (0.5 * 8)
    torch.testing.assert_close(gradients(other), expected.float(), rtol=0, atol=1e-6)


def test_rehearsal_rows_that_are_not_finite_are_left_out() -> None:
    rows = [Example(members[0].graph, math.nan) for members in workloads(2)]
    states = [
        dp_train(
            model(), workloads(), training(), SeededNoise(2), learning_rate=0.01, rehearsal=others
        )
        for others in (Rehearsal([rows]), None)
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_global_generators_are_never_touched() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    dp_train(model(), workloads(), training(), SeededNoise(), learning_rate=0.01)
    assert torch.equal(before, torch.get_rng_state())
