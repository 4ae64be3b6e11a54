"""Plans of jobs without a query, from the stages that ran.

An operator is a call of Spark's API. RDDs of one call share a scope, whose name describes
what it does. Names are only compared: numbers and kinds are kept. Between stages there is an
exchange, whose rows and bytes were counted. What a job reads of an exchange of an earlier job
counts as a table. Spark also counts the rows that a stage read at its sources and wrote. All other
rows are propagated or estimated as in `plan`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import orjson

from fedperf_client.sources.spark import fields
from fedperf_client.sources.spark.fields import Event, MalformedEventError
from fedperf_client.sources.spark.plan import (
    MAX_NODES,
    PhysicalPlan,
    PlanNode,
    PlanTooLargeError,
    parse_name,
    runs_python,
)
from fedperf_shared.workflow.vocabulary import OperatorKind

INTERNAL = "internal.metrics."  # how the names of Spark's own counters begin

_LONGEST_SCOPE, _LONGEST_ID = 1000, 40

# Kinds of Spark's API calls; other calls are named as SQL operators, or are `OTHER`.
_CALLS: Mapping[str, OperatorKind] = {
    name: kind
    for kind, names in {
        OperatorKind.FILE_SOURCE: (
            "textFile wholeTextFiles binaryFiles binaryRecords hadoopFile newAPIHadoopFile "
            "sequenceFile objectFile hadoopRDD newAPIHadoopRDD"
        ),
        OperatorKind.TABLE_SOURCE: "parallelize makeRDD range emptyRDD",
        OperatorKind.MAP: "map mapValues keyBy zipWithIndex zipWithUniqueId glom values keys",
        OperatorKind.FILTER: "filter",
        OperatorKind.FLATMAP: (
            "flatMap flatMapValues mapPartitions mapPartitionsWithIndex pipe "
            "mapPartitionsInternal mapPartitionsWithIndexInternal"
        ),
        OperatorKind.AGGREGATE: (
            "reduceByKey groupByKey aggregateByKey combineByKey foldByKey groupBy countByKey "
            "combineByKeyWithClassTag"
        ),
        OperatorKind.GLOBAL_AGGREGATE: "treeAggregate treeReduce",
        OperatorKind.DISTINCT: "distinct",
        OperatorKind.SORT: "sortByKey sortBy repartitionAndSortWithinPartitions",
        OperatorKind.TOPK: "top takeOrdered",
        OperatorKind.JOIN: (
            "join leftOuterJoin rightOuterJoin fullOuterJoin cogroup groupWith intersection "
            "subtract subtractByKey zip zipPartitions"
        ),
        OperatorKind.CROSS: "cartesian",
        OperatorKind.UNION: "union $plus$plus",
        OperatorKind.SAMPLE: "sample sampleByKey randomSplit",
        OperatorKind.EXCHANGE: "repartition coalesce partitionBy",
    }.items()
    for name in names.split()
}

# Kinds of RDDs without a call, by class name; None only leads to others.
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


@dataclass(frozen=True, slots=True)
class Rdd:
    """One RDD of a stage."""

    number: int  # in its application
    scope: str  # id of its call, or its own
    kind: OperatorKind | None  # of that call; None if it only leads to others
    code_steps: int  # of code per row
    parents: tuple[int, ...]  # numbers of the RDDs that it reads, of any stage
    is_accelerated: bool = False  # another engine than Spark's own runs it


class Volume(NamedTuple):
    """Rows and bytes, summed over the tasks of a stage."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage that ended."""

    number: int  # in its application
    tasks: int  # of its last attempt
    rdds: tuple[Rdd, ...]  # of its tasks
    read: Volume  # from files, tables and memory
    fetched: Volume  # from exchanges
    shuffled: Volume  # into an exchange
    output: Volume  # to files and tables
    run_milliseconds: int  # of its tasks

    @property
    def size(self) -> int:
        """The number of its RDDs and their parents."""
        return sum(1 + len(each.parents) for each in self.rdds)


