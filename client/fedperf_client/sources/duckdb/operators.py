"""Operators of a DuckDB profile, and the rows that its scans read.

`ProfileSchema` defines where a family of versions writes each value. A missing value is None or 0;
a value that is there is a finite number of at least 0. Operators have the names of versions 0.10 to
2.0 (`PhysicalOperatorType`, and what older profiles print instead). Unknown names are `OTHER`.
Errors name what is wrong but never hold a value.

DuckDB 1.1 to 1.4, and 1.5 for files, do not count the rows that a scan read. They add the rows that
the table announces once for every thread that took part: `scanned = threads * announced`. The
announced rows follow where only one number fits:

- `Estimated Cardinality` is the announced number if nothing filters, and a fifth of it if filters
  have no statistics. Tables before 2.0 have statistics for equality, files have none; 2.0 has them
  for both. Then the estimate is the announced number divided by distinct values, which decides
  nothing by itself;
- no table gives work to more threads than it has row groups, and no scan returns more rows than
  were announced;
- the same table was read as a whole elsewhere: in this profile, or in another one.

The announced rows are those of a table, or of one file. Of several files they are an estimate (the
first one's times their number), which only a count of the same files corrects. DuckDB 1.5 counts
the rows that were read of tables, 2.0 too; of files 2.0 only counts row groups.

Decided means at most 1 % apart. Everything else stays a range: scans that a LIMIT or an empty join
may end early, those that recursion repeats, and numbers that fit twice.
"""

import hashlib
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fedperf_client.sources import RowCount, RowCounts
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import MAX_ROWS, PARSES_TEXT, OperatorKind

_MAX_COUNT = 2**53

_Path = tuple[str, ...]


class InvalidProfileError(InvalidInputError):
    """Raised when JSON is not the profile of a query."""


@dataclass(frozen=True, slots=True)
class ProfileSchema:
    """The places of values in a family of versions; empty for values that it does not write."""

    source: str
    top: str
    kind: _Path
    rows: str
    timing: str
    wall: _Path
    text: _Path
    size: str = ""
    cpu: _Path = ()
    memory: _Path = ()
    read_bytes: _Path = ()
    written_bytes: _Path = ()
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
    text=("query", "sql"),
    cpu=("query", "cpu_time"),
    memory=("system", "peak_buffer_memory"),
    read_bytes=("io", "total_bytes_read"),
    written_bytes=("io", "total_bytes_written"),
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
    text=("query_name",),
    cpu=("cpu_time",),
    memory=("system_peak_buffer_memory",),
    read_bytes=("total_bytes_read",),
    written_bytes=("total_bytes_written",),
    scanned="operator_rows_scanned",
)
_BEFORE_1_1 = ProfileSchema(
    source="duckdb 1.0 or older",
    top="children",
    kind=("name",),
    rows="cardinality",
    timing="timing",
    wall=("timing",),
    text=("extra-info",),
)


def schema_of(content: Mapping[str, object]) -> ProfileSchema:
    """Return the schema that a profile is written in."""
    if isinstance(content.get("operator"), list):
        return _SINCE_2
    if "extra-info" in content or "timings" in content:
        return _BEFORE_1_1
    return _SINCE_1_1


