"""Synthetic drift observations: one execution a minute, of jobs with different levels."""

from datetime import UTC, datetime, timedelta

import numpy as np

from fedperf_client.prediction.ensemble.changes import DriftObservations

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def observed(
    count: int = 300,
    *,
    seed: int = 0,
    shift: float = 0.0,
    at: int = 150,
    jobs: int = 10,
    cell: int = 0,
    sd: float = 0.2,
    spread: float = 0.8,
) -> DriftObservations:
    """Return observations that are longer by `shift` from position `at` on.

    The levels of jobs have standard deviation `spread`, in log seconds.
    """
    rng = np.random.default_rng(seed)
    level, size = rng.normal(0.0, spread, jobs), rng.uniform(0.0, 9.0, jobs)
    job = rng.integers(jobs, size=count)
    later = np.arange(count) >= at
    residuals = level[job] + sd * rng.standard_normal(count) + shift * later
    inputs = np.column_stack([size[job], np.zeros(count)])
    moments = [BEGIN + number * MINUTE for number in range(count)]
    return DriftObservations(np.full(count, cell), job, residuals, inputs, moments)
