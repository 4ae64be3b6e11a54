"""Linearized rounds improve the shared model under noise that hides every workload.

Two organizations of the measured corpus and their coordinator run in one process. `test_demo`
runs the real programs.
"""

import pytest

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions, linearized_sum
from fedperf_client.contributions.mechanisms import noisy
from fedperf_client.release.accountant import epsilon, to_event
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.open_round import AcceptedUpdate
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights, named_arrays
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import (
    LinearizedParameters,
    LinearizedUpdate,
    ReleaseKind,
    Slot,
    SlotKey,
)
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import (
    WorkloadPart,
    one_per_workload,
    organization,
    split,
)
from fedperf_simulations.corpus.pretraining import error_on
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.model.ggfn import model_from_arrays

ROUNDS = 3
PARAMETERS = LinearizedParameters(noise_multiplier=10.0, nominal_workloads=2000.0)

ANCHORS = anchors_of(load_public_plans())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_linearized_rounds_reduce_error_on_public_plans_by_five_percent() -> None:
    plans = load_public_plans()
    before = error_on(model_from_arrays(load_limited_model().arrays), plans)
    after = error_on(model_from_arrays(named_arrays(learnt())), plans)
    assert after <= 0.95 * before


def test_three_linearized_rounds_cost_less_than_epsilon_one() -> None:
    assert epsilon([to_event(PARAMETERS)] * ROUNDS, 1e-5) < 1


def learnt() -> Weights:
    """Return the shared model after all rounds."""
    rounds = LinearizedAvg([featurize(each.plan, each.cluster) for each in ANCHORS])
    noise = SeededNoise([71])
    start = load_limited_model().arrays
    current: Weights = [start[name] for name in ARRAY_SHAPES]
    members = [history(part) for part in (WorkloadPart.ALDER, WorkloadPart.BIRCH)]
    for number in range(ROUNDS):
        key = SlotKey(ReleaseKind.MODEL_UPDATE, number, 0)
        slot = Slot(key, PARAMETERS)
        question = rounds.design_query(current, steps_made=number)
        answers = []
        for each in members:
            total = linearized_sum(current, each, question, ANCHORS)
            update = noisy(total, noise, slot, version=number + 1)
            assert isinstance(update, LinearizedUpdate)
            answers.append(AcceptedUpdate(update, slot))
        for answer in answers:
            rounds.check(answer.update, slot)
        current = list(rounds.next(current, answers, question))
    return current


def history(part: WorkloadPart) -> list[LabelledGraph]:
    """Return one execution of each workload."""
    known = organization(part, split(measured_executions())[part]).history
    return label_executions(one_per_workload(each for each in known if each.is_ok))
