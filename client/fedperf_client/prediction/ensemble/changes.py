"""Changes of run time: since when, and by how much, the same work takes longer or shorter.

`fedperf drift`, `fedperf compare`, the daemon and prediction use the same estimates. A residual is
log seconds measured less log seconds predicted by one model for the whole history, so a new version
of a model is no change. A `ChangeEstimate` compares the residuals before and after, by one of two
estimators:

- `median_change` compares a few runs of one workload. Its interval follows from the variance of
  repeats, of this workload and of others. One run after the change can be enough.
- `residual_shift` compares dozens of runs of many jobs at equal jobs and inputs.

Two searches find the time of a change. `workload_changes` looks for an upgrade or a day since which
one workload takes longer. `find_streams` looks for drift of a platform and operator class. Its jobs
differ far more from each other than from themselves, so each residual is taken relative to the
first ones of its own job. ADWIN then raises an alarm when the mean of the newest values differs
from that of the older ones (A. Bifet, R. Gavalda: Learning from time-changing data with adaptive
windowing, SDM 2007). The window is stored as sums of 1, 2, 4, ... values. Every `CLOCK` values, all
cuts between two sums are tested by the paper's bound for normal means. Alarms come where those of
`river.drift.ADWIN` do. A detector serves until its first alarm, so its window never shrinks. On the
year of I/O probes this finds a shift to half as long again within 150 executions in 59 of 60
streams; without levels per job it finds 42 (`home_detection` of the simulations).

Concept drift is a shift of the residual at equal jobs and inputs. Covariate drift is a change of
the inputs. Both can hold. Where all inputs after the change differ from those before, nothing can
be compared and nothing is called concept drift: predictors learn the difference from the inputs.

Prediction moves executions from before a change to the level of today, in the fit of every learner
and in the folds that weigh them. Leaving them out instead would lose what they show of sizes and
jobs. Residuals are those of the public pretrained model, so no outsider can influence them.
Everything is computed from the executions each time.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import (
    ExecutionTable,
    Ints,
    Mask,
    load_encoded_executions,
    numbered,
    numbered_together,
)
from fedperf_client.prediction.ensemble.repeats import CLOCK_SD, Repeats, VariancePosterior
from fedperf_client.prediction.prediction import Floats, StudentT
from fedperf_shared.releases.basis import ALL_CELLS, cell_of
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

# --- the size of a change --------------------------------------------------------------------

# Level of the interval of a workload's change, 1 % on either side: of a hundred workloads that did
# not change, one is called slower by chance.
CONFIDENCE_LEVEL = 0.98

SIGNIFICANT_ERRORS = 3.0  # half width of the interval of a residual shift, in standard errors
MIN_PAIRS = 5.0  # equivalent pairs of executions before and after that a residual shift needs
MAX_RESIDUAL = 2.0  # log seconds beyond which a residual counts no more
# Standard error of the median of many values, relative to that of their mean.
_MEDIAN_SD = math.sqrt(math.pi / 2)

_MEAN_OF = 2  # the median of at most so many values is their mean


class ChangeEstimate(NamedTuple):
    """The distance of the residuals after a change from those before it."""

    log_ratio: float  # after less before, log seconds
    half_width: float  # of its interval, log seconds; infinite where nothing can be compared

    @property
    def is_known(self) -> bool:
        """Return whether there was something to compare."""
        return math.isfinite(self.half_width)

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes that nothing changed."""
        return abs(self.log_ratio) > self.half_width

    @property
    def ratio_interval(self) -> tuple[float, float]:
        """The interval of the ratio of run times, after over before."""
        low, high = (min(max(self.log_ratio + s * self.half_width, -700), 700) for s in (-1, 1))
        return math.exp(low), math.exp(high)


