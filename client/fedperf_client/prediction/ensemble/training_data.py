"""The training data of an organization: what learners are fitted on, and where it supports queries.

All executions count, and learners are fitted on a sample of at most `MOST_TRAINING_RUNS`, so a
prediction costs the same however many there are. Fixed rules choose it (`training_sample`). It
holds a few of the newest executions of as many workloads as possible, in an order that is
independent of run times. It holds some executions of every cell of the basis, so that rare work is
represented, and those at the ends of scales and sizes. Runs of exactly the job of a query are
looked up among all executions. The sample is chosen again when a tenth more executions arrived, or
a drift was detected. Only the executions that finished before then decide, so the same query gets
the same prediction.

`TrainingData` is the sample, with run times adjusted to the level of today, with a `LocalSummary`
of all executions. With features it becomes the `TrainingSet` that learners are fitted on.

`TrainingSupport` measures how well all executions cover a query: whether it lies inside the range
of what ran (`contains`), the share of its operators that are covered (`fraction`), and platforms
that only ran much smaller jobs (`platforms_exceeded`). `TrainingSet.similar_to` finds the
executions that are evidence for a query.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import (
    UNNAMED,
    EncodedQueries,
    ExecutionTable,
    Ints,
    Mask,
    engine_bit,
    numbered,
)
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
from fedperf_client.prediction.ensemble.repeats import IsolatedRuns, Repeats
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform

MOST_TRAINING_RUNS = 3_000  # executions in the training sample
STEP = 1.1
TOGETHER = 3  # newest executions of a workload that are taken before those of another workload
LEAST_OF_CELL = 20

# Sizes up to twice the largest, or down to half of the smallest, count as inside.
SUPPORT_MARGIN = math.log(2.0)

COVERED_ROWS = math.log(10.0)
# A kind of operator on a platform is covered at up to ten times the source rows that it ran at, or
# a tenth, and unknown at a hundred times; in between ever less. That far, other costs dominate
# (start-ups, memory, disks), and a line through the measurements is a guess.
STRANGE_ROWS = math.log(100.0)

COVERED_CORES = math.log(4.0)
# The same for cores over all nodes: those of a laptop are weak evidence for a cluster that
# shuffles.
STRANGE_CORES = math.log(32.0)

LEAST_SHARE = 0.5  # share of covered operators from which on a query may lie inside
TIMES = 10.0  # jobs up to this many times the largest on a platform are compared across platforms
MOST_OF_GROUP = 1.0  # executions that a workload counts as at most
_ROWS_AT_ONCE = 2**15

# Maps the number of a configuration to that of its runs before a change.
_BEFORE = 0x5BF0_3635_1A2C_97E1

Pair = tuple[OperatorKind, Platform]  # A kind of operator on a platform
# Logs of source rows, largest output, cores, nodes, operators, and cores of a node.
Sizes = tuple[float, ...]

Range = tuple[Sizes, Sizes]  # the least and the most of each
ROWS, CORES = 0, 2
_NOWHERE: Range = ((math.inf,) * 6, (-math.inf,) * 6)

Clusters = Mapping[Platform, tuple[ClusterConfig, ...]]


@dataclass(frozen=True, slots=True)
class TrainingSupport:
    """The sizes at which each kind of operator ran on each platform.

    A kind on one platform and a platform with another kind are no evidence for both together, so
    pairs are stored.
    """

    ranges: Mapping[Pair, Range]  # of the queries in which each pair ran
    _lowest: Sizes = field(init=False)
    _highest: Sizes = field(init=False)

    def __post_init__(self) -> None:
        ends = self.ranges.values() or [_NOWHERE]
        for name, of, reduced in (("_lowest", 0, min), ("_highest", 1, max)):
            values = zip(*(each[of] for each in ends), strict=True)
            object.__setattr__(self, name, tuple(map(reduced, values)))

    @property
    def platforms(self) -> frozenset[Platform]:
        """Platforms that ran."""
        return frozenset(platform for _, platform in self.ranges)

    def on_engines(self, engines: int) -> "TrainingSupport":
        """Return the support by executions on some engines, bits as of `engine_bit`."""
        return TrainingSupport(
            {pair: ends for pair, ends in self.ranges.items() if engine_bit(pair) & engines}
        )

    def contains(self, query: PlanOnCluster) -> bool:
        """Return whether a query lies in the box around all executions and is mostly covered.

        More cores on a node than any had are another machine, however many all nodes have.
        """
        if not self.ranges:
            return False
        *sizes, cores_on_node = _sizes(query)
        is_inside = all(
            low - SUPPORT_MARGIN <= size <= high + SUPPORT_MARGIN
            for low, size, high in zip(self._lowest, sizes, self._highest, strict=False)
        )
        return (
            is_inside
            and self.fraction_apart(query.plan) == 1
            and self.fraction(query) >= LEAST_SHARE
            and cores_on_node <= self._highest[-1]
        )

    def fraction(self, query: PlanOnCluster) -> float:
        """Return the share of operators that ran on their platform at such rows and cores.

        Sources count only in a plan of nothing else. Every plan has them, so they are no evidence
        for the other work. Rows and cores beyond all executions do not reduce the share: cross-
        validation imitates such queries.
        """
        operators, platforms = query.plan.workflow.operators, query.plan.platforms
        if not self.ranges:
            return 0.0
        sizes = np.clip(_sizes(query), self._lowest, self._highest).tolist()
        coverage = []
        for operator, platform in zip(operators, platforms, strict=True):
            low, high = self.ranges.get((operator.kind, platform), _NOWHERE)
            coverage.append(
                min(
                    _nearness(sizes[at], (low[at], high[at]), near, far)
                    for at, near, far in (
                        (ROWS, COVERED_ROWS, STRANGE_ROWS),
                        (CORES, COVERED_CORES, STRANGE_CORES),
                    )
                )
            )
        work = [each for each, operator in zip(coverage, operators, strict=True) if operator.inputs]
        counted = work or coverage
        return sum(counted) / len(counted)

    def fraction_apart(self, plan: Plan) -> float:
        """Return the share of operators whose kind ran and whose platform ran, be it apart."""
        kinds, platforms = {kind for kind, _ in self.ranges}, self.platforms
        operators = zip(plan.workflow.operators, plan.platforms, strict=True)
        coverage = [operator.kind in kinds and where in platforms for operator, where in operators]
        return sum(coverage) / len(coverage)

    def most(self, platform: Platform, at: int) -> float:
        """Return the most source rows (`ROWS`) or cores (`CORES`) on a platform; 0 without any."""
        most = (high[at] for (_, where), (_, high) in self.ranges.items() if where is platform)
        return max(map(math.expm1 if at == ROWS else math.exp, most), default=0.0)

    def platforms_exceeded(self, plan: Plan) -> tuple[Platform, ...]:
        """Return the platforms of a plan that ran, but only much smaller jobs.

        The box around all executions contains a small engine at the size of a large one as soon as
        each ran somewhere. A comparison of platforms for one job must not rely on that.
        """
        ran = self.platforms.intersection(plan.platforms, NAMED_PLATFORMS)
        rows = plan.workflow.source_rows
        return tuple(each for each in sorted(ran) if rows > TIMES * self.most(each, ROWS))


@dataclass(frozen=True, slots=True, eq=False)
class ScaleAndSize:
    """The scales and input sizes of executions or queries."""

    scale: Floats  # log machines or cores, float64 [rows]
    size: Floats  # log of the input size, float64 [rows]

    def __post_init__(self) -> None:
        if self.scale.ndim != 1 or self.scale.shape != self.size.shape:
            shapes = f"{self.scale.shape} and {self.size.shape}"
            raise InvalidInputError(f"scales and sizes must be vectors of one length, got {shapes}")
        if not (np.isfinite(self.scale).all() and np.isfinite(self.size).all()):
            raise InvalidInputError("scales and sizes must be finite")

    @classmethod
    def from_queries(cls, queries: Sequence[PlanOnCluster]) -> Self:
        """Return cores over all nodes and rows of all sources."""
        cores = np.array([each.cluster.cores for each in queries], np.float64)
        rows = np.array([each.plan.workflow.source_rows for each in queries], np.float64)
        return cls(np.log(cores), np.log1p(rows))

    def take(self, rows: Ints | slice) -> "ScaleAndSize":
        """Return these rows."""
        return ScaleAndSize(self.scale[rows], self.size[rows])

    def along(self, regime: QueryRegime) -> Floats:
        """Return the coordinate in which queries of a regime differ from the training runs."""
        return self.scale if regime.is_of_scales else self.size


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Executions as learners are fitted on them."""

    samples: EncodedQueries  # encoded, [executions]
    log_seconds: Floats  # natural log of the measured wall seconds, float64 [executions]
    places: ScaleAndSize  # scale and size, [executions]
    groups: Ints  # workload or configuration of each, int64 [executions]; never split by folds

    def __len__(self) -> int:
        return len(self.log_seconds)

    @property
    def effective_size(self) -> float:
        """Sum of the weights of the executions."""
        return float(self.samples.weights.sum())

    def take(self, rows: Ints) -> "TrainingSet":
        """Return these rows."""
        samples = self.samples.take(rows)
        groups = _groups(self.groups[rows], samples.configurations())
        return TrainingSet(samples, self.log_seconds[rows], self.places.take(rows), groups)

    @cached_property
    def _pairs(self) -> Mask:
        """Which kinds run on which named platforms, [pairs, executions]."""
        pairs = len(OperatorKind) * len(NAMED_PLATFORMS)
        return np.ascontiguousarray(self.samples.features[:, :pairs].T > 0)

    @cached_property
    def engines(self) -> Ints:
        """Bits of the engines of each execution, [executions].

        Features distinguish kinds on named platforms only: on the others all are alike.
        """
        bits = np.array([engine_bit(pair) for pair in product(OperatorKind, NAMED_PLATFORMS)])
        engines = np.bitwise_or.reduce(self._pairs * bits[:, None], axis=0)
        return np.where(self._pairs.any(axis=0), engines, UNNAMED)

    def connected_engines(self, engines: int) -> int:
        """Return the bits of those engines that ran, and of all that ran with them in one plan."""
        component, wider = 0, engines
        while wider != component:
            together = self.engines[(self.engines & wider) != 0]
            component, wider = wider, int(np.bitwise_or.reduce(together, initial=0))
        return component

    def similar_to(self, query: PlanOnCluster, *, sources: bool = False) -> Mask:
        """Return which executions share an operator on its platform, at about such rows and cores.

        Args:
            query: to compare with.
            sources: whether a source counts as well; otherwise only in a plan of nothing else.
        """
        plan = query.plan
        operators = list(zip(plan.workflow.operators, plan.platforms, strict=True))
        work = {(each.kind, where) for each, where in operators if each.inputs or sources}
        pairs = work or {(each.kind, where) for each, where in operators}
        named = [kind * len(NAMED_PLATFORMS) + w for kind, w in pairs if w in NAMED_PLATFORMS]
        shared = self._pairs[named].any(axis=0)
        if len(named) < len(pairs):
            shared |= self.engines == UNNAMED
        near = np.abs(self.places.size - np.log1p(plan.workflow.source_rows)) <= STRANGE_ROWS
        near &= np.abs(self.places.scale - np.log(query.cluster.cores)) <= STRANGE_CORES
        return np.asarray(shared & near)


