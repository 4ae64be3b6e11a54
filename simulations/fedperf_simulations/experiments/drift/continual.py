"""Learning of a sequence segment by segment, and the errors on every segment after each.

Each seed has its own split of every segment into training and test rows, its own untrained
model and its own draws; all methods share the split and the untrained model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_simulations.baselines.batched_mlp import SeedModels, fit
from fedperf_simulations.data.public_table import Columns, Floats, PublicTable
from fedperf_simulations.experiments.drift.rehearsal_methods import (
    ROWS,
    ClosedSegment,
    Records,
    RehearsalMethod,
    RowSource,
    Teacher,
)
from fedperf_simulations.experiments.drift.sequences import DriftSequence, Segment

TRAINING_SHARE = 0.7
STEPS = 400
"""Steps per segment of any size."""
DP_STEPS = 100
"""The same where training is private: fewer steps of more rows, for less noise."""

MAE, MAPE, Q50 = "MAE", "MAPE", "q50"


@dataclass(frozen=True, slots=True, eq=False)
class SegmentSplit:
    """One segment for one seed.

    Attributes:
        table: training rows in random order.
        training: the same for the model.
        test: rows to judge by.
    """

    table: PublicTable
    training: Records
    test: Records

    @classmethod
    def of(cls, segment: Segment, columns: Columns, rng: np.random.Generator) -> "SegmentSplit":
        """Return a random part to train on, the rest to judge by."""
        order = rng.permutation(len(segment.table))
        cut = int(TRAINING_SHARE * len(order))
        records = Records(
            columns.encoded(segment.table).astype(np.float32), segment.targets.astype(np.float32)
        )
        training, test = (
            Records(records.inputs[part], records.targets[part])
            for part in (order[:cut], order[cut:])
        )
        return cls(segment.table.at(order[:cut]), training, test)


@dataclass(frozen=True, slots=True, eq=False)
class ReplicatedSequence:
    """A sequence, partitioned once per seed.

    Attributes:
        drift: the sequence.
        splits: by segment and seed.
        seeds: what draws follow from, one list of numbers per seed.
        steps: per segment.
        dp_steps: per segment where training is private.
    """

    drift: DriftSequence
    splits: Sequence[Sequence[SegmentSplit]]
    seeds: Sequence[Sequence[int]]
    steps: int = STEPS
    dp_steps: int = DP_STEPS

    @classmethod
    def of(
        cls,
        drift: DriftSequence,
        seeds: Sequence[Sequence[int]],
        *,
        steps: int = STEPS,
        dp_steps: int = DP_STEPS,
    ) -> "ReplicatedSequence":
        """Dealt by the seeds."""
        splits = [
            [
                SegmentSplit.of(segment, drift.columns, np.random.default_rng([*seed, 0, place]))
                for seed in seeds
            ]
            for place, segment in enumerate(drift.segments)
        ]
        return cls(drift, splits, seeds, steps, dp_steps)

    @property
    def training_rows(self) -> int:
        """Training rows of all segments together, for one seed."""
        return sum(len(segment[0].training) for segment in self.splits)

    def generators(self, *purpose: int) -> list[np.random.Generator]:
        """Yield one per seed, for one purpose."""
        return [np.random.default_rng([*seed, *purpose]) for seed in self.seeds]

    def untrained(self) -> SeedModels:
        """Return the untrained models with which every method begins."""
        return SeedModels.draw(self.drift.columns.inputs, self.generators(1))

    def errors(self, models: SeedModels) -> dict[str, Floats]:
        """Errors of the models on every segment's test rows, [seeds, segments] each."""
        segment_errors = [self._segment_errors(models, segment) for segment in self.splits]
        return {
            name: np.stack([each[name] for each in segment_errors], axis=1)
            for name in segment_errors[0]
        }

    def _segment_errors(
        self, models: SeedModels, segment: Sequence[SegmentSplit]
    ) -> dict[str, Floats]:
        predictions = models.predictions([each.test.inputs for each in segment])
        truth = np.stack([each.test.targets for each in segment])
        off = self.drift.unit * (np.stack(predictions) - truth).astype(np.float64)
        return {
            MAE: np.abs(off).mean(axis=1),
            MAPE: 100 * np.abs(np.expm1(off)).mean(axis=1),
            Q50: np.exp(np.median(np.abs(off), axis=1)),
        }


