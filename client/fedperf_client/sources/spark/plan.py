"""Physical plans of Spark, and the workflows that follow from them and their counters.

A plan is read into nodes as soon as its event arrives: kinds of operators and ids of counters, no
text. Node names and descriptions are only compared, because they hold tables and paths. Operators
of accelerators (GPU, Photon and others) have Spark's names with a prefix or suffix. Layers that
only wrap others, such as code generation and query stages, are no operators. Unknown names are
`OTHER`.

Rows come from counters. Operators without a counter take their rows from their neighbours, if they
neither add nor drop rows. All other rows are estimated from the inputs and count as unknown.

Times of operators are sums over tasks, so that one of ten seconds may have taken one. They include
the wait for the rows of the operator below.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

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

# The first pattern that matches a name gives its kind.
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

_KINDS = tuple((re.compile(pattern), kind) for kind, pattern in _RULES.items())

_TEXT = re.compile(r"(?:File)?Scan (?:csv|json|text)\b.*|BatchScan (?:csv|json|text)\b.*|CsvScan.*")
_PYTHON = re.compile(r".*(?:EvalPython|InPandas|InArrow|PythonMapIn|PythonUDTF|PythonRDD).*")

_BESIDE_THE_JVM = re.compile(r"Python|PySpark|InPandas|InArrow")

_LIMIT = re.compile(r"^\w*?(?:Limit\w* |TakeOrderedAndProject\(limit=|Tail )(\d{1,12})")


class NodeName(NamedTuple):
    """The meaning of the name of a node, a call or an RDD."""

    kind: OperatorKind | None  # None for a layer that only wraps others
    code_steps: int  # of code that it runs for each row; 0 if none
    is_accelerated: bool  # another engine than Spark's own runs it


@lru_cache(maxsize=1024)
def parse_name(name: str) -> NodeName:
    """Return the meaning of a name, with or without what accelerators add to it."""
    name = name.strip()[:_LONGEST_NAME]
    accelerator, plain = _ACCELERATED.search(name), _ACCELERATED.sub("", name)
    kinds = (kind for rule, kind in _KINDS if rule.fullmatch(plain))
    parsing = PARSES_TEXT if _TEXT.fullmatch(plain) else 0
    return NodeName(
        None if _WRAPPERS.match(plain) else next(kinds, OperatorKind.OTHER),
        RUNS_PYTHON if _PYTHON.fullmatch(plain) else parsing,
        accelerator is not None and accelerator[0] != "Exec",
    )


def grouping_kind(description: str) -> OperatorKind:
    """Return the kind of an aggregation: whether it has keys, and functions in addition to them.

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
    """Return the rows that a limit lets through; None if the description does not show it."""
    match = _LIMIT.match(_ACCELERATED.sub("", description[:_LONGEST_NAME]))
    return float(match[1]) if match else None


@lru_cache(maxsize=1024)
def runs_python(name: str) -> bool:
    """Return whether a node, RDD or scope runs Python outside of the JVM, by its name."""
    return _BESIDE_THE_JVM.search(name, 0, _LONGEST_NAME) is not None


# Leaves whose description does not tell which rows they hold.
_UNKNOWN_ROWS = re.compile(
    r"(?:LocalTable|InMemoryTable|ExternalRDD|RDD)Scan|Scan (?:Existing|External)RDD|CommandResult|"
    r"Scan In-memory"
)

# Numbers that Spark gives anew to every occurrence: of expressions, plans and generated code.
_OCCURRENCE = re.compile(r"#\d+L?|plan_id=\d+|id=#?\d+|codegen id : \d+")
_LONGEST_CONTENT = 4_000


@lru_cache(maxsize=1024)
def content_of(description: str) -> int:
    """Return a number that is equal for equal descriptions, in this process alone; 0 if cut."""
    if len(description) > _LONGEST_CONTENT:
        return 0
    return hash(_OCCURRENCE.sub("", description))


_SENT_SIDES = {
    "Inner": (0, 1), "Cross": (0, 1), "LeftOuter": (1,), "LeftSemi": (1,), "LeftAnti": (1,),
    "RightOuter": (0,),
}  # fmt: skip
_JOIN_TYPE = re.compile("|".join(f"\\], ({each})\\b" for each in _SENT_SIDES))


