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

Own executions are brought to the level of today, where the same work takes longer or shorter since.
Drift is looked for in what the public start was off by: it is the same for the whole history,
whatever was fetched since, and nobody outside has a say in it. Executions from before a concept
drift count with what they would take today, in the fit of every member and in the folds that weigh
them. Leaving them out instead forgets what they tell about sizes and jobs: in made-up worlds errors
were up to 6 % larger so than without looking for drift at all, with their level mended up to two
thirds smaller and never larger.

Drift needs dozens of runs. A single workload that an upgrade or a day made slower or faster is
found by itself, in what drift leaves over: the median of its runs since against that of before, on
the same resources and at the same rows, as `fedperf compare` judges them. Its older runs count on
the newer level as well.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, stdtr

from fedperf_client.drift.streams import Stream
from fedperf_client.prediction.ensemble.intervals import (
    USUAL_HALF_WIDTH,
    Basis,
    EvidenceSource,
    StudentT,
    half_width,
)
from fedperf_client.prediction.execution_table import ExecutionTable, Ints, Mask, numbered
from fedperf_client.prediction.learners.prior_slopes import USUAL_DEPARTURE
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


SURE = 0.98
"""Level of the interval of a change, 1 % on either side: of a hundred workloads that did not change
one is called slower by chance."""

ALIKE_ROWS = 1.2
"""Rows that differ by less are the same."""

MOST_CHANGES = 3
"""Of the days since which a workload changed."""

_BOTH_CHOSEN = 2
"""As so many looks counts one at a day that the runs chose: those on either side of it agree better
than repeats do, and they tell how much these differ."""

_MEDIAN_SD = math.sqrt(math.pi / 2)
"""By how much the median of many is less sure than their mean."""

_FEW = 2
"""Of so few the median is the mean."""

_DAY_US = 86_400_000_000


class MedianChange(NamedTuple):
    """How the median run time changed.

    Attributes:
        log_ratio: of the medians, after over before.
        half: half width of its interval, log seconds.
    """

    log_ratio: float
    half: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        return abs(self.log_ratio) > self.half

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of the ratio."""
        low, high = (min(max(self.log_ratio + s * self.half, -700), 700) for s in (-1, 1))
        return math.exp(low), math.exp(high)


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The last change of a workload's run times at the same work that is sure.

    Attributes:
        workload: its number, as in `ExecutionTable`.
        first: number of the first run since, as in `ExecutionTable`.
        since: when that finished.
        is_upgrade: whether runs since are those on the version of its newest run, and runs before
            those on others; else those from a day on.
        change: of the median.
        runs_before, runs_since: how many there are, on the resources that were compared.
    """

    workload: int
    first: int
    since: datetime
    is_upgrade: bool
    change: MedianChange
    runs_before: int
    runs_since: int


def median_change(
    before: Sequence[float] | Floats,
    after: Sequence[float] | Floats,
    belief: VariancePosterior,
    level: float = SURE,
) -> MedianChange:
    """How the median of some runs differs from that of others, at the same work.

    Args:
        before: log seconds, at least one.
        after: the same.
        belief: what other work tells of the variance of a repeat.
        level: of the interval.
    """
    sides = [np.array(each, np.float64) for each in (before, after)]
    degrees = belief.count + len(before) + len(after) - 2
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in sides)
    variance = (belief.count * belief.sd**2 + squares) / degrees
    of_medians = sum((1.0 if len(each) <= _FEW else _MEDIAN_SD**2) / len(each) for each in sides)
    earlier, later = (float(np.median(each)) for each in sides)
    half = StudentT(math.sqrt(variance * of_medians), degrees).quantile((1 + level) / 2)
    return MedianChange(later - earlier, half)


