"""What is computed once for coordinator and members has the bits that each would compute."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedperf_memory import histories
from fedperf_memory.histories import SharedGradients
from fedperf_server.rounds.linearized_avg import LinearizedAvg, stored_tangent
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights
from fedperf_shared.model.linearization import anchor_gradients, combine_gradients
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.model.ggfn import GGFN
from tests.fakes.plans import ONE_CORE, diamond
from tests.fakes.tangents import to_weights


def graphs() -> list[Features]:
    return [featurize(diamond(Platform.DUCKDB, rows), ONE_CORE) for rows in (1e3, 1e4, 1e5)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many anchors gradients were taken at, call by call."""
    found: list[int] = []

    def counted(model: Weights, anchors: Sequence[Features]) -> Tensor:
        found.append(len(anchors))
        return anchor_gradients(model, anchors)

    monkeypatch.setattr(histories, "anchor_gradients", counted)
    return found


def test_a_round_in_one_process_takes_gradients_once_and_has_the_same_bits(
    taken: list[int],
) -> None:
    model, shared = to_weights(GGFN(seed=1)), SharedGradients()
    alone, together = (
        LinearizedAvg(graphs(), gradients=each) for each in (anchor_gradients, shared)
    )
    question = together.design_query(model, steps_made=0)
    assert (question.coefficients == alone.design_query(model, steps_made=0).coefficients).all()
    at_home = graphs()  # the same plans, in a member's hands
    directions = combine_gradients(
        model, at_home, question.coefficients, gradients=shared(model, at_home)
    )
    assert torch.equal(directions, combine_gradients(model, at_home, question.coefficients))
    step, expected = (
        stored_tangent(model, graphs(), question, gradients=each)
        for each in (shared, anchor_gradients)
    )
    assert torch.equal(step.directions, expected.directions)
    assert (step.anchors == expected.anchors).all()
    assert taken == [3]


def test_another_model_or_other_plans_are_looked_at_anew(taken: list[int]) -> None:
    model, shared = to_weights(GGFN(seed=1)), SharedGradients()
    first = shared(model, graphs())
    assert torch.equal(shared(model, graphs()[:2]), anchor_gradients(model, graphs()[:2]))
    assert torch.equal(shared(model, graphs()), first)
    model[list(ARRAY_SHAPES).index("recurrent.weight_ih_l0")] *= 1.5
    assert torch.equal(shared(model, graphs()), anchor_gradients(model, graphs()))
    assert not torch.equal(shared(model, graphs()), first)
    assert taken == [3, 2, 3, 3]
