"""Drift detection from the reports: the platform that changed, the window, the size, the members.

All reports of an organization about one reference model are one linear Gaussian model of a
steady state. A drift of a platform by theta log seconds adds theta times its
workloads to their sums in every report from some window k on. So the score of theta has a
closed form: with b and J the information since k, g the shift, x^ and P the estimate from
*all* reports and its covariance,

    q = g'(b - J x^),   I = g'(J - J P J) g,

and q has variance I and mean theta I. That the start is off, however far, is in x^ and P: it
is no drift, and neither is a new model, since residuals are taken against a frozen one.

The statistic is Page's CUSUM, two-sided: the log-likelihood ratio, in nats, of a drift by
SHIFT since k against none, `q SHIFT - I SHIFT^2 / 2`, at the k where it is largest. A shift
of less than half of SHIFT makes it fall, however well it is seen. For a given k it passes h
with a chance of at most exp(-h), however long one waits; the rate over all k and platforms,
and the power, are measured (`fedperf_simulations.experiments.drift.report_detection`).

A drift that was found becomes an unknown of the model: it alarms once, does not look like a
drift of another platform, and the search goes on.

The first report of a period is about all history: so much more than the later ones that they
would look like a change. So the first window that an organization is heard in says nothing here.

Assumed: Gaussian noise as declared, workloads as steady as `ProcessNoise` says, and clips that
let through what `cell_directions` says; a shift far beyond the clips is seen smaller.

Post-processing of releases only: costs no privacy. Influence: an organization is judged by
its own reports, and by questions that it hardly moves. A drift is shared where enough
organizations show it each, or where all together do even without the one that is most
convinced of it; one that is not convinced takes away DOUBT at most; and one that shows MOST
drifts of its own is not heard any more. So a single one, whatever it sends, cannot make a
drift shared that no other shows, and cannot hide what enough others show.

The steady state is one vector [2 * CELLS]: n, its workloads per cell, and u, the sums of their log
residuals. A plain report shows both, plus noise. An answer shows A rho (u - n * center) plus noise
(`cell_directions`). What is particular to a window is the same in all of its reports
(`ProcessNoise`): workloads come and go, executions scatter, a platform wanders a little. In a quiet
month a platform has fewer workloads and, where the reference is off, smaller sums by the same
share. So only a change of the mean residual tells of drift. With all that taken into account a
window becomes one `WindowInformation`, information about the steady state, and windows add up.

The prior is public and wide: a start that is off is just another state.
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
    QueryResponse,
    QueryResponses,
    directions_through_clips,
)
from fedperf_server.inference.corrections import (
    DEFAULT_KERNEL,
    Kernel,
    NoisySums,
    ReceivedReport,
    pooled,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]

STATE = 2 * CELLS

ON_PLATFORM: Floats = np.array(
    [[float(cell.platform is platform) for platform in PLATFORM_GROUPS] for cell in ALL_CELLS]
)
"""Which cells belong to which platform, [CELLS, platforms]."""

LEAST_VARIANCE = 1e-6
"""Of a state that would be known for certain, so that a covariance can be inverted."""


@dataclass(frozen=True, slots=True)
class ProcessNoise:
    """Public spreads of an organization from window to window without any drift.

    Attributes:
        turnover: share of the workloads of a cell that are more or fewer in a window.
        activity: by which share a whole platform has more or fewer workloads in a window.
        renewed: share of the spread of workloads (`Kernel.execution_sd`) that is drawn anew.
        wander: how far a platform is off in a window without meaning it, log seconds.
    """

    turnover: float = 0.1
    activity: float = 0.35
    renewed: float = RENEWED
    wander: float = 0.05

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(
                    f"steadiness {name} must not be negative, got {getattr(self, name)!r}"
                )


DEFAULT_STEADINESS = ProcessNoise()


@dataclass(frozen=True, slots=True, eq=False)
class WindowReleases:
    """All that one organization released in one window, about one reference model.

    Attributes:
        window: which.
        plain: its residual reports.
        answers: its answers and what they answer.
    """

    window: int
    plain: tuple[ReceivedReport, ...]
    answers: tuple[tuple[CellQuery, QueryResponse], ...]


@dataclass(frozen=True, slots=True, eq=False)
class WindowInformation:
    """One window's evidence about the steady state, in information form.

    Attributes:
        window: which.
        precision: [STATE, STATE].
        information: precision times what was seen, [STATE].
    """

    window: int
    precision: Floats
    information: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SteadyStateFilter:
    """An organization's steady state: a public prior, and the evidence of each window.

    Attributes:
        counts: believed number of its workloads per cell, [CELLS].
        precision: of the prior, [STATE, STATE].
        information: precision times mean of the prior, [STATE].
        told: oldest window first.
    """

    counts: Floats
    precision: Floats
    information: Floats
    told: tuple[WindowInformation, ...]

    @classmethod
    def of(
        cls, heard: Sequence[WindowReleases], *, kernel: Kernel, steadiness: ProcessNoise
    ) -> "SteadyStateFilter":
        """The state from all windows of an organization, oldest first; each has a release."""
        plain = _all_plain(heard)
        workloads = _declared(heard, plain)
        own = OrganizationPosterior.before_answers(workloads, plain, kernel=kernel)
        mean, covariance = _prior(workloads, own, kernel)
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        seen = [_seen(each) for each in heard]
        shown = precision + sum(each for each, _ in seen)
        told_of = precision @ mean + sum(each for _, each in seen)
        usual = np.asarray(np.linalg.solve(shown, told_of), dtype=np.float64)
        particular = _particular(own.counts, kernel, steadiness)
        particular += _busier(own.counts, usual[CELLS:], steadiness)
        told = tuple(
            _told(each.window, window, particular) for each, window in zip(heard, seen, strict=True)
        )
        return cls(own.counts, precision, precision @ mean, told)

    def shifts(self) -> Floats:
        """The change of the state by one log second on each platform, [STATE, platforms]."""
        return np.concatenate([np.zeros_like(ON_PLATFORM), self.counts[:, None] * ON_PLATFORM])


def by_organization(
    plain: Sequence[ReceivedReport], answered: Sequence[QueryResponses]
) -> dict[str, tuple[WindowReleases, ...]]:
    """The windows of every organization, oldest first, in the order of names.

    Answers in the window after a first report are about the history of that report, so they count
    in its window; unless the organization sent a plain report in their own window.
    """
    reports: dict[tuple[str, int], list[ReceivedReport]] = {}
    answers: dict[tuple[str, int], list[tuple[CellQuery, QueryResponse]]] = {}
    for each in plain:
        reports.setdefault((each.organization, each.report.slot.window), []).append(each)
    for asked in answered:
        for answer in asked.answers:
            name, window = answer.organization, asked.question.slot.window
            before = reports.get((name, window - 1), ())
            is_late = (name, window) not in reports and any(each.is_first for each in before)
            place = (name, window - is_late)
            answers.setdefault(place, []).append((asked.question, answer))
    found: dict[str, tuple[WindowReleases, ...]] = {}
    for name, window in sorted(reports.keys() | answers.keys()):
        place = (name, window)
        heard = WindowReleases(window, tuple(reports.get(place, ())), tuple(answers.get(place, ())))
        found[name] = (*found.get(name, ()), heard)
    return found


def _all_plain(heard: Sequence[WindowReleases]) -> NoisySums | None:
    reports = [report for each in heard for report in each.plain]
    if not reports:
        return None
    return pooled(reports, reference_version=reports[0].report.reference_version)


def _declared(heard: Sequence[WindowReleases], plain: NoisySums | None) -> float:
    """How many workloads a report is about: as declared for answers, else as counted."""
    declared = [answer.parameters.nominal_workloads for each in heard for _, answer in each.answers]
    counted = float(plain.counts.sum()) if plain is not None else 0.0
    return max(declared, default=max(counted, 1.0))


def _prior(workloads: float, own: OrganizationPosterior, kernel: Kernel) -> tuple[Floats, Floats]:
    """Mean [STATE] and covariance [STATE, STATE] before any report."""
    declared = OrganizationPosterior.before_answers(workloads, None, kernel=kernel)
    levels = kernel.matrix() + kernel.organization_sd**2 * np.eye(CELLS)
    sums = (np.outer(own.counts, own.counts) + np.diag(own.doubt)) * levels
    sums += np.diag(own.counts * kernel.execution_sd**2)
    covariance = LEAST_VARIANCE * np.eye(STATE)
    covariance[:CELLS, :CELLS] += np.diag(declared.doubt)
    covariance[CELLS:, CELLS:] += sums
    return np.concatenate([declared.counts, np.zeros(CELLS)]), covariance


def _particular(counts: Floats, kernel: Kernel, steadiness: ProcessNoise) -> Floats:
    """Covariance of what is particular to a window, [STATE, STATE]."""
    wandering = steadiness.wander * counts[:, None] * ON_PLATFORM
    covariance = np.zeros((STATE, STATE))
    covariance[:CELLS, :CELLS] = np.diag(counts * steadiness.turnover)
    covariance[CELLS:, CELLS:] = wandering @ wandering.T
    covariance[CELLS:, CELLS:] += np.diag(counts * kernel.execution_sd**2 * steadiness.renewed)
    return covariance


def _busier(counts: Floats, sums: Floats, steadiness: ProcessNoise) -> Floats:
    """Covariance of more or fewer workloads on a platform, with the same mean residuals."""
    more = steadiness.activity * np.concatenate(
        [counts[:, None] * ON_PLATFORM, sums[:, None] * ON_PLATFORM]
    )
    return more @ more.T


def _told(window: int, seen: tuple[Floats, Floats], particular: Floats) -> WindowInformation:
    """What was seen, with (J^-1 + particular)^-1 in place of its own precision J."""
    precision, information = seen
    both = np.column_stack([precision, information])
    solved: Floats = np.asarray(np.linalg.solve(np.eye(STATE) + precision @ particular, both))
    told = solved[:, :-1]
    return WindowInformation(window, (told + told.T) / 2, solved[:, -1])


def _seen(heard: WindowReleases) -> tuple[Floats, Floats]:
    """What the window's reports say about the state in that window."""
    precision, information = np.zeros((STATE, STATE)), np.zeros(STATE)
    plain = _all_plain([heard])
    if plain is not None:
        weights = np.repeat([1 / plain.count_sd**2, 1 / plain.sum_sd**2], CELLS)
        precision += np.diag(weights)
        information += weights * np.concatenate([plain.counts, plain.sums])
    for question, answer in heard.answers:
        shown = directions_through_clips(question)
        matrix = np.concatenate([-shown * question.center, shown], axis=1)
        weight = 1 / answer.parameters.noise_multiplier**2
        precision += weight * matrix.T @ matrix
        information += weight * matrix.T @ answer.report.natural()
    return precision, information