def median_change(
    before: Sequence[float] | Floats,
    after: Sequence[float] | Floats,
    posterior: VariancePosterior,
    level: float = CONFIDENCE_LEVEL,
) -> ChangeEstimate:
    """Estimate how the median of some runs differs from that of others, at the same work.

    Args:
        before: log seconds, at least one.
        after: the same.
        posterior: variance of a repeat, learned from other work.
        level: of the interval.
    """
    sides = [np.array(each, np.float64) for each in (before, after)]
    degrees = posterior.count + len(before) + len(after) - 2
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in sides)
    variance = (posterior.count * posterior.sd**2 + squares) / degrees
    of_medians = sum(
        (1.0 if len(each) <= _MEAN_OF else _MEDIAN_SD**2) / len(each) for each in sides
    )
    earlier, later = (float(np.median(each)) for each in sides)
    half_width = StudentT(math.sqrt(variance * of_medians), degrees).quantile((1 + level) / 2)
    return ChangeEstimate(later - earlier, half_width)


def residual_shift(
    residuals: Floats, jobs: Ints, inputs: Floats, is_after: NDArray[np.bool_] | Ints
) -> ChangeEstimate:
    """Estimate the shift by least squares, where every job has a level and every input a slope.

    Jobs count that ran before and after. If these are too few, all are treated as one job.

    Args:
        residuals: log seconds, [executions].
        jobs: number of the job of each, [executions].
        inputs: values that differ between executions of a job, [executions, inputs].
        is_after: 0 before the change, 1 after it, [executions].
    """
    after = is_after.astype(np.float64)
    groups = np.unique(jobs, return_inverse=True)[1]
    if not _squares(_centred(after[:, None], groups)) >= MIN_PAIRS:
        groups = np.zeros_like(groups)
    values = _centred(np.column_stack([residuals, after]), groups)
    values[:, 0] = np.clip(values[:, 0], -MAX_RESIDUAL, MAX_RESIDUAL)
    around = _centred(inputs, groups)
    around /= np.maximum(np.linalg.norm(around, axis=0), 1e-9)
    rest = values - around @ np.linalg.lstsq(around, values, rcond=1e-6)[0]
    residual, step = rest[:, 0], rest[:, 1:]
    degrees = len(residuals) - groups.max() - 2 - inputs.shape[1]
    if not (_squares(step) >= MIN_PAIRS and degrees > 0):
        return ChangeEstimate(0.0, math.inf)
    shift = float(step[:, 0] @ residual / _squares(step))
    variance = float(np.sum((residual - shift * step[:, 0]) ** 2)) / degrees
    error = float(np.sqrt(variance / _squares(step)))
    return ChangeEstimate(shift, SIGNIFICANT_ERRORS * error)


def _centred(columns: Floats, groups: NDArray[np.intp]) -> Floats:
    """Subtract the mean of each group."""
    count = np.bincount(groups)
    means = [np.bincount(groups, column) / count for column in columns.T]
    return np.asarray(columns - np.array(means).reshape(columns.shape[1], -1).T[groups])


def _squares(step: Floats) -> float:
    return float(np.sum(step**2))


# --- the time of a change in a stream of residuals --------------------------------------------

DELTA = 0.002  # probability of a false alarm per test of ADWIN
CLOCK = 32  # values between two tests
MAX_SUMS = 5  # sums of one length. With one more, the two oldest become one of twice the length.
MIN_SIDE = 5  # values on either side of a cut, and executions on either side of a change
GUARD = 30  # executions before any alarm, and after one
USUAL_FROM = 5  # first executions of a job whose mean is its usual residual


