"""The record of a backward pass: for each weight, rows of activations and of output gradients.

A weight's gradient is a sum over rows of (gradient of the output) x (activation). With
both kept, the norm of one sample's part and the weighted sum over all samples need no
gradient of any single sample (book-keeping: Bu et al., "Differentially Private Optimization
on Large Model at Small Cost", 2023).

Invariant: parts cover disjoint weights, so that a sample's squared norms add up over
parts to the squared norm of its whole gradient.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedperf_shared.model.batches import Batch

_GROUP = 32
"""Samples of similar length, so padding is little."""

Index = int | slice | tuple[int | slice, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Maps the rows of a batch to samples.

    Attributes:
        batch_sizes: samples that have an operator at each step.
        samples: int64 [rows], the sample of every row.
        group: samples whose products are computed at once.
    """

    batch_sizes: tuple[int, ...]
    samples: Tensor
    group: int = _GROUP

    @classmethod
    def of(cls, batch: Batch, *, group: int = _GROUP) -> "Rows":
        """The rows of `batch`."""
        return cls(tuple(batch.batch_sizes.tolist()), batch.samples, group)

    @cached_property
    def lengths(self) -> Tensor:
        """Operators of each sample, int64 [samples], longest first."""
        return torch.bincount(self.samples)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First row of each step."""
        return tuple(
            int(end) - size
            for end, size in zip(
                torch.tensor(self.batch_sizes).cumsum(0).tolist(), self.batch_sizes, strict=True
            )
        )

    @cached_property
    def times(self) -> Tensor:
        """Step of every row, int64 [rows]."""
        steps = torch.arange(len(self.batch_sizes))
        return steps.repeat_interleave(torch.tensor(self.batch_sizes))

    @cached_property
    def reversal(self) -> Tensor:
        """The row of the same sample at the mirrored step, for every row; its own inverse."""
        mirrored = self.lengths[self.samples] - 1 - self.times
        return torch.tensor(self.offsets)[mirrored] + self.samples

    @cached_property
    def last(self) -> Tensor:
        """Last row of every sample, int64 [samples]."""
        return self.reversal[: self.batch_sizes[0]]

    @cached_property
    def groups(self) -> tuple["Group", ...]:
        """The samples in groups of similar length."""
        offsets = torch.tensor(self.offsets)
        parts = []
        for first in range(0, len(self.lengths), self.group):
            lengths = self.lengths[first : first + self.group, None]
            steps = torch.arange(int(lengths[0]))[None]
            samples = torch.arange(first, first + len(lengths))[:, None]
            inside = steps < lengths
            # Padding repeats a row of the same sample: nobody else's values, finite or not.
            rows = offsets[torch.where(inside, steps, 0)] + samples
            parts.append(Group(rows, inside))
        return tuple(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Some samples, padded to the longest.

    Attributes:
        rows: int64 [samples, longest].
        inside: whether there is such a row, bool [samples, longest].
    """

    rows: Tensor
    inside: Tensor

    def padded(self, values: Tensor) -> Tensor:
        """`values` [rows, width] of each sample, [samples, longest, width]."""
        return values.index_select(0, self.rows.flatten()).view(*self.rows.shape, -1)

    def zero_padded(self, values: Tensor) -> Tensor:
        """Return `padded` with zeros where there is no row."""
        return torch.where(self.inside[..., None], self.padded(values), 0.0)


class Place(NamedTuple):
    """The place of some rows of a gradient within a parameter.

    Attributes:
        name: of the parameter.
        rows: of the gradient.
        there: in the parameter.
    """

    name: str
    rows: int | slice
    there: Index


ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A matrix, a bias or both, which the same gradients reach.

    Attributes:
        columns: of the record's gradient.
        activation: float32 [rows, inputs] of the matrix, None without one.
        matrix: where the matrix' gradient belongs, outputs first.
        bias: where the bias' gradient belongs.
    """

    columns: slice
    activation: Tensor | None
    matrix: tuple[Place, ...] = ()
    bias: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """The record that one backward pass leaves of some parameters.

    Attributes:
        gradient: of the outputs, float32 [rows, outputs].
        parts: what it is the gradient of.
        by_sample: there is one row per sample, and not one per operator.
    """

    gradient: Tensor
    parts: tuple[Part, ...]
    by_sample: bool = False

    @property
    def names(self) -> set[str]:
        """The parameters, as the state dict calls them."""
        return {place.name for part in self.parts for place in (*part.matrix, *part.bias)}

    def sample_gradients(self, rows: Rows, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
        """Every sample's gradient, [samples, ...], by the names of the parameters."""
        count = len(rows.lengths)
        gradients = {name: self.gradient.new_empty(count, *shapes[name]) for name in self.names}
        for part in self.parts:
            gradient = self.gradient[:, part.columns]
            if part.activation is not None:
                products = self._per_sample(rows, gradient, part.activation)
                write(gradients, part.matrix, products, lead=1)
            if part.bias:
                ones = gradient.new_ones(len(gradient), 1)
                write(gradients, part.bias, self._per_sample(rows, gradient, ones)[..., 0], lead=1)
        return gradients

    def _per_sample(self, rows: Rows, gradient: Tensor, activation: Tensor) -> Tensor:
        """Gradient' activation of each sample, [samples, outputs, inputs]."""
        if self.by_sample:
            return gradient[:, :, None] * activation[:, None]
        return torch.cat(
            [
                torch.bmm(group.zero_padded(gradient).mT, group.padded(activation))
                for group in rows.groups
            ]
        )


def write(
    found: Mapping[str, Tensor], places: Iterable[Place], value: Tensor, *, lead: int = 0
) -> None:
    """Put the rows of `value` [..., outputs, ...] where they belong, after `lead` dimensions."""
    before = (ALL,) * lead
    for place in places:
        there = place.there if isinstance(place.there, tuple) else (place.there,)
        found[place.name][(*before, *there)] = value[(*before, place.rows)]
