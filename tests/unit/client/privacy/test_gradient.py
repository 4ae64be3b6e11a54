import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedperf_client.privacy.gradient import (
    Example,
    Rehearsal,
    clipped_sum,
    dp_train,
    poisson_sample,
    private_gradient,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.release import TrainingParameters
from tests.unit.client.privacy.seeded_noise import NoNoise, SeededNoise

CLIP = 0.5
Workload = list[Example[Tensor]]


@dataclass
class Explosive:
    """A batch that no model can take."""


class SmallModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 1)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)

    def forward(self, batch: Tensor) -> Tensor:
        output: Tensor = self.last(torch.tanh(self.first(batch)))
        return output.squeeze(1)


def example(number: int, *, scale: float = 1.0, target: float | None = None) -> Example[Tensor]:
    generator = torch.Generator().manual_seed(number)
    batch = torch.randn(1, 4, generator=generator) * scale
    return Example(batch, torch.tensor([float(number % 3) if target is None else target]))


def workloads(count: int = 8) -> list[Workload]:
    return [[example(number), example(number + 100)] for number in range(count)]


def training(**changes: float) -> TrainingParameters:
    values: dict[str, float] = {
        "noise_multiplier": 1.0,
        "sampling_probability": 0.5,
        "clip_norm": CLIP,
        "nominal_workloads": 8,
    }
    return TrainingParameters(**{**values, **changes}, steps=3)


def flat_gradient(model: nn.Module, one: Example[Tensor]) -> Tensor:
    loss = nn.functional.huber_loss(model(one.batch), one.target, delta=0.5)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


