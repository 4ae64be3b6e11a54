"""Simulated organizations with workloads in cells that respond with the client's mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server.inference.cell_directions import (
    CellPosterior,
    QueryResponses,
    design_cell_query,
    infer_cells,
)
from fedperf_server.inference.corrections import DEFAULT_KERNEL, QueryResponse, ReceivedReport
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import (
    DirectedParameters,
    ReleaseKind,
    ReportParameters,
    SlotKey,
)
from tests.fakes.cell_reports import cell_report
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise

Floats = NDArray[np.float64]

PLAIN = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
REFERENCE = 1


def stage(index: int) -> SlotKey:
    return SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, index)


def draw_truth(rng: np.random.Generator) -> Floats:
    root = np.linalg.cholesky(DEFAULT_KERNEL.matrix())
    return np.asarray(root @ rng.standard_normal(CELLS))


@dataclass(frozen=True)
class Member:
    """Organization whose workloads have one execution each."""

    name: str
    workloads: Sequence[WorkloadResiduals]
    noise: SeededNoise

    def plain(self, noise_multiplier: float, *, public_counts: bool = False) -> ReceivedReport:
        parameters = ReportParameters(noise_multiplier, 3.0, public_counts)
        report = residual_report(
            self.workloads,
            self.noise,
            slot=PLAIN,
            parameters=parameters,
            reference_version=REFERENCE,
        )
        return ReceivedReport(self.name, report, parameters)

    def answer(self, question: CellQuery, noise_multiplier: float) -> QueryResponse:
        parameters = DirectedParameters(noise_multiplier, len(self.workloads))
        report = cell_report(
            self.workloads, question, self.noise, slot=question.slot, parameters=parameters
        )
        return QueryResponse(self.name, report, parameters)


def members(
    truth: Floats, *, seed: int, count: int = 4, workloads: int = 200, cells: int = 24
) -> list[Member]:
    """Draw organizations whose workloads lie in the same `cells` cells."""
    rng = np.random.default_rng([seed, 7])
    places = rng.choice(CELLS, size=cells, replace=False)
    found = []
    for number in range(count):
        own = truth + DEFAULT_KERNEL.organization_sd * rng.standard_normal(CELLS)
        drawn = rng.choice(places, size=workloads)
        residuals = own[drawn] + DEFAULT_KERNEL.execution_sd * rng.standard_normal(workloads)
        found.append(
            Member(
                str(number),
                [
                    WorkloadResiduals(np.array([cell]), np.array([residual]))
                    for cell, residual in zip(drawn, residuals, strict=True)
                ],
                SeededNoise(1000 * seed + number),
            )
        )
    return found


def asked(
    learned: CellPosterior, group: Sequence[Member], noise_multiplier: float, *, index: int = 1
) -> CellQuery:
    senders = [
        (
            learned.organization_posterior(
                each.name, parameters := declared(each, noise_multiplier)
            ),
            parameters,
        )
        for each in group
    ]
    return design_cell_query(learned.correction, senders, slot=stage(index), version=index)


def declared(member: Member, noise_multiplier: float) -> DirectedParameters:
    return DirectedParameters(noise_multiplier, len(member.workloads))


def learned_in_stages(
    group: Sequence[Member],
    *,
    plain: float | None,
    directed: Sequence[float],
    public_counts: bool = False,
) -> tuple[list[ReceivedReport], list[QueryResponses], CellPosterior]:
    """Simulate plain reports and one directed stage for each noise multiplier.

    `plain` is the noise multiplier of the plain reports. None means no plain reports.
    """
    reports = (
        [] if plain is None else [each.plain(plain, public_counts=public_counts) for each in group]
    )
    query_responses: list[QueryResponses] = []
    learned = infer_cells(reports, query_responses, reference_version=REFERENCE)
    for index, noise in enumerate(directed, start=1):
        question = asked(learned, group, noise, index=index)
        answers = tuple(each.answer(question, noise) for each in group)
        query_responses.append(QueryResponses(question, answers))
        learned = infer_cells(reports, query_responses, reference_version=REFERENCE)
    return reports, query_responses, learned


def occupied(group: Sequence[Member]) -> NDArray[np.int64]:
    cells = np.concatenate([each.cells for member in group for each in member.workloads])
    return np.unique(cells)
