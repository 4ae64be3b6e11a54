"""Noise-aware Gaussian-process corrections from reports, over the public cells.

mu_c is the error of the reference model in cell c (log seconds). The prior has mean 0 and an
additive kernel over platform, operator class and input size. An organization's mean residual in a
cell is mu_c + its own deviation (sd `organization_sd`) + the variation of executions + the noise of
its release. Counts are noisy too. Each is estimated under a public prior that most cells are empty,
and its remaining uncertainty counts as noise. So a cell that is empty or dominated by noise has no
effect, and a report of pure noise leaves the prior.

This is post-processing of releases and costs no privacy. Influence is bounded for any number of
claimed workloads or slots. An organization's precision is at most 1 / organization_sd^2 per cell,
its mean residual is within its clip and two standard deviations of its noise, and no correction
exceeds the widest clip. A clip counts as at most `MAX_RESIDUAL_CLIP`.

With P the precision of the posterior and A <= a I the organization's, a = 1 / organization_sd^2, it
changes the correction by P^-1 A (y - m). If `others` other organizations have full weight in every
cell, then P >= others * a I, |m| <= clip (their own correction), and A |y| <= a clip + 2 sqrt(a).
So the root mean square of the change over the cells is at most 2 (clip + organization_sd) / others
at a fixed prior scale. In any case no cell changes by more than 2 * clip.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import ALL_CELLS, BASIS_VERSION, CELLS
from fedperf_shared.releases.release import (
    MAX_RESIDUAL_CLIP,
    DirectedParameters,
    DirectedReport,
    InvalidReleaseError,
    ReportParameters,
    ResidualReport,
)

Floats = NDArray[np.float64]

# Maximum number of an organization's workloads in a cell, for the prior over counts.
COUNT_LIMIT = 10_000

EMPTY_SHARE = 0.8  # prior share of an organization's empty cells
EXACT_SD = 1e-3  # assumed noise of exact counts, which prevents a division by 0

# Whether two cells have the same platform, [CELLS, CELLS].
SAME_PLATFORM: NDArray[np.bool_] = np.equal.outer(
    [cell.platform for cell in ALL_CELLS], [cell.platform for cell in ALL_CELLS]
)

# Standard deviations of its noise by which a mean residual may exceed the clip.
NOISE_ALLOWANCE = 2.0

# Factors on the prior variance among which the marginal likelihood chooses.
SCALES = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Public prior variances, (log seconds)^2, and standard deviations."""

    level: float = 0.15  # one offset for all cells
    platform: float = 0.15  # per platform
    operator_class: float = 0.08  # per class of operators
    platform_and_class: float = 0.08  # per pair of both
    size: float = 0.05  # smooth over the size groups, shared by all platforms
    platform_and_size: float = 0.05  # smooth over the size groups, per platform
    cell: float = 0.04  # per cell
    size_length: float = 1.5  # length scale of the smoothness in size groups
    execution_sd: float = 0.5  # standard deviation of the residuals of workloads in a cell
    # Standard deviation of an organization's cell around the shared mean.
    organization_sd: float = 0.3

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigurationError(f"kernel {name} must be positive, got {value!r}")

    def matrix(self) -> Floats:
        """Return the prior covariance of the cells, [CELLS, CELLS]."""
        operator_class = np.array([cell.operator_class for cell in ALL_CELLS])
        size = np.array([cell.size for cell in ALL_CELLS], dtype=np.float64)
        same_class = operator_class[:, None] == operator_class
        near = np.exp(-0.5 * ((size[:, None] - size) / self.size_length) ** 2)
        return np.asarray(
            self.level
            + self.platform * SAME_PLATFORM
            + self.operator_class * same_class
            + self.platform_and_class * (SAME_PLATFORM & same_class)
            + near * (self.size + self.platform_and_size * SAME_PLATFORM)
            + self.cell * np.eye(CELLS),
            dtype=np.float64,
        )


