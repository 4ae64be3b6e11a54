"""The tree of operators in a profile, turned into the operators of a workflow.

Operators stand before those that read them. What several read, stands once; what the profile
leaves out at the end, a sink, is added. An operator that hands on its rows and has no figures
takes them from its inputs; for each it is known whether its rows were counted.

Refused: operators that are no objects or have no name, more of them or of their rows than a
plan may have, trees without any operator, commands alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.sources import Counted
from fedperf_client.sources.duckdb.nodes import (
    CTE,
    CTE_SCAN,
    INVALID,
    PASSING,
    InvalidProfileError,
    ProfileNode,
    ProfileSchema,
    limited_rows,
    node_of,
)
from fedperf_client.sources.duckdb.scans import (
    Above,
    RowRange,
    count_of_scan,
    is_join,
    rows_read,
    scan_of,
)
from fedperf_shared.workflow.graph import Operator, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    SOURCE_KINDS,
    Complexity,
    OperatorClass,
    OperatorKind,
)

_MAX_NODES = 2 * MAX_OPERATORS
"""Nodes of a profile that are looked at, those without an operator of their own among them."""

_MOST_JOINED = 4
"""Inputs that a join has."""

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


@dataclass(slots=True)
class _Visit:
    """An operator whose inputs are being read."""

    node: ProfileNode
    above: Above
    waiting: Iterator[tuple[object, Above]]
    inputs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OperatorTree:
    """Turns a tree of operators into those of a workflow, from the leaves on.

    Attributes:
        schema: of the profile.
        counted: what else is known to have been counted.
        operators: so far, inputs before those that read them.
        known: for each operator, whether its rows were counted or follow from counted ones.
        is_complete: whether every operator had its figures.
        seconds: of all operators.
        operator_seconds: of each of `operators`, over all threads; None for one that the profile
            does not have.
        columns: of all sources.
        counts: what scans of whole tables or files counted.
    """

    schema: ProfileSchema
    counted: Counted
    operators: list[Operator] = field(default_factory=list)
    known: list[bool] = field(default_factory=list)
    is_complete: bool = True
    seconds: float = 0.0
    operator_seconds: list[float | None] = field(default_factory=list)
    columns: int = 0
    counts: list[RowCount] = field(default_factory=list)
    _least_rows: float = 0.0
    _most_rows: float = 0.0
    _is_idle: bool = True
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
        if self._is_idle:
            raise _unfinished()
        columns = min(self.columns, MAX_ITERATIONS)
        return Workflow(tuple(self.operators), SourceStatistics(columns=columns))

    @property
    def rows_within(self) -> float:
        """Factor, from 1 on, that the rows of all sources together are known within."""
        return math.sqrt(max(self._most_rows, 1.0) / max(self._least_rows, 1.0))

    def _read_tree(self, top: object) -> int | None:
        """Position of the last operator of a tree; None where it has none of its own."""
        visits = [self._visit(top, Above())]
        while True:
            visit = visits[-1]
            for child, above in visit.waiting:
                visits.append(self._visit(child, above))
                break
            else:
                visits.pop()
                position = self._add_node(visit.node, visit.inputs, visit.above)
                if not visits:
                    return position
                self._hand_on(visits[-1], position)

    def _visit(self, content: object, above: Above) -> _Visit:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _too_many()
        node = node_of(content, self.schema)
        if node.name == INVALID:
            raise _unfinished()
        self.seconds += node.seconds
        self._is_idle &= node.is_idle
        return _Visit(node, above, self._below(node, above))

    def _below(self, node: ProfileNode, above: Above) -> Iterator[tuple[object, Above]]:
        """What a node reads from, each with what stands above it."""
        joined = node.children if is_join(node) and len(node.children) <= _MOST_JOINED else ()
        inputs = [node_of(each, self.schema) for each in joined]
        for number, child in enumerate(node.children):
            others = inputs[:number] + inputs[number + 1 :]
            yield child, above.through(node, [each for each in others if not each.rows])

    def _hand_on(self, parent: _Visit, position: int | None) -> None:
        if position is None:
            return
        parent.inputs.append(position)
        if parent.node.name == CTE and len(parent.inputs) == 1:
            self._shared[parent.node.note("Table Index")] = position

    def _add_node(self, node: ProfileNode, inputs: list[int], above: Above) -> int | None:
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
            return self._add_source(node, above)
        follows = node.kind is OperatorKind.SINK or (
            not node.rows if node.kind is OperatorKind.UNION else node.rows is None
        )
        if follows and node.kind in _KEEPS_ROWS:
            return self._add_following(node.kind, inputs, seconds=node.seconds)
        return self._add_counted(node, node.kind, inputs)

    def _add_source(self, node: ProfileNode, above: Above) -> int:
        self.columns += node.columns
        read = self._rows_of_source(node, above)
        self._least_rows += read.low
        self._most_rows += read.high
        is_filtered = "Filters" in node.notes
        operator = Operator(
            node.kind,
            OperatorClass.RELATIONAL,
            output_rows=limited_rows(read.rows),
            row_bytes=self._row_bytes(node),
            complexity=Complexity.LINEAR if node.code_steps else Complexity.NONE,
            code_steps=node.code_steps,
        )
        seconds = None if is_filtered else node.seconds
        source = self._append(operator, known=read.is_known, seconds=seconds)
        return self._add_counted(node, OperatorKind.FILTER, [source]) if is_filtered else source

    def _rows_of_source(self, node: ProfileNode, above: Above) -> RowRange:
        rows = node.rows or 0.0
        scan = scan_of(node, above, self.schema)
        if scan is None:  # not of DuckDB's own tables or files of columns
            self.is_complete &= node.rows is not None
            is_known = node.rows is not None and "Filters" not in node.notes
            most = rows if is_known else max(rows, 5.0 * node.estimate)
            return RowRange(rows, most, is_known)
        if node.is_idle and node.estimate and not above.may_idle:
            raise _unfinished()
        count = count_of_scan(scan)
        self.counts += [] if count is None else [count]
        return rows_read(scan, self.counted)

    def _add_counted(self, node: ProfileNode, kind: OperatorKind, inputs: Sequence[int]) -> int:
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
            output_rows=limited_rows(rows),
            row_bytes=min(size / rows, MAX_ROW_BYTES) if rows > 0 else 0.0,
        )
        known = bool(inputs) and all(self.known[each] for each in inputs)
        return self._append(operator, known=known, seconds=seconds)

    def _row_bytes(self, node: ProfileNode) -> float:
        self.is_complete &= node.size is not None
        return min((node.size or 0.0) / node.rows, MAX_ROW_BYTES) if node.rows else 0.0

    def _append(self, operator: Operator, *, known: bool, seconds: float | None = None) -> int:
        if len(self.operators) == MAX_OPERATORS:
            raise _too_many()
        self.operators.append(operator)
        self.known.append(known)
        self.operator_seconds.append(seconds)
        return len(self.operators) - 1


def _too_many() -> InvalidProfileError:
    return InvalidProfileError(f"more than {MAX_OPERATORS} operators")


def _unfinished() -> InvalidProfileError:
    return InvalidProfileError("the query did not run to its end")
