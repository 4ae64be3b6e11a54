"""The training loss: Huber on the standardised log run time, one value per sample."""

from torch import Tensor
from torch.nn import functional

HUBER_DELTA = 0.5
"""In standardised units: with a target scale of 2, errors beyond one log second count linearly."""


def huber_per_sample(predicted: Tensor, target: Tensor) -> Tensor:
    """Loss per sample [samples]; never reduced here, since privacy clips per sample."""
    return functional.huber_loss(predicted, target, reduction="none", delta=HUBER_DELTA)
