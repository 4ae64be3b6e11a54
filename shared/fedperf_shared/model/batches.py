"""Many plans as one batch of tensors.

It is packed time-major, as torch's `PackedSequence` is: samples are sorted
by number of operators, longest first, and row `offset[t] + b` holds operator `t`
of sample `b`. The attention layers and the recurrent layers thus share one layout,
and a per-sample gradient engine finds the sample of every row in `samples`.
Samples never touch each other: edges stay inside a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.architecture import offset_of
from fedperf_shared.workflow.features import Features


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
        given: int64 [samples], for every sorted sample its place in the given order.
    """

    operators: Tensor
    edges: Tensor
    batch_sizes: Tensor
    samples: Tensor
    plans: Tensor
    offsets: Tensor
    given: Tensor

    def __len__(self) -> int:
        return self.plans.shape[0]

    def in_given_order(self, values: Tensor) -> Tensor:
        """Per-sample `values` [samples, ...] put back into the order of `collate`'s argument."""
        return torch.empty_like(values).index_copy(0, self.given, values)


def collate(graphs: Sequence[Features]) -> Batch:
    """Pack `graphs` into one batch.

    Raises:
        EmptyBatchError: there are none.
    """
    if not graphs:
        raise EmptyBatchError("a batch needs at least one plan")
    lengths = torch.tensor([len(graph.order) for graph in graphs])
    lengths, given = torch.sort(lengths, descending=True, stable=True)
    ordered = [graphs[place] for place in given.tolist()]
    starts = torch.cumsum(lengths, 0) - lengths
    samples = torch.repeat_interleave(torch.arange(len(graphs)), lengths)
    times = torch.arange(len(samples)) - starts[samples]
    batch_sizes = torch.bincount(times)
    offsets = torch.cumsum(batch_sizes, 0) - batch_sizes
    rows = offsets[times] + samples
    operators = torch.from_numpy(np.concatenate([graph.operators for graph in ordered]))
    edges = torch.from_numpy(
        np.concatenate(
            [graph.edges + start for graph, start in zip(ordered, starts.tolist(), strict=True)],
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
        given=given,
    )
