"""Answers about a configuration that ran before, with intervals from the spread of its repeats.

The log seconds of a configuration's runs are normal around its level, with a variance of its own.
Before the first repeat that variance has a scaled inverse chi-square prior. The prior is learnt
from the home's other repeated configurations on the same platforms: repeats in a cloud differ by
factors, those on a quiet machine by a percent. The prior of the level is the mix,
with its errors in folds as the spread. Where the mix is off by more than that, it counts less.

Together they give a Student t around the posterior mean. Its scale says how many runs there are
(1 + 1 / k), its tails how little is known of the variance (Gelman et al., Bayesian Data Analysis,
sections 2.6 and 3.2; learnt variances: Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004). Heavy tails of repeats are learnt as a variance that differs more between
configurations.

A run of exactly this job always counts: the mix never moves the median far from its level
(`MOST_PULLED`), and has no say where it knows nothing of the job.

Runs on other resources count as well, moved by what the start says that the change brings
(`ResourceChange`): a plan that ran once on 128 cores is known on 64, up to how it scales.
Jobs that only their own runs speak for (`RunsApart`) are moved by what is usual for any job.

In made-up worlds (normal, Student t of 3 degrees, skewed, one run in ten slow; repeats of 2 %,
of 45 %, of anything between) intervals cover 85 to 94 %. Their interval scores are mostly below
those of the pooled spread of the other configurations. A drift between days has no part of its
own: drift is what shifts a whole kind of work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from fedperf_client.prediction.ensemble.intervals import (
    USUAL_HALF_WIDTH,
    Basis,
    EvidenceSource,
    StudentT,
    half_width,
)
from fedperf_client.prediction.execution_table import Ints
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import Identity

CLOCK_SD = 0.005
"""Repeats that agree better than that do so by chance, or by the steps of a clock; log seconds."""

MOST_REPEATED = 2_000
"""Of more repeated configurations the last ones tell how repeats differ."""

_SD = np.geomspace(0.003, 2.0, 40)
_COUNTS = np.array([0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
_LOG_GRID = np.log(_SD)[:, None], np.log(_COUNTS)

_SURE = 0.86
"""Log units by which a platform in a home may differ from what is public."""


@dataclass(frozen=True, slots=True)
class VariancePosterior:
    """Of the variance of a repeat, a scaled inverse chi-square.

    Attributes:
        sd: log seconds.
        count: as so many repeats it counts.
    """

    sd: float
    count: float

    def learnt(self, evidence: Floats, sure: float) -> "VariancePosterior":
        """The likeliest one where this was believed before.

        Args:
            evidence: log likelihood of every belief on the grid, as `_evidence` gives it.
            sure: log units by which it may be off.
        """
        off = (_LOG_GRID[0] - math.log(self.sd)) ** 2 + (_LOG_GRID[1] - math.log(self.count)) ** 2
        likely = evidence - off / (2 * sure**2)
        row, column = np.unravel_index(int(np.argmax(likely)), likely.shape)
        return VariancePosterior(float(_SD[row]), float(_COUNTS[column]))


PUBLIC_BELIEF = VariancePosterior(0.25, 2.0)
"""Before any repeat is known. Quiet machines repeat within 1 to 4 %, processors in clouds within 5
to 25 % (Schad et al., PVLDB 3, 2010), what waits for shared disks and networks within a factor
of 2 to 3; a home with one job alone must be covered in all of these. So half of all homes are
put between 0.21 and 0.47, and it counts as two repeats: in made-up clouds (0.42 to 0.45) at
least 85 % are covered at 1, 2, 4 and 10 runs, where 0.15 that counts as one covers 83 to 97 %."""


OTHER_SIZE_BELIEF = VariancePosterior(USUAL_HALF_WIDTH / float(ndtri(0.95)), 2.0)
"""Of runs of a workload that are not of exactly the job asked about: a factor of 4 at 90 %, until
their own spread tells."""

SLOPE_SD = 0.35
"""How far the power of cores may be off by which a start scales: as for columns of machines
(`tables.roles`), where jobs of public clusters lie between no speedup and a full one."""


USUAL_DEPARTURE = 0.15
"""Log seconds by which a job departs from a power of its resources or from a law of scaling:
caches, spills, waves of tasks."""

MOST_PULLED = math.log(1.08)
"""By at most so many log seconds a mix moves the level of runs of the very configuration. It
knows of a job in general what these have measured."""

USUAL_SLOPE = -0.5
"""Of log seconds over log cores, where nothing tells how a job scales: with `SLOPE_SD` its 90 %
interval reaches from no speedup to a full one."""

ALIKE_BYTES = math.log(1.1)
"""Jobs that read so nearly as many bytes are of one size."""


class ResourceChange(NamedTuple):
    """The way from own runs of a plan to the same plan on other resources.

    Attributes:
        configuration: of these runs.
        log_seconds: by which the start says that it takes longer.
        log_cores: by which the cores differ, over all nodes.
    """

    configuration: int
    log_seconds: float
    log_cores: float

    @property
    def variance(self) -> float:
        """Of the error of `log_seconds`: the power may be off, and no job keeps to a power."""
        return (SLOPE_SD * self.log_cores) ** 2 + USUAL_DEPARTURE**2


@dataclass(frozen=True, slots=True)
class RepeatPrediction:
    """An answer that rests on own runs of the very configuration, or moved from another.

    Attributes:
        log_seconds: posterior mean.
        spread: of another run around it.
        runs: how many there are.
        is_exact: whether the very configuration ran.
        error_correlation: share of its squared error that answers have in common that were moved
            from the same runs; 0 on their own resources.
        is_same_job: whether the runs are of exactly this job, and not of another size of it.
    """

    log_seconds: float
    spread: StudentT
    runs: int
    is_exact: bool = True
    error_correlation: float = 0.0
    is_same_job: bool = True

    @property
    def basis(self) -> Basis:
        """What it rests on."""
        rests_on = EvidenceSource.OWN_RUNS if self.is_exact else EvidenceSource.OTHER_RESOURCES
        if not self.is_same_job:
            rests_on = EvidenceSource.OTHER_SIZE
        return Basis(rests_on, self.runs, self.error_correlation)

    @classmethod
    def moved(cls, runs: Floats, belief: VariancePosterior, by: float, of_change: float) -> Self:
        """The answer of runs on other resources, or of another size.

        Args:
            runs: log seconds, at least one.
            belief: of the variance of a repeat.
            by: log seconds that the change brings.
            of_change: variance of `by`.
        """
        spread, of_mean = _posterior(runs, belief)
        variance = spread.scale**2 - of_mean
        error_correlation = of_mean / (variance + of_mean + of_change)
        mean = float(runs.mean()) + by
        return cls(
            mean,
            _sum(spread, of_change),
            len(runs),
            is_exact=False,
            error_correlation=error_correlation,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Own executions by configuration: those that no feature tells apart.

    Attributes:
        configurations: those that were measured, ascending.
        kinds: of each, the same for those whose repeats are alike: their platforms.
        first: of each, when it was measured first.
        begins: where its runs begin among all, [configurations + 1].
        log_seconds: of all runs, configuration by configuration.
    """

    configurations: Ints
    kinds: Ints
    first: Ints
    begins: Ints
    log_seconds: Floats
    _evidence: dict[int, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, configurations: Ints, kinds: Ints, log_seconds: Floats) -> Self:
        """Of own executions, oldest first.

        Args:
            configurations: of each.
            kinds: of each, the same for executions whose repeats are alike.
            log_seconds: natural log of the wall seconds, [executions].
        """
        order = np.argsort(configurations, kind="stable")
        found, begins = np.unique(configurations[order], return_index=True)
        first = order[begins]
        ends = np.append(begins, len(order))
        return cls(found, kinds[first], first, ends, log_seconds[order])

    def runs_of(self, configuration: int) -> Floats:
        """Log seconds of its runs; none where it never ran."""
        place = int(np.searchsorted(self.configurations, configuration))
        if place == len(self.configurations) or self.configurations[place] != configuration:
            return np.zeros(0)
        return self._runs(place)

    def answer(
        self,
        configuration: int,
        of_mix: float,
        mix_variance: float,
        *,
        change: ResourceChange | None = None,
    ) -> RepeatPrediction | None:
        """What own runs say together with a mix; None where it never ran.

        Args:
            configuration: that is asked about.
            of_mix: log seconds.
            mix_variance: mean square of its errors, log seconds squared.
            change: from own runs on other resources, which speak where the very configuration
                never ran.
        """
        runs = self.runs_of(configuration)
        if len(runs) > 0:
            spread, of_mean = _posterior(runs, self.belief(configuration))
            apart = of_mix - float(runs.mean())
            pulled = (1 - _share(apart, mix_variance, of_mean)) * apart
            log_seconds = float(runs.mean()) + min(max(pulled, -MOST_PULLED), MOST_PULLED)
            return RepeatPrediction(log_seconds, spread, len(runs))
        runs = np.zeros(0) if change is None else self.runs_of(change.configuration)
        if change is None or len(runs) == 0:
            return None
        belief = self.belief(change.configuration)
        found = RepeatPrediction.moved(runs, belief, change.log_seconds, change.variance)
        of_mean = _posterior(runs, belief)[1] + change.variance
        share = _share(of_mix - found.log_seconds, mix_variance, of_mean)
        return replace(found, log_seconds=of_mix + share * (found.log_seconds - of_mix))

    def belief(self, configuration: int) -> VariancePosterior:
        """What all other configurations tell of the variance of its repeats."""
        place = int(np.searchsorted(self.configurations, configuration))
        own = _evidence([self._runs(place)])
        return PUBLIC_BELIEF.learnt(self._told(int(self.kinds[place])) - own, _SURE)

    def _runs(self, place: int) -> Floats:
        return self.log_seconds[self.begins[place] : self.begins[place + 1]]

    def _told(self, kind: int) -> Floats:
        """What all configurations of a kind tell; computed once."""
        if kind not in self._evidence:
            chosen = np.flatnonzero((np.diff(self.begins) > 1) & (self.kinds == kind))
            last = chosen[np.argsort(self.first[chosen])][-MOST_REPEATED:]
            self._evidence[kind] = _evidence([self._runs(place) for place in last.tolist()])
        return self._evidence[kind]


