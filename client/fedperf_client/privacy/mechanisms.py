"""The mechanism of every noisy sum, one row per kind: the release made of sum and noise.

A release is noise alone first (`noise_alone`); its sum, computed elsewhere, is added after
(`with_sum`), so that a sum that fails or comes too late costs the sum only. The noise is the same
for all (`report_mechanism.with_noise`); what bounds a workload is argued where its kind sums up.
A kind that is removed has no row.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.directed_report import cell_sum
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.privacy.report_mechanism import (
    GRID_EXPONENT,
    WorkloadResiduals,
    noiseless_sum,
    with_noise,
)
from fedperf_shared.releases import kinds
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import (
    DirectedReport,
    LinearizedUpdate,
    NoisySum,
    ResidualReport,
    Slot,
    SlotKey,
)

Sum = NDArray[np.int64]
SumOf = Callable[[Iterable[WorkloadResiduals]], Sum]
"""Bounds every workload and sums up; can be pickled."""

MADE: Mapping[kinds.AnyKind, Callable[[SlotKey, int, Sum], NoisySum]] = {
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
"""Constructors of releases from slot, version and noisy values."""


def noisy(total: Sum, noise: NoiseSource, slot: Slot, *, version: int) -> NoisySum:
    """The release of `slot` from its noiseless sum, a function of arguments and `noise`.

    Args:
        total: private, as long as the slot's kind says.
        noise: makes the one discrete Gaussian.
        slot: of a noisy sum, from the schedule.
        version: public, of the model that it is about, or of the question over the cells.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    values = with_noise(total, noise, slot.parameters)
    return MADE[kinds.kind_of(slot.parameters)](slot.key, version, values)


def noise_alone(noise: NoiseSource, slot: Slot, *, version: int) -> NoisySum:
    """The release of `slot` where there is nothing to sum up; as `noisy`."""
    size = kinds.kind_of(slot.parameters).numbers or 0
    return noisy(np.zeros(size, dtype=np.int64), noise, slot, version=version)


def with_sum(release: NoisySum, total: Sum) -> NoisySum:
    """The release of `noise_alone` with its noiseless sum."""
    return replace(release, values=release.values + total)


def sum_of(slot: Slot, question: CellQuery | None) -> SumOf:
    """Return the sums of a report slot: a linear query's, or residuals on the public basis."""
    if question is not None:
        return partial(cell_sum, question=question)
    planned = kinds.RESIDUAL_REPORT.as_parameters(slot.parameters)
    return partial(noiseless_sum, clip=planned.residual_clip)
