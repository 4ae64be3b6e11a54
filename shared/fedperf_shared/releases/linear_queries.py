"""A coordinator's linear queries: over cells in a directed slot, linearized in a model round.

A question follows from earlier releases and public things alone, so it is public and the same for
everybody. A question that a node could not answer safely cannot be made: what an answer's size
depends on is a constant, and every number is finite and within public bounds.

The points of a `CellQuery` are the cells of `basis`. A workload answers with the mean over its
executions of directions[:, cell] * clip(r - center[cell], clips[cell]), r its log residual against
the reference model. The norm rule keeps that within 1 whatever r is. A question
that was made for another basis is refused.

The directions of a `LinearizedQuery` are J' @ coefficients. J holds the gradients of the round's
base model at the public plans that ship with fedperf (`model.tangent`). So a question is some fifty
thousand numbers for directions of 121,217 weights each. An organization answers with the sum over
its workloads of unit feature * clip(residual) / clip. The bound of that does not rest on the
question at all: whatever the directions are, only the direction of a plan's features counts.
Directions that are not used are zeros.

A report of the public basis (`basis`) asks about every cell. A directed report asks about few
directions (`Design`), chosen so that they tell most about the questions that matter, over a
public list of points. A workload at point i with log residual r sends

    offsets[:, i]   and   directions[:, i] * clip(r, -clips[i], clips[i]),

and the norm rule keeps that within 1 whatever r is:

    |offsets[:, i]|^2 + (|directions[:, i]| * clips[i])^2 <= 1   for every point i.

So the number of directions costs no privacy by itself. A `Design` that breaks the rule,
or holds a number that is not finite, cannot be made. So the server that sends it and the
client that answers have both checked it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.release import ReleaseKind, SlotKey

Floats = NDArray[np.float64]

MAX_DIRECTIONS = 256
MAX_POINTS = 100_000

# Norms may pass 1 by so much; the mechanism checks what it sends once more in integers.
ROUNDING = 1e-9

# Keeps a full-length vector from passing a bound by rounding, which would count it zero.
INSIDE = 1 - 1e-9


class InvalidDesignError(InvalidInputError):
    """A design does not bound what a workload sends."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """The design of one directed report."""

    directions: Floats  # multiply the clipped residual, float64 [directions, points]
    clips: Floats  # bound on the absolute log residual at each point, float64 [points]
    # Are sent as they are, float64 [offsets, points]; no rows where configurations are public.
    offsets: Floats

    def __post_init__(self) -> None:
        points = len(self.clips)
        if self.clips.shape != (points,) or not 0 < points <= MAX_POINTS:
            raise InvalidDesignError(f"a design has 1 to {MAX_POINTS} points, this one {points}")
        for name, matrix in (("directions", self.directions), ("offsets", self.offsets)):
            if matrix.shape != (len(matrix), points) or len(matrix) > MAX_DIRECTIONS:
                raise InvalidDesignError(f"{name} are {matrix.shape} for {points} points")
            if not np.all(np.isfinite(matrix)):
                raise InvalidDesignError(f"{name} hold a number that is not finite")
        if not (np.all(self.clips > 0) and np.all(np.isfinite(self.clips))):
            raise InvalidDesignError("a clip is not positive and finite")
        longest = float(self.norms().max())
        if not longest <= 1 + ROUNDING:
            raise InvalidDesignError(f"a workload could send a vector of norm {longest:.6g} > 1")

    @property
    def values(self) -> int:
        """Length of a report of this design: offsets, then directions."""
        return len(self.offsets) + len(self.directions)

    @property
    def points(self) -> int:
        """Number of points."""
        return len(self.clips)

    def norms(self) -> Floats:
        """Most that a workload at each point can send, L2, [points]."""
        with np.errstate(over="ignore"):  # what overflows is too long
            reach = np.sqrt(np.sum(self.directions**2, axis=0)) * self.clips
            return np.asarray(np.hypot(reach, np.sqrt(np.sum(self.offsets**2, axis=0))))


def public_design(directions: Floats, clips: Floats) -> Design:
    """Return a design for points that the server has: no offsets.

    Raises:
        InvalidDesignError: the norm rule does not hold.
    """
    return Design(directions, clips, np.zeros((0, len(clips))))


def unit_feature_design(features: Floats, clip: float) -> Design:
    """Return the design at private plans, from features that are a public function of a plan.

    A workload sends features / |features| * clip(r) / clip: norm at most 1, whatever the
    features are. One that feels nothing, or whose features are not finite, sends nothing.

    Args:
        features: of each plan, [points, k]; see `fedperf_shared.model.linearization`.
        clip: bound on the absolute residual, the same everywhere.

    Raises:
        InvalidDesignError: the clip is not positive and finite.
    """
    if not 0 < clip < np.inf:
        raise InvalidDesignError(f"a clip must be positive and finite, got {clip!r}")
    largest = np.max(np.abs(features), axis=1, keepdims=True, initial=0.0)
    sound = np.isfinite(largest) & (largest > 0)
    scaled = np.divide(features, largest, out=np.zeros_like(features), where=sound)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit = np.divide(scaled, norms, out=np.zeros_like(features), where=sound)
    return public_design(unit.T * (INSIDE / clip), np.full(len(features), clip))


# Numbers in the response to a query over the cells. More than about twelve add nothing at epsilon
# 1.
QUESTION_DIRECTIONS = 16

# Bound on the center, log seconds: a reference model that is off by 5 * 10^8 is useless.
MAX_CENTER = 20.0

# Bounds on a cell's clip, log seconds; they also keep the norm rule away from under- and overflow.
MIN_CELL_CLIP, MAX_CELL_CLIP = 1e-2, 1e2

# Directions of a linearized query; some are zeros if the anchors distinguish fewer.
DIRECTIONS = 256

# More plans than fedperf ships with; how many it ships is checked where they are read.
MAX_ANCHORS = 10_000

# Bound on a coefficient: far from the overflow of single precision, whatever the model.
MAX_COEFFICIENT = 1e9

# Bounds on the clip at a tangent, in units of the standardised output.
MIN_TANGENT_CLIP, MAX_TANGENT_CLIP = 1e-3, 1e2


class InvalidQueryError(InvalidInputError):
    """Raised for an invalid query over the cells."""


class InvalidLinearizedQueryError(InvalidInputError):
    """Raised for an invalid linearized query."""


@dataclass(frozen=True, slots=True, eq=False)
class CellQuery:
    """The linear query of one directed slot."""

    slot: SlotKey  # which slot it is for
    version: int  # the coordinator's number of the question, above 0; answers name it
    basis_version: int  # version of `basis` whose cells are the points
    reference_version: int  # model version that residuals are taken against
    center: NDArray[np.float64]  # what is subtracted from a residual in each cell, float64 [CELLS]
    design: Design  # QUESTION_DIRECTIONS directions over CELLS points, no offsets

    def __post_init__(self) -> None:
        if self.slot.kind is not ReleaseKind.RESIDUAL_REPORT or not self.version > 0:
            raise InvalidQueryError(f"no question {self.version} is asked for {self.slot}")
        if self.basis_version != BASIS_VERSION:
            raise InvalidQueryError(
                f"a question over basis {self.basis_version}, this is basis {BASIS_VERSION}"
            )
        shape = (self.design.points, len(self.design.directions), len(self.design.offsets))
        if shape != (CELLS, QUESTION_DIRECTIONS, 0):
            raise InvalidQueryError(
                f"a question has {CELLS} cells, {QUESTION_DIRECTIONS} directions and no "
                f"offsets, this one {shape}"
            )
        if self.center.shape != (CELLS,) or not np.all(np.abs(self.center) <= MAX_CENTER):
            raise InvalidQueryError(f"a center is not {CELLS} numbers within {MAX_CENTER:g}")
        clips = self.design.clips
        if not (np.all(clips >= MIN_CELL_CLIP) and np.all(clips <= MAX_CELL_CLIP)):
            raise InvalidQueryError(f"a clip is not within {MIN_CELL_CLIP:g} and {MAX_CELL_CLIP:g}")


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedQuery:
    """The linear query of one model round."""

    clip: float  # bound on a residual, in units of the standardised output
    coefficients: NDArray[np.float32]  # float32 [anchors, DIRECTIONS]

    def __post_init__(self) -> None:
        if not MIN_TANGENT_CLIP <= self.clip <= MAX_TANGENT_CLIP:
            raise InvalidLinearizedQueryError(
                f"a clip is within {MIN_TANGENT_CLIP:g} and {MAX_TANGENT_CLIP:g}, got {self.clip!r}"
            )
        shape = self.coefficients.shape
        if shape != (self.anchors, DIRECTIONS) or not 0 < self.anchors <= MAX_ANCHORS:
            raise InvalidLinearizedQueryError(
                f"coefficients are 1 to {MAX_ANCHORS} anchors by {DIRECTIONS}, these {shape}"
            )
        if not np.all(np.abs(self.coefficients) <= MAX_COEFFICIENT):
            raise InvalidLinearizedQueryError(
                f"a coefficient is not a number within {MAX_COEFFICIENT:g}"
            )

    @property
    def anchors(self) -> int:
        """Number of public plans that it is about."""
        return len(self.coefficients)
