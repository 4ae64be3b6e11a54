"""Public priors of a job's run times, before anything private is released.

Two priors over the public grid of a job, as Gaussian beliefs about log seconds:

* from the other jobs: a job at the middle of its grid takes what the others take at the middle of
  theirs. Run time falls with machines as it does for them, and crossing an argument's range from
  least to most work adds what it adds for them. A line through the other jobs says all three; how
  far jobs differ from it is a kernel fitted to them.
* the same, after runs of the same job on other machine types, which tell nearly everything but the
  machine type's own share.

The target job enters by its grid alone: no function here is handed its run times, so the line and
the kernel never see them. A person with all five jobs in sight, though, chose the features and the
centre of the kernel's hyperprior.
"""

from collections.abc import Sequence

import numpy as np

from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.data.shared_runs import (
    Floats,
    Integers,
    JobRuns,
    PublicConfigurations,
    RunsElsewhere,
)
from fedperf_simulations.federation.job_kernel import (
    RECORD_VARIANCE,
    JobKernel,
    JobPoints,
    fit_kernel,
)
from fedperf_simulations.federation.point_queries import condition, marginal

FEATURES = 4
"""Log machines, and up to three arguments; 0 where a job has fewer."""

LESS_IS_MORE_WORK = frozenset({"convergence_criterion"})
"""Arguments of which a smaller one means more work."""

KERNEL_ROWS = 60
"""Most rows of a job that the kernel is fitted to, so that small jobs count as well."""

KERNEL_START = JobKernel(
    level=0.01,
    slots=0.01,
    machine=0.02,
    job_and_machine=0.02,
    job=0.2,
    job_slots=0.05,
    job_size=0.02,
    job_parameters=0.02,
    single=0.01,
    pair=0.003,
    joint=0.003,
)
"""Centre of the hyperprior: jobs differ by a level and slopes around the common line."""


def features(grid: PublicConfigurations, inputs: Floats) -> Floats:
    """Features of `inputs` [rows, columns] on the scale of a public grid, [rows, FEATURES].

    Log machines, 0 in the mean of the grid; arguments from -1 (least work) to 1 (most
    work), linear in the log unless the grid touches 0.
    """
    scaled = np.zeros((len(inputs), FEATURES))
    scaled[:, 0] = np.log(inputs[:, 0]) - np.log(grid.inputs[:, 0]).mean()
    for position, name in enumerate(grid.columns[1:], start=1):
        known, asked = grid.inputs[:, position], inputs[:, position]
        if known.min() > 0:
            known, asked = np.log(known), np.log(asked)
        share = (asked - known.min()) / (known.max() - known.min())
        scaled[:, position] = (2 * share - 1) * (-1 if name in LESS_IS_MORE_WORK else 1)
    return scaled


def prior_from_other_jobs(
    target: PublicConfigurations, others: Sequence[JobRuns]
) -> GaussianPosterior:
    """The belief over the grid of `target`, [rows of the grid], from the runs of other jobs."""
    return _prior(target, others, None)


def prior_from_same_job(
    target: PublicConfigurations, others: Sequence[JobRuns], elsewhere: RunsElsewhere
) -> GaussianPosterior:
    """The belief from other jobs, after the runs of the same job on other machine types."""
    return _prior(target, others, elsewhere)


def _prior(
    target: PublicConfigurations, others: Sequence[JobRuns], elsewhere: RunsElsewhere | None
) -> GaussianPosterior:
    line, kernel = _common_line(others), _kernel(others)
    seen = _joined([_points(each.grid) for each in others])
    values = np.concatenate([np.log(each.seconds) for each in others])
    if elsewhere is not None:
        titles = np.full(len(elsewhere.seconds), target.job.title)
        same_job = JobPoints(titles, elsewhere.machine_types, features(target, elsewhere.inputs))
        seen = seen.joined(same_job)
        values = np.concatenate([values, np.log(elsewhere.seconds)])
    points = _points(target).joined(seen)
    asked, known = np.arange(len(target)), np.arange(len(target), len(points))
    start = GaussianPosterior(_regressors(points.features) @ line, kernel.covariance(points))
    return marginal(condition(start, known, values, RECORD_VARIANCE), asked)


def _common_line(jobs: Sequence[JobRuns]) -> Floats:
    """Level, slope over machines, slope over every argument; each job counts the same."""
    weights = [np.full(len(each), len(each) ** -0.5) for each in jobs]
    rows = [_regressors(features(each.grid, each.grid.inputs)) for each in jobs]
    weight = np.concatenate(weights)
    values = np.concatenate([np.log(each.seconds) for each in jobs])
    line, *_ = np.linalg.lstsq(np.concatenate(rows) * weight[:, None], values * weight)
    return np.asarray(line, dtype=np.float64)


def _kernel(jobs: Sequence[JobRuns]) -> JobKernel:
    """How far jobs lie from their common line."""
    line = _common_line(jobs)
    points, residuals = [], []
    for each in jobs:
        chosen = np.unique(np.linspace(0, len(each) - 1, KERNEL_ROWS).astype(np.int64))
        points.append(_points(each.grid, chosen))
        expected = _regressors(points[-1].features) @ line
        residuals.append(np.log(each.seconds[chosen]) - expected)
    return fit_kernel(_joined(points), np.concatenate(residuals), start=KERNEL_START)


def _points(grid: PublicConfigurations, rows: Integers | None = None) -> JobPoints:
    """All rows of a grid, or some."""
    inputs = grid.inputs if rows is None else grid.inputs[rows]
    return JobPoints(
        np.full(len(inputs), grid.job.title),
        np.full(len(inputs), grid.job.machine_type),
        features(grid, inputs),
    )


def _regressors(found: Floats) -> Floats:
    return np.column_stack([np.ones(len(found)), found[:, 0], found[:, 1:].sum(axis=1)])


def _joined(parts: Sequence[JobPoints]) -> JobPoints:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.joined(part)
    return whole