def sides_to_send(name: str, description: str) -> tuple[int, ...]:
    """Return the sides of a sort-merge join that a broadcast could replace; empty for others.

    Source: Spark's `JoinSelectionHelper.canBuildBroadcastLeft` and `canBuildBroadcastRight`.
    """
    if not _ACCELERATED.sub("", name).startswith("SortMergeJoin"):
        return ()
    match = _JOIN_TYPE.search(description, 0, _LONGEST_CONTENT)
    return _SENT_SIDES[next(filter(None, match.groups()))] if match else ()


_UNITS = {"timing": 1e-3, "nsTiming": 1e-9}  # seconds of a counter's unit, by Spark's `metricType`

# Counters of time. An operator has one of them, or several that count different times.
_TIME_COUNTERS = frozenset(
    {"duration", "scan time", "sort time", "time in aggregation build", "shuffle write time",
     "fetch wait time", "time to build", "time to build hash map", "time to collect",
     "time to broadcast", "op time", "opTime"}
)  # fmt: skip

Times = tuple[tuple[int, float], ...]  # ids of counters of time, and the seconds of their units


def times_of(node: Event) -> Times:
    """Return the counters of time of a node.

    Raises:
        MalformedEventError: they are no objects.
    """
    counters: list[tuple[int, float]] = []
    for each in objects(node, "metrics"):
        unit = _UNITS.get(str(each.get("metricType")))
        if unit is not None and each.get("name") in _TIME_COUNTERS:
            try:
                counters.append((integer(each, "accumulatorId"), unit))
            except MalformedEventError:
                continue  # as other counters without an id
    return tuple(counters)


def seconds_of(times: Times, counters: Mapping[int, int]) -> float | None:
    """Return the sum of these counters in seconds; None if none was counted."""
    counted = [max(counters[each], 0) * unit for each, unit in times if each in counters]
    return sum(counted) if counted else None


MAX_NODES = 4 * MAX_OPERATORS  # most nodes of a plan, with its wrappers
MAX_ROUNDS = 8  # passes over a plan in which rows are propagated

ROWS = ("number of output rows", "output rows", "rows output", "num output rows")
MOVED_ROWS = ("shuffle records written", "records read")  # names of counters, the best first

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
MOVES_OR_STORES = frozenset({OperatorKind.EXCHANGE, OperatorKind.FILE_SOURCE, OperatorKind.SINK})

Counters = Mapping[int, int]  # values by the id of their counter (Spark's accumulators)


class PlanTooLargeError(InvalidInputError):
    """Raised when a plan has more nodes than are read."""

    def __init__(self) -> None:
        super().__init__(f"its plan has more than {MAX_NODES} nodes")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node of a physical plan."""

    kind: OperatorKind | None  # None for a layer that only wraps others
    identity: tuple[int, ...] = ()  # equal for two occurrences of one node; empty if unknown
    rows: tuple[int, ...] = ()  # ids of counters of its rows, best first
    sizes: tuple[int, ...] = ()  # ids of counters of its bytes, best first
    partitions: int | None = None  # id of the counter of its partitions
    limit: float | None = None  # most rows that it lets through
    reads_exchange: bool = False  # it reads the exchange below it, in its own partitions
    is_broadcast: bool = False  # an exchange that sends a table to all executors
    names: tuple[str, ...] = ()  # of the counters of moved and stored rows, as in `identity`
    content: int = 0  # equal for nodes that compute the same of equal inputs; 0 if unknown
    may_be_sent: tuple[int, ...] = ()  # places of sides that a sort-merge join could broadcast
    code_steps: int = 0  # of code that runs for each row
    times: Times = ()  # counters of its time
    children: tuple[int, ...] = ()  # positions of its children in the plan

    @property
    def counters(self) -> frozenset[int]:
        """Ids of all its counters."""
        return frozenset(self.identity[1:])

    @property
    def named(self) -> Mapping[str, int]:
        """Ids of its counters by name, if it moves or stores rows."""
        return dict(zip(self.names, self.identity[1:], strict=True)) if self.names else {}


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """The nodes of a plan. The root is the first, children follow their parents."""

    nodes: tuple[PlanNode, ...] = ()  # of it
    is_accelerated: bool = False  # another engine than Spark's own runs a part of it
    runs_python: bool = False  # some nodes run Python

    @property
    def is_command(self) -> bool:
        """Return whether it only changes or shows the catalogue."""
        return all(node.kind in (None, OperatorKind.COMMAND) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class CountedWorkflow:
    """A workflow, the number of its operators with known rows, and their seconds.

    The time of operators that Spark compiled into one is that of the last of them, unless it has a
    counter of its own.
    """

    workflow: Workflow
    known_operators: int
    seconds: tuple[float | None, ...]


def carried_out_by(command: PhysicalPlan, inner: PhysicalPlan) -> PhysicalPlan:
    """Return the plan of a command with the counters of the nested query that carries it out.

    Commands that write run the plan below them as a nested query, with other counters. A nested
    query with another plan changes nothing.
    """
    first, *below = command.nodes or (PlanNode(None),)
    same = [node.kind for node in below] == [node.kind for node in inner.nodes]
    if not (below and same and first.kind is OperatorKind.SINK and first.children == (1,)):
        return command
    nodes = (
        replace(node, children=tuple(child + 1 for child in node.children)) for node in inner.nodes
    )
    return replace(inner, nodes=(first, *nodes))


def read_plan(info: Event) -> PhysicalPlan:
    """Return the plan of a `sparkPlanInfo`.

    Raises:
        MalformedEventError: it is no plan.
        PlanTooLargeError: it has more than `MAX_NODES` nodes.
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
        any(parse_name(each).is_accelerated for each in names),
        any(map(runs_python, names)),
    )


