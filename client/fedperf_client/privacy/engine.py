"""The DP gradient engine: every sample's exact gradient norm from one backward pass.

`clipped_sum` gives the sum of the samples' gradients, each clipped to a bound in L2
norm, at about the cost of an ordinary training step: one forward and one backward pass
without weight products, norms from what they recorded, one weighted product per weight.

Sensitivity. A sample's weight is at most clip_norm / norm, so its part of the sum has norm
at most clip_norm, and no other sample's part depends on it: samples never touch each
other, and the weights are per sample. A sample whose loss, activations or gradients are
not finite has weight 0 and its rows are replaced by zeros, so it contributes exactly 0.
Norms are computed in the model's precision; a margin of some units in the last place
keeps rounding from passing the bound.

Refused: a model with parameters that the engine does not know. The oracle in the tests,
one backward pass per sample, gives the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.batching import Batch
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.loss import huber_per_sample
from fedperf_shared.model.recorded import forward
from fedperf_shared.model.records import Record, Rows, Tape, Weighting

_ROUNDING_UNITS = 64
"""Units in the last place by which a clipped gradient stays below the bound."""


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSum:
    """A sum of clipped gradients; private until noise is added to it.

    Attributes:
        gradients: by parameter, of its shape.
        clip_norm: the most that one sample changes it, L2 norm over all parameters.
    """

    gradients: dict[str, Tensor]
    clip_norm: float


def clipped_sum(model: GGFN, batch: Batch, targets: Tensor, clip_norm: float) -> ClippedSum:
    """Sum over the samples of `batch` of the loss's gradient, each clipped to `clip_norm`.

    Args:
        model: left as it is; dropout plays no part.
        batch: one plan per sample.
        targets: standardised log seconds [samples], in the order that `collate` was given.
        clip_norm: L2 bound of one sample's gradient over all parameters.

    Raises:
        ConfigurationError: a bound that is not positive, or a model of unknown parameters.
    """
    if not 0 < clip_norm < float("inf"):
        raise ConfigurationError(f"clip_norm must be positive and finite, got {clip_norm!r}")
    rows, tape = Rows.of(batch), Tape()
    predicted = forward(model, batch, rows, tape)
    losses = huber_per_sample(predicted, targets[batch.given].to(predicted.dtype))
    losses.sum().backward()  # type: ignore[no-untyped-call]
    trained = trained_parameters(model)
    tape = [record for record in tape if not trained.keys().isdisjoint(record.names)]
    with torch.no_grad():
        gradients = _weighted_sum(tape, rows, losses, clip_norm)
    if gradients.keys() != trained.keys():
        raise ConfigurationError(
            "the engine trains layers of GGFN, each as a whole; parameters differ: "
            f"{', '.join(sorted(gradients.keys() ^ trained.keys()))}"
        )
    return ClippedSum(
        {name: gradients[name].view_as(value) for name, value in trained.items()}, clip_norm
    )


def trained_parameters(model: GGFN) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient; frozen layers count neither here nor in norms."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def nothing(model: GGFN, clip_norm: float) -> ClippedSum:
    """The sum over no samples at all."""
    zeros = {name: torch.zeros_like(each) for name, each in trained_parameters(model).items()}
    return ClippedSum(zeros, clip_norm)


def squared_norms(tape: list[Record], rows: Rows) -> Tensor:
    """Squared norm of every sample's whole gradient, [samples]."""
    with torch.no_grad():
        return torch.stack([record.squared_norms(rows) for record in tape]).sum(0)


def _weighted_sum(
    tape: list[Record], rows: Rows, losses: Tensor, clip_norm: float
) -> dict[str, Tensor]:
    weights = _weights(tape, rows, losses, clip_norm)
    bad = weights == 0
    if bool(bad.any()):
        tape = [record.without(bad[rows.samples], bad) for record in tape]
    weighting = Weighting(weights, weights[rows.samples])
    return {
        name: value for record in tape for name, value in record.weighted_sum(weighting).items()
    }


def _weights(tape: list[Record], rows: Rows, losses: Tensor, clip_norm: float) -> Tensor:
    """min(1, clip_norm / norm) per sample, 0 where anything is not finite."""
    norms = squared_norms(tape, rows).clamp_min(0.0).sqrt()
    bound = clip_norm * (1.0 - _ROUNDING_UNITS * torch.finfo(norms.dtype).eps)
    weights = torch.where(norms <= bound, 1.0, bound / norms)
    sound = torch.isfinite(norms) & torch.isfinite(losses)
    return torch.where(sound, weights, 0.0)
