"""The operators of a profile as it has them, with the figures of its schema checked.

Where a family of versions writes what is its `ProfileSchema`. A value that is missing is None or 0;
one that is there is a finite number of at least 0. Physical operators have the names of versions
0.10 to 2.0 (`PhysicalOperatorType`, and what older profiles print instead); a name that is not in
`KINDS` does something else: `OperatorKind.OTHER`.

Refused: operators that are no objects or have no name, more of their rows than a plan may have,
anything else where a number belongs, negative or infinite numbers, and counts that are more than
there can be. The reason never holds a value.

Rows that a scan of a profile looked at, from what the profile and others tell.

DuckDB 1.1 to 1.4, and 1.5 for files, do not count them. They add up, once for every thread
that took part, how many rows the table announces, so that `scanned = threads * announced`.
The announced rows follow where only one number fits:

- `Estimated Cardinality` is the announced number itself where nothing filters, and a fifth of
  it where filters have no statistics. Tables before 2.0 have them for equality, files have
  not; 2.0 has them for both. Then the estimate is the announced number divided by distinct
  values, which decides nothing by itself;
- no table gives threads more work than it has row groups, and no scan returns more rows than
  were announced;
- the same table was read as a whole elsewhere: in this profile, or in another one of the home.

The announced rows are those of a table, and of one file. Of several files they are an
estimate (the first one's times their number), which only a count of the same files corrects.
DuckDB 1.5 counts what it looked at in tables, 2.0 too; of files 2.0 counts row groups alone.

Decided means at most 1 % apart. Whatever leaves a doubt stays a range: scans that a LIMIT or
an empty join may end early, those that recursion repeats, and numbers that fit twice.
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


ROW_GROUP_ROWS = 122_880
"""Of a row group, as DuckDB writes tables and Parquet."""

_DECIDED = 1.01
_MOST_THREADS = 64
"""That are taken to scan one file where nothing tells."""

_COUNT_WITHIN = 1.25
"""Factor that several files, of which the first is as long as before, may have changed by."""

_ESTIMATE_WITHIN = 8.0
"""Factor that the announced rows of several files are taken to be right within."""

_MOST = 1e15
"""Of anything that a profile counts of a scan."""

_TABLE_SCANS = frozenset({"TABLE_SCAN", "SEQ_SCAN", "INDEX_SCAN"})
_COLUMN_FILES = frozenset(
    {"READ_PARQUET", "PARQUET_SCAN", "DELTA_SCAN", "ICEBERG_SCAN", "DUCKLAKE_SCAN"}
)
_LIMITS = frozenset({"LIMIT", "STREAMING_LIMIT", "LIMIT_PERCENT"})
_RECURSIONS = frozenset({"RECURSIVE_CTE", "REC_CTE", "RECURSIVE_KEY_CTE", "REC_KEY_CTE"})
_UNCOUNTED = frozenset({"DELIM_SCAN", "DUMMY_SCAN"})
"""Hand on rows that profiles do not count."""

_WANTS_ALL = frozenset(
    {
        OperatorKind.AGGREGATE,
        OperatorKind.GLOBAL_AGGREGATE,
        OperatorKind.DISTINCT,
        OperatorKind.SORT,
        OperatorKind.TOPK,
    }
)
"""Read all rows before they hand on the first."""

_OPTIONAL = "optional:"
_EQUALITY = re.compile(r"(?<![<>!=])=(?!=)|\bIN\b|\bIS\b(?!\s+NOT\s+NULL)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RowRange:
    """Between how many rows and how many a source has.

    Attributes:
        low: at least.
        high: at most.
        is_known: whether that is decided.
    """

    low: float
    high: float
    is_known: bool

    @property
    def rows(self) -> float:
        """The geometric middle."""
        return self.high if self.is_known else math.sqrt(max(self.low, 1.0) * self.high)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of a table or of files, as a profile has it.

    Attributes:
        place: digest of what it reads; empty where the profile does not name it.
        returned: rows that came out.
        scanned: as the profile has it: announced rows times threads, or what was looked at.
        estimate: `Estimated Cardinality`; 0 where there is none.
        filters: that the scan applies, one text for each column.
        is_table: of DuckDB's own, else files.
        is_single: whether it reads one file, or a table; None where nothing tells.
        counts: `scanned` is what was looked at.
        is_since_2: of DuckDB 2.0 and later.
        parts: row groups that were read; 0 where nothing tells.
        all_parts: row groups that there are.
        may_end_early: something above it may want no more rows.
        repeats: it runs more than once.
        has_hidden_filter: a join or a sort above may have filtered it while it ran.
    """

    place: str
    returned: float
    scanned: float
    estimate: int
    filters: tuple[str, ...]
    is_table: bool
    is_single: bool | None
    counts: bool = False
    is_since_2: bool = False
    parts: int = 0
    all_parts: int = 0
    may_end_early: bool = False
    repeats: bool = False
    has_hidden_filter: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all rows that it looked at came out."""
        return not self.filters and not self.has_hidden_filter


@dataclass(frozen=True, slots=True)
class Above:
    """What the operators above a scan do to it.

    Attributes:
        may_end_early: they may want no more rows.
        may_idle: they may want no row at all.
        repeats: they run it more than once.
        joins: they may filter it while it runs, with what they found elsewhere.
    """

    may_end_early: bool = False
    may_idle: bool = False
    repeats: bool = False
    joins: bool = False

    def through(self, node: ProfileNode, empty: Collection[ProfileNode]) -> "Above":
        """The same for an input of `node`, a join where others of its inputs are `empty`."""
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
    """Whether an operator joins what it reads."""
    return node.kind in (OperatorKind.JOIN, OperatorKind.CROSS)


def scan_of(node: ProfileNode, above: Above, schema: ProfileSchema) -> Scan | None:
    """A node as a scan of DuckDB's own tables or of files of columns; None for others."""
    is_plain = node.name in _TABLE_SCANS and not node.function
    is_file = node.kind is OperatorKind.FILE_SOURCE and (
        is_plain or node.function in _COLUMN_FILES or node.name in _COLUMN_FILES
    )
    is_own = is_plain and not is_file
    table = node.note("Text") or node.note("Table")  # of 1.1, of the others
    is_since_1_5 = "Filename(s)" in node.notes or _is_qualified(node, table)
    counts = is_own and (schema.counts_scanned_rows or is_since_1_5)
    is_announced = is_own and bool(node.note("Text") or node.note("Type") == "Sequential Scan")
    is_table = counts or is_announced
    if node.rows is None or not schema.scanned or not (is_file or is_table):
        return None
    files = node.note("Total Files Read")  # 1.1 and 1.2 do not tell
    name = table if is_table else node.note("Filename(s)") or ("" if files else "a file")
    tells = schema.counts_scanned_rows or is_since_1_5
    return Scan(
        place=place_of(name) if name else "",
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
        has_hidden_filter="Dynamic Filters" in node.notes if tells else above.joins,
    )


