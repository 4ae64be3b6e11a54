"""The engine against one backward pass per example, and against hostile examples."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedperf_client.privacy.clipped_sums import UNIT_BITS, ClippedSum, clipped_sum, nothing
from fedperf_client.privacy.dp_sgd import Example, sum_over
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS
from tests.unit.client.privacy import oracle

CLIP = 0.3
"""Some of the random examples' gradients are longer, some shorter."""

UNIT = 2.0**-UNIT_BITS


def model(seed: int = 1) -> GGFN:
    return GGFN(dropout=0.0, seed=seed).eval()


def reference(seed: int = 1) -> GGFN:
    return model(seed).double()


def flat(found: ClippedSum) -> Tensor:
    return torch.cat([found.gradients[name].reshape(-1) for name in ARRAY_SHAPES])


def units(found: ClippedSum) -> Tensor:
    return torch.cat([each.reshape(-1) for each in found.units.values()])


def examples(seed: int, sizes: Sequence[int]) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [oracle.random_example(rng, size) for size in sizes]


def check(found: Tensor, expected: Tensor, *, shortest: float = 0.999) -> None:
    """As long, within what the margin takes, and in the same direction."""
    assert shortest <= float(found.norm() / expected.norm()) < 1.0005
    cosine = float(found @ expected / found.norm() / expected.norm())
    assert cosine > 0.99999


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.one_of(st.integers(1, 12), st.integers(2, 40)), min_size=1, max_size=8),
)
@example(seed=647744384, sizes=[1, 25, 19, 3, 14, 34, 8])  # the last one lies on a kink
def test_the_sum_is_that_of_one_backward_pass_per_example(seed: int, sizes: list[int]) -> None:
    exact = reference(seed % 7)
    drawn = [each for each in examples(seed, sizes) if oracle.is_smooth_at(exact, each)]
    assume(drawn)
    expected = oracle.clipped_sum(exact, drawn, CLIP)
    check(flat(sum_over(model(seed % 7), drawn, CLIP)), expected)


@pytest.mark.parametrize("size", [1, 40, 41, 150, MAX_OPERATORS])
def test_one_example_keeps_its_length_and_its_direction(size: int) -> None:
    """Clipped, and as long as it is."""
    drawn = examples(3 + size, [size])
    gradient = oracle.gradient(reference(), drawn[0])
    for clip in (0.01, 100.0):
        expected = gradient * min(1.0, clip / float(gradient.norm()))
        found = flat(sum_over(model(), drawn, clip))
        check(found, expected, shortest=0.999 if size <= 150 else 0.99)


def test_every_parameter_of_its_own_is_right() -> None:
    drawn = examples(3, [7, 2, 19, 1, 40])
    sizes = [math.prod(shape) for shape in ARRAY_SHAPES.values()]
    found = torch.split(flat(sum_over(model(), drawn, CLIP)), sizes)
    expected = torch.split(oracle.clipped_sum(reference(), drawn, CLIP), sizes)
    for name, one, other in zip(ARRAY_SHAPES, found, expected, strict=True):
        # A cosine of 0.99999; a bias of one number and a small matrix see little averaging.
        assert float((one - other).norm() / other.norm()) < 4.4e-3, name


def test_each_example_counts_by_its_own_length() -> None:
    for one in examples(10, [1, 2, 6, 30]):
        norm = float(oracle.gradient(reference(), one).norm())
        clipped = float(flat(sum_over(model(), [one], norm / 3)).norm())
        assert norm / 3 * 0.999 < clipped <= norm / 3
        whole = float(flat(sum_over(model(), [one], 2 * norm)).norm())
        assert whole == pytest.approx(norm, rel=2e-4)


@pytest.mark.slow
def test_more_plans_than_one_pass_takes_are_added_as_well() -> None:
    """Long ones fit in smaller numbers."""
    drawn = examples(13, [*[2] * 150, *[300] * 40])
    halves = [units(sum_over(model(), part, CLIP)) for part in (drawn[::2], drawn[1::2])]
    assert torch.equal(units(sum_over(model(), drawn, CLIP)), halves[0] + halves[1])


def hostile(number: int, *, value: float, where: str) -> Example:
    example = oracle.random_example(np.random.default_rng(900 + number), 2 + 13 * (number % 4))
    if where == "target":
        return replace(example, target=value)
    graph = PlanGraph(
        example.graph.operators.clone(), example.graph.plan.clone(), example.graph.edges
    )
    tensor = graph.plan if where == "plan" else graph.operators
    tensor.view(-1)[0] = value
    return Example(graph, example.target)


HOSTILE = [
    hostile(number, value=value, where=where)
    for number, (value, where) in enumerate(
        (value, where)
        for value in (50.0, 1e30, math.inf, -math.inf, math.nan)
        for where in ("operators", "plan", "target")
    )
]


