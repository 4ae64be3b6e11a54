"""The tree of operators in a profile, turned into the operators of a workflow.

Operators stand before those that read them. What several read, stands once; what the profile
leaves out at the end, a sink, is added. An operator that hands on its rows and has no figures
takes them from its inputs; for each it is known whether its rows were counted.

Refused: operators that are no objects or have no name, more of them or of their rows than a
plan may have, trees without any operator, commands alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedperf_client.sources.duckdb.operators import CTE, CTE_SCAN, KINDS, PASSING
from fedperf_client.sources.duckdb.profile_schema import (
    InvalidProfileError,
    ProfileSchema,
    number_of,
)
from fedperf_shared.workflow.graph import Operator, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    PARSES_TEXT,
    SOURCE_KINDS,
    Complexity,
    OperatorClass,
    OperatorKind,
)

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
ROW_GROUP_ROWS = 122_880
"""Of a row group of Parquet, as DuckDB writes them."""

_TEXT = re.compile(r"(?:READ_)?(?:CSV|JSON|NDJSON|TEXT)")
_FILE_NOTES = ("Filename(s)", "Total Files Read", "Scanning Files")


@dataclass(frozen=True, slots=True)
class _Node:
    """An operator as the profile has it; None where it does not say.

    Attributes:
        name: in capitals.
        rows: that came out.
        size: bytes of these rows.
        seconds: spent in it, over all threads.
        scanned: rows that it read from a table.
        row_groups: of files that it read.
        notes: texts and lists of texts; only some of their keys are looked at.
        children: what it reads from, still as JSON.
    """

    name: str
    rows: float | None
    size: float | None
    seconds: float
    scanned: float | None
    row_groups: float | None
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
    def code_steps(self) -> int:
        """Of a source that parses text."""
        function = _plain(self.note("Function")) or self.name
        return PARSES_TEXT if _TEXT.match(function) else 0

    def rows_read(self, schema: ProfileSchema) -> float | None:
        """Rows that a source looked at before its filters; None where nothing counts them.

        Of a file whole row groups are read; `rows_scanned` has what is left of them.
        """
        if self.kind is OperatorKind.FILE_SOURCE:
            return self.row_groups * ROW_GROUP_ROWS if self.row_groups else None
        return self.scanned if schema.counts_scanned_rows else None

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
class OperatorTree:
    """Turns a tree of operators into those of a workflow, from the leaves on.

    Attributes:
        schema: of the profile.
        operators: so far, inputs before those that read them.
        known: for each operator, whether its rows were counted or follow from counted ones.
        is_complete: whether every operator had its figures.
        seconds: of all operators.
        operator_seconds: of each of `operators`, over all threads; None for one that the profile
            does not have.
        columns: of all sources.
    """

    schema: ProfileSchema
    operators: list[Operator] = field(default_factory=list)
    known: list[bool] = field(default_factory=list)
    is_complete: bool = True
    seconds: float = 0.0
    operator_seconds: list[float | None] = field(default_factory=list)
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
            return self._add_following(node.kind, inputs, seconds=node.seconds)
        return self._add_counted(node, node.kind, inputs)

    def _add_source(self, node: _Node) -> int:
        self.columns += node.columns
        if "Filters" not in node.notes:
            return self._add_counted(node, node.kind, [])
        read = node.rows_read(self.schema)
        operator = Operator(
            node.kind,
            OperatorClass.RELATIONAL,
            output_rows=_limited_rows(max(node.rows or 0.0, read or 0.0)),
            row_bytes=self._row_bytes(node),
            complexity=Complexity.LINEAR if node.code_steps else Complexity.NONE,
            code_steps=node.code_steps,
        )
        source = self._append(operator, known=read is not None)
        return self._add_counted(node, OperatorKind.FILTER, [source])

    def _add_counted(self, node: _Node, kind: OperatorKind, inputs: Sequence[int]) -> int:
        """An operator with the node's own figures."""
        rows = node.rows or 0.0
        before = self.operators[inputs[0]].output_rows if inputs else 0.0
        ratio = min(1.0, rows / before) if kind in _GROUPS and before > 0 else 0.0
        steps = node.code_steps if kind in SOURCE_KINDS else 0
        self.is_complete &= node.rows is not None
        operator = Operator(
            kind,
            OperatorClass.RELATIONAL,
            tuple(inputs),
            output_rows=rows,
            row_bytes=self._row_bytes(node),
            complexity=Complexity.LINEAR if steps else Complexity.NONE,
            code_steps=steps,
            key_distinct_ratio=ratio,
        )
        return self._append(operator, known=node.rows is not None, seconds=node.seconds)

    def _add_following(
        self, kind: OperatorKind, inputs: Sequence[int], *, seconds: float | None = None
    ) -> int:
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
        return self._append(operator, known=known, seconds=seconds)

    def _row_bytes(self, node: _Node) -> float:
        self.is_complete &= node.size is not None
        return min((node.size or 0.0) / node.rows, MAX_ROW_BYTES) if node.rows else 0.0

    def _append(self, operator: Operator, *, known: bool, seconds: float | None = None) -> int:
        if len(self.operators) == MAX_OPERATORS:
            raise _too_many()
        self.operators.append(operator)
        self.known.append(known)
        self.operator_seconds.append(seconds)
        return len(self.operators) - 1


def _node(content: object, schema: ProfileSchema) -> _Node:
    if not isinstance(content, dict):
        raise InvalidProfileError("an operator is not an object")
    name = next((content[key] for key in schema.kind if content.get(key)), None)
    if not isinstance(name, str):
        raise InvalidProfileError("an operator without a name")
    notes, children = content.get("extra_info"), content.get("children", [])
    if not isinstance(children, list):
        raise InvalidProfileError("an operator's children are no list")
    rows = number_of(content.get(schema.rows), "rows")
    return _Node(
        name=_plain(name),
        rows=None if rows is None else _limited_rows(rows),
        size=number_of(content.get(schema.size), "bytes"),
        seconds=number_of(content.get(schema.timing), "the time of an operator") or 0.0,
        scanned=number_of(content.get(schema.scanned), "scanned rows"),
        row_groups=number_of(content.get(schema.row_groups), "row groups"),
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
