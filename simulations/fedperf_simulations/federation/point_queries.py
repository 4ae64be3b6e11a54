"""Linear queries over arbitrary points of a Gaussian posterior, for experiments on the channel.

The product designs one query over the public cells for all organizations
(`fedperf_server.inference.cell_directions`). Here every sender has points of its own, its own noise
and its own design. Everything is a function of public data and releases and costs no privacy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.cell_directions import (
    GRID,
    Stage,
    optimize_directions,
    round_to_grid,
)
from fedperf_server.inference.gaussian_process import (
    GaussianPosterior,
    Observation,
    Update,
    posterior_gain,
    update,
)
from fedperf_shared.releases.linear_queries import Design, public_design
from fedperf_shared.releases.release import DirectedReport, InvalidReleaseError

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

DIRECTIONS = 16


def stage_noise(stage: Stage, total: float) -> float:
    """Return the stage's noise if all stages together cost as one with noise `total`."""
    return total / math.sqrt(stage.share)


def marginal(posterior: GaussianPosterior, positions: Positions) -> GaussianPosterior:
    """Return the posterior of some of the points."""
    return GaussianPosterior(
        posterior.mean[positions], posterior.covariance[np.ix_(positions, positions)]
    )


@dataclass(frozen=True, slots=True, eq=False)
class QueryDesign:
    """The query of a stage: points and a design for every sender.

    Attributes:
        points: positions in the posterior of each sender's points, [sender][points].
        designs: one per sender.
    """

    points: tuple[Positions, ...]
    designs: tuple[Design, ...]


def design_query(
    current: GaussianPosterior,
    senders: Sequence[Positions],
    targets: Positions,
    *,
    kappa: float,
    noise_multiplier: float,
    record_variance: float,
    directions: int = DIRECTIONS,
) -> QueryDesign:
    """Design the query of one stage.

    Args:
        current: posterior of all points, the senders' and the targets.
        senders: position of each workload of a sender, a point as often as it has workloads. Use
            one sender for all with secure aggregation under one noise.
        targets: positions of the target points.
        kappa: clip in standard deviations of the predictive distribution of a record.
        noise_multiplier: noise multiplier of each sender.
        record_variance: variance of a record around its point, (log seconds)^2.
        directions: number of directions per sender.
    """
    merged = [np.unique(each, return_inverse=True, return_counts=True) for each in senders]
    positions = np.concatenate([points for points, _, _ in merged])
    counts = np.concatenate([count for _, _, count in merged])
    clips = np.maximum(
        round_to_grid(kappa * np.sqrt(current.variances()[positions] + record_variance)), GRID
    )
    crossed = current.covariance[np.ix_(positions, targets)]
    # For the mean of a point's records. Columns for their sum are scaled by the counts below.
    columns = optimize_directions(
        current.covariance[np.ix_(positions, positions)] + np.diag(record_variance / counts),
        crossed @ crossed.T / len(targets),
        clips / counts,
        noise_variance=noise_multiplier**2,
        directions=directions,
        sizes=[len(points) for points, _, _ in merged],
    )
    edges = np.cumsum([0, *(len(points) for points, _, _ in merged)])
    designs = tuple(
        public_design((columns / counts)[:, a:b][:, inverse], clips[a:b][inverse])
        for (a, b), (_, inverse, _) in zip(pairwise(edges), merged, strict=True)
    )
    return QueryDesign(tuple(senders), designs)


def infer(
    current: GaussianPosterior,
    query: QueryDesign,
    reports: Sequence[DirectedReport | None],
    *,
    noise_multiplier: float,
    record_variance: float,
) -> Update:
    """Return the posterior after the responses of a stage.

    Args:
        current: posterior before the stage.
        query: query of the stage, with one design per sender.
        reports: one per sender, in the order of the designs; None if missing.
        noise_multiplier: standard deviation of the noise in each value of a report.
        record_variance: variance of a record around its point, (log seconds)^2.

    Raises:
        InvalidReleaseError: the number of responses differs from the number of senders, or a
            response has another length than its design.
    """
    if len(reports) != len(query.designs):
        raise InvalidReleaseError(
            f"{len(reports)} responses to a query for {len(query.designs)} senders"
        )
    observations = [
        _observation(current, points, design, report, noise_multiplier, record_variance)
        for points, design, report in zip(query.points, query.designs, reports, strict=True)
        if report is not None
    ]
    return update(current, observations)


def _observation(
    current: GaussianPosterior,
    points: Positions,
    design: Design,
    report: DirectedReport,
    noise_multiplier: float,
    record_variance: float,
) -> Observation:
    if report.values.shape != (design.values,):
        raise InvalidReleaseError(
            f"a response has the shape {report.values.shape}, its design {design.values} values"
        )
    matrix = np.zeros((design.values, len(current.mean)))
    np.add.at(matrix.T, points, design.directions.T)
    noise = record_variance * design.directions @ design.directions.T
    return Observation(
        matrix, report.natural(), noise + noise_multiplier**2 * np.eye(design.values)
    )


def condition(
    prior: GaussianPosterior, positions: Positions, values: Floats, noise: float
) -> GaussianPosterior:
    """Return the posterior after public measurements at some points, without scaling.

    Args:
        prior: posterior before the measurements.
        positions: positions of the measured points, [measured].
        values: measured log seconds, [measured].
        noise: variance of a measurement.
    """
    matrix = np.zeros((len(positions), len(prior.mean)))
    matrix[np.arange(len(positions)), positions] = 1.0
    measured = Observation(matrix, values - prior.mean[positions], noise * np.eye(len(positions)))
    gain, removed = posterior_gain(prior, [measured], 1.0)
    covariance = prior.covariance - removed
    return GaussianPosterior(prior.mean + gain @ measured.values, (covariance + covariance.T) / 2)
