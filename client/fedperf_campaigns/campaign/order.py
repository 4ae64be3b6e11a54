"""The order in which the configurations of a campaign are measured.

A `Sampler` names a row of the grid again and again; the n-th time it names a row stands for the
row's n-th repetition. "full" runs repetitions as blocks: every configuration once in random order,
then again in another order. So a machine that gets slower, or is disturbed for a while, spoils no
configuration more than others. Strategies that choose by what was measured get all repetitions of a
configuration at once.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from fedperf_campaigns.campaign.definition import Campaign
from fedperf_campaigns.sampling import Strategy


class Sampler(Protocol):
    """Chooses configurations; deterministic given its seed and what was measured."""

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """The row of the grid to measure next; None to stop.

        Args:
            measured: row to median seconds of its ok repeats, in the order of measuring.
            unavailable: rows that failed for good.
        """
        ...

    @property
    def reason(self) -> str:
        """Why it stopped, for people."""
        ...


class Blocks:
    """Every configuration once in random order, then again in another, as a `Sampler`."""

    def __init__(self, rows: int, *, repetitions: int, seed: int) -> None:
        """All turns of `rows` configurations."""
        self._turns = (
            int(row)
            for block in range(repetitions)
            for row in np.random.default_rng([seed, 11, block]).permutation(rows)
        )

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """As `Sampler`."""
        del measured
        return next((row for row in self._turns if row not in unavailable), None)

    @property
    def reason(self) -> str:
        """As `Sampler`."""
        return "every configuration had its turns"


class AllAtOnce:
    """The choices of another sampler, every row as often as there are repetitions."""

    def __init__(self, chosen_by: Sampler, *, repetitions: int) -> None:
        """Ask `chosen_by` once in `repetitions` turns."""
        self._chosen_by = chosen_by
        self._repetitions = repetitions
        self._row: int | None = None
        self._left = 0

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """As `Sampler`."""
        if self._left == 0 or self._row in unavailable:
            self._row = self._chosen_by.next(measured, unavailable)
            self._left = self._repetitions
        self._left -= 1
        return self._row

    @property
    def reason(self) -> str:
        """As `Sampler`."""
        return self._chosen_by.reason


def sampler_of(campaign: Campaign) -> Sampler:
    """The sampler that the campaign asks for, at its beginning."""
    run, sampling = campaign.settings.run, campaign.settings.sampling
    if sampling.strategy is Strategy.FULL:
        rows = len(campaign.grid.configurations)
        return Blocks(rows, repetitions=run.repetitions, seed=run.seed)
    return AllAtOnce(_choosing(campaign), repetitions=run.repetitions)


def _choosing(campaign: Campaign) -> Sampler:
    from fedperf_campaigns.sampling.sampler import GridSampler, SamplingGrid

    sampling, grid = campaign.settings.sampling, campaign.grid
    return GridSampler(
        SamplingGrid.of(grid.table(), scale=grid.parallelism_column, size=grid.size_column),
        sampling.strategy,
        target_mape=sampling.target_mape,
        patience=sampling.patience,
        max_configurations=sampling.max_configurations,
        seed=campaign.settings.run.seed,
    )
