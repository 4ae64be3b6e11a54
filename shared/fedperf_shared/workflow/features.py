"""Features of a plan, the cost model's input: 63 numbers per operator, 39 per plan.

The schema is versioned and has reserved slots, so that a new platform or kind never changes a
tensor's shape across a federation. Every scale is a public constant, and every feature is clamped
to [-`FEATURE_LIMIT`, `FEATURE_LIMIT`]. So every valid plan has finite and bounded features, and
nothing is normalised by the data. Names, literals and values of keys cannot enter, because
a `Plan` holds none.

L(x) = ln(1 + x). Operator features:

    0-23   kind, one-hot            24-27  class, one-hot      28-37  platform, one-hot
    38, 39 parents, children        40, 41 depth, height / 12  42, 43 is source, is sink
    44     threads: log2(1 + cores) / 10        45 log2(1 + partitions) / 10
    46-49  complexity: the slot of the class (none, logarithmic, linear, super-linear)
           holds 1 + log2(1 + code steps) / 8, the others 0
    50-52  L(rows) / 10: input in all, input of the largest parent, output
           (a source: its own output)
    53     ln((output rows + 1) / (input rows + 1)) / 10
    54-56  L(bytes) / 10: input, output, width of an output row
    57-59  edges in from another platform, L(bytes over them) / 10, edges out to another
    60     L(iterations) / 10       61     distinct ratio of the key   62 order-sensitive

Plan features:

    0-2    operators, edges, depth / 12         3  width / 4
    4-8    sources, sinks, joins, loops, distinct platforms / 3
    9-16   share of operators per named platform
    17, 18 switches / 6, L(bytes crossing) / 20
    19-22  share of operators per class
    23-26  pipeline, juncture, replicate, loop
    27-30  sources: L(rows) / 10, L(bytes) / 20, L(rows of the largest) / 10, L(row bytes) / 5
    31-34  columns / 10, share of the top key, distinct ratio, null ratio
    35-38  L(cores) / 5, ln(GiB) / 5, 1 + log2(nodes), machine speed

`Features` holds these 102 numbers and the prediction of the analytic cost model (`analytic_cost`),
which a cost model corrects.

An edge counts as a switch if both its ends have a platform and the two differ.

`flatten` returns one flat vector per plan for trees and linear models, as Robopt does. It has no
edges. In this order it holds:

- for each (kind, named platform) the number of operators, the sum of their log input rows and the
  sum of their log output rows
- sums of a few operator features over the whole plan
- the log seconds of the analytic cost model
- the 39 plan features.

Operators on a platform without a name (`OTHER`, `UNASSIGNED`) count only in the sums. The vector is
bounded, because the features are and a plan has at most `MAX_OPERATORS` operators.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.analytic_cost import (
    Floats,
    Ints,
    Placements,
    Resources,
    WorkflowColumns,
    analytic_log_seconds,
    analytic_log_seconds_of_many,
    sum_by_row,
)
from fedperf_shared.workflow.graph import Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.topology import topological_order, topological_orders
from fedperf_shared.workflow.vocabulary import (
    NAMED_PLATFORMS,
    ORDERING_KINDS,
    OperatorClass,
    OperatorKind,
    Platform,
)

FEATURE_SCHEMA_VERSION = 2
OPERATOR_FEATURES = 63
PLAN_FEATURES = 39
RESOURCE_FEATURES = 4  # the last of a plan's features
# Bound on the magnitude of a feature. Only absurd plans reach it (depth 192, 16 parents).
FEATURE_LIMIT = 16.0

_KIND, _CLASS, _PLATFORM, _THREADS, _COMPLEXITY = 0, 24, 28, 44, 46
_ORDERING = np.isin(np.arange(len(OperatorKind)), [int(kind) for kind in ORDERING_KINDS])

Float32Array = NDArray[np.float32]


class InvalidFeaturesError(InvalidInputError):
    """Raised for features of a wrong shape, or with a value that no plan has."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The features of one plan, rows in topological order."""

    operators: Float32Array  # float32 [operators, 63]
    plan: Float32Array  # float32 [39]
    # Rows of parent and child, int64 [2, edges]; repeated if a child reads one parent twice.
    edges: NDArray[np.int64]
    order: tuple[int, ...]  # position of each row's operator in `plan.workflow.operators`
    analytic_log_seconds: float  # analytic cost model's prediction, within `FEATURE_LIMIT`

    def __post_init__(self) -> None:
        count = len(self.order)
        shapes = (self.operators.shape, self.plan.shape, self.edges.shape[:1])
        if shapes != ((count, OPERATOR_FEATURES), (PLAN_FEATURES,), (2,)) or count == 0:
            raise InvalidFeaturesError(f"features of {count} operators have the shapes {shapes}")
        for name, values in (("operator", self.operators), ("plan", self.plan)):
            if not np.abs(values).max() <= FEATURE_LIMIT:  # written so that NaN is refused
                raise InvalidFeaturesError(f"{name} features must lie within {FEATURE_LIMIT:g}")
        if not abs(self.analytic_log_seconds) <= FEATURE_LIMIT:
            raise InvalidFeaturesError(
                f"analytic_log_seconds must lie within {FEATURE_LIMIT:g}, "
                f"got {self.analytic_log_seconds!r}"
            )
        if self.edges.size and not (self.edges.min() >= 0 and self.edges.max() < count):
            raise InvalidFeaturesError(f"edges must join rows 0 to {count - 1}")