def workflow_of(plan: PhysicalPlan, counters: Counters) -> CountedWorkflow:
    """Return the operators of a plan, with rows and widths from the counters.

    Raises:
        InvalidWorkflowError: it has no operators, or more than the public limit.
    """
    nodes, inputs = _operators(plan, counters)
    rows = _propagated_rows(nodes, inputs, counters)
    known_operators = sum(each is not None for each in rows)
    filled = _estimated(nodes, inputs, rows)
    widths = _widths(nodes, inputs, filled, counters)
    result = list[Operator]()
    for node, below, rows_out, width in zip(nodes, inputs, filled, widths, strict=True):
        if node.kind is None:
            raise MalformedEventError("nodeName")
        input_rows = sum(filled[each] for each in below)
        counted = 0 if node.partitions is None else counters.get(node.partitions, 0)
        result.append(
            Operator(
                kind=node.kind,
                operator_class=OperatorClass.RELATIONAL,
                inputs=below,
                output_rows=rows_out,
                row_bytes=width,
                key_distinct_ratio=(
                    min(rows_out / input_rows, 1.0)
                    if node.kind in GROUPS and input_rows > 0
                    else 0.0
                ),
                complexity=Complexity.LINEAR if node.code_steps else Complexity.NONE,
                code_steps=node.code_steps,
                partitions=1 if node.is_broadcast else min(max(counted, 0), MAX_ITERATIONS),
            )
        )
    seconds = tuple(seconds_of(node.times, counters) for node in nodes)
    return CountedWorkflow(Workflow(tuple(result)), known_operators, seconds)


def _node(info: Event, children: tuple[int, ...]) -> PlanNode:
    name, description = text(info, "nodeName"), words(info, "simpleString")
    kind, code_steps, _ = parse_name(name)
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
    ordered = sorted(ids, key=ids.__getitem__)
    names = ROWS if kind is OperatorKind.TOPK else ROWS + MOVED_ROWS
    # The counter of a broadcast table includes the pages that it is stored in.
    is_broadcast = ids.keys().isdisjoint({*MOVED_ROWS, "partition data size"})
    return PlanNode(
        kind,
        identity=(int(kind), *(ids[each] for each in ordered)) if ids else (),
        rows=_known(ids, names),
        sizes=() if kind is OperatorKind.EXCHANGE and is_broadcast else _known(ids, SIZES),
        partitions=next(iter(_known(ids, PARTITIONS)), None),
        limit=limit_of(description) if kind is OperatorKind.TOPK else None,
        reads_exchange=kind is OperatorKind.EXCHANGE and "ShuffleRead" in name,
        is_broadcast=kind is OperatorKind.EXCHANGE and "Broadcast" in name,
        names=_shared(tuple(ordered)) if kind in MOVES_OR_STORES else (),
        content=0 if _UNKNOWN_ROWS.match(name) else content_of(f"{name} {description}"),
        may_be_sent=sides_to_send(name, description),
        code_steps=code_steps,
        times=times_of(info),
        children=children,
    )


