"""Move a plan to other resources, or to more or less data.

Cores are counted over all nodes. A node more brings its memory, and its cores where none are named.
A plan that had as many partitions as its cluster has cores or nodes gets as many as the other
cluster has (`reconfigure`). Other numbers of partitions stay, and the prediction notes that. A
single partition stays without a remark: a sum of everything or a broadcast has only one on any
cluster, unless there was but one core.

With `--at rows=2x` or `bytes=10GB`, all sources of a plan grow by one factor. Selectivities stay,
so filters, maps, sorts, exchanges and unions return as many times more rows as they read. Keys grow
with the rows: a row of a join finds as many partners as before, and a join grows as its fastest
growing input. Groups grow by the factor to the power of groups per row read: a thousand groups of a
million rows stay, and keys that are all different grow with the rows. Global aggregates, models and
top-k stay. Widths of rows and partitions stay.

A job that ran is predicted from its own runs at the nearest size. The part that the pretrained
model predicts to take the same time at any size stays, and the rest of the measured time grows with
the rows. The growth of a job may differ (the power of rows by 0.3), so the interval grows with
every factor of two.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from fedperf_client.prediction.ensemble.ensemble import LEVEL_STEP
from fedperf_client.prediction.ensemble.predictor import PersonalizedEnsemble
from fedperf_client.prediction.ensemble.repeats import USUAL_DEPARTURE
from fedperf_client.prediction.prediction import Prediction, QueryRegime
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, PlanOnCluster
from fedperf_shared.runtime.quantities import InvalidValueError, parse_number, values_by_name
from fedperf_shared.workflow.graph import Operator, Plan
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import MAX_ITERATIONS, MAX_ROWS, OperatorKind, Platform

MOST_SIZES = 32

# Prior on the power of rows or bytes with which run time grows: one pass is linear, fixed parts
# make it less, sorts and spills more.
SIZE_SLOPE_MEAN, SIZE_SLOPE_SD = 0.9, 0.3

# Platforms that use several nodes.
DISTRIBUTED = frozenset({Platform.SPARK, Platform.FLINK, Platform.OTHER})


class InvalidSizesError(InvalidInputError):
    """Counts of cores and nodes that no cluster has, or too many of them."""


class OneNodeError(InvalidSizesError):
    """Several nodes were named for platforms that use one."""

    def __init__(self, plan: Plan) -> None:
        names = ", ".join(sorted({each.name.lower() for each in plan.platforms}))
        super().__init__(f"one node is all that {names} can use: name --cores in place of --nodes")


@dataclass(frozen=True, slots=True)
class ReconfiguredPlan:
    """A plan on another cluster than the one where it ran or would run."""

    query: PlanOnCluster  # the plan with the partitions that it would get there
    # It has partitions that did not follow from its resources, so their number there is unknown.
    keeps_partitions: bool


def reconfigure(
    plan: Plan, cluster: ClusterConfig, to: ClusterConfig, job: KnownJob | None = None
) -> ReconfiguredPlan:
    """Move `plan` of that job from `cluster`, where it ran or would run, to another cluster."""
    if (cluster.nodes, cluster.cores) == (to.nodes, to.cores):
        return ReconfiguredPlan(PlanOnCluster(plan, to, job), keeps_partitions=False)
    operators = plan.workflow.operators
    reasons = {0, 1, cluster.cores, cluster.nodes}
    keeps = any(each.partitions not in reasons for each in operators)
    operators = tuple(_with_partitions(each, cluster, to) for each in operators)
    workflow = replace(plan.workflow, operators=operators)
    return ReconfiguredPlan(
        PlanOnCluster(Plan(workflow, plan.platforms), to, job), keeps_partitions=keeps
    )


def uses_one_node(plan: Plan) -> bool:
    """Return whether no platform of the plan uses several nodes."""
    return DISTRIBUTED.isdisjoint(plan.platforms)


def node_of(cluster: ClusterConfig) -> ClusterConfig:
    """Return one node of a cluster."""
    return replace(
        cluster,
        nodes=1,
        cores=max(1, cluster.cores // cluster.nodes),
        memory_bytes=max(1, cluster.memory_bytes // cluster.nodes),
    )


def sizes_of(
    cluster: ClusterConfig,
    cores: Sequence[int] | None,
    nodes: Sequence[int] | None,
    own_clusters: Iterable[ClusterConfig] = (),
) -> list[ClusterConfig]:
    """Return the clusters to compare, small ones first.

    Args:
        cluster: available resources; without counts its powers of two, in nodes where it has
            several, else in cores.
        cores: over all nodes. Without `nodes`, a multiple of the cores of a node is so many
            nodes, if `cluster` has several or `own_clusters` shows that there are. Other counts are
            spread over the nodes of `cluster`.
        nodes: each with the memory of a node of `cluster`, and with its cores without `cores`.
        own_clusters: clusters of own executions on the same platforms.

    Raises:
        InvalidSizesError: more than `MOST_SIZES`, or less than a core for every node.
    """
    if cores is None and nodes is None:
        if cluster.nodes == 1:
            cores = _powers_of_two(cluster.cores)
        else:
            nodes = _powers_of_two(cluster.nodes)
    per_node = max(1, cluster.cores // cluster.nodes)
    pairs: list[tuple[int, int]]
    if nodes is None:
        on_node = _most_on_node(cluster, own_clusters)
        pairs = [
            (count // on_node if on_node and count % on_node == 0 else cluster.nodes, count)
            for count in cores or ()
        ]
    elif cores is None:
        pairs = [(each, per_node * each) for each in nodes]
    else:
        pairs = list(product(nodes, cores))
    sizes = [
        replace(
            cluster,
            nodes=many,
            cores=count,
            memory_bytes=max(1, cluster.memory_bytes * many // cluster.nodes),
        )
        for many, count in pairs
        if count >= many
    ]
    if not sizes:
        raise InvalidSizesError(f"every node needs a core: {min(pairs)[0]} nodes and fewer cores")
    if len(sizes) > MOST_SIZES:
        raise InvalidSizesError(f"{len(sizes)} sizes are too many to compare, at most {MOST_SIZES}")
    return sorted(sizes, key=lambda each: (each.cores, each.nodes))


def _with_partitions(operator: Operator, cluster: ClusterConfig, to: ClusterConfig) -> Operator:
    """Return an operator with the partitions that it would get on other resources."""
    if operator.partitions == 0 or (operator.partitions == 1 and cluster.cores > 1):
        return operator
    for before, now in ((cluster.cores, to.cores), (cluster.nodes, to.nodes)):
        if operator.partitions == before:
            return replace(operator, partitions=min(now, MAX_ITERATIONS))
    return operator


def _most_on_node(cluster: ClusterConfig, own_clusters: Iterable[ClusterConfig]) -> int | None:
    """Return the cores of a node, beyond which there are more nodes; None for a single node.

    A single node shares its machine with others if several nodes had as many cores each as the
    largest node that ran, and at least as many as this one.
    """
    if cluster.nodes > 1:
        return max(1, cluster.cores // cluster.nodes)
    clusters = [cluster, *own_clusters]
    most = max(each.cores / each.nodes for each in clusters)
    several = any(each.nodes > 1 and each.cores == most * each.nodes for each in clusters)
    return int(most) if several else None


def _powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})


ROWS, BYTES = "rows", "bytes"

MOST_SIZES = 16

# The assumption by which a plan is scaled, for people.
ASSUMPTION = (
    "all sources grow alike: filters, maps and joins with them, groups as far as they are many; "
    "sums stay"
)

_STAY = frozenset({OperatorKind.GLOBAL_AGGREGATE, OperatorKind.ML_TRAIN, OperatorKind.TOPK})
_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.DISTINCT})
_TO_ENDS = 1.645  # standard deviations to either end of a normal 90 % interval


@dataclass(frozen=True, slots=True)
class InputSize:
    """An input size of a query, as it is written."""

    column: str  # `ROWS` or `BYTES`
    value: float  # the number, or a multiple of the present size
    is_factor: bool  # whether it is a multiple


@dataclass(frozen=True, slots=True)
class ScaledPlan:
    """A plan at another size of its input."""

    plan: Plan  # with rows and bytes of that size
    factor: float  # by which its sources grew; 1 for the present size

    @property
    def words(self) -> str:
        """The size for people."""
        rows, times = self.plan.workflow.source_rows, f"{self.factor:.3g}x"
        return f"{rows:,.0f} rows ({times})" if rows > 0 else times


def parse_input_sizes(settings: Sequence[str]) -> list[InputSize]:
    """Parse the input sizes of `--at`, in their order.

    Args:
        settings: each like `rows=2x` or `bytes=10GB,20GB`.

    Raises:
        InvalidValueError: another name, both names, or no number above 0.
    """
    words = values_by_name(settings)
    if unknown := [name for name in words if name not in (ROWS, BYTES)]:
        raise InvalidValueError(
            f"--at of a workflow takes rows or bytes, like rows=2x or bytes=10GB, "
            f"got {unknown[0]!r}"
        )
    if len(words) > 1:
        raise InvalidValueError("--at takes rows or bytes, not both: one follows from the other")
    sizes = []
    for name, each in words.items():
        for word in dict.fromkeys(each):
            is_factor = word[-1:] in ("x", "X")
            is_bytes = name == BYTES and not is_factor
            value = parse_number(word[:-1] if is_factor else word, is_bytes=is_bytes)
            if value is None or not value > 0:
                example = "2x, 5e6, 10k or 3M" if name == ROWS else "2x, 10GB, 1GiB or 5e9"
                raise InvalidValueError(
                    f"--at {name} takes a number above 0 like {example}; got {word[:80]!r}"
                )
            sizes.append(InputSize(name, value, is_factor))
    if len(sizes) > MOST_SIZES:
        raise InvalidValueError(f"--at takes at most {MOST_SIZES} sizes, got {len(sizes)}")
    return sizes


def scale_input(plan: Plan, size: InputSize) -> ScaledPlan:
    """Scale a plan to that size of its input.

    Raises:
        InvalidValueError: the size of its sources is unknown, or they would have too many rows.
    """
    factor = size.value
    if not size.is_factor:
        workflow = plan.workflow
        held = workflow.source_rows if size.column == ROWS else workflow.source_bytes
        if not held > 0:
            raise InvalidValueError(
                f"the {size.column} of the sources of this workflow are unknown; use a multiple, "
                f"like --at {size.column}=2x"
            )
        factor = size.value / held
    rows = plan.workflow.source_rows * factor
    if not rows <= MAX_ROWS:
        raise InvalidValueError(f"--at is {rows:.3g} rows, at most {MAX_ROWS:g} are allowed")
    operators = plan.workflow.operators
    growth: dict[int, float] = {}
    for place in topological_order(plan.workflow):
        operator = operators[place]
        of_inputs = [growth[each] for each in operator.inputs]
        read = [operators[each].output_rows for each in operator.inputs]
        growth[place] = _growth(operator, of_inputs, read) if of_inputs else factor
    scaled = tuple(
        replace(each, output_rows=min(each.output_rows * growth[place], MAX_ROWS))
        for place, each in enumerate(operators)
    )
    return ScaledPlan(Plan(replace(plan.workflow, operators=scaled), plan.platforms), factor)


def estimate_at_size(
    predictor: PersonalizedEnsemble,
    query: PlanOnCluster,
    factor: float,
    ran: Sequence[tuple[float, PlanOnCluster]],
) -> Prediction:
    """Estimate the run time of a plan at another size of its input.

    Args:
        predictor: of the home.
        query: the plan at that size.
        factor: by which its sources are larger than at its present size.
        ran: factors of the sizes that the job ran at, and the job at these sizes on the same
            resources; at least one.
    """
    nearest, reference_query = min(ran, key=lambda each: abs(math.log(each[0] / factor)))
    [reference] = predictor.predict([reference_query])
    if reference.evidence.runs == 0:
        [direct] = predictor.predict([query])
        return direct
    log_factor = math.log(factor / nearest)
    if abs(log_factor) <= LEVEL_STEP:
        return reference
    took = reference.median_seconds
    fixed = _fixed_seconds(predictor, query, reference_query, factor / nearest)
    by = SIZE_SLOPE_MEAN * log_factor
    if fixed is not None:
        stays = min(fixed, took) / took
        by = math.log(stays + (1 - stays) * factor / nearest)
    sizes = [each for each, _ in ran]
    is_between = min(sizes) < factor < max(sizes)
    kind = QueryRegime.BETWEEN_SIZES if is_between else QueryRegime.BEYOND_SIZES
    return reference.shifted(
        by,
        added=_TO_ENDS * math.hypot(SIZE_SLOPE_SD * log_factor, USUAL_DEPARTURE),
        regime=reference.regime if reference.regime.is_of_scales else kind,
        extrapolating=not is_between,
    )


def _fixed_seconds(
    predictor: PersonalizedEnsemble, query: PlanOnCluster, other: PlanOnCluster, factor: float
) -> float | None:
    """Return the seconds that the pretrained model predicts at any size, None where unknown."""
    base_model = None if predictor.pretrained is None else predictor.pretrained.base_model
    if base_model is None or not other.plan.workflow.source_rows > 0:
        return None
    longer, shorter = np.exp(predictor.pool.base_models[base_model]([query, other])).tolist()
    return max(0.0, float(shorter - (longer - shorter) / (factor - 1)))


def _growth(operator: Operator, of_inputs: Sequence[float], read: Sequence[float]) -> float:
    """Return the growth of an operator's output, whose inputs grew by `of_inputs`."""
    largest = max(of_inputs) if max(of_inputs) >= 1 else min(of_inputs)
    if operator.kind in _STAY:
        return 1.0
    if operator.kind in _GROUPS:
        share = min(1.0, operator.output_rows / max(sum(read), 1.0))
        return float(largest**share)
    if operator.kind is OperatorKind.CROSS:
        return math.prod(of_inputs)
    if operator.kind is OperatorKind.UNION and sum(read) > 0:
        return sum(g * rows for g, rows in zip(of_inputs, read, strict=True)) / sum(read)
    return largest