@cache
def company() -> tuple[GGFN, list[Example], Tensor]:
    """A model, examples of others, and their sum without anybody else."""
    ggfn, others = model(), examples(8, [3, 5, 9, 20])
    return ggfn, others, units(sum_over(ggfn, others, CLIP))


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_example_moves_the_sum_by_at_most_the_clip(number: int, place: int) -> None:
    """As the longest of its batch, too: padding must not carry its values to others."""
    ggfn, others, without = company()
    with_it = units(sum_over(ggfn, [*others[:place], HOSTILE[number], *others[place:]], CLIP))
    assert float((with_it - without).double().norm()) * UNIT <= 1.0
    assert torch.equal(with_it - without, units(sum_over(ggfn, [HOSTILE[number]], CLIP)))


def beyond_all_use(example: Example) -> bool:
    features = torch.cat([example.graph.operators.flatten(), example.graph.plan])
    return not (math.isfinite(example.target) and bool(features.abs().max() < 1e20))


@pytest.mark.parametrize(
    "number", [place for place, each in enumerate(HOSTILE) if beyond_all_use(each)]
)
def test_an_example_that_is_not_finite_or_far_too_large_counts_exactly_zero(number: int) -> None:
    ggfn, others, bad = model(), examples(8, [3, 5]), HOSTILE[number]
    assert not units(sum_over(ggfn, [bad], CLIP)).any()
    with_it, without = sum_over(ggfn, [bad, *others], CLIP), sum_over(ggfn, others, CLIP)
    assert torch.equal(units(with_it), units(without))


@pytest.mark.parametrize(
    "graph",
    [
        PlanGraph(torch.zeros(2, 9), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64)),
        PlanGraph(torch.zeros(2, 63), torch.zeros(3), torch.zeros(2, 0, dtype=torch.int64)),
        PlanGraph(torch.zeros(2, 63), torch.zeros(39), torch.tensor([[0], [7]])),
        PlanGraph(torch.zeros(513, 63), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64)),
        PlanGraph(torch.zeros(0, 63), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64)),
    ],
)
def test_an_example_that_no_model_can_take_counts_exactly_zero(graph: PlanGraph) -> None:
    ggfn, others = model(), examples(9, [4, 6])
    with_it = sum_over(ggfn, [Example(graph, 0.0), *others], CLIP)
    assert torch.equal(units(with_it), units(sum_over(ggfn, others, CLIP)))
    alone = sum_over(ggfn, [Example(graph, 0.0)], CLIP)
    assert torch.equal(units(alone), units(nothing(ggfn, CLIP)))


def test_nobodys_gradients_are_left_on_the_model() -> None:
    ggfn = model()
    sum_over(ggfn, examples(11, [3, 4]), CLIP)
    assert all(parameter.grad is None for parameter in ggfn.parameters())


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_bounds_nothing_is_refused(clip_norm: float) -> None:
    with pytest.raises(ConfigurationError, match="clip_norm must be positive and finite"):
        sum_over(model(), examples(1, [2]), clip_norm)


def test_frozen_layers_count_neither_in_the_sum_nor_in_the_norms() -> None:
    ggfn, exact, drawn = model(), reference(), examples(12, [3, 9, 14])
    for each in (ggfn, exact):
        for name, parameter in each.named_parameters():
            parameter.requires_grad_(name.startswith(("dense", "attention.1")))
    found = sum_over(ggfn, drawn, CLIP).gradients
    trained = [p for p in ggfn.parameters() if p.requires_grad]
    assert len(found) == len(trained) == 12
    expected = oracle.clipped_sum(exact, drawn, CLIP)
    check(torch.cat([each.reshape(-1) for each in found.values()]), expected)


def test_a_layer_is_trained_as_a_whole_or_not_at_all() -> None:
    ggfn = model()
    ggfn.dense[1].bias.requires_grad_(False)
    with pytest.raises(ConfigurationError, match=r"each as a whole.*dense\.1\.bias"):
        sum_over(ggfn, examples(1, [3]), CLIP)


def test_a_model_with_a_parameter_that_the_engine_does_not_know_is_refused() -> None:
    ggfn = model()
    ggfn.more = nn.Parameter(torch.zeros(2))
    with pytest.raises(ConfigurationError, match="parameters differ: more"):
        clipped_sum(ggfn, [examples(1, [3])[0].graph], torch.zeros(1), CLIP)


def test_a_plan_too_large_for_exact_sums_is_refused() -> None:
    graph = PlanGraph(torch.zeros(513, 63), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(ConfigurationError, match="at most 512 operators"):
        clipped_sum(model(), [graph], torch.zeros(1), CLIP)
