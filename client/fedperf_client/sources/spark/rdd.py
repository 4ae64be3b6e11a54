"""Jobs without a query: the operators of their RDDs.

RDDs of one call of Spark's API share a scope and are one operator, whose name says what it
does. Of rows, Spark counts only what a stage read at its sources; the rest follows as in
`plan`, or is estimated.
"""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import orjson

from fedperf_client.sources.spark.fields import (
    Event,
    MalformedEventError,
    integer,
    objects,
    sequence,
    text,
)
from fedperf_client.sources.spark.plan import MAX_NODES, PhysicalPlan, PlanNode, PlanTooLargeError
from fedperf_shared.workflow.vocabulary import OperatorKind

_LONGEST_SCOPE = 1000

_KINDS: Mapping[str, OperatorKind] = {
    **dict.fromkeys(
        ("textFile", "wholeTextFiles", "binaryFiles", "binaryRecords", "hadoopFile",
         "newAPIHadoopFile", "sequenceFile", "objectFile", "hadoopRDD", "newAPIHadoopRDD"),
        OperatorKind.FILE_SOURCE,
    ),
    **dict.fromkeys(("parallelize", "makeRDD", "range", "emptyRDD"), OperatorKind.TABLE_SOURCE),
    **dict.fromkeys(
        ("map", "mapValues", "keyBy", "zipWithIndex", "zipWithUniqueId", "glom", "values", "keys"),
        OperatorKind.MAP,
    ),
    "filter": OperatorKind.FILTER,
    **dict.fromkeys(
        ("flatMap", "flatMapValues", "mapPartitions", "mapPartitionsWithIndex", "pipe"),
        OperatorKind.FLATMAP,
    ),
    **dict.fromkeys(
        ("reduceByKey", "groupByKey", "aggregateByKey", "combineByKey", "foldByKey", "groupBy",
         "countByKey", "combineByKeyWithClassTag"),
        OperatorKind.AGGREGATE,
    ),
    **dict.fromkeys(("treeAggregate", "treeReduce"), OperatorKind.GLOBAL_AGGREGATE),
    "distinct": OperatorKind.DISTINCT,
    **dict.fromkeys(
        ("sortByKey", "sortBy", "repartitionAndSortWithinPartitions"), OperatorKind.SORT
    ),
    **dict.fromkeys(("top", "takeOrdered"), OperatorKind.TOPK),
    **dict.fromkeys(
        ("join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "cogroup", "groupWith",
         "intersection", "subtract", "subtractByKey", "zip", "zipPartitions"),
        OperatorKind.JOIN,
    ),
    "cartesian": OperatorKind.CROSS,
    **dict.fromkeys(("union", "$plus$plus"), OperatorKind.UNION),
    **dict.fromkeys(("sample", "sampleByKey", "randomSplit"), OperatorKind.SAMPLE),
    **dict.fromkeys(("repartition", "coalesce", "partitionBy"), OperatorKind.EXCHANGE),
}  # fmt: skip


def read_rdds(stages: list[Event]) -> PhysicalPlan:
    """The operators of a job from its "Stage Infos"; none where they say nothing.

    Raises:
        MalformedEventError: they are no RDDs.
        PlanTooLargeError: more than are read.
    """
    parents, scopes = _graph(stages)
    if len(parents) > MAX_NODES:
        raise PlanTooLargeError
    order = _consumers_first(parents)
    place = {number: position for position, number in enumerate(order)}
    inner = {
        parent
        for number, above in parents.items()
        for parent in above
        if scopes[parent] == scopes[number]
    }
    # The last RDD of a scope is its operator; the others only lead to it.
    nodes = [
        PlanNode(
            None if number in inner else _KINDS.get(scopes[number][1], OperatorKind.OTHER),
            rows=(_rows_counter(scopes[number]),),
            children=tuple(place[each] for each in parents[number]),
        )
        for number in order
    ]
    return PhysicalPlan(tuple(nodes))


def input_counter(stage: Event) -> int | None:
    """The counter of the rows that a stage read; None unless it reads at one source alone.

    Raises:
        MalformedEventError: the stage holds no RDDs.
    """
    parents, scopes = _graph([stage])
    sources = {scopes[number] for number, above in parents.items() if not above}
    return _rows_counter(*sources) if len(sources) == 1 else None


_Scope = tuple[int, str]
"""Number and name of a call of the API."""


def _graph(stages: list[Event]) -> tuple[dict[int, tuple[int, ...]], dict[int, _Scope]]:
    """Parents and scope of every RDD."""
    rdds = {integer(rdd, "RDD ID"): rdd for stage in stages for rdd in objects(stage, "RDD Info")}
    parents = {
        number: tuple(
            each for each in sequence(rdd, "Parent IDs") if isinstance(each, int) and each in rdds
        )
        for number, rdd in rdds.items()
    }
    return parents, {number: _scope(number, rdd) for number, rdd in rdds.items()}


def _scope(number: int, rdd: Event) -> _Scope:
    """That of an RDD; one of its own where it has none."""
    found = rdd.get("Scope")
    if isinstance(found, str) and len(found) <= _LONGEST_SCOPE:
        try:
            scope = orjson.loads(found)
            return integer(scope, "id"), text(scope, "name")
        except (orjson.JSONDecodeError, MalformedEventError, AttributeError):
            pass
    return -1 - number, ""


def _rows_counter(scope: _Scope) -> int:
    """Spark's own counters have ids from 0 on."""
    return -1 - abs(scope[0])


def _consumers_first(parents: Mapping[int, tuple[int, ...]]) -> list[int]:
    """RDDs in an order in which each stands before its parents.

    Raises:
        MalformedEventError: there is no such order.
    """
    try:
        return list(TopologicalSorter(parents).static_order())[::-1]
    except CycleError as error:
        raise MalformedEventError("Parent IDs") from error
