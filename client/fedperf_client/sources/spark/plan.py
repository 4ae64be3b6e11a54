"""Spark's physical operators in the vocabulary of workflows.

GPU, Photon and other accelerated operators have the names of Spark's own with a prefix or
a suffix, and mean the same. Layers that only wrap others (code generation, query stages)
are no operators. What no rule knows is `OTHER`. Names are only compared, never kept: they
hold tables and paths.

Times of operators are sums over tasks, so one of ten seconds may have taken one. What an operator
waited for inside of its stage, such as the rows of the one below, counts as its own.

Spark's physical plan of a query, and what was counted while it ran, as a workflow.

A plan is read into nodes as soon as its event arrives: kinds and the ids of the counters
that matter, no text. Rows come from counters; where an operator has none they follow from
its neighbours when it neither adds nor drops rows. What follows from nothing is estimated
from its inputs and does not count as known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fedperf_client.sources.spark.fields import (
    Event,
    MalformedEventError,
    integer,
    objects,
    text,
    words,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.cardinality import DEFAULT_ROW_BYTES
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    PARSES_TEXT,
    RUNS_PYTHON,
    Complexity,
    OperatorClass,
    OperatorKind,
)

_LONGEST_NAME = 200

_ACCELERATED = re.compile(
    r"^(?:Gpu|Photon|Comet|Native|Velox|ClickHouse|CH)(?=[A-Z])|"
    r"(?:ExecTransformer|Transformer|Exec)$"
)

_WRAPPERS = re.compile(
    r"^(?:WholeStageCodegen.*|WholeStage|InputAdapter|InputIterator|AdaptiveSparkPlan|"
    r".*QueryStage|ResultStage|ShuffleMapStage|WriteStage|ReusedExchange|ReusedSubquery|"
    r"ResultQueryStage|AdaptivePlan|Subquery.*Wrapper)$"
)

_RULES = {
    OperatorKind.TABLE_SOURCE: (
        r"Scan (?:jdbc|JDBC).*|Scan (?:ExistingRDD|OneRowRelation|In-memory|hive).*|"
        r"(?:LocalTable|InMemoryTable|HiveTable|RDD|OneRowRelation|ExternalRDD)Scan.*|"
        r"(?:Range|CommandResult|EmptyRelation|LocalRelation)\b.*"
    ),
    OperatorKind.FILE_SOURCE: (
        r"(?:Scan|FileScan|BatchScan|FileSourceScan|MicroBatchScan|ContinuousScan)\b.*|"
        r"(?:DataScan|RowDataSourceScan|ParquetScan|OrcScan|CsvScan).*"
    ),
    OperatorKind.CROSS: r"CartesianProduct.*|.*NestedLoopJoin.*",
    OperatorKind.JOIN: r".*Join(?:Like)?(?:\(skew=true\))?(?: .*)?|CoGroup.*|FlatMapCoGroups.*",
    OperatorKind.AGGREGATE: (
        r".*Aggregate.*|.*GroupingAgg.*|.*\bAgg\b.*|AggregateInPandas.*|AggregateInArrow.*|"
        r"StreamingDeduplicate.*|Deduplicate.*"
    ),
    OperatorKind.WINDOW: r".*Window.*",
    OperatorKind.TOPK: r"TakeOrdered.*|TopN.*|TopK.*|.*Limit\b.*|TakeOrderedAndProject.*|.*Tail",
    OperatorKind.SORT: r".*Sort(?:Order)?$|Sort .*",
    OperatorKind.EXCHANGE: (
        r".*Exchange.*|.*ShuffleRead(?:er)?.*|Coalesce.*|.*ShuffleCoalesce.*|RoundRobin.*|"
        r"Subquery.*|.*CoalesceBatches.*|.*CoalescePartitions.*|Repartition.*"
    ),
    OperatorKind.FILTER: r"Filter.*",
    OperatorKind.FLATMAP: (
        r"Generate.*|Expand.*|MapPartitions.*|FlatMapGroups.*|MapGroups.*|MapInPandas.*|"
        r"(?:PythonMapIn|MapInArrow|FlatMap|PythonUDTF|ArrowEvalPythonUDTF|BatchEvalPythonUDTF).*"
    ),
    OperatorKind.MAP: (
        r"(?:Project|MapElements|SerializeFromObject|DeserializeToObject|AppendColumns).*|"
        r".*EvalPython.*|.*ColumnarToRow.*|.*RowToColumnar.*|.*HostToGpu.*|.*ToHost.*|Host.*|"
        r"(?:CollectMetrics|EventTimeWatermark|AttachDistributedSequence|BringBackToHost).*"
    ),
    OperatorKind.UNION: r"Union.*",
    OperatorKind.SAMPLE: r"Sample.*",
    OperatorKind.SINK: (
        r"WriteFiles.*|.*Writer.*|WriteTo.*|AppendData.*|Overwrite.*|ReplaceData.*|WriteDelta.*|"
        r"(?:Atomic)?(?:Create|Replace)TableAsSelect.*|CacheTableAsSelect.*|"
        r"Execute (?:Optimized)?(?:InsertInto|SaveInto|CreateDataSourceTableAsSelect|"
        r"CreateHiveTableAsSelect|InsertAdaptor|MergeInto|WriteInto|Delete|Update).*"
    ),
    OperatorKind.COMMAND: (
        r"Execute\b.*|Show.*|Describe.*|Set.*|Create.*|Drop.*|Alter.*|Add.*|Rename.*|Truncate.*|"
        r"(?:Cache|Uncache|Refresh|Analyze|Repair|Call|Explain|Recover|Load|Delete|Update|"
        r"Merge)\b.*|(?:CacheTable|UncacheTable|RefreshTable|DeleteFromTable).*"
    ),
}
"""Names of what reads, joins, groups, orders, moves, changes rows, writes, and of commands; the
first that fits counts."""

_KINDS = tuple((re.compile(pattern), kind) for kind, pattern in _RULES.items())

_TEXT = re.compile(r"(?:File)?Scan (?:csv|json|text)\b.*|BatchScan (?:csv|json|text)\b.*|CsvScan.*")
_PYTHON = re.compile(r".*(?:EvalPython|InPandas|InArrow|PythonMapIn|PythonUDTF|PythonRDD).*")

_BESIDE_THE_JVM = re.compile(r"Python|PySpark|InPandas|InArrow")

_LIMIT = re.compile(r"^\w*?(?:Limit\w* |TakeOrderedAndProject\(limit=|Tail )(\d{1,12})")


@lru_cache(maxsize=1024)
def kind_of(name: str) -> OperatorKind | None:
    """The kind of a node by its name; None for a layer that only wraps others."""
    plain = _plain(name)
    if _WRAPPERS.match(plain):
        return None
    return next((kind for rule, kind in _KINDS if rule.fullmatch(plain)), OperatorKind.OTHER)


def grouping_kind(description: str) -> OperatorKind:
    """Whether a grouping has keys, and computes anything but the keys.

    Args:
        description: Spark's `simpleString`, such as `HashAggregate(keys=[], functions=[...])`.
    """
    head = description[:_LONGEST_NAME]
    if "(keys=[]," in head or "(key=[]," in head:
        return OperatorKind.GLOBAL_AGGREGATE
    if ", functions=[])" in description[: 20 * _LONGEST_NAME]:
        return OperatorKind.DISTINCT
    return OperatorKind.AGGREGATE


def limit_of(description: str) -> float | None:
    """The rows that a limit lets through; None where it does not say."""
    found = _LIMIT.match(_ACCELERATED.sub("", description[:_LONGEST_NAME]))
    return float(found[1]) if found else None


@lru_cache(maxsize=1024)
def steps_of(name: str) -> int:
    """Steps of the code that a node runs for each row, by its name; 0 where it runs none."""
    plain = _plain(name)
    if _PYTHON.fullmatch(plain):
        return RUNS_PYTHON
    return PARSES_TEXT if _TEXT.fullmatch(plain) else 0


@lru_cache(maxsize=1024)
def is_accelerated(name: str) -> bool:
    """Whether another engine than Spark's own runs a node, by its name."""
    found = _ACCELERATED.search(name.strip()[:_LONGEST_NAME])
    return found is not None and found[0] != "Exec"


