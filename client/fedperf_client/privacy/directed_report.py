"""The directed report: few directions that the server asks for, one noise on the whole.

Sensitivity. A workload sends the mean over its executions of what their points send
(`fedperf_shared.releases.linear_queries`). Each of those has L2 norm at most 1 by the norm rule of
the design. A `Design` checks the rule when it is made, and the rule does not depend on the
residuals. A mean is no longer than the longest of its parts. The vector is put on the integer grid
and its norm is checked once more in integers (`report_mechanism.on_grid`); what is longer counts
zero. So the bound rests neither on floating point nor on the server's arithmetic. Hence:

* add or remove one workload: sensitivity 1, the figure that the ledger charges;
* replace one workload, or the residuals of one, by others: sensitivity 2, so the same
  noise is worth half as much there; `accountant.replace_one_epsilon` is printed beside.

Noise, grid and accounting are those of the residual report, where the argument stands.

Several stages. The design and the clips of a stage may depend on what earlier stages
released, and on nothing else of the data: that is adaptive composition of Gaussians, and
each stage is a slot with a charge of its own.

In the product the points are the cells of the public basis and residuals are taken
against a public center (`cell_sum`). Only the sum shows where a workload lies, so the
whole workload is protected, its place included. Other designs may be about points that
are public, or computed at home from points that are not (`fedperf_shared.releases.linear_queries`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.privacy.report_mechanism import (
    GRID_EXPONENT,
    WorkloadResiduals,
    noise_steps,
    on_grid,
)
from fedperf_shared.errors import FedperfError
from fedperf_shared.releases.linear_queries import CellQuery, Design
from fedperf_shared.releases.release import DirectedReport, SlotKey

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PointResiduals:
    """One workload's executions as a directed report sees them.

    Attributes:
        points: int64 [executions], the point of the design at which each ran.
        residuals: float64 [executions], log measured minus log predicted seconds.
        shares: of each execution in the mean, float64 [executions]; equal ones where None.
    """

    points: NDArray[np.int64]
    residuals: NDArray[np.float64]
    shares: NDArray[np.float64] | None = None


def directed_report(
    workloads: Iterable[PointResiduals],
    design: Design,
    noise: NoiseSource,
    *,
    slot: SlotKey,
    noise_multiplier: float,
    design_version: int,
) -> DirectedReport:
    """The report of `slot`, a function of its arguments and of what `noise` gives.

    Args:
        workloads: each workload once; two entries of one workload would break its promise.
        design: what is asked; its norm rule holds, else it could not exist.
        noise: makes the one discrete Gaussian.
        slot: the slot that it fills.
        noise_multiplier: stddev of the noise / sensitivity to one workload more or less.
        design_version: the server's number of the design.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    scale = noise_steps(noise_multiplier)
    total = noiseless_sum(workloads, design)
    return DirectedReport(
        slot=slot,
        design_version=design_version,
        grid_exponent=GRID_EXPONENT,
        values=total + noise.discrete_gaussian(design.values, scale),
    )


def cell_sum(workloads: Iterable[WorkloadResiduals], question: CellQuery) -> NDArray[np.int64]:
    """Integer sum of the workloads' grid vectors, int64 [values]; private, never released."""
    around = (_around(question.center, each) for each in workloads)
    return noiseless_sum(around, question.design)


def noiseless_sum(workloads: Iterable[PointResiduals], design: Design) -> NDArray[np.int64]:
    """Integer sum of the workloads' grid vectors, int64 [values]; private, never released."""
    total = np.zeros(design.values, dtype=np.int64)
    for workload in workloads:
        total += grid_vector(workload, design)
    return total


def grid_vector(workload: PointResiduals, design: Design) -> NDArray[np.int64]:
    """One workload's vector in grid steps, of norm at most 2**-GRID_EXPONENT; 0 if it fails."""
    try:
        vector = _contribution(workload, design)
    except (ArithmeticError, LookupError, TypeError, ValueError, FedperfError):
        return np.zeros(design.values, dtype=np.int64)
    return on_grid(vector, design.values)


def _around(center: NDArray[np.float64], workload: WorkloadResiduals) -> PointResiduals:
    """The residuals around the center; a workload that fails has none, which counts zero."""
    try:
        return PointResiduals(workload.cells, workload.residuals - center[workload.cells])
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return PointResiduals(np.zeros(0, dtype=np.int64), np.zeros(0))


def _contribution(workload: PointResiduals, design: Design) -> NDArray[np.float64]:
    points = np.asarray(workload.points, dtype=np.int64)
    residuals = np.asarray(workload.residuals, dtype=np.float64)
    if not (points.ndim == 1 and 0 < len(points) == len(residuals)):
        raise ValueError("a workload has at least one execution, and one residual for each")
    if points.min() < 0 or points.max() >= design.points:
        raise ValueError("a point lies outside of the design")
    limits = design.clips[points]
    finite = np.nan_to_num(residuals, nan=0.0, posinf=0.0, neginf=0.0)
    clipped = np.clip(finite, -limits, limits)
    sent = np.concatenate([design.offsets[:, points], design.directions[:, points] * clipped])
    return np.asarray(sent @ _shares(workload), dtype=np.float64)


def _shares(workload: PointResiduals) -> NDArray[np.float64]:
    """Return the weight of each execution; a mean of vectors is no longer than the longest one."""
    count = len(workload.residuals)
    if workload.shares is None:
        return np.full(count, 1 / count)
    shares = np.asarray(workload.shares, dtype=np.float64)
    most = 1 + _ROUNDING
    are_shares = shares.shape == (count,) and shares.min() >= 0 and shares.max() <= most
    if not (are_shares and shares.sum() <= most):
        raise ValueError("shares of executions are not negative and sum to 1")
    return shares
