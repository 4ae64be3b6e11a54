"""Drift detection from reports: the changed platform, the window, the size, the organizations.

All reports of an organization about one reference model form one linear Gaussian model of a steady
state. A drift of a platform by theta log seconds adds theta times its workloads to their sums in
every report from some window k on. So the score of theta has a closed form: with b and J the
information since k, g the shift, x^ and P the estimate from *all* reports and its covariance,

    q = g'(b - J x^),   I = g'(J - J P J) g,

and q has variance I and mean theta I. Any error of the reference model is part of x^ and P, so it
is not a drift. Neither is a new model, since residuals refer to a fixed version.

The statistic is Page's CUSUM, two-sided: the log-likelihood ratio, in nats, of a drift by
SHIFT since k against none, `q SHIFT - I SHIFT^2 / 2`, at the k where it is largest. A shift
of less than half of SHIFT decreases it, however precise the estimate. For a given k it exceeds h
with probability at most exp(-h) over all time. The rate over all k and platforms, and the power,
are measured (`fedperf_simulations.experiments.drift.report_detection`).

A detected drift becomes an unknown of the model. It gives one alarm, is not attributed to another
platform, and the search continues.

The first report of a period covers all history, so much more than later ones that these would look
like a change. So the first window of an organization is not used here.

The model assumes Gaussian noise as declared, workloads as steady as `ProcessNoise`, and clips that
pass the part given by `cell_directions`. A shift far beyond the clips is underestimated.

This is post-processing of releases and costs no privacy. Influence is limited: an organization is
evaluated by its own reports, and by queries that it hardly influences. A drift is shared if enough
organizations each show it, or if all together do without the one with the most evidence. An
organization with evidence against a drift subtracts at most MAX_DOUBT. One with MAX_OWN_DRIFTS
drifts of its own is ignored. So for any values a single organization cannot make a drift shared
that no other shows, and cannot hide a drift that enough others show.

The steady state is one vector [2 * CELLS]: n, the workloads per cell, and u, the sums of their log
residuals. A plain report observes both, plus noise. A response observes A rho (u - n * center) plus
noise (`cell_directions`). The process noise of a window is common to all of its reports
(`ProcessNoise`): workloads come and go, run times vary, a platform changes slightly. In a month
with less activity a platform has fewer workloads and, if the reference has an error, proportionally
smaller sums. So only a change of the mean residual is evidence of drift. Each window gives one
`WindowInformation` about the steady state, and windows add up.

The prior is public and wide, so that an error of the reference is part of the steady state.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from fedperf_server.inference.cell_directions import (
    RENEWED,
    OrganizationPosterior,
    QueryResponses,
    directions_through_clips,
)
from fedperf_server.inference.corrections import (
    DEFAULT_KERNEL,
    Kernel,
    NoisySums,
    QueryResponse,
    ReceivedReport,
    pool_reports,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]

STATE = 2 * CELLS

# Whether a cell belongs to a platform, [CELLS, platforms].
ON_PLATFORM: Floats = np.array(
    [[float(cell.platform is platform) for platform in PLATFORM_GROUPS] for cell in ALL_CELLS]
)

MIN_VARIANCE = 1e-6  # minimum variance of a state, so that its covariance can be inverted


@dataclass(frozen=True, slots=True)
class ProcessNoise:
    """Public variation of an organization from window to window without drift."""

    turnover: float = 0.1  # relative variance of the number of workloads of a cell in a window
    # Relative standard deviation of a platform's number of workloads in a window.
    activity: float = 0.35
    # Share of the variance of workloads (`Kernel.execution_sd`) that is renewed.
    renewed: float = RENEWED
    wander: float = 0.05  # standard deviation of a platform's level in a window, log seconds

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(
                    f"process noise {name} must not be negative, got {getattr(self, name)!r}"
                )


DEFAULT_PROCESS_NOISE = ProcessNoise()


@dataclass(frozen=True, slots=True, eq=False)
class WindowReleases:
    """The releases of one organization in one window, about one reference model."""

    window: int  # number of the window
    plain: tuple[ReceivedReport, ...]  # residual reports
    responses: tuple[tuple[CellQuery, QueryResponse], ...]  # linear queries and responses


@dataclass(frozen=True, slots=True, eq=False)
class WindowInformation:
    """One window's evidence about the steady state, in information form."""

    window: int  # number of the window
    precision: Floats  # [STATE, STATE]
    information: Floats  # precision times observation, [STATE]