def featurize(plan: Plan, cluster: Resources) -> Features:
    """Return the features of `plan` on `cluster`, the same for any order of its operators."""
    [features] = featurize_assignments(plan.workflow, [plan.platforms], cluster)
    return features


def featurize_assignments(
    workflow: Workflow, assignments: Sequence[Sequence[Platform]], cluster: Resources
) -> list[Features]:
    """Featurize plans of one workflow, each with its platforms, in their order.

    Features that do not depend on platforms are computed once per topological order. Most
    assignments share one.
    """
    orders = topological_orders(workflow, assignments)
    features_by_id: dict[int, Features] = {}
    for order in dict.fromkeys(orders):
        same = [place for place, each in enumerate(orders) if each == order]
        columns = WorkflowColumns.of((workflow, order))
        platforms = np.array([assignments[place] for place in same], dtype=np.int64)[:, order]
        placed = Placements.of(columns, platforms)
        operators = _clamped(_operator_rows(columns, placed, cluster))
        plans = _clamped(_plan_rows(columns, placed, workflow.sources, cluster))
        analytic = analytic_log_seconds(columns, placed, cluster).tolist()
        for place, rows, plan, seconds in zip(same, operators, plans, analytic, strict=True):
            features_by_id[place] = Features(rows, plan, columns.edges, order, seconds)
    return [features_by_id[place] for place in range(len(orders))]


def featurize_many(plans: Sequence[Plan], clusters: Sequence[Resources]) -> list[Features]:
    """Featurize plans of any workflows, each on its cluster, several times as fast.

    Sums over a plan may be rounded differently, before features become float32.
    """
    if not plans:
        return []
    orders = [topological_order(each.workflow, each.platforms) for each in plans]
    both = list(zip(plans, orders, strict=True))
    columns = WorkflowColumns.of(*((each.workflow, order) for each, order in both))
    platforms = [int(each.platforms[position]) for each, order in both for position in order]
    placed = Placements.of(columns, np.array([platforms]))
    sizes = np.array([len(order) for order in orders])
    [operators] = _operator_rows(columns, placed, clusters[0])
    threads = np.array([math.log2(1 + each.cores) / 10 for each in clusters])
    operators[:, _THREADS] = np.repeat(threads, sizes)
    rows = np.zeros((len(plans), PLAN_FEATURES))
    fill_plan_rows(rows, columns, placed, plans=plans, sizes=sizes, clusters=clusters)
    analytic = analytic_log_seconds_of_many(columns, placed, clusters, sizes).tolist()
    ends = np.cumsum(sizes)
    of_edges = np.searchsorted(columns.edges[1], [0, *ends])
    return [
        Features(of_plan, row, columns.edges[:, begin:end] - first, order, log_seconds)
        for of_plan, row, begin, end, first, order, log_seconds in zip(
            np.split(_clamped(operators), ends[:-1]),
            _clamped(rows),
            of_edges[:-1],
            of_edges[1:],
            (ends - sizes).tolist(),
            orders,
            analytic,
            strict=True,
        )
    ]


def _operator_rows(columns: WorkflowColumns, placed: Placements, cluster: Resources) -> Floats:
    """Return [plans, operators, 63]. Only features of platforms differ among plans."""
    plans, count = placed.platforms.shape
    rows = np.repeat(_rows_without_platforms(columns, cluster)[None], plans, axis=0)
    rows[np.arange(plans)[:, None], np.arange(count), _PLATFORM + placed.platforms] = 1
    plan, edge = np.nonzero(placed.switch)
    parent, child = plan * count + columns.edges[:, edge]
    crossing = sum_by_row(child, columns.output_bytes[columns.edges[0, edge]], plans * count)
    rows[:, :, 57] = np.bincount(child, minlength=plans * count).reshape(plans, count)
    rows[:, :, 58] = np.log1p(crossing).reshape(plans, count) / 10
    rows[:, :, 59] = np.bincount(parent, minlength=plans * count).reshape(plans, count)
    return rows


