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
`OrganizationPosterior` keeps u given mu *and* all that its organization said so far, and an answer
changes the belief by what is new in it alone; nothing counts twice, in any number of
stages. From one window to the next most of u stays, some is drawn anew (`RENEWED`); and a
platform may have changed, which questions ask about as well (`CHANGE`), so that
`drift_evidence` can read it from the answers.

Post-processing of releases only: costs no privacy. Influence is bounded: an answer is
shortened to what is plausible (`gaussian_process.update`, `influence_bounds`), tells at
most 1 / organization_sd^2 per cell, and the mean stays within the widest clip around a
center.

A stage asks every sender for D noisy sums over public points. The server chooses the directions
that maximise the variance which the answers are expected to remove from its belief at target
points,

    tr[(A (S_XX + s I) A' + sigma^2 I)^-1  A S_XT S_TX A'],

under the norm rule |A_i| * clip_i <= 1 of `fedperf_shared.releases.linear_queries`. The optimiser
is L-BFGS over the directions of the columns: some ten steps from the strongest eigenvectors. A is
block-diagonal: a sender adds up its own points only, with its own noise.

A clip is kappa standard deviations of the belief. A start may be wrong by more than it thinks, and
clips that saturate hide by how much. So a cheap stage with a wide clip comes first and moves the
mean; tight ones follow around the new mean.

Belief, designs and clips depend on public things and on earlier releases only. Directions and clips
are rounded to a public grid, so the last bits of a machine's linear algebra don't decide them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

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
    ReceivedReport,
    correct_sums,
    pooled_by_organization,
)
from fedperf_server.inference.gaussian_process import GaussianPosterior, Observation, Update, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.linear_queries import (
    INSIDE,
    MAX_CELL_CLIP,
    MAX_CENTER,
    MIN_CELL_CLIP,
    QUESTION_DIRECTIONS,
    CellQuery,
    Design,
    public_design,
)
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    InvalidReleaseError,
    SlotKey,
)

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

DIRECTIONS = 16
DESIGN_STEPS = 60

SPREAD = 1e-3
"""A little of every direction at the start, so that no column begins at 0."""

GRID = 2.0**-12
"""Step of what is asked: directions of length 1, centers and clips, log seconds. Coarse beside
the rounding of any library (1e-12 after a design), fine beside what a question needs."""

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the planned releases of a directed report.

    Attributes:
        share: of the privacy budget, as a share of 1 / noise_multiplier^2.
        kappa: clip in standard deviations of what is believed.
    """

    share: float
    kappa: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigurationError(f"a stage's share must be in (0, 1], got {self.share!r}")
        if not 0 < self.kappa < math.inf:
            raise ConfigurationError(f"a stage's kappa must be positive, got {self.kappa!r}")

    def noise_multiplier(self, whole: float) -> float:
        """Noise of this stage where all stages together cost what one of noise `whole` does."""
        return whole / math.sqrt(self.share)


STAGES = (Stage(0.2, 3.0), Stage(0.3, 1.5), Stage(0.5, 1.0))
"""Wide and cheap first, then tight."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryDesign:
    """The question of a stage: points and a design for every sender.

    Attributes:
        points: position in the belief of each sender's points, [sender][points of it].
        designs: one for each sender.
    """

    points: tuple[Positions, ...]
    designs: tuple[Design, ...]


