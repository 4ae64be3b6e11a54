"""Predictions from runs of the same job, and changes of a workload's run times.

**Repeats.** The log run times of a configuration are normal around its level, with a variance of
its own. Before the first repeat that variance has a scaled inverse chi-squared prior, learnt from
the other repeated configurations on the same platforms: repeats in a cloud differ by factors, those
on a quiet machine by a percent. The prior of the level is the ensemble, with the spread of its
errors in folds. An ensemble that is off by more than that counts less.

The posterior is a Student t around the posterior mean. Its scale says how many runs there are
(1 + 1 / k), its tails how little is known of the variance (Gelman et al., Bayesian Data Analysis,
sections 2.6 and 3.2; learnt variances: Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004). Heavy tails of repeats are learnt as a variance that differs more between
configurations. A run of exactly the job always counts: the ensemble moves the median at most
`MOST_PULLED` away from it.

Runs on other resources count as well, moved by the change that the pretrained model predicts
(`ResourceChange`). A plan that ran once on 128 cores is known on 64, up to how it scales. Jobs that
only their own runs predict (`IsolatedRuns`) are moved by what is usual for any job.

In synthetic worlds (normal, Student t of 3 degrees, skewed, one run in ten slow; repeats of 2 %,
of 45 %, of anything between) intervals cover 85 to 94 %. Their interval scores are mostly below
those of the pooled spread of the other configurations. Day-to-day drift has no part of its own:
drift shifts a whole kind of work.

**Changes.** Run times are adjusted to the level of today if the same work takes longer or shorter
since. Drift is detected in the residuals of the public pretrained model. It is the same for the
whole history, whatever was fetched since, and nobody outside influences it. Executions before a
concept drift count with what they would take today, in the fit of every member and in the folds.
Leaving them out would forget what they tell about sizes and jobs: in synthetic worlds errors were
up to 6 % larger than without any drift detection, with adjusted levels up to two thirds smaller and
never larger.

Drift detection needs dozens of runs. A single workload that an upgrade or a day made slower or
faster is found by itself, in what drift leaves over. The median of its runs since is compared with
that of the runs before, on the same resources and at the same rows, as `fedperf compare` does. Its
older runs are adjusted as well.
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
from fedperf_client.prediction.execution_table import (
    ExecutionTable,
    Ints,
    Mask,
    numbered_together,
)
from fedperf_client.prediction.learners.prior_slopes import USUAL_DEPARTURE
from fedperf_client.prediction.prediction import (
    CLAIMED_LEVEL,
    USUAL_HALF_WIDTH,
    Evidence,
    EvidenceSource,
    Floats,
    Prediction,
    StudentT,
)
from fedperf_client.prediction.query_encoding import Identity

CLOCK_SD = 0.005
"""Repeats that agree better do so by chance, or by the resolution of a clock; log seconds."""

MOST_REPEATED = 2_000
"""Newest repeated configurations from which the prior of the variance is learnt."""

_SD = np.geomspace(0.003, 2.0, 40)
_COUNTS = np.array([0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
_LOG_GRID = np.log(_SD)[:, None], np.log(_COUNTS)

_PRIOR_SD = 0.86
"""Log units by which a platform of an organization may differ from the public prior."""


@dataclass(frozen=True, slots=True)
class VariancePosterior:
    """A scaled inverse chi-squared distribution of the variance of a repeat.

    Attributes:
        sd: log seconds.
        count: of repeats that it is worth.
    """

    sd: float
    count: float


PUBLIC_PRIOR = VariancePosterior(0.25, 2.0)
"""Before any repeat is known. Quiet machines repeat within 1 to 4 %, processors in clouds within 5
to 25 % (Schad et al., PVLDB 3, 2010), and jobs that wait for shared disks and networks within a
factor of 2 to 3. An organization with a single job must be covered in all of these. So half of all
organizations are put between 0.21 and 0.47, and the prior counts as two repeats. In synthetic
clouds (0.42 to 0.45) at least 85 % are covered at 1, 2, 4 and 10 runs; a prior of 0.15 that counts
as one repeat covers 83 to 97 %."""


OTHER_SIZE_PRIOR = VariancePosterior(USUAL_HALF_WIDTH / float(ndtri(0.95)), 2.0)
"""For runs of a workload that are not of exactly the same job: a factor of 4 at 90 %, until their
own spread is known."""

SLOPE_SD = 0.35
"""Standard deviation of the power of cores by which run time scales, as for columns of machines
(`tables.roles`): jobs of public clusters lie between no speed-up and a full one."""

USUAL_SLOPE = -0.5
"""Slope of log seconds over log cores if nothing tells how a job scales. With `SLOPE_SD` its 90 %
interval reaches from no speed-up to a full one."""

MOST_PULLED = math.log(1.08)
"""Log seconds by which an ensemble may move the level of runs of the same configuration."""

ALIKE_BYTES = math.log(1.1)
"""Jobs whose read bytes differ by less are of one size, log units."""


class ResourceChange(NamedTuple):
    """The change from runs of a plan to the same plan on other resources.

    Attributes:
        configuration: of these runs.
        log_seconds: by which the pretrained model predicts a longer run time.
        log_cores: difference of the cores over all nodes.
    """

    configuration: int
    log_seconds: float
    log_cores: float

    @property
    def variance(self) -> float:
        """Variance of the error of `log_seconds`: of the power, and of departures from a power."""
        return (SLOPE_SD * self.log_cores) ** 2 + USUAL_DEPARTURE**2


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Local executions by configuration; runs of one configuration have equal features.

    Attributes:
        configurations: ascending, [configurations].
        kinds: equal for configurations whose repeats are alike: their platforms, [configurations].
        first: index of the first run of each, [configurations].
        begins: where the runs of each begin in `log_seconds`, [configurations + 1].
        log_seconds: of all runs, configuration by configuration.
    """

    configurations: Ints
    kinds: Ints
    first: Ints
    begins: Ints
    log_seconds: Floats
    _likelihoods: dict[int, Floats] = field(default_factory=dict)

    @classmethod
    def from_runs(cls, configurations: Ints, kinds: Ints, log_seconds: Floats) -> Self:
        """Group executions, oldest first, by their configurations; all [executions]."""
        order = np.argsort(configurations, kind="stable")
        distinct, begins = np.unique(configurations[order], return_index=True)
        first = order[begins]
        return cls(distinct, kinds[first], first, np.append(begins, len(order)), log_seconds[order])

    def runs_of(self, configuration: int) -> Floats:
        """Return the log seconds of the runs of a configuration; empty if it never ran."""
        place = int(np.searchsorted(self.configurations, configuration))
        if place == len(self.configurations) or self.configurations[place] != configuration:
            return np.zeros(0)
        return self._runs(place)

    def predict(
        self,
        configuration: int,
        log_seconds: float,
        variance: float,
        *,
        change: ResourceChange | None = None,
    ) -> Prediction | None:
        """Combine the runs of a configuration with an ensemble; None if it never ran.

        Args:
            configuration: of the query.
            log_seconds: predicted by the ensemble.
            variance: mean squared error of the ensemble, log seconds squared.
            change: from runs on other resources, used if the same configuration never ran.
        """
        runs = self.runs_of(configuration)
        if len(runs) > 0:
            distribution, of_mean = _posterior(runs, self.posterior(configuration))
            apart = log_seconds - float(runs.mean())
            pulled = (1 - _weight_of_runs(apart, variance, of_mean)) * apart
            level = float(runs.mean()) + min(max(pulled, -MOST_PULLED), MOST_PULLED)
            evidence = Evidence(EvidenceSource.OWN_RUNS, len(runs))
            return Prediction(level, distribution, evidence=evidence)
        runs = np.zeros(0) if change is None else self.runs_of(change.configuration)
        if change is None or len(runs) == 0:
            return None
        posterior = self.posterior(change.configuration)
        moved = _moved(
            runs,
            posterior,
            change.log_seconds,
            change.variance,
            source=EvidenceSource.OTHER_RESOURCES,
        )
        of_mean = _posterior(runs, posterior)[1] + change.variance
        weight = _weight_of_runs(log_seconds - moved.log_seconds, variance, of_mean)
        return replace(moved, log_seconds=log_seconds + weight * (moved.log_seconds - log_seconds))

    def posterior(self, configuration: int) -> VariancePosterior:
        """Return what all other configurations tell of the variance of its repeats."""
        place = int(np.searchsorted(self.configurations, configuration))
        kind = int(self.kinds[place])
        if kind not in self._likelihoods:
            repeated = np.flatnonzero((np.diff(self.begins) > 1) & (self.kinds == kind))
            newest = repeated[np.argsort(self.first[repeated])][-MOST_REPEATED:]
            self._likelihoods[kind] = _log_likelihood(
                [self._runs(each) for each in newest.tolist()]
            )
        others = self._likelihoods[kind] - _log_likelihood([self._runs(place)])
        log_sd, log_count = _LOG_GRID
        off = (log_sd - math.log(PUBLIC_PRIOR.sd)) ** 2
        off = off + (log_count - math.log(PUBLIC_PRIOR.count)) ** 2
        likely = others - off / (2 * _PRIOR_SD**2)
        row, column = np.unravel_index(int(np.argmax(likely)), likely.shape)
        return VariancePosterior(float(_SD[row]), float(_COUNTS[column]))

    def _runs(self, place: int) -> Floats:
        return self.log_seconds[self.begins[place] : self.begins[place + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedRuns:
    """Runs that predict their own jobs only, see `Identity`; [runs] each.

    Attributes:
        job: ascending.
        configuration, read_bytes, mark: see `Identity`.
        log_cores: over all nodes.
        is_ok: whether it ended well; the others are right-censored.
        log_seconds: natural log of the wall seconds.
    """

    job: Ints
    configuration: Ints
    read_bytes: Floats
    mark: Ints
    log_cores: Floats
    is_ok: NDArray[np.bool_]
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.job)

    def predict(self, identity: Identity, log_cores: float, *, tasks: int = 0) -> Prediction | None:
        """Predict from runs of the job; None if none of its workload ended well.

        Runs of exactly this job take precedence over those of another size of it. Among these,
        runs on its resources take precedence over those on the nearest others.

        Args:
            identity: of a job that only its own runs predict.
            log_cores: of the query, over all nodes.
            tasks: of the job; cores beyond them are idle. 0 if unknown.
        """
        rows, is_alike = self._runs_of_job(identity)
        rows, is_alike = rows[self.is_ok[rows]], is_alike[self.is_ok[rows]]
        is_same_job = bool(is_alike.any())
        rows = rows[is_alike] if is_same_job else rows
        if len(rows) == 0:
            return None
        here = rows[self.configuration[rows] == identity.configuration]
        apart = np.abs(self.log_cores[rows] - log_cores)
        nearest = here if len(here) > 0 else rows[apart == apart.min()]
        runs = self.log_seconds[nearest]
        if len(here) > 0 and is_same_job:
            evidence = Evidence(EvidenceSource.OWN_RUNS, len(runs))
            distribution, _ = _posterior(runs, PUBLIC_PRIOR)
            return Prediction(float(runs.mean()), distribution, evidence=evidence)
        most = math.log(tasks) if tasks else math.inf
        by = min(log_cores, most) - min(float(self.log_cores[nearest[-1]]), most)
        variance = 0.0 if len(here) > 0 else (SLOPE_SD * by) ** 2 + USUAL_DEPARTURE**2
        prior, source = PUBLIC_PRIOR, EvidenceSource.OTHER_RESOURCES
        if not is_same_job:
            prior, source = OTHER_SIZE_PRIOR, EvidenceSource.OTHER_SIZE
            known = self.read_bytes[nearest]
            if identity.read_bytes > 0 and (known > 0).all():
                variance += float(np.log(known / identity.read_bytes).mean()) ** 2
        return _moved(runs, prior, USUAL_SLOPE * by, variance, source=source)

    def runs_of(self, identity: Identity, *, is_ok: bool) -> Floats:
        """Return the log seconds of exactly this job's runs on its resources that ended so."""
        rows, is_alike = self._runs_of_job(identity)
        rows = rows[is_alike]
        here = (self.configuration[rows] == identity.configuration) & (self.is_ok[rows] == is_ok)
        found: Floats = self.log_seconds[rows[here]]
        return found

    def _runs_of_job(self, identity: Identity) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the runs of the job's workload, and which of them are of its size."""
        rows = np.arange(*np.searchsorted(self.job, [identity.job, identity.job + 1]))
        known, mark = self.read_bytes[rows], self.mark[rows]
        if identity.read_bytes == 0:
            return rows, np.asarray((known == 0) & (mark == identity.mark))
        off = np.abs(np.log(np.maximum(known, 1.0) / identity.read_bytes))
        return rows, np.asarray((known > 0) & (off <= ALIKE_BYTES))


def _moved(
    runs: Floats,
    prior: VariancePosterior,
    by: float,
    variance: float,
    *,
    source: EvidenceSource,
) -> Prediction:
    """Predict from runs on other resources, or of another size.

    Args:
        runs: log seconds, at least one.
        prior: of the variance of a repeat.
        by: log seconds that the change brings.
        variance: of the error of `by`.
        source: of the evidence.
    """
    repeat, of_mean = _posterior(runs, prior)
    around_level = repeat.scale**2 - of_mean
    correlation = of_mean / (around_level + of_mean + variance)
    # Squares of 90 % half-widths add up. Tails become lighter, by Satterthwaite's rule.
    degrees = repeat.degrees * (1 + variance / repeat.scale**2) ** 2
    half_widths = repeat.half_width(CLAIMED_LEVEL), math.sqrt(variance) * float(ndtri(0.95))
    return Prediction(
        float(runs.mean()) + by,
        StudentT.within(math.hypot(*half_widths), degrees),
        evidence=Evidence(source, len(runs), correlation),
    )


def _posterior(runs: Floats, prior: VariancePosterior) -> tuple[StudentT, float]:
    """Return the distribution of another run around their mean, and the variance of the mean.

    It is that of the runs alone: an ensemble has used them too.
    """
    count = len(runs)
    degrees = prior.count + count - 1
    variance = (prior.count * prior.sd**2 + _sum_of_squares(runs)) / degrees
    return StudentT(math.sqrt(variance + variance / count), degrees), variance / count


def _weight_of_runs(apart: float, variance: float, of_mean: float) -> float:
    """Return the weight of a mean beside an ensemble that lies `apart` from it."""
    off = max(variance, apart**2 - of_mean)
    return off / (off + of_mean)


def _log_likelihood(repeated: Sequence[Floats]) -> Floats:
    """Return the log likelihood of every posterior on the grid, up to a constant, [SD, counts].

    A sum of squares of d degrees over the variance is F-distributed.
    """
    degrees = np.array([len(runs) - 1 for runs in repeated])
    squares = np.array([_sum_of_squares(runs) for runs in repeated])
    half, scaled = _COUNTS / 2, _COUNTS * _SD[:, None] ** 2
    likelihood = np.zeros((len(_SD), len(_COUNTS)))
    for each in np.unique(degrees[degrees > 0]).tolist():
        own = squares[degrees == each]
        constant = gammaln(half + each / 2) - gammaln(half) + half * np.log(scaled)
        likely = (half + each / 2) * np.log(scaled + own[:, None, None])
        likelihood += len(own) * constant - likely.sum(axis=0)
    return likelihood


def _sum_of_squares(runs: Floats) -> float:
    """Return the sum of squares around the mean, at least what a clock can resolve."""
    return float(((runs - runs.mean()) ** 2).sum()) + (len(runs) - 1) * CLOCK_SD**2


SURE = 0.98
"""Confidence level of the interval of a change, 1 % on either side: of a hundred workloads that did
not change, one is called slower by chance."""

ALIKE_ROWS = 1.2
"""Factor up to which row counts are the same."""

MOST_CHANGES = 3
"""Days per workload on which a change is looked for."""

_BOTH_CHOSEN = 2
"""Weight of a day as a multiple-testing correction. The runs themselves suggest the day, so that
those on either side agree better than repeats do, and they also tell how much repeats differ."""

_MEDIAN_SD = math.sqrt(math.pi / 2)
"""Ratio of the standard errors of the median and the mean of many."""

_FEW = 2
"""Of so few the median is the mean."""

_DAY_US = 86_400_000_000


class MedianChange(NamedTuple):
    """The change of a median run time.

    Attributes:
        log_ratio: of the medians, after over before.
        half: half-width of its interval, log seconds.
    """

    log_ratio: float
    half: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes no change."""
        return abs(self.log_ratio) > self.half

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval of the ratio."""
        low, high = (min(max(self.log_ratio + s * self.half, -700), 700) for s in (-1, 1))
        return math.exp(low), math.exp(high)


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The last significant change of a workload's run times at the same work.

    Attributes:
        workload: as in `ExecutionTable`.
        first: number of the first run since, as in `ExecutionTable`.
        since: when that run finished.
        is_upgrade: whether the runs since are those on the version of the newest run, and the runs
            before those on other versions; else the change begins at a day.
        change: of the median.
        runs_before, runs_since: number of runs, on the resources that were compared.
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
    posterior: VariancePosterior,
    level: float = SURE,
) -> MedianChange:
    """Compare the medians of two sets of runs of the same work.

    Args:
        before: log seconds, at least one.
        after: log seconds, at least one.
        posterior: of the variance of a repeat, from other work.
        level: confidence level of the interval.
    """
    sides = [np.array(each, np.float64) for each in (before, after)]
    degrees = posterior.count + len(before) + len(after) - 2
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in sides)
    variance = (posterior.count * posterior.sd**2 + squares) / degrees
    of_medians = sum((1.0 if len(each) <= _FEW else _MEDIAN_SD**2) / len(each) for each in sides)
    earlier, later = (float(np.median(each)) for each in sides)
    half = StudentT(math.sqrt(variance * of_medians), degrees).quantile((1 + level) / 2)
    return MedianChange(later - earlier, half)


