"""One slot's model update: private training from the weights that were asked for.

The update is the difference of weights, so it says nothing that the noisy gradients
of `privacy.training` did not; number of steps, sampling and noise come from the slot.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_client.learning.residuals import LabelledGraph, epoch_shares
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.privacy.training import Example, dp_train
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.ggfn import standardise
from fedperf_shared.release import TrainingParameters

LEARNING_RATE = 1e-3


def private_update(
    arrays: Sequence[NDArray[np.float32]],
    labelled: Sequence[LabelledGraph],
    parameters: TrainingParameters,
    noise: NoiseSource,
) -> tuple[NDArray[np.float32], ...]:
    """Weights after private training minus `arrays`, in the order of the architecture.

    Args:
        arrays: weights to start from.
        labelled: own executions.
        parameters: of the slot, from the schedule.
        noise: of sampling and of the gradient.

    Raises:
        InvalidModelStateError: `arrays` are not weights of this architecture.
    """
    model = model_from_arrays(dict(zip(ARRAY_SHAPES, arrays, strict=True)))
    trained = dp_train(
        model, examples_by_workload(labelled), parameters, noise, learning_rate=LEARNING_RATE
    )
    return tuple(
        trained[name].numpy() - before for name, before in zip(ARRAY_SHAPES, arrays, strict=True)
    )


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
