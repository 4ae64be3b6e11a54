"""A coordinator's linear queries: over cells in a directed slot, linearized in a model round.

A query is computed from earlier releases and public facts only. So it is public and the same for
all organizations. The types refuse every query without a safe response: a response has a constant
size, and every number is finite and within public bounds.

The points of a `CellQuery` are the cells of `basis`. A workload contributes the mean over its
executions of directions[:, cell] * clip(r - center[cell], clips[cell]), where r is the log residual
against the reference model. The norm rule bounds the norm by 1 for every r. A query over another
basis is refused.

The directions of a `LinearizedQuery` are J' @ coefficients. J holds the gradients of the round's
base model at the public plans that ship with fedperf (`model.linearization`). So a query has some
fifty thousand numbers, for directions of 121,217 weights each. An organization responds with the
sum over its workloads of unit feature * clip(residual) / clip. The bound of this sum does not
depend on the query, because only the direction of a plan's features counts. Unused directions are
zeros.

A residual report (`basis`) covers every cell. A directed report covers few directions (`Design`)
over a public list of points. The coordinator chooses the most informative directions. A workload at
point i with log residual r contributes

    offsets[:, i]   and   directions[:, i] * clip(r, -clips[i], clips[i]),

and the norm rule bounds the norm by 1 for every r:

    |offsets[:, i]|^2 + (|directions[:, i]| * clips[i])^2 <= 1   for every point i.

So more directions cost no privacy by themselves. A `Design` that breaks the rule, or holds a number
that is not finite, raises an error. So both the server and the client check it.
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

# Tolerance of norms above 1. The mechanism checks its integers once more.
ROUNDING = 1e-9

# Keeps a full-length vector from passing a bound by rounding, which would count it zero.
INSIDE = 1 - 1e-9


class InvalidDesignError(InvalidInputError):
    """Raised for a design that does not bound the contribution of a workload."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """The design of one directed report."""

    directions: Floats  # multiply the clipped residual, float64 [directions, points]
    clips: Floats  # bound on the absolute log residual at each point, float64 [points]
    # Contributed unchanged, float64 [offsets, points]. No rows if configurations are public.
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
        """Return the largest L2 norm of a contribution at each point, [points]."""
        with np.errstate(over="ignore"):  # an overflow exceeds every bound
            reach = np.sqrt(np.sum(self.directions**2, axis=0)) * self.clips
            return np.asarray(np.hypot(reach, np.sqrt(np.sum(self.offsets**2, axis=0))))


def public_design(directions: Floats, clips: Floats) -> Design:
    """Return a design without offsets, for points that the server has.

    Raises:
        InvalidDesignError: the norm rule does not hold.
    """
    return Design(directions, clips, np.zeros((0, len(clips))))


def unit_feature_design(features: Floats, clip: float) -> Design:
    """Return the design at private plans, from features that are a public function of a plan.

    A workload contributes features / |features| * clip(r) / clip, with norm at most 1 for all
    features. Its contribution is zero if all features are zero or one is not finite.

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
QUERY_DIRECTIONS = 16

# Bound on the center, log seconds: a reference model that is off by 5 * 10^8 is useless.
MAX_CENTER = 20.0

# Bounds on a cell's clip, log seconds; they also keep the norm rule away from under- and overflow.
MIN_CELL_CLIP, MAX_CELL_CLIP = 1e-2, 1e2

# Directions of a linearized query; some are zeros if the anchors distinguish fewer.
DIRECTIONS = 256

# Above the number of plans that ship with fedperf. Their reader checks the exact number.
MAX_ANCHORS = 10_000

# Bound on a coefficient, far from the overflow of single precision for every model.
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

    slot: SlotKey  # the slot of the query
    version: int  # the coordinator's number of the query, above 0; responses name it
    basis_version: int  # version of `basis`, which defines the points
    reference_version: int  # version of the reference model of the residuals
    center: NDArray[np.float64]  # subtracted from the residuals of each cell, float64 [CELLS]
    design: Design  # QUERY_DIRECTIONS directions over CELLS points, no offsets

    def __post_init__(self) -> None:
        if self.slot.kind is not ReleaseKind.RESIDUAL_REPORT or not self.version > 0:
            raise InvalidQueryError(
                f"a query numbered {self.version} for {self.slot}; expected a number above 0 "
                "for a slot of a residual report"
            )
        if self.basis_version != BASIS_VERSION:
            raise InvalidQueryError(
                f"a query over basis {self.basis_version}, expected basis {BASIS_VERSION}"
            )
        shape = (self.design.points, len(self.design.directions), len(self.design.offsets))
        if shape != (CELLS, QUERY_DIRECTIONS, 0):
            raise InvalidQueryError(
                f"a query has {CELLS} cells, {QUERY_DIRECTIONS} directions and no "
                f"offsets, got {shape}"
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
        """The number of public plans that define its directions."""
        return len(self.coefficients)