SHIFT = 0.4
"""The drift that the statistic is made for, log seconds: a factor of 1.5."""

THRESHOLD = 5.0
"""Nats of evidence from which a drift is one; `fedperf-sim run drift` measures it."""

DOUBT = 3.0
"""Nats that one organization takes away from the evidence of all, at most."""

SHARED_SHARE = 0.3
"""Of the organizations whose reports can show a platform, those that must show a drift."""

NEAR = 2
"""Windows within which drifts of a platform are the same one."""

MOST = 3
"""Drifts of its own that an organization may show about one reference model; whoever shows so
many is not heard any more."""

KNOWN_SD = 2.0
"""Prior stddev of the size of a drift that was found, log seconds: next to nothing is known."""

_SIGNS = (1.0, -1.0)


@dataclass(frozen=True, slots=True)
class PlatformDrift:
    """A platform that got slower or faster.

    Attributes:
        platform: as the basis names it.
        since: first window whose reports show it; it happened in the windows that these cover.
        found: the window whose reports gave it away.
        log_factor: log seconds by which executions take longer, negative if shorter.
        standard_error: of that.
        organizations: for whom it was seen, sorted.
        shared: whether it is a drift of the federation, else of that organization alone.
    """

    platform: Platform
    since: int
    found: int
    log_factor: float
    standard_error: float
    organizations: tuple[str, ...]
    shared: bool

    def like(self, other: "PlatformDrift") -> bool:
        """Whether both say that the same platform got slower, or both that it got faster."""
        same_way = (self.log_factor > 0) == (other.log_factor > 0)
        return self.platform is other.platform and same_way

    def near(self, other: "PlatformDrift") -> bool:
        """Whether both began, or were found, at about the same time."""
        apart = min(abs(self.since - other.since), abs(self.found - other.found))
        return apart <= NEAR


