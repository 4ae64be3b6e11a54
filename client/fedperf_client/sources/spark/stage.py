"""Facts of one stage of a Spark job: its RDDs, and sums over its tasks.

RDDs of one call of Spark's API share a scope and are one operator, whose name says what it does.
Names are only compared: what is kept of a stage is numbers and kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fedperf_client.sources.spark.fields import (
    Event,
    MalformedEventError,
    count,
    integer,
    objects,
    sequence,
    text,
    words,
)
from fedperf_client.sources.spark.operators import is_accelerated, kind_of, runs_python, steps_of
from fedperf_shared.workflow.vocabulary import OperatorKind

INTERNAL = "internal.metrics."  # how the names of Spark's own counters begin

_LONGEST_SCOPE, _LONGEST_ID = 1000, 40

_CALLS: Mapping[str, OperatorKind] = {
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
        ("flatMap", "flatMapValues", "mapPartitions", "mapPartitionsWithIndex", "pipe",
         "mapPartitionsInternal", "mapPartitionsWithIndexInternal"),
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
"""Kinds of Spark's API calls, by name; others are named as operators of SQL, or `OTHER`."""

_CLASSES: Mapping[str, OperatorKind | None] = {
    **dict.fromkeys(("ParallelCollectionRDD", "EmptyRDD"), OperatorKind.TABLE_SOURCE),
    **dict.fromkeys(("HadoopRDD", "NewHadoopRDD", "FileScanRDD"), OperatorKind.FILE_SOURCE),
    "PythonRDD": OperatorKind.FLATMAP,
    "PairwiseRDD": OperatorKind.MAP,
    "UnionRDD": OperatorKind.UNION,
    "CoGroupedRDD": OperatorKind.JOIN,
    "CartesianRDD": OperatorKind.CROSS,
    **dict.fromkeys(("SQLExecutionRDD", "ShuffledRDD"), None),
}
"""Kinds of RDDs that belong to no call, by class name; None only leads to others."""


@dataclass(frozen=True, slots=True)
class Rdd:
    """One RDD of a stage."""

    number: int  # in its application
    scope: str  # id of the call that made it, its own where it has none
    kind: OperatorKind | None  # what that call does; None where it only leads to others
    code_steps: int  # of code that runs for each row
    parents: tuple[int, ...]  # numbers of those that it reads, in this stage or from others
    is_accelerated: bool = False  # another engine than Spark's own computes it


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage that ended."""

    number: int  # in its application
    tasks: int  # of its last attempt
    rdds: tuple[Rdd, ...]  # that its tasks computed
    read_rows: int  # from files, tables and memory, as all figures summed over its tasks
    read_bytes: int  # likewise
    fetched_rows: int  # from exchanges
    fetched_bytes: int  # likewise
    moved_rows: int  # into an exchange
    moved_bytes: int  # likewise
    written_rows: int  # to files and tables
    written_bytes: int  # likewise
    run_milliseconds: int  # that its tasks took

    @property
    def size(self) -> int:
        """RDDs that are kept for it, and their parents."""
        return sum(1 + len(each.parents) for each in self.rdds)


def read_stage(info: Event) -> StageRun:
    """The stage of a "Stage Info" that has ended.

    Raises:
        MalformedEventError: it is no stage, or what it holds are no RDDs.
    """
    counted = _counters(info)

    def total(*names: str) -> int:
        return sum(max(counted.get(name, 0), 0) for name in names)

    return StageRun(
        number=integer(info, "Stage ID"),
        tasks=count(info, "Number of Tasks"),
        rdds=tuple(map(_rdd, objects(info, "RDD Info"))),
        read_rows=total("input.recordsRead"),
        read_bytes=total("input.bytesRead"),
        fetched_rows=total("shuffle.read.recordsRead"),
        fetched_bytes=total("shuffle.read.localBytesRead", "shuffle.read.remoteBytesRead"),
        moved_rows=total("shuffle.write.recordsWritten"),
        moved_bytes=total("shuffle.write.bytesWritten"),
        written_rows=total("output.recordsWritten"),
        written_bytes=total("output.bytesWritten"),
        run_milliseconds=total("executorRunTime"),
    )


def has_python(info: Event) -> bool:
    """Whether Python works beside the JVM in a stage, by the names of its RDDs and their scopes."""
    rdds = objects(info, "RDD Info")
    return any(runs_python(words(each, name)) for each in rdds for name in ("Name", "Scope"))


def _counters(info: Event) -> dict[str, int]:
    """Spark's own counters by their names."""
    found: dict[str, int] = {}
    for each in objects(info, "Accumulables"):
        name = each.get("Name")
        if isinstance(name, str) and name.startswith(INTERNAL):
            try:
                found[name.removeprefix(INTERNAL)] = integer(each, "Value")
            except MalformedEventError:
                continue  # a list of blocks
    return found


def _rdd(info: Event) -> Rdd:
    number = integer(info, "RDD ID")
    scope, call = _scope(number, info)
    if call:
        kind = _CALLS[call] if call in _CALLS else kind_of(call)
    else:
        call = words(info, "Name")
        kind = _CLASSES.get(call, OperatorKind.OTHER)
    parents = dict.fromkeys(x for x in sequence(info, "Parent IDs") if isinstance(x, int))
    return Rdd(number, scope, kind, steps_of(call), tuple(parents), is_accelerated(call))


def _scope(number: int, info: Event) -> tuple[str, str]:
    """Id and name of the call that made an RDD; one of its own where it has none."""
    found = info.get("Scope")
    if isinstance(found, str) and len(found) <= _LONGEST_SCOPE:
        try:
            scope = orjson.loads(found)
            identity, name = text(scope, "id"), text(scope, "name")
        except (orjson.JSONDecodeError, MalformedEventError, AttributeError):
            pass
        else:
            if len(identity) <= _LONGEST_ID:
                return identity, name
    return f"rdd {number}", ""