@lru_cache(maxsize=1024)
def runs_python(name: str) -> bool:
    """Whether the name of a node, RDD or scope says that Python works beside the JVM."""
    return _BESIDE_THE_JVM.search(name, 0, _LONGEST_NAME) is not None


def _plain(name: str) -> str:
    """A name without what accelerators add to it."""
    return _ACCELERATED.sub("", name.strip()[:_LONGEST_NAME])


_UNITS = {"timing": 1e-3, "nsTiming": 1e-9}  # seconds of a counter's unit, by Spark's `metricType`

_NAMES = frozenset(
    {"duration", "scan time", "sort time", "time in aggregation build", "shuffle write time",
     "fetch wait time", "time to build", "time to build hash map", "time to collect",
     "time to broadcast", "op time", "opTime"}
)  # fmt: skip
"""Counters of time; an operator has one of them, or some that count different times."""

Times = tuple[tuple[int, float], ...]  # ids of counters of time, and the seconds of their units


def times_of(node: Event) -> Times:
    """The counters of time of a plan's node.

    Raises:
        MalformedEventError: they are no objects.
    """
    found: list[tuple[int, float]] = []
    for each in objects(node, "metrics"):
        unit = _UNITS.get(str(each.get("metricType")))
        if unit is not None and each.get("name") in _NAMES:
            try:
                found.append((integer(each, "accumulatorId"), unit))
            except MalformedEventError:
                continue  # as a counter without an id elsewhere
    return tuple(found)