@lru_cache(maxsize=1024)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one object for equal names: plans hold hundreds of thousands of nodes."""
    return names


def _known(ids: Mapping[str, int], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(ids[name] for name in names if name in ids)


def _operators(
    plan: PhysicalPlan, counters: Counters
) -> tuple[list[PlanNode], list[tuple[int, ...]]]:
    """Return the nodes that are operators, inputs first, and the positions of their inputs.

    Wrappers pass on what is below them. A node that occurs twice is one operator. An exchange and
    its reader are one, with the partitions of the reader. Below a table in memory is the plan that
    made it, which belongs to the query only if this query ran a part of it.
    """
    nodes: list[PlanNode] = []
    inputs: list[tuple[int, ...]] = []
    positions: dict[tuple[int, ...], int] = {}
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
        place = positions.get(node.identity)
        if place is None:
            place = len(nodes)
            nodes.append(node)
            inputs.append(below)
            if node.identity:
                positions[node.identity] = place
        outputs[position] = (place,)
    return _reached(nodes, inputs, outputs[0] if outputs else ())


def _reached(
    nodes: list[PlanNode], inputs: list[tuple[int, ...]], roots: tuple[int, ...]
) -> tuple[list[PlanNode], list[tuple[int, ...]]]:
    """Drop operators that lead to no root: those below the second occurrence of an operator."""
    reached = set(roots)
    for position in reversed(range(len(nodes))):
        if position in reached:
            reached.update(inputs[position])
    remaining = [position for position in range(len(nodes)) if position in reached]
    place = {position: number for number, position in enumerate(remaining)}
    return (
        [nodes[position] for position in remaining],
        [tuple(place[each] for each in inputs[position]) for position in remaining],
    )


def _propagated_rows(
    nodes: Sequence[PlanNode], inputs: Sequence[tuple[int, ...]], counters: Counters
) -> list[float | None]:
    """Return counted rows, and those that follow from them, forwards and backwards."""
    rows = list[float | None]()
    for node in nodes:
        changes_catalogue = node.kind is OperatorKind.COMMAND and not node.rows
        counts = (float(counters[each]) for each in node.rows if each in counters)
        rows.append(next(counts, 0.0 if changes_catalogue else None))
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
    """Return what follows at an operator: its own rows, or those of its only input."""
    input_rows = [rows[each] for each in inputs]
    counts = [each for each in input_rows if each is not None]
    own = rows[position]
    if node.kind is OperatorKind.UNION and counts and len(counts) == len(input_rows):
        return [(position, sum(counts))]
    if len(input_rows) != 1:
        return []
    if node.kind is OperatorKind.TOPK and node.limit is not None and counts:
        return [(position, min(node.limit, counts[0]))]
    if node.kind in KEEPS_ROWS and counts:
        return [(position, counts[0])]
    if node.kind in KEEPS_ROWS and own is not None:
        return [(inputs[0], own)]
    return []


def _estimated(
    nodes: Sequence[PlanNode], inputs: Sequence[tuple[int, ...]], rows: Sequence[float | None]
) -> list[float]:
    """Return the rows of every operator; the largest input's if they are unknown."""
    filled: list[float] = []
    for position, node in enumerate(nodes):
        count = rows[position]
        if count is None:
            count = max((filled[each] for each in inputs[position]), default=0.0)
            count = count if node.limit is None else min(count, node.limit)
        filled.append(min(max(count, 0.0), MAX_ROWS))
    return filled


def _widths(
    nodes: Sequence[PlanNode],
    inputs: Sequence[tuple[int, ...]],
    rows: Sequence[float],
    counters: Counters,
) -> list[float]:
    """Return the bytes per row of every operator, from counters, neighbours, or the default."""
    widths: list[float | None] = []
    for node, count in zip(nodes, rows, strict=True):
        size = next((counters[each] for each in node.sizes if each in counters), 0)
        widths.append(min(size / count, MAX_ROW_BYTES) if size > 0 and count > 0 else None)
    for position in reversed(range(len(nodes))):  # an exchange has the width of its input
        if nodes[position].kind in KEEPS_WIDTH and len(inputs[position]) == 1:
            (below,) = inputs[position]
            widths[below] = widths[position] if widths[below] is None else widths[below]
    filled: list[float] = []
    for position, node in enumerate(nodes):
        input_widths = [filled[each] for each in inputs[position]]
        width = widths[position]
        if width is None and input_widths:
            is_join = node.kind is OperatorKind.JOIN
            width = sum(input_widths) if is_join else max(input_widths)
        filled.append(min(width or DEFAULT_ROW_BYTES, MAX_ROW_BYTES))
    return filled
