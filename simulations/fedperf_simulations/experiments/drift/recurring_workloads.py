"""Organizations whose workloads run again and again, with residuals that are drawn.

Residuals come from no model and no engine. The truth of the cells is drawn from the coordinator's
own public prior. An organization's deviation from it and a workload's from its cell stay;
executions scatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server.inference.corrections import DEFAULT_KERNEL
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

USED = PLATFORM_GROUPS[:3]
"""Platforms that organizations use."""

CELLS_OF_A_PLATFORM = 8
"""Cells of each of them in which an organization has workloads."""

EXECUTIONS = 3.0
"""Of a workload in a window, on average; in some it does not run at all."""

WORKLOAD_SD = 0.4
"""How far a workload lies from its cell, for good, log seconds."""

EXECUTION_SD = 0.3
"""How far an execution lies from its workload; both together are `Kernel.execution_sd`."""

REFERENCE = 1


@dataclass(frozen=True, slots=True)
class PlatformShift:
    """A platform that takes longer from a moment on.

    Attributes:
        platform: which.
        at: when, in windows after the start of the period.
        log_factor: log seconds by which its executions take longer.
        only: the organization whose platform it is; None for everybody's.
    """

    platform: Platform
    at: float
    log_factor: float
    only: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RecurringOrganization:
    """An organization: its workloads, each in one cell.

    Attributes:
        name: of the organization.
        cells: of each workload, [workloads].
        levels: log residual that each has on average, [workloads].
    """

    name: str
    cells: Positions
    levels: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RecurringYear:
    """The executions of an organization in some windows.

    Attributes:
        organization: whose.
        workloads: of each execution, [executions].
        residuals: log measured minus log predicted seconds, [executions].
    """

    organization: RecurringOrganization
    workloads: Positions
    residuals: Floats

    def residuals_by_workload(self) -> list[WorkloadResiduals]:
        """As the client's mechanism takes them."""
        return [
            WorkloadResiduals(self._cells()[mine], self.residuals[mine])
            for each in np.unique(self.workloads)
            if len(mine := np.flatnonzero(self.workloads == each))
        ]

    def _cells(self) -> Positions:
        return self.organization.cells[self.workloads]


def draw_organizations(
    count: int, workloads: int, rng: np.random.Generator
) -> tuple[RecurringOrganization, ...]:
    """Organizations with `workloads` on each platform, in a world drawn from the public prior."""
    truth = np.linalg.cholesky(DEFAULT_KERNEL.matrix()) @ rng.standard_normal(CELLS)
    return tuple(_drawn(str(number), truth, workloads, rng) for number in range(count))


def draw_executions(
    organization: RecurringOrganization,
    since: float,
    until: float,
    shifts: Sequence[PlatformShift],
    rng: np.random.Generator,
) -> RecurringYear:
    """Draw an organization's executions from window `since` until window `until`."""
    many = rng.poisson(EXECUTIONS * (until - since), len(organization.cells))
    workloads = np.repeat(np.arange(len(many)), many)
    moments = rng.uniform(since, until, len(workloads))
    residuals = organization.levels[workloads]
    residuals = residuals + EXECUTION_SD * rng.standard_normal(len(workloads))
    for shift in shifts:
        platform = np.array([cell.platform is shift.platform for cell in ALL_CELLS])
        if shift.only in (None, organization.name):
            hit = platform[organization.cells[workloads]] & (moments >= shift.at)
            residuals += shift.log_factor * hit
    return RecurringYear(organization, workloads, residuals)


def _drawn(
    name: str, truth: Floats, workloads: int, rng: np.random.Generator
) -> RecurringOrganization:
    platforms = np.array([cell.platform for cell in ALL_CELLS])
    cells = np.concatenate(
        [
            rng.choice(
                rng.choice(np.flatnonzero(platforms == each), CELLS_OF_A_PLATFORM, replace=False),
                workloads,
            )
            for each in USED
        ]
    )
    own = truth + DEFAULT_KERNEL.organization_sd * rng.standard_normal(CELLS)
    return RecurringOrganization(
        name, cells, own[cells] + WORKLOAD_SD * rng.standard_normal(len(cells))
    )