HOSTILE: dict[str, Example[Tensor]] = {
    "huge features": example(50, scale=1e30),
    "large features": example(51, scale=50.0),
    "huge target": example(52, target=1e3),
    "infinite target": example(53, target=math.inf),
    "NaN target": example(54, target=math.nan),
    "NaN feature": Example(torch.full((1, 4), math.nan), torch.zeros(1)),
    "infinite feature": Example(torch.full((1, 4), math.inf), torch.zeros(1)),
    "wrong width": Example(torch.zeros(1, 9), torch.zeros(1)),
    "no tensor": Example(cast("Tensor", Explosive()), torch.zeros(1)),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_workload_more_moves_the_clipped_sum_by_at_most_the_clip(
    hostile: Example[Tensor],
) -> None:
    model = SmallModel()
    others = [workload[0] for workload in workloads()]
    without = clipped_sum(model, others, CLIP)
    with_it = clipped_sum(model, [others[0], hostile, *others[1:]], CLIP)
    assert torch.isfinite(with_it).all()
    assert float((with_it - without).norm()) <= CLIP + 1e-12


@pytest.mark.parametrize("name", ["NaN target", "NaN feature", "wrong width", "no tensor"])
def test_a_workload_that_fails_counts_exactly_zero(name: str) -> None:
    model = SmallModel()
    others = [workload[0] for workload in workloads()]
    assert torch.equal(
        clipped_sum(model, [HOSTILE[name], *others], CLIP), clipped_sum(model, others, CLIP)
    )


class Cusp(nn.Module):
    """Finite loss, infinite gradient: the root of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(4))

    def forward(self, batch: Tensor) -> Tensor:
        return torch.sqrt((self.weights * batch).sum(dim=1))


def test_a_finite_loss_with_a_gradient_that_is_not_counts_exactly_zero() -> None:
    assert torch.equal(clipped_sum(Cusp(), [example(1)], CLIP), torch.zeros(4).double())


def test_the_whole_gradient_is_clipped_and_a_short_one_is_left_alone() -> None:
    model = SmallModel()
    gradient = flat_gradient(model, example(1)).double()
    norm = float(gradient.norm())
    short = clipped_sum(model, [example(1)], 2 * norm)
    long = clipped_sum(model, [example(1)], norm / 3)
    assert torch.allclose(short, gradient, rtol=1e-6)
    assert torch.allclose(long, gradient / 3, rtol=1e-5)
    assert norm / 3 * (1 - 1e-8) <= float(long.norm()) <= norm / 3


def test_a_gradient_is_sum_plus_noise_over_the_declared_batch() -> None:
    model, parameters = SmallModel(), training(noise_multiplier=2.0)
    drawn = workloads(3)
    noise = SeededNoise(5)
    got = private_gradient(model, drawn, parameters, noise)
    same = SeededNoise(5)
    chosen = [w[int(u * 2)] for w, u in zip(drawn, same.uniform(3), strict=True)]
    total = clipped_sum(model, chosen, CLIP)
    total += torch.from_numpy(same.gaussian(total.numel())) * 2.0 * CLIP
    assert torch.allclose(got, total / (0.5 * 8), rtol=0, atol=1e-12)


def test_an_empty_draw_and_an_empty_workload_are_noise_all_the_same() -> None:
    draws: list[list[Workload]] = [[], [[]]]
    for drawn in draws:
        gradient = private_gradient(SmallModel(), drawn, training(), SeededNoise(1))
        assert float(gradient.std()) > 0.05


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1e-200, 1e-200)])
def test_a_gradient_without_noise_is_refused(noise_multiplier: float, clip: float) -> None:
    parameters = training(noise_multiplier=noise_multiplier, clip_norm=clip)
    with pytest.raises(ConfigurationError, match="never released without noise"):
        private_gradient(SmallModel(), [], parameters, SeededNoise())


def test_poisson_draws_each_workload_on_its_own_and_maybe_none() -> None:
    uniforms = np.array([0.1, 0.25, 0.2499, 0.9])
    assert poisson_sample(4, 0.25, uniforms).tolist() == [0, 2]
    assert poisson_sample(4, 0.05, uniforms).tolist() == []
    assert poisson_sample(0, 0.5, np.empty(0)).tolist() == []
    with pytest.raises(ConfigurationError, match="4 workloads need 4 uniforms"):
        poisson_sample(4, 0.5, uniforms[:2])


def test_training_leaves_the_given_model_alone_and_moves_the_copy() -> None:
    model = SmallModel().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    steps: list[int] = []
    state = dp_train(
        model, workloads(), training(), SeededNoise(), learning_rate=0.01, on_step=steps.append
    )
    assert steps == [1, 2, 3]
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(not torch.equal(before[name], value) for name, value in state.items())


def test_training_makes_the_same_steps_and_stays_finite_on_hostile_data() -> None:
    steps: list[int] = []
    state = dp_train(
        SmallModel(),
        [[one] for one in HOSTILE.values()],
        training(sampling_probability=1.0),
        SeededNoise(),
        learning_rate=0.01,
        on_step=steps.append,
    )
    assert steps == [1, 2, 3]
    assert all(torch.isfinite(value).all() for value in state.values())


def test_training_without_noise_lowers_the_loss() -> None:
    model, data = SmallModel(), workloads(20)
    parameters = TrainingParameters(1.0, 1.0, 60, clip_norm=5.0, nominal_workloads=20)
    state = dp_train(model, data, parameters, NoNoise(), learning_rate=0.02)
    trained = SmallModel()
    trained.load_state_dict(state)

    def loss(of: nn.Module) -> float:
        errors = [abs(float(of(w[1].batch).detach() - w[1].target)) for w in data]
        return float(np.mean(errors))

    assert loss(trained) < 0.7 * loss(model)


def test_rehearsal_rows_weigh_a_constant_and_need_no_data_of_ones_own() -> None:
    rows = Example(torch.ones(6, 4), torch.full((6,), 3.0))
    parameters = TrainingParameters(1.0, 0.5, 40, clip_norm=1e-9, nominal_workloads=8)
    model = SmallModel()
    state = dp_train(
        model, [], parameters, NoNoise(), learning_rate=0.05, rehearsal=Rehearsal([rows])
    )
    trained = SmallModel()
    trained.load_state_dict(state)
    with torch.no_grad():
        before, after = (float((of(rows.batch) - 3).abs().mean()) for of in (model, trained))
    assert after < 0.5 * before


def test_rehearsal_rows_that_are_not_finite_are_left_out() -> None:
    rows = Example(torch.full((2, 4), math.nan), torch.zeros(2))
    with_rows = dp_train(
        SmallModel(),
        workloads(),
        training(),
        SeededNoise(2),
        learning_rate=0.01,
        rehearsal=Rehearsal([rows]),
    )
    without = dp_train(SmallModel(), workloads(), training(), SeededNoise(2), learning_rate=0.01)
    assert all(torch.equal(with_rows[name], without[name]) for name in without)


def test_global_generators_are_never_touched() -> None:
    model = SmallModel()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    dp_train(model, workloads(), training(), SeededNoise(), learning_rate=0.01)
    assert torch.equal(before, torch.get_rng_state())


def test_the_cost_model_itself_is_clipped_per_workload() -> None:
    from fedperf_shared.model.batching import Batch, PlanGraph, collate
    from fedperf_shared.model.ggfn import GGFN

    generator = torch.Generator().manual_seed(4)

    def execution(operators: int, target: float) -> Example[Batch]:
        graph = PlanGraph(
            torch.rand(operators, 63, generator=generator),
            torch.rand(39, generator=generator),
            torch.stack([torch.arange(operators - 1), torch.arange(1, operators)]),
        )
        return Example(collate([graph]), torch.tensor([target]))

    model = GGFN(dropout=0.0).eval()
    executions = [execution(1 + number, number - 2.0) for number in range(5)]
    whole = clipped_sum(model, executions, 0.1)
    assert whole.numel() == 615_809
    for left_out in range(5):
        others = [each for number, each in enumerate(executions) if number != left_out]
        change = float((whole - clipped_sum(model, others, 0.1)).norm())
        assert 0 < change <= 0.1 + 1e-12
