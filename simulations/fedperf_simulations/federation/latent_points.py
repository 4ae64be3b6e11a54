"""Learning from directed reports of workloads whose configurations are secret.

The client sends noisy sums of phi and of phi phi' over its workloads' features (`feature_design`),
so the server learns roughly where the workloads lie, and nothing else. With few workloads the noise
on those products drowns them; so they are shrunk to what a declared number of workloads spread
evenly over the public box would give, and what stays unknown of them counts as noise. The truth is
taken as linear in the features between the workloads, and the rest as noise too.

Post-processing of releases only: costs no privacy; the bounds of `gaussian_process` hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import GaussianPosterior, Observation, Update, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.linear_queries import Design, InvalidDesignError
from fedperf_shared.releases.release import DirectedReport, InvalidReleaseError

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

COUNT_SPREAD = 0.3
"""Relative error of a declared number of workloads, one standard deviation."""

PLACE_SPREAD = 0.5
"""Distance of an organization's mean product from the box's, in the box's own stddevs."""


def feature_design(features: Floats, clip: float, *, offset_share: float) -> Design:
    """Return the design at secret points, from the public feature map.

    phi = (1, x_1..x_k) / sqrt(1 + k) has norm at most 1 in the box [-1, 1]^k. Its products
    phi phi' are the offsets (upper triangle, off-diagonal times sqrt 2, norm |phi|^2), from
    which the server learns where the workloads are; phi / clip the directions.

    Args:
        features: scaled into [-1, 1], [points, k]; what lies outside is moved to the border.
        clip: bound on the absolute log residual, the same everywhere.
        offset_share: of the squared norm, for the offsets; from 0 up to, not with, 1.

    Raises:
        InvalidDesignError: the share or the clip is out of range, or a feature is NaN.
    """
    if not 0 <= offset_share < 1:
        raise InvalidDesignError(f"the offsets' share must be in [0, 1), got {offset_share!r}")
    if not clip > 0:
        raise InvalidDesignError(f"a clip must be positive, got {clip!r}")
    phi = feature_map(features)
    rows, columns = np.triu_indices(len(phi))
    weights = np.where(rows == columns, 1.0, np.sqrt(2.0))[:, None]
    products = weights * phi[rows] * phi[columns] * np.sqrt(offset_share)
    return Design(
        phi * (np.sqrt(1 - offset_share) / clip),
        np.full(len(features), clip),
        products if offset_share > 0 else products[:0],
    )


def feature_map(features: Floats) -> Floats:
    """(1, x_1..x_k) / sqrt(1 + k), [1 + k, points], of norm at most 1."""
    inside = np.clip(features, -1.0, 1.0).T
    ones = np.ones((1, inside.shape[1]))
    return np.asarray(np.concatenate([ones, inside]) / np.sqrt(1 + len(inside)), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class PublicBox:
    """Points spread evenly over the public box of a job, which also are the queries.

    Attributes:
        positions: of the points in the posterior, [points].
        features: scaled into [-1, 1], those that vary, [points, features].
    """

    positions: Positions
    features: Floats

    def __post_init__(self) -> None:
        if self.features.shape != (len(self.positions), self.features.shape[-1]):
            raise ConfigurationError("a box has one row of features for each of its points")
        if len(self.features) <= self.features.shape[1] + 1:
            raise ConfigurationError("a box needs more points than features")


@dataclass(frozen=True, slots=True)
class HiddenStage:
    """The public parameters of one stage. See `feature_design`.

    Attributes:
        clip: bound on the absolute log residual, everywhere the same.
        offset_share: of the squared norm, for the products.
        noise_multiplier: of each sender's noise.
    """

    clip: float
    offset_share: float
    noise_multiplier: float


def clip_over(
    posterior: GaussianPosterior, box: PublicBox, *, kappa: float, record_variance: float
) -> float:
    """Return the clip of a stage, log seconds: `kappa` standard deviations of a record's residual.

    Args:
        posterior: about the points; its variance is averaged over those in the box.
        box: where records may lie.
        kappa: how many.
        record_variance: of a record around its point, (log seconds)^2.
    """
    variance = float(np.mean(posterior.variances()[box.positions]))
    return kappa * math.sqrt(variance + record_variance)


def learn_hidden(
    posterior: GaussianPosterior,
    box: PublicBox,
    releases: Sequence[Sequence[tuple[HiddenStage, DirectedReport]]],
    declared: Sequence[float],
    *,
    record_variance: float,
) -> Update:
    """Return the posterior after the newest stage.

    Args:
        posterior: before the newest stage; residuals of that are against its mean.
        box: public points of the job.
        releases: every stage of each sender so far, oldest first. All inform about the places of
            its workloads, the newest about the error of the posterior there.
        declared: number of workloads that each sender declared.
        record_variance: of a record around its point, (log seconds)^2.

    Raises:
        InvalidReleaseError: a report has another length than its stage's query.
    """
    return update(
        posterior,
        [
            _observation(posterior, box, stages, count, record_variance)
            for stages, count in zip(releases, declared, strict=True)
        ],
    )


def _observation(
    posterior: GaussianPosterior,
    box: PublicBox,
    stages: Sequence[tuple[HiddenStage, DirectedReport]],
    count: float,
    record_variance: float,
) -> Observation:
    phi = feature_map(box.features)
    products, doubt = _products(phi, stages, count)
    stage, report = stages[-1]
    weight = stage.clip / math.sqrt(1 - stage.offset_share)
    slopes = np.linalg.pinv(phi.T)
    covariance = posterior.covariance[np.ix_(box.positions, box.positions)]
    beyond = np.eye(len(phi.T)) - phi.T @ slopes
    rest = float(np.mean(np.sum((beyond @ covariance) * beyond, axis=1)))
    of_slopes = np.sum((slopes @ covariance) * slopes, axis=1)
    matrix = np.zeros((len(phi), len(posterior.mean)))
    matrix[:, box.positions] = products @ slopes
    noise = products * (record_variance + max(rest, 0.0)) + np.diag(doubt @ of_slopes)
    noise += (stage.noise_multiplier * weight) ** 2 * np.eye(len(phi))
    return Observation(matrix, weight * report.natural()[-len(phi) :], noise)


def _products(
    phi: Floats, stages: Sequence[tuple[HiddenStage, DirectedReport]], count: float
) -> tuple[Floats, Floats]:
    """Sum of phi phi' over a sender's workloads: what is believed, and its variances."""
    size = len(phi)
    each = phi[:, None, :] * phi[None, :, :]
    expected = count * each.mean(axis=2)
    variance = (count * PLACE_SPREAD * each.std(axis=2)) ** 2 + (COUNT_SPREAD * expected) ** 2
    precision = 1 / variance
    total = precision * expected
    rows, columns = np.triu_indices(size)
    for stage, report in stages:
        offset_rows = len(rows) if stage.offset_share > 0 else 0
        if report.values.shape != (offset_rows + size,):
            raise InvalidReleaseError(
                f"a report has the shape {report.values.shape}, its stage "
                f"{offset_rows + size} values"
            )
        if not offset_rows:
            continue
        half = np.where(rows == columns, 1.0, math.sqrt(0.5)) / math.sqrt(stage.offset_share)
        products, noise = np.zeros((size, size)), np.ones((size, size))
        products[rows, columns] = products[columns, rows] = report.natural()[:offset_rows] * half
        noise[rows, columns] = noise[columns, rows] = (stage.noise_multiplier * half) ** 2
        precision = precision + 1 / noise
        total = total + products / noise
    values, vectors = np.linalg.eigh(total / precision)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T, 1 / precision
