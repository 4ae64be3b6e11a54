"""Directed reports over the cells: design of linear queries, and inference from the responses.

After the plain reports (`corrections`) the server requests QUERY_DIRECTIONS noisy sums over each
organization's workloads, with directions designed for the current posterior. A response is A rho (u
- n * center) + noise, with n the organization's workloads per cell, u the sums of their log
residuals, and rho the part of a normal residual that a clip passes. Given the truth mu, u is n mu
plus the organization's deviation and the variation of its workloads. n is estimated from its plain
report, otherwise the declared number is spread evenly. The uncertainty of n counts as noise. The
effect of a clip on an unexpectedly large residual is not modelled. A later stage corrects it.

The same workloads may contribute to u in a plain report and in earlier stages. So
`OrganizationPosterior` is the distribution of u given mu and all earlier releases of the
organization. A response updates the posterior only by its new information, so that nothing counts
twice. From one window to the next most of u stays and a part is renewed (`RENEWED`). A platform may
also change. Queries include this variance (`CHANGE`), so that `drift_evidence` can detect it.

This is post-processing of releases and costs no privacy. Influence is bounded: a response is
shortened to a plausible norm (`gaussian_process.update`), its precision is at most 1 /
organization_sd^2 per cell, and the mean stays within the widest clip around a center.

A stage requests D noisy sums over public points from every sender. The server selects the
directions that maximise the variance which the responses are expected to remove at target points,

    tr[(A (S_XX + s I) A' + sigma^2 I)^-1  A S_XT S_TX A'],

under the norm rule |A_i| * clip_i <= 1 of `fedperf_shared.releases.linear_queries`. The optimiser
is L-BFGS over the directions of the columns, from the strongest eigenvectors. A is block-diagonal:
a sender sums over its own points only, with its own noise.

A clip is kappa standard deviations of the posterior. The prior may be overconfident, and saturated
clips hide the size of its error. So a cheap stage with a wide clip comes first and moves the mean.
Tight clips follow around the new mean.

Posteriors, designs and clips depend on public data and earlier releases only. Directions and clips
are rounded to a public grid, so that they do not depend on rounding errors of linear algebra.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedperf_server.inference.corrections import (
    COUNT_LIMIT,
    DEFAULT_KERNEL,
    EMPTY_SHARE,
    SAME_PLATFORM,
    CellCorrectionPosterior,
    Kernel,
    NoisySums,
    QueryResponse,
    ReceivedReport,
    correct_sums,
    pool_by_organization,
)
from fedperf_server.inference.gaussian_process import GaussianPosterior, Observation, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.linear_queries import (
    INSIDE,
    MAX_CELL_CLIP,
    MAX_CENTER,
    MIN_CELL_CLIP,
    QUERY_DIRECTIONS,
    CellQuery,
    public_design,
)
from fedperf_shared.releases.release import (
    DirectedParameters,
    InvalidReleaseError,
    SlotKey,
)

Floats = NDArray[np.float64]

DESIGN_STEPS = 60

SPREAD = 1e-3  # initial weight of every direction, so that no column starts at 0
# Step of directions of length 1, and of centers and clips in log seconds. It is coarse compared
# with the rounding of any library (1e-12 after a design), and fine compared with a query's
# accuracy.
GRID = 2.0**-12

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of directed reports."""

    share: float  # share of the privacy budget, as a share of 1 / noise_multiplier^2
    kappa: float  # clip in standard deviations of the posterior

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigurationError(f"a stage's share must be in (0, 1], got {self.share!r}")
        if not 0 < self.kappa < math.inf:
            raise ConfigurationError(f"a stage's kappa must be positive, got {self.kappa!r}")


# The stages: first wide and cheap, then tight.
STAGES = (Stage(0.2, 3.0), Stage(0.3, 1.5), Stage(0.5, 1.0))