def learn(
    course: ReplicatedSequence, method: RehearsalMethod, *, ewc: float | None = None
) -> dict[str, Floats]:
    """Errors by metric, [seeds, after segment, on segment].

    Args:
        course: to learn.
        method: of not forgetting.
        ewc: weight of additional elastic weight consolidation, None for none.
    """
    models, errors = course.untrained(), []
    stored: list[list[Sequence[Records]]] = [[] for _ in course.seeds]
    anchors: list[Anchor] = []
    for place, segment in enumerate(course.splits):
        if not (method.is_frozen and place):
            inputs, targets = training_plans(course, method, place, models, stored)
            penalty = partial(_pull, anchors, ewc) if ewc is not None else None
            models = fit(models, inputs, targets, penalty=penalty)
        errors.append(course.errors(models))
        close(course, method, place, models, stored)
        if ewc is not None:
            anchors.append(Anchor.of(models, segment))
    return over_time(errors)


def training_plans(
    course: ReplicatedSequence,
    method: RehearsalMethod,
    place: int,
    models: SeedModels,
    stored: Sequence[Sequence[Sequence[Records]]],
) -> tuple[Tensor, Tensor]:
    """The rows of all steps of a segment, [seeds, steps, rows, inputs] and [seeds, steps, rows].

    Args:
        course: that is learned.
        method: of not forgetting.
        place: of the segment.
        models: before the segment: the teachers.
        stored: of the earlier segments, by seed.
    """
    sampled_plans = []
    for seed, (split, rng) in enumerate(
        zip(course.splits[place], course.generators(3, place), strict=True)
    ):
        sources: Sequence[RowSource] = [RowSource([split.training], ROWS)]
        if place:
            sources = method.sources(stored[seed], split.training, teacher(models, seed))
        sampled_plans.append([each.draw(course.steps, rng) for each in sources])
    inputs = [[by_step(each.inputs, course.steps) for each in of_seed] for of_seed in sampled_plans]
    targets = [
        [by_step(each.targets, course.steps) for each in of_seed] for of_seed in sampled_plans
    ]
    return _stacked(inputs), _stacked(targets)


def close(
    course: ReplicatedSequence,
    method: RehearsalMethod,
    place: int,
    models: SeedModels,
    stored: Sequence[list[Sequence[Records]]],
) -> None:
    """Keep of a segment what the method keeps. Nothing else of it is looked at again."""
    for seed, (split, rng) in enumerate(
        zip(course.splits[place], course.generators(2, place), strict=True)
    ):
        closed = ClosedSegment(split.table, split.training, teacher(models, seed), rng)
        stored[seed].append(method.keep(closed))


def teacher(models: SeedModels, seed: int) -> Teacher:
    """Return the model of one seed as it is now."""
    alone = models.of_seed(seed)
    return lambda inputs: alone.predictions([inputs])[0]


def over_time(errors: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Errors stacked over time: [seeds, on segment] each to [seeds, after segment, on segment]."""
    return {name: np.stack([each[name] for each in errors], axis=1) for name in errors[0]}


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """The parameters after a segment, and the penalty for moving each.

    Kirkpatrick et al., PNAS 2017, with the mean square of each row's gradient.
    """

    parameters: tuple[Tensor, ...]
    stiffness: tuple[Tensor, ...]

    @classmethod
    def of(cls, models: SeedModels, segment: Sequence[SegmentSplit]) -> "Anchor":
        """Return the anchor after a segment, from all of its training rows."""
        inputs = torch.from_numpy(np.stack([each.training.inputs for each in segment]))
        targets = torch.from_numpy(np.stack([each.training.targets for each in segment]))
        made = models.layers(inputs)
        gradients = models.back(made, 2 * (made[-1].squeeze(-1) - targets))
        rows = inputs.shape[1]
        weights = [
            torch.bmm(a.square().mT, d.square()) / rows
            for a, d in zip(made[:-1], gradients, strict=True)
        ]
        biases = [d.square().mean(dim=1, keepdim=True) for d in gradients]
        return cls(models.parameters, (*weights, *biases))


def _pull(anchors: Sequence[Anchor], weight: float, models: SeedModels) -> Tensor:
    """Return the penalty of elastic weight consolidation, summed over seeds."""
    pulls = [
        (stiff * (now - then).square()).sum()
        for anchor in anchors
        for stiff, now, then in zip(
            anchor.stiffness, models.parameters, anchor.parameters, strict=True
        )
    ]
    return weight * sum(pulls, torch.zeros(()))


def by_step(values: NDArray[np.float32], steps: int) -> Tensor:
    """Rows of all steps as [steps, rows, ...]."""
    return torch.from_numpy(values.reshape(steps, -1, *values.shape[1:]))


def _stacked(parts: Sequence[Sequence[Tensor]]) -> Tensor:
    """Concatenate the rows of a step. Seeds are the first axis."""
    return torch.stack([torch.cat(list(of_seed), dim=1) for of_seed in parts])