def value_at(content: Mapping[str, object], path: _Path) -> object:
    """Return the value at a path; None if there is none."""
    value: object = content if path else None
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number_of(value: object, what: str) -> float | None:
    """Return a value as a number; None if it is missing."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidProfileError(f"{what}: not a number")
    if not 0 <= value <= sys.float_info.max:
        raise InvalidProfileError(f"{what}: negative or not finite")
    return float(value)


def count_of(value: object, what: str) -> int:
    """Return a value as a whole number; 0 if it is missing."""
    number = number_of(value, what) or 0.0
    if not number <= _MAX_COUNT:
        raise InvalidProfileError(f"{what}: more than there can be")
    return int(number)


EXPLAINED = "EXPLAIN_ANALYZE"  # the operator around a query that `EXPLAIN ANALYZE` runs
# Operators that pass on their input, around a query in some versions and statements only.
PASSING = frozenset({"RESULT_COLLECTOR", EXPLAINED})

INVALID = "INVALID"  # the operator of a query that ended before its operators were planned
CTE = "CTE"  # the operator that runs its first input once, for the scans of it in its second input
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

# The kind of every operator, by name.
KINDS: Mapping[str, OperatorKind] = MappingProxyType(
    {name: kind for kind, names in _NAMES.items() for name in names.split()}
)


_TEXT = re.compile(r"(?:READ_)?(?:CSV|JSON|NDJSON|TEXT)")
_DIGITS = 15
_FILE_NOTES = ("Filename(s)", "Total Files Read", "Scanning Files")


@dataclass(frozen=True, slots=True)
class ProfileNode:
    """An operator of a profile; None for what the profile does not have."""

    name: str  # in capitals
    rows: float | None  # rows of its output
    size: float | None  # bytes of these rows
    seconds: float  # its time, over all threads
    # Rows that it read from a table or files, or that were announced; see the module.
    scanned: float | None
    row_groups: float | None  # row groups that it read
    all_row_groups: float | None  # row groups of the table or files
    label: str  # for people
    is_idle: bool  # time and rows are there, and all 0
    notes: Mapping[str, object]  # texts and lists of texts, of which a few are used
    children: Sequence[object]  # its inputs, still as JSON

    @property
    def kind(self) -> OperatorKind:
        """The kind of operator."""
        kind = KINDS.get(self.name, OperatorKind.OTHER)
        if kind is OperatorKind.TABLE_SOURCE and any(each in self.notes for each in _FILE_NOTES):
            return OperatorKind.FILE_SOURCE
        is_file = KINDS.get(self.function) is OperatorKind.FILE_SOURCE
        return OperatorKind.FILE_SOURCE if kind is OperatorKind.TABLE_SOURCE and is_file else kind

    @property
    def code_steps(self) -> int:
        """Steps of code per row, for a source that parses text."""
        return PARSES_TEXT if _TEXT.match(self.function or self.name) else 0

    @property
    def columns(self) -> int:
        """Number of columns that it reads from a table or file."""
        names = self.notes.get("Projections")
        return len(names) if isinstance(names, list) else int(bool(names))

    @property
    def function(self) -> str:
        """The function that scans, in capitals; empty for DuckDB's own tables."""
        return _plain(self.note("Function"))

    @property
    def filters(self) -> tuple[str, ...]:
        """Filters of the scan."""
        filters = self.notes.get("Filters", ())
        return tuple(map(str, filters)) if isinstance(filters, list | tuple) else (str(filters),)

    @property
    def estimate(self) -> int:
        """Estimated rows; 0 if unknown."""
        text = self.note("Estimated Cardinality")
        return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0

    def note(self, key: str) -> str:
        """Return the text of a note, empty if there is none."""
        value = self.notes.get(key)
        return value if isinstance(value, str) else ""


def node_of(content: object, schema: ProfileSchema) -> ProfileNode:
    """Return the operator that a part of a profile describes, without its inputs."""
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
    """Return the rows, or raise if they are more than a plan may have."""
    if not rows <= MAX_ROWS:
        raise InvalidProfileError(f"more than {MAX_ROWS:g} rows")
    return rows


def _plain(name: str) -> str:
    return name.strip().upper()


ROW_GROUP_ROWS = 122_880  # rows of a row group, as DuckDB writes tables and Parquet
_DECIDED = 1.01
_MOST_THREADS = 64  # threads that are assumed to scan one file without other evidence
# Factor that several files may have changed by, if the first is as long as before.
_COUNT_WITHIN = 1.25

# Factor that the announced rows of several files are assumed to be right within.
_ESTIMATE_WITHIN = 8.0

_MOST = 1e15  # largest number that a profile may count of a scan
_TABLE_SCANS = frozenset({"TABLE_SCAN", "SEQ_SCAN", "INDEX_SCAN"})
_COLUMN_FILES = frozenset(
    {"READ_PARQUET", "PARQUET_SCAN", "DELTA_SCAN", "ICEBERG_SCAN", "DUCKLAKE_SCAN"}
)
_LIMITS = frozenset({"LIMIT", "STREAMING_LIMIT", "LIMIT_PERCENT"})
_RECURSIONS = frozenset({"RECURSIVE_CTE", "REC_CTE", "RECURSIVE_KEY_CTE", "REC_KEY_CTE"})
# Operators with rows that profiles do not count.
_UNCOUNTED = frozenset({"DELIM_SCAN", "DUMMY_SCAN"})

