"""Organizations whose workloads do not recur: every window has new ones, in any number."""

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
"""Workloads of an organization per platform in a window of activity 1."""


def year_of_new_workloads(
    activity: Callable[[int], float],
    *,
    off_by: float,
    seed: Sequence[int],
    asked: bool = True,
) -> Year:
    """Return a year of three organizations without drift.

    Args:
        activity: number of workloads of a window, relative to `WORKLOADS`.
        off_by: error of the reference on all plans, log seconds.
        seed: seed of all random draws.
        asked: True if the coordinator sends linear queries, False for plain reports only.
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
    """Return new workloads like the organization's own, each executed once."""
    many = rng.poisson(activity * len(organization.cells))
    like = rng.integers(len(organization.cells), size=many)
    levels = organization.levels[like] + off_by
    residuals = levels + EXECUTION_SD * rng.standard_normal(many)
    new = RecurringOrganization(organization.name, organization.cells[like], levels)
    return RecurringYear(new, np.arange(many), residuals)
