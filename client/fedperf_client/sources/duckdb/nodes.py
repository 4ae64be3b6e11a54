"""The operators of a profile as it has them, with the figures of its schema checked.

Where a family of versions writes what is its `ProfileSchema`. A value that is missing is None or 0;
one that is there is a finite number of at least 0. Physical operators have the names of versions
0.10 to 2.0 (`PhysicalOperatorType`, and what older profiles print instead); a name that is not in
`KINDS` does something else: `OperatorKind.OTHER`.

Refused: operators that are no objects or have no name, more of their rows than a plan may have,
anything else where a number belongs, negative or infinite numbers, and counts that are more than
there can be. The reason never holds a value.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import MAX_ROWS, PARSES_TEXT, OperatorKind

_MAX_COUNT = 2**53

_Path = tuple[str, ...]


class InvalidProfileError(InvalidInputError):
    """Not the profile of a query."""


@dataclass(frozen=True, slots=True)
class ProfileSchema:
    """Where a family of versions writes what; empty where it does not."""

    source: str
    top: str
    kind: _Path
    rows: str
    timing: str
    wall: _Path
    size: str = ""
    cpu: _Path = ()
    memory: _Path = ()
    read: _Path = ()
    written: _Path = ()
    scanned: str = ""
    row_groups: str = ""
    all_row_groups: str = ""
    counts_scanned_rows: bool = False


_SINCE_2 = ProfileSchema(
    source="duckdb 2.x",
    top="operator",
    kind=("type",),
    rows="intermediate_rows",
    size="intermediate_size_bytes",
    timing="timing",
    wall=("query", "total_time"),
    cpu=("query", "cpu_time"),
    memory=("system", "peak_buffer_memory"),
    read=("io", "total_bytes_read"),
    written=("io", "total_bytes_written"),
    scanned="rows_scanned",
    row_groups="row_groups_scanned",
    all_row_groups="total_row_groups_to_scan",
    counts_scanned_rows=True,
)
_SINCE_1_1 = ProfileSchema(
    source="duckdb 1.x",
    top="children",
    kind=("operator_type", "operator_name"),
    rows="operator_cardinality",
    size="result_set_size",
    timing="operator_timing",
    wall=("latency",),
    cpu=("cpu_time",),
    memory=("system_peak_buffer_memory",),
    read=("total_bytes_read",),
    written=("total_bytes_written",),
    scanned="operator_rows_scanned",
)
_BEFORE_1_1 = ProfileSchema(
    source="duckdb 1.0 or older",
    top="children",
    kind=("name",),
    rows="cardinality",
    timing="timing",
    wall=("timing",),
)


def schema_of(content: Mapping[str, object]) -> ProfileSchema:
    """The schema that a profile is written in."""
    if isinstance(content.get("operator"), list):
        return _SINCE_2
    if "extra-info" in content or "timings" in content:
        return _BEFORE_1_1
    return _SINCE_1_1


def value_at(content: Mapping[str, object], path: _Path) -> object:
    """What stands at the path; None where nothing does."""
    found: object = content if path else None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def number_of(value: object, what: str) -> float | None:
    """The value as a number; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidProfileError(f"{what}: not a number")
    if not 0 <= value <= sys.float_info.max:
        raise InvalidProfileError(f"{what}: negative or not finite")
    return float(value)


def count_of(value: object, what: str) -> int:
    """The value as a whole number; 0 where there is none."""
    number = number_of(value, what) or 0.0
    if not number <= _MAX_COUNT:
        raise InvalidProfileError(f"{what}: more than there can be")
    return int(number)


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


_TEXT = re.compile(r"(?:READ_)?(?:CSV|JSON|NDJSON|TEXT)")
_DIGITS = 15
_FILE_NOTES = ("Filename(s)", "Total Files Read", "Scanning Files")