@dataclass(slots=True)
class Adwin:
    """The ADWIN detector. Calling it adds a value and returns whether it raises an alarm."""

    quiet: int  # values before any alarm
    _width: int = 0
    _total: float = 0.0
    _squares: float = 0.0  # sum of squared distances from the mean
    # By the binary logarithm of their length; the newest last.
    _sums: list[list[float]] = field(default_factory=lambda: [[]])

    def __call__(self, value: float) -> bool:
        """Add a value and return whether it raises an alarm."""
        if self._width:
            apart = value - self._total / self._width
            self._squares += self._width * apart * apart / (self._width + 1.0)
        self._width += 1
        self._total += value
        self._sums[0].append(value)
        row = 0
        while len(self._sums[row]) > MAX_SUMS:
            if row + 1 == len(self._sums):
                self._sums.append([])
            self._sums[row + 1].append(self._sums[row].pop(0) + self._sums[row].pop(0))
            row += 1
        return self._width % CLOCK == 0 and self._width > self.quiet and self._has_changed()

    def _has_changed(self) -> bool:
        """Return whether the means before and after some cut differ by more than chance allows."""
        log_chance = math.log(2 * math.log(self._width) / DELTA)
        variance = self._squares / self._width
        before, after = 0, self._width
        sum_before, sum_after = 0.0, self._total
        for row in reversed(range(len(self._sums))):
            for each in self._sums[row]:
                before, after = before + 2**row, after - 2**row
                sum_before, sum_after = sum_before + each, sum_after - each
                if before < MIN_SIDE or after < MIN_SIDE:
                    continue
                share = 1.0 / (before - MIN_SIDE + 1) + 1.0 / (after - MIN_SIDE + 1)
                least = math.sqrt(2 * share * variance * log_chance) + 2 / 3 * log_chance * share
                if abs(sum_before / before - sum_after / after) > least:
                    return True
        return False


class LevelChange(NamedTuple):
    """A change of level in a stream."""

    start: int  # position of the first execution after it
    alarm: int  # position of the execution that raised the alarm


def level_changes(residuals: Floats, jobs: Ints) -> list[LevelChange]:
    """Find where the level changed. It stays found when the stream goes on.

    Args:
        residuals: log seconds, [executions], in the order they finished.
        jobs: number of the job of each, [executions].
    """
    changes: list[LevelChange] = []
    begin, quiet = 0, GUARD
    while True:
        values = residual_deviations(residuals[begin:], jobs[begin:])
        detector = Adwin(quiet)
        alarms = (place for place, each in enumerate(values.tolist()) if detector(each))
        alarm = next(alarms, None)
        if alarm is None:
            return changes
        split = _best_split(values[: alarm + 1])
        changes.append(LevelChange(begin + split, begin + alarm))
        begin, quiet = begin + split, alarm - split + GUARD


def residual_deviations(residuals: Floats, jobs: Ints) -> Floats:
    """Return how far each residual is from the usual one of its job, [executions].

    The usual residual is the mean of the job's first `USUAL_FROM`, as far as they are known by
    then. The first of a job shows nothing where most jobs run again. Where most run once, it counts
    from the mean of the stream's first `GUARD`.
    """
    from_stream = GUARD if 2 * len(np.unique(jobs)) > len(jobs) else 0
    stream_mean, count = 0.0, 0
    usual: dict[int, tuple[float, int]] = {}
    deviations = np.zeros(len(residuals))
    for place, (residual, job) in enumerate(zip(residuals.tolist(), jobs.tolist(), strict=True)):
        mean, runs = usual.get(job, (0.0, 0))
        if runs or count:
            deviations[place] = residual - (mean if runs else stream_mean)
        if runs < USUAL_FROM:
            usual[job] = mean + (residual - mean) / (runs + 1), runs + 1
        if count < from_stream:
            count += 1
            stream_mean += (residual - stream_mean) / count
    return np.clip(deviations, -MAX_RESIDUAL, MAX_RESIDUAL)


def _best_split(values: Floats) -> int:
    """Return where a step up or down explains most of the variance."""
    sizes = np.arange(MIN_SIDE, len(values) - MIN_SIDE + 1)
    before = np.cumsum(values)[sizes - 1]
    after = values.sum() - before
    explained = before**2 / sizes + after**2 / (len(values) - sizes)
    return int(sizes[np.argmax(explained)])