def _is_single(node: ProfileNode) -> bool | None:
    """Whether a scan of files reads one; None where nothing tells, as in 1.1 and 1.2."""
    if "File Filters" in node.notes or not node.note("Function"):
        return False
    files = node.note("Total Files Read")
    return files == "1" if files or "Filename(s)" in node.notes else None


def _is_qualified(node: ProfileNode, table: str) -> bool:
    """Whether a table has the name that 1.5 gives it, and its scan the label."""
    return node.label == "SEQ_SCAN" and table.count(".") >= 2  # noqa: PLR2004


def place_of(name: str) -> str:
    """The digest that stands for the name of a table or for paths of files."""
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]


def count_of_scan(scan: Scan) -> RowCount | None:
    """What a scan tells of its table or files as a whole; None where it does not."""
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
        return None  # a sample, rows by an index, or rows that were deleted or are not stored yet
    return RowCount(scan.place, most, most, parts) if scan.is_single else None


def rows_read(scan: Scan, counted: RowCounts) -> RowRange:
    """The rows that a scan looked at, or between how many and how many."""
    if scan.is_whole:
        return _known(scan.returned)
    if scan.counts:
        return _known(max(scan.returned, scan.scanned))
    if scan.repeats:
        return RowRange(scan.returned, max(scan.returned, scan.scanned), is_known=False)
    sizes = _sizes(scan, counted(scan.place) if scan.place else ())
    if scan.may_end_early:
        most = max(scan.returned, scan.scanned, 5 * scan.estimate)
        return RowRange(scan.returned, most, is_known=False)
    sizes = [(low, high) for low, high in sizes if high >= scan.returned]
    if not sizes:
        return _by_parts(scan) if scan.is_since_2 else _by_threads(scan)
    low, high = min(low for low, _ in sizes), max(high for _, high in sizes)
    if 0 < scan.parts < scan.all_parts:  # row groups are alike, but for the last one
        low *= (scan.parts - 1) / scan.all_parts
        high *= min(1.0, scan.parts / (scan.all_parts - 1))
    return RowRange(max(low, scan.returned), high, is_known=high <= low * _DECIDED)


def _sizes(scan: Scan, counts: Collection[RowCount]) -> list[tuple[float, float]]:
    """Ranges that the rows of its table may lie in, one for each announced number that fits."""
    parts = {scan.all_parts} if scan.is_since_2 else {each.parts for each in counts}
    fitting = [each for each in counts if _fits(scan, each, parts)]
    if fitting:
        return [_size_of(scan, each) for each in fitting]
    announced = list(_announced(scan))
    is_exact = scan.is_single
    if scan.is_single is None and counts:  # as all files that were counted, until one is not
        is_exact = all(each.counted == each.announced for each in counts) and all(
            scan.scanned <= each * _row_groups(each) for each in announced
        )
    if is_exact:
        return [(each, each) for each in announced]
    width = _ESTIMATE_WITHIN
    return [(each / width, max(each, scan.returned) * width) for each in announced]