@dataclass(frozen=True, slots=True, eq=False)
class LocalSummary:
    """Facts of all local executions. Learners are fitted on a sample of them."""

    support: TrainingSupport  # of all
    repeats: Repeats  # all by configuration
    # Resources of the executions on each platform, the usual ones first; those of all executions
    # under `UNASSIGNED`.
    clusters: Clusters
    drifts: tuple[StreamDrift, ...]  # detected in all
    censored: Repeats  # those that did not end well, by configuration; their times are lower bounds
    # Those that predict their own jobs only, however they ended; not in `repeats` and `censored`.
    isolated: IsolatedRuns
    changes: tuple[WorkloadChange, ...]  # of single workloads, detected in all


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """The training sample before it is joined with features, and the summary of all executions."""

    table: ExecutionTable  # the training sample, in the order in which the executions finished
    log_seconds: Floats  # of each, adjusted to the level of the last execution, [executions]
    groups: Ints  # of each, never split by folds, [executions]
    summary: LocalSummary  # of all executions

    @classmethod
    def from_table(cls, table: ExecutionTable) -> "TrainingData":
        """Return the training data of stored executions, in the order in which they finished.

        Executions that are no evidence for other jobs are part of `LocalSummary.isolated` alone.
        """
        examples = table.take(table.is_example)
        ended = examples.take(examples.is_ok)
        observations = DriftObservations.of(ended)
        streams = find_streams(observations)
        detected = [int(s.rows[drift.change.alarm]) + 1 for s in streams for drift in s.drifts]
        limit = training_limit(len(ended), max(detected, default=0))
        oldest = ended.take(np.arange(limit))
        sample = training_sample(oldest)
        operators = _OperatorPairs.of(ended)
        level = adjust_for_drift(ended.log_seconds, streams)
        today, is_moved, changes = workload_changes(ended, operators.engines, level)
        adjusted = today
        if limit < len(ended):
            earlier = streams_until(observations, streams, limit)
            earlier_level = adjust_for_drift(ended.log_seconds, earlier)[:limit]
            adjusted, _, _ = workload_changes(oldest, operators.engines[:limit], earlier_level)
        others = table.take(table.is_ok & ~table.is_example)
        others_today, _, others_changes = workload_changes(
            others, _OperatorPairs.of(others).engines, others.log_seconds
        )
        log_seconds = table.log_seconds.copy()
        log_seconds[table.is_ok & table.is_example] = today
        log_seconds[table.is_ok & ~table.is_example] = others_today
        # Runs since a change show how long a job takes. Older ones only show how much repeats
        # differ.
        has_newer = np.isin(ended.configuration, ended.configuration[~is_moved])
        configurations = np.where(
            is_moved & has_newer, ended.configuration ^ _BEFORE, ended.configuration
        )
        summary = _summarize(
            examples,
            configurations,
            today,
            streams,
            operators,
            clusters=_clusters(ended, operators.platforms),
            isolated=_isolated_runs(table, log_seconds),
            changes=(*changes, *others_changes),
        )
        rows = ended.take(sample)
        return cls(rows, adjusted[sample], _groups(rows.workload, rows.configuration), summary)

    @classmethod
    def from_history(cls, table: ExecutionTable, *, is_timed: bool) -> "TrainingData":
        """Return the training data of a whole history, without sampling.

        Changes of single workloads are not detected.

        Args:
            table: as of `ExecutionTable.from_history`.
            is_timed: whether timestamps and the predictions of the public model are there.
        """
        ended = table.take(table.is_ok)
        streams = find_streams(DriftObservations.of(ended)) if is_timed else ()
        today = adjust_for_drift(ended.log_seconds, streams)
        summary = _summarize(
            table,
            ended.configuration,
            today,
            streams,
            _OperatorPairs.of(ended),
            clusters={},
            isolated=_isolated_runs(ended.take(np.zeros(0, np.int64)), np.zeros(0)),
            changes=(),
        )
        return cls(ended, today, _groups(ended.workload, ended.configuration), summary)

    def digest(self) -> bytes:
        """Return 32 bytes that differ if the training sample does."""
        digest = hashlib.sha256()
        table = self.table
        columns = (
            table.configuration,
            table.cell,
            table.pretrained_log_seconds,
            self.log_seconds,
            self.groups,
        )
        for values in columns:
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.digest()

    def with_features(
        self, features: Floats, base_predictions: Mapping[str, Floats]
    ) -> TrainingSet:
        """Return the training set with flat features and the pretrained models' predictions."""
        samples = EncodedQueries(features, self.table.cell, base_predictions)
        places = ScaleAndSize(np.log(self.table.cores), np.log1p(self.table.source_rows))
        return TrainingSet(samples, self.log_seconds, places, self.groups)


