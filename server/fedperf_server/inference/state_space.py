"""An organization's steady state, inferred from its reports of several windows if nothing drifts.

The state is one vector [2 * CELLS]: n, its workloads per cell, and u, the sums of their log
residuals. A plain report shows both, plus noise. An answer shows A rho (u - n * center) plus noise
(`cell_directions`). What is particular to a window is the same in all of its reports
(`Steadiness`): workloads come and go, executions scatter, a platform wanders a little. In a quiet
month a platform has fewer workloads and, where the reference is off, smaller sums by the same
share. So only a change of the mean residual tells of drift. With all that taken into account a
window becomes one `WindowTold`, information about the steady state, and windows add up.

The prior is public and wide: a start that is off is just another state.

Only releases are read, so nothing here costs privacy. What one organization sent never enters the
sums of another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.cell_directions import (
    RENEWED,
    AnsweredQuestion,
    DirectedAnswer,
    OwnSums,
    directions_through_clips,
)
from fedperf_server.inference.corrections import Kernel, NoisySums, ReceivedReport, pooled
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS
from fedperf_shared.releases.questions import CellQuestion

Floats = NDArray[np.float64]

STATE = 2 * CELLS

ON_PLATFORM: Floats = np.array(
    [[float(cell.platform is platform) for platform in PLATFORM_GROUPS] for cell in ALL_CELLS]
)
"""Which cells belong to which platform, [CELLS, platforms]."""

LEAST_VARIANCE = 1e-6
"""Of a state that would be known for certain, so that a covariance can be inverted."""


@dataclass(frozen=True, slots=True)
class Steadiness:
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


DEFAULT_STEADINESS = Steadiness()


@dataclass(frozen=True, slots=True, eq=False)
class WindowHeard:
    """All that one organization released in one window, about one reference model.

    Attributes:
        window: which.
        plain: its residual reports.
        answers: its answers and what they answer.
    """

    window: int
    plain: tuple[ReceivedReport, ...]
    answers: tuple[tuple[CellQuestion, DirectedAnswer], ...]


@dataclass(frozen=True, slots=True, eq=False)
class WindowTold:
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
class SteadySums:
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
    told: tuple[WindowTold, ...]

    @classmethod
    def of(
        cls, heard: Sequence[WindowHeard], *, kernel: Kernel, steadiness: Steadiness
    ) -> "SteadySums":
        """The state from all windows of an organization, oldest first; each has a release."""
        plain = _all_plain(heard)
        workloads = _declared(heard, plain)
        own = OwnSums.before_answers(workloads, plain, kernel=kernel)
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
    plain: Sequence[ReceivedReport], answered: Sequence[AnsweredQuestion]
) -> dict[str, tuple[WindowHeard, ...]]:
    """The windows of every organization, oldest first, in the order of names.

    Answers in the window after a first report are about the history of that report, so they count
    in its window; unless the organization sent a plain report in their own window.
    """
    reports: dict[tuple[str, int], list[ReceivedReport]] = {}
    answers: dict[tuple[str, int], list[tuple[CellQuestion, DirectedAnswer]]] = {}
    for each in plain:
        reports.setdefault((each.organization, each.report.slot.window), []).append(each)
    for asked in answered:
        for answer in asked.answers:
            name, window = answer.organization, asked.question.slot.window
            before = reports.get((name, window - 1), ())
            is_late = (name, window) not in reports and any(each.is_first for each in before)
            place = (name, window - is_late)
            answers.setdefault(place, []).append((asked.question, answer))
    found: dict[str, tuple[WindowHeard, ...]] = {}
    for name, window in sorted(reports.keys() | answers.keys()):
        place = (name, window)
        heard = WindowHeard(window, tuple(reports.get(place, ())), tuple(answers.get(place, ())))
        found[name] = (*found.get(name, ()), heard)
    return found


def _all_plain(heard: Sequence[WindowHeard]) -> NoisySums | None:
    reports = [report for each in heard for report in each.plain]
    if not reports:
        return None
    return pooled(reports, reference_version=reports[0].report.reference_version)


def _declared(heard: Sequence[WindowHeard], plain: NoisySums | None) -> float:
    """How many workloads a report is about: as declared for answers, else as counted."""
    declared = [answer.parameters.nominal_workloads for each in heard for _, answer in each.answers]
    counted = float(plain.counts.sum()) if plain is not None else 0.0
    return max(declared, default=max(counted, 1.0))


def _prior(workloads: float, own: OwnSums, kernel: Kernel) -> tuple[Floats, Floats]:
    """Mean [STATE] and covariance [STATE, STATE] before any report."""
    declared = OwnSums.before_answers(workloads, None, kernel=kernel)
    levels = kernel.matrix() + kernel.organization_sd**2 * np.eye(CELLS)
    sums = (np.outer(own.counts, own.counts) + np.diag(own.doubt)) * levels
    sums += np.diag(own.counts * kernel.execution_sd**2)
    covariance = LEAST_VARIANCE * np.eye(STATE)
    covariance[:CELLS, :CELLS] += np.diag(declared.doubt)
    covariance[CELLS:, CELLS:] += sums
    return np.concatenate([declared.counts, np.zeros(CELLS)]), covariance


def _particular(counts: Floats, kernel: Kernel, steadiness: Steadiness) -> Floats:
    """Covariance of what is particular to a window, [STATE, STATE]."""
    wandering = steadiness.wander * counts[:, None] * ON_PLATFORM
    covariance = np.zeros((STATE, STATE))
    covariance[:CELLS, :CELLS] = np.diag(counts * steadiness.turnover)
    covariance[CELLS:, CELLS:] = wandering @ wandering.T
    covariance[CELLS:, CELLS:] += np.diag(counts * kernel.execution_sd**2 * steadiness.renewed)
    return covariance


def _busier(counts: Floats, sums: Floats, steadiness: Steadiness) -> Floats:
    """Covariance of more or fewer workloads on a platform, with the same mean residuals."""
    more = steadiness.activity * np.concatenate(
        [counts[:, None] * ON_PLATFORM, sums[:, None] * ON_PLATFORM]
    )
    return more @ more.T


def _told(window: int, seen: tuple[Floats, Floats], particular: Floats) -> WindowTold:
    """What was seen, with (J^-1 + particular)^-1 in place of its own precision J."""
    precision, information = seen
    both = np.column_stack([precision, information])
    solved: Floats = np.asarray(np.linalg.solve(np.eye(STATE) + precision @ particular, both))
    told = solved[:, :-1]
    return WindowTold(window, (told + told.T) / 2, solved[:, -1])


def _seen(heard: WindowHeard) -> tuple[Floats, Floats]:
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