@dataclass(frozen=True, slots=True, eq=False)
class SteadyStateFilter:
    """An organization's steady state: a public prior, and the evidence of each window."""

    counts: Floats  # estimated number of its workloads per cell, [CELLS]
    precision: Floats  # precision of the prior, [STATE, STATE]
    information: Floats  # precision times mean of the prior, [STATE]
    windows: tuple[WindowInformation, ...]  # information of each window, oldest first

    @classmethod
    def fit(
        cls, releases: Sequence[WindowReleases], *, kernel: Kernel, process_noise: ProcessNoise
    ) -> "SteadyStateFilter":
        """Estimate the state from all windows of an organization, oldest first."""
        plain = _all_plain(releases)
        workloads = _workloads(releases, plain)
        own = OrganizationPosterior.before_responses(workloads, plain, kernel=kernel)
        mean, covariance = _prior(workloads, own, kernel)
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        observed = [_observe(each) for each in releases]
        total = precision + sum(each for each, _ in observed)
        information = precision @ mean + sum(each for _, each in observed)
        usual = np.asarray(np.linalg.solve(total, information), dtype=np.float64)
        window_noise = _window_noise(own.counts, usual[CELLS:], kernel, process_noise)
        windows = tuple(
            _with_noise(each.window, window, window_noise)
            for each, window in zip(releases, observed, strict=True)
        )
        return cls(own.counts, precision, precision @ mean, windows)

    def shifts(self) -> Floats:
        """Return the change of the state per log second on each platform, [STATE, platforms]."""
        return np.concatenate([np.zeros_like(ON_PLATFORM), self.counts[:, None] * ON_PLATFORM])


def by_organization(
    plain: Sequence[ReceivedReport], query_responses: Sequence[QueryResponses]
) -> dict[str, tuple[WindowReleases, ...]]:
    """Group releases by organization and window, oldest first, in the order of names.

    Responses in the window after a first report cover the history of that report, so they count in
    its window, unless the organization sent a plain report in their own window.
    """
    reports: dict[tuple[str, int], list[ReceivedReport]] = {}
    responses: dict[tuple[str, int], list[tuple[CellQuery, QueryResponse]]] = {}
    for each in plain:
        reports.setdefault((each.organization, each.report.slot.window), []).append(each)
    for each_query in query_responses:
        for response in each_query.responses:
            name, window = response.organization, each_query.query.slot.window
            before = reports.get((name, window - 1), ())
            is_late = (name, window) not in reports and any(each.is_first for each in before)
            key = (name, window - is_late)
            responses.setdefault(key, []).append((each_query.query, response))
    windows: dict[str, tuple[WindowReleases, ...]] = {}
    for name, window in sorted(reports.keys() | responses.keys()):
        key = (name, window)
        releases = WindowReleases(
            window, tuple(reports.get(key, ())), tuple(responses.get(key, ()))
        )
        windows[name] = (*windows.get(name, ()), releases)
    return windows


def _all_plain(releases: Sequence[WindowReleases]) -> NoisySums | None:
    reports = [report for each in releases for report in each.plain]
    if not reports:
        return None
    return pool_reports(reports, reference_version=reports[0].report.reference_version)


def _workloads(releases: Sequence[WindowReleases], plain: NoisySums | None) -> float:
    """Return the number of workloads, declared for responses or otherwise counted."""
    responses = [response for each in releases for _, response in each.responses]
    declared = [each.parameters.nominal_workloads for each in responses]
    counted = float(plain.counts.sum()) if plain is not None else 0.0
    return max(declared, default=max(counted, 1.0))


