"""The model as a linear one in few directions of its weights, chosen on public plans.

Near its weights the model is f(x) + J(x) w in their change w, J(x) the gradient of its
output. A `Tangent` keeps a few directions of w: the principal ones of the gradients at
public *anchor* plans, which need no run time, stretched so that anchors feel each of them
about alike. What a plan feels of a direction is its *feature*; whoever knows model and
anchors can compute it, and nothing of anybody's data is in the directions.

Few directions are what makes a private step worth having: noise in 615,809 weights drowns
what noise in a few dozen directions leaves whole, and stretching spends the bound on a
workload's vector on all of them instead of on the level alone (public subspaces: Zhou et
al. 2021, "Bypassing the ambient dimension"; Yu et al. 2021, gradient embedding).

The recurrent layers stay as they are: four fifths of the weights, and no better for it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.batching import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN

Floats = NDArray[np.float64]

DIRECTIONS = 64
"""Of a tangent; there are fewer where the anchors do not tell so many apart."""

TANGENT_LAYERS = ("attention.", "dense.")
"""Prefixes of the parameters that a step changes."""

STRETCH_RIDGE = 1e-3
"""Directions that anchors feel less than this share of the strongest are not stretched more."""

_LEAST_SHARE = 1e-6
"""Directions felt less than this, relative to the strongest, are rounding errors."""


class InvalidTangentError(InvalidInputError):
    """There are no anchors, or a model does not answer them."""


@dataclass(frozen=True, slots=True, eq=False)
class Tangent:
    """Directions in which a model may step.

    Attributes:
        directions: change of all tangent weights for a step of 1, float32 [weights, directions].
        lengths: of a step that changes the weights by 1, float64 [directions].
        anchors: features of the anchor plans, float64 [anchors, directions].
    """

    directions: Tensor
    lengths: Floats
    anchors: Floats

    def features(self, model: GGFN, graphs: Sequence[PlanGraph]) -> Floats:
        """What each plan feels of each direction, float64 [plans, directions].

        In units of the standardised output (`ggfn.standardise`) for a step of 1.
        """
        rows = [(gradient(model, graph) @ self.directions).double().numpy() for graph in graphs]
        return np.stack(rows) if rows else np.zeros((0, len(self.lengths)))

    def stepped(self, model: GGFN, step: Floats) -> GGFN:
        """A copy of `model` after the step [directions]; dropout is off.

        Raises:
            InvalidTangentError: the step is of another length or not finite.
        """
        if step.shape != self.lengths.shape or not np.all(np.isfinite(step)):
            raise InvalidTangentError(
                f"a step has {len(self.lengths)} finite numbers, got the shape {step.shape}"
            )
        moved = copy.deepcopy(model).eval()
        change = self.directions @ torch.from_numpy(step).to(self.directions.dtype)
        parameters = tangent_parameters(moved)
        parts = torch.split(change, [each.numel() for each in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.add_(part.view_as(parameter))
        return moved


def tangent_at(
    model: GGFN, anchors: Sequence[PlanGraph], *, directions: int = DIRECTIONS
) -> Tangent:
    """The tangent of `model` on public plans; a function of its arguments alone.

    With J J' = U L U' over the anchors, the directions are J' U L^-1/2 (orthonormal), each
    times (L / anchors + ridge)^-1/2, so that its feature has a mean square of 1 at most.

    Raises:
        InvalidTangentError: no anchors, or a gradient that is not finite.
    """
    if not anchors:
        raise InvalidTangentError("a tangent needs anchor plans")
    gradients = torch.stack([gradient(model, graph) for graph in anchors])
    if not bool(torch.isfinite(gradients).all()):
        raise InvalidTangentError("the model's gradient at an anchor plan is not finite")
    strengths, vectors = torch.linalg.eigh((gradients @ gradients.T).double())
    strengths, vectors = strengths.flip(0), vectors.flip(1)
    told = int((strengths > _LEAST_SHARE * strengths[0]).sum())
    kept = min(directions, told)
    strengths, vectors = strengths[:kept], vectors[:, :kept]
    felt = strengths / len(anchors)
    stretch = (felt + STRETCH_RIDGE * felt[0]).rsqrt()
    matrix = gradients.T @ (vectors * (stretch / strengths.sqrt())).float()
    features = (vectors * (strengths.sqrt() * stretch)).numpy()
    return Tangent(matrix, (1 / stretch).numpy(), features)


def gradient(model: GGFN, graph: PlanGraph) -> Tensor:
    """Gradient of the standardised output for one plan in all tangent weights, [weights]."""
    model.eval()
    output = model(collate([graph])).sum()
    parts = torch.autograd.grad(output, tangent_parameters(model))
    return torch.cat([part.reshape(-1) for part in parts])


def tangent_parameters(model: GGFN) -> list[nn.Parameter]:
    """The parameters that a step changes, in the order of the architecture."""
    return [
        parameter for name, parameter in model.named_parameters() if name.startswith(TANGENT_LAYERS)
    ]
