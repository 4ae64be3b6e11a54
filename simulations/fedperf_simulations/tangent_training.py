"""Organizations that train a model in private steps at its tangent, in one process.

The coordinator's question and step and the clients' vectors are the product's. Two things
differ: features are computed for many plans at once, which moves last digits, and noise is
seeded, so that it can be repeated.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fedperf_client.privacy.tangent_update import (
    WorkloadFeatures,
    noiseless_sum,
    update_from_sum,
)
from fedperf_server.registry import Arrays
from fedperf_server.round_method import Answer
from fedperf_server.tangent_rounds import TangentRounds, stored_tangent
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.fitting import predict
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.tangent import Tangent
from fedperf_shared.release import ReleaseKind, Slot, SlotKey, TangentParameters, TangentUpdate
from fedperf_shared.tangent_question import DIRECTIONS
from fedperf_simulations.channel import SeededNoise
from fedperf_simulations.new_platform import Measured


def private_steps(
    model: GGFN,
    organizations: Sequence[Measured],
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
    arrays = _arrays(model)
    for number in range(steps):
        slot = Slot(SlotKey(ReleaseKind.MODEL_UPDATE, 0, number), parameters)
        question = rounds.question(arrays, steps_made=number)
        tangent = stored_tangent(model, rounds.anchors, question)
        answers = [
            Answer(_answer(tangent, model, each, question.clip, slot.key, parameters, noise), slot)
            for each in organizations
        ]
        arrays = list(rounds.next(arrays, answers, question))
        model = model_from_arrays(dict(zip(ARRAY_SHAPES, arrays, strict=True)))
    return model


def _arrays(model: GGFN) -> Arrays:
    state = model.state_dict()
    return [state[name].numpy() for name in ARRAY_SHAPES]


def _answer(
    tangent: Tangent,
    model: GGFN,
    measured: Measured,
    clip: float,
    slot: SlotKey,
    parameters: TangentParameters,
    noise: SeededNoise,
) -> TangentUpdate:
    """What one organization releases at the tangent; only this leaves it."""
    predicted = standardise(torch.from_numpy(predict(model, measured.graphs))).numpy()
    residuals = standardise(torch.from_numpy(measured.log_seconds)).numpy() - predicted
    features = np.zeros((len(measured), DIRECTIONS))
    features[:, : len(tangent.lengths)] = tangent.features(model, measured.graphs)
    workloads = [
        WorkloadFeatures(features[place, None], residuals[place, None])
        for place in range(len(measured))
    ]
    total = noiseless_sum(workloads, clip)
    return update_from_sum(total, noise, slot=slot, parameters=parameters, base_version=1)
