"""One year of reports about recurring workloads, without a running coordinator.

Client and server functions run in the order of the calendar. Tests of the inference from
reports need many such years. The sums of all workloads are computed at once, which equals the
client's sums (`test_report_years`) and takes a hundredth of the time. `fedperf-sim run drift`
measures the product on such years.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import GRID_EXPONENT, NoiseSource, noisy
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.cell_directions import (
    CHANGE,
    CellPosterior,
    QueryResponses,
    design_cell_query,
    infer_cells,
)
from fedperf_server.inference.corrections import (
    DEFAULT_KERNEL,
    Kernel,
    QueryResponse,
    ReceivedReport,
)
from fedperf_server.inference.drift_evidence import (
    DEFAULT_PROCESS_NOISE,
    DriftReader,
    PlatformDrift,
    ProcessNoise,
)
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.kinds import DIRECTED_REPORT, RESIDUAL_REPORT, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import (
    DirectedParameters,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_simulations.experiments.drift.report_detection import (
    HISTORY,
    REFERENCE,
    PlatformShift,
    RecurringYear,
    draw_executions,
    draw_organizations,
    schedule_of,
)

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Year:
    """All releases of the organizations in one year."""

    plain: tuple[ReceivedReport, ...]
    query_responses: tuple[QueryResponses, ...]


def year_of_reports(
    workloads: int, organizations: int, shifts: Sequence[PlatformShift], seed: Sequence[int]
) -> Year:
    """Return a year in which `organizations` organizations report as planned.

    Each of them has `workloads` workloads on each platform.
    """
    rng = np.random.default_rng([*seed, 1])
    noise = SeededNoise([*seed, 2])
    group = draw_organizations(organizations, workloads, rng)

    def lived(since: float, window: int) -> list[RecurringYear]:
        return [draw_executions(each, since, window, shifts, rng) for each in group]

    return reported(schedule_of(workloads), lived, noise)


def reported(
    schedule: Schedule, lived_in: Callable[[float, int], list[RecurringYear]], noise: SeededNoise
) -> Year:
    """Return the releases of the organizations by `schedule`.

    Args:
        schedule: schedule of all organizations.
        lived_in: returns the executions of each organization between two times, in windows.
        noise: noise of the releases.
    """
    windows = sorted({slot.key.window for slot in schedule.slots})
    plain: list[ReceivedReport] = []
    query_responses: list[QueryResponses] = []
    learned: CellPosterior | None = None
    for since, window in zip([-HISTORY, *windows], windows, strict=False):
        lived = lived_in(since, window)
        for slot in schedule.slots:
            if slot.key.window != window:
                continue
            if kind_of(slot.parameters).has_query:
                new = query_responses if learned is None else query_responses[-1:]
                learned = infer_cells(plain, new, reference_version=REFERENCE, previous=learned)
                change = CHANGE if _is_later(slot.key, plain) else 0.0
                query_responses.append(
                    _asked_and_answered(
                        learned, lived, slot, noise, version=len(query_responses) + 1, change=change
                    )
                )
            else:
                parameters = RESIDUAL_REPORT.as_parameters(slot.parameters)
                plain += [plain_report(each, slot.key, parameters, noise) for each in lived]
                learned = None  # new plain reports: infer from scratch
    return Year(tuple(plain), tuple(query_responses))


def _asked_and_answered(
    learned: CellPosterior,
    lived: Sequence[RecurringYear],
    slot: Slot,
    noise: SeededNoise,
    *,
    version: int,
    change: float,
) -> QueryResponses:
    parameters = DIRECTED_REPORT.as_parameters(slot.parameters)
    question = design_cell_query(
        learned.correction,
        [
            (learned.organization_posterior(each.organization.name, parameters), parameters)
            for each in lived
        ],
        slot=slot.key,
        version=version,
        change=change,
    )
    answers: tuple[QueryResponse, ...] = tuple(
        answer(each, question, parameters, noise) for each in lived
    )
    return QueryResponses(question, answers)


def _is_later(key: SlotKey, plain: Sequence[ReceivedReport]) -> bool:
    return any(each.report.slot.window < key.window for each in plain)


def read_drifts(
    plain: Sequence[ReceivedReport],
    query_responses: Sequence[QueryResponses],
    *,
    kernel: Kernel = DEFAULT_KERNEL,
    process_noise: ProcessNoise = DEFAULT_PROCESS_NOISE,
) -> tuple[PlatformDrift, ...]:
    """Return the drifts that a new reader finds in all releases."""
    return DriftReader(kernel=kernel, process_noise=process_noise).read(plain, query_responses)


def plain_sum(lived: RecurringYear, clip: float) -> Positions:
    """Return the sum that `report_mechanism.noiseless_sum` computes, [2 * CELLS]."""
    cells, means = _means(lived, np.zeros(CELLS), np.full(CELLS, clip))
    total = np.zeros(2 * CELLS, dtype=np.int64)
    np.add.at(total, cells, _steps(np.full(len(cells), math.sqrt(0.5))))
    np.add.at(total, CELLS + cells, _steps(means / clip * math.sqrt(0.5)))
    return total


def fast_cell_sum(lived: RecurringYear, question: CellQuery) -> Positions:
    """Return the sum that `directed_report.cell_sum` computes, [values]."""
    cells, means = _means(lived, question.center, question.design.clips)
    found: Positions = _steps(question.design.directions[:, cells] * means).sum(axis=1)
    return found


def plain_report(
    lived: RecurringYear, slot: SlotKey, parameters: ReportParameters, noise: NoiseSource
) -> ReceivedReport:
    """Return the residual report of `slot`."""
    total = plain_sum(lived, parameters.residual_clip)
    made = noisy(total, noise, Slot(slot, parameters), version=REFERENCE)
    report = RESIDUAL_REPORT.as_release(made)
    return ReceivedReport(lived.organization.name, report, parameters)


def answer(
    lived: RecurringYear, question: CellQuery, parameters: DirectedParameters, noise: NoiseSource
) -> QueryResponse:
    """Return the response to `question`."""
    slot = Slot(question.slot, parameters)
    made = noisy(fast_cell_sum(lived, question), noise, slot, version=question.version)
    return QueryResponse(lived.organization.name, DIRECTED_REPORT.as_release(made), parameters)


def _means(lived: RecurringYear, center: Floats, clips: Floats) -> tuple[Positions, Floats]:
    """Return cell and mean clipped residual of each executed workload."""
    cells = lived.organization.cells[lived.workloads]
    clipped = np.clip(lived.residuals - center[cells], -clips[cells], clips[cells])
    executions = np.bincount(lived.workloads)
    ran = np.flatnonzero(executions)
    sums = np.bincount(lived.workloads, clipped)
    return lived.organization.cells[ran], sums[ran] / executions[ran]


def _steps(values: Floats) -> Positions:
    return np.trunc(np.ldexp(values, -GRID_EXPONENT)).astype(np.int64)
