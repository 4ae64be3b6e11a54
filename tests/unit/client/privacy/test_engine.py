"""The engine against one backward pass per example, and against hostile examples."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedperf_client.privacy.engine import ClippedSum, clipped_sum, nothing, squared_norms
from fedperf_client.privacy.training import Example, sum_over
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.model.batching import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.loss import huber_per_sample
from fedperf_shared.model.recorded import forward
from fedperf_shared.model.records import Rows, Tape
from tests.unit.client.privacy import oracle

CLIP = 0.3
"""Some of the random examples' gradients are longer, some shorter."""


def model(seed: int = 1) -> GGFN:
    return GGFN(dropout=0.0, seed=seed).double().eval()


def flat(found: ClippedSum) -> Tensor:
    return torch.cat([found.gradients[name].reshape(-1) for name in ARRAY_SHAPES]).double()


def examples(seed: int, sizes: Sequence[int]) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [oracle.random_example(rng, size) for size in sizes]


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.one_of(st.integers(1, 12), st.integers(2, 40)), min_size=1, max_size=16),
)
def test_the_sum_is_that_of_one_backward_pass_per_example(seed: int, sizes: list[int]) -> None:
    ggfn, drawn = model(seed % 7), examples(seed, sizes)
    assert relative(flat(sum_over(ggfn, drawn, CLIP)), oracle.clipped_sum(ggfn, drawn, CLIP)) < 1e-9


def test_every_parameter_of_its_own_is_right() -> None:
    ggfn, drawn = model(), examples(3, [7, 2, 19, 1, 40])
    sizes = [math.prod(shape) for shape in ARRAY_SHAPES.values()]
    found = torch.split(flat(sum_over(ggfn, drawn, CLIP)), sizes)
    expected = torch.split(oracle.clipped_sum(ggfn, drawn, CLIP), sizes)
    for name, one, other in zip(ARRAY_SHAPES, found, expected, strict=True):
        assert relative(one, other) < 1e-9, name


def test_in_single_precision_the_sum_is_right_to_rounding() -> None:
    drawn = examples(4, [2, 3, 8, 8, 13, 21, 40])
    expected = oracle.clipped_sum(model(), drawn, CLIP)
    assert relative(flat(sum_over(model().float(), drawn, CLIP)), expected) < 1e-5


def test_norms_are_those_of_whole_gradients() -> None:
    ggfn, drawn = model(), examples(5, [1, 2, 3, *range(4, 41, 4)])
    batch = collate([each.graph for each in drawn])
    rows, tape = Rows.of(batch), Tape()
    targets = torch.tensor([each.target for each in drawn], dtype=torch.float64)
    loss = huber_per_sample(forward(ggfn, batch, rows, tape), targets[batch.given]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    expected = torch.stack([oracle.gradient(ggfn, each).norm() for each in drawn])
    found = batch.in_given_order(squared_norms(tape, rows).sqrt())
    assert float(((found - expected) / expected).abs().max()) < 1e-9


def test_records_do_not_hold_the_graph_that_holds_them() -> None:
    """In such a circle no step's memory would ever be freed."""
    batch, tape = collate([each.graph for each in examples(5, [3, 9])]), Tape()
    loss = forward(model(), batch, Rows.of(batch), tape).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    values = [getattr(record, name) for record in tape for name in vars(type(record))["__slots__"]]
    tensors = [value for value in values if isinstance(value, Tensor)]
    assert len(tensors) > 20
    assert all(tensor.grad_fn is None for tensor in tensors)


def test_the_order_of_a_batch_does_not_matter() -> None:
    ggfn, drawn = model(), examples(6, [9, 2, 2, 31, 9, 17])
    again = [drawn[place] for place in (4, 0, 5, 2, 3, 1)]
    found = [flat(sum_over(ggfn, order, CLIP)) for order in (drawn, again)]
    assert relative(found[1], found[0]) < 1e-12


def test_without_a_tape_gradients_are_the_ordinary_ones() -> None:
    ggfn, drawn = model(), examples(7, [5, 1, 12])
    batch = collate([each.graph for each in drawn])
    double = replace(batch, operators=batch.operators.double(), plans=batch.plans.double())
    ordinary, own = ggfn(double), batch.in_given_order(forward(ggfn, batch, Rows.of(batch)))
    assert float((ordinary - own).detach().abs().max()) < 1e-14
    parameters = list(ggfn.parameters())
    for one, other in zip(
        torch.autograd.grad(own.square().sum(), parameters),
        torch.autograd.grad(ordinary.square().sum(), parameters),
        strict=True,
    ):
        assert relative(one, other) < 1e-9


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


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_example_moves_the_sum_by_at_most_the_clip(number: int, place: int) -> None:
    """As the longest of its batch, too: padding must not carry its values to others."""
    ggfn, others = model().float(), examples(8, [3, 5, 9, 20])
    without = flat(sum_over(ggfn, others, CLIP))
    with_it = flat(sum_over(ggfn, [*others[:place], HOSTILE[number], *others[place:]], CLIP))
    assert bool(torch.isfinite(with_it).all())
    assert float((with_it - without).norm()) <= CLIP + 1e-6 * float(without.norm())


@pytest.mark.parametrize(
    "bad", [each for each in HOSTILE if not math.isfinite(each.target)], ids=str
)
def test_an_example_that_is_not_finite_counts_exactly_zero(bad: Example) -> None:
    ggfn, others = model(), examples(8, [3, 5])
    alone = flat(sum_over(ggfn, [bad], CLIP))
    assert bool((alone == 0).all())
    with_it, without = sum_over(ggfn, [bad, *others], CLIP), sum_over(ggfn, others, CLIP)
    assert relative(flat(with_it), flat(without)) < 1e-15


@pytest.mark.parametrize(
    "graph",
    [
        PlanGraph(torch.zeros(2, 9), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64)),
        PlanGraph(torch.zeros(2, 63), torch.zeros(3), torch.zeros(2, 0, dtype=torch.int64)),
        PlanGraph(torch.zeros(2, 63), torch.zeros(39), torch.tensor([[0], [7]])),
        PlanGraph(torch.zeros(0, 63), torch.zeros(39), torch.zeros(2, 0, dtype=torch.int64)),
    ],
)
def test_an_example_that_no_model_can_take_counts_exactly_zero(graph: PlanGraph) -> None:
    ggfn, others = model(), examples(9, [4, 6])
    with_it = sum_over(ggfn, [Example(graph, 0.0), *others], CLIP)
    assert torch.equal(flat(with_it), flat(sum_over(ggfn, others, CLIP)))
    assert torch.equal(flat(sum_over(ggfn, [Example(graph, 0.0)], CLIP)), flat(nothing(ggfn, CLIP)))


