"""Tests of shared computation: its results are bitwise equal to those of each participant."""

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
from tests.fakes.linearized_queries import to_weights
from tests.fakes.plans import ONE_CORE, diamond


def graphs() -> list[Features]:
    return [featurize(diamond(Platform.DUCKDB, rows), ONE_CORE) for rows in (1e3, 1e4, 1e5)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of anchors of each gradient computation."""
    found: list[int] = []

    def counted(model: Weights, anchors: Sequence[Features]) -> Tensor:
        found.append(len(anchors))
        return anchor_gradients(model, anchors)

    monkeypatch.setattr(histories, "anchor_gradients", counted)
    return found


@pytest.mark.slow
def test_shared_gradients_are_computed_once_per_round_with_identical_bits(
    taken: list[int],
) -> None:
    model, shared = to_weights(GGFN(seed=1)), SharedGradients()
    alone, together = (
        LinearizedAvg(graphs(), gradients=each) for each in (anchor_gradients, shared)
    )
    question = together.design_query(model, steps_made=0)
    assert (question.coefficients == alone.design_query(model, steps_made=0).coefficients).all()
    at_home = graphs()  # the same plans, held by a member
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


def test_shared_gradients_are_recomputed_for_another_model_or_other_plans(taken: list[int]) -> None:
    model, shared = to_weights(GGFN(seed=1)), SharedGradients()
    first = shared(model, graphs())
    assert torch.equal(shared(model, graphs()[:2]), anchor_gradients(model, graphs()[:2]))
    assert torch.equal(shared(model, graphs()), first)
    model[list(ARRAY_SHAPES).index("recurrent.weight_ih_l0")] *= 1.5
    assert torch.equal(shared(model, graphs()), anchor_gradients(model, graphs()))
    assert not torch.equal(shared(model, graphs()), first)
    assert taken == [3, 2, 3, 3]
