"""A sequence whose teacher is private too: the shared model learns by DP-SGD, homes learn from it.

In each segment the shared model, as it is, is the teacher. It is trained on privately and becomes
the next one. An organization also trains a copy at home on its raw rows, which never leave it. Both
rehearse the same private inputs with the teacher's predictions.

Sensitivity. In a step each record of the segment is drawn by itself with the sampling
probability, and its gradient is multiplied by at most clip / norm: adding or removing it
changes the sum by at most the clip in L2 norm over all parameters. The noise is Gaussian
with noise multiplier times that clip, also where nothing was drawn, so a step is a
Poisson-sampled Gaussian and the steps compose (`fedperf_client.release.accountant`). The
rehearsed rows come from what was released; their gradient, the division by the released
noisy count, and Adam are post-processing. A record is in one segment only, so what a
segment's inputs and its training cost together is what a record's privacy costs.

The norm of a record's gradient is exact: a layer's gradient for one row is the outer product
of its inputs, with 1 for the bias, and of the loss's gradient by its output.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_client.release.accountant import PrivacyBudget, calibrate, to_event
from fedperf_shared.releases.release import TrainingParameters
from fedperf_simulations.baselines.batched_mlp import SeedModels, fit
from fedperf_simulations.data.public_table import Floats
from fedperf_simulations.experiments.drift.continual import (
    ReplicatedSequence,
    by_step,
    close,
    over_time,
    teacher,
    training_plans,
)
from fedperf_simulations.experiments.drift.rehearsal_methods import Records, TeacherLabelledInputs
from fedperf_simulations.federation.channel import DELTA

SAMPLING, CLIP, RATE = 0.25, 1.0, 1e-2
"""Parameters of DP-SGD, chosen on an inner split of one seed. The choice is not accounted."""

_ROUNDING_UNITS = 64
"""Units in the last place by which a clipped gradient stays below the bound."""

SHARED, HOME = "shared", "home"


@dataclass(frozen=True, slots=True)
class Promise:
    """The privacy cost of a segment's release and training.

    Attributes:
        inputs: epsilon of the private inputs, delta 0.
        training: epsilon of DP-SGD at `DELTA`.
    """

    inputs: float
    training: float

    @property
    def together(self) -> float:
        """Epsilon of both on the same records."""
        return self.inputs + self.training

    def noise_multiplier(self, steps: int) -> float:
        """Return the noise multiplier of DP-SGD with so many steps."""
        return calibrate(
            lambda sigma: [to_event(TrainingParameters(sigma, SAMPLING, steps, CLIP, 1.0))],
            PrivacyBudget(self.training, DELTA),
        )


@dataclass(frozen=True, slots=True)
class DpTraining:
    """The private training of the shared model in one segment.

    Attributes:
        noise_multiplier: stddev of the noise / clip.
        steps: of Adam.
    """

    noise_multiplier: float
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Public rows, with the teacher's predictions.

    Attributes:
        inputs: [seeds, steps, rows, inputs].
        targets: [seeds, steps, rows].
    """

    inputs: Tensor
    targets: Tensor


def learn_privately(course: ReplicatedSequence, promise: Promise) -> dict[str, dict[str, Floats]]:
    """Errors by metric of the shared models and of those at home, as from `continual.learn`."""
    shared, sigma = course.untrained(), promise.noise_multiplier(course.dp_steps)
    method = TeacherLabelledInputs(course.drift.columns, promise.inputs)
    stored: list[list[Sequence[Records]]] = [[] for _ in course.seeds]
    errors: dict[str, list[dict[str, Floats]]] = {SHARED: [], HOME: []}
    for place, segment in enumerate(course.splits):
        home = fit(shared, *training_plans(course, method, place, shared, stored))
        replay = _replay(course, method, place, shared, stored)
        close(course, method, place, home, stored)
        shared = dp_fit(
            shared,
            [each.training for each in segment],
            [_released_count(mine) for mine in stored],
            DpTraining(sigma, course.dp_steps),
            generators=course.generators(4, place),
            replay=replay,
        )
        errors[HOME].append(course.errors(home))
        errors[SHARED].append(course.errors(shared))
    return {whose: over_time(values) for whose, values in errors.items()}


