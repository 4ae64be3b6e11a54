"""Few runs of one job, shared by releases beside a public prior.

The runs of an organization lie on the public grid of a job, one workload each. Stage by
stage the server asks for a few directions over the whole grid, the organization answers
by a directed report (clipped log residuals, one Gaussian), and the belief is updated. How
many stages there are follows from the declared number of runs and epsilon alone, never
from a private fit. In the end everybody labels the public grid by the belief: these
synthetic rows are post-processing, as many as the grid has, and cost nothing more.

Adjacency is add or remove one run, its configuration included: the design spans the whole
grid, so what is sent shows neither run time nor place of a single run beyond epsilon. Grid
and number of runs are declared; that the runs lie evenly on the grid is assumed in reading
the answers, never needed for privacy. What the same noise is worth against the replacement
of one run by another is printed beside.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.contributions.mechanisms import NoiseSource, PointResiduals
from fedperf_client.release import accountant
from fedperf_server.inference.cell_directions import STAGES, Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, SlotKey
from fedperf_simulations.data.shared_runs import Floats, Integers
from fedperf_simulations.federation.channel import directed_report
from fedperf_simulations.federation.grid_points import design_grid_query, learn_on_grid
from fedperf_simulations.federation.job_kernel import RECORD_VARIANCE
from fedperf_simulations.federation.point_queries import stage_noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent

DELTA = 1e-5

ONE_STAGE = (Stage(1.0, 1.0),)
TWO_STAGES = (Stage(0.4, 1.5), Stage(0.6, 1.0))

ONE_STAGE_BELOW = 6.0
TWO_STAGES_BELOW = 20.0
"""Declared runs per unit of noise; chosen like the stages on splits that no default run uses."""

DIRECTIONS = 4


def planned_stages(declared: int, epsilon: float) -> tuple[Stage, ...]:
    """The stages of `declared` runs at `epsilon`: the more there is to learn, the more."""
    strength = declared / noise_multiplier(ONE_STAGE, epsilon)
    if strength < ONE_STAGE_BELOW:
        return ONE_STAGE
    return TWO_STAGES if strength < TWO_STAGES_BELOW else STAGES


@lru_cache
def noise_multiplier(stages: tuple[Stage, ...], epsilon: float) -> float:
    """Noise of one release as costly as all stages, which cost (epsilon, `DELTA`) together."""
    budget = accountant.PrivacyBudget(epsilon, DELTA)
    return accountant.calibrate(partial(_events, stages), budget)


def replace_one_epsilon(epsilon: float) -> float:
    """The epsilon of releases at `epsilon` against the replacement of one run by another.

    Gaussians compose exactly, so it does not depend on the stages.
    """
    events = _events(ONE_STAGE, noise_multiplier(ONE_STAGE, epsilon))
    return accountant.replace_one_epsilon(events, DELTA)


def shared_belief(
    start: GaussianPosterior,
    rows: Integers,
    log_seconds: Floats,
    *,
    declared: int,
    epsilon: float,
    noise: NoiseSource,
) -> GaussianPosterior:
    """Everybody's belief after an organization has shared its runs at `epsilon`.

    Args:
        start: public belief over the grid.
        rows: where on the grid the runs lie, each at another point, [runs].
        log_seconds: what they took, [runs].
        declared: number of runs that the organization declared.
        epsilon: of all stages together.
        noise: of the releases.
    """
    stages = planned_stages(declared, epsilon)
    whole = noise_multiplier(stages, epsilon)
    belief = start
    for index, stage in enumerate(stages):
        multiplier = stage_noise(stage, whole)
        design = design_grid_query(
            belief,
            declared,
            kappa=stage.kappa,
            noise_multiplier=multiplier,
            record_variance=RECORD_VARIANCE,
            directions=DIRECTIONS,
        )
        report = directed_report(
            _workloads(rows, log_seconds - belief.mean[rows]),
            design,
            noise,
            slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, index),
            noise_multiplier=multiplier,
            design_version=index + 1,
        )
        belief = learn_on_grid(
            belief,
            design,
            [report],
            [declared],
            noise_multiplier=multiplier,
            record_variance=RECORD_VARIANCE,
        ).posterior
    return belief


def synthetic_seconds(belief: GaussianPosterior) -> Floats:
    """Labels of the grid, seconds: those with the least expected relative error.

    Under a log-normal belief |label / truth - 1| is least in expectation at
    exp(mean - variance): whoever is unsure had better promise less.
    """
    return np.asarray(np.exp(belief.mean - belief.variances()), dtype=np.float64)


def _workloads(rows: Integers, residuals: Floats) -> list[PointResiduals]:
    """Every run as a workload of one execution."""
    return [PointResiduals(rows[at : at + 1], residuals[at : at + 1]) for at in range(len(rows))]


def _events(stages: Sequence[Stage], whole: float) -> "list[DpEvent]":
    """A clip does not matter for the cost."""
    return [
        accountant.to_event(ReportParameters(stage_noise(stage, whole), 1.0)) for stage in stages
    ]
