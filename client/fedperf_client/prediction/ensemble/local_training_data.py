"""Evidence from the table of own executions: all of them count, a sample is learnt from."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.changes import (
    DriftObservations,
    Stream,
    StreamDrift,
    WorkloadChange,
    adjust_for_drift,
    find_streams,
    streams_until,
    workload_changes,
)
from fedperf_client.prediction.ensemble.ensemble import TrainingSet, groups_of
from fedperf_client.prediction.ensemble.platform_size_limits import Ends, Pair, TrainingSupport
from fedperf_client.prediction.ensemble.repeats import Repeats, RunsApart
from fedperf_client.prediction.ensemble.weighting import ScaleAndSize
from fedperf_client.prediction.execution_table import (
    ExecutionTable,
    Ints,
    Mask,
    numbered,
    training_limit,
    training_sample,
    unpacked_pairs,
)
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import UNNAMED, EncodedQueries, engine_of
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

_ROWS_AT_ONCE = 2**15

_BEFORE = 0x5BF0_3635_1A2C_97E1
"""Makes of a configuration's number that of its runs before a change."""

Clusters = Mapping[Platform, tuple[ClusterConfig, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class LocalSummary:
    """Facts of all own executions, of which only a part is learnt from.

    Attributes:
        hull: around all.
        repeats: all by configuration.
        clusters: the resources that executions on a platform had, the usual ones first; for
            `UNASSIGNED`, that executions had at all.
        drifts: found in all.
        cut_short: those that did not end well, by configuration; their times are lower bounds.
        apart: those that answer for their own jobs alone, however they ended; not in `repeats`
            and `cut_short`.
        changes: of single workloads, found in all.
    """

    hull: TrainingSupport
    repeats: Repeats
    clusters: Clusters
    drifts: tuple[StreamDrift, ...]
    cut_short: Repeats
    apart: RunsApart
    changes: tuple[WorkloadChange, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LocalTrainingData:
    """The evidence of own executions, before any learner is weighed.

    Attributes:
        learnt: those that are learnt from, in the order in which they finished.
        log_seconds: of each of them, as it would be when the last one ran, [learnt].
        groups: of each of them; folds never split one.
        facts: of all.
    """

    learnt: ExecutionTable
    log_seconds: Floats
    groups: Ints
    facts: LocalSummary

    @classmethod
    def of(cls, table: ExecutionTable) -> "LocalTrainingData":
        """The evidence of stored executions, in the order in which they finished.

        Executions that teach nothing of other jobs are part of `LocalSummary.apart` alone.
        """
        taught = table.take(table.teaches)
        ended = taught.take(taught.is_ok)
        observed = DriftObservations.of(ended)
        streams = find_streams(observed)
        alarms = [int(s.rows[drift.change.alarm]) + 1 for s in streams for drift in s.drifts]
        until = training_limit(len(ended), max(alarms, default=0))
        part = ended.take(np.arange(until))
        chosen = training_sample(part)
        pairs = _Pairs.of(ended)
        kinds = pairs.engines
        level = adjust_for_drift(ended.log_seconds, streams)
        today, is_moved, changes = workload_changes(ended, kinds, level)
        learnt_today = today
        if until < len(ended):
            then = streams_until(observed, streams, until)
            then_level = adjust_for_drift(ended.log_seconds, then)[:until]
            learnt_today, _, _ = workload_changes(part, kinds[:until], then_level)
        alone = table.take(table.is_ok & ~table.teaches)
        alone_today, _, of_alone = workload_changes(
            alone, _Pairs.of(alone).engines, alone.log_seconds
        )
        log_seconds = table.log_seconds.copy()
        log_seconds[table.is_ok & table.teaches] = today
        log_seconds[table.is_ok & ~table.teaches] = alone_today
        apart = table.job != 0
        facts = LocalSummary(
            TrainingSupport(pairs.ends),
            _repeats(ended, _as_they_are(ended.configuration, is_moved), kinds, today),
            _clusters(ended, pairs.platforms),
            _drifts(streams),
            _lower_bounds(taught),
            _runs_apart(table.take(apart), log_seconds[apart]),
            (*changes, *of_alone),
        )
        return cls._learning_from(ended.take(chosen), learnt_today[chosen], facts)

    @classmethod
    def of_history(cls, table: ExecutionTable, *, is_timed: bool) -> "LocalTrainingData":
        """The evidence of a history (`ExecutionTable.of_history`), all of which is learnt from.

        Changes of single workloads are not looked for.

        Args:
            table: own executions.
            is_timed: whether it is known when they finished and what the public start predicts.
        """
        ended = table.take(table.is_ok)
        streams = find_streams(DriftObservations.of(ended)) if is_timed else ()
        today, pairs = adjust_for_drift(ended.log_seconds, streams), _Pairs.of(ended)
        facts = LocalSummary(
            TrainingSupport(pairs.ends),
            _repeats(ended, ended.configuration, pairs.engines, today),
            {},
            _drifts(streams),
            _lower_bounds(table),
            RunsApart.none(),
            (),
        )
        return cls._learning_from(ended, today, facts)

    @classmethod
    def _learning_from(
        cls, learnt: ExecutionTable, log_seconds: Floats, facts: LocalSummary
    ) -> "LocalTrainingData":
        return cls(learnt, log_seconds, groups_of(learnt.workload, learnt.configuration), facts)

    def digest(self) -> bytes:
        """32 bytes that differ where what is learnt from does."""
        found = hashlib.sha256()
        for each in (
            self.learnt.configuration,
            self.learnt.cell,
            self.learnt.start,
            self.log_seconds,
            self.groups,
        ):
            found.update(np.ascontiguousarray(each).tobytes())
        return found.digest()

    def known(self, features: Floats, starts: Mapping[str, Floats]) -> TrainingSet:
        """The executions to learn from, with flat features and the start models' answers."""
        samples = EncodedQueries(features, self.learnt.cell, starts)
        places = ScaleAndSize(np.log(self.learnt.cores), np.log1p(self.learnt.source_rows))
        return TrainingSet(samples, self.log_seconds, places, self.groups)


def _repeats(
    ended: ExecutionTable, configurations: Ints, kinds: Ints, log_seconds: Floats
) -> Repeats:
    """Those that answer for other jobs too, by configuration."""
    shared = ended.job == 0
    return Repeats.of(configurations[shared], kinds[shared], log_seconds[shared])


def _drifts(streams: Iterable[Stream]) -> tuple[StreamDrift, ...]:
    return tuple(drift for stream in streams for drift in stream.drifts)


def _lower_bounds(table: ExecutionTable) -> Repeats:
    cut = table.take(~table.is_ok & (table.job == 0))
    return Repeats.of(cut.configuration, np.zeros_like(cut.configuration), cut.log_seconds)


def _runs_apart(columns: ExecutionTable, log_seconds: Floats) -> RunsApart:
    rows = np.argsort(columns.job, kind="stable")
    return RunsApart(
        columns.job[rows],
        columns.configuration[rows],
        columns.read_bytes[rows],
        columns.mark[rows],
        np.log(columns.cores[rows]),
        columns.is_ok[rows],
        log_seconds[rows],
    )


def _as_they_are(configurations: Ints, is_moved: Mask) -> Ints:
    """Configurations, where runs from before a change stand apart from those since, if there are.

    What a job takes since is known from its runs since; older ones tell how repeats differ.
    """
    has_newer = np.isin(configurations, configurations[~is_moved])
    return np.where(is_moved & has_newer, configurations ^ _BEFORE, configurations)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Kinds on platforms over all executions.

    Attributes:
        ends: of each that was seen, see `TrainingSupport`.
        platforms: which each execution uses, [executions, platforms].
        engines: of each, as of `ExecutionSimilarity.engines`, [executions].
    """

    ends: Mapping[Pair, Ends]
    platforms: NDArray[np.bool_]
    engines: Ints

    @classmethod
    def of(cls, columns: ExecutionTable) -> "_Pairs":
        """Part after part, so that memory does not grow with all pairs of all executions."""
        count, kinds, platforms = len(columns), len(OperatorKind), len(Platform)
        sizes = (
            np.log1p(columns.source_rows),
            np.log1p(columns.largest_rows),
            np.log(columns.cores),
            np.log(columns.nodes),
            np.log(columns.operators),
            np.log(columns.cores / columns.nodes),
        )
        lowest, highest = np.full((2, kinds * platforms, len(sizes)), np.inf)
        used, engines = np.zeros((count, platforms), np.bool_), np.zeros(count, np.int64)
        bits = [engine_of(pair) for pair in product(OperatorKind, Platform)]
        for begin in range(0, count, _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            pairs = unpacked_pairs(columns.pairs[part])
            used[part] = pairs.reshape(-1, kinds, platforms).any(axis=1)
            engines[part] = np.bitwise_or.reduce(pairs * np.array(bits), axis=1)
            for pair in np.flatnonzero(pairs.any(axis=0)).tolist():
                for place, values in enumerate(sizes):
                    seen = values[part][pairs[:, pair]]
                    lowest[pair, place] = min(lowest[pair, place], seen.min())
                    highest[pair, place] = min(highest[pair, place], -seen.max())
        ends = {
            (OperatorKind(pair // platforms), Platform(pair % platforms)): (
                tuple(lowest[pair].tolist()),
                tuple((-highest[pair]).tolist()),
            )
            for pair in np.flatnonzero(np.isfinite(lowest[:, 0])).tolist()
        }
        named = engines & ~UNNAMED
        return cls(ends, used, np.where(named, named, engines))


def _clusters(columns: ExecutionTable, used: NDArray[np.bool_]) -> Clusters:
    """Resources by platform, the usual ones first."""
    numbers = np.zeros(len(columns), np.int64)
    for each in columns.cluster_columns():
        values = numbered(each)
        numbers = numbered(numbers * (values.max(initial=0) + 1) + values)
    first = np.unique(numbers, return_index=True)[1]
    clusters = [columns.cluster(row) for row in first.tolist()]
    found = {}
    for platform in Platform:
        rows = numbers if platform is Platform.UNASSIGNED else numbers[used[:, platform]]
        kinds, begins, counts = np.unique(rows, return_index=True, return_counts=True)
        order = kinds[np.lexsort((begins, -counts))].tolist()
        if order:
            found[platform] = tuple(clusters[each] for each in order)
    return found
