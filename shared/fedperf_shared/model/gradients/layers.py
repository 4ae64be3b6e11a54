"""GGFN's layers forward and backward in exact arithmetic, written out without autograd.

Each computes what PyG's `GATConv` (heads averaged, then ELU), one bidirectional layer of
torch's `GRU` and `Linear` compute. Backward gives the gradient of the input, and as records
what the gradients of the weights are made of.

Invariant: a row's bits depend on its own sample alone (`exact_arithmetic`), forward and backward.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedperf_shared.model.architecture import HIDDEN
from fedperf_shared.model.gradients.edges import Edges
from fedperf_shared.model.gradients.exact_arithmetic import (
    exponential,
    matrix_grid,
    product,
    row_grid,
)
from fedperf_shared.model.gradients.records import ALL, Part, Place, Record, Rows

_NEGATIVE_SLOPE = 0.2
"""Slope of the leaky ReLU on attention scores."""


def _weights(layer: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().float() for name, each in layer.named_parameters()}


class _Pair(NamedTuple):
    """A number of every self loop and one of every edge, [rows, heads] and [edges, heads]."""

    loops: Tensor
    edges: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPass:
    """Values of an attention layer's forward pass; `grid` is `values` [heads, rows, width]."""

    states: Tensor
    values: Tensor
    grid: Tensor
    scores: _Pair
    shares: _Pair
    result: Tensor


class Attention:
    """A GATConv layer with two heads and its ELU."""

    def __init__(self, layer: nn.Module, name: str) -> None:
        weights = _weights(layer)
        self._name = name
        self._matrix = matrix_grid(weights["lin.weight"])
        self._vectors = torch.cat([weights["att_src"], weights["att_dst"]])  # [2, heads, width]
        self._vector_grid = matrix_grid(self._vectors).permute(1, 2, 0).contiguous()
        self._bias = weights["bias"]

    def forward(self, states: Tensor, edges: Edges) -> AttentionPass:
        """Attend from [rows, inputs]; `result` is [rows, width]."""
        heads, width = self._vectors.shape[1:]
        values = product(states, self._matrix.T).view(-1, heads, width)
        grid = row_grid(values.transpose(0, 1))
        sent, taken = torch.bmm(grid, self._vector_grid).float().permute(2, 1, 0).contiguous()
        sources, targets = edges.sources, edges.targets
        scores = _Pair(sent + taken, sent[sources] + taken[targets.rows])
        bent = _Pair(*(functional.leaky_relu(each, _NEGATIVE_SLOPE) for each in scores))
        highest = targets.raise_to(bent.loops.clone(), bent.edges)
        of_loops = exponential(bent.loops - highest)
        of_edges = exponential(bent.edges - highest[targets.rows])
        total = targets.add(of_loops.clone(), of_edges)
        shares = _Pair(of_loops / total, of_edges / total[targets.rows])
        result = targets.add(
            _mean_of_heads(shares.loops, values),
            _mean_of_heads(shares.edges, values.index_select(0, sources)),
        )
        result += self._bias
        return AttentionPass(states, values, grid, scores, shares, functional.elu(result))

    def backward(
        self, kept: AttentionPass, gradient: Tensor, edges: Edges
    ) -> tuple[Tensor, list[Record]]:
        """The gradient of the values [rows, heads * width], from that of the result."""
        gradient = gradient * torch.where(kept.result > 0, 1.0, kept.result + 1.0)
        of_mean = gradient * (1 / len(kept.grid))
        of_scores = self._of_scores(kept, of_mean, edges)
        back = edges.back
        of_sent = back.add(of_scores.loops.clone(), of_scores.edges[edges.backwards])
        of_taken = edges.targets.add(of_scores.loops.clone(), of_scores.edges)
        of_values = of_sent[:, :, None] * self._vectors[0]
        of_values += of_taken[:, :, None] * self._vectors[1]
        of_values += kept.shares.loops[:, :, None] * of_mean[:, None]
        sent_back = of_mean.index_select(0, edges.targets.rows[edges.backwards])[:, None]
        back.add(of_values, kept.shares.edges[edges.backwards][:, :, None] * sent_back)
        return of_values.flatten(1), self._records(kept, gradient, of_values, (of_sent, of_taken))

    def inputs(self, of_values: Tensor) -> Tensor:
        """The gradient of the states, from that of the values."""
        return product(of_values, self._matrix)

    def _of_scores(self, kept: AttentionPass, of_mean: Tensor, edges: Edges) -> _Pair:
        """Gradients of the scores: of the softmax at every target, then of the leaky ReLU."""
        grid, targets = row_grid(of_mean), edges.targets
        by_row = kept.grid.transpose(0, 1)  # [rows, heads, width]
        at_loops = (by_row * grid[:, None]).sum(2).float()
        begun, ended = by_row.index_select(0, edges.sources), grid.index_select(0, targets.rows)
        at_edges = torch.bmm(begun, ended[:, :, None]).squeeze(2).float()
        loops, along = kept.shares.loops * at_loops, kept.shares.edges * at_edges
        sums = targets.add(loops.clone(), along)
        loops = loops - kept.shares.loops * sums
        along = along - kept.shares.edges * sums[targets.rows]
        return _Pair(
            torch.where(kept.scores.loops > 0, loops, _NEGATIVE_SLOPE * loops),
            torch.where(kept.scores.edges > 0, along, _NEGATIVE_SLOPE * along),
        )

    def _records(
        self,
        kept: AttentionPass,
        gradient: Tensor,
        of_values: Tensor,
        of_scores: tuple[Tensor, Tensor],
    ) -> list[Record]:
        name, both = self._name, torch.stack(of_scores, 2)  # [rows, heads, vectors]
        matrix = Part(ALL, kept.states, (Place(f"{name}.lin.weight", ALL, ALL),))
        bias = Part(ALL, None, bias=(Place(f"{name}.bias", ALL, ALL),))
        vectors = tuple(
            Part(
                slice(2 * head, 2 * head + 2),
                kept.values[:, head],
                (Place(f"{name}.att_src", 0, (0, head)), Place(f"{name}.att_dst", 1, (0, head))),
            )
            for head in range(both.shape[1])
        )
        return [
            Record(of_values.flatten(1), (matrix,)),
            Record(both.flatten(1), vectors),
            Record(gradient, (bias,)),
        ]


