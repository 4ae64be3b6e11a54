"""GGFN's answers with what their gradients are made of, and every plan's own gradient.

`forward` gives what the model gives and can leave a tape of records behind; from it
`sample_gradients` makes each plan's gradient at about the cost of one backward pass for all.

Plans of a batch are computed together, so that a gradient's last digits may depend on
its neighbours: for public plans and for trials, not for a sum whose sensitivity is promised.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedperf_shared.model.batching import Batch, PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.layers import attention, dense, recurrent
from fedperf_shared.model.records import Rows, Tape

_BLOCK = 64
"""Plans in one backward pass."""


def forward(model: GGFN, batch: Batch, rows: Rows, tape: Tape | None = None) -> Tensor:
    """What `model(batch)` gives without dropout, in the order of the packed samples.

    Backward without a tape gives ordinary gradients, with a tape it records.
    """
    dtype = next(model.parameters()).dtype
    states = batch.operators.to(dtype)
    for number, layer in enumerate(model.attention):
        name = f"attention.{number}"
        states = functional.elu(attention(layer, name, states, batch.edges, tape))
    gru = model.recurrent
    for number in range(gru.num_layers):
        both = recurrent(gru, number, "recurrent", states, rows, tape)
        if number + 1 < gru.num_layers:
            states = torch.cat([both[0], both[1][rows.reversal]], 1)
    fused = torch.cat([both[0][rows.last], both[1][rows.last], batch.plans.to(dtype)], 1)
    for number, linear in enumerate(model.dense):
        fused = dense(linear, f"dense.{number}", fused, tape)
        if number + 1 < len(model.dense):
            fused = functional.relu(fused)
    return fused.squeeze(1)


def sample_gradients(
    model: GGFN, graphs: Sequence[PlanGraph], names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """The standardised output [plans] and its gradient in some weights, [plans, weights].

    Args:
        model: left as it is; dropout plays no part.
        graphs: the plans.
        names: parameters of attention and dense layers, in the order that is wanted.
    """
    by_length = sorted(range(len(graphs)), key=lambda place: len(graphs[place]))
    sizes = dict(model.named_parameters())
    outputs = torch.empty(len(graphs))
    gradients = torch.empty(len(graphs), sum(sizes[name].numel() for name in names))
    for first in range(0, len(by_length), _BLOCK):
        places = torch.tensor(by_length[first : first + _BLOCK])
        batch = collate([graphs[place] for place in places.tolist()])
        given = places[batch.given]
        outputs[given], gradients[given] = _of_batch(model, batch, names)
    return outputs, gradients


def _of_batch(model: GGFN, batch: Batch, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """In the order of the packed samples."""
    rows, tape = Rows.of(batch), Tape()
    outputs = forward(model, batch, rows, tape)
    outputs.sum().backward()  # type: ignore[no-untyped-call]
    wanted = set(names)
    with torch.no_grad():
        parts = {
            name: part.flatten(1)
            for record in tape
            if not wanted.isdisjoint(record.names)
            for name, part in record.sample_gradients(rows).items()
        }
    return outputs.detach(), torch.cat([parts[name] for name in names], 1)
