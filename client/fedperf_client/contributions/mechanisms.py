"""Mechanisms: one bounded integer vector per workload, their sum, and one noise on the whole.

A release is noise alone first (`noise_alone`). Its sum, which another process computes, is added
afterwards, so that a sum that fails or comes too late costs the sum only.

Sensitivity. Each kind of release defines the vector of a workload, with L2 norm at most 1:

* Residual report: `basis.contribution` of the cells and clipped residuals.
* Directed report: the mean over the executions of the vectors of their points. Each of those has
  norm at most 1 by the norm rule of the design. A `Design` checks the rule when it is created, and
  the rule does not depend on residuals. A mean is no longer than the longest of its parts. In the
  product the points are the cells of the public basis, and residuals are taken against a public
  center (`sum_cell_query`). Other designs may be about points that are public, or computed locally
  from points that are not (`fedperf_shared.releases.linear_queries`).
* Linearized update: the mean over the executions of unit feature * clip(residual) / clip
  (`unit_feature_design`). Each of these has norm at most 1 for all features,
  residuals and coordinator's queries, since only the direction of a feature counts. What is not
  finite contributes nothing.

The vector is put on the integer grid of step 2**GRID_EXPONENT by truncation toward zero, which
shortens every coordinate, so its integer vector has norm at most 2**-GRID_EXPONENT. That is checked
in integers, and a vector that is longer counts zero: the bound rests neither on floating point, nor
on the basis being right, nor on the server's arithmetic. Integer sums are exact, and their order
does not matter. Hence:

* Adding or removing one workload moves the sum by at most 1 / step in L2 norm, and noise of scale
  noise_multiplier / step has just that noise multiplier. The ledger charges this figure.
* Replacing one workload, or its residuals, moves the sum by at most twice as much, so the same
  noise is worth half as much there; `accountant.replace_one_epsilon` is printed next to it.

The vector depends on its workload and on public values alone, and every sum has the same size
for any set of workloads. A workload that fails counts zero, and an empty window gives a release
of the same shape. Only the sum shows where a workload lies, so the whole workload is protected,
its place included.

Why it is accounted as Gaussian. Rounding a continuous Gaussian to the integers is post-processing,
and shifting it by an integer vector commutes with the rounding. The discrete Gaussian of scale s
differs from that rounded one, within t standard deviations, by a factor of at most
exp((t^2 + 1) / (24 s^2)) per coordinate. With s >= 2**10 (less is refused; usual is 2**23), t = 8
and some 200 coordinates that is epsilon +- 5e-4 at the coarsest and 1e-11 in use, less than the
accountant rounds up; the mass beyond t is below 1e-12. In concentrated DP the two cost exactly the
same (Canonne, Kamath, Steinke 2020).

Several stages or rounds. Design, clips, model and query may depend on what earlier stages or rounds
released, and on nothing else of the data: that is adaptive composition of Gaussians, and each of
them is a slot with a charge of its own.

With `public_counts` an organization has declared that the number of its workloads in each cell is
no secret: that half of the values is sent as it is, and only the run times are protected. A
workload then moves the noisy half by at most 1 / sqrt(2) if its run times are added or taken away;
the noise is the same as without.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError, FedperfError
from fedperf_shared.releases import kinds
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS, contribution
from fedperf_shared.releases.linear_queries import (
    DIRECTIONS,
    CellQuery,
    Design,
    unit_feature_design,
)
from fedperf_shared.releases.release import (
    DirectedReport,
    LinearizedUpdate,
    NoisySum,
    ResidualReport,
    Slot,
    SlotKey,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
W = TypeVar("W")

# One integer is 2**-20; sums of 10^9 workloads and their noise stay far inside int64.
GRID_EXPONENT = -20

REPORT_VALUES = 2 * CELLS

MIN_NOISE_STEPS = 2.0**10
MAX_NOISE_STEPS = 2.0**50

_STEPS_PER_UNIT = 2.0**-GRID_EXPONENT
_MAX_SQUARED_NORM = 4**-GRID_EXPONENT
_SHARE_ROUNDING = 1e-9


class NoiseSource(Protocol):
    """Independent random numbers, never the same twice. Mechanisms receive it and never create one.

    `fedperf_client.release.noise.SystemNoise` is the only implementation that may stand behind a
    real release; tests bring seeded ones.
    """

    def discrete_gaussian(self, size: int, scale: float) -> Integers:
        """Sample `size` integers k with probability proportional to exp(-k^2 / (2 scale^2))."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadResiduals:
    """One workload's executions as a report sees them."""

    cells: Integers  # int64 [executions], `basis.cell_of(plan).index` of each
    residuals: Floats  # float64 [executions], log measured minus log predicted seconds


