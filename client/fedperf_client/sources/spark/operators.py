"""Spark's physical operators in the vocabulary of workflows.

GPU, Photon and other accelerated operators have the names of Spark's own with a prefix or
a suffix, and mean the same. Layers that only wrap others (code generation, query stages)
are no operators. What no rule knows is `OTHER`. Names are only compared, never kept: they
hold tables and paths.

Times of operators are sums over tasks, so one of ten seconds may have taken one. What an operator
waited for inside of its stage, such as the rows of the one below, counts as its own.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from fedperf_client.sources.spark.fields import Event, MalformedEventError, integer, objects
from fedperf_shared.workflow.vocabulary import PARSES_TEXT, RUNS_PYTHON, OperatorKind

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

_RULES: tuple[tuple[str, OperatorKind], ...] = (
    # what reads
    (r"Scan (?:jdbc|JDBC).*", OperatorKind.TABLE_SOURCE),
    (r"Scan (?:ExistingRDD|OneRowRelation|In-memory|hive).*", OperatorKind.TABLE_SOURCE),
    (
        r"(?:LocalTable|InMemoryTable|HiveTable|RDD|OneRowRelation|ExternalRDD)Scan.*",
        OperatorKind.TABLE_SOURCE,
    ),
    (r"(?:Range|CommandResult|EmptyRelation|LocalRelation)\b.*", OperatorKind.TABLE_SOURCE),
    (
        r"(?:Scan|FileScan|BatchScan|FileSourceScan|MicroBatchScan|ContinuousScan)\b.*",
        OperatorKind.FILE_SOURCE,
    ),
    (r"(?:DataScan|RowDataSourceScan|ParquetScan|OrcScan|CsvScan).*", OperatorKind.FILE_SOURCE),
    # joins
    (r"CartesianProduct.*|.*NestedLoopJoin.*", OperatorKind.CROSS),
    (r".*Join(?:Like)?(?:\(skew=true\))?(?: .*)?|CoGroup.*|FlatMapCoGroups.*", OperatorKind.JOIN),
    # what groups
    (r".*Aggregate.*|.*GroupingAgg.*|.*\bAgg\b.*|AggregateInPandas.*", OperatorKind.AGGREGATE),
    (r"AggregateInArrow.*|StreamingDeduplicate.*|Deduplicate.*", OperatorKind.AGGREGATE),
    (r".*Window.*", OperatorKind.WINDOW),
    # order and limits
    (r"TakeOrdered.*|TopN.*|TopK.*|.*Limit\b.*|TakeOrderedAndProject.*|.*Tail", OperatorKind.TOPK),
    (r".*Sort(?:Order)?$|Sort .*", OperatorKind.SORT),
    # what moves rows
    (
        r".*Exchange.*|.*ShuffleRead(?:er)?.*|Coalesce.*|.*ShuffleCoalesce.*|RoundRobin.*",
        OperatorKind.EXCHANGE,
    ),
    (r"Subquery.*|.*CoalesceBatches.*|.*CoalescePartitions.*|Repartition.*", OperatorKind.EXCHANGE),
    # row by row
    (r"Filter.*", OperatorKind.FILTER),
    (
        r"Generate.*|Expand.*|MapPartitions.*|FlatMapGroups.*|MapGroups.*|MapInPandas.*",
        OperatorKind.FLATMAP,
    ),
    (
        r"(?:PythonMapIn|MapInArrow|FlatMap|PythonUDTF|ArrowEvalPythonUDTF|BatchEvalPythonUDTF).*",
        OperatorKind.FLATMAP,
    ),
    (
        r"(?:Project|MapElements|SerializeFromObject|DeserializeToObject|AppendColumns).*",
        OperatorKind.MAP,
    ),
    (
        r".*EvalPython.*|.*ColumnarToRow.*|.*RowToColumnar.*|.*HostToGpu.*|.*ToHost.*|Host.*",
        OperatorKind.MAP,
    ),
    (
        r"(?:CollectMetrics|EventTimeWatermark|AttachDistributedSequence|BringBackToHost).*",
        OperatorKind.MAP,
    ),
    (r"Union.*", OperatorKind.UNION),
    (r"Sample.*", OperatorKind.SAMPLE),
    # what writes
    (
        r"WriteFiles.*|.*Writer.*|WriteTo.*|AppendData.*|Overwrite.*|ReplaceData.*|WriteDelta.*",
        OperatorKind.SINK,
    ),
    (r"(?:Atomic)?(?:Create|Replace)TableAsSelect.*|CacheTableAsSelect.*", OperatorKind.SINK),
    (
        r"Execute (?:Optimized)?(?:InsertInto|SaveInto|CreateDataSourceTableAsSelect|"
        r"CreateHiveTableAsSelect|InsertAdaptor|MergeInto|WriteInto|Delete|Update).*",
        OperatorKind.SINK,
    ),
    # what only changes or shows the catalogue
    (
        r"Execute\b.*|Show.*|Describe.*|Set.*|Create.*|Drop.*|Alter.*|Add.*|Rename.*|Truncate.*",
        OperatorKind.COMMAND,
    ),
    (
        r"(?:Cache|Uncache|Refresh|Analyze|Repair|Call|Explain|Recover|Load|Delete|Update|Merge)\b.*",
        OperatorKind.COMMAND,
    ),
    (r"(?:CacheTable|UncacheTable|RefreshTable|DeleteFromTable).*", OperatorKind.COMMAND),
)
_KINDS = tuple((re.compile(pattern), kind) for pattern, kind in _RULES)

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


def is_accelerated(name: str) -> bool:
    """Whether another engine than Spark's own runs a node, by its name."""
    found = _ACCELERATED.search(name.strip()[:_LONGEST_NAME])
    return found is not None and found[0] != "Exec"


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
