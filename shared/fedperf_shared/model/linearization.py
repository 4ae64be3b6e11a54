"""The model as a linear one in few directions of its weights, chosen on public plans.

Near its weights, the model is f(x) + J(x) w in their change w, where J(x) is the gradient of its
output. A `Tangent` holds a few directions of w: the principal ones of the gradients at public
*anchor* plans, which need no run time, stretched so that anchors respond to each of them about
equally. The response of a plan to a direction is its *feature*. It follows from the model and the
anchors, so the directions contain nothing about private data.

A private step needs few directions: noise in 615,809 weights drowns what noise in a few dozen
directions leaves intact. Stretching spends the bound on a workload's vector on all of them instead
of on the level alone. (Public subspaces: Zhou et al. 2021, "Bypassing the ambient dimension"; Yu et
al. 2021, gradient embedding.)

The recurrent layers are constant: they are four fifths of the weights and improve nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights
from fedperf_shared.model.plan_gradients import (
    LINEARIZED_ARRAYS,
    LINEARIZED_WEIGHTS,
    plan_gradients,
)
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.workflow.features import Features

Floats = NDArray[np.float64]

# Directions whose strength is below this share of the strongest are not stretched further.
STRETCH_RIDGE = 1e-3

_ENDS = np.cumsum([math.prod(ARRAY_SHAPES[name]) for name in LINEARIZED_ARRAYS])[:-1]

_BLOCK = 64  # plans whose gradients are in memory at once, half a megabyte each
# Directions below this strength, relative to the strongest, are rounding errors.
_MIN_STRENGTH = 1e-6

# Computes the model's gradients at anchors, [anchors, weights], as `anchor_gradients` does.
Gradients = Callable[[Weights, Sequence[Features]], Tensor]


class InvalidLinearizationError(InvalidInputError):
    """Raised without anchors, and for a model or step that is not finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Tangent:
    """Directions in which a model may step."""

    # Change of all linearized weights for a step of 1, float32 [weights, directions].
    directions: Tensor
    lengths: Floats  # length of a step that changes the weights by 1, float64 [directions]
    anchors: Floats  # features of the anchor plans, float64 [anchors, directions]

    @classmethod
    def build(cls, gradients: Tensor, coefficients: NDArray[np.float32]) -> "Tangent":
        """Combine gradients at the anchors by coefficients of which no column is zero."""
        directions = gradients.T @ torch.from_numpy(coefficients)
        lengths = 1 / torch.linalg.vector_norm(directions.double(), dim=0)
        return cls(directions, lengths.numpy(), (gradients @ directions).double().numpy())

    def features(self, model: Weights, plans: Sequence[Features]) -> Floats:
        """Return each plan's change of the standardised output for a step of 1 per direction.

        The result is float64 [plans, directions].
        """
        return directional_derivatives(model, plans, self.directions)[1]

    def step(self, model: Weights, step: Floats) -> Weights:
        """Return the model after the step [directions].

        Raises:
            InvalidLinearizationError: the step has another length or is not finite.
        """
        if step.shape != self.lengths.shape or not np.all(np.isfinite(step)):
            raise InvalidLinearizationError(
                f"a step has {len(self.lengths)} finite numbers, got the shape {step.shape}"
            )
        change = self.directions @ torch.from_numpy(step).to(self.directions.dtype)
        parts = iter(np.split(change.numpy(), _ENDS))
        return [
            array + next(parts).reshape(shape) if name in LINEARIZED_ARRAYS else array
            for (name, shape), array in zip(ARRAY_SHAPES.items(), model, strict=True)
        ]


def anchor_gradients(model: Weights, anchors: Sequence[Features]) -> Tensor:
    """Return the gradient at every anchor, [anchors, weights].

    Raises:
        InvalidLinearizationError: there are no anchors, or a gradient is not finite.
    """
    if not anchors:
        raise InvalidLinearizationError("a tangent needs anchor plans")
    _, gradients = plan_gradients(model, anchors)
    if not all(map(math.isfinite, torch.stack(torch.aminmax(gradients)).tolist())):
        raise InvalidLinearizationError("the model's gradient at an anchor plan is not finite")
    return gradients


def principal_coefficients(
    gradients: Tensor, *, directions: int = DIRECTIONS
) -> NDArray[np.float32]:
    """Return coefficients of the stretched principal directions, [anchors, at most `directions`].

    With J J' = U L U' over the anchors, the directions are J' U L^-1/2 (orthonormal), each
    times (L / anchors + ridge)^-1/2, so that its feature has a mean square of 1 at most.
    """
    strengths, vectors = torch.linalg.eigh((gradients @ gradients.T).double())
    strengths, vectors = strengths.flip(0), vectors.flip(1)
    rank = int((strengths > _MIN_STRENGTH * strengths[0]).sum())
    count = min(directions, rank)
    strengths, vectors = strengths[:count], vectors[:, :count]
    mean = strengths / len(gradients)
    stretch = (mean + STRETCH_RIDGE * mean[0]).rsqrt()
    coefficients: NDArray[np.float32] = (vectors * (stretch / strengths.sqrt())).float().numpy()
    return coefficients


def combine_gradients(
    model: Weights,
    anchors: Sequence[Features],
    coefficients: NDArray[np.float32],
    *,
    gradients: Tensor | None = None,
) -> Tensor:
    """Return the directions alone, [weights, directions], in little memory.

    Any coefficients are allowed. `gradients` are the model's `anchor_gradients` if available.
    """
    directions = torch.zeros(LINEARIZED_WEIGHTS, coefficients.shape[1])
    for first in range(0, len(anchors), _BLOCK):
        some = slice(first, first + _BLOCK)
        part = plan_gradients(model, anchors[some])[1] if gradients is None else gradients[some]
        directions += part.T @ torch.from_numpy(coefficients[some])
    return directions


def directional_derivatives(
    model: Weights, plans: Sequence[Features], directions: Tensor
) -> tuple[Floats, Floats]:
    """Return the standardised output [plans] and the features [plans, directions] of each plan.

    All blocks have the same shape, so that a plan's features do not depend on the number of plans.
    """
    outputs, features = np.zeros(len(plans)), np.zeros((len(plans), directions.shape[1]))
    block = torch.zeros(_BLOCK, len(directions))
    for first in range(0, len(plans), _BLOCK):
        some = slice(first, min(first + _BLOCK, len(plans)))
        count = some.stop - first
        computed, block[:count] = plan_gradients(model, plans[some])
        outputs[some] = computed.double().numpy()
        features[some] = (block @ directions)[:count].double().numpy()
    return outputs, features
