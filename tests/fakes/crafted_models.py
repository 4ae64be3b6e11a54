"""Models with finite weights that a hostile coordinator could send, and some honest ones."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_simulations.model.ggfn import GGFN, model_from_arrays

HIDDEN = 128


def cancelling(bias: float, gain: float) -> GGFN:
    """Return a model whose gradients nearly cancel in a Gram norm.

    The states are `bias` plus a small part of the plan. The second recurrent layer reads one end
    with gain +`gain` and the other with -`gain`.
    """
    model = GGFN(dropout=0.0, seed=0).eval()
    weights = model.state_dict()  # shares memory with the model
    for name, each in weights.items():
        if name.startswith(("recurrent", "dense")):
            each.zero_()
    weights["attention.1.bias"].fill_(bias)
    for layer in ("l0", "l0_reverse", "l1", "l1_reverse"):
        weights[f"recurrent.bias_ih_{layer}"][HIDDEN : 2 * HIDDEN] = -60.0  # no memory
    for layer, sign in (("l1", 1), ("l1_reverse", -1)):
        read = sign * gain * torch.eye(HIDDEN)
        weights[f"recurrent.weight_ih_{layer}"][2 * HIDDEN :, :HIDDEN] = read
    weights["dense.0.weight"][0, : 2 * HIDDEN] = 1e-3
    weights["dense.0.bias"][0] = 1.0
    for number in (1, 2):
        weights[f"dense.{number}.weight"][0, 0] = 1.0
    weights["dense.3.weight"][0, 0] = 0.05
    return model


def amplifying(seed: int, scale: float = 1e12) -> GGFN:
    """Return a model whose pairs of dense units cancel except for rounding errors.

    The last layer multiplies these errors by `scale`.
    """
    model = GGFN(dropout=0.0, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    weights = model.state_dict()  # shares memory with the model
    for name, each in weights.items():
        if name.startswith("recurrent.weight"):
            each.mul_(3)
        if name.startswith("dense"):
            each.zero_()
    pairs = torch.randn(64, 2 * HIDDEN, generator=generator) * 30
    weights["dense.0.weight"][:, : 2 * HIDDEN] = torch.cat([pairs, -pairs])
    weights["dense.0.bias"].fill_(3e3)
    for number in (1, 2):
        weights[f"dense.{number}.weight"].copy_(torch.eye(HIDDEN))
    weights["dense.3.weight"].fill_(scale)
    weights["dense.3.bias"][0] = -float(np.float32(HIDDEN * 3e3) * np.float32(scale))
    return model


def wild(decades: float) -> GGFN:
    """Return a model with each weight array multiplied by 10 to a random power.

    The power lies between -`decades` and `decades`.
    """
    model = GGFN(dropout=0.0, seed=5).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(10.0 ** ((torch.rand(each.shape, generator=generator) * 2 - 1) * decades))
    return model


def honest() -> GGFN:
    """Return the pretrained model that ships with the client."""
    return model_from_arrays(load_pretrained_model().arrays)


MODELS: dict[str, Callable[[], GGFN]] = {
    "public start": honest,
    "fresh": partial(GGFN, dropout=0.0, seed=1),
    **{f"wild {decades:g}": partial(wild, decades) for decades in (0.5, 1.5, 8.0)},
    **{f"amplifying {seed}": partial(amplifying, seed) for seed in range(4)},
    "amplifying 1e3": partial(amplifying, 3, 1e3),
    **{
        f"cancelling {bias:g} {gain:g}": partial(cancelling, bias, gain)
        for bias, gain in (
            (0.0, 1e4),
            (0.0, 1e6),
            (30.0, 100.0),
            (100.0, 1e3),
            (300.0, 30.0),
            (1e3, 1e4),
            (1e3, 1e6),
            (1e4, 1e4),
            (1e4, 1e6),
            (1e5, 1e4),
            (1e5, 1e6),
            (1e6, 1e4),
            (1e6, 1e6),
            (1e6, 1e9),
        )
    },
}
