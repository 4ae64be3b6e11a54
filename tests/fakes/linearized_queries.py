"""Linear queries of linearized rounds, and a small set of public plans for them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model import linearization
from fedperf_shared.model.architecture import Weights, named_arrays, standardise, weights_of
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.linearization import Tangent
from fedperf_shared.model.public_plans import (
    anchors_of,
    load_public_plans,
    save_public_plans,
)
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.workflow.features import Features
from fedperf_simulations.model.ggfn import GGFN, state_to_arrays
from tests.unit.client.prediction.synthetic import draw_questions, true_log_seconds

PLANS = 6


def few_plans(count: int = PLANS) -> tuple[MeasuredPlan, ...]:
    questions = draw_questions(np.random.default_rng(70), count)
    return tuple(
        MeasuredPlan(each.plan, each.cluster, float(seconds))
        for each, seconds in zip(questions, true_log_seconds(questions), strict=True)
    )


def to_weights(model: GGFN) -> Weights:
    return weights_of(state_to_arrays(model))


def standardised_outputs(model: Weights, plans: Sequence[Features]) -> NDArray[np.float64]:
    return standardise(GgfnArrays.from_arrays(named_arrays(model)).log_seconds(plans))


def tangent_at(
    model: Weights, anchors: Sequence[Features], *, directions: int = DIRECTIONS
) -> Tangent:
    """Return the linearization that a query about these anchor plans would use."""
    gradients = linearization.anchor_gradients(model, anchors)
    coefficients = linearization.principal_coefficients(gradients, directions=directions)
    return linearization.Tangent.build(gradients, coefficients)


def few_anchors() -> tuple[PlanOnCluster, ...]:
    return anchors_of(few_plans())


ANCHORS = len(few_anchors())


def install_plans(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fedperf load the small set of plans instead of those that ship with it."""
    path = directory / "public_plans.binpb"
    save_public_plans(few_plans(), path)
    monkeypatch.setattr(load_public_plans, "__defaults__", (path,))


def make_linearized_query(
    anchors: int = ANCHORS, *, clip: float = 0.5, scale: float = 1.0, seed: int = 0
) -> LinearizedQuery:
    """Return a query with random directions."""
    drawn = scale * np.random.default_rng(seed).standard_normal((anchors, DIRECTIONS))
    return LinearizedQuery(clip, drawn.astype(np.float32))