def _prior(workloads: float, own: OrganizationPosterior, kernel: Kernel) -> tuple[Floats, Floats]:
    """Return mean [STATE] and covariance [STATE, STATE] of the prior."""
    declared = OrganizationPosterior.before_responses(workloads, None, kernel=kernel)
    levels = kernel.matrix() + kernel.organization_sd**2 * np.eye(CELLS)
    sums = (np.outer(own.counts, own.counts) + np.diag(own.count_variance)) * levels
    sums += np.diag(own.counts * kernel.execution_sd**2)
    covariance = MIN_VARIANCE * np.eye(STATE)
    covariance[:CELLS, :CELLS] += np.diag(declared.count_variance)
    covariance[CELLS:, CELLS:] += sums
    return np.concatenate([declared.counts, np.zeros(CELLS)]), covariance


def _window_noise(
    counts: Floats, sums: Floats, kernel: Kernel, process_noise: ProcessNoise
) -> Floats:
    """Return the covariance of a window's process noise, [STATE, STATE].

    A platform's activity changes at constant mean residuals.
    """
    wandering = process_noise.wander * counts[:, None] * ON_PLATFORM
    covariance = np.zeros((STATE, STATE))
    covariance[:CELLS, :CELLS] = np.diag(counts * process_noise.turnover)
    covariance[CELLS:, CELLS:] = wandering @ wandering.T
    covariance[CELLS:, CELLS:] += np.diag(counts * kernel.execution_sd**2 * process_noise.renewed)
    change = process_noise.activity * np.concatenate(
        [counts[:, None] * ON_PLATFORM, sums[:, None] * ON_PLATFORM]
    )
    return covariance + change @ change.T


def _with_noise(
    window: int, observed: tuple[Floats, Floats], window_noise: Floats
) -> WindowInformation:
    """Return the observation with (J^-1 + window_noise)^-1 in place of its precision J."""
    precision, information = observed
    both = np.column_stack([precision, information])
    solved: Floats = np.asarray(np.linalg.solve(np.eye(STATE) + precision @ window_noise, both))
    noisy = solved[:, :-1]
    return WindowInformation(window, (noisy + noisy.T) / 2, solved[:, -1])


def _observe(releases: WindowReleases) -> tuple[Floats, Floats]:
    """Return precision and information of the window's reports about its state."""
    precision, information = np.zeros((STATE, STATE)), np.zeros(STATE)
    plain = _all_plain([releases])
    if plain is not None:
        weights = np.repeat([1 / plain.count_sd**2, 1 / plain.sum_sd**2], CELLS)
        precision += np.diag(weights)
        information += weights * np.concatenate([plain.counts, plain.sums])
    for query, response in releases.responses:
        directions = directions_through_clips(query)
        matrix = np.concatenate([-directions * query.center, directions], axis=1)
        weight = 1 / response.parameters.noise_multiplier**2
        precision += weight * matrix.T @ matrix
        information += weight * matrix.T @ response.report.natural()
    return precision, information


SHIFT = 0.4  # the drift that the statistic is designed for, log seconds: a factor of 1.5
THRESHOLD = 5.0  # nats of evidence for an alarm. `fedperf-sim run drift` measures its error rates.
MAX_DOUBT = 3.0  # maximum nats that one organization subtracts from the evidence of all
# Required share of organizations with a drift, of those whose reports can show the platform.
SHARED_SHARE = 0.3

NEAR = 2  # maximum distance in windows between two detections of the same drift
# Number of own drifts about one reference model from which an organization is ignored.
MAX_OWN_DRIFTS = 3

# Prior standard deviation of the size of a detected drift, log seconds, almost uninformative.
DRIFT_SD = 2.0

_SIGNS = (1.0, -1.0)


