"""Organizations that train a model in private steps at its tangent, in one process.

The coordinator's question and step and the clients' vectors are the product's. Two things
differ: features are computed for many plans at once, which moves last digits, and noise is
seeded, so that it can be repeated.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_client.privacy.tangent_update import (
    WorkloadFeatures,
    grid_vector,
    update_from_sum,
)
from fedperf_server.rounds.round_method import AcceptedUpdate
from fedperf_server.rounds.tangent_rounds import TangentRounds
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.tangent import Tangent
from fedperf_shared.releases.questions import DIRECTIONS
from fedperf_shared.releases.release import (
    ReleaseKind,
    Slot,
    SlotKey,
    TangentParameters,
    TangentUpdate,
)
from fedperf_simulations.federation.channel import SeededNoise
from fedperf_simulations.measured_set.new_platform import MeasuredTimes


def private_steps(
    model: GGFN,
    organizations: Sequence[MeasuredTimes],
    rounds: TangentRounds,
    parameters: TangentParameters,
    *,
    steps: int,
    noise: SeededNoise,
) -> GGFN:
    """The model after so many steps; each organization's workloads are in every one.

    Args:
        model: where they start.
        organizations: who adds up its workloads, each with noise of its own.
        rounds: the coordinator's part.
        parameters: of every organization in every step.
        steps: releases of each organization.
        noise: of everybody; independent in every draw.
    """
    for number in range(steps):
        slot = Slot(SlotKey(ReleaseKind.MODEL_UPDATE, 0, number), parameters)
        question, tangent = rounds.asked_at(model, steps_made=number)
        answers = [
            AcceptedUpdate(
                released_at(
                    tangent,
                    model,
                    each,
                    clip=question.clip,
                    slot=slot.key,
                    parameters=parameters,
                    noise=noise,
                ),
                slot,
            )
            for each in organizations
        ]
        model = rounds.stepped(model, tangent, answers, question)
    return model


def released_at(
    tangent: Tangent,
    model: GGFN,
    measured: MeasuredTimes,
    *,
    clip: float,
    slot: SlotKey,
    parameters: TangentParameters,
    noise: SeededNoise,
) -> TangentUpdate:
    """What one organization releases at the tangent; only this leaves it."""
    total = grid_vectors(tangent, model, measured, clip).sum(axis=0)
    return update_from_sum(total, noise, slot=slot, parameters=parameters, base_version=1)


def grid_vectors(
    tangent: Tangent, model: GGFN, measured: MeasuredTimes, clip: float
) -> NDArray[np.int64]:
    """What each workload adds to the sum of whoever has it, int64 [workloads, DIRECTIONS]."""
    found = np.zeros((len(measured), DIRECTIONS), dtype=np.int64)
    if not len(measured):
        return found
    predicted = standardise(torch.from_numpy(predict(model, measured.graphs))).numpy()
    residuals = standardise(torch.from_numpy(measured.log_seconds)).numpy() - predicted
    features = np.zeros((len(measured), DIRECTIONS))
    features[:, : len(tangent.lengths)] = tangent.features(model, measured.graphs)
    for place in range(len(measured)):
        workload = WorkloadFeatures(features[place, None], residuals[place, None])
        found[place] = grid_vector(workload, clip)
    return found