def read_stage(info: Event) -> StageRun:
    """Return the stage of a "Stage Info" that has ended.

    Raises:
        MalformedEventError: it is no stage, or has malformed RDDs.
    """
    counted: dict[str, int] = {}
    for each in fields.objects(info, "Accumulables"):
        name = each.get("Name")
        if isinstance(name, str) and name.startswith(INTERNAL):
            with suppress(MalformedEventError):  # a list of blocks
                counted[name.removeprefix(INTERNAL)] = fields.integer(each, "Value")

    def total(*names: str) -> int:
        return sum(max(counted.get(name, 0), 0) for name in names)

    fetched = total("shuffle.read.localBytesRead", "shuffle.read.remoteBytesRead")
    return StageRun(
        number=fields.integer(info, "Stage ID"),
        tasks=fields.count(info, "Number of Tasks"),
        rdds=tuple(map(_rdd, fields.objects(info, "RDD Info"))),
        read=Volume(total("input.recordsRead"), total("input.bytesRead")),
        fetched=Volume(total("shuffle.read.recordsRead"), fetched),
        shuffled=Volume(total("shuffle.write.recordsWritten"), total("shuffle.write.bytesWritten")),
        output=Volume(total("output.recordsWritten"), total("output.bytesWritten")),
        run_milliseconds=total("executorRunTime"),
    )


def has_python(info: Event) -> bool:
    """Return whether a stage runs Python, by the names of its RDDs and their scopes."""
    rdds = fields.objects(info, "RDD Info")
    return any(runs_python(fields.words(each, name)) for each in rdds for name in ("Name", "Scope"))


def _rdd(info: Event) -> Rdd:
    number = fields.integer(info, "RDD ID")
    scope, call = _scope(number, info)
    kind, code_steps, is_accelerated = parse_name(call or fields.words(info, "Name"))
    if call:
        kind = _CALLS.get(call, kind)
    else:
        kind = _CLASSES.get(fields.words(info, "Name"), OperatorKind.OTHER)
    parents = dict.fromkeys(x for x in fields.sequence(info, "Parent IDs") if isinstance(x, int))
    return Rdd(number, scope, kind, code_steps, tuple(parents), is_accelerated)


def _scope(number: int, info: Event) -> tuple[str, str]:
    """Return id and name of the call that made an RDD; a scope of its own if it has none."""
    content = info.get("Scope")
    if isinstance(content, str) and len(content) <= _LONGEST_SCOPE:
        with suppress(orjson.JSONDecodeError, MalformedEventError, AttributeError):
            scope = orjson.loads(content)
            identity, name = fields.text(scope, "id"), fields.text(scope, "name")
            if len(identity) <= _LONGEST_ID:
                return identity, name
    return f"rdd {number}", ""


_Place = tuple[str, int]  # kind of step, and the number of its RDD or stage

