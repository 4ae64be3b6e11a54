"""Directed reports about cells, computed in one step from the residuals of workloads."""

from collections.abc import Iterable

from fedperf_client.contributions.mechanisms import (
    NoiseSource,
    WorkloadResiduals,
    noisy,
    sum_cell_query,
)
from fedperf_shared.releases.kinds import DIRECTED_REPORT
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import DirectedParameters, DirectedReport, Slot, SlotKey


def cell_report(
    workloads: Iterable[WorkloadResiduals],
    question: CellQuery,
    noise: NoiseSource,
    *,
    slot: SlotKey,
    parameters: DirectedParameters,
) -> DirectedReport:
    """Return the response to the query of `slot`, computed by the client's mechanism."""
    total = sum_cell_query(workloads, question)
    made = noisy(total, noise, Slot(slot, parameters), version=question.version)
    return DIRECTED_REPORT.as_release(made)
