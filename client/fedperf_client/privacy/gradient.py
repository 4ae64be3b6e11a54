"""DP-SGD by one ordinary backward per sampled workload: simple, exact, slow; the oracle.

Invariant: whatever the workloads hold, one workload more or less changes the sum
before the noise by at most `clip_norm` in L2 norm. A workload is reduced to the
gradient of one of its executions, clipped as a whole and added in float64; a loss or
gradient that is not finite, and an execution that fails, count exactly zero. The noise
has standard deviation noise_multiplier * clip_norm per parameter and is drawn for
empty draws as well. Everything afterwards (division by a declared number, rehearsal
rows of others, Adam) is post-processing.

Refused: no noise at all. Randomness is passed in; nothing here touches a global generator.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.errors import ConfigurationError, FedperfError
from fedperf_shared.model.loss import huber_per_sample
from fedperf_shared.release import TrainingParameters

B = TypeVar("B")

_ROUNDING = 1.0 - 1e-9
"""Keeps the clipped gradient within the bound whatever the last bits of its norm."""


@dataclass(frozen=True, slots=True, eq=False)
class Example(Generic[B]):
    """What one forward pass takes.

    Attributes:
        batch: the model's argument: one plan where it is an execution, any number where
            it is a batch of rehearsal rows.
        target: float32 [plans], standardised log seconds.
    """

    batch: B
    target: Tensor


@dataclass(frozen=True, slots=True)
class Rehearsal(Generic[B]):
    """Rows of others, public or released already; their number and weight are constants.

    Attributes:
        batches: used in turn, one per step.
        weight: of one row against one workload.
    """

    batches: Sequence[Example[B]]
    weight: float = 1.0


def dp_train(
    model: nn.Module,
    workloads: Sequence[Sequence[Example[B]]],
    parameters: TrainingParameters,
    noise: NoiseSource,
    *,
    learning_rate: float,
    rehearsal: Rehearsal[B] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Tensor]:
    """Train a copy of `model` privately for one slot and return its state.

    Adam starts fresh. `model` itself is left as it was. The same steps are made whatever
    the data, and `on_step` learns nothing but the number of steps done.

    Args:
        model: `model(batch)` gives predictions [plans].
        workloads: the examples of each workload, each workload once.
        parameters: of the slot, from the schedule.
        noise: of sampling, of the choice of executions and of the gradient.
        learning_rate: of Adam.
        rehearsal: rows of others, added without noise.
        on_step: told after each step how many are done.

    Raises:
        ConfigurationError: the noise would be 0, or the model has nothing to train.
    """
    trained = copy.deepcopy(model).eval()
    trainable = _trainable(trained)
    optimizer = torch.optim.Adam(trainable, lr=learning_rate)
    nominal_batch = parameters.sampling_probability * parameters.nominal_workloads
    for step in range(parameters.steps):
        drawn = poisson_sample(
            len(workloads), parameters.sampling_probability, noise.uniform(len(workloads))
        )
        gradient = private_gradient(trained, [workloads[i] for i in drawn], parameters, noise)
        if rehearsal is not None and rehearsal.batches:
            rows = rehearsal.batches[step % len(rehearsal.batches)]
            gradient += _rehearsal_gradient(trained, rows) * (rehearsal.weight / nominal_batch)
        _apply(optimizer, trainable, gradient)
        if on_step is not None:
            on_step(step + 1)
    return {name: value.detach().clone() for name, value in trained.state_dict().items()}


def private_gradient(
    model: nn.Module,
    drawn: Sequence[Sequence[Example[B]]],
    parameters: TrainingParameters,
    noise: NoiseSource,
) -> Tensor:
    """Noisy clipped sum over the drawn workloads / (q * nominal workloads), float64 [parameters].

    Raises:
        ConfigurationError: the noise would be 0, or the model has nothing to train.
    """
    stddev = parameters.noise_multiplier * parameters.clip_norm
    if not 0 < stddev < float("inf"):
        raise ConfigurationError(f"a gradient is never released without noise, got {stddev!r}")
    chosen = [
        workload[min(int(u * len(workload)), len(workload) - 1)]
        for workload, u in zip(drawn, noise.uniform(len(drawn)), strict=True)
        if len(workload)
    ]
    total = clipped_sum(model, chosen, parameters.clip_norm)
    total += torch.from_numpy(noise.gaussian(total.numel())) * stddev
    return total / (parameters.sampling_probability * parameters.nominal_workloads)


def clipped_sum(model: nn.Module, examples: Sequence[Example[B]], clip_norm: float) -> Tensor:
    """Sum of the examples' gradients, each clipped to `clip_norm`, float64 [parameters]; private.

    The model should be in evaluation mode, without dropout.
    """
    trainable = _trainable(model)
    size = sum(parameter.numel() for parameter in trainable)
    total = torch.zeros(size, dtype=torch.float64)
    buffer = torch.empty(size, dtype=trainable[0].dtype)
    for example in examples:
        gradient = _gradient(model, trainable, example, buffer)
        if gradient is None:
            continue
        norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
        if not norm < float("inf"):
            continue
        scale = 1.0 if norm <= clip_norm * _ROUNDING else clip_norm / norm * _ROUNDING
        total.add_(gradient, alpha=scale)
    return total


def poisson_sample(
    count: int, probability: float, uniforms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Positions of `count` workloads that are drawn, each independently; may be none.

    Args:
        count: workloads.
        probability: of each to be drawn.
        uniforms: float64 [count], in (0, 1).
    """
    if uniforms.shape != (count,):
        raise ConfigurationError(f"{count} workloads need {count} uniforms, got {uniforms.shape}")
    return np.flatnonzero(uniforms < probability).astype(np.int64)


def _gradient(
    model: nn.Module, trainable: list[nn.Parameter], example: Example[B], buffer: Tensor
) -> Tensor | None:
    """The whole gradient of one execution's loss in `buffer`; None if it fails."""
    try:
        loss = huber_per_sample(model(example.batch), example.target).sum()
        if not bool(torch.isfinite(loss)):
            return None
        gradients = torch.autograd.grad(loss, trainable, allow_unused=True, materialize_grads=True)
    except (RuntimeError, ArithmeticError, LookupError, TypeError, ValueError, FedperfError):
        return None
    return torch.cat([gradient.reshape(-1) for gradient in gradients], out=buffer)


def _rehearsal_gradient(model: nn.Module, rows: Example[B]) -> Tensor:
    """Gradient of the summed loss of rows that are no secret; 0 where it is not finite."""
    trainable = _trainable(model)
    buffer = torch.empty(sum(p.numel() for p in trainable), dtype=trainable[0].dtype)
    gradient = _gradient(model, trainable, rows, buffer)
    if gradient is None or not bool(torch.isfinite(gradient).all()):
        return torch.zeros_like(buffer, dtype=torch.float64)
    return gradient.double()


def _apply(
    optimizer: torch.optim.Optimizer, trainable: list[nn.Parameter], gradient: Tensor
) -> None:
    start = 0
    for parameter in trainable:
        part = gradient[start : start + parameter.numel()]
        parameter.grad = part.view_as(parameter).to(parameter.dtype)
        start += parameter.numel()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ConfigurationError("the model has no trainable parameter")
    return trainable