def adjust_for_drift(log_seconds: Floats, streams: Iterable[Stream]) -> Floats:
    """Return measured log seconds [executions] as they would be today."""
    today = log_seconds.copy()
    for stream in streams:
        today[stream.rows] += stream.lags()
    return today


def workload_changes(
    table: ExecutionTable, platforms: Ints, log_seconds: Floats
) -> tuple[Floats, Mask, tuple[WorkloadChange, ...]]:
    """Detect changes of single workloads and adjust older runs.

    Args:
        table: executions that ended well, in the order in which they finished.
        platforms: number of the set of platforms of each, [executions].
        log_seconds: of each, adjusted for drift, [executions].

    Returns:
        Log seconds as they would be today, which were adjusted, and each workload's last change.
    """
    today, changes = log_seconds.copy(), dict[int, WorkloadChange]()
    is_moved = np.zeros(len(today), np.bool_)
    workload = table.workload_index()
    newest = np.zeros(workload.max(initial=-1) + 1, np.int64)
    newest[workload] = table.source  # the last one of each stays
    upgraded = (table.source == newest[workload]).astype(np.int64)
    is_first = (table.queries_before == 0).astype(np.int64)
    same = numbered_together(workload, platforms, table.nodes, table.cores, is_first, table.mark)
    has_rows = table.source_rows > 0
    log_size = np.log1p(np.where(has_rows, table.source_rows, table.read_bytes))
    days = table.finished_at // _DAY_US
    for is_upgrade, sides in ((True, upgraded), *[(False, days)] * MOST_CHANGES):
        splits = _likeliest_splits(workload, same, sides, log_size, log_seconds=today)
        repeats_of = 2 * same + upgraded
        for number, (_, after, _) in enumerate(splits):
            repeats_of[after] = -1 - number  # each side repeats for itself, as in `compare`
        repeats = Repeats.from_runs(repeats_of, np.zeros_like(same), today)
        for before, after, tries in splits:
            posterior = repeats.posterior(int(repeats_of[before[0]]))
            runs = today[before], today[after], posterior
            tests = tries if is_upgrade else _BOTH_CHOSEN * tries
            if not median_change(*runs, 1 - (1 - SURE) / tests).is_sure:
                continue
            change = median_change(*runs)
            first = int(after[0])
            older = (workload == workload[first]) & (sides < sides[first])
            today[older] += change.log_ratio
            is_moved |= older
            one = WorkloadChange(
                int(table.workload[first]),
                int(table.number[first]),
                table.take(after[:1]).timestamps()[0],
                is_upgrade,
                change,
                len(before),
                len(after),
            )
            if one.workload not in changes or one.since > changes[one.workload].since:
                changes[one.workload] = one
    return today, is_moved, tuple(changes.values())