def _rows_without_platforms(columns: WorkflowColumns, cluster: Resources) -> Floats:
    count = len(columns.rows)
    every = np.arange(count)
    features = np.zeros((count, OPERATOR_FEATURES))
    features[every, _KIND + columns.kind] = 1
    features[every, _CLASS + columns.operator_class] = 1
    features[:, 38] = columns.parents
    features[:, 39] = columns.children
    features[:, 40] = columns.depth / 12
    features[:, 41] = columns.height / 12
    features[:, 42] = columns.parents == 0
    features[:, 43] = columns.children == 0
    features[:, _THREADS] = math.log2(1 + cluster.cores) / 10
    features[:, 45] = np.log2(1 + columns.partitions) / 10
    features[every, _COMPLEXITY + columns.complexity] = 1 + np.log2(1 + columns.code_steps) / 8
    features[:, 50] = np.log1p(columns.of_inputs(columns.rows)) / 10
    features[:, 51] = np.log1p(columns.largest_input_rows) / 10
    features[:, 52] = np.log1p(columns.rows) / 10
    features[:, 53] = features[:, 52] - features[:, 50]
    features[:, 54] = np.log1p(columns.of_inputs(columns.output_bytes)) / 10
    features[:, 55] = np.log1p(columns.output_bytes) / 10
    features[:, 56] = np.log1p(columns.row_bytes) / 10
    features[:, 60] = np.log1p(columns.iterations) / 10
    features[:, 61] = columns.key_distinct_ratio
    features[:, 62] = _ORDERING[columns.kind]
    return features


def _plan_rows(
    columns: WorkflowColumns, placed: Placements, sources: SourceStatistics, cluster: Resources
) -> Floats:
    """Return [plans, 39]. Only features of platforms differ among plans."""
    plans, count = placed.platforms.shape
    rows = np.repeat(_row_without_platforms(columns, sources, cluster)[None], plans, axis=0)
    per_platform = (placed.platforms[:, :, None] == np.arange(len(Platform))).sum(axis=1)
    rows[:, 8] = np.count_nonzero(per_platform[:, : Platform.UNASSIGNED], axis=1) / 3
    rows[:, 9:17] = per_platform[:, :8] / count
    rows[:, 17] = placed.switch.sum(axis=1) / 6
    sent = columns.output_bytes[columns.edges[0]]
    rows[:, 18] = [math.log1p(sent[switch].sum()) / 20 for switch in placed.switch]
    return rows


def _row_without_platforms(
    columns: WorkflowColumns, sources: SourceStatistics, cluster: Resources
) -> Floats:
    count = len(columns.rows)
    features = np.zeros(PLAN_FEATURES)
    features[0:8] = (
        count / 12,
        columns.edges.shape[1] / 12,
        int(columns.depth.max()) / 12,
        int(np.bincount(columns.depth).max()) / 4,
        np.count_nonzero(columns.parents == 0) / 3,
        np.count_nonzero(columns.children == 0) / 3,
        np.count_nonzero(columns.kind == OperatorKind.JOIN) / 3,
        np.count_nonzero(columns.iterations) / 3,
    )
    features[19:23] = np.bincount(columns.operator_class, minlength=4) / count
    features[23] = columns.parents.max() < 2  # noqa: PLR2004 - two parents make a juncture
    features[24] = 1 - features[23]
    features[25] = columns.children.max() > 1
    features[26] = (columns.iterations > 0).any()
    features[27:35] = _sources(columns, sources)
    features[35:39] = machine_features(cluster)
    return features


def _sources(columns: WorkflowColumns, statistics: SourceStatistics) -> tuple[float, ...]:
    source = columns.parents == 0
    rows, width = columns.rows[source], columns.row_bytes[source]
    total = float(rows.sum())
    total_bytes = float((rows * width).sum())
    return (
        math.log1p(total) / 10,
        math.log1p(total_bytes) / 20,
        math.log1p(float(rows.max())) / 10,
        math.log1p(total_bytes / total if total > 0 else float(width.mean())) / 5,
        statistics.columns / 10,
        statistics.top_key_share,
        statistics.distinct_ratio,
        statistics.null_ratio,
    )


def _clamped(features: Floats) -> Float32Array:
    return np.clip(features, -FEATURE_LIMIT, FEATURE_LIMIT).astype(np.float32)


_INPUT_ROWS, _OUTPUT_ROWS = 50, 52
_SUMMED = (45, 46, 47, 48, 49, 53, 54, 55, 57, 58, 60, 61, 62)
_PARTITIONS = 45
_CELLS = len(OperatorKind) * len(NAMED_PLATFORMS)

_ANALYTIC = 3 * _CELLS + len(_SUMMED)
# Length of the flat vector: 3 x 24 x 8 + 13 + 1 + 39 = 629.
FLAT_FEATURES = _ANALYTIC + 1 + PLAN_FEATURES

