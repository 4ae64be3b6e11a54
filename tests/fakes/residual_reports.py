"""A residual report with noise, made in one step from workloads."""

from collections.abc import Iterable

from fedperf_client.contributions.mechanisms import (
    NoiseSource,
    WorkloadResiduals,
    noisy,
    sum_residuals,
)
from fedperf_shared.releases.kinds import RESIDUAL_REPORT
from fedperf_shared.releases.release import ReportParameters, ResidualReport, Slot, SlotKey


def residual_report(
    workloads: Iterable[WorkloadResiduals],
    noise: NoiseSource,
    *,
    slot: SlotKey,
    parameters: ReportParameters,
    reference_version: int,
) -> ResidualReport:
    """Return the report of `slot` about `workloads`."""
    total = sum_residuals(workloads, parameters.residual_clip)
    report = noisy(total, noise, Slot(slot, parameters), version=reference_version)
    return RESIDUAL_REPORT.as_release(report)