# --- drift by platform and operator class -----------------------------------------------------

FALSE_ALARM_PROBABILITY = 0.01  # of the test whether inputs changed, over all inputs
NOTABLE_FACTOR = 1.05  # A smaller change of run times is not reported
RECENT = timedelta(days=30)  # time since a drift was noticed in which it is reported


@unique
class DriftKind(StrEnum):
    """Kinds of drift."""

    CONCEPT = "concept"
    COVARIATE = "covariate"


@dataclass(frozen=True, slots=True, eq=False)
class DriftObservations:
    """Executions as drift detection reads them, in any order."""

    cells: Ints  # of the public basis, [executions]
    jobs: Ints  # number of the workload of each, [executions]
    residuals: Floats  # log seconds measured less predicted by one model, [executions]
    inputs: Floats  # values that differ between executions of a job, [executions, inputs]
    finished_at: Sequence[datetime]  # with time zone, [executions]

    @classmethod
    def of(cls, table: ExecutionTable) -> Self:
        """Return the observations of a table, with residuals of the public pretrained model."""
        inputs = [
            np.log(table.cores),
            np.log(table.machine_speed),
            np.log1p(table.source_rows),
            np.log(table.operators),
        ]
        return cls(
            table.cell,
            numbered(table.workload),
            table.log_seconds - table.pretrained_log_seconds,
            np.column_stack(inputs),
            table.timestamps(),
        )

    def take(self, rows: Ints) -> "DriftObservations":
        """Return those rows, in that order."""
        return DriftObservations(
            self.cells[rows],
            self.jobs[rows],
            self.residuals[rows],
            self.inputs[rows],
            [self.finished_at[row] for row in rows],
        )

    def shift(self, begin: int, at: int, end: int) -> ChangeEstimate:
        """Estimate the residual shift from rows `begin` to `at` to rows `at` to `end`."""
        part = slice(begin, end)
        is_after = np.arange(begin, end) >= at
        return residual_shift(self.residuals[part], self.jobs[part], self.inputs[part], is_after)


