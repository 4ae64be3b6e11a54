"""A small model of tables, an MLP of two hidden layers, trained for several seeds at once.

All seeds are one batched matrix product per layer. They never touch each other: the loss
is a sum over seeds, and Adam works on each number by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HIDDEN = 64
RATE, LAST_RATE = 1e-3, 5e-5
"""Learning rates of Adam: at the first step of a segment and, by a cosine, at its last."""

Penalty = Callable[["SeedModels"], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class SeedModels:
    """One model per seed.

    Attributes:
        weights: of each layer, [seeds, from, to].
        biases: of each layer, [seeds, 1, to].
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """All of them. What belongs to one seed is at its place of the first axis."""
        return (*self.weights, *self.biases)

    @classmethod
    def of(cls, parameters: Sequence[Tensor]) -> "SeedModels":
        """Return the inverse of `parameters`."""
        layers = len(parameters) // 2
        return cls(tuple(parameters[:layers]), tuple(parameters[layers:]))

    @classmethod
    def draw(cls, inputs: int, generators: Sequence[np.random.Generator]) -> "SeedModels":
        """Untrained, each seed from its own generator. As torch draws linear layers."""
        weights, biases = [], []
        sizes = (inputs, HIDDEN, HIDDEN, 1)
        for rows, columns in pairwise(sizes):
            bound = rows**-0.5
            weights_of_seeds = [
                rng.uniform(-bound, bound, (rows + 1, columns)) for rng in generators
            ]
            layer = torch.from_numpy(np.stack(weights_of_seeds)).float()
            weights.append(layer[:, :-1])
            biases.append(layer[:, -1:])
        return cls(tuple(weights), tuple(biases))

    def layers(self, inputs: Tensor) -> list[Tensor]:
        """The inputs [seeds, rows, inputs] and the output of every layer.

        The prediction is last.
        """
        made = [inputs]
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = torch.baddbmm(bias, made[-1], weight)
            made.append(out if place == len(self.weights) - 1 else out.relu())
        return made

    def __call__(self, inputs: Tensor) -> Tensor:
        """Answers [seeds, rows] to inputs [seeds, rows, inputs]."""
        return self.layers(inputs)[-1].squeeze(-1)

    def back(self, layers: Sequence[Tensor], at_output: Tensor) -> list[Tensor]:
        """Return the gradient of the loss by the output of each layer, [seeds, rows, to].

        Args:
            layers: as from `layers`.
            at_output: derivative of the loss by the prediction, [seeds, rows].
        """
        gradients = [at_output.unsqueeze(-1)]
        for weight, made in zip(self.weights[:0:-1], layers[-2:0:-1], strict=True):
            gradients.insert(0, torch.bmm(gradients[0], weight.mT) * (made > 0))
        return gradients

    def gradients(self, layers: Sequence[Tensor], at_layers: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of the loss, summed over rows, by parameter. From `layers` and `back`."""
        products = [torch.bmm(a.mT, d) for a, d in zip(layers[:-1], at_layers, strict=True)]
        return [*products, *(each.sum(dim=1, keepdim=True) for each in at_layers)]

    def of_seed(self, place: int) -> "SeedModels":
        """Return the model of one seed."""
        return SeedModels.of([each[place : place + 1] for each in self.parameters])

    def predictions(self, inputs: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Answers to inputs [rows, inputs] of each seed, whose rows may differ in number."""
        most = max(len(each) for each in inputs)
        padded = np.zeros((len(inputs), most, inputs[0].shape[1]), dtype=np.float32)
        for place, each in enumerate(inputs):
            padded[place, : len(each)] = each
        with torch.no_grad():
            predictions = self(torch.from_numpy(padded)).numpy()
        return [row[: len(each)] for row, each in zip(predictions, inputs, strict=True)]


def fit(
    models: SeedModels, inputs: Tensor, targets: Tensor, *, penalty: Penalty | None = None
) -> SeedModels:
    """New models, trained from `models` by one step of Adam per batch.

    Args:
        models: left as they are.
        inputs: [seeds, steps, rows, inputs].
        targets: [seeds, steps, rows].
        penalty: added to the loss, summed over seeds.
    """
    trained = SeedModels.of([each.clone().requires_grad_() for each in models.parameters])
    optimizer = torch.optim.Adam(trained.parameters, lr=RATE)
    steps = inputs.shape[1]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=LAST_RATE)
    for step in range(steps):
        optimizer.zero_grad()
        loss = (trained(inputs[:, step]) - targets[:, step]).square().mean(dim=1).sum()
        if penalty is not None:
            loss = loss + penalty(trained)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return SeedModels.of([each.detach() for each in trained.parameters])