def ask(
    belief: GaussianPosterior,
    senders: Sequence[Positions],
    targets: Positions,
    *,
    kappa: float,
    noise_multiplier: float,
    record_variance: float,
    directions: int = DIRECTIONS,
) -> QueryDesign:
    """The question of one stage.

    Args:
        belief: over all points, the senders' and the targets.
        senders: position of each workload that a sender adds up, a point as often as
            workloads lie at it; one sender for all where secure aggregation adds them up
            with one noise.
        targets: positions of the points that matter.
        kappa: clip in standard deviations of what is believed of a record.
        noise_multiplier: of each sender's noise.
        record_variance: of a record around its point, (log seconds)^2.
        directions: of each sender.
    """
    merged = [np.unique(each, return_inverse=True, return_counts=True) for each in senders]
    here = np.concatenate([points for points, _, _ in merged])
    counts = np.concatenate([many for _, _, many in merged])
    clips = np.maximum(on_grid(kappa * np.sqrt(belief.variances()[here] + record_variance)), GRID)
    crossed = belief.covariance[np.ix_(here, targets)]
    # The mean of a point's records; a column for their sum is as many times as long.
    chosen = best_directions(
        belief.covariance[np.ix_(here, here)] + np.diag(record_variance / counts),
        crossed @ crossed.T / len(targets),
        clips / counts,
        noise_variance=noise_multiplier**2,
        directions=directions,
        sizes=[len(points) for points, _, _ in merged],
    )
    edges = np.cumsum([0, *(len(points) for points, _, _ in merged)])
    designs = tuple(
        public_design((chosen / counts)[:, a:b][:, place], clips[a:b][place])
        for (a, b), (_, place, _) in zip(pairwise(edges), merged, strict=True)
    )
    return QueryDesign(tuple(senders), designs)


def best_directions(
    signal: Floats,
    wanted: Floats,
    clips: Floats,
    *,
    noise_variance: float,
    directions: int,
    sizes: Sequence[int] | None = None,
) -> Floats:
    """Directions A that remove most variance, tr[(A signal A' + noise)^-1 A wanted A'].

    Args:
        signal: covariance of what the points show, [points, points].
        wanted: S_XT S_TX of what they show and the targets, [points, points].
        clips: at each point, [points]; the norm rule |A_i| * clip_i <= 1 holds.
        noise_variance: of each answer.
        directions: of each sender.
        sizes: points of each sender in a row; by default one sender has all.

    Returns:
        float64 [directions, points].
    """
    blocks = _blocks(sizes or [len(clips)], directions)
    problem = _Problem(signal, wanted, noise_variance, INSIDE / clips, blocks)
    return problem.solve(_start(problem, directions))


def on_grid(values: Floats) -> Floats:
    """The nearest multiples of `GRID`."""
    return np.asarray(np.round(values / GRID) * GRID)


def learn(
    belief: GaussianPosterior,
    question: QueryDesign,
    reports: Sequence[DirectedReport | None],
    *,
    noise_multiplier: float,
    record_variance: float,
) -> Update:
    """The belief after the answers of a stage.

    Args:
        belief: before it.
        question: of the stage, with one design for each sender.
        reports: one of each sender, in the order of the designs; None where none came.
        noise_multiplier: standard deviation of the noise in each value of a report.
        record_variance: of a record around its point, (log seconds)^2.

    Raises:
        InvalidReleaseError: there are more or fewer answers than senders, or one has
            another length than its design.
    """
    if len(reports) != len(question.designs):
        raise InvalidReleaseError(
            f"{len(reports)} answers to a question to {len(question.designs)} senders"
        )
    observations = [
        _observation(belief, points, design, report, noise_multiplier, record_variance)
        for points, design, report in zip(question.points, question.designs, reports, strict=True)
        if report is not None
    ]
    return update(belief, observations)