def optimize_directions(
    signal: Floats,
    target: Floats,
    clips: Floats,
    *,
    noise_variance: float,
    directions: int,
    sizes: Sequence[int] | None = None,
) -> Floats:
    """Return directions A that maximise tr[(A signal A' + noise)^-1 A target A'].

    Args:
        signal: covariance of the points' values, [points, points].
        target: S_XT S_TX of these values and the targets, [points, points].
        clips: clip of each point, [points]; the norm rule |A_i| * clip_i <= 1 holds.
        noise_variance: noise variance of each response.
        directions: number of directions per sender.
        sizes: numbers of consecutive points of each sender; by default one sender has all.

    Returns:
        float64 [directions, points].
    """
    blocks = _blocks(sizes or [len(clips)], directions)
    problem = _Problem(signal, target, noise_variance, INSIDE / clips, blocks)
    return problem.solve(_initial_directions(problem, directions))


def round_to_grid(values: Floats) -> Floats:
    """Return the nearest multiples of `GRID`."""
    return np.asarray(np.round(values / GRID) * GRID)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The problem max tr[(A K A' + noise I)^-1 A B A'] over A with columns of given lengths.

    `blocks` [senders * directions, points] is 1 if a row of A may use a point.
    """

    signal: Floats
    target: Floats
    noise: float
    lengths: Floats
    blocks: Floats

    def solve(self, start: Floats) -> Floats:
        """Return directions [directions, points]; columns have their full length.

        Unit columns are rounded to the grid. All later steps are elementwise, so that every
        machine gets the same result.
        """
        result = minimize(
            self._loss,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": DESIGN_STEPS},
        )
        free = result.x.reshape(start.shape)
        unit = round_to_grid(free / np.sqrt(np.sum(free**2, axis=0)))
        return self._normalise(unit)[0]

    def _loss(self, flat: Floats) -> tuple[float, Floats]:
        free = flat.reshape(-1, self.blocks.shape[1])
        columns, norms = self._normalise(free)
        senders = len(self.blocks) // len(columns)
        full = np.tile(columns, (senders, 1)) * self.blocks
        system = full @ self.signal @ full.T + self.noise * np.eye(len(full))
        solved = np.linalg.solve(system, full)
        weighted = solved @ self.target
        value = float(np.sum(weighted * full))
        slope = 2 * (weighted - (weighted @ solved.T) @ (full @ self.signal)) * self.blocks
        slope = slope.reshape(senders, *columns.shape).sum(axis=0)
        unit = columns / self.lengths
        tangent = slope - unit * np.sum(unit * slope, axis=0)
        return -value, -(tangent * self.lengths / norms).ravel()

    def _normalise(self, free: Floats) -> tuple[Floats, Floats]:
        norms = np.sqrt(np.sum(free**2, axis=0)) + _TINY
        return free / norms * self.lengths, norms


def _blocks(sizes: Sequence[int], directions: int) -> Floats:
    """Return which rows of A may use which points, [senders * directions, points]."""
    blocks = np.zeros((len(sizes) * directions, sum(sizes)))
    for sender, size in enumerate(sizes):
        first = sum(sizes[:sender])
        blocks[sender * directions : (sender + 1) * directions, first : first + size] = 1.0
    return blocks


def _initial_directions(problem: _Problem, directions: int) -> Floats:
    """Return the directions of largest covariance with the targets, as columns of length 1.

    An empty column would consist of rounding errors, which the optimiser would scale to a
    direction of full length. So a fixed direction is added to every column. The sign of an
    eigenvector depends on the library, so it is set to that of its largest entry.
    """
    weighted = problem.lengths[:, None] * problem.target * problem.lengths
    values, vectors = np.linalg.eigh(weighted)
    points = np.arange(len(values))
    top = min(directions, len(values))
    strongest = vectors[:, ::-1][:, :top]
    signs = np.sign(strongest[np.argmax(np.abs(strongest), axis=0), points[:top]])
    strength = np.sqrt(np.maximum(values[::-1][:top], 0.0) / max(float(values[-1]), _TINY))
    free = np.zeros((directions, len(values)))
    free[:top] = (strongest * signs * (strength + SPREAD)).T
    free[points % top, points] += SPREAD
    return np.asarray(free / np.sqrt(np.sum(free**2, axis=0)))


# Factors on the posterior's variance for a query with responses. The variance never shrinks, and an
# unexpected response can double it. Only queries of the first window use them. Later queries have a
# corrected prior, and repeated selection would double the variance by noise alone.
SCALES = (1.0, 2.0)

# Share of a query's target weight that is uniform over cells. The rest follows the workloads.
UNIFORM_SHARE = 0.5

# Assumed variance, (log seconds)^2, of a platform's change since the previous window. It is larger
# than usual changes, so that queries can detect one.
CHANGE = 0.1

# Share of the variance of an organization's workloads that is renewed in each window, because run
# times vary and some workloads are new.
RENEWED = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class QueryResponses:
    """A linear query and its responses, at most one per organization."""

    query: CellQuery
    responses: tuple[QueryResponse, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OrganizationPosterior:
    """The sums of log residuals of an organization: u | mu ~ N(slopes mu + offset, covariance)."""

    counts: Floats  # estimated number of its workloads per cell, float64 [CELLS]
    count_variance: Floats  # variance of the counts, [CELLS]
    slopes: Floats  # [CELLS, CELLS]
    offset: Floats  # log seconds, [CELLS]
    covariance: Floats  # [CELLS, CELLS]

    @classmethod
    def before_responses(
        cls, workloads: float, plain: NoisySums | None, *, kernel: Kernel = DEFAULT_KERNEL
    ) -> "OrganizationPosterior":
        """Return the sums of an organization without responses.

        The declared number of workloads is spread evenly over the cells, of which unknown
        `EMPTY_SHARE` are empty. Noisy counts update this by the best linear estimate, so that
        counts add up to the declared number.

        Args:
            workloads: declared number of workloads.
            plain: its pooled plain reports, if any.
            kernel: public prior.
        """
        even = min(workloads / CELLS, COUNT_LIMIT)
        variance = even**2 * EMPTY_SHARE / (1 - EMPTY_SHARE)
        if plain is None:
            return cls._without_reports(np.full(CELLS, even), np.full(CELLS, variance), kernel)
        gain = variance / (variance + plain.count_sd**2)
        counts = np.clip(even + gain * (plain.counts - even), 0.0, COUNT_LIMIT)
        initial = cls._without_reports(counts, np.full(CELLS, variance * (1 - gain)), kernel)
        spread = np.diag(initial.covariance)
        share = spread / (
            spread + plain.sum_sd**2 + initial.count_variance * np.diag(kernel.matrix())
        )
        return replace(
            initial,
            slopes=np.diag(counts * (1 - share)),
            offset=share * plain.sums,
            covariance=np.diag(spread * (1 - share)),
        )

    def in_next_window(self) -> "OrganizationPosterior":
        """Return the posterior with the renewed part of the variance."""
        renewed = np.diag(self.counts * DEFAULT_KERNEL.execution_sd**2 * RENEWED)
        return replace(self, covariance=self.covariance + renewed)

    @classmethod
    def _without_reports(
        cls, counts: Floats, count_variance: Floats, kernel: Kernel
    ) -> "OrganizationPosterior":
        spread = counts * kernel.execution_sd**2 + (counts * kernel.organization_sd) ** 2
        return cls(counts, count_variance, np.diag(counts), np.zeros(CELLS), np.diag(spread))


@dataclass(frozen=True, slots=True, eq=False)
class CellPosterior:
    """The posterior from all reports."""

    correction: CellCorrectionPosterior  # posterior of the cells
    plain: Mapping[str, NoisySums]  # noisy sums of every organization with plain reports
    # Posterior of every organization with responses.
    organizations: Mapping[str, OrganizationPosterior]
    windows: tuple[int, ...] = ()  # windows of the queries with responses, oldest first

    def organization_posterior(
        self, organization: str, parameters: DirectedParameters
    ) -> OrganizationPosterior:
        """Return the posterior of an organization's sums, also before its first response."""
        if organization in self.organizations:
            return self.organizations[organization]
        return OrganizationPosterior.before_responses(
            parameters.nominal_workloads, self.plain.get(organization)
        )


def infer_cells(
    plain: Sequence[ReceivedReport],
    query_responses: Sequence[QueryResponses],
    *,
    reference_version: int,
    scales: Sequence[float] = SCALES,
    previous: CellPosterior | None = None,
) -> CellPosterior:
    """Return the posterior given plain reports and responses.

    Args:
        plain: reports about `reference_version`.
        query_responses: linear queries with responses about it, oldest first.
        reference_version: model version that residuals refer to.
        scales: factors on the variance for queries of the first window.
        previous: posterior of the same plain reports and the queries before `query_responses`.

    Raises:
        InvalidReleaseError: a report has another basis, length, version or query.
    """
    posterior = previous
    if posterior is None:
        sums = pool_by_organization(plain, reference_version=reference_version)
        correction = correct_sums(sums, reference_version=reference_version)
        posterior = CellPosterior(correction, sums, {})
    for each in query_responses:
        if each.query.reference_version != reference_version:
            raise InvalidReleaseError(
                f"linear query {each.query.version} is about model version "
                f"{each.query.reference_version}, expected {reference_version}"
            )
        if not each.responses:
            continue
        windows = (*posterior.windows, each.query.slot.window)
        if windows[-1] != windows[-2:][0]:
            own = {name: each.in_next_window() for name, each in posterior.organizations.items()}
            posterior = replace(posterior, organizations=own)
        factors = scales if windows[-1] == windows[0] else (1.0,)
        posterior = replace(_after(posterior, each, factors), windows=windows)
    return posterior


def design_cell_query(
    correction: CellCorrectionPosterior,
    senders: Sequence[tuple[OrganizationPosterior, DirectedParameters]],
    *,
    slot: SlotKey,
    version: int,
    change: float = 0.0,
) -> CellQuery:
    """Design the linear query of `slot`, which is the best on average over all senders.

    Clips are kappa (`STAGES`) predictive standard deviations of a workload. So they are wide where
    the uncertainty is large, and wider if the likelihood scaled the posterior.

    Args:
        correction: current posterior; the query is about its reference version.
        senders: posterior and slot parameters of each organization that will respond.
        slot: slot of the query; its index selects the stage.
        version: number of the query.
        change: variance of each platform's change since the reports, (log seconds)^2; `CHANGE`
            if they are from an earlier window.

    Raises:
        ConfigurationError: there are no senders.
    """
    if not senders:
        raise ConfigurationError("a linear query needs at least one sender")
    center = round_to_grid(np.clip(correction.mean, -MAX_CENTER, MAX_CENTER))
    current = GaussianPosterior(correction.mean, correction.covariance)
    own_variance = DEFAULT_KERNEL.execution_sd**2 + DEFAULT_KERNEL.organization_sd**2
    clips = round_to_grid(_stage(slot).kappa * np.sqrt(current.variances() + own_variance))
    clips = np.clip(clips, MIN_CELL_CLIP, MAX_CELL_CLIP)
    own = [each for each, _ in senders]
    counts, slopes = _mean([each.counts for each in own]), _mean([each.slopes for each in own])
    uncertainty = _mean([each.covariance for each in own])
    uncertainty += np.diag(_mean([each.count_variance for each in own]) * _squares(current, center))
    weights = UNIFORM_SHARE / CELLS + (1 - UNIFORM_SHARE) * counts / max(float(counts.sum()), 1e-9)
    changed = counts[:, None] * change * SAME_PLATFORM
    covariance = (slopes @ current.covariance + changed) * np.sqrt(weights)
    variance = float(np.mean([each.noise_multiplier**2 for _, each in senders]))
    directions = optimize_directions(
        slopes @ current.covariance @ slopes.T + changed * counts + uncertainty / len(senders),
        covariance @ covariance.T,
        clips,
        noise_variance=variance / len(senders),
        directions=QUERY_DIRECTIONS,
    )
    return CellQuery(
        slot=slot,
        version=version,
        basis_version=BASIS_VERSION,
        reference_version=correction.reference_version,
        center=center,
        design=public_design(directions, clips),
    )


def directions_through_clips(query: CellQuery) -> Floats:
    """Return the weight of each cell's sum in a response, [values, CELLS].

    Clips are kappa predictive standard deviations. A clip passes the part 2 Phi(kappa) - 1 of a
    normal residual (its best linear approximation).
    """
    passed = math.erf(_stage(query.slot).kappa / math.sqrt(2.0))
    return query.design.directions * passed


def _stage(slot: SlotKey) -> Stage:
    return STAGES[min(slot.index, len(STAGES) - 1)]


def _after(
    posterior: CellPosterior, query_responses: QueryResponses, scales: Sequence[float]
) -> CellPosterior:
    """Return the posterior after the responses to one more query."""
    correction = posterior.correction
    observations = observe(posterior, query_responses)
    updated = update(
        GaussianPosterior(correction.mean, correction.covariance),
        [each for each, _ in observations],
        scales=scales,
    )
    names = [each.organization for each in query_responses.responses]
    own = {
        **posterior.organizations,
        **dict(zip(names, (after for _, after in observations), strict=True)),
    }
    center, clips = query_responses.query.center, query_responses.query.design.clips
    limit = np.maximum(np.abs(center) + clips, np.abs(correction.mean))
    after = replace(
        correction,
        mean=np.clip(updated.posterior.mean, -limit, limit),
        covariance=updated.posterior.covariance,
        scale=correction.scale * updated.scale,
        organizations=len(posterior.plain.keys() | own.keys()),
    )
    return replace(posterior, correction=after, organizations=own)


def observe(
    posterior: CellPosterior, query_responses: QueryResponses
) -> list[tuple[Observation, OrganizationPosterior]]:
    """Return the new information in each response, and its organization's posterior after it.

    Raises:
        InvalidReleaseError: a response belongs to another query, or has a wrong length.
    """
    current = GaussianPosterior(posterior.correction.mean, posterior.correction.covariance)
    query = query_responses.query
    directions = directions_through_clips(query)
    squares = _squares(current, query.center)
    observations = []
    for response in query_responses.responses:
        report = response.report
        actual = (report.slot, report.design_version, report.values.shape)
        if actual != (query.slot, query.version, (query.design.values,)):
            raise InvalidReleaseError(f"a response {actual} does not match query {query.version}")
        sums = posterior.organization_posterior(response.organization, response.parameters)
        noise = (directions * sums.count_variance * squares) @ directions.T
        noise += response.parameters.noise_multiplier**2 * np.eye(len(directions))
        values = report.natural() + directions @ (sums.counts * query.center)
        observations.append(_split(current, sums, directions, values, noise))
    return observations


def _split(
    current: GaussianPosterior,
    sums: OrganizationPosterior,
    directions: Floats,
    values: Floats,
    noise: Floats,
) -> tuple[Observation, OrganizationPosterior]:
    """Split values = directions u + noise into an observation of mu and the posterior of u."""
    matrix = directions @ sums.slopes
    crossed = directions @ sums.covariance
    spread = crossed @ directions.T + noise
    spread = (spread + spread.T) / 2
    new = values - directions @ sums.offset
    gain = np.linalg.solve(spread, crossed).T
    covariance = sums.covariance - gain @ crossed
    after = replace(
        sums,
        slopes=sums.slopes - gain @ matrix,
        offset=sums.offset + gain @ new,
        covariance=(covariance + covariance.T) / 2,
    )
    return Observation(matrix, new - matrix @ current.mean, spread), after


def _squares(current: GaussianPosterior, center: Floats) -> Floats:
    """Return the mean square of the truth around the center, [CELLS]."""
    return np.asarray(current.variances() + (current.mean - center) ** 2)


def _mean(values: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(np.stack(values), axis=0), dtype=np.float64)