# Columns of the flat vector that are the same for a plan on any resources.
PLAN_COLUMNS = np.setdiff1d(
    np.arange(FLAT_FEATURES),
    [
        3 * _CELLS + _SUMMED.index(_PARTITIONS),
        _ANALYTIC,
        *range(FLAT_FEATURES - RESOURCE_FEATURES, FLAT_FEATURES),
    ],
)


def flatten(features: Features) -> Float32Array:
    """Return the flat vector of a featurized plan, float32 [629]."""
    operators = features.operators.astype(np.float64)
    kind = operators[:, 0:24]
    platform = operators[:, 28:36]
    weights = np.stack(
        [np.ones(len(operators)), operators[:, _INPUT_ROWS], operators[:, _OUTPUT_ROWS]]
    )
    cells = np.einsum("wo,ok,op->wkp", weights, kind, platform)
    sums = operators[:, _SUMMED].sum(axis=0)
    analytic = [features.analytic_log_seconds]
    return np.concatenate([cells.ravel(), sums, analytic, features.plan]).astype(np.float32)


_GIB = 2.0**30


def machine_features(cluster: Resources) -> tuple[float, ...]:
    """Return plan features 35 to 38."""
    return (
        math.log1p(cluster.cores) / 5,
        math.log(cluster.memory_bytes / _GIB) / 5,
        1 + math.log2(cluster.nodes),
        cluster.machine_speed,
    )


def fill_plan_rows(
    rows: Floats,
    columns: WorkflowColumns,
    placed: Placements,
    *,
    plans: Sequence[Plan],
    sizes: Ints,
    clusters: Sequence[Resources],
) -> None:
    """Fill the features of several plans, [plans, 39].

    Args:
        rows: the array to fill.
        columns: columns of all their workflows in sequence.
        placed: placements of all plans, as of one plan.
        plans: index of the plan of each operator.
        sizes: number of operators of each plan.
        clusters: cluster of each plan.
    """
    count, begins = len(plans), np.cumsum(sizes) - sizes
    plan = np.repeat(np.arange(count), sizes)
    edge_plan, [switch], [platforms] = plan[columns.edges[1]], placed.switch, placed.platforms

    def total(values: NDArray[Any]) -> Floats:
        return np.add.reduceat(values.astype(np.float64), begins)

    def largest(values: NDArray[Any]) -> NDArray[Any]:
        return np.maximum.reduceat(values, begins)

    def counted(numbers: Ints, kinds: int) -> Ints:
        counts = np.bincount(plan * kinds + numbers, minlength=count * kinds)
        return counts.reshape(count, kinds)

    source = columns.parents == 0
    by_platform = counted(platforms, len(Platform))
    source_rows = np.where(source, columns.rows, 0.0)
    total_rows, total_bytes = total(source_rows), total(source_rows * columns.row_bytes)
    width = total(np.where(source, columns.row_bytes, 0.0)) / total(source)
    sources = [each.workflow.sources for each in plans]
    rows[:, 0] = sizes / 12
    rows[:, 1] = np.bincount(edge_plan, minlength=count) / 12
    rows[:, 2] = largest(columns.depth) / 12
    rows[:, 3] = counted(columns.depth, int(columns.depth.max()) + 1).max(axis=1) / 4
    rows[:, 4] = total(source) / 3
    rows[:, 5] = total(columns.children == 0) / 3
    rows[:, 6] = total(columns.kind == OperatorKind.JOIN) / 3
    rows[:, 7] = total(columns.iterations != 0) / 3
    rows[:, 8] = np.count_nonzero(by_platform[:, : Platform.UNASSIGNED], axis=1) / 3
    rows[:, 9:17] = by_platform[:, :8] / sizes[:, None]
    rows[:, 17] = np.bincount(edge_plan, switch, minlength=count) / 6
    sent = np.where(switch, columns.output_bytes[columns.edges[0]], 0.0)
    rows[:, 18] = np.log1p(np.bincount(edge_plan, sent, minlength=count)) / 20
    rows[:, 19:23] = counted(columns.operator_class, len(OperatorClass)) / sizes[:, None]
    rows[:, 23] = largest(columns.parents) < 2  # noqa: PLR2004 - two parents make a juncture
    rows[:, 24] = 1 - rows[:, 23]
    rows[:, 25] = largest(columns.children) > 1
    rows[:, 26] = largest(columns.iterations) > 0
    rows[:, 27] = np.log1p(total_rows) / 10
    rows[:, 28] = np.log1p(total_bytes) / 20
    rows[:, 29] = np.log1p(largest(source_rows)) / 10
    per_row = np.divide(total_bytes, total_rows, out=width, where=total_rows > 0)
    rows[:, 30] = np.log1p(per_row) / 5
    rows[:, 31:35] = [
        (each.columns / 10, each.top_key_share, each.distinct_ratio, each.null_ratio)
        for each in sources
    ]
    rows[:, 35:39] = [machine_features(each) for each in clusters]