@dataclass(frozen=True, slots=True)
class PointResiduals:
    """One workload's executions as a design sees them."""

    points: Integers  # int64 [executions], the point of the design at which each ran
    residuals: Floats  # float64 [executions], log measured minus log predicted seconds
    # Of each execution in the mean, float64 [executions]; equal ones where None.
    shares: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadFeatures:
    """One workload's executions as a linearized update sees them."""

    features: Floats  # of each direction, float64 [executions, DIRECTIONS]
    residuals: Floats  # float64 [executions], measured minus predicted, of the standardised output
    # Of each execution in the mean, float64 [executions]; equal ones where None.
    shares: Floats | None = None


# Bounds every workload and sums up; can be pickled.
SumWorkloads = Callable[[Iterable[WorkloadResiduals]], Integers]


def sum_residuals(workloads: Iterable[WorkloadResiduals], clip: float) -> Integers:
    """Return the integer sum of a residual report, int64 [2 * CELLS]; private, never released.

    Args:
        workloads: each workload once; two entries of one workload would break its promise.
        clip: bound on the log residual.
    """

    def vector(workload: WorkloadResiduals) -> Floats:
        return contribution(*_checked(workload.cells, workload.residuals, CELLS), clip)

    return _sum(workloads, vector, REPORT_VALUES)


def sum_cell_query(workloads: Iterable[WorkloadResiduals], query: CellQuery) -> Integers:
    """Return the integer sum of a directed report, int64 [values]; arguments as `sum_residuals`."""
    design = query.design

    def vector(workload: WorkloadResiduals) -> Floats:
        cells, residuals = _checked(workload.cells, workload.residuals, CELLS)
        return _mean_vector(PointResiduals(cells, residuals - query.center[cells]), design)

    return _sum(workloads, vector, design.values)


def sum_points(workloads: Iterable[PointResiduals], design: Design) -> Integers:
    """Return the integer sum over any design, int64 [values]; arguments as `sum_residuals`."""
    return _sum(workloads, partial(_mean_vector, design=design), design.values)


def sum_features(workloads: Iterable[WorkloadFeatures], clip: float) -> Integers:
    """Return the integer sum of a linearized update, int64 [DIRECTIONS]; as `sum_residuals`."""

    def vector(workload: WorkloadFeatures) -> Floats:
        count = len(workload.residuals)
        if workload.features.shape != (count, DIRECTIONS):
            raise ValueError(f"a workload has {DIRECTIONS} features for each execution")
        points = PointResiduals(np.arange(count), workload.residuals, workload.shares)
        return _mean_vector(points, unit_feature_design(workload.features, clip))

    return _sum(workloads, vector, DIRECTIONS)


# Constructors of releases from slot, version and noisy values. A removed kind has none.
CONSTRUCTORS: Mapping[kinds.AnyKind, Callable[[SlotKey, int, Integers], NoisySum]] = {
    kinds.RESIDUAL_REPORT: lambda slot, version, values: ResidualReport(
        slot, BASIS_VERSION, version, GRID_EXPONENT, values
    ),
    kinds.DIRECTED_REPORT: lambda slot, version, values: DirectedReport(
        slot, version, GRID_EXPONENT, values
    ),
    kinds.TANGENT_UPDATE: lambda slot, version, values: LinearizedUpdate(
        slot, version, GRID_EXPONENT, values
    ),
}