@dataclass(frozen=True, slots=True)
class PlatformDrift:
    """A detected drift: a platform that became slower or faster."""

    platform: Platform  # platform of the basis
    since: int  # first window whose reports show it; it happened in the windows that they cover
    detected_in: int  # window whose reports triggered the detection
    log_factor: float  # log seconds by which executions take longer, negative if shorter
    standard_error: float  # standard error of `log_factor`
    organizations: tuple[str, ...]  # organizations with the drift, sorted
    shared: bool  # whether it is a drift of the federation, not of one organization alone

    def same_direction(self, other: "PlatformDrift") -> bool:
        """Return whether both are about the same platform, and both slower or both faster."""
        same_sign = (self.log_factor > 0) == (other.log_factor > 0)
        return self.platform is other.platform and same_sign

    def near(self, other: "PlatformDrift") -> bool:
        """Return whether both began, or were detected, within `NEAR` windows."""
        distance = min(abs(self.since - other.since), abs(self.detected_in - other.detected_in))
        return distance <= NEAR


@dataclass(frozen=True, slots=True, eq=False)
class DriftEvidence:
    """One organization's evidence of a drift of each platform since each window."""

    score: Floats  # q, [beginnings, platforms]
    information: Floats  # I, [beginnings, platforms]; 0 without evidence

    def nats(self, sign: float) -> Floats:
        """Return the log-likelihood ratio of a drift by `sign` * SHIFT, [beginnings, platforms]."""
        return sign * SHIFT * self.score - SHIFT**2 / 2 * self.information


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    """The drift with the most evidence."""

    nats: float
    beginning: int
    platform: int
    sign: float


class DriftReader:
    """Detects drifts about one reference model as reports arrive.

    The result of a window is cached until more reports up to that window arrive. So a call
    usually evaluates only the newest window.
    """

    def __init__(
        self,
        *,
        kernel: Kernel = DEFAULT_KERNEL,
        process_noise: ProcessNoise = DEFAULT_PROCESS_NOISE,
    ) -> None:
        """Make a reader with a public prior of the reference's errors, and process noise."""
        self._kernel = kernel
        self._steadiness = process_noise
        self._cache: dict[int, tuple[object, tuple[PlatformDrift, ...]]] = {}

    def read(
        self, plain: Sequence[ReceivedReport], query_responses: Sequence[QueryResponses]
    ) -> tuple[PlatformDrift, ...]:
        """Return all drifts in the order of detection, window after window.

        The result is a function of the releases alone.

        Args:
            plain: residual reports about one reference model, of one period, including those of
                earlier calls.
            query_responses: linear queries about it, with responses.

        Raises:
            InvalidReleaseError: reports have different bases, lengths or reference versions.
        """
        releases = by_organization(plain, query_responses)
        evaluated = {name: own[1:] for name, own in releases.items()}
        drifts: tuple[PlatformDrift, ...] = ()
        for window in sorted({each.window for windows in evaluated.values() for each in windows}):
            counts = [
                (name, each.window, len(each.plain), len(each.responses))
                for name, windows in releases.items()
                for each in windows
                if each.window <= window
            ]
            arrived = (counts, drifts)
            if window not in self._cache or self._cache[window][0] != arrived:
                until = {
                    name: [each for each in windows if each.window <= window]
                    for name, windows in evaluated.items()
                }
                new = _new_drifts(until, drifts, window, self._kernel, self._steadiness)
                self._cache[window] = arrived, drifts + new
            drifts = self._cache[window][1]
        return drifts