@dataclass(frozen=True, slots=True)
class StreamDrift:
    """A drift of one stream."""

    platform: Platform  # of the stream
    operator_class: OperatorClass  # of the stream
    change: LevelChange  # position in the stream
    since: datetime  # when the first execution after the change finished
    noticed_at: datetime  # when the execution finished that raised the alarm
    log_shift: float  # by how much executions take longer since, at equal jobs and inputs
    kinds: tuple[DriftKind, ...]  # one or both

    @property
    def is_concept(self) -> bool:
        """Return whether the same work takes longer or shorter than before."""
        return DriftKind.CONCEPT in self.kinds

    @property
    def is_notable(self) -> bool:
        """Return whether the same work takes notably longer or shorter since then, all in all."""
        return self.is_concept and self.factor >= NOTABLE_FACTOR

    @property
    def factor(self) -> float:
        """Times as slow, or as fast, at least 1."""
        return math.exp(abs(self.log_shift))

    @property
    def sentence(self) -> str:
        """The change and its day, such as "1.5x slower since 2026-03-01"."""
        day = f"{self.since:%Y-%m-%d}"
        if not self.is_concept:
            return f"other inputs since {day}"
        if not self.is_notable:
            return f"changed for a while from {day} on"
        return f"{self.factor:.2g}x {'slower' if self.log_shift > 0 else 'faster'} since {day}"

    @property
    def stream_name(self) -> str:
        """The name of its stream, for people."""
        return _stream_name(self.platform, self.operator_class)

    def as_row(self) -> dict[str, object]:
        """Return the figures by name; the factor is below 1 where executions became faster."""
        return {
            "platform": self.platform.name.lower(),
            "class": self.operator_class.name.lower(),
            "since": self.since,
            "noticed_at": self.noticed_at,
            "sentence": self.sentence,
            "factor": math.exp(self.log_shift) if self.is_concept else None,
            "kinds": list(self.kinds),
        }

    def is_recent(self, now: datetime) -> bool:
        """Return whether it was noticed shortly before `now`."""
        return now - self.noticed_at <= RECENT


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The executions of one platform and operator class, in the order they finished."""

    rows: Ints  # places among all observations, [executions]
    observations: DriftObservations  # its own, at least one
    drifts: tuple[StreamDrift, ...]  # in order of time

    @property
    def platform(self) -> Platform:
        """The platform where most of their operators ran."""
        return ALL_CELLS[int(self.observations.cells[0])].platform

    @property
    def operator_class(self) -> OperatorClass:
        """The most special class of their operators."""
        return ALL_CELLS[int(self.observations.cells[0])].operator_class

    @property
    def name(self) -> str:
        """The name for people."""
        return _stream_name(self.platform, self.operator_class)

    def lags(self) -> Floats:
        """Return the log factor by which each execution would take longer today, [executions]."""
        lags = np.zeros(len(self.rows))
        for drift in self.drifts:
            if drift.is_concept:
                lags[: drift.change.start] += drift.log_shift
        return lags

    def levels(self) -> Floats:
        """Return the log factor by which each took longer than its job did at first."""
        steps = np.zeros(len(self.rows))
        for drift in self.drifts:
            if drift.is_concept:
                steps[drift.change.start :] += drift.log_shift
        own = self.observations
        return steps + residual_deviations(own.residuals - steps, own.jobs)


def find_streams(observations: DriftObservations) -> tuple[Stream, ...]:
    """Return all streams that have executions, with their drifts, in the order of the basis."""
    kinds = np.array(
        [int(e.platform) * len(OperatorClass) + int(e.operator_class) for e in ALL_CELLS]
    )
    of_execution = kinds[observations.cells]
    timestamps = np.array([each.timestamp() for each in observations.finished_at])
    order = np.argsort(timestamps, kind="stable")
    streams = []
    for kind in dict.fromkeys(kinds.tolist()):
        rows = order[of_execution[order] == kind].astype(np.int64)
        if len(rows):
            own = observations.take(rows)
            # Executions of one moment have no order, so nothing changed between them.
            changes = [
                each
                for each in level_changes(own.residuals, own.jobs)
                if own.finished_at[each.start - 1] < own.finished_at[each.start]
            ]
            streams.append(_stream(own, rows, changes))
    return tuple(streams)


def streams_until(
    observations: DriftObservations, streams: Sequence[Stream], count: int
) -> tuple[Stream, ...]:
    """Return the streams of the first executions.

    Args:
        observations: of all executions, in the order in which they finished.
        streams: of all of them.
        count: of the first ones.
    """
    earlier = []
    for each in streams:
        rows = each.rows[: int(np.searchsorted(each.rows, count))]
        changes = [drift.change for drift in each.drifts if drift.change.alarm < len(rows)]
        if len(rows):
            earlier.append(_stream(observations.take(rows), rows, changes))
    return tuple(earlier)


def load_drift_streams(store: ExecutionStore, *, keep: bool = True) -> tuple[Stream, ...]:
    """Load the streams of all executions that ended well and are evidence for other jobs.

    `keep` stores what has to be encoded.

    Raises:
        StorageError: the store or the pretrained model cannot be read.
    """
    table = load_encoded_executions(store, keep=keep)
    return find_streams(DriftObservations.of(table.take(table.is_ok & table.is_example)))


def recent_drift(drifts: Sequence[StreamDrift], plan: Plan, *, now: datetime) -> StreamDrift | None:
    """Return the last notable drift of the plan's stream if it is recent, else None."""
    cell = cell_of(plan)
    own = [
        each
        for each in drifts
        if (each.platform, each.operator_class) == (cell.platform, cell.operator_class)
        and each.is_notable
    ]
    return own[-1] if own and own[-1].is_recent(now) else None