def _mean_of_heads(shares: Tensor, values: Tensor) -> Tensor:
    """[n, heads] x [n, heads, width] -> [n, width]."""
    shares = shares * (1 / shares.shape[1])
    result = shares[:, :1] * values[:, 0]
    for head in range(1, values.shape[1]):
        result += shares[:, head : head + 1] * values[:, head]
    return result


@dataclass(frozen=True, slots=True, eq=False)
class RecurrencePass:
    """Values of a recurrent layer's pass; all but `inputs` are [directions, rows, ...]."""

    inputs: Tensor
    before: Tensor
    gates: Tensor
    candidates: Tensor
    resets: Tensor
    states: Tensor


class Recurrent:
    """One bidirectional layer of a GRU; gates as torch's: r, z, n. Both directions step together.

    A state is rounded to multiples of 2^-22, so that it is on one grid whatever its row.
    """

    def __init__(self, gru: nn.GRU, number: int, name: str) -> None:
        weights = _weights(gru)
        self._names = [f"l{number}", f"l{number}_reverse"]
        self._prefix = name

        def both(kind: str) -> list[Tensor]:
            return [weights[f"{kind}_{each}"] for each in self._names]

        self._of_inputs = [matrix_grid(each) for each in both("weight_ih")]
        self._of_states = torch.stack([matrix_grid(each) for each in both("weight_hh")])
        # In the order in which backward lays gates out: n, r, z.
        self._back = torch.roll(self._of_states, HIDDEN, 1)
        self._input_bias = both("bias_ih")
        self._state_bias = torch.stack(both("bias_hh"))[:, None]

    def forward(self, inputs: Tensor, rows: Rows) -> RecurrencePass:
        """Read [rows, inputs]; `states` are [2, rows, 128], each direction in its own order."""
        count, gate_width = len(inputs), 2 * HIDDEN
        grid = row_grid(inputs)
        given = torch.stack(
            [
                torch.mm(grid, matrix.T).float().add_(bias)
                for matrix, bias in zip(self._of_inputs, self._input_bias, strict=True)
            ]
        )
        given[1] = given[1].index_select(0, rows.reversal)
        gates = inputs.new_empty(2, count, gate_width)
        candidates, resets, states = inputs.new_empty(3, 2, count, HIDDEN).unbind(0)
        before = inputs.new_zeros(2, count, HIDDEN)
        for step, size in enumerate(rows.batch_sizes):
            now = slice(rows.offsets[step], rows.offsets[step] + size)
            previous, own = before[:, now], self._state_bias.expand(2, size, -1)
            if step:
                begin = rows.offsets[step - 1]
                previous.copy_(states[:, begin : begin + size])
                own = torch.bmm(previous.double(), self._of_states.mT).float() + own
            gate = gates[:, now]
            torch.add(own[..., :gate_width], given[:, now, :gate_width], out=gate).sigmoid_()
            reset, update = gate.chunk(2, 2)
            resets[:, now] = own[..., gate_width:]
            candidate = reset * own[..., gate_width:]
            candidate += given[:, now, gate_width:]
            candidates[:, now] = candidate.tanh_()
            state = (previous - candidate).mul_(update).add_(candidate)
            states[:, now] = state.add_(3.0).sub_(3.0)  # rounds to multiples of 2^-22
        return RecurrencePass(inputs, before, gates, candidates, resets, states)

    def backward(
        self, kept: RecurrencePass, of_states: Tensor, rows: Rows
    ) -> tuple[Tensor, list[Record]]:
        """The gradient of the inputs, from that of the states, which is used up."""
        of_all = self._of_gates(kept, of_states, rows)
        read = (kept.inputs, kept.inputs.index_select(0, rows.reversal))
        records = [self._record(number, read[number], kept, of_all) for number in (0, 1)]
        # 768 terms in two exact sums of 384.
        of_inputs = product(of_all[1, :, HIDDEN:], self._of_inputs[1])
        of_inputs = of_inputs.index_select(0, rows.reversal)
        of_inputs += product(of_all[0, :, HIDDEN:], self._of_inputs[0])
        return of_inputs, records

    def _of_gates(self, kept: RecurrencePass, of_states: Tensor, rows: Rows) -> Tensor:
        """Gradients [2, rows, 512]: of the state's part of n, of r, of z, of the input's of n."""
        reset, update = kept.gates.chunk(2, 2)
        factors = kept.inputs.new_empty(2, len(kept.inputs), 4, HIDDEN)
        kept_back = 1 - update
        of_new = torch.mul(kept_back, 1 - kept.candidates * kept.candidates, out=factors[:, :, 3])
        of_state = torch.mul(of_new, reset, out=factors[:, :, 0])
        torch.mul(of_state * kept.resets, 1 - reset, out=factors[:, :, 1])
        change = (kept.before - kept.candidates).mul_(update)
        torch.mul(change, kept_back, out=factors[:, :, 2])
        of_all = factors.view(2, -1, 4 * HIDDEN)  # a row's factors are used once, in place
        carried: Tensor | None = None
        for step in reversed(range(len(rows.batch_sizes))):
            first = rows.offsets[step]
            now = slice(first, first + rows.batch_sizes[step])
            of_now = of_states[:, now]
            if carried is not None:
                of_now[:, : carried.shape[1]] += carried
            factors[:, now] *= of_now[:, :, None]
            if step:
                carried = product(of_all[:, now, : 3 * HIDDEN], self._back)
                carried += of_now * update[:, now]
        return of_all

    def _record(self, number: int, inputs: Tensor, kept: RecurrencePass, of_all: Tensor) -> Record:
        def name(kind: str) -> str:
            return f"{self._prefix}.{kind}_{self._names[number]}"

        def places(kind: str) -> tuple[Place, Place]:
            new, gates = slice(0, HIDDEN), slice(HIDDEN, 3 * HIDDEN)
            of_new, of_gates = slice(2 * HIDDEN, 3 * HIDDEN), slice(0, 2 * HIDDEN)
            return (Place(name(kind), new, of_new), Place(name(kind), gates, of_gates))

        of_states = Part(
            slice(0, 3 * HIDDEN), kept.before[number], places("weight_hh"), places("bias_hh")
        )
        of_inputs = Part(
            slice(HIDDEN, 4 * HIDDEN),
            inputs,
            (Place(name("weight_ih"), ALL, ALL),),
            (Place(name("bias_ih"), ALL, ALL),),
        )
        return Record(of_all[number], (of_states, of_inputs))


class Dense:
    """A Linear layer that sees one row per sample."""

    def __init__(self, layer: nn.Module, name: str) -> None:
        weights = _weights(layer)
        self._matrix, self._bias = matrix_grid(weights["weight"]), weights["bias"]
        self._name = name

    def forward(self, inputs: Tensor) -> Tensor:
        """[samples, inputs] -> [samples, outputs]."""
        return product(inputs, self._matrix.T).add_(self._bias)

    def backward(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Record]:
        """The gradient of `inputs`, from that of the outputs."""
        matrix = (Place(f"{self._name}.weight", ALL, ALL),)
        bias = (Place(f"{self._name}.bias", ALL, ALL),)
        record = Record(gradient, (Part(ALL, inputs, matrix, bias),), by_sample=True)
        return product(gradient, self._matrix), record
