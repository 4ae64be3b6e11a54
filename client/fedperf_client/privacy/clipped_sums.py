"""The DP gradient engine: a sum of whole numbers, one pure function of each workload.

`clipped_sum` gives the sum of the samples' gradients, each clipped to a bound in L2
norm, in units of 2^-38 clips. One pass forward and back serves up to 64 samples, and nobody's
gradient is ever made: norms come from what the pass recorded, then each matrix takes one
product of weighted rows.

Sensitivity. One sample more or less moves the sum by a vector of norm at most 1 clip in
exact whole numbers, whatever finite model the coordinator sent and whoever else is there:

- What a pass records has the same bits in any batch
  (`fedperf_shared.model.gradients.exact_arithmetic`).
- A gradient is a sum over rows of g a'. Rows are rounded to whole numbers: a to 12 bits of
  its row's largest, g to 22 bits of the largest |g| |a| of its own sample, which never
  reads another sample. From here on the gradient is that of the whole numbers.
- Its squared norm is a sum over pairs of rows of (g.g)(a.a), both scalar products exact.
  Pairs are rounded to a grid that depends on the sample's number of rows T alone, so that
  float64 adds them exactly. T^2 roundings of at most 1/2 a step, and less than 1 for all
  roundings of products, are added on top. So it is an upper bound, however much cancels.
- Weighted rows w g are rounded to 2^-26 clips. That moves each weight of the gradient by at
  most T/2 such steps, and all of them by sqrt(615,809) T/2. Weights are lower by just this
  margin, at most 0.3 %, and 2^-30 for the roundings of weights themselves.
- A weighted row has at most 28 bits, an activation 12: 8,192 rows of one pass add
  below 2^53, so exactly. Passes are added as int64.

A sample counts exactly 0 whose loss, activations or gradients are not finite or beyond
2^60, or whose rows are more than 4 clips after weighting, which only cancel in the sum.

Refused: a model with parameters that the engine does not know, and too large a plan.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import PARAMETERS
from fedperf_shared.model.batches import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.gradients.exact_arithmetic import largest, one_thread, power_above, two_to
from fedperf_shared.model.gradients.plan_gradients import Network
from fedperf_shared.model.gradients.records import Group, Part, Record, Rows, write
from fedperf_shared.model.loss import huber_slope
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS

_ACTIVATION_BITS = 12
_GRADIENT_BITS = 22
_WEIGHTED_BITS = 26
"""Of a clip, in a weighted row."""
_ROW_CLIPS_BITS = 2
"""A weighted row of a sample that counts is at most 4 clips long in any number."""
_MAX_ROWS = 2 ** (53 - _WEIGHTED_BITS - _ROW_CLIPS_BITS - _ACTIVATION_BITS)
_SAMPLES = 64
"""In one pass: more only leave the processor's caches."""

_SMALLEST, _LARGEST = 2.0**-40, 2.0**60
"""A gradient below the one is rounded as if it were that large; beyond the other nothing counts."""

_MARGIN = (math.sqrt(PARAMETERS) + 1) * 2.0 ** -(_WEIGHTED_BITS + 1)
"""Clips by which rounding moves a weighted gradient at most, for each of its rows."""
_SLACK = 2.0**-30

UNIT_BITS = _WEIGHTED_BITS + _ACTIVATION_BITS


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSum:
    """A sum of clipped gradients; private until noise is added to it.

    Attributes:
        units: by parameter, of its shape, int64 multiples of clip_norm * 2^-38.
        clip_norm: the most that one sample changes it, L2 norm over all parameters.
    """

    units: dict[str, Tensor]
    clip_norm: float

    @property
    def gradients(self) -> dict[str, Tensor]:
        """By parameter, of its shape, float64."""
        unit = self.clip_norm * 2.0**-UNIT_BITS
        return {name: value.double() * unit for name, value in self.units.items()}


def clipped_sum(
    model: GGFN, graphs: Sequence[PlanGraph], targets: Tensor, clip_norm: float
) -> ClippedSum:
    """Sum over `graphs` of the loss's gradient, each clipped to `clip_norm`.

    Args:
        model: left as it is; dropout plays no part.
        graphs: one plan per sample.
        targets: standardised log seconds [samples].
        clip_norm: L2 bound of one sample's gradient over all parameters.

    Raises:
        ConfigurationError: a bound that is not positive, a plan of more than 512 operators,
            or a model of unknown parameters.
    """
    if not 0 < clip_norm < float("inf"):
        raise ConfigurationError(f"clip_norm must be positive and finite, got {clip_norm!r}")
    if any(len(graph) > MAX_OPERATORS for graph in graphs):
        raise ConfigurationError(f"a plan has at most {MAX_OPERATORS} operators")
    total = nothing(model, clip_norm)
    with torch.no_grad(), one_thread():
        network = Network(model)
        for places in _passes(graphs):
            some = [graphs[place] for place in places]
            found = _of_pass(network, some, targets[torch.tensor(places)], total)
            for name, value in found.items():
                total.units[name] += value.to(torch.int64)
    return total


