"""One DuckDB profile as an execution: its operators, how long it took, what it used.

The schemas differ between versions: a root with sections (2.x), a flat root with metrics
(1.1 to 1.5), and one that calls itself "Query" (before 1.1, without sizes). All of them
give the same plan for the same work:

- what collects the result is a sink at the end, also where the version does not print it;
- what `WITH ... AS MATERIALIZED` computes once is one operator that several read;
- a scan that filters is a source and a filter behind it. How many rows it scanned is
  counted reliably for tables of 2.x only; elsewhere what came out stands for it, and the
  source's rows count as not known.

Resources that a profile does not name: the nodes are one; the cores are CPU time / wall
time, rounded up, what at least was used; the memory is `ASSUMED_MEMORY_BYTES`, or what was
used where that is more. The workload is the shape of the plan, never a text.

Refused, each with one reason whatever the values: no wall time, no operators, operators
without a name, commands alone, more operators or rows than a plan may have, anything that
is no number where one belongs.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fedperf_client.sources.duckdb.operators import CTE, CTE_SCAN, KINDS, PASSING
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    Measurement,
    Origin,
    Remark,
)
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.template import fingerprint
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    MAX_RUNTIME_SECONDS,
    SOURCE_KINDS,
    OperatorClass,
    OperatorKind,
    Platform,
)

ASSUMED_MEMORY_BYTES = 16 * 2**30
MAX_CORES = 1024

_MAX_COUNT = 2**53
_MAX_NODES = 2 * MAX_OPERATORS
"""Nodes of a profile that are looked at, those without an operator of their own among them."""

_KEEPS_ROWS = frozenset(
    {
        OperatorKind.MAP,
        OperatorKind.SORT,
        OperatorKind.WINDOW,
        OperatorKind.UNION,
        OperatorKind.SINK,
    }
)
"""Hand on every row that they read."""

_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.DISTINCT})
_FILE_NOTES = ("Filename(s)", "Total Files Read", "Scanning Files")

_Path = tuple[str, ...]


class InvalidProfileError(InvalidInputError):
    """Not the profile of a query."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """Where a family of versions writes what; empty where it does not."""

    source: str
    top: str
    kind: _Path
    rows: str
    size: str
    timing: str
    wall: _Path
    cpu: _Path
    memory: _Path
    read: _Path
    written: _Path
    scanned: str
    counts_scanned_rows: bool


_SINCE_2 = _Schema(
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
    counts_scanned_rows=True,
)
_SINCE_1_1 = _Schema(
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
    counts_scanned_rows=False,
)
_BEFORE_1_1 = _Schema(
    source="duckdb 1.0 or older",
    top="children",
    kind=("name",),
    rows="cardinality",
    size="",
    timing="timing",
    wall=("timing",),
    cpu=(),
    memory=(),
    read=(),
    written=(),
    scanned="",
    counts_scanned_rows=False,
)


def execution_of(content: object, *, execution_id: str, finished_at: datetime) -> Execution:
    """The execution that a profile tells of.

    Args:
        content: of the profile, as JSON gives it.
        execution_id: for the execution.
        finished_at: when it ended, with time zone.

    Raises:
        InvalidInputError: see the module.
    """
    if not isinstance(content, dict):
        raise InvalidProfileError("no profile: not an object")
    schema = _schema_of(content)
    wall = _number(_at(content, schema.wall), "the wall time")
    if not (wall is not None and 0 < wall <= MAX_RUNTIME_SECONDS):
        raise InvalidProfileError(f"no wall time between 0 and {MAX_RUNTIME_SECONDS:g} seconds")
    tree = _Tree(schema)
    tree.read(content.get(schema.top))
    workflow = tree.workflow()
    cpu = _number(_at(content, schema.cpu), "the CPU time")
    measured = Measurement(
        runtime_seconds=wall,
        cpu_seconds=tree.seconds if cpu is None else cpu,
        peak_memory_bytes=_count(_at(content, schema.memory), "memory"),
        read_bytes=_count(_at(content, schema.read), "bytes read"),
        written_bytes=_count(_at(content, schema.written), "bytes written"),
    )
    return Execution(
        execution_id=execution_id,
        workload=f"duckdb/{fingerprint(workflow)[:16]}",
        plan=Plan.on_one_platform(workflow, Platform.DUCKDB),
        cluster=_cluster(measured),
        status=ExecutionStatus.OK,
        measurement=measured,
        finished_at=finished_at,
        origin=Origin(
            source=schema.source,
            rows_known=sum(tree.known) / len(tree.known),
            remarks=() if tree.is_complete else (Remark.INCOMPLETE,),
        ),
    )


def _schema_of(content: Mapping[str, object]) -> _Schema:
    if isinstance(content.get("operator"), list):
        return _SINCE_2
    if "extra-info" in content or "timings" in content:
        return _BEFORE_1_1
    return _SINCE_1_1


def _cluster(measured: Measurement) -> ClusterConfig:
    busy = min(measured.cpu_seconds / measured.runtime_seconds, MAX_CORES)
    memory = max(ASSUMED_MEMORY_BYTES, measured.peak_memory_bytes)
    return ClusterConfig(nodes=1, cores=max(1, math.ceil(busy)), memory_bytes=memory)


@dataclass(frozen=True, slots=True)
class _Node:
    """An operator as the profile has it; None where it does not say.

    Attributes:
        name: in capitals.
        rows: that came out.
        size: bytes of these rows.
        seconds: spent in it, over all threads.
        scanned: rows that it read from a table.
        notes: texts and lists of texts; only some of their keys are looked at.
        children: what it reads from, still as JSON.
    """

    name: str
    rows: float | None
    size: float | None
    seconds: float
    scanned: float | None
    notes: Mapping[str, object]
    children: Sequence[object]

    @property
    def kind(self) -> OperatorKind:
        """What it does."""
        kind = KINDS.get(self.name, OperatorKind.OTHER)
        if kind is OperatorKind.TABLE_SOURCE and any(each in self.notes for each in _FILE_NOTES):
            return OperatorKind.FILE_SOURCE
        function = self.notes.get("Function")
        if kind is OperatorKind.TABLE_SOURCE and isinstance(function, str):
            is_file = KINDS.get(_plain(function)) is OperatorKind.FILE_SOURCE
            return OperatorKind.FILE_SOURCE if is_file else kind
        return kind

    @property
    def columns(self) -> int:
        """That it takes from a table or file."""
        names = self.notes.get("Projections")
        return len(names) if isinstance(names, list) else int(bool(names))

    def note(self, key: str) -> str:
        """The text of a note, empty where there is none."""
        value = self.notes.get(key)
        return value if isinstance(value, str) else ""


@dataclass(slots=True)
class _Visit:
    """An operator whose inputs are being read."""

    node: _Node
    waiting: Iterator[object]
    inputs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Tree:
    """Turns a tree of operators into those of a workflow, from the leaves on.

    Attributes:
        schema: of the profile.
        operators: so far, inputs before those that read them.
        known: for each operator, whether its rows were counted or follow from counted ones.
        is_complete: whether every operator had its figures.
        seconds: of all operators.
        columns: of all sources.
    """

    schema: _Schema
    operators: list[Operator] = field(default_factory=list)
    known: list[bool] = field(default_factory=list)
    is_complete: bool = True
    seconds: float = 0.0
    columns: int = 0
    _nodes: int = 0
    _shared: dict[str, int] = field(default_factory=dict)
    _read_again: set[int] = field(default_factory=set)

    def read(self, tops: object) -> None:
        """Add every tree, with a sink at its end."""
        if not isinstance(tops, list):
            raise InvalidProfileError("no operators")
        for top in tops:
            end = self._read_tree(top)
            ended = (OperatorKind.SINK, OperatorKind.COMMAND)
            if end is not None and self.operators[end].kind not in ended:
                self._add_following(OperatorKind.SINK, [end])

    def workflow(self) -> Workflow:
        """What was read."""
        if not self.operators:
            raise InvalidProfileError("no operators")
        if all(each.kind is OperatorKind.COMMAND for each in self.operators):
            raise InvalidProfileError("no query: commands alone")
        columns = min(self.columns, MAX_ITERATIONS)
        return Workflow(tuple(self.operators), SourceStatistics(columns=columns))

    def _read_tree(self, top: object) -> int | None:
        """Position of the last operator of a tree; None where it has none of its own."""
        visits = [self._visit(top)]
        while True:
            visit = visits[-1]
            for child in visit.waiting:
                visits.append(self._visit(child))
                break
            else:
                visits.pop()
                position = self._add_node(visit.node, visit.inputs)
                if not visits:
                    return position
                self._hand_on(visits[-1], position)

    def _visit(self, content: object) -> _Visit:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _too_many()
        node = _node(content, self.schema)
        self.seconds += node.seconds
        return _Visit(node, iter(node.children))

    def _hand_on(self, parent: _Visit, position: int | None) -> None:
        if position is None:
            return
        parent.inputs.append(position)
        if parent.node.name == CTE and len(parent.inputs) == 1:
            self._shared[parent.node.note("Table Index")] = position

    def _add_node(self, node: _Node, inputs: list[int]) -> int | None:
        """Position of what stands for the node."""
        if node.name in PASSING:
            return inputs[-1] if inputs else None
        if node.name == CTE_SCAN and node.note("CTE Index") in self._shared:
            shared = self._shared[node.note("CTE Index")]
            self._read_again.add(shared)
            return shared
        if node.name == CTE and inputs and inputs[0] in self._read_again:
            return inputs[-1]
        if node.kind in SOURCE_KINDS and not inputs:
            return self._add_source(node)
        follows = node.kind is OperatorKind.SINK or (
            not node.rows if node.kind is OperatorKind.UNION else node.rows is None
        )
        if follows and node.kind in _KEEPS_ROWS:
            return self._add_following(node.kind, inputs)
        return self._add_counted(node, node.kind, inputs)

    def _add_source(self, node: _Node) -> int:
        self.columns += node.columns
        if "Filters" not in node.notes:
            return self._add_counted(node, node.kind, [])
        is_counted = self.schema.counts_scanned_rows and node.kind is OperatorKind.TABLE_SOURCE
        rows = max(node.rows or 0.0, (node.scanned or 0.0) if is_counted else 0.0)
        row_bytes = self._row_bytes(node)
        operator = Operator(
            node.kind, OperatorClass.RELATIONAL, output_rows=rows, row_bytes=row_bytes
        )
        source = self._append(operator, known=is_counted and node.scanned is not None)
        return self._add_counted(node, OperatorKind.FILTER, [source])

    def _add_counted(self, node: _Node, kind: OperatorKind, inputs: Sequence[int]) -> int:
        """An operator with the node's own figures."""
        rows = node.rows or 0.0
        before = self.operators[inputs[0]].output_rows if inputs else 0.0
        ratio = min(1.0, rows / before) if kind in _GROUPS and before > 0 else 0.0
        self.is_complete &= node.rows is not None
        operator = Operator(
            kind,
            OperatorClass.RELATIONAL,
            tuple(inputs),
            output_rows=rows,
            row_bytes=self._row_bytes(node),
            key_distinct_ratio=ratio,
        )
        return self._append(operator, known=node.rows is not None)

    def _add_following(self, kind: OperatorKind, inputs: Sequence[int]) -> int:
        """An operator whose rows are those of its inputs together."""
        read = [self.operators[each] for each in inputs]
        rows = sum(each.output_rows for each in read)
        size = sum(each.output_bytes for each in read)
        operator = Operator(
            kind,
            OperatorClass.RELATIONAL,
            tuple(inputs),
            output_rows=_limited_rows(rows),
            row_bytes=min(size / rows, MAX_ROW_BYTES) if rows > 0 else 0.0,
        )
        known = bool(inputs) and all(self.known[each] for each in inputs)
        return self._append(operator, known=known)

    def _row_bytes(self, node: _Node) -> float:
        self.is_complete &= node.size is not None
        return min((node.size or 0.0) / node.rows, MAX_ROW_BYTES) if node.rows else 0.0

    def _append(self, operator: Operator, *, known: bool) -> int:
        if len(self.operators) == MAX_OPERATORS:
            raise _too_many()
        self.operators.append(operator)
        self.known.append(known)
        return len(self.operators) - 1