def compute_evidence(
    steady: SteadyStateFilter, beginnings: Sequence[int], explained: Sequence[tuple[int, int]] = ()
) -> DriftEvidence:
    """Return an organization's evidence of drifts beyond the explained ones.

    Args:
        steady: the organization's steady state.
        beginnings: windows in which a drift may have begun.
        explained: window and platform position of earlier drifts of unknown size.
    """
    shifts = steady.shifts()
    positions = np.array([place for _, place in explained], dtype=np.int64)
    precision = block_diag(steady.precision, np.eye(len(positions)) / DRIFT_SD**2)
    estimated = np.concatenate([steady.information, np.zeros(len(positions))])
    shape = (len(beginnings), len(PLATFORM_GROUPS))
    crossed = np.zeros((len(estimated), *shape))
    score, information = np.zeros(shape), np.zeros(shape)
    for each in steady.windows:
        effects = shifts[:, positions] * [each.window >= since for since, _ in explained]
        after = np.array([[float(each.window >= since)] for since in beginnings])
        shifted, learned = each.precision @ shifts, each.precision @ effects
        precision += np.block([[each.precision, learned], [learned.T, effects.T @ learned]])
        estimated += np.concatenate([each.information, each.information @ effects])
        crossed += np.concatenate([shifted, effects.T @ shifted])[:, None, :] * after
        score += after * (each.information @ shifts)
        information += after * np.sum(shifts * shifted, axis=0)
    flat = crossed.reshape(len(estimated), -1)
    solved = np.linalg.solve(precision, np.column_stack([estimated, flat]))
    score -= (solved[:, 0] @ flat).reshape(shape)
    information -= np.sum(flat * solved[:, 1:], axis=0).reshape(shape)
    return DriftEvidence(score, np.maximum(information, 0.0))


def _new_drifts(
    releases: Mapping[str, Sequence[WindowReleases]],
    before: tuple[PlatformDrift, ...],
    window: int,
    kernel: Kernel,
    process_noise: ProcessNoise,
) -> tuple[PlatformDrift, ...]:
    """Return the drifts that the reports up to `window` show in addition to `before`."""
    beginnings = sorted({each.window for own in releases.values() for each in own})[1:]
    new_drifts: tuple[PlatformDrift, ...] = ()
    evidence: dict[tuple[str, tuple[tuple[int, int], ...]], DriftEvidence] = {}
    while beginnings:
        drifts = before + new_drifts
        by_name: dict[str, DriftEvidence] = {}
        for name, own in releases.items():
            if own and _is_considered(name, drifts):
                explained = _explained(name, drifts)
                # Computed once if the last drift does not concern the organization.
                if (name, explained) not in evidence:
                    steady = SteadyStateFilter.fit(own, kernel=kernel, process_noise=process_noise)
                    evidence[name, explained] = _unexplained(steady, beginnings, explained)
                by_name[name] = evidence[name, explained]
        if not by_name:
            break
        new = _shared(by_name, beginnings, window) or _alone(by_name, beginnings, window)
        if new is None:
            break
        new_drifts += (new,) if new.shared else (new, *_joined(new, drifts, by_name, beginnings))
    return new_drifts


def _explained(name: str, drifts: Sequence[PlatformDrift]) -> tuple[tuple[int, int], ...]:
    """Return window and platform position of the earlier drifts of an organization."""
    return tuple(
        (each.since, PLATFORM_GROUPS.index(each.platform))
        for each in drifts
        if each.shared or name in each.organizations
    )


def _unexplained(
    steady: SteadyStateFilter, beginnings: Sequence[int], explained: Sequence[tuple[int, int]]
) -> DriftEvidence:
    """Return an organization's evidence beyond its earlier drifts."""
    evidence = compute_evidence(steady, beginnings, explained)
    windows = np.array(beginnings)
    new = np.repeat((windows > steady.windows[0].window)[:, None], len(PLATFORM_GROUPS), axis=1)
    for since, place in explained:
        new[:, place] &= np.abs(windows - since) > NEAR
    return DriftEvidence(evidence.score * new, evidence.information * new)


def _shared(
    by_name: Mapping[str, DriftEvidence], beginnings: Sequence[int], window: int
) -> PlatformDrift | None:
    """Return the drift that all show without the organization with the most evidence.

    Its size is estimated from the other organizations with evidence for it.
    """
    candidates = []
    for sign in _SIGNS:
        nats = np.stack([np.maximum(each.nats(sign), -MAX_DOUBT) for each in by_name.values()])
        candidates.append(_most(nats.sum(axis=0) - nats.max(axis=0), sign))
    candidate = max(candidates)
    if not candidate.nats > THRESHOLD:
        return None
    evidence = {name: _at(each, candidate) for name, each in by_name.items()}
    most = max(evidence, key=lambda name: evidence[name][0])
    supporting = tuple(name for name, (nats, _, _) in evidence.items() if nats > 0)
    others = [evidence[name] for name in supporting if name != most]
    return _drift(candidate, beginnings, window, others, supporting, shared=True)