def trained_parameters(model: GGFN) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient; frozen layers count neither here nor in norms."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def nothing(model: GGFN, clip_norm: float) -> ClippedSum:
    """The sum over no samples at all."""
    trained = trained_parameters(model).items()
    zeros = {name: torch.zeros(each.shape, dtype=torch.int64) for name, each in trained}
    return ClippedSum(zeros, clip_norm)


def _passes(graphs: Sequence[PlanGraph]) -> Iterator[list[int]]:
    """Places of plans of similar length that fit into one pass."""
    order = sorted(range(len(graphs)), key=lambda place: -len(graphs[place]))
    while order:
        count = min(_SAMPLES, _MAX_ROWS // max(1, len(graphs[order[0]])))
        yield order[:count]
        order = order[count:]


def _of_pass(
    network: Network, graphs: Sequence[PlanGraph], targets: Tensor, total: ClippedSum
) -> dict[str, Tensor]:
    """The whole-numbered sum of one pass, float64, by parameter as in `total`."""
    batch = collate(graphs)
    rows, expected = Rows.of(batch), targets[batch.given].float()
    _, records = network.record(batch, rows, lambda outputs: huber_slope(outputs, expected))
    wanted = total.units.keys()
    records = [record for record in records if not wanted.isdisjoint(record.names)]
    known = {name for record in records for name in record.names}
    if known != wanted:
        raise ConfigurationError(
            "the engine trains layers of GGFN, each as a whole; parameters differ: "
            f"{', '.join(sorted(known ^ wanted))}"
        )
    wholes = [_Whole.of(record, rows) for record in records]
    weights = _weights(wholes, rows, total.clip_norm)
    found = {
        name: torch.empty(each.shape, dtype=torch.float64) for name, each in total.units.items()
    }
    for whole in wholes:
        whole.add_weighted(weights, rows, total.clip_norm, found)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """A record in whole numbers, held in float64.

    Attributes:
        record: what it was.
        gradient: [rows, outputs], at most 2^22.
        activations: of every part [rows, inputs], below 2^12; a bias is a last input, 1.
        power: what 2^22 steps of a gradient with 2^12 of an activation are worth, a power
            of two per sample; infinite where the sample cannot count.
    """

    record: Record
    gradient: Tensor
    activations: list[Tensor]
    power: Tensor

    @classmethod
    def of(cls, record: Record, rows: Rows) -> "_Whole":
        """Round `record`."""
        size = torch.full((len(record.gradient), 1), _SMALLEST)
        for part in record.parts:
            if part.activation is not None:
                size = torch.maximum(size, largest(part.activation))
            if part.bias:
                size = size.clamp_min(1.0)
        above, inverse = power_above(size.clamp_max(_LARGEST))
        reach = largest(record.gradient) * above
        reach = torch.where((size <= _LARGEST) & (reach <= _LARGEST), reach, torch.inf)[:, 0]
        if not record.by_sample:
            of_rows, reach = reach, torch.zeros(len(rows.lengths))
            reach.scatter_reduce_(0, rows.samples, of_rows, "amax")
        power, to_steps = power_above(reach.clamp(_SMALLEST, _LARGEST))
        steps = _by_row(to_steps, record, rows) * above[:, 0] * 2.0**_GRADIENT_BITS
        return cls(
            record,
            (record.gradient * steps[:, None]).round_().double(),
            [_activation(part, inverse) for part in record.parts],
            torch.where(reach < torch.inf, power.double(), torch.inf),
        )

    def squared_norms(self, rows: Rows) -> Tensor:
        """An upper bound for every sample's squared norm, [samples]."""
        total = torch.zeros(len(rows.lengths), dtype=torch.float64)
        for part, activation in zip(self.record.parts, self.activations, strict=True):
            gradient = self.gradient[:, part.columns]
            if self.record.by_sample:
                squares = gradient.square().sum(1) * activation.square().sum(1)
                total += squares * (1 + 2.0**-50)
            else:
                total += squares_at_most(gradient, activation, rows)
        unit = self.power * 2.0 ** -(_GRADIENT_BITS + _ACTIVATION_BITS)
        return total * unit * unit

    def factors(self, weights: Tensor, clip_norm: float) -> Tensor:
        """What makes steps of weighted rows out of steps of rows, float64 [samples]."""
        return weights * self.power * (2.0 ** (_WEIGHTED_BITS - _GRADIENT_BITS) / clip_norm)

    def add_weighted(
        self, weights: Tensor, rows: Rows, clip_norm: float, found: dict[str, Tensor]
    ) -> None:
        """Write the sum of weighted gradients into `found`, in units; a weight of 0 counts 0."""
        counts = weights > 0
        factors = torch.where(counts, self.factors(weights, clip_norm), 0.0)
        weighted = (self.gradient * _by_row(factors, self.record, rows)[:, None]).round_()
        all_count = bool(counts.all())
        if not all_count:  # infinity times 0 is no 0
            inside = _by_row(counts, self.record, rows)[:, None]
            weighted = torch.where(inside, weighted, 0.0)
        for part, activation in zip(self.record.parts, self.activations, strict=True):
            known = activation if all_count else torch.where(inside, activation, 0.0)
            value = weighted[:, part.columns].T @ known
            width = 0 if part.activation is None else part.activation.shape[1]
            write(found, part.matrix, value[:, :width])
            write(found, part.bias, value[:, -1])


def _by_row(values: Tensor, record: Record, rows: Rows) -> Tensor:
    """`values` [samples] for every row of the record."""
    return values if record.by_sample else values.index_select(0, rows.samples)


def _activation(part: Part, inverse: Tensor) -> Tensor:
    """The part's activation in steps of 2^-12 of the power above its row's largest number."""
    steps = inverse * 2.0**_ACTIVATION_BITS
    width = 0 if part.activation is None else part.activation.shape[1]
    whole = torch.empty(len(inverse), width + bool(part.bias), dtype=torch.float64)
    most = 2**_ACTIVATION_BITS - 1
    if part.activation is not None:
        whole[:, :width] = (part.activation * steps).round_().clamp_(-most, most)
    if part.bias:
        whole[:, width:] = steps.floor().clamp_(0, most)
    return whole


def squares_at_most(gradient: Tensor, activation: Tensor, rows: Rows) -> Tensor:
    """An upper bound of the squared norm of each sample's gradient' activation, [samples].

    Args:
        gradient: whole numbers of at most 2^22, float64 [rows, outputs].
        activation: whole numbers below 2^12, float64 [rows, inputs].
        rows: of the samples.
    """
    bits = 2 * (_GRADIENT_BITS + _ACTIVATION_BITS)
    bits += sum(math.ceil(math.log2(each.shape[1])) for each in (gradient, activation))
    lengths = rows.lengths.double()
    # No pair has more than 2^51 / T^2 steps, so that T^2 of them stay below 2^53.
    exponents = (2 * torch.frexp(lengths)[1] + (bits - 51)).double()
    steps, found, first = two_to(-exponents), [], 0
    for group in rows.groups:
        pairs = _products(group, gradient) * _products(group, activation)
        pairs *= steps[first : first + len(pairs), None, None]
        found.append(group.sum_of_pairs(pairs.round_()))
        first += len(pairs)
    return (torch.cat(found) + (lengths.square() / 2 + 1)) * two_to(exponents)


def _products(group: Group, values: Tensor) -> Tensor:
    """Scalar products of all pairs of rows, [samples, longest, longest]."""
    padded = group.padded(values)
    return torch.bmm(padded, padded.mT)


def _weights(wholes: Sequence[_Whole], rows: Rows, clip_norm: float) -> Tensor:
    """The most that keeps every sample's part of the sum within the clip; 0: it does not count."""
    squares = torch.zeros(len(rows.lengths), dtype=torch.float64)
    for whole in wholes:
        squares += whole.squared_norms(rows)
    norms = squares.sqrt() * (1 + 2.0**-40) / clip_norm
    bound = 1 - _SLACK - _MARGIN * rows.lengths.double()
    weights = torch.where(norms <= bound, 1.0, bound / norms)
    most = 2.0 ** (_WEIGHTED_BITS + _ROW_CLIPS_BITS - _GRADIENT_BITS)
    counts = torch.isfinite(norms)
    for whole in wholes:
        counts &= whole.factors(weights, clip_norm) <= most
    return torch.where(counts, weights, 0.0)