def inputs_changed(before: Floats, after: Floats) -> bool:
    """Test whether any input's distribution changed, by Kolmogorov-Smirnov and Bonferroni.

    Args:
        before: [executions, inputs].
        after: [other executions, inputs].
    """
    from scipy.stats import ks_2samp

    tests = before.shape[1]
    return any(
        ks_2samp(before[:, each], after[:, each]).pvalue < FALSE_ALARM_PROBABILITY / tests
        for each in range(tests)
    )


def adjust_for_drift(log_seconds: Floats, streams: Iterable[Stream]) -> Floats:
    """Return the measured log seconds as they would be today, [executions]."""
    today = log_seconds.copy()
    for stream in streams:
        today[stream.rows] += stream.lags()
    return today


def _stream_name(platform: Platform, operator_class: OperatorClass) -> str:
    return f"{operator_class.name.lower()} work on {platform.name.lower()}"


def _stream(own: DriftObservations, rows: Ints, changes: Sequence[LevelChange]) -> Stream:
    starts = [each.start for each in changes]
    parts = zip((0, *starts), changes, (*starts[1:], len(rows)), strict=False)
    return Stream(rows, own, tuple(_drift(own, begin, each, end) for begin, each, end in parts))


def _drift(own: DriftObservations, begin: int, change: LevelChange, end: int) -> StreamDrift:
    start, after_alarm = change.start, change.alarm + 1
    at_alarm, since = own.shift(begin, start, after_alarm), own.shift(begin, start, end)
    kinds = [DriftKind.CONCEPT] if at_alarm.is_significant else []
    if not kinds or inputs_changed(own.inputs[begin:start], own.inputs[start:after_alarm]):
        kinds.append(DriftKind.COVARIATE)
    cell = ALL_CELLS[own.cells[0]]
    return StreamDrift(
        cell.platform,
        cell.operator_class,
        change,
        own.finished_at[start],
        own.finished_at[change.alarm],
        (since if since.is_known else at_alarm).log_ratio,
        tuple(kinds),
    )


# --- changes of single workloads --------------------------------------------------------------

ROWS_RATIO = 1.2  # rows that differ by a smaller factor are the same
MAX_DAYS = 3  # days since which a workload changed, at most
# Tests that one at a day counts as, since the runs chose the day: those on either side of it agree
# better than repeats do, and they show how much these differ.
_BOTH_CHOSEN = 2

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The last significant change of a workload's run times at the same work."""

    workload: int  # its number, as in `ExecutionTable`
    first: int  # number of the first run since, as in `ExecutionTable`
    since: datetime  # when that finished
    # Whether runs since are those on the version of its newest run, and runs before those on
    # others; else those from a day on.
    is_upgrade: bool
    # Of the median. runs_before, runs_since: how many there are, on the resources that were
    # compared.
    change: ChangeEstimate
    runs_before: int
    runs_since: int