def _likeliest_splits(
    workload: Ints, same: Ints, sides: Ints, log_size: Floats, *, log_seconds: Floats
) -> list[tuple[Ints, Ints, float]]:
    """Return the likeliest split of the runs of each workload that may have changed.

    Args:
        workload: number of each run's workload, from 0, [executions] in the order of their finish.
        same: equal for runs of a workload on the same resources, [executions].
        sides: runs of one side are never split, [executions].
        log_size: of the rows of all sources; if unknown, of the bytes read, [executions].
        log_seconds: [executions].

    Returns:
        Runs before, runs after, and the number of possible splits.
    """
    order = np.lexsort((sides, same))
    same, sides, workload = same[order], sides[order], workload[order]
    is_first = np.diff(same, prepend=-1) != 0
    begins = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(begins[1:], len(order))
    at = np.flatnonzero(~is_first & (np.diff(sides, prepend=-1) != 0))
    tries = np.bincount(workload[at], minlength=workload.max(initial=-1) + 1)
    begin, end = begins[group[at]], ends[group[at]]
    apart, _ = _compare_halves(log_size[order], begin, at, end)
    _, probability = _compare_halves(log_seconds[order], begin, at, end)
    is_alike = np.abs(apart) <= math.log(ALIKE_ROWS)
    probability = np.where(is_alike, probability * tries[workload[at]], 1.0)
    likeliest: dict[int, int] = {}
    for place in np.flatnonzero(probability < 1 - SURE).tolist():
        number = int(workload[at[place]])
        if number not in likeliest or probability[place] < probability[likeliest[number]]:
            likeliest[number] = place
    return [
        (
            np.sort(order[begin[place] : at[place]]),
            np.sort(order[at[place] : end[place]]),
            float(tries[number]),
        )
        for number, place in likeliest.items()
    ]


def _compare_halves(values: Floats, begin: Ints, at: Ints, end: Ints) -> tuple[Floats, Floats]:
    """Compare the means of values from `begin` to `at` with those from there to `end`, [splits].

    Returns:
        The second mean less the first, and the probability of such a difference without a change,
        if repeats of other work agreed like the best.
    """
    values = values - (values.mean() if len(values) else 0.0)
    sums, squares = (np.append(0.0, np.cumsum(each)) for each in (values, values**2))
    many, more = at - begin, end - at
    left, right = (sums[at] - sums[begin]) / many, (sums[end] - sums[at]) / more
    within = squares[end] - squares[begin] - many * left**2 - more * right**2
    degrees = many + more
    variance = (np.maximum(within, 0.0) + 2 * CLOCK_SD**2) / degrees
    apart = right - left
    far = np.abs(apart) / np.sqrt(variance * (1 / many + 1 / more))
    return apart, 2 * stdtr(degrees, -far)