def training_limit(count: int, detected: int) -> int:
    """Return the number of oldest executions among which the training sample is chosen.

    Args:
        count: of all executions.
        detected: of the executions up to the last detected drift; 0 without one.
    """
    if count <= MOST_TRAINING_RUNS:
        return count
    steps = int(np.log(count / MOST_TRAINING_RUNS) / np.log(STEP))
    return max(detected, min(count, int(MOST_TRAINING_RUNS * STEP**steps)))


def training_sample(table: ExecutionTable) -> Ints:
    """Return the rows of the training sample, ascending."""
    count = len(table)
    if count <= MOST_TRAINING_RUNS:
        return np.arange(count)
    rank = _rank_in_group(table.workload[::-1])[::-1]  # how many of its workload are newer
    # Hashes of names: as good as random, and independent of what else is stored.
    order = np.lexsort((rank, table.workload, rank // TOGETHER))
    of_cell = np.empty(count, np.int64)
    of_cell[order] = _rank_in_group(table.cell[order])
    ends = [
        each(values)
        for values in (table.cores, table.source_rows)
        for each in (np.argmin, np.argmax)
    ]
    first = np.zeros(count, np.bool_)
    first[ends] = True
    first |= of_cell < LEAST_OF_CELL
    sample = np.concatenate([order[first[order]], order[~first[order]]])[:MOST_TRAINING_RUNS]
    return np.sort(sample)


def _rank_in_group(groups: Ints) -> Ints:
    """Return how many members of its group precede each value."""
    numbers = numbered(groups)
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - begins
    return rank


@dataclass(frozen=True, slots=True, eq=False)
class _OperatorPairs:
    """Kinds of operators on platforms over all executions."""

    ranges: Mapping[Pair, Range]  # as of `TrainingSupport`
    platforms: Mask  # that each execution uses, [executions, platforms]
    engines: Ints  # of each, as of `TrainingSet.engines`, [executions]

    @classmethod
    def of(cls, table: ExecutionTable) -> "_OperatorPairs":
        """Unpack in batches, so that memory does not grow with all pairs of all executions."""
        count, kinds, platforms = len(table), len(OperatorKind), len(Platform)
        sizes = (
            np.log1p(table.source_rows),
            np.log1p(table.largest_rows),
            np.log(table.cores),
            np.log(table.nodes),
            np.log(table.operators),
            np.log(table.cores / table.nodes),
        )
        lowest, highest = np.full((2, kinds * platforms, len(sizes)), np.inf)
        used, engines = np.zeros((count, platforms), np.bool_), np.zeros(count, np.int64)
        bits = np.array([engine_bit(pair) for pair in product(OperatorKind, Platform)])
        for begin in range(0, count, _ROWS_AT_ONCE):
            batch = slice(begin, begin + _ROWS_AT_ONCE)
            pairs = np.unpackbits(table.pairs[batch], axis=1, count=kinds * platforms)
            pairs = pairs.view(np.bool_)
            used[batch] = pairs.reshape(-1, kinds, platforms).any(axis=1)
            engines[batch] = np.bitwise_or.reduce(pairs * bits, axis=1)
            for pair in np.flatnonzero(pairs.any(axis=0)).tolist():
                for place, values in enumerate(sizes):
                    of_pair = values[batch][pairs[:, pair]]
                    lowest[pair, place] = min(lowest[pair, place], of_pair.min())
                    highest[pair, place] = min(highest[pair, place], -of_pair.max())
        ranges = {
            (OperatorKind(pair // platforms), Platform(pair % platforms)): (
                tuple(lowest[pair].tolist()),
                tuple((-highest[pair]).tolist()),
            )
            for pair in np.flatnonzero(np.isfinite(lowest[:, 0])).tolist()
        }
        named = engines & ~UNNAMED
        return cls(ranges, used, np.where(named, named, engines))


def _groups(workloads: Ints, configurations: Ints) -> Ints:
    """Return the workloads; of one workload the configurations, of one of these the executions."""
    for groups in (workloads, configurations):
        if len(np.unique(groups)) > 1:
            return groups
    return np.arange(len(workloads))


def _summarize(
    examples: ExecutionTable,
    configurations: Ints,
    log_seconds: Floats,
    streams: Iterable[Stream],
    operators: _OperatorPairs,
    *,
    clusters: Clusters,
    isolated: IsolatedRuns,
    changes: tuple[WorkloadChange, ...],
) -> LocalSummary:
    """Return the summary of the executions that are evidence for other jobs.

    Args:
        examples: these executions, however they ended.
        configurations: of those that ended well.
        log_seconds: of those, as they would be today.
        streams: of those.
        operators: of those.
        clusters: see `LocalSummary`.
        isolated: see `LocalSummary`.
        changes: see `LocalSummary`.
    """
    shared = examples.job[examples.is_ok] == 0
    repeats = configurations[shared], operators.engines[shared], log_seconds[shared]
    cut = examples.take(~examples.is_ok & (examples.job == 0))
    return LocalSummary(
        TrainingSupport(operators.ranges),
        Repeats.from_runs(*repeats),
        clusters,
        tuple(drift for stream in streams for drift in stream.drifts),
        Repeats.from_runs(cut.configuration, np.zeros_like(cut.configuration), cut.log_seconds),
        isolated,
        changes,
    )


def _isolated_runs(table: ExecutionTable, log_seconds: Floats) -> IsolatedRuns:
    rows = np.flatnonzero(table.job)
    rows = rows[np.argsort(table.job[rows], kind="stable")]
    return IsolatedRuns(
        table.job[rows],
        table.configuration[rows],
        table.read_bytes[rows],
        table.mark[rows],
        np.log(table.cores[rows]),
        table.is_ok[rows],
        log_seconds[rows],
    )


def _clusters(table: ExecutionTable, used: NDArray[np.bool_]) -> Clusters:
    """Return the resources by platform, the usual ones first."""
    numbers, clusters = table.clusters()
    by_platform = {}
    for platform in Platform:
        rows = numbers if platform is Platform.UNASSIGNED else numbers[used[:, platform]]
        kinds, begins, counts = np.unique(rows, return_index=True, return_counts=True)
        order = kinds[np.lexsort((begins, -counts))].tolist()
        if order:
            by_platform[platform] = tuple(clusters[each] for each in order)
    return by_platform


def _nearness(value: float, ends: tuple[float, float], near: float, far: float) -> float:
    """Return 1 up to `near` beyond the range, 0 from `far` on."""
    apart = max(ends[0] - value, value - ends[1], 0.0)
    return min(1.0, max(0.0, (far - apart) / (far - near)))


def _sizes(query: PlanOnCluster) -> Sizes:
    operators, cluster = query.plan.workflow.operators, query.cluster
    largest = max(operator.output_rows for operator in operators)
    return (
        math.log1p(query.plan.workflow.source_rows),
        math.log1p(largest),
        math.log(cluster.cores),
        math.log(cluster.nodes),
        math.log(len(operators)),
        math.log(cluster.cores / cluster.nodes),
    )
