"""Simulated residual reports for the tests of all modules that read them."""

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.corrections import ReceivedReport
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS, contribution
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, ResidualReport, SlotKey

GRID_EXPONENT = -8
CLIP = 3.0
EXECUTION_SD = 0.5


def simulated_report(
    rng: np.random.Generator,
    truth: NDArray[np.float64],
    *,
    organization: str = "one",
    workloads: int = 500,
    cells: int = 20,
    noise_multiplier: float = 1.4,
    slot: int = 0,
) -> ReceivedReport:
    """Return the report of an organization whose workloads lie in the first `cells` cells."""
    total = np.zeros(2 * CELLS)
    for cell in rng.integers(cells, size=workloads):
        residual = truth[cell] + EXECUTION_SD * rng.standard_normal()
        total += contribution(np.array([cell]), np.array([residual]), CLIP)
    total += noise_multiplier * rng.standard_normal(2 * CELLS)
    return received(total, organization, noise_multiplier=noise_multiplier, slot=slot)


def received(
    total: NDArray[np.float64],
    organization: str,
    *,
    noise_multiplier: float,
    slot: int = 0,
    reference_version: int = 1,
) -> ReceivedReport:
    """Return `total` rounded to the grid, as the server stores it."""
    values = np.round(np.ldexp(total, -GRID_EXPONENT)).astype(np.int64)
    key = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, slot)
    report = ResidualReport(key, BASIS_VERSION, reference_version, GRID_EXPONENT, values)
    return ReceivedReport(organization, report, ReportParameters(noise_multiplier, CLIP))
