"""GGFN's answers with what their gradients are made of, and every plan's own gradient.

A plan's outputs and records have the same bits whatever other plans are in the batch,
as `exact_arithmetic` says and shows. Numbers are those of `GGFN.forward` without dropout,
rounded to 22 bits where matrices are multiplied.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedperf_shared.model.architecture import HIDDEN
from fedperf_shared.model.batches import Batch, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.gradients.edges import Edges
from fedperf_shared.model.gradients.exact_arithmetic import one_thread
from fedperf_shared.model.gradients.layers import (
    Attention,
    AttentionPass,
    Dense,
    RecurrencePass,
    Recurrent,
)
from fedperf_shared.model.gradients.records import Record, Rows
from fedperf_shared.workflow.features import Features

_BLOCK = 64
"""Plans in one backward pass."""


class Network:
    """The weights of a model as they are now, rounded for exact products."""

    def __init__(self, model: GGFN) -> None:
        self._shapes = {name: each.shape for name, each in model.named_parameters()}
        self._attention = [
            Attention(layer, f"attention.{number}") for number, layer in enumerate(model.attention)
        ]
        self._recurrent = [
            Recurrent(model.recurrent, number, "recurrent")
            for number in range(model.recurrent.num_layers)
        ]
        self._dense = [Dense(layer, f"dense.{number}") for number, layer in enumerate(model.dense)]

    def record(
        self, batch: Batch, rows: Rows, slope: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, list[Record]]:
        """The standardised outputs [samples] in packed order, and what one pass back leaves.

        Args:
            batch: the plans.
            rows: of the batch.
            slope: gradient of a loss at the outputs, [samples] -> [samples].
        """
        edges, states = Edges.of(batch), batch.operators
        attended = []
        for attention in self._attention:
            attended.append(attention.forward(states, edges))
            states = attended[-1].result
        recurred = []
        for recurrent in self._recurrent:
            recurred.append(recurrent.forward(states, rows))
            states = _side_by_side(recurred[-1].states, rows)
        ends = recurred[-1].states.index_select(1, rows.last)
        fused = [torch.cat([*ends, batch.plans], 1)]
        for dense in self._dense[:-1]:
            fused.append(functional.relu(dense.forward(fused[-1])))
        outputs = self._dense[-1].forward(fused[-1])[:, 0] + batch.offsets
        gradient, of_dense = self._dense_back(fused, slope(outputs))
        of_states = torch.zeros_like(recurred[-1].states)
        of_states[:, rows.last] = torch.stack(gradient[:, : 2 * HIDDEN].chunk(2, 1))
        gradient, of_recurrent = self._recurrent_back(recurred, of_states, rows)
        of_attention = self._attention_back(attended, gradient, edges)
        return outputs, [*of_dense, *of_recurrent, *of_attention]

    def sample_gradients(
        self, graphs: Sequence[Features], names: Sequence[str], *, apart: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The standardised output [plans] and its gradient in some weights, [plans, weights].

        Gradients are products in float32, so that last digits may depend on other plans: for
        public plans and for trials. A sum whose sensitivity is promised takes them `apart`.

        Args:
            graphs: the plans.
            names: parameters, in the order that is wanted.
            apart: multiply each plan's rows alone, so that it has the same bits as by itself.
        """
        by_length = sorted(range(len(graphs)), key=lambda place: len(graphs[place].order))
        outputs = torch.empty(len(graphs))
        gradients = torch.empty(len(graphs), sum(self._shapes[name].numel() for name in names))
        with torch.no_grad(), one_thread():
            for first in range(0, len(by_length), _BLOCK):
                places = torch.tensor(by_length[first : first + _BLOCK])
                batch = collate([graphs[place] for place in places.tolist()])
                given = places[batch.given]
                outputs[given], gradients[given] = self._of_batch(batch, names, apart)
        return outputs, gradients

    def _of_batch(self, batch: Batch, names: Sequence[str], apart: bool) -> tuple[Tensor, Tensor]:
        """In the order of the packed samples."""
        rows = Rows.of(batch, group=1) if apart else Rows.of(batch)
        outputs, records = self.record(batch, rows, torch.ones_like)
        parts = {
            name: part.flatten(1)
            for record in records
            if not record.names.isdisjoint(names)
            for name, part in record.sample_gradients(rows, self._shapes).items()
        }
        return outputs, torch.cat([parts[name] for name in names], 1)

    def _dense_back(self, fused: list[Tensor], slopes: Tensor) -> tuple[Tensor, list[Record]]:
        gradient, records = slopes[:, None], []
        for dense, inputs in zip(reversed(self._dense), reversed(fused), strict=True):
            gradient, record = dense.backward(inputs, gradient)
            if dense is not self._dense[0]:
                gradient = torch.where(inputs > 0, gradient, 0.0)
            records.append(record)
        return gradient, records

    def _recurrent_back(
        self, recurred: list[RecurrencePass], of_states: Tensor, rows: Rows
    ) -> tuple[Tensor, list[Record]]:
        records = []
        for recurrent, kept in zip(reversed(self._recurrent), reversed(recurred), strict=True):
            gradient, left = recurrent.backward(kept, of_states, rows)
            records += left
            if recurrent is not self._recurrent[0]:
                of_states = torch.stack(gradient.chunk(2, 1))
                of_states[1] = of_states[1].index_select(0, rows.reversal)
        return gradient, records

    def _attention_back(
        self, attended: list[AttentionPass], gradient: Tensor, edges: Edges
    ) -> list[Record]:
        records = []
        for attention, kept in zip(reversed(self._attention), reversed(attended), strict=True):
            of_values, left = attention.backward(kept, gradient, edges)
            records += left
            if attention is not self._attention[0]:
                gradient = attention.inputs(of_values)
        return records


def _side_by_side(states: Tensor, rows: Rows) -> Tensor:
    """Both directions of every operator, [rows, 2 * width]."""
    return torch.cat([states[0], states[1].index_select(0, rows.reversal)], 1)


def sample_gradients(
    model: GGFN, graphs: Sequence[Features], names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Compute `Network.sample_gradients` without dropout. `model` is unchanged."""
    return Network(model).sample_gradients(graphs, names)
