"""The model as a linear one in few directions of its weights, chosen on public plans.

Near its weights the model is f(x) + J(x) w in their change w, J(x) the gradient of its
output. A `Tangent` keeps a few directions of w: the principal ones of the gradients at
public *anchor* plans, which need no run time, stretched so that anchors feel each of them
about alike. What a plan feels of a direction is its *feature*; whoever knows model and
anchors can compute it, and nothing of anybody's data is in the directions.

Few directions are what makes a private step worth having: noise in 615,809 weights drowns what
noise in a few dozen directions leaves whole. Stretching spends the bound on a workload's vector on
all of them instead of on the level alone. (Public subspaces: Zhou et al. 2021, "Bypassing the
ambient dimension"; Yu et al. 2021, gradient embedding.)

The recurrent layers stay as they are: four fifths of the weights, and no better for it.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.gradients.plan_gradients import Network, sample_gradients
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.workflow.features import Features

Floats = NDArray[np.float64]

TANGENT_LAYERS = ("attention.", "dense.")
"""Prefixes of the parameters that a step changes."""

STRETCH_RIDGE = 1e-3
"""Directions that anchors feel less than this share of the strongest are not stretched more."""

_BLOCK = 64
"""Plans whose gradients are in memory at once, half a megabyte each."""

_MANY = 512
"""Plans whose gradients are in memory at once where speed counts."""

_LEAST_SHARE = 1e-6
"""Directions felt less than this, relative to the strongest, are rounding errors."""


Gradients = Callable[[GGFN, Sequence[Features]], Tensor]
"""Gradients of the model at anchors, [anchors, weights], as `gradients_at` takes them."""


class InvalidLinearizationError(InvalidInputError):
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

    def features(self, model: GGFN, graphs: Sequence[Features]) -> Floats:
        """Each plan's change of output for a step of 1 per direction, float64 [plans, directions].

        In units of the standardised output (`ggfn.standardise`) for a step of 1; last digits as
        `plan_gradients` says, so not for a sum whose sensitivity is promised: that takes
        `directional_derivatives`.
        """
        names, found = tangent_names(model), np.zeros((len(graphs), len(self.lengths)))
        for first in range(0, len(graphs), _MANY):
            some = slice(first, first + _MANY)
            _, gradients = sample_gradients(model, graphs[some], names)
            found[some] = (gradients @ self.directions).double().numpy()
        return found

    def stepped(self, model: GGFN, step: Floats) -> GGFN:
        """A copy of `model` after the step [directions]; dropout is off.

        Raises:
            InvalidTangentError: the step is of another length or not finite.
        """
        if step.shape != self.lengths.shape or not np.all(np.isfinite(step)):
            raise InvalidLinearizationError(
                f"a step has {len(self.lengths)} finite numbers, got the shape {step.shape}"
            )
        moved = copy.deepcopy(model).eval()
        change = self.directions @ torch.from_numpy(step).to(self.directions.dtype)
        parameters = [moved.get_parameter(name) for name in tangent_names(moved)]
        parts = torch.split(change, [each.numel() for each in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.add_(part.view_as(parameter))
        return moved


def gradients_at(model: GGFN, anchors: Sequence[Features]) -> Tensor:
    """The gradient at every anchor, [anchors, weights], with the bits of `directions_of`.

    Raises:
        InvalidTangentError: no anchors, or a gradient that is not finite.
    """
    if not anchors:
        raise InvalidLinearizationError("a tangent needs anchor plans")
    gradients = torch.empty(len(anchors), _weights(model))
    for first in range(0, len(anchors), _BLOCK):
        some = slice(first, first + _BLOCK)
        _, gradients[some] = sample_gradients(model, anchors[some], tangent_names(model))
    if not all(map(math.isfinite, torch.stack(torch.aminmax(gradients)).tolist())):
        raise InvalidLinearizationError("the model's gradient at an anchor plan is not finite")
    return gradients


def coefficients_at(
    model: GGFN,
    anchors: Sequence[Features],
    *,
    directions: int = DIRECTIONS,
    gradients: Gradients = gradients_at,
) -> NDArray[np.float32]:
    """Coefficients that make directions of the anchors' gradients, [anchors, at most so many].

    A function of its arguments alone, up to the last digits of a decomposition. Errors as
    `gradients_at`.
    """
    return _coefficients(gradients(model, anchors), directions).numpy()


def tangent_of(
    model: GGFN,
    anchors: Sequence[Features],
    coefficients: NDArray[np.float32],
    *,
    gradients: Gradients = gradients_at,
) -> Tangent:
    """With coefficients of which no column is zero; errors as `gradients_at`."""
    return _tangent(gradients(model, anchors), coefficients)


def directions_of(
    model: GGFN,
    anchors: Sequence[Features],
    coefficients: NDArray[np.float32],
    *,
    gradients: Tensor | None = None,
) -> Tensor:
    """The directions alone, [weights, directions], in little memory, whatever they are.

    Where the anchors' `gradients_at` the model are at hand, these are not taken again.
    """
    products = torch.zeros(_weights(model), coefficients.shape[1])
    for first in range(0, len(anchors), _BLOCK):
        some = slice(first, first + _BLOCK)
        if gradients is None:
            _, taken = sample_gradients(model, anchors[some], tangent_names(model))
        else:
            taken = gradients[some]
        products += taken.T @ torch.from_numpy(coefficients[some])
    return products


def directional_derivatives(
    model: GGFN, graphs: Sequence[Features], directions: Tensor
) -> tuple[Floats, Floats]:
    """The standardised output [plans] and features [plans, directions] of each plan.

    Every plan's gradient is taken apart and every block has the same shape, so that what is
    found for a plan does not depend on how many others there are.
    """
    names, (weights, width) = tangent_names(model), directions.shape
    outputs, features = np.zeros(len(graphs)), np.zeros((len(graphs), width))
    block, network = torch.zeros(_BLOCK, weights), Network(model)
    for first in range(0, len(graphs), _BLOCK):
        some = graphs[first : first + _BLOCK]
        found, block[: len(some)] = network.sample_gradients(some, names, apart=True)
        outputs[first : first + len(some)] = found.double().numpy()
        products = block @ directions
        features[first : first + len(some)] = products[: len(some)].double().numpy()
    return outputs, features


def tangent_names(model: GGFN) -> list[str]:
    """The parameters that a step changes, in the order of the architecture."""
    return [name for name, _ in model.named_parameters() if name.startswith(TANGENT_LAYERS)]


def _weights(model: GGFN) -> int:
    return sum(model.get_parameter(name).numel() for name in tangent_names(model))


def _tangent(gradients: Tensor, coefficients: NDArray[np.float32]) -> Tangent:
    directions = gradients.T @ torch.from_numpy(coefficients)
    lengths = 1 / torch.linalg.vector_norm(directions.double(), dim=0)
    return Tangent(directions, lengths.numpy(), (gradients @ directions).double().numpy())


def _coefficients(gradients: Tensor, directions: int) -> Tensor:
    """Return the stretched principal directions.

    With J J' = U L U' over the anchors, the directions are J' U L^-1/2 (orthonormal), each
    times (L / anchors + ridge)^-1/2, so that its feature has a mean square of 1 at most.
    """
    strengths, vectors = torch.linalg.eigh((gradients @ gradients.T).double())
    strengths, vectors = strengths.flip(0), vectors.flip(1)
    rank = int((strengths > _LEAST_SHARE * strengths[0]).sum())
    kept = min(directions, rank)
    strengths, vectors = strengths[:kept], vectors[:, :kept]
    mean = strengths / len(gradients)
    stretch = (mean + STRETCH_RIDGE * mean[0]).rsqrt()
    coefficients: Tensor = vectors * (stretch / strengths.sqrt())
    return coefficients.float()
