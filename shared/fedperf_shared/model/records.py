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

    def padded(self, values: Tensor) -> Tensor:
        """`values` [rows, width] of each sample, [samples, longest, width]."""
        return values.index_select(0, self.rows.flatten()).view(*self.rows.shape, -1)

    def zero_padded(self, values: Tensor) -> Tensor:
        """As `padded`, with zeros where there is no row."""
        is_row = self.pairs.diagonal(dim1=1, dim2=2)
        return torch.where(is_row[..., None], self.padded(values), 0.0)

    def sum_of_pairs(self, products: Tensor) -> Tensor:
        """Sums of `products` [samples, longest, longest] over real pairs, [samples]."""
        return torch.where(self.pairs, products, 0.0).sum((1, 2))


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

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, as the state dict calls them."""
        ...

    def squared_norms(self, rows: Rows) -> Tensor:
        """Squared norm of every sample's gradient of these parameters, [samples]."""
        ...

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """The sum over samples of weight * gradient, by the names of the parameters.

        Without a weighting every sample weighs 1: the ordinary gradient.
        """
        ...

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """Every sample's gradient, [samples, ...], by the names of the parameters."""
        ...

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "Record":
        """The record with zeros for some samples' rows, bool [rows] and bool [samples]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRecord:
    """A matrix W of outputs = activation W' that sees one row per operator, without a bias.

    Attributes:
        weight: its name.
        activation: [rows, inputs].
        gradient: of the outputs, [rows, outputs].
    """

    weight: str
    activation: Tensor
    gradient: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """As `Record.names`."""
        return (self.weight,)

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        return torch.cat(
            [
                group.sum_of_pairs(
                    _gram(group.padded(self.activation)) * _gram(group.padded(self.gradient))
                )
                for group in rows.groups
            ]
        )

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        return {self.weight: self.gradient.T @ _weighted_rows(self.activation, weighting)}

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """As `Record.sample_gradients`."""
        return {self.weight: _products(self.gradient, self.activation, rows)}

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "MatrixRecord":
        """As `Record.without`."""
        del bad_samples
        kept = [t.masked_fill(bad_rows[:, None], 0.0) for t in (self.activation, self.gradient)]
        return MatrixRecord(self.weight, *kept)


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentRecord:
    """One direction of a GRU layer: two matrices with biases that share most gradients.

    Attributes:
        names: of weight_ih, weight_hh, bias_ih, bias_hh.
        inputs: [rows, inputs], in the order in which the direction reads.
        before: the states before each row, [rows, hidden].
        gradient: [rows, 4 * hidden]: of the gates r and z, of the state's and of the input's
            part of the candidate n. weight_hh sees the first three, weight_ih r, z and
            the last.
    """

    names: tuple[str, ...]
    inputs: Tensor
    before: Tensor
    gradient: Tensor

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        return torch.cat([self._of_group(group) for group in rows.groups])

    def _of_group(self, group: Group) -> Tensor:
        hidden = self.before.shape[1]
        gradient = group.padded(self.gradient)
        gates = _gram(gradient[..., : 2 * hidden])
        of_state = _gram(gradient[..., 2 * hidden : 3 * hidden]) + gates
        of_input = _gram(gradient[..., 3 * hidden :]) + gates
        inputs = _gram(group.padded(self.inputs)) + 1.0
        before = _gram(group.padded(self.before)) + 1.0
        return group.sum_of_pairs(of_input * inputs + of_state * before)

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        hidden = self.before.shape[1]
        gates, candidate = self.gradient[:, : 2 * hidden], self.gradient[:, 3 * hidden :]
        inputs = _weighted_rows(self.inputs, weighting)
        weight_ih = inputs.new_empty(3 * hidden, inputs.shape[1])
        torch.mm(gates.T, inputs, out=weight_ih[: 2 * hidden])
        torch.mm(candidate.T, inputs, out=weight_ih[2 * hidden :])
        of_state = self.gradient[:, : 3 * hidden]
        weight_hh = of_state.T @ _weighted_rows(self.before, weighting)
        sums = _weighted_total(self.gradient, weighting)
        bias_ih = torch.cat([sums[: 2 * hidden], sums[3 * hidden :]])
        found = (weight_ih, weight_hh, bias_ih, sums[: 3 * hidden])
        return dict(zip(self.names, found, strict=True))

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """As `Record.sample_gradients`."""
        hidden = self.before.shape[1]
        of_state = self.gradient[:, : 3 * hidden]
        of_input = torch.cat([self.gradient[:, : 2 * hidden], self.gradient[:, 3 * hidden :]], 1)
        found = (
            _products(of_input, self.inputs, rows),
            _products(of_state, self.before, rows),
            _sums(of_input, rows),
            _sums(of_state, rows),
        )
        return dict(zip(self.names, found, strict=True))

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "RecurrentRecord":
        """As `Record.without`."""
        del bad_samples
        kept = (self.inputs, self.before, self.gradient)
        return RecurrentRecord(self.names, *(t.masked_fill(bad_rows[:, None], 0.0) for t in kept))


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

    @property
    def names(self) -> tuple[str, ...]:
        """As `Record.names`."""
        return (self.weight, self.bias)

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        del rows
        return self.gradient.square().sum(1) * (self.activation.square().sum(1) + 1.0)

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        gradient = self.gradient
        if weighting is not None:
            gradient = gradient * weighting.samples[:, None]
        return {self.weight: gradient.T @ self.activation, self.bias: gradient.sum(0)}

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """As `Record.sample_gradients`."""
        del rows
        products = self.gradient[:, :, None] * self.activation[:, None]
        return {self.weight: products, self.bias: self.gradient}

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

    @property
    def names(self) -> tuple[str, ...]:
        """As `Record.names`."""
        return self.vectors

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        terms = self.gradient[..., None] * self.activation[:, None]
        return _sums(terms.flatten(1), rows).square().sum(1)

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        weighted = _weighted_rows(self.gradient.flatten(1), weighting).view_as(self.gradient)
        sums = torch.einsum("nvh,nhc->vhc", weighted, self.activation)
        return dict(zip(self.vectors, sums.chunk(len(self.vectors)), strict=True))

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """As `Record.sample_gradients`."""
        terms = self.gradient[..., None] * self.activation[:, None]
        sums = _sums(terms.flatten(1), rows).view(-1, *terms.shape[1:])
        return dict(zip(self.vectors, sums.unbind(1), strict=True))

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

    @property
    def names(self) -> tuple[str, ...]:
        """As `Record.names`."""
        return (self.bias,)

    def squared_norms(self, rows: Rows) -> Tensor:
        """As `Record.squared_norms`."""
        return _sums(self.gradient, rows).square().sum(1)

    def weighted_sum(self, weighting: Weighting | None) -> dict[str, Tensor]:
        """As `Record.weighted_sum`."""
        return {self.bias: _weighted_total(self.gradient, weighting)}

    def sample_gradients(self, rows: Rows) -> dict[str, Tensor]:
        """As `Record.sample_gradients`."""
        return {self.bias: _sums(self.gradient, rows)}

    def without(self, bad_rows: Tensor, bad_samples: Tensor) -> "BiasRecord":
        """As `Record.without`."""
        del bad_samples
        return BiasRecord(self.bias, self.gradient.masked_fill(bad_rows[:, None], 0.0))


def _gram(padded: Tensor) -> Tensor:
    """Scalar products of all pairs of rows, [samples, longest, longest]."""
    return torch.bmm(padded, padded.mT)


def _products(gradient: Tensor, activation: Tensor, rows: Rows) -> Tensor:
    """Gradient' activation of each sample, [samples, outputs, inputs]."""
    return torch.cat(
        [
            torch.bmm(group.zero_padded(gradient).mT, group.padded(activation))
            for group in rows.groups
        ]
    )


def _weighted_rows(values: Tensor, weighting: Weighting | None) -> Tensor:
    return values if weighting is None else values * weighting.rows[:, None]


def _weighted_total(values: Tensor, weighting: Weighting | None) -> Tensor:
    return values.sum(0) if weighting is None else weighting.rows @ values


def _sums(values: Tensor, rows: Rows) -> Tensor:
    """Sums of `values` [rows, width] over each sample's rows, [samples, width]."""
    sums = values.new_zeros(len(rows.lengths), values.shape[1])
    return sums.index_add_(0, rows.samples, values)


Tape = list[Record]