def _size_of(scan: Scan, count: RowCount) -> tuple[float, float]:
    """Where a count says that the rows of a table or of files lie."""
    low, high = sorted((count.announced, count.counted))
    if scan.is_single or (scan.is_single is None and low == high):
        return low, high  # apart where rows were deleted
    return count.counted / _COUNT_WITHIN, count.counted * _COUNT_WITHIN


def _announced(scan: Scan) -> Iterator[int]:
    """Every announced number that explains the estimate and what was scanned."""
    estimate = scan.estimate
    if estimate < 1 or (_has_equality(scan) and (scan.is_table or scan.is_since_2)):
        return
    binding = _binding(scan)
    numbers = set[int]() if binding else {estimate}
    if binding or _mixed(scan) or not scan.is_since_2:  # 1.x forgets what is always true
        numbers |= {
            each for each in range(5 * estimate - 4, 5 * estimate + 5) if _fifth(each, estimate)
        }
    yield from sorted(each for each in numbers if _threads(scan, each) is not None)


def _fifth(announced: int, estimate: int) -> bool:
    return announced >= 1 and max(int(announced * 0.2), 1) == estimate


def _threads(scan: Scan, announced: int) -> int | None:
    """Threads that explain what was scanned; None where none do. 1 where they do not count."""
    if announced < max(scan.returned if scan.is_single else 1, 1):
        return None
    if scan.is_since_2:
        return 1
    threads, rest = divmod(int(scan.scanned), announced)
    most = _row_groups(announced) if scan.is_table else int(scan.scanned)
    return threads if rest == 0 and 1 <= threads <= most else None


def _row_groups(rows: int) -> int:
    """The most threads that a table of so many rows keeps busy."""
    return rows // ROW_GROUP_ROWS + 1


def _fits(scan: Scan, count: RowCount, parts: Collection[int]) -> bool:
    """Whether a scan may have read what was counted there, in as many parts as were seen there.

    Else a table that has grown to twice its size would look as if two threads had read it.
    """
    threads = _threads(scan, count.announced)
    seen = count.parts if scan.is_since_2 else threads
    if threads is None or seen not in parts or count.counted < scan.returned:
        return False
    estimate, announced = scan.estimate, count.announced
    if estimate < 1:
        return not scan.is_since_2
    if _fifth(announced, estimate) or (announced == estimate and not _binding(scan)):
        return True
    if not (_has_equality(scan) and (scan.is_table or scan.is_since_2)):
        return False
    near = announced // estimate
    off = 6.0 if scan.is_since_2 else 1.0  # a fifth tells the announced number but for four
    return any(
        abs(announced - estimate * each) < each + off - 1.0 for each in (near, near + 1) if each
    )


def _binding(scan: Scan) -> list[str]:
    """Filters that the estimate takes into account; optional ones it does not."""
    return [each for each in scan.filters if _OPTIONAL not in each]


def _mixed(scan: Scan) -> list[str]:
    """Filters of one column of which the estimate may take a part into account."""
    return [each for each in scan.filters if _OPTIONAL in each and " AND " in each]


def _has_equality(scan: Scan) -> bool:
    return any(_EQUALITY.search(each) for each in _binding(scan) + _mixed(scan))


def _by_threads(scan: Scan) -> RowRange:
    """All that so many threads may have scanned."""
    high = scan.scanned
    if high < max(scan.returned, 1.0):  # nothing was announced
        high = max(scan.returned, 5 * scan.estimate)
        return RowRange(scan.returned, high, is_known=False)
    low = _least_of(high) if scan.is_table else high / _MOST_THREADS
    low = max(low, scan.returned, min(scan.estimate, high))
    is_known = scan.is_table and _least_of(high) == high
    return RowRange(low, high, is_known=is_known)


def _least_of(scanned: float) -> float:
    """Rows of the smallest table that as many threads as it has row groups scanned."""
    return scanned / int((1 + math.sqrt(1 + 4 * scanned / ROW_GROUP_ROWS)) / 2)


def _by_parts(scan: Scan) -> RowRange:
    """As many rows as the row groups that were read have where DuckDB wrote them."""
    if not scan.parts and scan.all_parts:
        return _known(scan.returned)
    high = max(scan.parts * ROW_GROUP_ROWS, scan.returned)
    low = (scan.parts - 1) * ROW_GROUP_ROWS + 1 if scan.is_single else high / _ESTIMATE_WITHIN
    return RowRange(min(max(low, scan.returned, 1.0), high), high, is_known=False)


def _known(rows: float) -> RowRange:
    return RowRange(rows, rows, is_known=True)
