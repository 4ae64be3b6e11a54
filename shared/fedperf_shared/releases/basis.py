"""The public basis of residual reports: cells of platform x operator class x size.

Every plan falls into exactly one cell. Only public rules and public bounds decide which one. A
report sums over workloads. For each cell it holds the share of a workload's executions and their
residuals against the reference model.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import SOURCE_KINDS, OperatorClass, OperatorKind, Platform

BASIS_VERSION = 1

# The platform of most operators; `OTHER` includes platforms that the basis does not name.
PLATFORM_GROUPS: tuple[Platform, ...] = (
    Platform.DUCKDB,
    Platform.POLARS,
    Platform.PANDAS,
    Platform.SKLEARN,
    Platform.SPARK,
    Platform.OTHER,
)

# Upper bounds of source rows of the size groups; the last group is open.
SIZE_BOUNDS = (1e4, 1e5, 1e6)

CELLS = len(PLATFORM_GROUPS) * len(OperatorClass) * (len(SIZE_BOUNDS) + 1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the basis."""

    platform: Platform
    operator_class: OperatorClass
    size: int

    @property
    def index(self) -> int:
        """Position in vectors over the basis, 0 to CELLS - 1."""
        group = PLATFORM_GROUPS.index(self.platform)
        return (group * len(OperatorClass) + self.operator_class) * (
            len(SIZE_BOUNDS) + 1
        ) + self.size


ALL_CELLS: tuple[Cell, ...] = tuple(
    Cell(platform, operator_class, size)
    for platform in PLATFORM_GROUPS
    for operator_class in OperatorClass
    for size in range(len(SIZE_BOUNDS) + 1)
)


def cell_of(plan: Plan) -> Cell:
    """Return the cell of `plan`: main platform, most special operator class, source rows."""
    workers = [
        position
        for position, operator in enumerate(plan.workflow.operators)
        if operator.kind not in SOURCE_KINDS and operator.kind is not OperatorKind.SINK
    ] or list(range(len(plan.platforms)))
    votes = Counter(plan.platforms[position] for position in workers)
    platform = max(votes, key=lambda each: (votes[each], -each))
    operator_class = max(operator.operator_class for operator in plan.workflow.operators)
    size = int(np.searchsorted(SIZE_BOUNDS, plan.workflow.source_rows, side="right"))
    return Cell(platform if platform in PLATFORM_GROUPS else Platform.OTHER, operator_class, size)


def contribution(
    cells: NDArray[np.int64], residuals: NDArray[np.float64], clip: float
) -> NDArray[np.float64]:
    """Return one workload's vector.

    It is the mean over the executions of (e_c, e_c * clipped r / C) / sqrt(2).

    Args:
        cells: cell index of each execution, [executions], at least one.
        residuals: log residual of each execution against the reference model, [executions].
        clip: bound C on the absolute log residual.

    Returns:
        [2 * CELLS] with L2 norm at most 1: each execution's vector has squared norm
        (1 + (r/C)^2) / 2 <= 1, and a mean of vectors is no longer than the longest of them.
        A residual that is not finite counts as 0.
    """
    finite = np.nan_to_num(residuals, nan=0.0, posinf=0.0, neginf=0.0)
    scaled = np.clip(finite, -clip, clip) / clip
    vector: NDArray[np.float64] = np.zeros(2 * CELLS)
    np.add.at(vector, cells, 1.0)
    np.add.at(vector, CELLS + cells, scaled)
    vector /= len(cells) * np.sqrt(2.0)
    return vector