def _node(content: object, schema: _Schema) -> _Node:
    if not isinstance(content, dict):
        raise InvalidProfileError("an operator is not an object")
    name = next((content[key] for key in schema.kind if content.get(key)), None)
    if not isinstance(name, str):
        raise InvalidProfileError("an operator without a name")
    notes, children = content.get("extra_info"), content.get("children", [])
    if not isinstance(children, list):
        raise InvalidProfileError("an operator's children are no list")
    rows = _number(content.get(schema.rows), "rows")
    return _Node(
        name=_plain(name),
        rows=None if rows is None else _limited_rows(rows),
        size=_number(content.get(schema.size), "bytes"),
        seconds=_number(content.get(schema.timing), "the time of an operator") or 0.0,
        scanned=_number(content.get(schema.scanned), "scanned rows"),
        notes=notes if isinstance(notes, dict) else {},
        children=children,
    )


def _plain(name: str) -> str:
    return name.strip().upper()


def _limited_rows(rows: float) -> float:
    if not rows <= MAX_ROWS:
        raise InvalidProfileError(f"more than {MAX_ROWS:g} rows")
    return rows


def _too_many() -> InvalidProfileError:
    return InvalidProfileError(f"more than {MAX_OPERATORS} operators")


def _at(content: Mapping[str, object], path: _Path) -> object:
    """What stands at the path; None where nothing does."""
    found: object = content if path else None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _number(value: object, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidProfileError(f"{what}: not a number")
    if not 0 <= value <= sys.float_info.max:
        raise InvalidProfileError(f"{what}: negative or not finite")
    return float(value)


def _count(value: object, what: str) -> int:
    number = _number(value, what) or 0.0
    if not number <= _MAX_COUNT:
        raise InvalidProfileError(f"{what}: more than there can be")
    return int(number)
