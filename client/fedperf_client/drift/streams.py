"""Streams of own executions, one for each platform and operator class, and what changed in them.

Everything is computed anew from the executions: nothing is kept that could be wrong, and a
new model of others is no drift because all residuals of a stream are of one model.

Concept drift is a shift of the residual at equal jobs and inputs; covariate drift is a change of
the inputs. Both can hold. Where all inputs after the change are others, the executions after it
cannot be compared with those before. Nothing is called concept drift then: predictors that read the
inputs learn the difference from them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, unique

import numpy as np
from numpy.typing import NDArray

from fedperf_client.drift.detection import (
    MOST_SURPRISING,
    Floats,
    Ints,
    LevelChange,
    changes,
    surprises,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.basis import ALL_CELLS, cell_of
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

SIGNIFICANT = 3.0
"""Standard errors by which a shift at equal inputs is away from 0."""

LEAST_COMPARED = 5.0
"""Pairs of executions before and after, so to speak, that a comparison needs."""

CHANCE = 0.01
"""Chance of a false alarm: a test sees a change where none is, over the tests of all inputs."""


@unique
class DriftKind(StrEnum):
    """Kinds of drift."""

    CONCEPT = "concept"
    COVARIATE = "covariate"


@dataclass(frozen=True, slots=True)
class ResidualShift:
    """By how much a residual shifted at equal jobs and inputs.

    Attributes:
        log_seconds: after - before.
        error: its standard error; infinite where nothing can be compared.
    """

    log_seconds: float
    error: float

    @property
    def is_known(self) -> bool:
        """Whether there was something to compare."""
        return math.isfinite(self.error)

    @property
    def is_significant(self) -> bool:
        """Whether it is more than chance."""
        return abs(self.log_seconds) > SIGNIFICANT * self.error


def shift_between(residuals: Floats, jobs: Ints, inputs: Floats, is_after: Ints) -> ResidualShift:
    """The shift by least squares, where every job has a level and every input a slope.

    Jobs count that ran before and after; where these are too few, all are taken for one.

    Args:
        residuals: log seconds, [executions].
        jobs: number of the job of each, [executions].
        inputs: what differs between executions of a job, [executions, inputs].
        is_after: 0 before the change, 1 after it, [executions].
    """
    after = is_after.astype(np.float64)
    groups = np.unique(jobs, return_inverse=True)[1]
    if not _weight(_within(after[:, None], groups)) >= LEAST_COMPARED:
        groups = np.zeros_like(groups)
    values = _within(np.column_stack([residuals, after]), groups)
    values[:, 0] = np.clip(values[:, 0], -MOST_SURPRISING, MOST_SURPRISING)
    around = _within(inputs, groups)
    around /= np.maximum(np.linalg.norm(around, axis=0), 1e-9)
    rest = values - around @ np.linalg.lstsq(around, values, rcond=1e-6)[0]
    residual, step = rest[:, 0], rest[:, 1:]
    freedom = len(residuals) - groups.max() - 2 - inputs.shape[1]
    if not (_weight(step) >= LEAST_COMPARED and freedom > 0):
        return ResidualShift(0.0, np.inf)
    shift = float(step[:, 0] @ residual / _weight(step))
    left = float(np.sum((residual - shift * step[:, 0]) ** 2)) / freedom
    return ResidualShift(shift, float(np.sqrt(left / _weight(step))))


def inputs_changed(before: Floats, after: Floats) -> bool:
    """Whether the distribution of any input changed, by Kolmogorov-Smirnov and Bonferroni.

    Args:
        before: [executions, inputs].
        after: [other executions, inputs].
    """
    from scipy.stats import ks_2samp

    tests = before.shape[1]
    return any(
        ks_2samp(before[:, each], after[:, each]).pvalue < CHANCE / tests for each in range(tests)
    )


def _within(columns: Floats, groups: NDArray[np.intp]) -> Floats:
    """Without the mean of each group."""
    count = np.bincount(groups)
    means = [np.bincount(groups, column) / count for column in columns.T]
    return np.asarray(columns - np.array(means).reshape(columns.shape[1], -1).T[groups])


def _weight(step: Floats) -> float:
    return float(np.sum(step**2))


NOTABLE_FACTOR = 1.05
"""Times as long: less is no news to people."""

RECENT = timedelta(days=30)
"""Since a drift was noticed, in which people are told of it."""


@dataclass(frozen=True, slots=True, eq=False)
class DriftObservations:
    """Own executions as drift is looked for in them, in any order.

    Attributes:
        cells: of the public basis, [executions].
        jobs: number of the workload of each, [executions].
        residuals: log seconds measured - predicted by one model of others, [executions].
        inputs: what differs between executions of a job, [executions, inputs].
        finished_at: with time zone, [executions].
    """

    cells: Ints
    jobs: Ints
    residuals: Floats
    inputs: Floats
    finished_at: Sequence[datetime]

    def __post_init__(self) -> None:
        count = len(self.finished_at)
        lengths = {len(each) for each in (self.cells, self.jobs, self.residuals, self.inputs)}
        if lengths != {count}:
            raise InvalidInputError(f"{count} executions have columns of {sorted(lengths)} rows")

    def take(self, rows: Ints) -> "DriftObservations":
        """Those rows, in that order."""
        return DriftObservations(
            self.cells[rows],
            self.jobs[rows],
            self.residuals[rows],
            self.inputs[rows],
            [self.finished_at[row] for row in rows],
        )


@dataclass(frozen=True, slots=True)
class StreamDrift:
    """What changed in a stream, and since when.

    Attributes:
        platform: of the stream.
        operator_class: of the stream.
        since: when the first execution after the change finished.
        noticed_at: when the execution finished that raised the alarm.
        log_shift: by how much executions take longer since, at equal jobs and inputs.
        kinds: one or both.
    """

    platform: Platform
    operator_class: OperatorClass
    since: datetime
    noticed_at: datetime
    log_shift: float
    kinds: tuple[DriftKind, ...]

    @property
    def is_concept(self) -> bool:
        """Whether the same work takes longer or shorter than before."""
        return DriftKind.CONCEPT in self.kinds

    @property
    def is_notable(self) -> bool:
        """Whether the same work takes notably longer or shorter since then, all in all."""
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
        """What changed, for people."""
        return _name(self.platform, self.operator_class)

    def as_row(self) -> dict[str, object]:
        """The figures by name; the factor is times as long as before, below 1 where faster."""
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
        """Whether it was noticed shortly before `now`."""
        return now - self.noticed_at <= RECENT


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Own executions on one platform, of one operator class, in the order they finished.

    Attributes:
        platform: where most of their operators ran.
        operator_class: the most special one of their operators.
        rows: places among the observed, [executions].
        finished_at: [executions].
        levels: log factor by which each took longer than its job did at first, [executions].
        changes: where its level changed, among its rows.
        drifts: in order of time.
    """

    platform: Platform
    operator_class: OperatorClass
    rows: Ints
    finished_at: Sequence[datetime]
    levels: Floats
    changes: tuple[LevelChange, ...]
    drifts: tuple[StreamDrift, ...]

    @property
    def places(self) -> tuple[int, ...]:
        """Of the first execution after each drift."""
        return tuple(each.at for each in self.changes)

    @property
    def name(self) -> str:
        """For people."""
        return _name(self.platform, self.operator_class)

    def lags(self) -> Floats:
        """Log factor by which each execution would take longer today, [executions]."""
        found = np.zeros(len(self.rows))
        for place, drift in zip(self.places, self.drifts, strict=True):
            if drift.is_concept:
                found[:place] += drift.log_shift
        return found


