"""The residual report: one bounded vector per workload, summed, one noise on the whole.

Sensitivity. A workload's vector has L2 norm at most 1 (`basis.contribution`). It is
put on the integer grid of step 2**GRID_EXPONENT by truncation toward zero, which
shortens every coordinate, so its integer vector has norm at most 2**-GRID_EXPONENT.
That is checked in integers, and a vector that is longer counts zero: the bound does
not rest on floating point, nor on the basis being right. Integer sums are exact and do
not depend on the order. Adding or removing one workload thus moves the sum by at most
1 / step in L2 norm, and noise of scale noise_multiplier / step has just that noise
multiplier.

Why it is accounted as Gaussian. Rounding a continuous Gaussian to the integers is
post-processing, and shifting it by an integer vector commutes with the rounding. The
discrete Gaussian of scale s differs from that rounded one, within t standard
deviations, by a factor of at most exp((t^2 + 1) / (24 s^2)) per coordinate. With
s >= 2**10 (less is refused; usual is 2**23), t = 8 and some 200 coordinates that is
epsilon +- 5e-4 at the coarsest and 1e-11 in use, less than the accountant rounds up;
the mass beyond t is below 1e-12. In concentrated DP the two cost exactly the same
(Canonne, Kamath, Steinke 2020).

With `public_counts` an organization has declared that it is no secret how many workloads
it has in which cell: that half of the values leaves as it is, and only what the workloads
took is protected. A workload then moves the noisy half by at most 1 / sqrt(2) if its run
times are added or taken away; the noise is the same as without.

An empty window gives a report of the same shape. A workload that fails counts zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.errors import ConfigurationError, FedperfError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS, contribution
from fedperf_shared.releases.release import Parameters, ReportParameters, ResidualReport, SlotKey

GRID_EXPONENT = -20
"""One integer is 2**-20; sums of 10^9 workloads and their noise stay far inside int64."""

REPORT_VALUES = 2 * CELLS

MIN_NOISE_STEPS = 2.0**10
MAX_NOISE_STEPS = 2.0**50

_STEPS_PER_UNIT = 2.0**-GRID_EXPONENT
_MAX_SQUARED_NORM = 4**-GRID_EXPONENT


@dataclass(frozen=True, slots=True)
class WorkloadResiduals:
    """One workload's executions as the report sees them.

    Attributes:
        cells: int64 [executions], `basis.cell_of(plan).index` of each.
        residuals: float64 [executions], log measured minus log predicted seconds.
    """

    cells: NDArray[np.int64]
    residuals: NDArray[np.float64]


def residual_report(
    workloads: Iterable[WorkloadResiduals],
    noise: NoiseSource,
    *,
    slot: SlotKey,
    parameters: ReportParameters,
    reference_version: int,
) -> ResidualReport:
    """The report of `slot`, a function of its arguments and of what `noise` gives.

    Args:
        workloads: each workload once; two entries of one workload would break its promise.
        noise: makes the one discrete Gaussian.
        slot: the slot that it fills.
        parameters: of that slot, from the schedule.
        reference_version: model version that the residuals are taken against.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    total = noiseless_sum(workloads, parameters.residual_clip)
    return ResidualReport(
        slot=slot,
        basis_version=BASIS_VERSION,
        reference_version=reference_version,
        grid_exponent=GRID_EXPONENT,
        values=with_noise(total, noise, parameters),
    )


def with_noise(
    total: NDArray[np.int64], noise: NoiseSource, parameters: Parameters
) -> NDArray[np.int64]:
    """A sum of vectors that are `on_grid` and one Gaussian; none on counts that are public.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    samples = noise.discrete_gaussian(len(total), noise_steps(parameters.noise_multiplier))
    samples[: parameters.exact_counts] = 0
    return total + samples


def noiseless_sum(workloads: Iterable[WorkloadResiduals], clip: float) -> NDArray[np.int64]:
    """Integer sum of the workloads' grid vectors, int64 [2 * CELLS]; private, never released."""
    total = np.zeros(REPORT_VALUES, dtype=np.int64)
    for workload in workloads:
        total += grid_vector(workload, clip)
    return total


def grid_vector(workload: WorkloadResiduals, clip: float) -> NDArray[np.int64]:
    """One workload's vector in grid steps, of norm at most 2**-GRID_EXPONENT; 0 if it fails."""
    try:
        vector = _contribution(workload, clip)
    except (ArithmeticError, LookupError, TypeError, ValueError, FedperfError):
        return np.zeros(REPORT_VALUES, dtype=np.int64)
    return on_grid(vector, REPORT_VALUES)


def on_grid(vector: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """A vector [size] in grid steps, of norm at most 2**-GRID_EXPONENT; 0 if it is longer.

    Truncation toward zero shortens it, and the bound is checked in integers.
    """
    nothing = np.zeros(size, dtype=np.int64)
    if vector.shape != (size,) or not np.all(np.abs(vector) <= 1.0):  # refuses NaN
        return nothing
    steps = np.trunc(vector * _STEPS_PER_UNIT).astype(np.int64)
    return steps if int(steps @ steps) <= _MAX_SQUARED_NORM else nothing


def noise_steps(noise_multiplier: float) -> float:
    """Scale of the discrete Gaussian in grid steps, for sums of vectors that are `on_grid`.

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


def _contribution(workload: WorkloadResiduals, clip: float) -> NDArray[np.float64]:
    cells = np.asarray(workload.cells, dtype=np.int64)
    residuals = np.asarray(workload.residuals, dtype=np.float64)
    if not (cells.ndim == 1 and 0 < len(cells) == len(residuals)):
        raise ValueError("a workload has at least one execution, and one residual for each")
    if cells.min() < 0 or cells.max() >= CELLS:
        raise ValueError("a cell lies outside of the basis")
    return contribution(cells, residuals, clip)