def dp_fit(
    models: SeedModels,
    records: Sequence[Records],
    counts: Sequence[int],
    training: DpTraining,
    *,
    generators: Sequence[np.random.Generator],
    replay: Replay | None = None,
) -> SeedModels:
    """New models, trained from `models` by DP-SGD.

    Args:
        models: left as they are.
        records: private ones of each seed, equally many.
        counts: how many each seed has, as was released.
        training: noise and steps.
        generators: of sampling and noise, one per seed.
        replay: rows of earlier segments for every step; none by default.
    """
    inputs = of_seeds([each.inputs for each in records])
    targets = of_seeds([each.targets for each in records])
    nominal = SAMPLING * torch.tensor(counts).view(-1, 1, 1)
    trained = SeedModels.of([each.clone() for each in models.parameters])
    optimizer = torch.optim.Adam(trained.parameters, lr=RATE)
    for step in range(training.steps):
        sums = clipped_sums(trained, inputs, targets, sampled(inputs.shape[1], generators))
        private = noised(sums, training.noise_multiplier, generators)
        for parameter, each in zip(trained.parameters, private, strict=True):
            parameter.grad = each / nominal
        if replay is not None:
            _add_gradient(trained, replay.inputs[:, step], replay.targets[:, step])
        optimizer.step()
    return trained


def sampled(rows: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """1 for rows that are drawn in a step, each by itself, else 0. [seeds, rows]."""
    return of_seeds([rng.random(rows) < SAMPLING for rng in generators])


def noised(
    sums: Sequence[Tensor], noise_multiplier: float, generators: Sequence[np.random.Generator]
) -> list[Tensor]:
    """Return the sums with Gaussian noise of their sensitivity, each number its own."""
    return [
        each
        + noise_multiplier
        * CLIP
        * of_seeds([rng.standard_normal(each.shape[1:]) for rng in generators])
        for each in sums
    ]


def clipped_sums(
    models: SeedModels, inputs: Tensor, targets: Tensor, is_sampled: Tensor
) -> list[Tensor]:
    """Sum of the drawn rows' gradients, each clipped to `CLIP`, by parameter.

    Args:
        models: one per seed.
        inputs: [seeds, rows, inputs].
        targets: [seeds, rows].
        is_sampled: 1 for rows that count, 0 for others, [seeds, rows].
    """
    made = models.layers(inputs)
    gradients = models.back(made, 2 * (made[-1].squeeze(-1) - targets))
    squares = [
        (a.square().sum(dim=2) + 1) * d.square().sum(dim=2)
        for a, d in zip(made[:-1], gradients, strict=True)
    ]
    bound = CLIP * (1 - _ROUNDING_UNITS * torch.finfo(inputs.dtype).eps)
    weights = is_sampled * (bound / torch.stack(squares).sum(dim=0).sqrt()).clamp(max=1.0)
    return models.gradients(made, [each * weights.unsqueeze(2) for each in gradients])


def _add_gradient(models: SeedModels, inputs: Tensor, targets: Tensor) -> None:
    """Add the gradient of the mean squared error over public rows."""
    made = models.layers(inputs)
    gradients = models.back(made, 2 * (made[-1].squeeze(-1) - targets) / targets.shape[1])
    for parameter, gradient in zip(
        models.parameters, models.gradients(made, gradients), strict=True
    ):
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _replay(
    course: ReplicatedSequence,
    method: TeacherLabelledInputs,
    place: int,
    shared: SeedModels,
    stored: Sequence[Sequence[Sequence[Records]]],
) -> Replay | None:
    """Return what the shared model rehearses, or None where a seed has nothing yet."""
    sampled = [
        source.draw(course.dp_steps, rng)
        for seed, rng in enumerate(course.generators(5, place))
        for source in method.rehearsed(stored[seed], teacher(shared, seed))
    ]
    if len(sampled) < len(course.seeds):
        return None
    return Replay(
        torch.stack([by_step(each.inputs, course.dp_steps) for each in sampled]),
        torch.stack([by_step(each.targets, course.dp_steps) for each in sampled]),
    )


def _released_count(stored: Sequence[Sequence[Records]]) -> int:
    """Return the number of rows in the last release, at least one."""
    (last,) = stored[-1]
    return max(1, len(last))


def of_seeds(values: Sequence[NDArray[np.generic]]) -> Tensor:
    """Return one tensor, seeds in front."""
    return torch.from_numpy(np.stack(values)).float()