def streams_of(observed: DriftObservations) -> tuple[Stream, ...]:
    """All streams that have executions, in the order of the basis."""
    kinds = np.array([_key(cell.platform, cell.operator_class) for cell in ALL_CELLS])
    of_execution = kinds[observed.cells]
    moments = np.array([each.timestamp() for each in observed.finished_at])
    order = np.argsort(moments, kind="stable")
    return tuple(
        _stream(observed, order[of_execution[order] == key].astype(np.int64))
        for key in dict.fromkeys(kinds.tolist())
        if np.any(of_execution == key)
    )


def streams_until(
    observed: DriftObservations, streams: Sequence[Stream], count: int
) -> tuple[Stream, ...]:
    """What `streams_of` the first executions would be, whose streams are `streams` by now.

    Args:
        observed: all executions, in the order in which they finished.
        streams: of all of them.
        count: of the first ones.
    """
    found = []
    for each in streams:
        rows = each.rows[: int(np.searchsorted(each.rows, count))]
        known = [change for change in each.changes if change.noticed < len(rows)]
        if len(rows):
            found.append(_told(observed.take(rows), rows, known))
    return tuple(found)


def recent_drift(drifts: Sequence[StreamDrift], plan: Plan, *, now: datetime) -> StreamDrift | None:
    """The last notable drift of the plan's stream if it was noticed lately; None otherwise."""
    cell = cell_of(plan)
    own = [
        each
        for each in drifts
        if (each.platform, each.operator_class) == (cell.platform, cell.operator_class)
        and each.is_notable
    ]
    return own[-1] if own and own[-1].is_recent(now) else None