def _observation(
    belief: GaussianPosterior,
    points: Positions,
    design: Design,
    report: DirectedReport,
    noise_multiplier: float,
    record_variance: float,
) -> Observation:
    if report.values.shape != (design.values,):
        raise InvalidReleaseError(
            f"an answer has the shape {report.values.shape}, its design {design.values} values"
        )
    matrix = np.zeros((design.values, len(belief.mean)))
    np.add.at(matrix.T, points, design.directions.T)
    noise = record_variance * design.directions @ design.directions.T
    return Observation(
        matrix, report.natural(), noise + noise_multiplier**2 * np.eye(design.values)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Maximise tr[(A K A' + noise I)^-1 A B A'] over A with columns of given lengths.

    `blocks` [senders * directions, points] is 1 where a row of A may use a point.
    """

    signal: Floats
    wanted: Floats
    noise: float
    lengths: Floats
    blocks: Floats

    def solve(self, start: Floats) -> Floats:
        """Directions [directions, points] from free ones; columns have their full length.

        Unit columns lie on the grid. What follows, number by number, is the same everywhere.
        """
        found = minimize(
            self._loss,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": DESIGN_STEPS},
        )
        free = found.x.reshape(start.shape)
        unit = on_grid(free / np.sqrt(np.sum(free**2, axis=0)))
        return self._normalised(unit)[0]

    def _loss(self, flat: Floats) -> tuple[float, Floats]:
        free = flat.reshape(-1, self.blocks.shape[1])
        columns, norms = self._normalised(free)
        senders = len(self.blocks) // len(columns)
        whole = np.tile(columns, (senders, 1)) * self.blocks
        system = whole @ self.signal @ whole.T + self.noise * np.eye(len(whole))
        solved = np.linalg.solve(system, whole)
        towards = solved @ self.wanted
        value = float(np.sum(towards * whole))
        slope = 2 * (towards - (towards @ solved.T) @ (whole @ self.signal)) * self.blocks
        slope = slope.reshape(senders, *columns.shape).sum(axis=0)
        unit = columns / self.lengths
        tangent = slope - unit * np.sum(unit * slope, axis=0)
        return -value, -(tangent * self.lengths / norms).ravel()

    def _normalised(self, free: Floats) -> tuple[Floats, Floats]:
        norms = np.sqrt(np.sum(free**2, axis=0)) + _TINY
        return free / norms * self.lengths, norms


def _blocks(sizes: Sequence[int], directions: int) -> Floats:
    """Which rows of A may use which points, [senders * directions, points]."""
    blocks = np.zeros((len(sizes) * directions, sum(sizes)))
    for sender, size in enumerate(sizes):
        first = sum(sizes[:sender])
        blocks[sender * directions : (sender + 1) * directions, first : first + size] = 1.0
    return blocks


def _start(problem: _Problem, directions: int) -> Floats:
    """The directions that vary most together with the targets, as columns of length 1.

    A column that these leave empty would hold rounding alone, and the optimiser would make a
    direction of full length of it. So a fixed direction is added to every column. Libraries choose
    the sign of an eigenvector as they like; here it is that of its largest entry.
    """
    weighted = problem.lengths[:, None] * problem.wanted * problem.lengths
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
class QueryResponse:
    """A validated answer, whose it is, and the public parameters of its slot."""

    organization: str
    report: DirectedReport
    parameters: DirectedParameters


@dataclass(frozen=True, slots=True, eq=False)
class QueryResponses:
    """A question and the answers that arrived, at most one of an organization."""

    question: CellQuery
    answers: tuple[QueryResponse, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OrganizationPosterior:
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
    ) -> "OrganizationPosterior":
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

    def in_the_next_window(self, *, kernel: Kernel = DEFAULT_KERNEL) -> "OrganizationPosterior":
        """The same with the part of the spread that is drawn anew."""
        anew = np.diag(self.counts * kernel.execution_sd**2 * RENEWED)
        return replace(self, covariance=self.covariance + anew)

    @classmethod
    def _untold(cls, counts: Floats, doubt: Floats, kernel: Kernel) -> "OrganizationPosterior":
        spread = counts * kernel.execution_sd**2 + (counts * kernel.organization_sd) ** 2
        return cls(counts, doubt, np.diag(counts), np.zeros(CELLS), np.diag(spread))


@dataclass(frozen=True, slots=True, eq=False)
class CellPosterior:
    """The knowledge that follows from all reports together.

    Attributes:
        correction: the belief about the cells.
        plain: noisy sums of every organization that sent plain reports.
        own: of every organization that answered.
        windows: of the questions that were answered, oldest first.
    """

    correction: CellCorrectionPosterior
    plain: Mapping[str, NoisySums]
    own: Mapping[str, OrganizationPosterior]
    windows: tuple[int, ...] = ()

    def sums_of(
        self,
        organization: str,
        parameters: DirectedParameters,
        *,
        kernel: Kernel = DEFAULT_KERNEL,
    ) -> OrganizationPosterior:
        """An organization's sums of log residuals as believed, also before it answered."""
        if organization in self.own:
            return self.own[organization]
        return OrganizationPosterior.before_answers(
            parameters.nominal_workloads, self.plain.get(organization), kernel=kernel
        )


def infer_cells(
    plain: Sequence[ReceivedReport],
    answered: Sequence[QueryResponses],
    *,
    reference_version: int,
    kernel: Kernel = DEFAULT_KERNEL,
    scales: Sequence[float] = SCALES,
    known: CellPosterior | None = None,
) -> CellPosterior:
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
        learned = CellPosterior(correction, sums, {})
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


def design_cell_query(
    correction: CellCorrectionPosterior,
    senders: Sequence[tuple[OrganizationPosterior, DirectedParameters]],
    *,
    slot: SlotKey,
    version: int,
    change: float = 0.0,
    kernel: Kernel = DEFAULT_KERNEL,
) -> CellQuery:
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
    belief = GaussianPosterior(correction.mean, correction.covariance)
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
    return CellQuery(
        slot=slot,
        version=version,
        basis_version=BASIS_VERSION,
        reference_version=correction.reference_version,
        center=center,
        design=public_design(directions, clips),
    )


def observations_of(
    learned: CellPosterior, answered: QueryResponses, *, kernel: Kernel = DEFAULT_KERNEL
) -> list[Observation]:
    """The new information in each answer, as observations for `gaussian_process`.

    Raises:
        InvalidReleaseError: an answer has another length than the question, or answers another.
    """
    return [seen for seen, _ in _seen(learned, answered, kernel)]


def directions_through_clips(question: CellQuery) -> Floats:
    """The weight of each log second of a cell's sum in an answer, [values, CELLS].

    Clips are kappa standard deviations of what is believed of a residual, and of a normal
    one a clip lets through the part 2 Phi(kappa) - 1 (its best linear approximation).
    """
    passed = math.erf(_stage(question.slot).kappa / math.sqrt(2.0))
    return question.design.directions * passed


def _in_the_next_window(learned: CellPosterior, kernel: Kernel) -> CellPosterior:
    own = {name: sums.in_the_next_window(kernel=kernel) for name, sums in learned.own.items()}
    return replace(learned, own=own)


def _stage(slot: SlotKey) -> Stage:
    return STAGES[min(slot.index, len(STAGES) - 1)]


def _after(
    learned: CellPosterior, answered: QueryResponses, kernel: Kernel, scales: Sequence[float]
) -> CellPosterior:
    """What is known after one more answered question."""
    correction = learned.correction
    seen = _seen(learned, answered, kernel)
    found = update(
        GaussianPosterior(correction.mean, correction.covariance),
        [each for each, _ in seen],
        scales=scales,
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
    learned: CellPosterior, answered: QueryResponses, kernel: Kernel
) -> list[tuple[Observation, OrganizationPosterior]]:
    belief = GaussianPosterior(learned.correction.mean, learned.correction.covariance)
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
    belief: GaussianPosterior,
    sums: OrganizationPosterior,
    asked: Floats,
    told: Floats,
    noise: Floats,
) -> tuple[Observation, OrganizationPosterior]:
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


def _require_answer(report: DirectedReport, question: CellQuery) -> None:
    found = (report.slot, report.design_version, report.values.shape)
    if found != (question.slot, question.version, (question.design.values,)):
        raise InvalidReleaseError(f"an answer {found} is none to question {question.version}")


def _record_sd(belief: GaussianPosterior, kernel: Kernel) -> Floats:
    """Stddev of a workload's residual around the belief's mean, log seconds, [CELLS]."""
    own = kernel.execution_sd**2 + kernel.organization_sd**2
    return np.asarray(np.sqrt(belief.variances() + own))


def _squares(belief: GaussianPosterior, center: Floats) -> Floats:
    """Mean square of the truth around the center, [CELLS]."""
    return np.asarray(belief.variances() + (belief.mean - center) ** 2)


def _mean(values: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(np.stack(values), axis=0), dtype=np.float64)
