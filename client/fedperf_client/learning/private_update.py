"""One slot's model update: private training from the weights that were asked for.

The update is the difference of weights, so it says nothing that the noisy gradients
of `privacy.dp_sgd` did not; number of steps, sampling and noise come from the slot.

Rehearsal: rows of earlier epochs are learnt beside own workloads, so that what the model knew is
not forgotten. They follow from releases and are no secret; which of them a step takes, how
many and with what weight are constants, so their gradient needs no noise and costs nothing.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_client.learning.residuals import LabelledGraph, epoch_shares
from fedperf_client.privacy.dp_sgd import Example, Rehearsal, dp_train
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import ARRAY_SHAPES, named_arrays
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.ggfn import standardise
from fedperf_shared.releases.release import TrainingParameters

LEARNING_RATE = 1e-3

REHEARSED_PER_STEP = 64
"""Rows of a step's rehearsal, which together weigh as much as the workloads it is expected to
draw."""


def private_update(
    arrays: Sequence[NDArray[np.float32]],
    labelled: Sequence[LabelledGraph],
    parameters: TrainingParameters,
    noise: NoiseSource,
    *,
    rehearsal: Sequence[SyntheticRow] = (),
) -> tuple[NDArray[np.float32], ...]:
    """Weights after private training minus `arrays`, in the order of the architecture.

    Args:
        arrays: weights to start from.
        labelled: own executions.
        parameters: of the slot, from the schedule.
        noise: of sampling and of the gradient.
        rehearsal: rows of earlier epochs, in any order.

    Raises:
        InvalidModelStateError: `arrays` are not weights of this architecture.
    """
    model = model_from_arrays(named_arrays(arrays))
    trained = dp_train(
        model,
        examples_by_workload(labelled),
        parameters,
        noise,
        learning_rate=LEARNING_RATE,
        rehearsal=rehearsal_of(rehearsal, parameters),
    )
    return tuple(
        trained[name].numpy() - before for name, before in zip(ARRAY_SHAPES, arrays, strict=True)
    )


def rehearsal_of(rows: Sequence[SyntheticRow], parameters: TrainingParameters) -> Rehearsal:
    """The rows dealt into batches, one after the other, as heavy as an expected draw each."""
    targets = standardise(torch.tensor([row.log_seconds for row in rows])).tolist()
    examples = [
        Example(PlanGraph.of(row.plan, row.cluster), target)
        for row, target in zip(rows, targets, strict=True)
    ]
    count = -(-len(examples) // REHEARSED_PER_STEP)
    drawn = parameters.sampling_probability * parameters.nominal_workloads
    # Every batch has rows of all segments, which come one after the other.
    return Rehearsal([examples[first::count] for first in range(count)], drawn / REHEARSED_PER_STEP)


def examples_by_workload(labelled: Sequence[LabelledGraph]) -> list[list[Example]]:
    """The executions of each workload as training examples; its epochs are drawn equally often."""
    members: dict[str, list[LabelledGraph]] = defaultdict(list)
    for each in labelled:
        members[each.workload].append(each)
    return [_examples(each) for each in members.values()]


def _examples(members: Sequence[LabelledGraph]) -> list[Example]:
    targets = standardise(torch.tensor([each.log_seconds for each in members])).tolist()
    shares = epoch_shares(members).tolist()
    return [
        Example(each.graph, target, share)
        for each, target, share in zip(members, targets, shares, strict=True)
    ]
