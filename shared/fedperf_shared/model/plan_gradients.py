"""Gradients of GGFN's output in its attention and dense weights, one gradient per plan.

The bits of a plan's output and gradient do not depend on the other plans of the computation. So a
workload's contribution never depends on other workloads. Three properties ensure this:

- Every sum is a product of matrices in exact arithmetic (`exact_product`).
- All other operations are elementwise. Some elementwise functions round the last numbers of an
  array, which do not fill a vector register, differently. They are applied to whole vectors only:
  rows have multiples of 64 numbers or are padded, and torch computes in one thread.
- Plans are padded with operators whose states are zero. Zeros change no sum and no rounding.

Each plan has its own view of the weights, so that autograd returns a gradient for each plan. The
recurrent weights are constants. The numbers are those of GGFN without dropout, rounded
to 22 bits before every product.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional

from fedperf_shared.model.architecture import (
    ARRAY_SHAPES,
    ATTENTION_LAYERS,
    DENSE_LAYERS,
    HEADS,
    HIDDEN,
    NEGATIVE_SLOPE,
    RECURRENT_LAYERS,
    Weights,
    check_arrays,
    named_arrays,
    offset_of,
)
from fedperf_shared.model.inference import edge_counts
from fedperf_shared.workflow.features import Features

# Parameters that have gradients, in the order of the architecture.
LINEARIZED_ARRAYS = tuple(
    name for name in ARRAY_SHAPES if name.startswith(("attention.", "dense."))
)

LINEARIZED_WEIGHTS = sum(math.prod(ARRAY_SHAPES[name]) for name in LINEARIZED_ARRAYS)

# Size of a rounded number: sums of up to 512 products of two such numbers are at most 2^53.
BITS = 22

# Rows with a larger number become NaN, because their grid would overflow float32.
LARGEST = 2.0**100

_VECTOR = 64
_EXPONENT = 0x7F800000
_BLOCK = 64  # plans in one pass
# Pairs of operators in one pass, which bounds memory: one plan if it has 512 operators.
_PAIRS = 2**18


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def plan_gradients(model: Weights, plans: Sequence[Features]) -> tuple[Tensor, Tensor]:
    """Return the standardised outputs [plans] and the gradients [plans, LINEARIZED_WEIGHTS].

    Raises:
        InvalidModelStateError: the arrays are not a state of this architecture.
    """
    arrays = named_arrays(model)
    check_arrays(arrays)
    outputs, gradients = torch.empty(len(plans)), torch.empty(len(plans), LINEARIZED_WEIGHTS)
    state = {name: torch.tensor(array) for name, array in arrays.items()}
    with one_thread(), torch.enable_grad():
        for block in _blocks([len(plan.order) for plan in plans]):
            copies = [
                state[name].expand(len(block), *ARRAY_SHAPES[name]).requires_grad_()
                for name in LINEARIZED_ARRAYS
            ]
            weights = {**state, **dict(zip(LINEARIZED_ARRAYS, copies, strict=True))}
            computed = _forward([plans[place] for place in block], weights)
            parts = torch.autograd.grad(computed.sum(), copies)
            outputs[block] = computed.detach()
            gradients[block] = torch.cat([part.flatten(1) for part in parts], 1)
    return outputs, gradients


def _blocks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of plans with similar numbers of operators."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    while order:
        block = order[:_BLOCK]
        block = block[: max(1, _PAIRS // lengths[block[-1]] ** 2)]
        yield block
        order = order[len(block) :]


def grid(rows: Tensor) -> Tensor:
    """Round float32 rows [..., rows, width] to `BITS` bits of each row's largest number.

    The result is float64. Rows beyond `LARGEST` and rows that are not finite become NaN.
    """
    largest = torch.maximum(rows.amax(-1, keepdim=True), rows.amin(-1, keepdim=True).neg_())
    exponents = largest.contiguous().view(torch.int32) & _EXPONENT
    # Adding 1.5 * 2^(e + 24 - BITS) leaves no bit below the grid.
    shift = (exponents + ((24 - BITS) << 23) | (1 << 22)).view(torch.float32)
    shift = torch.where(largest < LARGEST, shift, torch.nan)
    return (rows + shift).sub_(shift).double()


def exact_product(left: Tensor, right: Tensor) -> Tensor:
    """Return left right' of [..., rows, inner] and [..., columns, inner], at most 512 inner.

    The terms of each sum lie on one power-of-two grid, and no partial sum exceeds 2^53 steps of
    it. So float64 holds the sum exactly, in any order, in blocks, with fused multiplication and
    from any library. It is rounded to float32 once. A product without a sum needs no grid.
    """
    if left.shape[-1] == 1:
        return left * right.mT
    if right.ndim == 3 and right.stride(0) == 0:  # noqa: PLR2004  copies of one matrix
        right = right[0]
    return torch.matmul(grid(left), grid(right).mT).float()


class _Product(Function):
    """`exact_product` with exact gradients."""

    @staticmethod
    def forward(ctx: FunctionCtx, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return exact_product(left, right)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors  # type: ignore[attr-defined]
        needs_left, needs_right = ctx.needs_input_grad  # type: ignore[attr-defined]
        return (
            exact_product(gradient, right.mT) if needs_left else None,
            exact_product(gradient.mT, left.mT) if needs_right else None,
        )


class _ConstantProduct(Function):
    """`exact_product` with a constant, given as a grid for each direction."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
        ctx.save_for_backward(backward)
        return torch.matmul(grid(rows), forward).float()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (backward,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return torch.matmul(grid(gradient), backward).float(), None, None


def _product(left: Tensor, right: Tensor) -> Tensor:
    return cast("Tensor", _Product.apply(left, right))  # type: ignore[no-untyped-call]


def _forward(plans: Sequence[Features], weights: Mapping[str, Tensor]) -> Tensor:
    """Return the standardised outputs [plans]; the last plan has the most operators.

    `weights` holds [plans, ...] for `LINEARIZED_ARRAYS`.
    """
    # With one operator, a product over operators would be rounded for longer blocks only.
    longest = max(2, len(plans[-1].order))
    padded = np.zeros((len(plans), longest, plans[0].operators.shape[1]), np.float32)
    for place, plan in enumerate(plans):
        padded[place, : len(plan.order)] = plan.operators
    lengths = torch.tensor([len(plan.order) for plan in plans])
    is_operator = torch.arange(longest)[:, None] < lengths  # [operators, plans]
    states = torch.from_numpy(padded)
    counts = torch.from_numpy(edge_counts(plans, longest))[:, None]
    for layer in range(ATTENTION_LAYERS):
        attended = _attend(states, counts, weights, f"attention.{layer}.")
        states = attended * is_operator.T[:, :, None]
    states = states.transpose(0, 1)
    is_read = torch.stack([is_operator, is_operator.flip(0)], 1)[..., None]
    for layer in range(RECURRENT_LAYERS):
        states, last = _recur(states, is_read, weights, f"l{layer}")
    plan_features = torch.from_numpy(np.stack([plan.plan for plan in plans]))
    fused = torch.cat([*last, plan_features], 1)[:, None]
    for layer in range(DENSE_LAYERS):
        if layer:
            fused = functional.relu(fused)
        bias = weights[f"dense.{layer}.bias"][:, None]
        fused = _product(fused, weights[f"dense.{layer}.weight"]) + bias
    offsets = torch.tensor([offset_of(plan) for plan in plans], dtype=torch.float32)
    return fused[:, 0, 0] + offsets


def _attend(states: Tensor, counts: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the new states [plans, operators, hidden]; `counts` is [plans, 1, to, from]."""
    plans, operators, _ = states.shape
    repeat, over_hidden = states.new_ones(operators, 1), states.new_ones(HIDDEN, 1)
    values = _product(states, weights[name + "lin.weight"])
    values = values.view(plans, operators, HEADS, HIDDEN).transpose(1, 2)
    sent, received = (
        _product(_product(values, weights[name + each].view(plans, HEADS, 1, HIDDEN)), repeat)
        for each in ("att_src", "att_dst")
    )
    scores = functional.leaky_relu(received + sent.mT, NEGATIVE_SLOPE)
    scores = scores.masked_fill(counts == 0, -torch.inf)
    shares = counts * _exponential(scores - scores.detach().amax(-1, keepdim=True))
    totals = _product(_product(shares, repeat.mT), over_hidden)
    by_head = _product(shares, values.mT) / totals
    bias = _product(repeat, weights[name + "bias"][:, :, None])
    return functional.elu((by_head[:, 0] + by_head[:, 1]) / HEADS + bias)


def _exponential(values: Tensor) -> Tensor:
    """Return e^values, computed by whole vectors."""
    count = values.numel()
    padded = functional.pad(values.flatten(), (0, -count % _VECTOR))
    return padded.exp()[:count].view(values.shape)


def _recur(
    inputs: Tensor, is_read: Tensor, weights: Mapping[str, Tensor], layer: str
) -> tuple[Tensor, Tensor]:
    """Return the states [operators, plans, 2 * hidden] and the last ones [2, plans, hidden].

    Both directions step together. The gates are torch's: reset, update, new.

    Args:
        inputs: states of the layer before, [operators, plans, width].
        is_read: whether a direction reads an operator at a step, [steps, 2, plans, 1].
        weights: of the model.
        layer: suffix of the parameters' names.
    """

    def both(kind: str) -> Tensor:
        names = (f"recurrent.{kind}_{layer}", f"recurrent.{kind}_{layer}_reverse")
        return torch.stack([weights[name] for name in names])

    def times(rows: Tensor, grids: tuple[Tensor, Tensor], bias: Tensor) -> Tensor:
        return cast("Tensor", _ConstantProduct.apply(rows, *grids)) + bias[:, None]  # type: ignore[no-untyped-call]

    def to_grids(matrix: Tensor) -> tuple[Tensor, Tensor]:
        return grid(matrix).mT, grid(matrix.mT).mT

    of_state, state_bias = to_grids(both("weight_hh")), both("bias_hh")
    read = torch.stack([inputs, inputs.flip(0)])
    read = times(read.flatten(1, 2), to_grids(both("weight_ih")), both("bias_ih"))
    state = inputs.new_zeros(2, inputs.shape[1], HIDDEN)
    states = []
    for projected, is_active in zip(
        read.view(2, *inputs.shape[:2], -1).unbind(1), is_read, strict=True
    ):
        own = times(state, of_state, state_bias)
        gates = torch.sigmoid(projected[..., : 2 * HIDDEN] + own[..., : 2 * HIDDEN])
        reset, update = gates.chunk(2, -1)
        new = torch.tanh(projected[..., 2 * HIDDEN :] + reset * own[..., 2 * HIDDEN :])
        state = torch.where(is_active, new + update * (state - new), state)
        states.append(state)
    forward, backward = torch.stack(states, 1)
    return torch.cat([forward, backward.flip(0)], -1), state