DEFAULT_KERNEL = Kernel()


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedReport:
    """A validated report, its organization, and the public parameters of its slot.

    `is_first` marks an organization's first report, which has a slot of its own.
    """

    organization: str
    report: ResidualReport
    parameters: ReportParameters
    is_first: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class QueryResponse:
    """A validated response, its organization, and the public parameters of its slot."""

    organization: str
    report: DirectedReport
    parameters: DirectedParameters


@dataclass(frozen=True, slots=True, eq=False)
class CellCorrectionPosterior:
    """The posterior of the reference model's residual in each cell."""

    mean: Floats  # log seconds to add to the reference model's prediction, float64 [CELLS]
    covariance: Floats  # float64 [CELLS, CELLS]
    reference_version: int  # model version that it corrects
    scale: float  # factor on the prior variance, selected by the marginal likelihood
    organizations: int  # number of organizations with releases


@dataclass(frozen=True, slots=True, eq=False)
class NoisySums:
    """One organization's releases in natural units."""

    counts: Floats  # noisy number of workloads per cell, float64 [CELLS]
    sums: Floats  # noisy sum of their log residuals per cell, float64 [CELLS]
    count_sd: float  # standard deviation of the noise in `counts`
    sum_sd: float  # standard deviation of the noise in `sums`, log seconds
    clip: float  # bound on one residual, log seconds


def correct_sums(
    sums: Mapping[str, NoisySums], *, reference_version: int
) -> CellCorrectionPosterior:
    """Return the posterior given every organization's pooled reports, by its name.

    Without any it is the prior with mean 0.
    """
    prior = DEFAULT_KERNEL.matrix()
    precision, information = np.zeros(CELLS), np.zeros(CELLS)
    for each in sums.values():
        means, weights = cell_means(each, np.diag(prior))
        precision += weights
        information += weights * means
    scale = _likeliest_scale(prior, precision, information) if sums else 1.0
    mean, covariance = _posterior(scale * prior, precision, information)
    limit = max((each.clip for each in sums.values()), default=0.0)
    return CellCorrectionPosterior(
        np.clip(mean, -limit, limit), covariance, reference_version, scale, len(sums)
    )


def pool_by_organization(
    reports: Sequence[ReceivedReport], *, reference_version: int
) -> dict[str, NoisySums]:
    """Return `pool_reports` of every organization with reports, ordered by name."""
    by_name: dict[str, list[ReceivedReport]] = defaultdict(list)
    for each in reports:
        by_name[each.organization].append(each)
    return {
        name: pool_reports(by_name[name], reference_version=reference_version)
        for name in sorted(by_name)
    }


def pool_reports(reports: Sequence[ReceivedReport], *, reference_version: int) -> NoisySums:
    """Average the reports of one organization, weighted by precision.

    Slots may cover the same workloads, so more slots mean less noise, never more workloads.
    """
    parts = [_natural(each, reference_version) for each in reports]
    by_count = np.array([1 / part.count_sd**2 for part in parts])
    by_sum = np.array([1 / part.sum_sd**2 for part in parts])
    return NoisySums(
        counts=_average([part.counts for part in parts], by_count),
        sums=_average([part.sums for part in parts], by_sum),
        count_sd=float(1 / np.sqrt(by_count.sum())),
        sum_sd=float(1 / np.sqrt(by_sum.sum())),
        clip=max(part.clip for part in parts),
    )