# Operators that read all rows before they return the first.
_WANTS_ALL = frozenset(
    {
        OperatorKind.AGGREGATE,
        OperatorKind.GLOBAL_AGGREGATE,
        OperatorKind.DISTINCT,
        OperatorKind.SORT,
        OperatorKind.TOPK,
    }
)

_OPTIONAL = "optional:"
_EQUALITY = re.compile(r"(?<![<>!=])=(?!=)|\bIN\b|\bIS\b(?!\s+NOT\s+NULL)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The range of the rows of a source."""

    low: float  # least rows
    high: float  # most rows
    is_known: bool  # whether they are decided

    @property
    def rows(self) -> float:
        """The geometric middle."""
        return self.high if self.is_known else math.sqrt(max(self.low, 1.0) * self.high)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of a table or of files."""

    place: str  # digest of the name of what it reads; empty if the profile does not name it
    returned: float  # rows of its output
    scanned: float  # announced rows times threads, or rows that were read
    estimate: int  # `Estimated Cardinality`; 0 if there is none
    filters: tuple[str, ...]  # of the scan, one text per column
    is_table: bool  # it reads one of DuckDB's own tables, otherwise files
    is_single: bool | None  # it reads one file, or a table; None if unknown
    counts: bool = False  # `scanned` is the number of rows that were read
    is_since_2: bool = False  # of DuckDB 2.0 and later
    parts: int = 0  # row groups that were read; 0 if unknown
    all_parts: int = 0  # row groups of the table or files
    may_end_early: bool = False  # an operator above may stop it
    repeats: bool = False  # it runs more than once
    has_hidden_filter: bool = False  # a join or a sort above may have filtered it while it ran

    @property
    def is_whole(self) -> bool:
        """Return whether it returned all rows that it read."""
        return not self.filters and not self.has_hidden_filter


@dataclass(frozen=True, slots=True)
class Above:
    """The effect of the operators above a scan."""

    may_end_early: bool = False  # they may stop it
    may_idle: bool = False  # they may not read it at all
    repeats: bool = False  # they run it more than once
    joins: bool = False  # they may filter it while it runs, with what they read elsewhere

    def through(self, node: ProfileNode, empty: Collection[ProfileNode]) -> "Above":
        """Return the effect on an input of `node`, a join with `empty` other inputs."""
        ends = node.name in _LIMITS or any(each.name not in _UNCOUNTED for each in empty)
        wants_all = node.kind in _WANTS_ALL or node.name == "WINDOW"
        repeats = node.name in _RECURSIONS
        return Above(
            may_end_early=ends or (self.may_end_early and not wants_all),
            may_idle=self.may_idle or ends or repeats or bool(empty),
            repeats=self.repeats or repeats,
            joins=self.joins or is_join(node) or node.kind is OperatorKind.TOPK,
        )


def is_join(node: ProfileNode) -> bool:
    """Return whether an operator is a join."""
    return node.kind in (OperatorKind.JOIN, OperatorKind.CROSS)


def to_scan(node: ProfileNode, above: Above, schema: ProfileSchema) -> Scan | None:
    """Return a node as a scan of DuckDB's own tables or of columnar files; None for others."""
    is_plain = node.name in _TABLE_SCANS and not node.function
    is_file = node.kind is OperatorKind.FILE_SOURCE and (
        is_plain or node.function in _COLUMN_FILES or node.name in _COLUMN_FILES
    )
    is_own = is_plain and not is_file
    table = node.note("Text") or node.note("Table")  # of 1.1, of others
    is_qualified = node.label == "SEQ_SCAN" and table.count(".") >= 2  # noqa: PLR2004 (1.5)
    is_since_1_5 = "Filename(s)" in node.notes or is_qualified
    counts = is_own and (schema.counts_scanned_rows or is_since_1_5)
    is_announced = is_own and bool(node.note("Text") or node.note("Type") == "Sequential Scan")
    is_table = counts or is_announced
    if node.rows is None or not schema.scanned or not (is_file or is_table):
        return None
    files = node.note("Total Files Read")  # missing in 1.1 and 1.2
    name = table if is_table else node.note("Filename(s)") or ("" if files else "a file")
    has_notes = schema.counts_scanned_rows or is_since_1_5
    return Scan(
        place=hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32] if name else "",
        returned=node.rows,
        scanned=min(node.scanned or 0.0, _MOST),
        estimate=node.estimate,
        filters=node.filters,
        is_table=is_table,
        is_single=is_table or _is_single(node),
        counts=counts,
        is_since_2=schema.counts_scanned_rows,
        parts=int(min(node.row_groups or 0, _MOST)),
        all_parts=int(min(node.all_row_groups or 0, _MOST)),
        may_end_early=above.may_end_early,
        repeats=above.repeats,
        has_hidden_filter="Dynamic Filters" in node.notes if has_notes else above.joins,
    )


