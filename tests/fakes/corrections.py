"""Corrections computed from reports in the first step of the cell posterior."""

from collections.abc import Sequence

from fedperf_server.inference.corrections import (
    CellCorrectionPosterior,
    ReceivedReport,
    correct_sums,
    pool_by_organization,
)


def correct(
    reports: Sequence[ReceivedReport], *, reference_version: int
) -> CellCorrectionPosterior:
    """Return the correction from reports that all refer to `reference_version`."""
    sums = pool_by_organization(reports, reference_version=reference_version)
    return correct_sums(sums, reference_version=reference_version)