def workload_changes(
    columns: ExecutionTable, platforms: Ints, log_seconds: Floats
) -> tuple[Floats, Mask, tuple[WorkloadChange, ...]]:
    """Log seconds as they would be today, which are moved, and each workload's last change.

    Args:
        columns: executions that ended well, in the order in which they finished.
        platforms: a number for the set that each uses.
        log_seconds: of each, without what changed whole kinds of work.
    """
    today, found = log_seconds.copy(), dict[int, WorkloadChange]()
    moved = np.zeros(len(today), np.bool_)
    workload = columns.workload_index()
    newest = np.zeros(workload.max(initial=-1) + 1, np.int64)
    newest[workload] = columns.source  # the last one of each stays
    upgraded = (columns.source == newest[workload]).astype(np.int64)
    is_first = (columns.queries_before == 0).astype(np.int64)
    same = _together(workload, platforms, columns.nodes, columns.cores, is_first, columns.mark)
    has_rows = columns.source_rows > 0
    size = np.log1p(np.where(has_rows, columns.source_rows, columns.read_bytes))
    days = columns.finished_at // _DAY_US
    for is_upgrade, sides in ((True, upgraded), *[(False, days)] * MOST_CHANGES):
        splits = _splits(_Work(workload, same, sides, size), today)
        repeats_of = 2 * same + upgraded
        for number, (_, after, _) in enumerate(splits):
            repeats_of[after] = -1 - number  # each side repeats for itself, as in `compare`
        repeats = Repeats.of(repeats_of, np.zeros_like(same), today)
        for before, after, tries in splits:
            belief = repeats.belief(int(repeats_of[before[0]]))
            sides_of = today[before], today[after], belief
            looks = tries if is_upgrade else _BOTH_CHOSEN * tries
            if not median_change(*sides_of, 1 - (1 - SURE) / looks).is_sure:
                continue
            change = median_change(*sides_of)
            since = int(after[0])
            before_it = (workload == workload[since]) & (sides < sides[since])
            today[before_it] += change.log_ratio
            moved |= before_it
            one = WorkloadChange(
                int(columns.workload[since]),
                int(columns.number[since]),
                columns.take(after[:1]).moments()[0],
                is_upgrade,
                change,
                len(before),
                len(after),
            )
            if one.workload not in found or one.since > found[one.workload].since:
                found[one.workload] = one
    return today, moved, tuple(found.values())


class _Work(NamedTuple):
    """Runs as changes are looked for in them, in the order in which they finished, [executions].

    Attributes:
        workload: its number, from 0 on.
        same: the same for those of a workload on the same resources.
        sides: runs of one side are never told apart.
        log_size: of the rows of all sources; of unknown ones of the bytes that were read.
    """

    workload: Ints
    same: Ints
    sides: Ints
    log_size: Floats


def _splits(work: _Work, log_seconds: Floats) -> list[tuple[Ints, Ints, float]]:
    """For each workload that may have changed the likeliest split, of how many that were possible.

    Returns:
        Runs before, runs after, and splits.
    """
    order = np.lexsort((work.sides, work.same))
    same, sides, workload = work.same[order], work.sides[order], work.workload[order]
    is_first = np.diff(same, prepend=-1) != 0
    begins = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(begins[1:], len(order))
    at = np.flatnonzero(~is_first & (np.diff(sides, prepend=-1) != 0))
    tries = np.bincount(workload[at], minlength=workload.max(initial=-1) + 1)
    begin, end = begins[group[at]], ends[group[at]]
    rows, logs = _Halves.of(work.log_size[order], begin, at, end), log_seconds[order]
    times = _Halves.of(logs, begin, at, end)
    alike = np.abs(rows.apart) <= math.log(ALIKE_ROWS)
    chance = np.where(alike, times.chance * tries[workload[at]], 1.0)
    found: dict[int, int] = {}
    for place in np.flatnonzero(chance < 1 - SURE).tolist():
        number = int(workload[at[place]])
        if number not in found or chance[place] < chance[found[number]]:
            found[number] = place
    return [
        (
            np.sort(order[begin[place] : at[place]]),
            np.sort(order[at[place] : end[place]]),
            float(tries[number]),
        )
        for number, place in found.items()
    ]


class _Halves(NamedTuple):
    """Groups of values split in two.

    Attributes:
        apart: the mean of the second part less that of the first, [splits].
        chance: that they lie so far apart though nothing changed, if repeats of other work
            agreed like the best, [splits].
    """

    apart: Floats
    chance: Floats

    @classmethod
    def of(cls, values: Floats, begin: Ints, at: Ints, end: Ints) -> "_Halves":
        """Of groups that lie together: from `begin` to `at`, and from there to `end`."""
        values = values - (values.mean() if len(values) else 0.0)
        sums, squares = (np.append(0.0, np.cumsum(each)) for each in (values, values**2))
        many, more = at - begin, end - at
        left, right = (sums[at] - sums[begin]) / many, (sums[end] - sums[at]) / more
        within = squares[end] - squares[begin] - many * left**2 - more * right**2
        degrees = many + more
        variance = (np.maximum(within, 0.0) + 2 * CLOCK_SD**2) / degrees
        apart = right - left
        far = np.abs(apart) / np.sqrt(variance * (1 / many + 1 / more))
        return cls(apart, 2 * stdtr(degrees, -far))


def _together(*values: Ints) -> Ints:
    """A number for executions that agree in all of these, [executions] each."""
    found = np.zeros(len(values[0]), np.int64)
    for each in map(numbered, values):
        found = numbered(found * (each.max(initial=0) + 1) + each)
    return found


def adjust_for_drift(log_seconds: Floats, streams: Iterable[Stream]) -> Floats:
    """What was measured, log seconds [executions], as it would be today."""
    today = log_seconds.copy()
    for stream in streams:
        today[stream.rows] += stream.lags()
    return today
