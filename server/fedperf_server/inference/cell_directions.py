"""Directed reports over the cells: the design of questions, and inference from the answers.

After the plain reports (`corrections`) the server asks every organization for
QUESTION_DIRECTIONS noisy sums over its workloads, chosen for what is believed by then.
An answer is A rho (u - n * center) + noise: n the organization's workloads per cell, u the
sums of their log residuals, rho the part of a normal residual that a clip lets through.
Given the truth mu, u is n mu, its own deviation and its workloads' spread; n is believed
from its plain report, else the declared number spread evenly. What stays unknown of n
counts as noise. What a clip takes from a residual that nobody expected is not modelled: a
later stage mends it.

The same workloads may have told about u before, in a plain report or an earlier stage. So
`OwnSums` keeps u given mu *and* all that its organization said so far, and an answer
changes the belief by what is new in it alone; nothing counts twice, in any number of
stages. From one window to the next most of u stays, some is drawn anew (`RENEWED`); and a
platform may have changed, which questions ask about as well (`CHANGE`), so that
`drift_evidence` can read it from the answers.

Post-processing of releases only: costs no privacy. Influence is bounded: an answer is
shortened to what is plausible (`gaussian_process.update`, `influence_bounds`), tells at
most 1 / organization_sd^2 per cell, and the mean stays within the widest clip around a
center.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.corrections import (
    COUNT_LIMIT,
    DEFAULT_KERNEL,
    EMPTY_SHARE,
    SAME_PLATFORM,
    CellCorrectionPosterior,
    Kernel,
    NoisySums,
    ReceivedReport,
    correct_sums,
    pooled_by_organization,
)
from fedperf_server.inference.design import STAGES, Stage, best_directions, on_grid
from fedperf_server.inference.gaussian_process import Belief, Observation, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.directions import public_design
from fedperf_shared.releases.questions import (
    MAX_CELL_CLIP,
    MAX_CENTER,
    MIN_CELL_CLIP,
    QUESTION_DIRECTIONS,
    CellQuestion,
)
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    InvalidReleaseError,
    SlotKey,
)

Floats = NDArray[np.float64]

SCALES = (1.0, 2.0)
"""Factors on the belief's variance that an answered question may choose: what reports told
is not believed more than they said, and an answer that nobody expected can double the doubt. Only
in the first window: whether a start is off is known by then, and many chances to double
would come true by noise alone."""

EVERYWHERE = 0.5
"""Part of a question's interest that all cells share; the rest goes where workloads are."""

CHANGE = 0.1
"""Variance, (log seconds)^2, by which questions suppose that each platform may have changed
since the window before: more than it does as a rule, else nobody would see when it does."""

RENEWED = 0.3
"""Share of the spread of an organization's workloads that is drawn anew in each window, since
executions scatter and some workloads are new."""