def _is_single(node: ProfileNode) -> bool | None:
    """Return whether a scan of files reads one file; None if unknown, as in 1.1 and 1.2."""
    if "File Filters" in node.notes or not node.note("Function"):
        return False
    files = node.note("Total Files Read")
    return files == "1" if files or "Filename(s)" in node.notes else None


def whole_count(scan: Scan) -> RowCount | None:
    """Return the row count of a whole table or of files; None if the scan does not show it."""
    if scan.counts or scan.may_end_early or scan.repeats or not scan.place:
        return None
    announced = set(_announced(scan))
    if scan.is_whole and scan.is_since_2:
        announced = {scan.estimate} if scan.parts == scan.all_parts else set()
    returned = int(scan.returned)
    if not scan.filters and returned in announced:
        announced = {returned}
    if not announced or max(announced) > min(announced) * _DECIDED:
        return None
    most = max(announced)
    parts = scan.all_parts if scan.is_since_2 else int(scan.scanned) // most
    if scan.is_whole and returned and not scan.is_single:
        return RowCount(scan.place, most, returned, parts)
    if scan.is_whole and not most <= returned * _DECIDED <= most * _DECIDED**2:
        return None  # a sample, an index scan, or rows that were deleted or not stored yet
    return RowCount(scan.place, most, most, parts) if scan.is_single else None


def rows_read(scan: Scan, counts: RowCounts) -> RowRange:
    """Return the rows that a scan read, or their range."""
    if scan.is_whole:
        return _known(scan.returned)
    if scan.counts:
        return _known(max(scan.returned, scan.scanned))
    if scan.repeats:
        return RowRange(scan.returned, max(scan.returned, scan.scanned), is_known=False)
    sizes = _sizes(scan, counts(scan.place) if scan.place else ())
    if scan.may_end_early:
        most = max(scan.returned, scan.scanned, 5 * scan.estimate)
        return RowRange(scan.returned, most, is_known=False)
    sizes = [(low, high) for low, high in sizes if high >= scan.returned]
    if not sizes:
        return _by_parts(scan) if scan.is_since_2 else _by_threads(scan)
    low, high = min(low for low, _ in sizes), max(high for _, high in sizes)
    if 0 < scan.parts < scan.all_parts:  # all row groups but the last have equally many rows
        low *= (scan.parts - 1) / scan.all_parts
        high *= min(1.0, scan.parts / (scan.all_parts - 1))
    return RowRange(max(low, scan.returned), high, is_known=high <= low * _DECIDED)


def _sizes(scan: Scan, counts: Collection[RowCount]) -> list[tuple[float, float]]:
    """Return possible ranges of the rows of a table, one per announced number that fits."""
    parts = {scan.all_parts} if scan.is_since_2 else {each.parts for each in counts}
    fitting = [each for each in counts if _fits(scan, each, parts)]
    if fitting:
        return [_size_of(scan, each) for each in fitting]
    announced = list(_announced(scan))
    is_exact = scan.is_single
    if scan.is_single is None and counts:  # as exact as all counted files
        is_exact = all(each.counted == each.announced for each in counts) and all(
            scan.scanned <= each * _row_groups(each) for each in announced
        )
    if is_exact:
        return [(each, each) for each in announced]
    width = _ESTIMATE_WITHIN
    return [(each / width, max(each, scan.returned) * width) for each in announced]


def _size_of(scan: Scan, count: RowCount) -> tuple[float, float]:
    """Return the range of the rows of a table or of files that follows from a count."""
    low, high = sorted((count.announced, count.counted))
    if scan.is_single or (scan.is_single is None and low == high):
        return low, high  # different if rows were deleted
    return count.counted / _COUNT_WITHIN, count.counted * _COUNT_WITHIN