def noisy(total: Integers, noise: NoiseSource, slot: Slot, *, version: int) -> NoisySum:
    """Return the release of `slot` from its sum, a function of arguments and `noise`.

    Args:
        total: private sum of bounded vectors in grid steps, of the length that the slot's kind
            defines.
        noise: samples the one discrete Gaussian; none on counts that are public.
        slot: of a noisy sum, from the schedule.
        version: public, of the model that it is about, or of the query over the cells.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    parameters = slot.parameters
    samples = noise.discrete_gaussian(len(total), noise_steps(parameters.noise_multiplier))
    samples[: parameters.exact_counts] = 0
    return CONSTRUCTORS[kinds.kind_of(parameters)](slot.key, version, total + samples)


def noise_alone(noise: NoiseSource, slot: Slot, *, version: int) -> NoisySum:
    """Return the release of `slot` before its sum is added; arguments as `noisy`."""
    size = kinds.kind_of(slot.parameters).numbers or 0
    return noisy(np.zeros(size, dtype=np.int64), noise, slot, version=version)


def report_sum(slot: Slot, query: CellQuery | None) -> SumWorkloads:
    """Return the sum of a report slot: of a linear query, or of residuals on the public basis."""
    if query is not None:
        return partial(sum_cell_query, query=query)
    planned = kinds.RESIDUAL_REPORT.as_parameters(slot.parameters)
    return partial(sum_residuals, clip=planned.residual_clip)


def noise_steps(noise_multiplier: float) -> float:
    """Return the scale of the discrete Gaussian in grid steps.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    scale = noise_multiplier * _STEPS_PER_UNIT
    if not MIN_NOISE_STEPS <= scale <= MAX_NOISE_STEPS:
        raise ConfigurationError(
            f"noise multiplier {noise_multiplier!r} does not fit the report's grid: "
            f"{MIN_NOISE_STEPS / _STEPS_PER_UNIT:g} to {MAX_NOISE_STEPS / _STEPS_PER_UNIT:g}"
        )
    return scale


def _sum(workloads: Iterable[W], vector_of: Callable[[W], Floats], size: int) -> Integers:
    """Return the sum of the workloads' vectors [size] in grid steps, each of norm at most 1 / step.

    Truncation toward zero shortens a vector, and the bound is checked in integers. A vector that
    is longer, or cannot be computed, counts zero.
    """
    total = np.zeros(size, dtype=np.int64)
    for workload in workloads:
        try:
            vector = vector_of(workload)
        except (ArithmeticError, LookupError, TypeError, ValueError, FedperfError):
            continue
        if vector.shape == (size,) and np.all(np.abs(vector) <= 1.0):  # refuses NaN
            steps = np.trunc(vector * _STEPS_PER_UNIT).astype(np.int64)
            if int(steps @ steps) <= _MAX_SQUARED_NORM:
                total += steps
    return total


def _checked(places: Integers, residuals: Floats, size: int) -> tuple[Integers, Floats]:
    """Return the places, all below `size`, and residuals of a workload's executions."""
    places = np.asarray(places, dtype=np.int64)
    residuals = np.asarray(residuals, dtype=np.float64)
    if not (places.ndim == 1 and 0 < len(places) == len(residuals)):
        raise ValueError("a workload has at least one execution, and one residual for each")
    if places.min() < 0 or places.max() >= size:
        raise ValueError(f"a place is not within 0 and {size}")
    return places, residuals


def _mean_vector(workload: PointResiduals, design: Design) -> Floats:
    """Return the weighted mean of the executions' vectors; no longer than the longest of them."""
    points, residuals = _checked(workload.points, workload.residuals, design.points)
    limits = design.clips[points]
    finite = np.nan_to_num(residuals, nan=0.0, posinf=0.0, neginf=0.0)
    clipped = np.clip(finite, -limits, limits)
    vectors = np.concatenate([design.offsets[:, points], design.directions[:, points] * clipped])
    count, most = len(residuals), 1 + _SHARE_ROUNDING
    shares = np.full(count, 1 / count)
    if workload.shares is not None:
        shares = np.asarray(workload.shares, dtype=np.float64)
        are_shares = shares.shape == (count,) and shares.min() >= 0 and shares.max() <= most
        if not (are_shares and shares.sum() <= most):
            raise ValueError("shares of executions are not negative and sum to 1")
    return np.asarray(vectors @ shares, dtype=np.float64)
