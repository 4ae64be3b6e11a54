"""Sums over the edges of a batch, in an order that depends on a row's own edges alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedperf_shared.model.batches import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Edges in slots: within one every row occurs at most once, so no two additions race.

    Attributes:
        rows: int64 [edges], where to add.
        cuts: begin and end of every slot.
    """

    rows: Tensor
    cuts: tuple[tuple[int, int], ...]

    @classmethod
    def by(cls, rows: Tensor) -> tuple["Slots", Tensor]:
        """The slots for `rows` [edges], and the order in which they take the edges."""
        order = torch.argsort(rows, stable=True)
        ordered = rows[order]
        number = torch.arange(len(rows)) - torch.searchsorted(ordered, ordered)
        by_number = torch.argsort(number, stable=True)
        order = order[by_number]
        ends = torch.bincount(number).cumsum(0).tolist()
        return cls(rows[order], tuple(zip([0, *ends], ends, strict=False))), order

    def add(self, total: Tensor, values: Tensor) -> Tensor:
        """`total` [rows, ...] with `values` [edges, ...] added in place."""
        for begin, end in self.cuts:
            total.index_add_(0, self.rows[begin:end], values[begin:end])
        return total

    def raise_to(self, total: Tensor, values: Tensor) -> Tensor:
        """`total` [rows, ...] raised in place to the largest of its `values` [edges, ...]."""
        for begin, end in self.cuts:
            rows = self.rows[begin:end]
            total[rows] = torch.maximum(total[rows], values[begin:end])
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of a batch without self loops, for messages there and gradients back.

    Attributes:
        sources: int64 [edges].
        targets: of the same edges.
        back: of the edges in the order `backwards`, whose rows are the sources.
        backwards: int64 [edges].
    """

    sources: Tensor
    targets: Slots
    back: Slots
    backwards: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "Edges":
        """The edges of `batch`."""
        sources, targets = batch.edges[:, : -len(batch.samples)]
        into, order = Slots.by(targets)
        sources = sources[order]
        return cls(sources, into, *Slots.by(sources))
