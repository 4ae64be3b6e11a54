"""Designs of directed reports: the combinations of residuals that a server asks for.

A report of the public basis (`basis`) asks about every cell. A directed report asks about
few directions, chosen so that they tell most about the questions that matter, over a
public list of points (configurations). A workload at point i with log residual r sends

    offsets[:, i]   and   directions[:, i] * clip(r, -clips[i], clips[i]),

and the norm rule keeps that within 1 whatever r is:

    |offsets[:, i]|^2 + (|directions[:, i]| * clips[i])^2 <= 1   for every point i.

So the number of directions costs no privacy by itself. A `Design` that breaks the rule,
or holds a number that is not finite, cannot be made: whoever computed it, the server
that asks or the client that answers, has checked it.

The product asks about the cells of the public basis, one design for everybody
(`questions`): everybody knows the cells, nobody where a workload lies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]

MAX_DIRECTIONS = 256
MAX_POINTS = 100_000

ROUNDING = 1e-9
"""Norms may pass 1 by so much; the mechanism checks what it sends once more in integers."""

INSIDE = 1 - 1e-9
"""Keeps a full-length vector from passing a bound by rounding, which would count it zero."""


class InvalidDesignError(InvalidInputError):
    """A design does not bound what a workload sends."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """The design of one directed report.

    Attributes:
        directions: multiply the clipped residual, float64 [directions, points].
        clips: bound on the absolute log residual at each point, float64 [points].
        offsets: are sent as they are, float64 [offsets, points]; no rows where
            configurations are public.
    """

    directions: Floats
    clips: Floats
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

    def columns(self, first: int, last: int) -> "Design":
        """The part for the points from `first` up to, not with, `last`."""
        return Design(
            self.directions[:, first:last], self.clips[first:last], self.offsets[:, first:last]
        )


def public_design(directions: Floats, clips: Floats) -> Design:
    """A design for points that the server knows: no offsets.

    Raises:
        InvalidDesignError: the norm rule does not hold.
    """
    return Design(directions, clips, np.zeros((0, len(clips))))


def unit_feature_design(features: Floats, clip: float) -> Design:
    """The design at plans that nobody else knows, from features that anybody could compute.

    A workload sends features / |features| * clip(r) / clip: norm at most 1, whatever the
    features are. One that feels nothing, or whose features are not finite, sends nothing.

    Args:
        features: of each plan, [points, k]; see `fedperf_shared.model.tangent`.
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
