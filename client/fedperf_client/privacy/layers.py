"""GGFN's layers with backward passes of their own, which can record instead of accumulate.

Each computes what PyG's `GATConv` (heads averaged), one bidirectional layer of torch's
`GRU` and `Linear` compute, from their parameters. Without a tape they give ordinary
gradients. With one, backward gives the gradient of the input only, and leaves on the
tape what the gradients of the weights would be made of (`records`).

Invariant: no row of a sample touches a row of another one, forward or backward.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from fedperf_client.privacy.records import (
    BiasRecord,
    DenseRecord,
    MatrixRecord,
    Rows,
    ScoreRecord,
    Tape,
)

Context: TypeAlias = Any
"""What torch hands from forward to backward; it has no type of its own."""

_NEGATIVE_SLOPE = 0.2
"""Of the leaky ReLU on attention scores."""


def attention(
    layer: nn.Module, name: str, states: Tensor, edges: Tensor, tape: Tape | None
) -> Tensor:
    """A GATConv layer whose heads are averaged; [rows, inputs] -> [rows, width].

    Args:
        layer: its parameters: `lin.weight`, `att_src`, `att_dst`, `bias`.
        name: of the layer in the state dict.
        states: [rows, inputs].
        edges: int64 [2, edges], source and target rows, with one self loop for each row.
        tape: where to record, None for ordinary gradients.
    """
    parameters = dict(layer.named_parameters())
    result: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        states,
        parameters["lin.weight"],
        parameters["att_src"],
        parameters["att_dst"],
        parameters["bias"],
        edges,
        name,
        tape,
    )
    return result


def recurrent(
    gru: nn.GRU, layer: int, name: str, inputs: Tensor, rows: Rows, tape: Tape | None
) -> Tensor:
    """One bidirectional layer; [rows, inputs] -> [2, rows, hidden].

    The second half is the backward direction's, in the order in which it read: the row of a
    sample's step t holds the state after its t + 1 last operators.
    """
    parameters = dict(gru.named_parameters())
    names = tuple(
        f"{kind}_l{layer}{direction}"
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for direction in ("", "_reverse")
    )
    result: Tensor = _Recurrent.apply(  # type: ignore[no-untyped-call]
        inputs, *(parameters[each] for each in names), rows, [f"{name}.{n}" for n in names], tape
    )
    return result


def dense(layer: nn.Module, name: str, inputs: Tensor, tape: Tape | None) -> Tensor:
    """A linear layer on one row per sample."""
    result: Tensor = _Dense.apply(  # type: ignore[no-untyped-call]
        inputs, *layer.parameters(), name, tape
    )
    return result


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Context,
        states: Tensor,
        weight: Tensor,
        source: Tensor,
        target: Tensor,
        bias: Tensor,
        edges: Tensor,
        name: str,
        tape: Tape | None,
    ) -> Tensor:
        heads, width = source.shape[1:]
        values = (states @ weight.T).view(-1, heads, width)
        vectors = torch.cat([source, target])  # [2, heads, width]
        scores = torch.einsum("nhc,vhc->nvh", values, vectors)
        begins, ends = edges
        raw = scores[begins, 0] + scores[ends, 1]
        logits = functional.leaky_relu(raw, _NEGATIVE_SLOPE)
        index = ends[:, None].expand(-1, heads)
        highest = torch.full_like(scores[:, 0], -torch.inf).scatter_reduce_(
            0, index, logits, "amax"
        )
        shares = (logits - highest[ends]).exp_()
        totals = torch.zeros_like(highest).index_add_(0, ends, shares)
        shares = shares / totals[ends]
        begun = values[begins]
        messages = torch.bmm(shares[:, None], begun).squeeze(1) / heads
        output = bias.repeat(len(states), 1).index_add_(0, ends, messages)
        ctx.save_for_backward(states, weight, vectors, values, begun, raw, shares, edges)
        ctx.name, ctx.tape = name, tape
        return output

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, vectors, values, begun, raw, shares, edges = ctx.saved_tensors
        heads = vectors.shape[1]
        begins, ends = edges
        sent = gradient[ends] / heads  # [edges, width]
        of_shares = torch.bmm(begun, sent[:, :, None]).squeeze(2)
        products = shares * of_shares
        sums = products.new_zeros(len(states), heads).index_add_(0, ends, products)
        of_raw = products - shares * sums[ends]
        of_raw = torch.where(raw > 0, of_raw, _NEGATIVE_SLOPE * of_raw)
        of_scores = of_raw.new_zeros(2, len(states), heads)
        of_scores[0].index_add_(0, begins, of_raw)
        of_scores[1].index_add_(0, ends, of_raw)
        of_scores = of_scores.transpose(0, 1)  # [rows, 2, heads]
        of_values = torch.zeros_like(values).index_add_(
            0, begins, shares[:, :, None] * sent[:, None, :]
        )
        of_values += torch.einsum("nvh,vhc->nhc", of_scores, vectors)
        flat = of_values.flatten(1)
        of_states = flat @ weight if ctx.needs_input_grad[0] else None
        if ctx.tape is None:
            of_vectors = torch.einsum("nvh,nhc->vhc", of_scores, values)
            weights = (flat.T @ states, of_vectors[:1], of_vectors[1:], gradient.sum(0))
            return of_states, *weights, None, None, None
        name = ctx.name
        ctx.tape += [
            MatrixRecord((f"{name}.lin.weight",), (), states, flat),
            ScoreRecord((f"{name}.att_src", f"{name}.att_dst"), values, of_scores),
            BiasRecord(f"{name}.bias", gradient),
        ]
        return of_states, *(None,) * 7


class _Recurrent(Function):
    """Gates as in torch's GRU: r, z, n; both directions step together."""

    @staticmethod
    def forward(
        ctx: Context,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_ih_reverse: Tensor,
        weight_hh: Tensor,
        weight_hh_reverse: Tensor,
        bias_ih: Tensor,
        bias_ih_reverse: Tensor,
        bias_hh: Tensor,
        bias_hh_reverse: Tensor,
        rows: Rows,
        names: list[str],
        tape: Tape | None,
    ) -> Tensor:
        hidden = weight_hh.shape[1]
        stacked = torch.cat([weight_ih, weight_ih_reverse])
        given = torch.addmm(torch.cat([bias_ih, bias_ih_reverse]), inputs, stacked.T)
        forward, backward = given.chunk(2, 1)
        given = torch.stack([forward, backward[rows.reversal]])
        matrices = torch.stack([weight_hh, weight_hh_reverse])
        biases = torch.stack([bias_hh, bias_hh_reverse])[:, None]
        count = len(inputs)
        gates = given.new_empty(2, count, 3 * hidden)
        resets = given.new_empty(2, count, hidden)  # what the reset gate multiplies
        states = given.new_empty(2, count, hidden)
        before = given.new_zeros(2, count, hidden)
        first, transposed = 0, matrices.mT
        for step, size in enumerate(rows.batch_sizes):
            now = slice(first, first + size)
            if step:
                begin = rows.offsets[step - 1]
                before[:, now] = states[:, begin : begin + size]
            previous = before[:, now]
            own = torch.baddbmm(biases, previous, transposed)
            gate = torch.add(given[:, now], own)[..., : 2 * hidden].sigmoid_()
            reset, update = gate.chunk(2, 2)
            new = torch.addcmul(given[:, now, 2 * hidden :], reset, own[..., 2 * hidden :]).tanh_()
            states[:, now] = torch.lerp(new, previous, update)
            gates[:, now, : 2 * hidden] = gate
            gates[:, now, 2 * hidden :] = new
            resets[:, now] = own[..., 2 * hidden :]
            first += size
        ctx.save_for_backward(inputs, stacked, matrices, before, gates, resets)
        ctx.rows, ctx.names, ctx.tape = rows, names, tape
        return states

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, stacked, matrices, before, gates, resets = ctx.saved_tensors
        rows: Rows = ctx.rows
        reset, update, new = gates.chunk(3, 2)
        hidden = reset.shape[2]
        # Gradients of the gates are these factors times that of the state.
        of_new = (1 - update) * (1 - new * new)
        of_reset = of_new * resets * reset * (1 - reset)
        of_update = (before - new) * update * (1 - update)
        factors = torch.stack([of_reset, of_update, of_new * reset], 2)  # [2, rows, 3, hidden]
        of_states = gradient.clone()
        of_own = torch.empty_like(gates)
        carried: Tensor | None = None
        for step in reversed(range(len(rows.batch_sizes))):
            size, first = rows.batch_sizes[step], rows.offsets[step]
            now = slice(first, first + size)
            of_state = of_states[:, now]
            if carried is not None:
                of_state[:, : carried.shape[1]] += carried
            own = of_own[:, now]
            torch.mul(factors[:, now], of_state[:, :, None], out=own.view(2, size, 3, hidden))
            if step:
                carried = torch.baddbmm(of_state * update[:, now], own, matrices)
        of_given = of_own.clone()
        torch.mul(of_states, of_new, out=of_given[..., 2 * hidden :])
        both = torch.cat([of_given[0], of_given[1][rows.reversal]], 1)  # [rows, 6 * hidden]
        of_inputs = both @ stacked
        if ctx.tape is None:
            of_stacked = both.T @ inputs
            of_matrices = torch.bmm(of_own.mT, before)
            weights = [*of_stacked.chunk(2), *of_matrices.unbind(0)]
            biases = [*both.sum(0).chunk(2), *of_own.sum(1).unbind(0)]
            return of_inputs, *weights, *biases, None, None, None
        names = ctx.names
        ctx.tape += [
            MatrixRecord(tuple(names[:2]), tuple(names[4:6]), inputs, both),
            MatrixRecord((names[2],), (names[6],), before[0], of_own[0]),
            MatrixRecord((names[3],), (names[7],), before[1], of_own[1]),
        ]
        return of_inputs, *(None,) * 11


class _Dense(Function):
    @staticmethod
    def forward(
        ctx: Context, inputs: Tensor, weight: Tensor, bias: Tensor, name: str, tape: Tape | None
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.name, ctx.tape = name, tape
        return torch.addmm(bias, inputs, weight.T)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs = gradient @ weight
        if ctx.tape is None:
            return of_inputs, gradient.T @ inputs, gradient.sum(0), None, None
        ctx.tape.append(DenseRecord(f"{ctx.name}.weight", f"{ctx.name}.bias", inputs, gradient))
        return of_inputs, None, None, None, None