def cell_means(sums: NoisySums, prior_variance: Floats) -> tuple[Floats, Floats]:
    """Estimate the mean residual of each cell from one organization's sums.

    Args:
        sums: sums of the organization, pooled over its slots.
        prior_variance: prior variance of each cell's correction, (log seconds)^2, float64 [CELLS].

    Returns:
        The mean residual of each cell, log seconds, and its weight, 1 / variance; float64 [CELLS]
        each. A mean is at most the clip plus `NOISE_ALLOWANCE` standard deviations. A weight is
        below 1 / organization_sd^2.
    """
    count, uncertainty = estimate_counts(sums.counts, sums.count_sd)
    divisor = np.maximum(count, 1e-9)
    noise = count * DEFAULT_KERNEL.execution_sd**2 + sums.sum_sd**2 + uncertainty * prior_variance
    weights = 1 / (DEFAULT_KERNEL.organization_sd**2 + noise / divisor**2)
    limit = sums.clip + NOISE_ALLOWANCE / np.sqrt(weights)
    return np.clip(sums.sums / divisor, -limit, limit), weights


def estimate_counts(noisy: Floats, noise_sd: float) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of noisy numbers of workloads.

    The public prior: a cell is empty with probability `EMPTY_SHARE`. Otherwise the logarithm of its
    number is uniform up to `COUNT_LIMIT`.

    Args:
        noisy: noisy counts, float64 [cells].
        noise_sd: standard deviation of the noise.

    Returns:
        Mean and variance of the actual counts, float64 [cells] each.
    """
    grid = np.concatenate([[0.0], np.geomspace(0.25, COUNT_LIMIT, 400)])
    prior = np.full(len(grid), (1 - EMPTY_SHARE) / (len(grid) - 1))
    prior[0] = EMPTY_SHARE
    # The grid ends at the limit, so larger counts are treated as the limit.
    capped = np.minimum(noisy, COUNT_LIMIT)
    sd = np.hypot(noise_sd, 0.015 * grid)  # includes the step of the grid, for exact counts
    fit = -0.5 * ((capped[:, None] - grid) / sd) ** 2 - np.log(sd) + np.log(prior)
    posterior = np.exp(fit - fit.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    mean = posterior @ grid
    return mean, np.maximum(posterior @ grid**2 - mean**2, 0.0)


def _natural(received: ReceivedReport, reference_version: int) -> NoisySums:
    report, parameters = received.report, received.parameters
    expected = (BASIS_VERSION, reference_version, (2 * CELLS,))
    actual = (report.basis_version, report.reference_version, report.values.shape)
    if actual != expected:
        raise InvalidReleaseError(
            f"a report has (basis, reference version, shape) {actual}, expected {expected}"
        )
    step = math.ldexp(math.sqrt(2.0), report.grid_exponent)
    values = report.values.astype(np.float64) * step
    noise_sd = parameters.noise_multiplier * math.sqrt(2.0)
    count_sd = EXACT_SD if parameters.public_counts else noise_sd
    clip = min(parameters.residual_clip, MAX_RESIDUAL_CLIP)
    return NoisySums(values[:CELLS], clip * values[CELLS:], count_sd, clip * noise_sd, clip)


def _average(vectors: Sequence[Floats], weights: Floats) -> Floats:
    return np.asarray(weights @ np.stack(vectors) / weights.sum(), dtype=np.float64)


def _posterior(prior: Floats, precision: Floats, information: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of mu ~ N(0, prior) after independent evidence per cell."""
    root = np.sqrt(precision)
    system = np.eye(CELLS) + root[:, None] * prior * root
    gain = np.linalg.solve(system, root[:, None] * prior)
    covariance = prior - (prior * root) @ gain
    covariance = (covariance + covariance.T) / 2
    return covariance @ information, covariance


def _likeliest_scale(prior: Floats, precision: Floats, information: Floats) -> float:
    """Return the factor on `prior` that maximises the likelihood of the pooled means."""
    observed = precision > 0
    values, noise = information[observed] / precision[observed], 1 / precision[observed]

    def log_likelihood(scale: float) -> float:
        covariance = scale * prior[np.ix_(observed, observed)] + np.diag(noise)
        _, log_determinant = np.linalg.slogdet(covariance)
        return float(-0.5 * (log_determinant + values @ np.linalg.solve(covariance, values)))

    return max(SCALES, key=lambda scale: log_likelihood(scale) - 0.15 * math.log(scale) ** 2)