@dataclass(frozen=True, slots=True)
class ProfileNode:
    """An operator as the profile has it; None where it does not say.

    Attributes:
        name: in capitals.
        rows: that came out.
        size: bytes of these rows.
        seconds: spent in it, over all threads.
        scanned: rows that it read from a table or files, or announced, see `scans`.
        row_groups: of these that it read.
        all_row_groups: of these that there are.
        label: as people read it.
        is_idle: whether it had time and rows to tell, and they are all 0.
        notes: texts and lists of texts; only some of their keys are looked at.
        children: what it reads from, still as JSON.
    """

    name: str
    rows: float | None
    size: float | None
    seconds: float
    scanned: float | None
    row_groups: float | None
    all_row_groups: float | None
    label: str
    is_idle: bool
    notes: Mapping[str, object]
    children: Sequence[object]

    @property
    def kind(self) -> OperatorKind:
        """What it does."""
        kind = KINDS.get(self.name, OperatorKind.OTHER)
        if kind is OperatorKind.TABLE_SOURCE and any(each in self.notes for each in _FILE_NOTES):
            return OperatorKind.FILE_SOURCE
        is_file = KINDS.get(self.function) is OperatorKind.FILE_SOURCE
        return OperatorKind.FILE_SOURCE if kind is OperatorKind.TABLE_SOURCE and is_file else kind

    @property
    def code_steps(self) -> int:
        """Of a source that parses text."""
        return PARSES_TEXT if _TEXT.match(self.function or self.name) else 0

    @property
    def columns(self) -> int:
        """That it takes from a table or file."""
        names = self.notes.get("Projections")
        return len(names) if isinstance(names, list) else int(bool(names))

    @property
    def function(self) -> str:
        """The function that scans, in capitals; empty for tables of DuckDB's own."""
        return _plain(self.note("Function"))

    @property
    def filters(self) -> tuple[str, ...]:
        """That it applies to what it scans."""
        filters = self.notes.get("Filters", ())
        return tuple(map(str, filters)) if isinstance(filters, list | tuple) else (str(filters),)

    @property
    def estimate(self) -> int:
        """Rows that were expected before it ran; 0 where nothing tells."""
        text = self.note("Estimated Cardinality")
        return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0

    def note(self, key: str) -> str:
        """The text of a note, empty where there is none."""
        value = self.notes.get(key)
        return value if isinstance(value, str) else ""


def node_of(content: object, schema: ProfileSchema) -> ProfileNode:
    """The operator that a part of a profile describes, without what it reads from."""
    if not isinstance(content, dict):
        raise InvalidProfileError("an operator is not an object")
    name = next((content[key] for key in schema.kind if content.get(key)), None)
    if not isinstance(name, str):
        raise InvalidProfileError("an operator without a name")
    notes, children = content.get("extra_info"), content.get("children", [])
    if not isinstance(children, list):
        raise InvalidProfileError("an operator's children are no list")
    rows = number_of(content.get(schema.rows), "rows")
    seconds = number_of(content.get(schema.timing), "the time of an operator")
    scanned = number_of(content.get(schema.scanned), "scanned rows")
    label = content.get("operator_name")
    return ProfileNode(
        name=_plain(name),
        rows=None if rows is None else limited_rows(rows),
        size=number_of(content.get(schema.size), "bytes"),
        seconds=seconds or 0.0,
        scanned=scanned,
        row_groups=number_of(content.get(schema.row_groups), "row groups"),
        all_row_groups=number_of(content.get(schema.all_row_groups), "row groups"),
        label=label if isinstance(label, str) else "",
        is_idle=seconds == 0 and rows == 0 and not scanned,
        notes=notes if isinstance(notes, dict) else {},
        children=children,
    )


def limited_rows(rows: float) -> float:
    """The rows, refused where they are more than a plan may have."""
    if not rows <= MAX_ROWS:
        raise InvalidProfileError(f"more than {MAX_ROWS:g} rows")
    return rows


def _plain(name: str) -> str:
    return name.strip().upper()