@dataclass(frozen=True, slots=True, eq=False)
class RunsApart:
    """Own runs that answer for their own jobs alone, see `Identity`; [runs] each.

    Attributes:
        job: ascending.
        configuration, read_bytes, mark: see `Identity`.
        log_cores: over all nodes.
        is_ok: whether it ended well; others are lower bounds.
        log_seconds: natural log of the wall seconds.
    """

    job: Ints
    configuration: Ints
    read_bytes: Floats
    mark: Ints
    log_cores: Floats
    is_ok: NDArray[np.bool_]
    log_seconds: Floats

    @classmethod
    def none(cls) -> Self:
        """Without any run."""
        whole, floats = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, whole, floats, whole, floats, np.zeros(0, np.bool_), floats)

    def __len__(self) -> int:
        return len(self.job)

    def answer(
        self, asked: Identity, log_cores: float, *, tasks: int = 0
    ) -> RepeatPrediction | None:
        """What runs of that job say; None where none of its workload ended well.

        Runs of exactly this job speak before those of another size of it, and among these the
        ones on its resources before those on the nearest others.

        Args:
            asked: of a job that answers alone.
            log_cores: that it has, over all nodes.
            tasks: that it is divided into, which leave more cores idle; 0 where unknown.
        """
        rows = self._of(asked)
        rows, alike = rows[self.is_ok[rows]], self._alike(asked)[self.is_ok[rows]]
        is_same_job = bool(alike.any())
        rows = rows[alike] if is_same_job else rows
        if len(rows) == 0:
            return None
        here = rows[self.configuration[rows] == asked.configuration]
        apart = np.abs(self.log_cores[rows] - log_cores)
        nearest = here if len(here) > 0 else rows[apart == apart.min()]
        runs, belief = self.log_seconds[nearest], PUBLIC_BELIEF
        if len(here) > 0 and is_same_job:
            return RepeatPrediction(float(runs.mean()), _posterior(runs, belief)[0], len(runs))
        most = math.log(tasks) if tasks else math.inf
        by = min(log_cores, most) - min(float(self.log_cores[nearest[-1]]), most)
        variance = 0.0 if len(here) > 0 else (SLOPE_SD * by) ** 2 + USUAL_DEPARTURE**2
        if not is_same_job:
            belief, known = OTHER_SIZE_BELIEF, self.read_bytes[nearest]
            if asked.read_bytes > 0 and (known > 0).all():
                variance += float(np.log(known / asked.read_bytes).mean()) ** 2
        found = RepeatPrediction.moved(runs, belief, USUAL_SLOPE * by, variance)
        return replace(found, is_same_job=is_same_job)

    def runs_of(self, asked: Identity, *, is_ok: bool) -> Floats:
        """Log seconds of the runs of exactly this job on its resources that ended so."""
        rows = self._of(asked)[self._alike(asked)]
        here = (self.configuration[rows] == asked.configuration) & (self.is_ok[rows] == is_ok)
        found: Floats = self.log_seconds[rows[here]]
        return found

    def _of(self, asked: Identity) -> Ints:
        ends = np.searchsorted(self.job, [asked.job, asked.job + 1])
        return np.arange(*ends)

    def _alike(self, asked: Identity) -> NDArray[np.bool_]:
        """Which runs of the job's workload are of its size, see `Identity`."""
        rows = self._of(asked)
        known, mark = self.read_bytes[rows], self.mark[rows]
        if asked.read_bytes == 0:
            return np.asarray((known == 0) & (mark == asked.mark))
        off = np.abs(np.log(np.maximum(known, 1.0) / asked.read_bytes))
        return np.asarray((known > 0) & (off <= ALIKE_BYTES))