@dataclass(frozen=True, slots=True, eq=False)
class DriftEvidence:
    """One organization's evidence of a drift of each platform since each window.

    Attributes:
        score: q, [beginnings, platforms].
        information: I, [beginnings, platforms]; 0 where nothing can be seen.
    """

    score: Floats
    information: Floats

    def nats(self, sign: float) -> Floats:
        """Log-likelihood ratio of a drift by `sign` * SHIFT, [beginnings, platforms]."""
        return sign * SHIFT * self.score - SHIFT**2 / 2 * self.information


@dataclass(frozen=True, slots=True, order=True)
class _Suspect:
    """The drift that there is most evidence for."""

    nats: float
    beginning: int
    platform: int
    sign: float


class DriftReader:
    """Reads drifts about one reference model as reports arrive.

    What a window shows is read again only where more reports until it have arrived: a release
    does not change. So a look reads the newest window alone.
    """

    def __init__(
        self, *, kernel: Kernel = DEFAULT_KERNEL, steadiness: ProcessNoise = DEFAULT_STEADINESS
    ) -> None:
        """Of a public prior `kernel` of what a start is off by; `steadiness` is no drift."""
        self._kernel = kernel
        self._steadiness = steadiness
        self._known: dict[int, tuple[object, tuple[PlatformDrift, ...]]] = {}

    def read(
        self, plain: Sequence[ReceivedReport], answered: Sequence[QueryResponses]
    ) -> tuple[PlatformDrift, ...]:
        """All drifts in the order in which they were found, window after window.

        A function of the releases alone, so that whoever reads anew finds the same.

        Args:
            plain: residual reports about one reference model, of one period; what was read before
                is among them.
            answered: questions about it and their answers.

        Raises:
            InvalidReleaseError: reports are of different bases, lengths or reference versions.
        """
        every = by_organization(plain, answered)
        heard = {name: own[1:] for name, own in every.items()}
        found: tuple[PlatformDrift, ...] = ()
        for window in sorted({each.window for windows in heard.values() for each in windows}):
            arrived = (_releases(every, until=window), found)
            if window not in self._known or self._known[window][0] != arrived:
                until = {
                    name: [each for each in windows if each.window <= window]
                    for name, windows in heard.items()
                }
                new = _new_drifts(until, found, window, self._kernel, self._steadiness)
                self._known[window] = arrived, found + new
            found = self._known[window][1]
        return found