def workload_changes(
    table: ExecutionTable, platforms: Ints, log_seconds: Floats
) -> tuple[Floats, Mask, tuple[WorkloadChange, ...]]:
    """Return log seconds as they would be today, which of them were adjusted, and the last changes.

    Runs of a workload are compared on the same resources and at the same rows.

    Args:
        table: executions that ended well, in the order in which they finished.
        platforms: a number for the set that each uses.
        log_seconds: of each, adjusted for drift of whole streams.
    """
    today, changes = log_seconds.copy(), dict[int, WorkloadChange]()
    is_adjusted = np.zeros(len(today), np.bool_)
    workload = numbered(table.workload)
    newest = np.zeros(workload.max(initial=-1) + 1, np.int64)
    newest[workload] = table.source  # the last one of each stays
    upgraded = (table.source == newest[workload]).astype(np.int64)
    is_first = (table.queries_before == 0).astype(np.int64)
    same = numbered_together(workload, platforms, table.nodes, table.cores, is_first, table.mark)
    has_rows = table.source_rows > 0
    log_size = np.log1p(np.where(has_rows, table.source_rows, table.read_bytes))
    days = table.finished_at // _DAY_US
    for is_upgrade, sides in ((True, upgraded), *[(False, days)] * MAX_DAYS):
        splits = _likeliest_splits(workload, same, sides, log_size, today)
        repeats_of = 2 * same + upgraded
        for split, (_, after, _) in enumerate(splits):
            repeats_of[after] = -1 - split  # each side repeats for itself, as in `compare`
        repeats = Repeats.from_runs(repeats_of, np.zeros_like(same), today)
        for before, after, tests in splits:
            posterior = repeats.posterior(int(repeats_of[before[0]]))
            compared = today[before], today[after], posterior
            looks = tests if is_upgrade else _BOTH_CHOSEN * tests
            if not median_change(*compared, 1 - (1 - CONFIDENCE_LEVEL) / looks).is_significant:
                continue
            change = median_change(*compared)
            first = int(after[0])
            is_before = (workload == workload[first]) & (sides < sides[first])
            today[is_before] += change.log_ratio
            is_adjusted |= is_before
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
    return today, is_adjusted, tuple(changes.values())


def _likeliest_splits(
    workload: Ints, same: Ints, sides: Ints, log_size: Floats, log_seconds: Floats
) -> list[tuple[Ints, Ints, float]]:
    """Return the likeliest split of each workload that may have changed.

    Args:
        workload: numbers from 0 on, [executions] in the order in which they finished.
        same: equal for runs of a workload on the same resources.
        sides: runs with the same number are never split.
        log_size: of the rows of all sources; of the bytes read where rows are unknown.
        log_seconds: of each.

    Returns:
        Runs before, runs after, and the number of splits that were possible.
    """
    order = np.lexsort((sides, same))
    is_first = np.diff(same[order], prepend=-1) != 0
    begins = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(begins[1:], len(order))
    at = np.flatnonzero(~is_first & (np.diff(sides[order], prepend=-1) != 0))
    of_split = workload[order][at]
    tests = np.bincount(of_split, minlength=workload.max(initial=-1) + 1)
    begin, end = begins[group[at]], ends[group[at]]
    size_apart, _ = _split_means(log_size[order], begin, at, end)
    _, probability = _split_means(log_seconds[order], begin, at, end)
    is_same_size = np.abs(size_apart) <= math.log(ROWS_RATIO)
    probability = np.where(is_same_size, probability * tests[of_split], 1.0)
    best: dict[int, int] = {}
    for place in np.flatnonzero(probability < 1 - CONFIDENCE_LEVEL).tolist():
        number = int(of_split[place])
        if number not in best or probability[place] < probability[best[number]]:
            best[number] = place
    return [
        (
            np.sort(order[begin[place] : at[place]]),
            np.sort(order[at[place] : end[place]]),
            float(tests[number]),
        )
        for number, place in best.items()
    ]


def _split_means(values: Floats, begin: Ints, at: Ints, end: Ints) -> tuple[Floats, Floats]:
    """Compare the means of values from `begin` to `at` and from `at` to `end`, [splits] each.

    Returns:
        The second mean less the first, and the probability of such a distance if nothing changed
        and repeats of other work agreed like the best.
    """
    values = values - (values.mean() if len(values) else 0.0)
    sums, squares = (np.append(0.0, np.cumsum(each)) for each in (values, values**2))
    before, after = at - begin, end - at
    left, right = (sums[at] - sums[begin]) / before, (sums[end] - sums[at]) / after
    within = squares[end] - squares[begin] - before * left**2 - after * right**2
    degrees = before + after
    variance = (np.maximum(within, 0.0) + 2 * CLOCK_SD**2) / degrees
    apart = right - left
    far = np.abs(apart) / np.sqrt(variance * (1 / before + 1 / after))
    return apart, 2 * stdtr(degrees, -far)