def seconds_of(times: Times, counters: Mapping[int, int]) -> float | None:
    """The seconds that these counted together; None where none was counted."""
    counted = [max(counters[each], 0) * unit for each, unit in times if each in counters]
    return sum(counted) if counted else None


MAX_NODES = 4 * MAX_OPERATORS  # nodes of a plan with all its wrappers; a larger one is refused
MAX_ROUNDS = 8  # passes over a plan in which rows follow from others; more never bring anything

ROWS = ("number of output rows", "output rows", "rows output", "num output rows")
MOVED_ROWS = ("shuffle records written", "records read")
"""Names of counters, in the order in which they are asked."""

SIZES = ("data size", "data size (bytes)", "partition data size", "size of files read",
         "written output", "filesystem read data size")  # fmt: skip
PARTITIONS = ("number of partitions", "number of output partitions")

KEEPS_ROWS = frozenset(
    {OperatorKind.MAP, OperatorKind.SORT, OperatorKind.EXCHANGE, OperatorKind.WINDOW,
     OperatorKind.SINK}
)  # fmt: skip
KEEPS_WIDTH = frozenset(
    {OperatorKind.FILTER, OperatorKind.SORT, OperatorKind.EXCHANGE, OperatorKind.TOPK,
     OperatorKind.UNION, OperatorKind.SINK}
)  # fmt: skip
GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.DISTINCT})

Counters = Mapping[int, int]  # values by the id of their counter (Spark's accumulators)


