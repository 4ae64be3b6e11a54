"""The design of questions: directions whose answers tell most about the target points.

A stage asks every sender for D noisy sums over public points. The server chooses the directions
that maximise the variance which the answers are expected to remove from its belief at target
points,

    tr[(A (S_XX + s I) A' + sigma^2 I)^-1  A S_XT S_TX A'],

under the norm rule |A_i| * clip_i <= 1 of `fedperf_shared.releases.directions`. The optimiser is
L-BFGS over the directions of the columns: some ten steps from the strongest eigenvectors. A is
block-diagonal: a sender adds up its own points only, with its own noise.

A clip is kappa standard deviations of the belief. A start may be wrong by more than it thinks, and
clips that saturate hide by how much. So a cheap stage with a wide clip comes first and moves the
mean; tight ones follow around the new mean.

Belief, designs and clips depend on public things and on earlier releases only. Directions and clips
are rounded to a public grid, so the last bits of a machine's linear algebra don't decide them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedperf_server.inference.gaussian_process import Belief, Observation, Update, update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.directions import INSIDE, Design, public_design
from fedperf_shared.releases.release import DirectedReport, InvalidReleaseError

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
class DesignedQuestion:
    """The question of a stage: points and a design for every sender.

    Attributes:
        points: position in the belief of each sender's points, [sender][points of it].
        designs: one for each sender.
    """

    points: tuple[Positions, ...]
    designs: tuple[Design, ...]


def ask(
    belief: Belief,
    senders: Sequence[Positions],
    targets: Positions,
    *,
    kappa: float,
    noise_multiplier: float,
    record_variance: float,
    directions: int = DIRECTIONS,
) -> DesignedQuestion:
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
    return DesignedQuestion(tuple(senders), designs)


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
    belief: Belief,
    question: DesignedQuestion,
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
    belief: Belief,
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
