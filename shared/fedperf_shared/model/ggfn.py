"""GGFN: graph attention and a bidirectional GRU over a plan, giving its log run time.

Parameter names and shapes are those of PyG's `GATConv` and torch's `GRU` and
`Linear` (`architecture.ARRAY_SHAPES`), so that a per-sample gradient engine can
replace the forward pass without touching a checkpoint. There is no batch
normalisation and no scale taken from the data: a plan's prediction depends on
nothing but that plan, and one workload's gradient on nothing but that workload.
"""

import math
import warnings
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.architecture import (
    ATTENTION_LAYERS,
    DENSE_LAYERS,
    HEADS,
    HIDDEN,
    RECURRENT_LAYERS,
    TARGET_CENTER,
    TARGET_SCALE,
)
from fedperf_shared.model.batches import Batch
from fedperf_shared.workflow.features import OPERATOR_FEATURES, PLAN_FEATURES
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, MIN_RUNTIME_SECONDS

with warnings.catch_warnings():
    # PyG 2.8 calls torch.jit.script while it is imported, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv

DEFAULT_DROPOUT = 0.1

_LOWEST = math.log(MIN_RUNTIME_SECONDS)
_HIGHEST = math.log(MAX_RUNTIME_SECONDS)


class InvalidDropoutError(InvalidInputError):
    """Dropout is not a probability below 1."""


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
        """Log of the predicted run times in seconds [samples], within the public bounds."""
        log_seconds: Tensor = self(batch) * TARGET_SCALE + TARGET_CENTER
        return log_seconds.clamp(_LOWEST, _HIGHEST)

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


def standardise(log_seconds: Tensor) -> Tensor:
    """The training target of log run times, clamped to the public bounds."""
    return (log_seconds.clamp(_LOWEST, _HIGHEST) - TARGET_CENTER) / TARGET_SCALE
