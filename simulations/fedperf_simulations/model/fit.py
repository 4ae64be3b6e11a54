"""Ordinary, non-private training and prediction.

Used for the public base model and for models that never leave an organization.
Same seed, data and versions give the same weights; torch's global generator is
left as it was. Refused: no samples, labels or weights that are not finite, and a
training that diverges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.model.architecture import HIGHEST, LOWEST, standardise
from fedperf_shared.workflow.features import Features
from fedperf_simulations.model.ggfn import GGFN, collate

HUBER_DELTA = 0.5
"""In standardised units: with a target scale of 2, errors beyond one log second count linearly."""

MAX_GRADIENT_NORM = 5.0
_BUCKET_BATCHES = 16
_TOGETHER = 8
"""Plans of one query that a batch holds together, so that it holds other queries as well."""

Progress = Callable[[int, float], None]
"""Called after every epoch with its number, from 1, and its mean loss."""


class InvalidTrainingDataError(InvalidInputError):
    """The samples or settings of a training cannot be used."""


class TrainingDivergedError(FedperfError):
    """The loss became non-finite. The model's weights are of no use."""


@dataclass(frozen=True, slots=True)
class FitReport:
    """The record of a training: optimizer steps and the mean loss of every epoch."""

    steps: int
    epoch_losses: tuple[float, ...]


def huber_per_sample(predicted: Tensor, target: Tensor) -> Tensor:
    """Loss per sample [samples]. Never reduced here, since privacy clips per sample."""
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


def fit(
    model: GGFN,
    graphs: Sequence[Features],
    log_seconds: NDArray[np.floating],
    *,
    epochs: int,
    seed: int,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    on_progress: Progress | None = None,
    weights: NDArray[np.floating] | None = None,
    query_numbers: NDArray[np.integer] | None = None,
) -> FitReport:
    """Train `model` in place by Adam with a one-cycle schedule. It ends in evaluation mode.

    Args:
        model: changed in place.
        graphs: the plans.
        log_seconds: natural log of their measured run times in seconds.
        epochs: passes over the data.
        seed: of batches and dropout.
        batch_size: plans per step.
        learning_rate: peak of the schedule.
        on_progress: called after every epoch.
        weights: relative weight of every sample; equal if None.
        query_numbers: a number per plan, the same for plans of one workflow on one cluster. Where
            it is given, differences between such plans count as much as their run times, because a
            cost model serves to choose among them (`huber_within`).

    Raises:
        InvalidTrainingDataError: see the module.
        TrainingDivergedError: a loss was not finite.
    """
    targets, importance = _checked(graphs, log_seconds, weights)
    query_indices = (
        None if query_numbers is None else torch.from_numpy(np.asarray(query_numbers, np.int64))
    )
    if not (epochs > 0 and batch_size > 0 and 0 < learning_rate < float("inf")):
        raise InvalidTrainingDataError(
            "epochs, batch_size and learning_rate must be positive, got "
            f"{epochs}, {batch_size}, {learning_rate}"
        )
    steps = epochs * -(-len(graphs) // batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    # A one-cycle schedule of a single step has no way down.
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, max(steps, 2))
    lengths = torch.tensor([len(graph.order) for graph in graphs])
    losses: list[float] = []
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout supports no other generator
        generator = torch.Generator().manual_seed(seed)
        for epoch in range(1, epochs + 1):
            total = 0.0
            for rows in _batches(lengths, query_indices, batch_size, generator):
                predicted = model(collate([graphs[index] for index in rows.tolist()]))
                errors = huber_per_sample(predicted, targets[rows])
                if query_indices is not None:
                    errors = errors + huber_within(predicted, targets[rows], query_indices[rows])
                total += _step(model, optimizer, errors * importance[rows])
                schedule.step()
            losses.append(total / len(graphs))
            if on_progress is not None:
                on_progress(epoch, losses[-1])
    model.eval()
    return FitReport(steps, tuple(losses))


def predict(model: GGFN, graphs: Sequence[Features], batch_size: int = 256) -> NDArray[np.float64]:
    """Return natural log of the predicted run times in seconds [plans], without dropout.

    The model stays in the mode it was in.
    """
    order = sorted(range(len(graphs)), key=lambda index: len(graphs[index].order))
    predicted = np.empty(len(graphs))
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = collate([graphs[index] for index in rows])
                predicted[rows] = model.predict_log_seconds(batch).numpy()
    finally:
        model.train(training)
    # Again, because float32 rounds the bounds.
    return np.clip(predicted, LOWEST, HIGHEST)


def _step(model: GGFN, optimizer: torch.optim.Optimizer, losses: Tensor) -> float:
    """Return one optimizer step on the mean of `losses`. Returns their sum."""
    total = float(losses.detach().sum())
    if not abs(total) < float("inf"):
        raise TrainingDivergedError(f"the loss of a batch of {len(losses)} plans is {total}")
    optimizer.zero_grad()
    losses.mean().backward()  # type: ignore[no-untyped-call]
    clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return total


def _batches(
    lengths: Tensor, query_numbers: Tensor | None, batch_size: int, generator: torch.Generator
) -> list[Tensor]:
    """Return every sample once, in random batches of plans of similar length.

    Shuffled, cut into buckets of several batches, sorted by length inside a bucket.
    """
    shuffled = torch.randperm(len(lengths), generator=generator)
    if query_numbers is not None:
        shuffled = _together(shuffled, query_numbers, generator)
    batches: list[Tensor] = []
    for bucket in torch.split(shuffled, batch_size * _BUCKET_BATCHES):
        by_length = bucket[torch.argsort(lengths[bucket], stable=True)]
        batches.extend(torch.split(by_length, batch_size))
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[index] for index in order]


def _together(shuffled: Tensor, query_numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Return the samples in random order with few plans of one query next to each other."""
    by_query = shuffled[torch.argsort(query_numbers[shuffled], stable=True)]
    _, sizes = torch.unique_consecutive(query_numbers[by_query], return_counts=True)
    places = torch.cat([torch.arange(size) for size in sizes.tolist()])
    handful = torch.cumsum(places % _TOGETHER == 0, 0) - 1
    order = torch.randperm(int(handful[-1]) + 1, generator=generator)
    return by_query[torch.argsort(order[handful], stable=True)]


def _checked(
    graphs: Sequence[Features],
    log_seconds: NDArray[np.floating],
    weights: NDArray[np.floating] | None,
) -> tuple[Tensor, Tensor]:
    """Standardised targets and weights of mean 1."""
    count = len(graphs)
    importance = np.ones(count) if weights is None else weights
    if count == 0 or log_seconds.shape != (count,) or importance.shape != (count,):
        raise InvalidTrainingDataError(
            f"{count} plans, {log_seconds.shape} labels and {importance.shape} weights "
            "do not make a training set"
        )
    if not np.isfinite(log_seconds).all():
        raise InvalidTrainingDataError("labels must be finite")
    if not (np.isfinite(importance).all() and importance.min() >= 0 and importance.sum() > 0):
        raise InvalidTrainingDataError("weights must be finite, not negative and not all zero")
    targets = standardise(torch.tensor(log_seconds, dtype=torch.float32))
    return targets, torch.tensor(importance / importance.mean(), dtype=torch.float32)
