"""Replayed campaigns, over configurations whose run times are known already.

A campaign starts with nothing and asks the product's sampler for one configuration after
the other of a job's grid. At some numbers of configurations the product's mix of the
candidates for tables, learnt from what was measured so far, is judged on configurations
that are not in the grid. One configuration is one run here: its median of five repeats.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.campaign.definition import Strategy
from fedperf_campaigns.campaign.sampling import GridSampler, SamplingGrid
from fedperf_campaigns.tables.layout import TableLayout
from fedperf_campaigns.tables.learners import table_learners
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import ScaleAndSize
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_simulations.baselines.table_mixture import mixed_for
from fedperf_simulations.data.c3o_scenarios import (
    NODES,
    SIZE,
    Executions,
    ScenarioParts,
    medians,
    of_job,
)
from fedperf_simulations.harness.experiment import Row

HELD_OUT = 0.25
"""Of the configurations of a job, who are asked about."""

TARGET, PATIENCE = 0.05, 3
"""Of the rule that stops a campaign."""

WHERE_STOPPED = " where stopped"
"""In the names of a cell, instead of a number of configurations."""

NOTHING_FAILED: frozenset[int] = frozenset()


def divided(data: Path | None, job: str, rng: np.random.Generator) -> ScenarioParts:
    """The grid of a job, and what is asked about.

    Raises:
        MissingDataError: there is no folder, or the job's file is not in it.
    """
    configurations = medians(of_job(data, job))
    count = len(configurations.seconds)
    asked = np.zeros(count, np.bool_)
    asked[rng.permutation(count)[: round(HELD_OUT * count)]] = True
    return ScenarioParts(configurations.where(~asked), configurations.where(asked))


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedCampaign:
    """The measured configurations of a campaign, one after the other.

    Attributes:
        rows: of the grid, in the order of measuring.
        stopped_at: how many there were when the rule would have stopped; None where it did not.
        slowest_step: CPU seconds of the longest choice, without the first, which imports.
    """

    rows: tuple[int, ...]
    stopped_at: int | None
    slowest_step: float

    @classmethod
    def over(
        cls, grid: Executions, strategy: Strategy, *, target: float | None, most: int, seed: int
    ) -> Self:
        """Run until `most` configurations are measured, whatever the rule says.

        Args:
            grid: with what each configuration takes.
            strategy: by which they are chosen.
            target: share, of the rule that would have stopped it; None not to ask the rule.
            most: configurations.
            seed: of the sampler.
        """
        stopping = _sampler(grid, strategy, target=target, most=most, seed=seed)
        measured, steps = _measured(stopping, grid, {})
        stopped_at = len(measured) if len(measured) < min(most, len(grid.seconds)) else None
        going_on = _sampler(grid, strategy, target=None, most=most, seed=seed)
        measured, more = _measured(going_on, grid, measured)
        return cls(tuple(measured), stopped_at, max((*steps[1:], *more), default=0.0))


def judged(parts: ScenarioParts, campaign: ReplayedCampaign, numbers: Collection[int]) -> Row:
    """Errors and costs of a campaign, by name and number of configurations.

    MAPE is in percent; a cost is the sum of seconds x machines of what was measured.
    """
    layout = TableLayout.of(parts.known.table, scale=NODES, size=SIZE)
    machines = np.array(parts.known.table[NODES], dtype=np.float64)
    row: dict[str, float | None] = {
        "stopped at": campaign.stopped_at,
        "slowest step": round(campaign.slowest_step, 3),
    }
    asked = {f" {each}": each for each in numbers if each <= len(campaign.rows)}
    if campaign.stopped_at is not None:
        asked |= {WHERE_STOPPED: campaign.stopped_at}
    for name, number in asked.items():
        rows = np.array(campaign.rows[:number], np.int64)
        row[f"mape{name}"] = _error(parts, layout, rows)
        row[f"cost{name}"] = float(parts.known.seconds[rows] @ machines[rows])
    return row


def _sampler(
    grid: Executions, strategy: Strategy, *, target: float | None, most: int, seed: int
) -> GridSampler:
    return GridSampler(
        SamplingGrid.of(grid.table, scale=NODES, size=SIZE),
        strategy,
        target_mape=target,
        patience=PATIENCE,
        max_configurations=most,
        seed=seed,
    )


def _measured(
    choosing: GridSampler, grid: Executions, before: Mapping[int, float]
) -> tuple[dict[int, float], list[float]]:
    """What was measured when it stops, and the CPU seconds of each step."""
    measured, steps = dict(before), list[float]()
    while True:
        begun = time.process_time()
        row = choosing.next(measured, NOTHING_FAILED)
        steps.append(time.process_time() - begun)
        if row is None:
            return measured, steps
        measured[row] = float(grid.seconds[row])


def _error(parts: ScenarioParts, layout: TableLayout, rows: NDArray[np.int64]) -> float:
    """MAPE in percent on what is asked about, learnt from those rows of the grid."""
    samples, asked = (layout.samples(each.table) for each in (parts.known, parts.asked))
    along = (layout.scale_feature, layout.size_feature)
    places, questions = (
        ScaleAndSize(*(each.features[:, place] for place in along))
        for each in (samples.take(rows), asked)
    )
    log_seconds = np.log(parts.known.seconds[rows])
    known = TrainingSet(samples.take(rows), log_seconds, places, np.arange(len(rows)))
    # Folds that leave single configurations out: what is asked about was drawn like the grid.
    mixture = mixed_for(QueryRegime.SEEN, questions, known, table_learners(layout))
    return 100 * float(np.mean(np.abs(np.exp(mixture(asked)) / parts.asked.seconds - 1)))


def stays_below(limit: float, errors: Mapping[int, float]) -> int | None:
    """The first number from which on all errors are below `limit`; None where there is none."""
    above = [number for number, error in errors.items() if not error < limit]
    return min((each for each in errors if each > max(above, default=-1)), default=None)


def mean_over(cells: Sequence[Row], what: str, numbers: Iterable[int]) -> dict[int, Floats]:
    """Values of `what`, [seeds], for the numbers that every cell has."""
    return {
        number: np.array([cell[f"{what} {number}"] for cell in cells], dtype=np.float64)
        for number in numbers
        if all(f"{what} {number}" in cell for cell in cells)
    }
