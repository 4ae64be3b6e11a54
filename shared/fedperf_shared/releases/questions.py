"""A coordinator's questions: over the cells in a directed slot, at the tangent in a model round.

A question follows from earlier releases and public things alone, so it is public and the same for
everybody. A question that a node could not answer safely cannot be made: what an answer's size
depends on is a constant, and every number is finite and within public bounds.

The points of a `CellQuestion` are the cells of `basis`. A workload answers with the mean over its
executions of directions[:, cell] * clip(r - center[cell], clips[cell]), r its log residual against
the reference model. The norm rule of `directions` keeps that within 1 whatever r is. A question
that was made for another basis is refused.

The directions of a `TangentQuestion` are J' @ coefficients. J holds the gradients of the round's
base model at the public plans that ship with fedperf (`model.tangent`). So a question is some fifty
thousand numbers for directions of 121,217 weights each. An organization answers with the sum over
its workloads of unit feature * clip(residual) / clip. The bound of that does not rest on the
question at all: whatever the directions are, only the direction of a plan's features counts.
Directions that are not used are zeros.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.directions import Design
from fedperf_shared.releases.release import ReleaseKind, SlotKey

QUESTION_DIRECTIONS = 16
"""Of a question over the cells: numbers in an answer; more than some twelve add nothing at
epsilon 1."""

MAX_CENTER = 20.0
"""Bound on the center, log seconds: a reference model that is off by 5 * 10^8 says nothing."""

MIN_CELL_CLIP, MAX_CELL_CLIP = 1e-2, 1e2
"""Bounds on a cell's clip, log seconds; they also keep the norm rule away from under- and
overflow."""

DIRECTIONS = 256
"""Of a tangent; some are zeros where the anchors do not tell so many apart."""

MAX_ANCHORS = 10_000
"""More plans than fedperf ships with; how many it ships is checked where they are read."""

MAX_COEFFICIENT = 1e9
"""Bound on a coefficient: far from the overflow of single precision, whatever the model."""

MIN_TANGENT_CLIP, MAX_TANGENT_CLIP = 1e-3, 1e2
"""Bounds on the clip at a tangent, in units of the standardised output."""


class InvalidQuestionError(InvalidInputError):
    """A question over the cells may not be answered."""


class InvalidTangentQuestionError(InvalidInputError):
    """A question at the tangent may not be answered."""


@dataclass(frozen=True, slots=True, eq=False)
class CellQuestion:
    """The question of one directed slot.

    Attributes:
        slot: which slot it is for.
        version: the coordinator's number of the question, above 0; answers name it.
        basis_version: version of `basis` whose cells are the points.
        reference_version: model version that residuals are taken against.
        center: what is subtracted from a residual in each cell, float64 [CELLS].
        design: QUESTION_DIRECTIONS directions over CELLS points, no offsets.
    """

    slot: SlotKey
    version: int
    basis_version: int
    reference_version: int
    center: NDArray[np.float64]
    design: Design

    def __post_init__(self) -> None:
        if self.slot.kind is not ReleaseKind.RESIDUAL_REPORT or not self.version > 0:
            raise InvalidQuestionError(f"no question {self.version} is asked for {self.slot}")
        if self.basis_version != BASIS_VERSION:
            raise InvalidQuestionError(
                f"a question over basis {self.basis_version}, this is basis {BASIS_VERSION}"
            )
        asked = (self.design.points, len(self.design.directions), len(self.design.offsets))
        if asked != (CELLS, QUESTION_DIRECTIONS, 0):
            raise InvalidQuestionError(
                f"a question has {CELLS} cells, {QUESTION_DIRECTIONS} directions and no "
                f"offsets, this one {asked}"
            )
        if self.center.shape != (CELLS,) or not np.all(np.abs(self.center) <= MAX_CENTER):
            raise InvalidQuestionError(f"a center is not {CELLS} numbers within {MAX_CENTER:g}")
        clips = self.design.clips
        if not (np.all(clips >= MIN_CELL_CLIP) and np.all(clips <= MAX_CELL_CLIP)):
            raise InvalidQuestionError(
                f"a clip is not within {MIN_CELL_CLIP:g} and {MAX_CELL_CLIP:g}"
            )


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
        if not MIN_TANGENT_CLIP <= self.clip <= MAX_TANGENT_CLIP:
            raise InvalidTangentQuestionError(
                f"a clip is within {MIN_TANGENT_CLIP:g} and {MAX_TANGENT_CLIP:g}, got {self.clip!r}"
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
