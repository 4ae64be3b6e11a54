"""What a backward pass leaves of each weight, and what it says about every sample.

A weight's gradient is a sum over rows of (gradient of the output) x (activation). With
both kept, the squared norm of one sample's part needs no gradient at all: for rows n, m
of a sample it is the sum of (g_n . g_m)(a_n . a_m), two small Gram matrices. And the
weighted sum over all samples is one matrix product of weighted rows. (Book-keeping: Bu
et al., "Differentially Private Optimization on Large Model at Small Cost", 2023; Goodfellow's
norms for one row per sample, 2015.)

Invariant: records cover disjoint parameters, so that a sample's squared norms add up
over records to the squared norm of its whole gradient.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from fedperf_shared.model.batching import Batch

_GROUP = 32
"""Samples whose Gram matrices are computed at once; of similar length, so padding is little."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Which rows of a batch belong to which sample.

    Attributes:
        batch_sizes: samples that have an operator at each step.
        samples: int64 [rows], the sample of every row.
    """

    batch_sizes: tuple[int, ...]
    samples: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "Rows":
        """The rows of `batch`."""
        return cls(tuple(batch.batch_sizes.tolist()), batch.samples)

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
        """For every row the row of the same sample at the mirrored step; its own inverse."""
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
        found = []
        for first in range(0, len(self.lengths), _GROUP):
            lengths = self.lengths[first : first + _GROUP, None]
            steps = torch.arange(int(lengths[0]))[None]
            samples = torch.arange(first, first + len(lengths))[:, None]
            inside = steps < lengths
            # Padding repeats a row of the same sample: nobody else's values, finite or not.
            rows = offsets[torch.where(inside, steps, 0)] + samples
            found.append(Group(rows, (inside[:, :, None] & inside[:, None, :])))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Group:
    """Some samples, padded to the longest.

    Attributes:
        rows: int64 [samples, longest].
        pairs: whether both rows of a pair are real, bool [samples, longest, longest].
    """

    rows: Tensor
    pairs: Tensor


@dataclass(frozen=True, slots=True)
class Weighting:
    """Each sample's weight in the sum.

    Attributes:
        samples: [samples].
        rows: [rows], of the row's sample.
    """

    samples: Tensor
    rows: Tensor


class Record(Protocol):
    """What one backward pass leaves of some parameters."""

    def squared_norms(self, rows: Rows) -> Tensor:
        """Squared norm of every sample's gradient of these parameters, [samples]."""
        ...

    def weighted_sum(self, weighting: Weighting) -> dict[str, Tensor]:
        """The sum over samples of weight * gradient, by the names of the parameters."""
        ...

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "Record":
        """The record with zeros for some samples' rows, bool [rows] and bool [samples]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRecord:
    """Matrices W of outputs = activation W' (+ bias), stacked if they share the activation.

    Attributes:
        weights: names, stacked along the outputs in equal parts.
        biases: names of their biases; none, or one for each.
        activation: [rows, inputs].
        gradient: of the outputs, [rows, outputs].
    """

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    activation: Tensor
    gradient: Tensor

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        return torch.cat([self._of_group(group) for group in rows.groups])

    def weighted_sum(self, weighting: Weighting) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        weighted = self.gradient * weighting.rows[:, None]
        parts = (weighted.T @ self.activation).chunk(len(self.weights))
        found = dict(zip(self.weights, parts, strict=True))
        if self.biases:
            found |= zip(self.biases, weighted.sum(0).chunk(len(self.biases)), strict=True)
        return found

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "MatrixRecord":
        """As `Record.without`."""
        del bad_samples
        kept = [t.masked_fill(bad_rows[:, None], 0.0) for t in (self.activation, self.gradient)]
        return MatrixRecord(self.weights, self.biases, *kept)

    def _of_group(self, group: Group) -> Tensor:
        gradient, activation = self.gradient[group.rows], self.activation[group.rows]
        products = torch.bmm(activation, activation.mT)
        if self.biases:
            products += 1.0
        products *= torch.bmm(gradient, gradient.mT)
        return torch.where(group.pairs, products, 0.0).sum((1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class DenseRecord:
    """A matrix with bias that sees one row per sample.

    Attributes:
        weight: its name.
        bias: its name.
        activation: [samples, inputs].
        gradient: of the outputs, [samples, outputs].
    """

    weight: str
    bias: str
    activation: Tensor
    gradient: Tensor

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        del rows
        return self.gradient.square().sum(1) * (self.activation.square().sum(1) + 1.0)

    def weighted_sum(self, weighting: Weighting) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        weighted = self.gradient * weighting.samples[:, None]
        return {self.weight: weighted.T @ self.activation, self.bias: weighted.sum(0)}

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "DenseRecord":
        """As `Record.without`."""
        del bad_rows
        kept = [t.masked_fill(bad_samples[:, None], 0.0) for t in (self.activation, self.gradient)]
        return DenseRecord(self.weight, self.bias, *kept)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRecord:
    """The attention vectors of a layer: scores[n, v, h] = activation[n, h] . vector[v, h].

    Attributes:
        vectors: names of the vectors [1, heads, width], in order.
        activation: [rows, heads, width].
        gradient: of the scores, [rows, vectors, heads].
    """

    vectors: tuple[str, ...]
    activation: Tensor
    gradient: Tensor

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        terms = self.gradient[..., None] * self.activation[:, None]
        return _sums(terms.flatten(1), rows).square().sum(1)

    def weighted_sum(self, weighting: Weighting) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        weighted = self.gradient * weighting.rows[:, None, None]
        sums = torch.einsum("nvh,nhc->vhc", weighted, self.activation)
        return dict(zip(self.vectors, sums.chunk(len(self.vectors)), strict=True))

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "ScoreRecord":
        """As `Record.without`."""
        del bad_samples
        kept = [
            t.masked_fill(bad_rows[:, None, None], 0.0) for t in (self.activation, self.gradient)
        ]
        return ScoreRecord(self.vectors, *kept)


@dataclass(frozen=True, slots=True, eq=False)
class BiasRecord:
    """A bias that is added to every row.

    Attributes:
        bias: its name.
        gradient: of the output, [rows, width].
    """

    bias: str
    gradient: Tensor

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        return _sums(self.gradient, rows).square().sum(1)

    def weighted_sum(self, weighting: Weighting) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        return {self.bias: weighting.rows @ self.gradient}

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "BiasRecord":
        """As `Record.without`."""
        del bad_samples
        return BiasRecord(self.bias, self.gradient.masked_fill(bad_rows[:, None], 0.0))


def _sums(values: Tensor, rows: Rows) -> Tensor:
    """Sums of `values` [rows, width] over each sample's rows, [samples, width]."""
    sums = values.new_zeros(len(rows.lengths), values.shape[1])
    return sums.index_add_(0, rows.samples, values)


Tape = list[Record]
