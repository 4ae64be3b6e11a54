"""GGFN's layers with backward passes of their own, which can record instead of accumulate.

Each computes what PyG's `GATConv` (heads averaged), one bidirectional layer of torch's
`GRU` and `Linear` compute, from their parameters. Without a tape they give ordinary
gradients. With one, backward gives the gradient of the input only, and leaves on the
tape what the gradients of the weights would be made of (`records`).

Invariant: no row of a sample touches a row of another one, forward or backward.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from fedperf_shared.model.records import (
    BiasRecord,
    DenseRecord,
    MatrixRecord,
    Record,
    RecurrentRecord,
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
    own = [
        f"{kind}_l{layer}{direction}"
        for direction in ("", "_reverse")
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    names = tuple(f"{name}.{each}" for each in own)
    result: Tensor = _Recurrent.apply(  # type: ignore[no-untyped-call]
        inputs, *(parameters[each] for each in own), rows, names, tape
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
        begun = values.index_select(0, begins)
        messages = torch.bmm(shares[:, None], begun).squeeze(1) / heads
        output = bias.repeat(len(states), 1).index_add_(0, ends, messages)
        ctx.save_for_backward(states, weight, vectors, values, begun, raw, shares, edges)
        ctx.name, ctx.tape = name, tape
        return output

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, vectors, values, begun, raw, shares, edges = _saved(ctx)
        heads = vectors.shape[1]
        begins, ends = edges
        sent = gradient.index_select(0, ends) / heads  # [edges, width]
        of_shares = torch.bmm(begun, sent[:, :, None]).squeeze(2)
        products = shares * of_shares
        sums = products.new_zeros(len(states), heads).index_add_(0, ends, products)
        of_raw = products - shares * sums[ends]
        of_raw = torch.where(raw > 0, of_raw, _NEGATIVE_SLOPE * of_raw)
        of_scores = of_raw.new_zeros(2, len(states), heads)
        of_scores[0].index_add_(0, begins, of_raw)
        of_scores[1].index_add_(0, ends, of_raw)
        of_scores = of_scores.transpose(0, 1)  # [rows, 2, heads]
        of_values = torch.einsum("nvh,vhc->nhc", of_scores, vectors).contiguous()
        of_values.index_add_(0, begins, shares[:, :, None] * sent[:, None, :])
        flat, name = of_values.flatten(1), ctx.name
        records = (
            MatrixRecord(f"{name}.lin.weight", states, flat),
            ScoreRecord((f"{name}.att_src", f"{name}.att_dst"), values, of_scores),
            BiasRecord(f"{name}.bias", gradient),
        )
        of_states = flat @ weight if ctx.needs_input_grad[0] else None
        return of_states, *_left_by(records, 4, ctx.tape), None, None, None


class _Recurrent(Function):
    """Gates as in torch's GRU: r, z, n; both directions step together."""

    @staticmethod
    def forward(
        ctx: Context,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor,
        bias_hh: Tensor,
        weight_ih_reverse: Tensor,
        weight_hh_reverse: Tensor,
        bias_ih_reverse: Tensor,
        bias_hh_reverse: Tensor,
        rows: Rows,
        names: tuple[str, ...],
        tape: Tape | None,
    ) -> Tensor:
        hidden, count = weight_hh.shape[1], len(inputs)
        backwards = inputs.index_select(0, rows.reversal)
        given = inputs.new_empty(2, count, 3 * hidden)
        torch.addmm(bias_ih, inputs, weight_ih.T, out=given[0])
        torch.addmm(bias_ih_reverse, backwards, weight_ih_reverse.T, out=given[1])
        matrices = torch.stack([weight_hh, weight_hh_reverse])
        biases, transposed = torch.stack([bias_hh, bias_hh_reverse])[:, None], matrices.mT
        gates = given.new_empty(2, count, 2 * hidden)
        candidates, resets, states = given.new_empty(3, 2, count, hidden).unbind(0)
        before = given.new_zeros(2, count, hidden)
        for step, size in enumerate(rows.batch_sizes):
            now = slice(rows.offsets[step], rows.offsets[step] + size)
            previous = before[:, now]
            if step:
                begin = rows.offsets[step - 1]
                previous.copy_(states[:, begin : begin + size])
            own = torch.baddbmm(biases, previous, transposed)
            own[..., : 2 * hidden] += given[:, now, : 2 * hidden]
            gate = torch.sigmoid(own[..., : 2 * hidden], out=gates[:, now])
            reset, update = gate.chunk(2, 2)
            from_state = resets[:, now].copy_(own[..., 2 * hidden :])
            new = torch.addcmul(given[:, now, 2 * hidden :], reset, from_state).tanh_()
            candidates[:, now] = new
            torch.lerp(new, previous, update, out=states[:, now])
        weights = (weight_ih, weight_ih_reverse, matrices)
        ctx.save_for_backward(inputs, backwards, *weights, before, gates, candidates, resets)
        ctx.rows, ctx.names, ctx.tape = rows, names, tape
        return states

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            inputs,
            backwards,
            weight_ih,
            weight_ih_reverse,
            matrices,
            before,
            gates,
            new,
            resets,
        ) = _saved(ctx)
        rows: Rows = ctx.rows
        reset, update = gates.chunk(2, 2)
        hidden, count = reset.shape[2], len(inputs)
        # The gradients of gates and candidates are these factors times that of the state.
        factors = torch.empty(2, count, 4, hidden, dtype=inputs.dtype)
        of_new = torch.mul(1 - update, 1 - new * new, out=factors[:, :, 3])
        torch.mul(of_new, reset, out=factors[:, :, 2])
        torch.mul((before - new) * update, 1 - update, out=factors[:, :, 1])
        torch.mul(factors[:, :, 2] * resets, 1 - reset, out=factors[:, :, 0])
        of_states = gradient.clone()
        of_all = factors.view(2, count, 4 * hidden)  # a row's factors are used once, in place
        carried: Tensor | None = None
        for step in reversed(range(len(rows.batch_sizes))):
            size, first = rows.batch_sizes[step], rows.offsets[step]
            now = slice(first, first + size)
            of_state = of_states[:, now]
            if carried is not None:
                of_state[:, : carried.shape[1]] += carried
            factors[:, now] *= of_state[:, :, None]
            if step:
                own = of_all[:, now, : 3 * hidden]
                carried = torch.baddbmm(of_state * update[:, now], own, matrices)
        records = tuple(
            RecurrentRecord(ctx.names[4 * number : 4 * number + 4], read, state, gradients)
            for number, (read, state, gradients) in enumerate(
                zip((inputs, backwards), before, of_all, strict=True)
            )
        )
        of_inputs = _of_inputs(of_all[0], weight_ih)
        of_inputs += _of_inputs(of_all[1], weight_ih_reverse).index_select(0, rows.reversal)
        return of_inputs, *_left_by(records, 8, ctx.tape), None, None, None


def _of_inputs(gradient: Tensor, weight_ih: Tensor) -> Tensor:
    """Gradient of the inputs from that of r, z, (unused) and the candidate."""
    hidden = gradient.shape[1] // 4
    of_gates = gradient[:, : 2 * hidden] @ weight_ih[: 2 * hidden]
    return of_gates.addmm_(gradient[:, 3 * hidden :], weight_ih[2 * hidden :])


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
        inputs, weight = _saved(ctx)
        record = DenseRecord(f"{ctx.name}.weight", f"{ctx.name}.bias", inputs, gradient)
        return gradient @ weight, *_left_by((record,), 2, ctx.tape), None, None


def _saved(ctx: Context) -> list[Tensor]:
    """What forward kept, cut off from the graph.

    The graph holds the tape, so a record that held the graph would never be freed.
    """
    return [each.detach() for each in ctx.saved_tensors]


def _left_by(
    records: Sequence[Record], parameters: int, tape: Tape | None
) -> tuple[Tensor | None, ...]:
    """Gradients of so many parameters, in the order of the records; with a tape, None."""
    if tape is not None:
        tape.extend(records)
        return (None,) * parameters
    return tuple(value for record in records for value in record.weighted_sum(None).values())