def _releases(every: Mapping[str, Sequence[WindowReleases]], *, until: int) -> tuple[object, ...]:
    """How many releases of each organization and window there are."""
    return tuple(
        (name, each.window, len(each.plain), len(each.answers))
        for name, windows in every.items()
        for each in windows
        if each.window <= until
    )


def evidence_of(
    steady: SteadyStateFilter, beginnings: Sequence[int], explained: Sequence[tuple[int, int]] = ()
) -> DriftEvidence:
    """An organization's evidence of drifts that are not explained yet.

    Args:
        steady: its reports.
        beginnings: windows since which there may be a drift.
        explained: window and position of the platform of drifts that are known, whose sizes
            are not.
    """
    shifts = steady.shifts()
    sizes = np.array([place for _, place in explained], dtype=np.int64)
    precision = block_diag(steady.precision, np.eye(len(sizes)) / KNOWN_SD**2)
    estimated = np.concatenate([steady.information, np.zeros(len(sizes))])
    shape = (len(beginnings), len(PLATFORM_GROUPS))
    crossed = np.zeros((len(estimated), *shape))
    score, information = np.zeros(shape), np.zeros(shape)
    for told in steady.told:
        known = shifts[:, sizes] * [told.window >= since for since, _ in explained]
        after = np.array([[float(told.window >= since)] for since in beginnings])
        shifted, learned = told.precision @ shifts, told.precision @ known
        precision += np.block([[told.precision, learned], [learned.T, known.T @ learned]])
        estimated += np.concatenate([told.information, told.information @ known])
        crossed += np.concatenate([shifted, known.T @ shifted])[:, None, :] * after
        score += after * (told.information @ shifts)
        information += after * np.sum(shifts * shifted, axis=0)
    flat = crossed.reshape(len(estimated), -1)
    solved = np.linalg.solve(precision, np.column_stack([estimated, flat]))
    score -= (solved[:, 0] @ flat).reshape(shape)
    information -= np.sum(flat * solved[:, 1:], axis=0).reshape(shape)
    return DriftEvidence(score, np.maximum(information, 0.0))