@dataclass(frozen=True, slots=True, eq=False)
class DirectedAnswer:
    """A validated answer, whose it is, and the public parameters of its slot."""

    organization: str
    report: DirectedReport
    parameters: DirectedParameters


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredQuestion:
    """A question and the answers that arrived, at most one of an organization."""

    question: CellQuestion
    answers: tuple[DirectedAnswer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OwnSums:
    """An organization's sums of log residuals per cell, u | mu ~ N(slopes mu + offset, covariance).

    Attributes:
        counts: believed number of its workloads per cell, float64 [CELLS].
        doubt: variance of that, [CELLS].
        slopes: [CELLS, CELLS].
        offset: log seconds, [CELLS].
        covariance: [CELLS, CELLS].
    """

    counts: Floats
    doubt: Floats
    slopes: Floats
    offset: Floats
    covariance: Floats

    @classmethod
    def before_answers(
        cls, workloads: float, plain: NoisySums | None, *, kernel: Kernel = DEFAULT_KERNEL
    ) -> "OwnSums":
        """The sums of an organization that has answered nothing yet.

        A declared number of workloads is spread evenly over cells of which `EMPTY_SHARE` are
        empty, nobody knows which; noisy counts tell where they are as far as the noise lets
        them (the best linear estimate, so that counts add up to what was declared).

        Args:
            workloads: declared number.
            plain: its plain reports, if it sent any.
            kernel: public prior.
        """
        even = min(workloads / CELLS, COUNT_LIMIT)
        variance = even**2 * EMPTY_SHARE / (1 - EMPTY_SHARE)
        if plain is None:
            return cls._untold(np.full(CELLS, even), np.full(CELLS, variance), kernel)
        seen = variance / (variance + plain.count_sd**2)
        counts = np.clip(even + seen * (plain.counts - even), 0.0, COUNT_LIMIT)
        untold = cls._untold(counts, np.full(CELLS, variance * (1 - seen)), kernel)
        spread = np.diag(untold.covariance)
        told = spread / (spread + plain.sum_sd**2 + untold.doubt * np.diag(kernel.matrix()))
        return replace(
            untold,
            slopes=np.diag(counts * (1 - told)),
            offset=told * plain.sums,
            covariance=np.diag(spread * (1 - told)),
        )

    def in_the_next_window(self, *, kernel: Kernel = DEFAULT_KERNEL) -> "OwnSums":
        """The same with the part of the spread that is drawn anew."""
        anew = np.diag(self.counts * kernel.execution_sd**2 * RENEWED)
        return replace(self, covariance=self.covariance + anew)

    @classmethod
    def _untold(cls, counts: Floats, doubt: Floats, kernel: Kernel) -> "OwnSums":
        spread = counts * kernel.execution_sd**2 + (counts * kernel.organization_sd) ** 2
        return cls(counts, doubt, np.diag(counts), np.zeros(CELLS), np.diag(spread))


@dataclass(frozen=True, slots=True, eq=False)
class LearnedCells:
    """The knowledge that follows from all reports together.

    Attributes:
        correction: the belief about the cells.
        plain: noisy sums of every organization that sent plain reports.
        own: of every organization that answered.
        windows: of the questions that were answered, oldest first.
    """

    correction: CellCorrectionPosterior
    plain: Mapping[str, NoisySums]
    own: Mapping[str, OwnSums]
    windows: tuple[int, ...] = ()

    def sums_of(
        self,
        organization: str,
        parameters: DirectedParameters,
        *,
        kernel: Kernel = DEFAULT_KERNEL,
    ) -> OwnSums:
        """An organization's sums of log residuals as believed, also before it answered."""
        if organization in self.own:
            return self.own[organization]
        return OwnSums.before_answers(
            parameters.nominal_workloads, self.plain.get(organization), kernel=kernel
        )


def learn_cells(
    plain: Sequence[ReceivedReport],
    answered: Sequence[AnsweredQuestion],
    *,
    reference_version: int,
    kernel: Kernel = DEFAULT_KERNEL,
    scales: Sequence[float] = SCALES,
    known: LearnedCells | None = None,
) -> LearnedCells:
    """The posterior given plain reports and answers; that of `corrections` without answers.

    Args:
        plain: all against `reference_version`.
        answered: questions and their answers, oldest first, all against it.
        reference_version: model version that residuals are taken against.
        kernel: public prior.
        scales: of the belief's variance; an answered question of the first window chooses one.
        known: what the same plain reports told with the questions before `answered`.

    Raises:
        InvalidReleaseError: a report is of another basis, length, version or question.
    """
    learned = known
    if learned is None:
        sums = pooled_by_organization(plain, reference_version=reference_version)
        correction = correct_sums(sums, reference_version=reference_version, kernel=kernel)
        learned = LearnedCells(correction, sums, {})
    for each in answered:
        if each.question.reference_version != reference_version:
            raise InvalidReleaseError(
                f"question {each.question.version} is about model version "
                f"{each.question.reference_version}, expected {reference_version}"
            )
        if not each.answers:
            continue
        windows = (*learned.windows, each.question.slot.window)
        if windows[-1] != windows[-2:][0]:
            learned = _in_the_next_window(learned, kernel)
        chosen = scales if windows[-1] == windows[0] else (1.0,)
        learned = replace(_after(learned, each, kernel, chosen), windows=windows)
    return learned


def ask_cells(
    correction: CellCorrectionPosterior,
    senders: Sequence[tuple[OwnSums, DirectedParameters]],
    *,
    slot: SlotKey,
    version: int,
    change: float = 0.0,
    kernel: Kernel = DEFAULT_KERNEL,
) -> CellQuestion:
    """The question of `slot` to all senders, the best one for them on average.

    Clips are `design.STAGES`' standard deviations of a workload around the belief: wide
    where little is known, and wider where the likelihood widened the belief.

    Args:
        correction: what is believed by now; the question is about its reference version.
        senders: who will answer, what is known of them and their slot's parameters.
        slot: which slot; its index says which stage.
        version: the question's number.
        change: variance by which each platform may have changed since what is believed was
            reported, (log seconds)^2; `CHANGE` where that was an earlier window.
        kernel: public prior.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    if not senders:
        raise ConfigurationError("a question needs somebody who may answer it")
    center = on_grid(np.clip(correction.mean, -MAX_CENTER, MAX_CENTER))
    belief = Belief(correction.mean, correction.covariance)
    clips = on_grid(_stage(slot).kappa * _record_sd(belief, kernel))
    clips = np.clip(clips, MIN_CELL_CLIP, MAX_CELL_CLIP)
    own = [each for each, _ in senders]
    counts, slopes = _mean([each.counts for each in own]), _mean([each.slopes for each in own])
    unknown = _mean([each.covariance for each in own])
    unknown += np.diag(_mean([each.doubt for each in own]) * _squares(belief, center))
    matters = EVERYWHERE / CELLS + (1 - EVERYWHERE) * counts / max(float(counts.sum()), 1e-9)
    changed = counts[:, None] * change * SAME_PLATFORM
    towards = (slopes @ belief.covariance + changed) * np.sqrt(matters)
    variance = float(np.mean([each.noise_multiplier**2 for _, each in senders]))
    directions = best_directions(
        slopes @ belief.covariance @ slopes.T + changed * counts + unknown / len(senders),
        towards @ towards.T,
        clips,
        noise_variance=variance / len(senders),
        directions=QUESTION_DIRECTIONS,
    )
    return CellQuestion(
        slot=slot,
        version=version,
        basis_version=BASIS_VERSION,
        reference_version=correction.reference_version,
        center=center,
        design=public_design(directions, clips),
    )


def observations_of(
    learned: LearnedCells, answered: AnsweredQuestion, *, kernel: Kernel = DEFAULT_KERNEL
) -> list[Observation]:
    """The new information in each answer, as observations for `gaussian_process`.

    Raises:
        InvalidReleaseError: an answer has another length than the question, or answers another.
    """
    return [seen for seen, _ in _seen(learned, answered, kernel)]


def directions_through_clips(question: CellQuestion) -> Floats:
    """The weight of each log second of a cell's sum in an answer, [values, CELLS].

    Clips are kappa standard deviations of what is believed of a residual, and of a normal
    one a clip lets through the part 2 Phi(kappa) - 1 (its best linear approximation).
    """
    passed = math.erf(_stage(question.slot).kappa / math.sqrt(2.0))
    return question.design.directions * passed


def _in_the_next_window(learned: LearnedCells, kernel: Kernel) -> LearnedCells:
    own = {name: sums.in_the_next_window(kernel=kernel) for name, sums in learned.own.items()}
    return replace(learned, own=own)


def _stage(slot: SlotKey) -> Stage:
    return STAGES[min(slot.index, len(STAGES) - 1)]


def _after(
    learned: LearnedCells, answered: AnsweredQuestion, kernel: Kernel, scales: Sequence[float]
) -> LearnedCells:
    """What is known after one more answered question."""
    correction = learned.correction
    seen = _seen(learned, answered, kernel)
    found = update(
        Belief(correction.mean, correction.covariance), [each for each, _ in seen], scales=scales
    )
    names = [answer.organization for answer in answered.answers]
    own = {**learned.own, **dict(zip(names, (after for _, after in seen), strict=True))}
    center, clips = answered.question.center, answered.question.design.clips
    limit = np.maximum(np.abs(center) + clips, np.abs(correction.mean))
    after = replace(
        correction,
        mean=np.clip(found.belief.mean, -limit, limit),
        covariance=found.belief.covariance,
        scale=correction.scale * found.scale,
        organizations=len(learned.plain.keys() | own.keys()),
    )
    return replace(learned, correction=after, own=own)


def _seen(
    learned: LearnedCells, answered: AnsweredQuestion, kernel: Kernel
) -> list[tuple[Observation, OwnSums]]:
    belief = Belief(learned.correction.mean, learned.correction.covariance)
    question = answered.question
    asked = directions_through_clips(question)
    squares = _squares(belief, question.center)
    found = []
    for answer in answered.answers:
        _require_answer(answer.report, question)
        sums = learned.sums_of(answer.organization, answer.parameters, kernel=kernel)
        noise = (asked * sums.doubt * squares) @ asked.T
        noise += answer.parameters.noise_multiplier**2 * np.eye(len(asked))
        told = answer.report.natural() + asked @ (sums.counts * question.center)
        found.append(_split(belief, sums, asked, told, noise))
    return found


def _split(
    belief: Belief, sums: OwnSums, asked: Floats, told: Floats, noise: Floats
) -> tuple[Observation, OwnSums]:
    """What told = asked u + noise says about the truth, and what is known of u after it."""
    matrix = asked @ sums.slopes
    crossed = asked @ sums.covariance
    spread = crossed @ asked.T + noise
    spread = (spread + spread.T) / 2
    new = told - asked @ sums.offset
    gain = np.linalg.solve(spread, crossed).T
    covariance = sums.covariance - gain @ crossed
    after = replace(
        sums,
        slopes=sums.slopes - gain @ matrix,
        offset=sums.offset + gain @ new,
        covariance=(covariance + covariance.T) / 2,
    )
    return Observation(matrix, new - matrix @ belief.mean, spread), after


def _require_answer(report: DirectedReport, question: CellQuestion) -> None:
    found = (report.slot, report.design_version, report.values.shape)
    if found != (question.slot, question.version, (question.design.values,)):
        raise InvalidReleaseError(f"an answer {found} is none to question {question.version}")


def _record_sd(belief: Belief, kernel: Kernel) -> Floats:
    """Stddev of a workload's residual around the belief's mean, log seconds, [CELLS]."""
    own = kernel.execution_sd**2 + kernel.organization_sd**2
    return np.asarray(np.sqrt(belief.variances() + own))


def _squares(belief: Belief, center: Floats) -> Floats:
    """Mean square of the truth around the center, [CELLS]."""
    return np.asarray(belief.variances() + (belief.mean - center) ** 2)


def _mean(values: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(np.stack(values), axis=0), dtype=np.float64)
