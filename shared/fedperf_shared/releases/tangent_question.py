"""What a coordinator asks in a model round at the tangent: directions and a clip.

The directions are J' @ coefficients, J the gradients of the round's base model at the public
plans that ship with fedperf (`model.tangent`); so a question is some fifty thousand numbers
for directions of 121,217 weights each. An organization answers with the sum over its
workloads of unit feature * clip(residual) / clip, whose bound does not rest on the question at
all: whatever the directions are, only the direction of a plan's features counts.

A question that no organization could answer cannot be made: the number of directions is a
constant, so that an answer always has the same size, coefficients and clip are finite and
within public bounds. Directions that are not used are zeros.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError

DIRECTIONS = 256
"""Of a tangent; some are zeros where the anchors do not tell so many apart."""

MAX_ANCHORS = 10_000
"""More plans than fedperf ships with; how many it ships is checked where they are read."""

MAX_COEFFICIENT = 1e9
"""Bound on a coefficient: far from the overflow of single precision, whatever the model."""

MIN_CLIP, MAX_CLIP = 1e-3, 1e2
"""Bounds on the clip, in units of the standardised output."""


class InvalidTangentQuestionError(InvalidInputError):
    """A question is not one that may be answered."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentQuestion:
    """The question of one model round.

    Attributes:
        clip: bound on a residual, in units of the standardised output.
        coefficients: float32 [anchors, DIRECTIONS].
    """

    clip: float
    coefficients: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not MIN_CLIP <= self.clip <= MAX_CLIP:
            raise InvalidTangentQuestionError(
                f"a clip is within {MIN_CLIP:g} and {MAX_CLIP:g}, got {self.clip!r}"
            )
        shape = self.coefficients.shape
        if shape != (self.anchors, DIRECTIONS) or not 0 < self.anchors <= MAX_ANCHORS:
            raise InvalidTangentQuestionError(
                f"coefficients are 1 to {MAX_ANCHORS} anchors by {DIRECTIONS}, these {shape}"
            )
        if not np.all(np.abs(self.coefficients) <= MAX_COEFFICIENT):
            raise InvalidTangentQuestionError(
                f"a coefficient is not a number within {MAX_COEFFICIENT:g}"
            )

    @property
    def anchors(self) -> int:
        """Number of public plans that it is about."""
        return len(self.coefficients)