def _new_drifts(
    heard: Mapping[str, Sequence[WindowReleases]],
    before: tuple[PlatformDrift, ...],
    window: int,
    kernel: Kernel,
    steadiness: ProcessNoise,
) -> tuple[PlatformDrift, ...]:
    """What the reports until `window` show and those before did not; sums are not kept."""
    beginnings = sorted({each.window for own in heard.values() for each in own})[1:]
    found: tuple[PlatformDrift, ...] = ()
    evidence: dict[tuple[str, tuple[tuple[int, int], ...]], DriftEvidence] = {}
    while beginnings:
        known = before + found
        said: dict[str, DriftEvidence] = {}
        for name, own in heard.items():
            if own and _believed(name, known):
                explained = _explained(name, known)
                # Once for whom a drift that was just found says nothing new.
                if (name, explained) not in evidence:
                    steady = SteadyStateFilter.of(own, kernel=kernel, steadiness=steadiness)
                    evidence[name, explained] = _unexplained(steady, beginnings, explained)
                said[name] = evidence[name, explained]
        if not said:
            break
        new = _shared(said, beginnings, window) or _alone(said, beginnings, window)
        if new is None:
            break
        found += (new,) if new.shared else (new, *_joined(new, known, said, beginnings))
    return found


def _explained(name: str, known: Sequence[PlatformDrift]) -> tuple[tuple[int, int], ...]:
    """Window and position of the platform of the drifts that are known of an organization."""
    return tuple(
        (each.since, PLATFORM_GROUPS.index(each.platform))
        for each in known
        if each.shared or name in each.organizations
    )


def _unexplained(
    steady: SteadyStateFilter, beginnings: Sequence[int], explained: Sequence[tuple[int, int]]
) -> DriftEvidence:
    """What an organization says beyond the drifts that are known of it."""
    evidence = evidence_of(steady, beginnings, explained)
    windows = np.array(beginnings)
    new = np.repeat((windows > steady.told[0].window)[:, None], len(PLATFORM_GROUPS), axis=1)
    for since, place in explained:
        new[:, place] &= np.abs(windows - since) > NEAR
    return DriftEvidence(evidence.score * new, evidence.information * new)


def _shared(
    said: Mapping[str, DriftEvidence], beginnings: Sequence[int], window: int
) -> PlatformDrift | None:
    """The drift that all show together, even without the one that is most convinced of it.

    Its size is what the others say that are convinced.
    """
    suspects = []
    for sign in _SIGNS:
        nats = np.stack([np.maximum(each.nats(sign), -DOUBT) for each in said.values()])
        suspects.append(_most(nats.sum(axis=0) - nats.max(axis=0), sign))
    suspect = max(suspects)
    if not suspect.nats > THRESHOLD:
        return None
    told = {name: _at(each, suspect) for name, each in said.items()}
    most = max(told, key=lambda name: told[name][0])
    convinced = tuple(name for name, (nats, _, _) in told.items() if nats > 0)
    others = [told[name] for name in convinced if name != most]
    return _drift(suspect, beginnings, window, others, convinced, shared=True)


