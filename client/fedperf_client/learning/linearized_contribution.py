"""The sum over own executions at the tangent of the model that the coordinator asks about.

The sum is private input of the update; nothing here leaves. The directions are put together here
from public plans and the question's coefficients, without any decomposition. So every organization
has the same ones.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_client.learning.residuals import LabelledGraph, epoch_shares
from fedperf_client.privacy.linearized_update import WorkloadFeatures, noiseless_sum
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import TARGET_CENTER, TARGET_SCALE
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.linearization import combine_gradients, directional_derivatives
from fedperf_shared.releases.linear_queries import LinearizedQuery


def tangent_sum(
    model: GGFN,
    labelled: Sequence[LabelledGraph],
    question: LinearizedQuery,
    anchors: Sequence[PlanOnCluster],
) -> NDArray[np.int64]:
    """The answer without its noise, int64 [DIRECTIONS]; private, never released.

    Args:
        model: whose tangent it is.
        labelled: own executions.
        question: what is asked.
        anchors: as many as the question is about.
    """
    public = [each.features for each in anchors]
    directions = combine_gradients(model, public, question.coefficients)
    return noiseless_sum(workload_features(model, labelled, directions), question.clip)


def workload_features(
    model: GGFN, labelled: Sequence[LabelledGraph], directions: torch.Tensor
) -> tuple[WorkloadFeatures, ...]:
    """One entry per workload, in no meaningful order; empty where nothing ran."""
    outputs, features = directional_derivatives(
        model, [each.graph for each in labelled], directions
    )
    # As far as a prediction goes, which stays within the public bounds.
    predicted = standardise(torch.from_numpy(outputs) * TARGET_SCALE + TARGET_CENTER)
    measured = standardise(torch.tensor([each.log_seconds for each in labelled]).double())
    residuals = (measured - predicted).numpy()
    members: dict[str, list[int]] = defaultdict(list)
    for position, each in enumerate(labelled):
        members[each.workload].append(position)
    return tuple(
        WorkloadFeatures(
            features[positions],
            residuals[positions],
            epoch_shares([labelled[each] for each in positions]),
        )
        for positions in members.values()
    )
