"""DP-SGD: Poisson-sampled workloads, clipped by the engine, noised by Opacus' optimizer.

Sensitivity. One workload more or less changes each step's sum by at most `clip_norm`: it
is drawn as a whole, reduced to one of its executions, and clipped in `clipped_sums`. The
noise has standard deviation noise_multiplier * clip_norm per parameter and is drawn for
empty draws as well. Division by a declared number, rows that are no secret, and
Adam are post-processing.

Refused: no noise at all, and a step on gradients that the engine did not make. An
execution that fails counts exactly zero. Randomness is passed in; nothing here touches
a global generator.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_client.privacy.clipped_sums import (
    ClippedSum,
    clipped_sum,
    nothing,
    trained_parameters,
)
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.errors import ConfigurationError, PrivacyRefusedError
from fedperf_shared.model.batches import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.loss import huber_per_sample
from fedperf_shared.releases.release import TrainingParameters
from fedperf_shared.workflow.features import OPERATOR_FEATURES, PLAN_FEATURES
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS

with warnings.catch_warnings():
    # Opacus 1.6 imports what torch 2.13 deprecates.
    warnings.simplefilter("ignore")
    from opacus.optimizers import DPOptimizerFastGradientClipping


class UnclippedGradientError(PrivacyRefusedError):
    """An optimizer was to step on something else than the engine's clipped sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One execution to learn from.

    Attributes:
        graph: its plan.
        target: standardised log seconds.
        share: chance to be the one that is drawn of its workload, relative to the others.
    """

    graph: PlanGraph
    target: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Rows that are public or follow from releases; their number and weight are constants.

    Attributes:
        batches: used in turn, one per step.
        weight: of one row against one workload.
    """

    batches: Sequence[Sequence[Example]]
    weight: float = 1.0


