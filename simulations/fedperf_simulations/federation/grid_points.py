"""Learning from directed reports of workloads that lie somewhere on a public grid.

The server queries every point of the grid, with or without a workload, and each sender adds up its
own workloads: one vector of norm at most 1 by the norm rule of
`fedperf_shared.releases.linear_queries`, which hides where the workload lies as well as what it
took. The grid and each sender's declared number of workloads are public. It takes them as distinct
points drawn evenly from the grid: what another draw would have summed up to is one more noise,
computed from the posterior.

Post-processing of releases only: costs no privacy; the bounds of `gaussian_process` hold.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import GaussianPosterior, Observation, Update, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.linear_queries import Design
from fedperf_shared.releases.release import DirectedReport, InvalidReleaseError
from fedperf_simulations.federation.point_queries import design_query

Floats = NDArray[np.float64]


def design_grid_query(
    posterior: GaussianPosterior,
    declared: float,
    *,
    kappa: float,
    noise_multiplier: float,
    record_variance: float,
    directions: int,
) -> Design:
    """Return the linear query of one stage to every sender, a design over all points.

    Args:
        posterior: over the grid, every point of which matters alike.
        declared: number of workloads of a sender.
        kappa: clip in standard deviations of what is believed of a record.
        noise_multiplier: of a sender's noise.
        record_variance: of a record around its point, (log seconds)^2.
        directions: of the design.

    Raises:
        ConfigurationError: the declared number is not within the grid.
    """
    everywhere = np.arange(len(posterior.mean))
    query = design_query(
        posterior,
        [everywhere],
        everywhere,
        kappa=kappa,
        # A grid of which a share is seen, as loud as the whole grid under more noise.
        noise_multiplier=noise_multiplier / _share(posterior, declared),
        record_variance=record_variance,
        directions=directions,
    )
    return query.designs[0]


def learn_on_grid(
    posterior: GaussianPosterior,
    design: Design,
    reports: Sequence[DirectedReport],
    declared: Sequence[float],
    *,
    noise_multiplier: float,
    record_variance: float,
) -> Update:
    """Return the posterior after the reports of a stage.

    Args:
        posterior: over the grid; the residuals were taken against its mean.
        design: the linear query.
        reports: one for each sender.
        declared: number of workloads of each.
        noise_multiplier: of each sender's noise.
        record_variance: of a record around its point, (log seconds)^2.

    Raises:
        InvalidReleaseError: a report has another length than the design.
        ConfigurationError: a declared number is not within the grid.
    """
    for report in reports:
        if report.values.shape != (design.values,):
            raise InvalidReleaseError(
                f"a report has the shape {report.values.shape}, its design {design.values} values"
            )
    directions = design.directions
    observations = []
    for report, count in zip(reports, declared, strict=True):
        share = _share(posterior, count)
        noise = drawing_noise(posterior, directions, count)
        noise += share * record_variance * directions @ directions.T
        noise += noise_multiplier**2 * np.eye(design.values)
        observations.append(Observation(share * directions, report.natural(), noise))
    return update(posterior, observations)


def drawing_noise(posterior: GaussianPosterior, directions: Floats, count: float) -> Floats:
    """Variance of sums because the points of a sender's workloads are secret.

    Noise and the spread of single records come on top.

    Args:
        posterior: about the log seconds of all points.
        directions: that are summed up, float64 [values, points].
        count: of workloads, each at another point, all points alike; above 0.

    Returns:
        Covariance of the sums, the mean over what the posterior holds possible, [values, values].
    """
    points = len(posterior.mean)
    single = (directions * posterior.variances()) @ directions.T / points
    common = directions @ posterior.covariance @ directions.T / points**2
    left = 1 - _share(posterior, count)
    noise = count * left * points / max(points - 1, 1) * (single - common)
    return np.asarray((noise + noise.T) / 2)


def _share(posterior: GaussianPosterior, count: float) -> float:
    points = len(posterior.mean)
    if not 0 < count <= points:
        raise ConfigurationError(
            f"a sender has above 0 and at most {points} workloads on this grid, got {count!r}"
        )
    return count / points
