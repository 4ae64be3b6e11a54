"""GGFN: graph attention and a bidirectional GRU over a plan, which predict its log run time.

Names and shapes of the parameters are `architecture.ARRAY_SHAPES`. There is no batch
normalisation and no scale taken from the data: the prediction of a plan depends on nothing but
that plan, and the gradient of a workload on nothing but that workload.

A batch is packed time-major, as torch's `PackedSequence` is. Samples are sorted by number of
operators, longest first, and row `offset[t] + b` holds operator `t` of sample `b`. The attention
layers and the recurrent layers share this layout.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.architecture import (
    ATTENTION_LAYERS,
    DENSE_LAYERS,
    HEADS,
    HIDDEN,
    HIGHEST,
    LOWEST,
    RECURRENT_LAYERS,
    TARGET_CENTER,
    TARGET_SCALE,
    check_arrays,
    offset_of,
)
from fedperf_shared.model.checkpoint import (
    Checkpoint,
    NamedArrays,
    load_checkpoint,
    save_checkpoint,
)
from fedperf_shared.workflow.features import OPERATOR_FEATURES, PLAN_FEATURES, Features

with warnings.catch_warnings():
    # PyG 2.8 calls torch.jit.script while it is imported, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv

DEFAULT_DROPOUT = 0.1


class InvalidDropoutError(InvalidInputError):
    """Dropout is not a probability below 1."""


class EmptyBatchError(InvalidInputError):
    """Raised for a batch without plans."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Plans packed time-major.

    Attributes:
        operators: float32 [rows, 63].
        edges: int64 [2, 2 * edges + rows], source and target rows: both directions of
            every edge, then one self loop per row.
        batch_sizes: int64 [longest], samples that have an operator at each step.
        samples: int64 [rows], the (sorted) sample of every row.
        plans: float32 [samples, 39], sorted as the samples are.
        offsets: float32 [samples], in the same order.
        places: int64 [samples], for every sorted sample its place in the given order.
    """

    operators: Tensor
    edges: Tensor
    batch_sizes: Tensor
    samples: Tensor
    plans: Tensor
    offsets: Tensor
    places: Tensor

    def __len__(self) -> int:
        return self.plans.shape[0]

    def in_given_order(self, values: Tensor) -> Tensor:
        """Per-sample `values` [samples, ...] put back into the order of `collate`'s argument."""
        return torch.empty_like(values).index_copy(0, self.places, values)


def collate(graphs: Sequence[Features]) -> Batch:
    """Pack `graphs` into one batch.

    Raises:
        EmptyBatchError: there are none.
    """
    if not graphs:
        raise EmptyBatchError("a batch needs at least one plan")
    lengths = torch.tensor([len(graph.order) for graph in graphs])
    lengths, places = torch.sort(lengths, descending=True, stable=True)
    ordered = [graphs[place] for place in places.tolist()]
    startups = torch.cumsum(lengths, 0) - lengths
    samples = torch.repeat_interleave(torch.arange(len(graphs)), lengths)
    times = torch.arange(len(samples)) - startups[samples]
    batch_sizes = torch.bincount(times)
    offsets = torch.cumsum(batch_sizes, 0) - batch_sizes
    rows = offsets[times] + samples
    operators = torch.from_numpy(np.concatenate([graph.operators for graph in ordered]))
    edges = torch.from_numpy(
        np.concatenate(
            [graph.edges + start for graph, start in zip(ordered, startups.tolist(), strict=True)],
            axis=1,
        )
    )
    loops = torch.arange(len(rows)).expand(2, -1)
    edges = rows[edges]
    return Batch(
        operators=torch.empty_like(operators).index_copy_(0, rows, operators),
        edges=torch.cat([edges, edges.flip(0), loops], dim=1),
        batch_sizes=batch_sizes,
        samples=torch.empty_like(samples).index_copy_(0, rows, samples),
        plans=torch.from_numpy(np.stack([graph.plan for graph in ordered])),
        offsets=torch.tensor([offset_of(graph) for graph in ordered], dtype=torch.float32),
        places=places,
    )


class GGFN(nn.Module):
    """The cost model.

    Args:
        dropout: probability after the first attention layer, between the recurrent
            layers and after the first two dense layers; 0 for private training.
        seed: of the initial weights; torch's global generator is left as it was.
    """

    def __init__(self, *, dropout: float = DEFAULT_DROPOUT, seed: int = 0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise InvalidDropoutError(f"dropout must be in [0, 1), got {dropout}")
        self.dropout = dropout
        widths = [2 * HIDDEN + PLAN_FEATURES, *[HIDDEN] * (DENSE_LAYERS - 1), 1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.attention = nn.ModuleList(
                # Self loops come with the batch, once.
                GATConv(width, HIDDEN, heads=HEADS, concat=False, add_self_loops=False)
                for width in [OPERATOR_FEATURES, *[HIDDEN] * (ATTENTION_LAYERS - 1)]
            )
            self.recurrent = nn.GRU(
                HIDDEN, HIDDEN, RECURRENT_LAYERS, bidirectional=True, dropout=dropout
            )
            self.dense = nn.ModuleList(
                nn.Linear(width, following) for width, following in pairwise(widths)
            )

    def forward(self, batch: Batch) -> Tensor:
        """Standardised log run times [samples], in the order that `collate` was given."""
        operators = self._attend(batch)
        _, last = self.recurrent(PackedSequence(operators, batch.batch_sizes))
        # [2 * layers, samples, 128]: the last layer's forward and backward states stand last.
        fused = torch.cat([last[-2], last[-1], batch.plans], dim=1)
        return batch.in_given_order(self._fuse(fused) + batch.offsets)

    def predict_log_seconds(self, batch: Batch) -> Tensor:
        """Return log of the predicted run times in seconds [samples], within the public bounds."""
        log_seconds: Tensor = self(batch) * TARGET_SCALE + TARGET_CENTER
        return log_seconds.clamp(LOWEST, HIGHEST)

    def _attend(self, batch: Batch) -> Tensor:
        states = batch.operators
        for layer, attention in enumerate(self.attention):
            states = functional.elu(attention(states, batch.edges))
            if layer == 0:
                states = functional.dropout(states, self.dropout, self.training)
        return states

    def _fuse(self, states: Tensor) -> Tensor:
        for layer, dense in enumerate(self.dense[:-1]):
            states = functional.relu(dense(states))
            if layer < DENSE_LAYERS - 2:
                states = functional.dropout(states, self.dropout, self.training)
        output: Tensor = self.dense[-1](states)
        return output.squeeze(1)


def save_model(path: Path, model: GGFN, *, model_version: int) -> None:
    """Write the model's state as a checkpoint. Raises the errors of `save_checkpoint`."""
    save_checkpoint(path, Checkpoint(state_to_arrays(model), model_version))


def load_model(path: Path) -> GGFN:
    """Return a model in evaluation mode with the state of a checkpoint.

    Errors as `load_checkpoint`.
    """
    return model_from_arrays(load_checkpoint(path).arrays)


def model_from_arrays(arrays: Mapping[str, NDArray[np.float32]]) -> GGFN:
    """Return a model in evaluation mode with the given state, in memory of its own.

    Raises:
        InvalidModelStateError: the arrays are not a state of this architecture.
    """
    check_arrays(arrays)
    model = GGFN(dropout=0.0)
    model.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in arrays.items()})
    return model.eval()


def state_to_arrays(model: GGFN) -> NamedArrays:
    """Return the model's parameters as float32 arrays of their own memory, in state-dict order."""
    return {
        name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()
    }
