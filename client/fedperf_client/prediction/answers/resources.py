"""The same work on other resources: which clusters there can be, and what changes with them.

Cores are counted over all nodes, as everywhere. A node more brings its memory, and its cores
where none are named. What a plan was given because of its cluster, as many partitions as
cores or nodes, it is given on the other one as well: `predict` and `advise` both ask through
`moved`. Partitions that had other reasons stay, which an answer says; but one alone is all that
a sum of everything or a broadcast can have, on any cluster, unless there was but one core.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, SizedPlan
from fedperf_shared.workflow.graph import Operator, Plan
from fedperf_shared.workflow.vocabulary import MAX_ITERATIONS, Platform

MOST_SIZES = 32

DISTRIBUTED = frozenset({Platform.SPARK, Platform.FLINK, Platform.OTHER})
"""Platforms that use several nodes."""


class InvalidSizesError(InvalidInputError):
    """Numbers of cores and nodes that no cluster, or too many, can have."""


class OneNodeError(InvalidSizesError):
    """Several nodes were named for platforms that use one."""

    def __init__(self, plan: Plan) -> None:
        names = ", ".join(sorted({each.name.lower() for each in plan.platforms}))
        super().__init__(f"one node is all that {names} can use: name --cores in place of --nodes")


@dataclass(frozen=True, slots=True)
class MovedPlan:
    """A question about work that ran, or would run, elsewhere.

    Attributes:
        question: the plan as it would be given there.
        keeps_partitions: it has partitions that did not follow from its resources, and its
            resources are others now: whether they would be the same is not known.
    """

    question: SizedPlan
    keeps_partitions: bool


def moved(
    plan: Plan, cluster: ClusterConfig, to: ClusterConfig, job: KnownJob | None = None
) -> MovedPlan:
    """The question how long `plan` of that job, known on `cluster`, takes on `to`."""
    if (cluster.nodes, cluster.cores) == (to.nodes, to.cores):
        return MovedPlan(SizedPlan(plan, to, job), keeps_partitions=False)
    operators = plan.workflow.operators
    reasons = {0, 1, cluster.cores, cluster.nodes}
    keeps = any(each.partitions not in reasons for each in operators)
    given_there = tuple(_given(each, cluster, to) for each in operators)
    workflow = replace(plan.workflow, operators=given_there)
    return MovedPlan(SizedPlan(Plan(workflow, plan.platforms), to, job), keeps_partitions=keeps)


def uses_one_node(plan: Plan) -> bool:
    """Whether no platform of the plan spreads over several nodes."""
    return DISTRIBUTED.isdisjoint(plan.platforms)


def node_of(cluster: ClusterConfig) -> ClusterConfig:
    """One node of a cluster."""
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
    known: Iterable[ClusterConfig] = (),
) -> list[ClusterConfig]:
    """The sizes that come into question, small ones first.

    Args:
        cluster: what there is; without numbers its powers of two, in nodes where it has
            several, else in cores.
        cores: over all nodes. Without `nodes`, what several nodes of `cluster` have together
            are so many nodes; so is, of a single node, what the nodes of `known` clusters had
            together. Other numbers are spread over the nodes that there are.
        nodes: each with the memory of a node of `cluster`, and with its cores without `cores`.
        known: that own executions on the same platforms had.

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
        on_node = _most_on_node(cluster, known)
        pairs = [(_nodes_for(each, cluster, on_node), each) for each in cores or ()]
    elif cores is None:
        pairs = [(each, per_node * each) for each in nodes]
    else:
        pairs = list(product(nodes, cores))
    found = [_resized(cluster, many, count) for many, count in pairs if count >= many]
    if not found:
        raise InvalidSizesError(f"every node needs a core: {min(pairs)[0]} nodes and fewer cores")
    if len(found) > MOST_SIZES:
        raise InvalidSizesError(f"{len(found)} sizes are too many to compare, at most {MOST_SIZES}")
    return sorted(found, key=lambda each: (each.cores, each.nodes))


def _given(operator: Operator, cluster: ClusterConfig, to: ClusterConfig) -> Operator:
    """An operator with the partitions that it would be given on other resources."""
    if operator.partitions == 0 or (operator.partitions == 1 and cluster.cores > 1):
        return operator
    for before, now in ((cluster.cores, to.cores), (cluster.nodes, to.nodes)):
        if operator.partitions == before:
            return replace(operator, partitions=min(now, MAX_ITERATIONS))
    return operator


def _most_on_node(cluster: ClusterConfig, known: Iterable[ClusterConfig]) -> int | None:
    """Cores of a node, beyond which there are more nodes; None where there is only one.

    Of a single node it is known that it has others beside it where several had as many cores
    each as the largest that ran, and at least as many as this one.
    """
    if cluster.nodes > 1:
        return max(1, cluster.cores // cluster.nodes)
    seen = [cluster, *known]
    most = max(each.cores / each.nodes for each in seen)
    several = any(each.nodes > 1 and each.cores == most * each.nodes for each in seen)
    return int(most) if several else None


def _nodes_for(cores: int, cluster: ClusterConfig, on_node: int | None) -> int:
    if on_node is None or cores % on_node:
        return cluster.nodes
    return cores // on_node


def _resized(cluster: ClusterConfig, nodes: int, cores: int) -> ClusterConfig:
    memory = cluster.memory_bytes * nodes // cluster.nodes
    return replace(cluster, nodes=nodes, cores=cores, memory_bytes=max(1, memory))


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})