def test_each_example_is_clipped_to_just_the_bound() -> None:
    ggfn = model()
    for example in examples(10, [2, 6, 30]):
        norm = float(oracle.gradient(ggfn, example).norm())
        clipped = float(flat(sum_over(ggfn, [example], norm / 3)).norm())
        assert norm / 3 * (1 - 1e-9) < clipped <= norm / 3
        assert float(flat(sum_over(ggfn, [example], 2 * norm)).norm()) == pytest.approx(norm)


def test_nobodys_gradients_are_left_on_the_model() -> None:
    ggfn = model()
    sum_over(ggfn, examples(11, [3, 4]), CLIP)
    assert all(parameter.grad is None for parameter in ggfn.parameters())


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_bounds_nothing_is_refused(clip_norm: float) -> None:
    with pytest.raises(ConfigurationError, match="clip_norm must be positive and finite"):
        sum_over(model(), examples(1, [2]), clip_norm)


def test_frozen_layers_count_neither_in_the_sum_nor_in_the_norms() -> None:
    ggfn, drawn = model(), examples(12, [3, 9, 14])
    for name, parameter in ggfn.named_parameters():
        parameter.requires_grad_(name.startswith(("dense", "attention.1")))
    found = sum_over(ggfn, drawn, CLIP)
    trained = [p for p in ggfn.parameters() if p.requires_grad]
    assert len(found.gradients) == len(trained) == 12
    expected = oracle.clipped_sum(ggfn, drawn, CLIP)
    assert (
        relative(torch.cat([each.reshape(-1) for each in found.gradients.values()]), expected)
        < 1e-9
    )


def test_a_layer_is_trained_as_a_whole_or_not_at_all() -> None:
    ggfn = model()
    ggfn.dense[1].bias.requires_grad_(False)
    with pytest.raises(ConfigurationError, match=r"each as a whole.*dense\.1\.bias"):
        sum_over(ggfn, examples(1, [3]), CLIP)


def test_a_model_with_a_parameter_that_the_engine_does_not_know_is_refused() -> None:
    ggfn = model()
    ggfn.more = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    batch = collate([each.graph for each in examples(1, [3])])
    with pytest.raises(ConfigurationError, match="parameters differ: more"):
        clipped_sum(ggfn, batch, torch.zeros(1), CLIP)
