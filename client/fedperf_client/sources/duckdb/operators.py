"""The physical operators of DuckDB and what they do, in the words of the vocabulary.

Names of versions 0.10 to 2.0 (`PhysicalOperatorType`, and what older profiles print
instead). A name that is not here does something else: `OperatorKind.OTHER`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fedperf_shared.workflow.vocabulary import OperatorKind

EXPLAINED = "EXPLAIN_ANALYZE"
"""Stands around a query that its user asked to explain by running it."""

PASSING = frozenset({"RESULT_COLLECTOR", EXPLAINED})
"""Hand on what they get, and stand around a query in some versions and statements only."""

INVALID = "INVALID"
"""Stands where a query ended before its operators were known."""

CTE = "CTE"
"""Runs its first input once and lets scans of it in its second input read the result."""

CTE_SCAN = "CTE_SCAN"

_NAMES: Mapping[OperatorKind, str] = {
    OperatorKind.TABLE_SOURCE: (
        "TABLE_SCAN SEQ_SCAN INDEX_SCAN DUMMY_SCAN EMPTY_RESULT COLUMN_DATA_SCAN CHUNK_SCAN "
        "EXPRESSION_SCAN DELIM_SCAN CTE_SCAN RECURSIVE_CTE_SCAN REC_CTE_SCAN "
        "RECURSIVE_RECURRING_CTE_SCAN REC_REC_CTE_SCAN RANGE GENERATE_SERIES ARROW_SCAN "
        "PANDAS_SCAN PYTHON_ARROW_SCAN"
    ),
    OperatorKind.FILE_SOURCE: (
        "READ_PARQUET PARQUET_SCAN READ_CSV READ_CSV_AUTO READ_JSON READ_JSON_AUTO "
        "READ_NDJSON READ_NDJSON_AUTO READ_JSON_OBJECTS READ_NDJSON_OBJECTS READ_TEXT "
        "READ_BLOB READ_DUCKDB ICEBERG_SCAN DELTA_SCAN"
    ),
    OperatorKind.MAP: "PROJECTION PIVOT",
    OperatorKind.FILTER: "FILTER LIMIT STREAMING_LIMIT LIMIT_PERCENT",
    OperatorKind.FLATMAP: "UNNEST INOUT_FUNCTION",
    OperatorKind.AGGREGATE: (
        "HASH_GROUP_BY PERFECT_HASH_GROUP_BY PARTITIONED_AGGREGATE SORT_GROUP_BY"
    ),
    OperatorKind.GLOBAL_AGGREGATE: "UNGROUPED_AGGREGATE SIMPLE_AGGREGATE AGGREGATE",
    OperatorKind.DISTINCT: "DISTINCT",
    OperatorKind.SORT: "ORDER_BY",
    OperatorKind.TOPK: "TOP_N",
    OperatorKind.JOIN: (
        "HASH_JOIN NESTED_LOOP_JOIN BLOCKWISE_NL_JOIN PIECEWISE_MERGE_JOIN IE_JOIN INDEX_JOIN "
        "ASOF_JOIN POSITIONAL_JOIN POSITIONAL_SCAN DELIM_JOIN LEFT_DELIM_JOIN RIGHT_DELIM_JOIN "
        "RECURSIVE_KEY_JOIN RECURSIVE_PARTIAL_KEY_JOIN"
    ),
    OperatorKind.CROSS: "CROSS_PRODUCT",
    OperatorKind.UNION: "UNION",
    OperatorKind.SAMPLE: "RESERVOIR_SAMPLE STREAMING_SAMPLE",
    OperatorKind.WINDOW: "WINDOW STREAMING_WINDOW",
    OperatorKind.SINK: (
        "INSERT BATCH_INSERT UPDATE DELETE DELETE_OPERATOR MERGE_INTO CREATE_TABLE_AS "
        "BATCH_CREATE_TABLE_AS COPY_TO_FILE BATCH_COPY_TO_FILE EXPORT EXPORT_EXTERNAL_FILE"
    ),
    OperatorKind.COMMAND: (
        "CREATE CREATE_TABLE CREATE_INDEX CREATE_SEQUENCE CREATE_VIEW CREATE_SCHEMA "
        "CREATE_MACRO CREATE_TYPE CREATE_SECRET CREATE_TRIGGER ALTER DROP PRAGMA TRANSACTION "
        "ATTACH DETACH EXPLAIN EXECUTE PREPARE VACUUM SET SET_VARIABLE RESET LOAD "
        "UPDATE_EXTENSIONS COPY_DATABASE"
    ),
    OperatorKind.OTHER: "RECURSIVE_CTE REC_CTE RECURSIVE_KEY_CTE REC_KEY_CTE VERIFY_VECTOR",
}

KINDS: Mapping[str, OperatorKind] = MappingProxyType(
    {name: kind for kind, names in _NAMES.items() for name in names.split()}
)
"""The kind of every operator that is known by name."""