class PrivateOptimizer(DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """Opacus' optimizer on the engine's sums and this project's noise.

    Scaling and the order of noise, scaling and step are Opacus'. Ordinary gradients are not
    looked at, so that a stray backward pass cannot leave unclipped ones.
    """

    def __init__(
        self,
        model: GGFN,
        parameters: TrainingParameters,
        noise: NoiseSource,
        *,
        learning_rate: float,
    ) -> None:
        """Adam on what `model` trains; the noise would be 0: ConfigurationError."""
        stddev = parameters.noise_multiplier * parameters.clip_norm
        if not 0 < stddev < float("inf"):
            raise ConfigurationError(f"a gradient is never released without noise, got {stddev!r}")
        trained = trained_parameters(model)
        self._names = {parameter: name for name, parameter in trained.items()}
        self._noise = noise
        self._taken: ClippedSum | None = None
        self._public: dict[str, Tensor] = {}
        super().__init__(
            torch.optim.Adam(trained.values(), lr=learning_rate),
            noise_multiplier=parameters.noise_multiplier,
            max_grad_norm=parameters.clip_norm,
            expected_batch_size=parameters.sampling_probability * parameters.nominal_workloads,
        )

    def take(self, clipped: ClippedSum, public: dict[str, Tensor] | None = None) -> None:
        """What the next step is made of: the engine's sum, and a gradient that is no secret.

        Raises:
            UnclippedGradientError: the sum has another bound than the noise is made for.
        """
        if not isinstance(clipped, ClippedSum) or not clipped.clip_norm <= self.max_grad_norm:
            raise UnclippedGradientError("the optimizer takes sums clipped to its own bound only")
        self._taken, self._public = clipped, public or {}

    def accumulate(self) -> None:
        """Opacus' first part of a step: the sum that the noise will be added to.

        Raises:
            UnclippedGradientError: the engine has made none since the last step.
        """
        if self._taken is None:
            raise UnclippedGradientError("a private step needs a sum that the engine clipped")
        gradients = self._taken.gradients
        for parameter in self.params:
            parameter.summed_grad = gradients[self._names[parameter]]
        self._taken = None

    def add_noise(self) -> None:
        """Opacus' second part, with noise in float64 from the source that was passed in."""
        stddev = self.noise_multiplier * self.max_grad_norm
        drawn = torch.from_numpy(self._noise.gaussian(sum(p.numel() for p in self.params)))
        drawn *= stddev
        parts = torch.split(drawn, [parameter.numel() for parameter in self.params])
        for parameter, part in zip(self.params, parts, strict=True):
            noised = part.view_as(parameter).add_(parameter.summed_grad)
            parameter.grad = noised.to(parameter.dtype)

    def scale_grad(self) -> None:
        """Opacus' third part; what is no secret comes to it un-noised, scaled the same way."""
        super().scale_grad()
        for parameter in self.params:
            if (public := self._public.get(self._names[parameter])) is not None:
                parameter.grad += public / self.expected_batch_size


def dp_train(
    model: GGFN,
    workloads: Sequence[Sequence[Example]],
    parameters: TrainingParameters,
    noise: NoiseSource,
    *,
    learning_rate: float,
    rehearsal: Rehearsal | None = None,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Tensor]:
    """Train a copy of `model` privately for one slot and return its state.

    Adam starts fresh. `model` itself is left as it was. The same steps are made whatever
    the data, and `on_step` learns nothing but the number of steps done.

    Args:
        model: to start from.
        workloads: the examples of each workload, each workload once.
        parameters: of the slot, from the schedule.
        noise: of sampling, of the choice of executions and of the gradient.
        learning_rate: of Adam.
        rehearsal: rows that are no secret, added without noise.
        on_step: told after each step how many are done.

    Raises:
        ConfigurationError: the noise would be 0.
    """
    trained = copy.deepcopy(model).eval()
    optimizer = PrivateOptimizer(trained, parameters, noise, learning_rate=learning_rate)
    for step in range(parameters.steps):
        drawn = draw(workloads, parameters.sampling_probability, noise)
        public = None
        if rehearsal is not None and rehearsal.batches:
            rows = rehearsal.batches[step % len(rehearsal.batches)]
            public = _public_gradient(trained, rows, rehearsal.weight)
        optimizer.take(sum_over(trained, drawn, parameters.clip_norm), public)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if on_step is not None:
            on_step(step + 1)
    return {name: value.detach().clone() for name, value in trained.state_dict().items()}


def draw(
    workloads: Sequence[Sequence[Example]], probability: float, noise: NoiseSource
) -> list[Example]:
    """Each workload independently with `probability`; of each drawn one execution, by chance."""
    chosen = poisson_sample(len(workloads), probability, noise.uniform(len(workloads)))
    places = noise.uniform(len(chosen))
    return [
        _drawn(members, place)
        for members, place in zip((workloads[i] for i in chosen), places, strict=True)
        if members
    ]


def _drawn(members: Sequence[Example], place: float) -> Example:
    """The execution at that place in (0, 1) of the shares laid side by side."""
    reached = np.cumsum([each.share for each in members])
    position = int(np.searchsorted(reached, place * reached[-1], side="right"))
    return members[min(position, len(members) - 1)]


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


def sum_over(model: GGFN, examples: Sequence[Example], clip_norm: float) -> ClippedSum:
    """The engine's sum over `examples`, of which those that no model could take count zero."""
    sound = [each for each in examples if _is_sound(each)]
    if not sound:
        return nothing(model, clip_norm)
    targets = torch.tensor([each.target for each in sound], dtype=torch.float64)
    return clipped_sum(model, [each.graph for each in sound], targets, clip_norm)


def _is_sound(example: Example) -> bool:
    """Whether the example fits into a batch; what it is worth, the engine decides."""
    graph = example.graph
    count = graph.operators.shape[0]
    shapes = (graph.operators.shape, graph.plan.shape, graph.edges.shape[:1])
    if not 0 < count <= MAX_OPERATORS or shapes != (
        (count, OPERATOR_FEATURES),
        (PLAN_FEATURES,),
        (2,),
    ):
        return False
    edges = graph.edges
    return not edges.numel() or (int(edges.min()) >= 0 and int(edges.max()) < count)


def _public_gradient(model: GGFN, rows: Sequence[Example], weight: float) -> dict[str, Tensor]:
    """Gradient of the summed loss of rows that are no secret; empty where it is not finite."""
    batch = collate([each.graph for each in rows])
    targets = torch.tensor([each.target for each in rows])
    predicted = model(batch)
    loss = weight * huber_per_sample(predicted, targets.to(predicted.dtype)).sum()
    names, parameters = zip(*trained_parameters(model).items(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    if not all(bool(torch.isfinite(each).all()) for each in gradients):
        return {}
    return dict(zip(names, gradients, strict=True))