def _posterior(runs: Floats, belief: VariancePosterior) -> tuple[StudentT, float]:
    """The spread of another run around their mean, and the variance of that mean.

    As of own runs alone: a mix has seen them too.
    """
    count = len(runs)
    degrees = belief.count + count - 1
    variance = (belief.count * belief.sd**2 + _squares(runs)) / degrees
    return StudentT(math.sqrt(variance + variance / count), degrees), variance / count


def _share(apart: float, mix_variance: float, of_mean: float) -> float:
    """Weight of a mean of that variance beside a mix from which it lies so far apart."""
    off = max(mix_variance, apart**2 - of_mean)
    return off / (off + of_mean)


def _sum(spread: StudentT, variance: float) -> StudentT:
    """With an independent normal error added.

    Squares of 90 % half widths add up. Tails become lighter, by Satterthwaite's rule.
    """
    degrees = spread.degrees * (1 + variance / spread.scale**2) ** 2
    widths = half_width(spread, 0.9), math.sqrt(variance) * float(ndtri(0.95))
    return StudentT.within(math.hypot(*widths), degrees)


def _evidence(repeated: Sequence[Floats]) -> Floats:
    """Log likelihood of every belief on the grid, up to a constant, [SD, counts].

    A sum of squares of d degrees over the believed variance is F-distributed.
    """
    degrees = np.array([len(runs) - 1 for runs in repeated])
    squares = np.array([_squares(runs) for runs in repeated])
    half, believed = _COUNTS / 2, _COUNTS * _SD[:, None] ** 2
    found = np.zeros((len(_SD), len(_COUNTS)))
    for each in np.unique(degrees[degrees > 0]).tolist():
        own = squares[degrees == each]
        constant = gammaln(half + each / 2) - gammaln(half) + half * np.log(believed)
        likely = (half + each / 2) * np.log(believed + own[:, None, None])
        found += len(own) * constant - likely.sum(axis=0)
    return found


def _squares(runs: Floats) -> float:
    """Sum of squares around the mean, not smaller than a clock can tell."""
    return float(((runs - runs.mean()) ** 2).sum()) + (len(runs) - 1) * CLOCK_SD**2
