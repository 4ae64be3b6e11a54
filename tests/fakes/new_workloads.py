"""Organizations whose workloads do not recur: as many new ones as they please, in every window."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedperf_memory.seeded_noise import SeededNoise
from fedperf_simulations.experiments.drift.report_detection import (
    EXECUTION_SD,
    RecurringOrganization,
    RecurringYear,
    draw_organizations,
    schedule_of,
)
from tests.fakes.report_years import Year, reported

WORKLOADS = 200
"""Of an organization on each platform in a usual window."""


def year_of_new_workloads(
    activity: Callable[[int], float],
    *,
    off_by: float,
    seed: Sequence[int],
    asked: bool = True,
) -> Year:
    """A year of three organizations in which nothing drifts.

    Args:
        activity: how many times the usual workloads the reports of a window are about.
        off_by: how far the reference is off everywhere, log seconds.
        seed: of everything.
        asked: whether the coordinator asks questions; else reports are plain.
    """
    rng, noise = np.random.default_rng([*seed, 1]), SeededNoise([*seed, 2])
    group = draw_organizations(3, WORKLOADS, rng)
    schedule = schedule_of(WORKLOADS)
    if not asked:
        first_stages = tuple(slot for slot in schedule.slots if slot.key.index == 0)
        schedule = replace(schedule, slots=first_stages)

    def lived(since: float, window: int) -> list[RecurringYear]:
        return [_drawn(each, activity(window), off_by, rng) for each in group]

    return reported(schedule, lived, noise)


def _drawn(
    organization: RecurringOrganization, activity: float, off_by: float, rng: np.random.Generator
) -> RecurringYear:
    """New workloads like the organization's own, each executed once."""
    many = rng.poisson(activity * len(organization.cells))
    like = rng.integers(len(organization.cells), size=many)
    levels = organization.levels[like] + off_by
    residuals = levels + EXECUTION_SD * rng.standard_normal(many)
    new = RecurringOrganization(organization.name, organization.cells[like], levels)
    return RecurringYear(new, np.arange(many), residuals)