class PlanTooLargeError(InvalidInputError):
    """A plan has more nodes than are read."""

    def __init__(self) -> None:
        super().__init__(f"its plan has more than {MAX_NODES} nodes")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node of a physical plan."""

    kind: OperatorKind | None  # None for a layer that only wraps others
    identity: tuple[int, ...] = ()  # equal for a node met twice (used again); empty if unknown
    rows: tuple[int, ...] = ()  # ids of counters of its rows, best first
    sizes: tuple[int, ...] = ()  # ids of counters of its bytes, best first
    partitions: int | None = None  # id of the counter of its partitions
    limit: float | None = None  # rows that it lets through at most
    reads_exchange: bool = False  # it reads what the exchange below it wrote, in its own partitions
    sent: Mapping[str, int] | None = None  # counters by name of a table that every task gets whole
    code_steps: int = 0  # of code that runs for each row
    times: Times = ()  # counters of its time
    children: tuple[int, ...] = ()  # positions of its children in the plan


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """The nodes of a plan; the root is the first, children stand behind their parents."""

    nodes: tuple[PlanNode, ...] = ()  # of it
    is_accelerated: bool = False  # another engine than Spark's own runs some of them
    runs_python: bool = False  # some of them do, beside the JVM

    @property
    def is_command(self) -> bool:
        """Whether it only changes or shows the catalogue."""
        return all(node.kind in (None, OperatorKind.COMMAND) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class CountedWorkflow:
    """A workflow, how many of its operators have rows that are known, and their seconds.

    The time of operators that Spark compiled into one stands at the last of them, where that
    counts none of its own.
    """

    workflow: Workflow
    known: int
    seconds: tuple[float | None, ...]


def carried_out_by(command: PhysicalPlan, inner: PhysicalPlan) -> PhysicalPlan:
    """The plan of a command with the counters of the query inside that does its work.

    Commands that write run what is below them as a query of their own, with counters of its
    own. A query that is not what is below the command changes nothing.
    """
    first, *below = command.nodes or (PlanNode(None),)
    same = [node.kind for node in below] == [node.kind for node in inner.nodes]
    if not (below and same and first.kind is OperatorKind.SINK and first.children == (1,)):
        return command
    moved = (
        replace(node, children=tuple(child + 1 for child in node.children)) for node in inner.nodes
    )
    return replace(inner, nodes=(first, *moved))


def read_plan(info: Event) -> PhysicalPlan:
    """The plan of a `sparkPlanInfo`.

    Raises:
        MalformedEventError: it is no plan.
        PlanTooLargeError: more than `MAX_NODES` nodes.
    """
    infos: list[Event] = [info]
    children: list[tuple[int, ...]] = []
    position = 0
    while position < len(infos):
        below = objects(infos[position], "children")
        children.append(tuple(range(len(infos), len(infos) + len(below))))
        infos += below
        if len(infos) > MAX_NODES:
            raise PlanTooLargeError
        position += 1
    names = {str(each.get("nodeName")) for each in infos}
    return PhysicalPlan(
        tuple(_node(each, below) for each, below in zip(infos, children, strict=True)),
        any(map(is_accelerated, names)),
        any(map(runs_python, names)),
    )


def workflow_of(plan: PhysicalPlan, counters: Counters) -> CountedWorkflow:
    """The operators of the plan with rows and widths from what was counted.

    Raises:
        InvalidWorkflowError: no operators, or more than the public limit.
    """
    nodes, inputs = _operators(plan, counters)
    rows = _propagated_rows(nodes, inputs, [_rows(node, counters) for node in nodes])
    known = sum(each is not None for each in rows)
    filled = _estimated(nodes, inputs, rows)
    widths = _widths(nodes, inputs, filled, counters)
    found = list[Operator]()
    for node, below, rows_out, width in zip(nodes, inputs, filled, widths, strict=True):
        if node.kind is None:
            raise MalformedEventError("nodeName")
        given = sum(filled[each] for each in below)
        counted = 0 if node.partitions is None else counters.get(node.partitions, 0)
        found.append(
            Operator(
                kind=node.kind,
                operator_class=OperatorClass.RELATIONAL,
                inputs=below,
                output_rows=rows_out,
                row_bytes=width,
                key_distinct_ratio=(
                    min(rows_out / given, 1.0) if node.kind in GROUPS and given > 0 else 0.0
                ),
                complexity=Complexity.LINEAR if node.code_steps else Complexity.NONE,
                code_steps=node.code_steps,
                partitions=1 if node.sent is not None else min(max(counted, 0), MAX_ITERATIONS),
            )
        )
    seconds = tuple(seconds_of(node.times, counters) for node in nodes)
    return CountedWorkflow(Workflow(tuple(found)), known, seconds)


def _node(info: Event, children: tuple[int, ...]) -> PlanNode:
    name = text(info, "nodeName")
    kind = kind_of(name)
    description = words(info, "simpleString")
    if kind is OperatorKind.AGGREGATE:
        kind = grouping_kind(description)
    if kind is None:
        return PlanNode(None, times=times_of(info), children=children)
    ids = {
        counted: number
        for each in objects(info, "metrics")
        if isinstance(counted := each.get("name"), str)
        and isinstance(number := each.get("accumulatorId"), int)
    }
    names = ROWS if kind is OperatorKind.TOPK else ROWS + MOVED_ROWS
    # A table that is sent to all is counted with the pages that it is kept in.
    is_kept_whole = ids.keys().isdisjoint({*MOVED_ROWS, "partition data size"})
    return PlanNode(
        kind,
        identity=(int(kind), *sorted(ids.values())) if ids else (),
        rows=_known(ids, names),
        sizes=() if kind is OperatorKind.EXCHANGE and is_kept_whole else _known(ids, SIZES),
        partitions=next(iter(_known(ids, PARTITIONS)), None),
        limit=limit_of(description) if kind is OperatorKind.TOPK else None,
        reads_exchange=kind is OperatorKind.EXCHANGE and "ShuffleRead" in name,
        sent=ids if kind is OperatorKind.EXCHANGE and "Broadcast" in name else None,
        code_steps=steps_of(name),
        times=times_of(info),
        children=children,
    )


def _known(ids: Mapping[str, int], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(ids[name] for name in names if name in ids)


def _operators(
    plan: PhysicalPlan, counters: Counters
) -> tuple[list[PlanNode], list[tuple[int, ...]]]:
    """The nodes that are operators, inputs first, and the positions of their inputs.

    Wrappers hand through what is below them; a node that was met before is the same operator.
    An exchange and what reads it are one, with the partitions that are read.
    Below a table in memory stands how it was made once: that is a part of the query only
    where something of it was counted in this one.
    """
    nodes: list[PlanNode] = []
    inputs: list[tuple[int, ...]] = []
    met: dict[tuple[int, ...], int] = {}
    outputs: list[tuple[int, ...]] = [()] * len(plan.nodes)
    has_run = [not counters.keys().isdisjoint((*n.rows, *n.sizes)) for n in plan.nodes]
    for position in reversed(range(len(plan.nodes))):
        node = plan.nodes[position]
        below = tuple(each for child in node.children for each in outputs[child])
        ran_below = any(has_run[child] for child in node.children)
        has_run[position] = has_run[position] or ran_below
        if node.kind is OperatorKind.TABLE_SOURCE and not ran_below:
            below = ()
        if node.kind is None:
            if len(below) == 1 and seconds_of(nodes[below[0]].times, counters) is None:
                nodes[below[0]] = replace(nodes[below[0]], times=node.times)
            outputs[position] = below
            continue
        if node.reads_exchange and len(below) == 1 and nodes[below[0]].kind is node.kind:
            nodes[below[0]] = replace(nodes[below[0]], partitions=node.partitions)
            outputs[position] = below
            continue
        place = met.get(node.identity)
        if place is None:
            place = len(nodes)
            nodes.append(node)
            inputs.append(below)
            if node.identity:
                met[node.identity] = place
        outputs[position] = (place,)
    return _reached(nodes, inputs, outputs[0] if outputs else ())


def _reached(
    nodes: list[PlanNode], inputs: list[tuple[int, ...]], roots: tuple[int, ...]
) -> tuple[list[PlanNode], list[tuple[int, ...]]]:
    """Without what leads to no root: what lay below the second mention of an operator."""
    reached = set(roots)
    for position in reversed(range(len(nodes))):
        if position in reached:
            reached.update(inputs[position])
    kept = [position for position in range(len(nodes)) if position in reached]
    place = {position: number for number, position in enumerate(kept)}
    return (
        [nodes[position] for position in kept],
        [tuple(place[each] for each in inputs[position]) for position in kept],
    )


def _rows(node: PlanNode, counters: Counters) -> float | None:
    for each in node.rows:
        if each in counters:
            return float(counters[each])
    if node.kind is OperatorKind.COMMAND and not node.rows:
        return 0.0  # it changes the catalogue and hands on nothing
    return None


def _propagated_rows(
    nodes: Sequence[PlanNode], inputs: Sequence[tuple[int, ...]], counted: list[float | None]
) -> list[float | None]:
    """Rows that were counted, and those that follow from them, forwards and backwards."""
    rows = list(counted)
    forwards = range(len(nodes))
    for _ in range(MAX_ROUNDS):
        before = list(rows)
        for position in (*forwards, *reversed(forwards)):
            for place, value in _following(nodes[position], position, inputs[position], rows):
                rows[place] = value if rows[place] is None else rows[place]
        if rows == before:
            break
    return rows


def _following(
    node: PlanNode, position: int, inputs: tuple[int, ...], rows: Sequence[float | None]
) -> list[tuple[int, float]]:
    """What follows at this operator: its own rows, or those of its only input."""
    given = [rows[each] for each in inputs]
    known = [each for each in given if each is not None]
    own = rows[position]
    if node.kind is OperatorKind.UNION and known and len(known) == len(given):
        return [(position, sum(known))]
    if len(given) != 1:
        return []
    if node.kind is OperatorKind.TOPK and node.limit is not None and known:
        return [(position, min(node.limit, known[0]))]
    if node.kind in KEEPS_ROWS and known:
        return [(position, known[0])]
    if node.kind in KEEPS_ROWS and own is not None:
        return [(inputs[0], own)]
    return []


def _estimated(
    nodes: Sequence[PlanNode], inputs: Sequence[tuple[int, ...]], rows: Sequence[float | None]
) -> list[float]:
    """Rows of every operator; the largest input's where nothing is known."""
    filled: list[float] = []
    for position, node in enumerate(nodes):
        found = rows[position]
        if found is None:
            found = max((filled[each] for each in inputs[position]), default=0.0)
            found = found if node.limit is None else min(found, node.limit)
        filled.append(min(max(found, 0.0), MAX_ROWS))
    return filled


def _widths(
    nodes: Sequence[PlanNode],
    inputs: Sequence[tuple[int, ...]],
    rows: Sequence[float],
    counters: Counters,
) -> list[float]:
    """Bytes of a row of every operator, from counted bytes, neighbours, or the default."""
    widths: list[float | None] = []
    for node, count in zip(nodes, rows, strict=True):
        size = next((counters[each] for each in node.sizes if each in counters), 0)
        widths.append(min(size / count, MAX_ROW_BYTES) if size > 0 and count > 0 else None)
    for position in reversed(range(len(nodes))):  # an exchange tells how wide its input is
        if nodes[position].kind in KEEPS_WIDTH and len(inputs[position]) == 1:
            (below,) = inputs[position]
            widths[below] = widths[position] if widths[below] is None else widths[below]
    filled: list[float] = []
    for position, node in enumerate(nodes):
        given = [filled[each] for each in inputs[position]]
        width = widths[position]
        if width is None and given:
            width = sum(given) if node.kind is OperatorKind.JOIN else max(given)
        filled.append(min(width or DEFAULT_ROW_BYTES, MAX_ROW_BYTES))
    return filled