_RDD, _MOVED, _TABLE, _SINK = "rdd", "moved", "kept", "sink"
_END: _Place = ("end", 0)


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator, or a node that leads to one, with its figures; 0 if unknown."""

    kind: OperatorKind | None
    inputs: tuple[_Place, ...]
    figures: tuple[int, int, int, int] = (0, 0, 0, 0)
    code_steps: int = 0


def job_plan(stages: Sequence[StageRun]) -> tuple[PhysicalPlan, dict[int, int]]:
    """Return the operators of a job, whose stages ended, and their figures as counters of a plan.

    Raises:
        MalformedEventError: its RDDs form a cycle.
        PlanTooLargeError: it has too many RDDs.
    """
    steps = _steps(stages)
    if len(steps) > MAX_NODES:
        raise PlanTooLargeError
    reads = TopologicalSorter({place: step.inputs for place, step in steps.items()})
    try:
        order = list(reads.static_order())[::-1]  # each before what it reads
    except CycleError as error:
        raise MalformedEventError("Parent IDs") from error
    position = {place: number for number, place in enumerate(order)}
    nodes: list[PlanNode] = []
    counters: dict[int, int] = {}
    for number, place in enumerate(order):
        step = steps[place]
        ids = rows, sizes, tasks, milliseconds = range(4 * number, 4 * number + 4)
        counters |= {each: value for each, value in zip(ids, step.figures, strict=True) if value}
        nodes.append(
            PlanNode(
                step.kind,
                rows=(rows,),
                sizes=(sizes,),
                partitions=tasks,
                times=((milliseconds, 1e-3),),
                code_steps=step.code_steps,
                children=tuple(position[each] for each in step.inputs),
            )
        )
    return PhysicalPlan(tuple(nodes)), counters


def _steps(stages: Sequence[StageRun]) -> dict[_Place, _Step]:
    """Return all steps of the stages, and an end that reads every other output."""
    rdds = {rdd.number: rdd for stage in stages for rdd in stage.rdds}
    # The last RDD of a scope is its operator. The others only lead to it.
    inner = {
        parent
        for rdd in rdds.values()
        for parent in rdd.parents
        if parent in rdds and rdds[parent].scope == rdd.scope
    }
    writers = {end: stage for stage in stages for end in _ends(stage)}
    steps: dict[_Place, _Step] = {}
    for stage in stages:
        fetched = _fetched(stage, writers)
        steps |= dict(fetched.values())
        moving = {rdd.scope for rdd in stage.rdds if not fetched.keys().isdisjoint(rdd.parents)}
        sources = {rdd.scope for rdd in stage.rdds if not rdd.parents}
        for rdd in stage.rdds:
            is_moved = rdd.kind is OperatorKind.EXCHANGE and rdd.scope in moving
            is_source = sources == {rdd.scope}
            kind = None if rdd.number in inner or is_moved else rdd.kind
            if not rdd.parents and rdd.kind in (None, OperatorKind.OTHER):
                kind = OperatorKind.TABLE_SOURCE  # rows come from it, for any name
            step = _Step(
                kind,
                tuple(fetched[p][0] if p in fetched else (_RDD, p) for p in rdd.parents),
                (*stage.read, 0, 0) if is_source else (0, 0, 0, 0),
                rdd.code_steps,
            )
            steps.setdefault((_RDD, rdd.number), step)
    for stage in stages:  # its run time counts at its exchange, its sink, or its last operator
        ends = tuple((_RDD, end) for end in sorted(_ends(stage)))
        took = stage.run_milliseconds
        if (_MOVED, stage.number) in steps:
            continue
        if any(stage.output):
            steps[_SINK, stage.number] = _Step(OperatorKind.SINK, ends, (*stage.output, 0, took))
        elif ends:
            rows, size, parts, _ = steps[ends[0]].figures
            steps[ends[0]] = replace(steps[ends[0]], figures=(rows, size, parts, took))
    read = {place for step in steps.values() for place in step.inputs}
    steps[_END] = _Step(None, tuple(place for place in steps if place not in read))
    return steps


def _ends(stage: StageRun) -> set[int]:
    """Return the RDDs that no other RDD of the stage reads: its output."""
    read = {parent for rdd in stage.rdds for parent in rdd.parents}
    return {rdd.number for rdd in stage.rdds} - read


def _fetched(stage: StageRun, writers: Mapping[int, StageRun]) -> dict[int, tuple[_Place, _Step]]:
    """Return the exchanges or tables that a stage reads, by the RDDs of other stages."""
    here = {rdd.number for rdd in stage.rdds}
    outside = [p for rdd in stage.rdds for p in rdd.parents if p not in here]
    ran = {parent: writers[parent] for parent in outside if parent in writers}
    rows = stage.fetched.rows - sum(each.shuffled.rows for each in ran.values())
    size = stage.fetched.bytes - sum(each.shuffled.bytes for each in ran.values())
    table = _Step(OperatorKind.TABLE_SOURCE, (), (max(rows, 0), max(size, 0), 0, 0))
    steps: dict[int, tuple[_Place, _Step]] = dict.fromkeys(outside, ((_TABLE, stage.number), table))
    for parent, each in ran.items():
        figures = (*each.shuffled, stage.tasks, each.run_milliseconds)
        exchange = _Step(OperatorKind.EXCHANGE, ((_RDD, parent),), figures)
        steps[parent] = ((_MOVED, each.number), exchange)
    return steps
