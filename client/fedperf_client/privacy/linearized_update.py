"""A private step at a tangent: one bounded vector per workload, summed, one noise on the whole.

Sensitivity. A workload sends a mean over its executions of unit feature * clip(residual) / clip
(`directions.unit_feature_design`): each of these has L2 norm at most 1 whatever features,
residuals and the coordinator's question are, since only the direction of a feature counts;
what is not finite sends nothing. A mean is no longer than the longest of its parts. The
vector is put on the integer grid and its norm is checked once more in integers
(`report_mechanism.on_grid`); what is longer counts zero. Hence adding or removing one workload
moves the sum by at most 1, the figure that the ledger charges, replacing one by at most 2.

What a workload sends depends on that workload, the model and the question alone, and every
sum has the same size, whatever there is to add up. Noise, grid and accounting are those of
the residual report, where the argument stands. Model and question of a round may depend on what
earlier rounds released: adaptive composition, each round being a slot with its charge.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy import directed_report
from fedperf_shared.errors import FedperfError
from fedperf_shared.releases.linear_queries import DIRECTIONS, unit_feature_design


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadFeatures:
    """One workload's executions as a tangent sees them.

    Attributes:
        features: of each direction, float64 [executions, DIRECTIONS].
        residuals: float64 [executions], measured minus predicted, of the standardised output.
        shares: of each execution in the mean, float64 [executions]; equal ones where None.
    """

    features: NDArray[np.float64]
    residuals: NDArray[np.float64]
    shares: NDArray[np.float64] | None = None


def noiseless_sum(workloads: Iterable[WorkloadFeatures], clip: float) -> NDArray[np.int64]:
    """Integer sum of the workloads' grid vectors, int64 [DIRECTIONS]; private, never released.

    Args:
        workloads: each workload once; two entries of one workload would break its promise.
        clip: bound on a residual, from the question.
    """
    total = np.zeros(DIRECTIONS, dtype=np.int64)
    for workload in workloads:
        total += grid_vector(workload, clip)
    return total


def grid_vector(workload: WorkloadFeatures, clip: float) -> NDArray[np.int64]:
    """One workload's vector in grid steps, of norm at most 2**-GRID_EXPONENT; 0 if it fails."""
    nothing = np.zeros(DIRECTIONS, dtype=np.int64)
    features, residuals = workload.features, workload.residuals
    if features.shape != (len(residuals), DIRECTIONS):
        return nothing
    try:
        design = unit_feature_design(features, clip)
    except FedperfError:
        return nothing
    points = np.arange(len(residuals))
    return directed_report.grid_vector(
        directed_report.PointResiduals(points, residuals, workload.shares), design
    )