def _alone(
    said: Mapping[str, DriftEvidence], beginnings: Sequence[int], window: int
) -> PlatformDrift | None:
    """The drift that one organization shows most."""
    suspects = [
        (_most(each.nats(sign), sign), name) for (name, each), sign in product(said.items(), _SIGNS)
    ]
    suspect, name = max(suspects)
    if not suspect.nats > THRESHOLD:
        return None
    told = [_at(said[name], suspect)]
    return _drift(suspect, beginnings, window, told, (name,), shared=False)


def _joined(
    new: PlatformDrift,
    known: Sequence[PlatformDrift],
    said: Mapping[str, DriftEvidence],
    beginnings: Sequence[int],
) -> tuple[PlatformDrift, ...]:
    """The shared drift that organizations, each alone, now show; none if it is no news.

    The new drift and one found before are the same where they are near in time, or where the
    new one may as well have begun with the other. Size and beginning of what is shared are
    medians, the smaller of two.
    """
    place = PLATFORM_GROUPS.index(new.platform)
    nats = said[new.organizations[0]].nats(math.copysign(1.0, new.log_factor))[:, place]
    since = {each for each, told in zip(beginnings, nats, strict=True) if told > THRESHOLD / 2}
    near = [
        each for each in (*known, new) if each.like(new) and (each.near(new) or each.since in since)
    ]
    if any(each.shared for each in near):
        return ()
    own = [each for each in near if _believed(each.organizations[0], known)]
    names = {each.organizations[0] for each in own}
    able = {name for name, each in said.items() if _can_show(each.information[:, place])}
    if len(names) < max(2, math.ceil(SHARED_SHARE * len(able | names))):
        return ()
    middle = (len(own) - 1) // 2
    median = sorted(own, key=lambda each: abs(each.log_factor))[middle]
    began = sorted(each.since for each in own)[middle]
    return (
        replace(
            median, since=began, found=new.found, organizations=tuple(sorted(names)), shared=True
        ),
    )


def _believed(name: str, known: Sequence[PlatformDrift]) -> bool:
    own = [each for each in known if not each.shared and each.organizations == (name,)]
    return len(own) < MOST


def _can_show(information: Floats) -> bool:
    """Whether a drift by SHIFT would give half of the evidence that makes an alarm."""
    return bool(np.max(information) * SHIFT**2 / 2 >= THRESHOLD / 2)


def _most(nats: Floats, sign: float) -> _Suspect:
    beginning, platform = np.unravel_index(int(np.argmax(nats)), nats.shape)
    return _Suspect(float(nats[beginning, platform]), int(beginning), int(platform), sign)


def _at(evidence: DriftEvidence, suspect: _Suspect) -> tuple[float, float, float]:
    """Nats, score and information of one organization about a suspect."""
    place = (suspect.beginning, suspect.platform)
    nats = evidence.nats(suspect.sign)[place]
    return float(nats), float(evidence.score[place]), float(evidence.information[place])


def _drift(
    suspect: _Suspect,
    beginnings: Sequence[int],
    window: int,
    told: Iterable[tuple[float, float, float]],
    organizations: tuple[str, ...],
    *,
    shared: bool,
) -> PlatformDrift:
    _, scores, informations = zip(*told, strict=True)
    information = sum(informations)
    return PlatformDrift(
        platform=PLATFORM_GROUPS[suspect.platform],
        since=beginnings[suspect.beginning],
        found=window,
        log_factor=sum(scores) / information,
        standard_error=1 / math.sqrt(information),
        organizations=organizations,
        shared=shared,
    )
