"""Synthetic jobs whose run times follow a formula, in place of the public runs."""

import numpy as np
from numpy.typing import NDArray

from fedperf_simulations.data.shared_runs import (
    JobRuns,
    PublicConfigurations,
    RunsElsewhere,
    SharedJob,
)

Floats = NDArray[np.float64]


def made_up(
    title: str,
    *,
    level: float = 5.3,
    machines: float = -0.5,
    argument: float = 0.3,
    seed: int = 0,
) -> JobRuns:
    """Return 30 configurations: 2 to 12 machines, and input sizes over a factor of 4."""
    sizes = np.geomspace(1000, 4000, 5)
    counts = np.arange(2.0, 13.0, 2.0)
    inputs = np.array([[count, size] for count in counts for size in sizes])
    grid = PublicConfigurations(
        SharedJob(title, "", "", "m"), ("instance_count", "data_size_MB"), inputs
    )
    noise = np.random.default_rng(seed).normal(0, 0.03, len(inputs))
    return JobRuns(grid, np.exp(log_seconds(inputs, level, machines, argument) + noise))


def log_seconds(inputs: Floats, level: float, machines: float, argument: float) -> Floats:
    """Return the log seconds of the jobs without random deviations."""
    centred = np.log(inputs[:, 0]) - 1.88
    across = np.log(inputs[:, 1] / 2000) / np.log(2)
    return np.asarray(level + machines * centred + argument * across)


def others() -> list[JobRuns]:
    """Return three jobs that differ in level and slopes."""
    return [
        made_up("a", level=5.0, machines=-0.4, seed=1),
        made_up("b", level=5.3, machines=-0.6, argument=0.25, seed=2),
        made_up("c", level=5.6, machines=-0.7, argument=0.35, seed=3),
    ]


def elsewhere(level: float) -> RunsElsewhere:
    """Return six runs of the same job on another machine type that is a tenth slower."""
    inputs = np.array([[count, 2000.0] for count in np.arange(2.0, 13.0, 2.0)])
    return RunsElsewhere(
        np.full(6, "other"), inputs, np.exp(log_seconds(inputs, level + 0.1, -0.5, 0.3))
    )