def _alone(
    by_name: Mapping[str, DriftEvidence], beginnings: Sequence[int], window: int
) -> PlatformDrift | None:
    """Return the drift with the most evidence of a single organization."""
    candidates = [
        (_most(each.nats(sign), sign), name)
        for (name, each), sign in product(by_name.items(), _SIGNS)
    ]
    candidate, name = max(candidates)
    if not candidate.nats > THRESHOLD:
        return None
    evidence = [_at(by_name[name], candidate)]
    return _drift(candidate, beginnings, window, evidence, (name,), shared=False)


def _joined(
    new: PlatformDrift,
    drifts: Sequence[PlatformDrift],
    by_name: Mapping[str, DriftEvidence],
    beginnings: Sequence[int],
) -> tuple[PlatformDrift, ...]:
    """Return the shared drift that several organizations each show, if it is new.

    The new drift and an earlier one are the same if they are near in time, or if the new one may
    have begun with the earlier one. Size and beginning of the shared drift are medians, the
    smaller of two.
    """
    place = PLATFORM_GROUPS.index(new.platform)
    nats = by_name[new.organizations[0]].nats(math.copysign(1.0, new.log_factor))[:, place]
    since = {each for each, value in zip(beginnings, nats, strict=True) if value > THRESHOLD / 2}
    near = [
        each
        for each in (*drifts, new)
        if each.same_direction(new) and (each.near(new) or each.since in since)
    ]
    if any(each.shared for each in near):
        return ()
    own = [each for each in near if _is_considered(each.organizations[0], drifts)]
    names = {each.organizations[0] for each in own}
    able = {
        name
        for name, each in by_name.items()  # a drift by SHIFT would give half of an alarm's evidence
        if np.max(each.information[:, place]) * SHIFT**2 / 2 >= THRESHOLD / 2
    }
    if len(names) < max(2, math.ceil(SHARED_SHARE * len(able | names))):
        return ()
    middle = (len(own) - 1) // 2
    median = sorted(own, key=lambda each: abs(each.log_factor))[middle]
    began = sorted(each.since for each in own)[middle]
    return (
        replace(
            median,
            since=began,
            detected_in=new.detected_in,
            organizations=tuple(sorted(names)),
            shared=True,
        ),
    )


def _is_considered(name: str, drifts: Sequence[PlatformDrift]) -> bool:
    own = [each for each in drifts if not each.shared and each.organizations == (name,)]
    return len(own) < MAX_OWN_DRIFTS


def _most(nats: Floats, sign: float) -> _Candidate:
    beginning, platform = np.unravel_index(int(np.argmax(nats)), nats.shape)
    return _Candidate(float(nats[beginning, platform]), int(beginning), int(platform), sign)


def _at(evidence: DriftEvidence, candidate: _Candidate) -> tuple[float, float, float]:
    """Return nats, score and information of one organization about a candidate."""
    place = (candidate.beginning, candidate.platform)
    nats = evidence.nats(candidate.sign)[place]
    return float(nats), float(evidence.score[place]), float(evidence.information[place])


def _drift(
    candidate: _Candidate,
    beginnings: Sequence[int],
    window: int,
    evidence: Iterable[tuple[float, float, float]],
    organizations: tuple[str, ...],
    *,
    shared: bool,
) -> PlatformDrift:
    _, scores, informations = zip(*evidence, strict=True)
    information = sum(informations)
    return PlatformDrift(
        platform=PLATFORM_GROUPS[candidate.platform],
        since=beginnings[candidate.beginning],
        detected_in=window,
        log_factor=sum(scores) / information,
        standard_error=1 / math.sqrt(information),
        organizations=organizations,
        shared=shared,
    )
