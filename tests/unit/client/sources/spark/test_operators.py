"""Tests that names of Spark operators, including accelerated ones, map to operator kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.spark.plan import grouping_kind, limit_of, parse_name
from fedperf_shared.workflow.vocabulary import PARSES_TEXT, RUNS_PYTHON, OperatorKind

K = OperatorKind

NAMES: dict[OperatorKind | None, tuple[str, ...]] = {
    K.FILE_SOURCE: (
        "Scan parquet ", "Scan parquet spark_catalog.default.people", "FileScan orc", "BatchScan a",
        "Scan csv ", "GpuScan parquet ", "PhotonScan parquet ", "BatchScanExecTransformer",
        "Scan json /data/x", "BatchScan", "GpuBatchScan", "FileSourceScanExecTransformer",
    ),
    K.TABLE_SOURCE: (
        "Range", "LocalTableScan", "InMemoryTableScan", "Scan JDBCRelation(t)", "Scan ExistingRDD",
        "Scan hive default.t", "CommandResult", "Scan OneRowRelation", "RDDScan",
        "Scan ExistingRDD Delta Table State #9 - abfss://x@y",
    ),
    K.MAP: (
        "Project", "GpuProject", "PhotonProject", "ProjectExecTransformer", "MapElements",
        "SerializeFromObject", "DeserializeToObject", "ColumnarToRow", "GpuColumnarToRow",
        "GpuRowToColumnar", "BatchEvalPython", "ArrowEvalPython", "VeloxColumnarToRowExec",
        "CometProject", "NativeProject", "PhotonRowToColumnar",
    ),
    K.FILTER: ("Filter", "GpuFilter", "FilterExecTransformer", "CometFilter"),
    K.FLATMAP: ("Generate", "Expand", "MapInPandas", "FlatMapGroupsInPandas", "MapPartitions"),
    K.AGGREGATE: (
        "HashAggregate", "SortAggregate", "ObjectHashAggregate", "GpuHashAggregate",
        "PhotonGroupingAgg", "PhotonAgg", "HashAggregateExecTransformer", "AggregateInPandas",
        "RegularHashAggregateExecTransformer", "CometHashAggregate",
    ),
    K.SORT: ("Sort", "GpuSort", "PhotonSort", "SortExecTransformer"),
    K.TOPK: ("TakeOrderedAndProject", "CollectLimit", "GlobalLimit", "LocalLimit", "PhotonTopK",
             "CollectTail"),
    K.JOIN: (
        "SortMergeJoin", "BroadcastHashJoin", "ShuffledHashJoin", "GpuShuffledHashJoin",
        "PhotonBroadcastHashJoin", "ShuffledHashJoinExecTransformer", "CoGroup",
        "BroadcastHashJoin LeftOuter BuildRight", "SortMergeJoin(skew=true)",
        "ShuffledHashJoin(skew=true)",
    ),
    K.CROSS: ("CartesianProduct", "BroadcastNestedLoopJoin", "GpuBroadcastNestedLoopJoin"),
    K.UNION: ("Union", "GpuUnion", "PhotonUnion"),
    K.SAMPLE: ("Sample", "GpuSample"),
    K.EXCHANGE: (
        "Exchange", "BroadcastExchange", "GpuShuffleExchange", "ColumnarExchange", "AQEShuffleRead",
        "CustomShuffleReader", "Coalesce", "Subquery", "SubqueryBroadcast", "GpuShuffleCoalesce",
        "PhotonShuffleExchangeSink", "PhotonShuffleExchangeSource", "GpuCoalesceBatches",
        "ColumnarBroadcastExchange", "GpuCustomShuffleReader",
    ),
    K.WINDOW: ("Window", "WindowInPandas", "GpuRunningWindow", "WindowGroupLimit", "PhotonWindow"),
    K.SINK: (
        "WriteFiles", "Execute InsertIntoHadoopFsRelationCommand", "AppendData",
        "Execute CreateDataSourceTableAsSelectCommand", "AtomicReplaceTableAsSelect",
        "OverwriteByExpression", "Execute SaveIntoDataSourceCommand", "PhotonParquetWriter",
    ),
    K.COMMAND: (
        "Execute CreateViewCommand", "ShowTables", "Execute SetCatalogCommand", "DescribeTable",
        "Execute DropTableCommand", "ShowNamespaces", "Execute AddJarsCommand",
    ),
    None: (
        "WholeStageCodegen (17)", "InputAdapter", "AdaptiveSparkPlan", "ShuffleQueryStage",
        "BroadcastQueryStage", "ReusedExchange", "ReusedSubquery", "ResultQueryStage",
        "TableCacheQueryStage", "PhotonResultStage", "WholeStageCodegenTransformer (3)",
        "PhotonShuffleMapStage", "PhotonWriteStage", "InputIteratorTransformer",
    ),
    K.OTHER: ("Frobnicate", "", "🤷"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"), [(k, name) for k, names in NAMES.items() for name in names]
)
def test_spark_operator_names_map_to_operator_kinds(kind: OperatorKind | None, name: str) -> None:
    assert parse_name(name).kind is kind


@given(st.text(max_size=400))
def test_any_operator_name_has_a_kind_or_none(name: str) -> None:
    assert parse_name(name).kind in {None, *OperatorKind}


def test_grouping_kind_distinguishes_aggregate_global_aggregate_and_distinct() -> None:
    assert grouping_kind("HashAggregate(keys=[k#1], functions=[sum(x#2)])") is K.AGGREGATE
    assert grouping_kind("HashAggregate(keys=[], functions=[sum(x#2)])") is K.GLOBAL_AGGREGATE
    assert grouping_kind("HashAggregate(keys=[k#1], functions=[])") is K.DISTINCT
    assert grouping_kind("") is K.AGGREGATE


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("BatchEvalPython", RUNS_PYTHON),
        ("ArrowEvalPython", RUNS_PYTHON),
        ("FlatMapGroupsInPandas", RUNS_PYTHON),
        ("MapInArrow", RUNS_PYTHON),
        ("Scan csv ", PARSES_TEXT),
        ("FileScan json", PARSES_TEXT),
        ("Scan text secret", PARSES_TEXT),
        ("Scan parquet json", 0),
        ("Project", 0),
    ],
)
def test_steps_of_operator_name_detects_python_and_text_parsing(name: str, steps: int) -> None:
    assert parse_name(name).code_steps == steps


def test_limit_of_reads_row_limits() -> None:
    assert limit_of("CollectLimit 21") == 21
    assert limit_of("GpuGlobalLimit 5") == 5
    assert limit_of("TakeOrderedAndProject(limit=100, orderBy=[a#1])") == 100
    assert limit_of("CollectLimit 99999999999999999999") is not None
    assert limit_of("Sort [a#1 ASC]") is None