def _announced(scan: Scan) -> Iterator[int]:
    """Yield every announced number that explains the estimate and the scanned rows."""
    estimate = scan.estimate
    if estimate < 1 or (_has_equality(scan) and (scan.is_table or scan.is_since_2)):
        return
    binding = _binding(scan)
    numbers = set[int]() if binding else {estimate}
    if binding or _mixed(scan) or not scan.is_since_2:  # 1.x drops filters that are always true
        numbers |= {
            each for each in range(5 * estimate - 4, 5 * estimate + 5) if _fifth(each, estimate)
        }
    yield from sorted(each for each in numbers if _threads(scan, each) is not None)


def _fifth(announced: int, estimate: int) -> bool:
    return announced >= 1 and max(int(announced * 0.2), 1) == estimate


def _threads(scan: Scan, announced: int) -> int | None:
    """Return the threads that explain the scanned rows; None if none do, 1 if they do not count."""
    if announced < max(scan.returned if scan.is_single else 1, 1):
        return None
    if scan.is_since_2:
        return 1
    threads, rest = divmod(int(scan.scanned), announced)
    most = _row_groups(announced) if scan.is_table else int(scan.scanned)
    return threads if rest == 0 and 1 <= threads <= most else None


def _row_groups(rows: int) -> int:
    """Return the most threads that a table of so many rows keeps busy."""
    return rows // ROW_GROUP_ROWS + 1


def _fits(scan: Scan, count: RowCount, parts: Collection[int]) -> bool:
    """Return whether a scan may have read what was counted, in as many parts as were seen there.

    Otherwise a table that has grown to twice its size would look as if two threads had read it.
    """
    threads = _threads(scan, count.announced)
    part_count = count.parts if scan.is_since_2 else threads
    if threads is None or part_count not in parts or count.counted < scan.returned:
        return False
    estimate, announced = scan.estimate, count.announced
    if estimate < 1:
        return not scan.is_since_2
    if _fifth(announced, estimate) or (announced == estimate and not _binding(scan)):
        return True
    if not (_has_equality(scan) and (scan.is_table or scan.is_since_2)):
        return False
    near = announced // estimate
    off = 6.0 if scan.is_since_2 else 1.0  # a fifth leaves four possible numbers
    return any(
        abs(announced - estimate * each) < each + off - 1.0 for each in (near, near + 1) if each
    )


def _binding(scan: Scan) -> list[str]:
    """Return the filters that the estimate takes into account, without optional ones."""
    return [each for each in scan.filters if _OPTIONAL not in each]


def _mixed(scan: Scan) -> list[str]:
    """Return the filters of one column that the estimate may partly take into account."""
    return [each for each in scan.filters if _OPTIONAL in each and " AND " in each]


def _has_equality(scan: Scan) -> bool:
    return any(_EQUALITY.search(each) for each in _binding(scan) + _mixed(scan))


def _by_threads(scan: Scan) -> RowRange:
    high = scan.scanned
    if high < max(scan.returned, 1.0):  # nothing was announced
        high = max(scan.returned, 5 * scan.estimate)
        return RowRange(scan.returned, high, is_known=False)
    low = _least_of(high) if scan.is_table else high / _MOST_THREADS
    low = max(low, scan.returned, min(scan.estimate, high))
    is_known = scan.is_table and _least_of(high) == high
    return RowRange(low, high, is_known=is_known)


def _least_of(scanned: float) -> float:
    """Return the rows of the smallest table that as many threads as its row groups scanned."""
    return scanned / int((1 + math.sqrt(1 + 4 * scanned / ROW_GROUP_ROWS)) / 2)


def _by_parts(scan: Scan) -> RowRange:
    if not scan.parts and scan.all_parts:
        return _known(scan.returned)
    high = max(scan.parts * ROW_GROUP_ROWS, scan.returned)
    low = (scan.parts - 1) * ROW_GROUP_ROWS + 1 if scan.is_single else high / _ESTIMATE_WITHIN
    return RowRange(min(max(low, scan.returned, 1.0), high), high, is_known=False)


def _known(rows: float) -> RowRange:
    return RowRange(rows, rows, is_known=True)
