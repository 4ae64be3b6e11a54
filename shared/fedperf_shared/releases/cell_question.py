"""What a coordinator asks in a directed slot: a design over the cells of the public basis.

The points of the design are the cells of `basis`. A workload answers with the mean over
its executions of directions[:, cell] * clip(r - center[cell], clips[cell]), r its log
residual against the reference model; the norm rule of `directions` keeps that within 1
whatever r is. Center, clips and directions follow from earlier releases and public
things, so a question is public and the same for everybody.

A question that a node could not answer safely, or that another basis was made for,
cannot be made: number of cells and directions are constants, so that an answer always has
the same size; center and clips are finite and within public bounds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.directions import Design
from fedperf_shared.releases.release import ReleaseKind, SlotKey

QUESTION_DIRECTIONS = 16
"""Numbers in an answer; more than some twelve add nothing at epsilon 1."""

MAX_CENTER = 20.0
"""Bound on the center, log seconds: a reference model that is off by 5 * 10^8 says nothing."""

MIN_CLIP, MAX_CLIP = 1e-2, 1e2
"""Bounds on a clip, log seconds; they also keep the norm rule away from under- and overflow."""


class InvalidQuestionError(InvalidInputError):
    """A question is not one that may be answered."""


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
        if not (np.all(clips >= MIN_CLIP) and np.all(clips <= MAX_CLIP)):
            raise InvalidQuestionError(f"a clip is not within {MIN_CLIP:g} and {MAX_CLIP:g}")
