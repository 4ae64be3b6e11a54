"""The training loss: Huber on the standardised log run time, one value per sample."""

import torch
from torch import Tensor
from torch.nn import functional

HUBER_DELTA = 0.5
"""In standardised units: with a target scale of 2, errors beyond one log second count linearly."""


def huber_per_sample(predicted: Tensor, target: Tensor) -> Tensor:
    """Loss per sample [samples]; never reduced here, since privacy clips per sample."""
    return functional.huber_loss(predicted, target, reduction="none", delta=HUBER_DELTA)


def huber_within(predicted: Tensor, target: Tensor, groups: Tensor) -> Tensor:
    """Loss of how the samples of a group differ from each other, per sample [samples].

    What counts is a sample's distance from the mean of its group in the batch, so a level that
    all of them miss costs nothing, and neither does one who is alone.

    Args:
        predicted: [samples].
        target: [samples].
        groups: a number per sample, the same for those of a group, int64 [samples].
    """
    members = torch.unique(groups, return_inverse=True)[1]
    sizes = torch.bincount(members)

    def apart(values: Tensor) -> Tensor:
        sums = torch.zeros(len(sizes), dtype=values.dtype).index_add(0, members, values)
        return values - (sums / sizes)[members]

    return huber_per_sample(apart(predicted), apart(target))