def _name(platform: Platform, operator_class: OperatorClass) -> str:
    return f"{operator_class.name.lower()} work on {platform.name.lower()}"


def _key(platform: Platform, operator_class: OperatorClass) -> int:
    return int(platform) * len(OperatorClass) + int(operator_class)


def _stream(observed: DriftObservations, rows: Ints) -> Stream:
    own = observed.take(rows)
    found = changes(own.residuals, own.jobs)
    return _told(own, rows, [each for each in found if _is_in_time(own, each)])


def _told(own: DriftObservations, rows: Ints, found: Sequence[LevelChange]) -> Stream:
    places = tuple(each.at for each in found)
    ends = zip((0, *places), found, (*places[1:], len(rows)), strict=False)
    drifts = tuple(_drift(own, before, change, up_to) for before, change, up_to in ends)
    cell = ALL_CELLS[own.cells[0]]
    moments, levels = own.finished_at, _levels(own, places, drifts)
    return Stream(cell.platform, cell.operator_class, rows, moments, levels, tuple(found), drifts)


def _is_in_time(own: DriftObservations, change: LevelChange) -> bool:
    """Executions of one moment have no order, so nothing changed between them."""
    return own.finished_at[change.at - 1] < own.finished_at[change.at]


def _drift(own: DriftObservations, before: int, change: LevelChange, up_to: int) -> StreamDrift:
    at_alarm = _shift(own, before, change.at, change.noticed + 1)
    since = _shift(own, before, change.at, up_to)
    first, second = own.inputs[before : change.at], own.inputs[change.at : change.noticed + 1]
    kinds = [DriftKind.CONCEPT] if at_alarm.is_significant else []
    if not kinds or inputs_changed(first, second):
        kinds.append(DriftKind.COVARIATE)
    cell = ALL_CELLS[own.cells[0]]
    return StreamDrift(
        cell.platform,
        cell.operator_class,
        own.finished_at[change.at],
        own.finished_at[change.noticed],
        since.log_seconds if since.is_known else at_alarm.log_seconds,
        tuple(kinds),
    )


def _shift(own: DriftObservations, begin: int, at: int, end: int) -> ResidualShift:
    part = own.take(np.arange(begin, end))
    is_after = (np.arange(begin, end) >= at).astype(np.int64)
    return shift_between(part.residuals, part.jobs, part.inputs, is_after)


def _levels(own: DriftObservations, places: Sequence[int], drifts: Sequence[StreamDrift]) -> Floats:
    """What surprised, on the level that the drifts before it came to."""
    steps = np.zeros(len(own.jobs))
    for place, drift in zip(places, drifts, strict=True):
        if drift.is_concept:
            steps[place:] += drift.log_shift
    return steps + surprises(own.residuals - steps, own.jobs)
