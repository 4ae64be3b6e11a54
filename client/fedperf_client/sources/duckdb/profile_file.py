"""DuckDB profiles: what a query did, written by DuckDB as JSON.

A file holds one profile, as `profiling_output` writes it, or one profile per line, as programs
collect them. It is recognized by its first bytes, never by its name. Profiles of 2.x, of 1.1 to
1.5 and of the versions before are read.

Invariants: an execution's id is a digest of its profile's bytes, so that reading a profile again,
also from a copy or from a file that has grown, adds nothing. Rows that are counted later do not
change it. A profile has no time, so an execution finished when its file was modified. No text of
a profile gets into an execution, except as local digests (`query_keys`).

Skipped, each with its reason: a profile of more than 8 MiB, one that would take too much memory,
one that is cut off, and those that `execution_of` refuses.

All versions give the same plan for the same work:

- what collects the result is a sink at the end, also if the version does not print it;
- what `WITH ... AS MATERIALIZED` computes once is one operator that several read;
- a scan that filters is a source and a filter behind it. The source has the rows that were read
  (see `operators`). If these are not decided they count as unknown, and are the middle of the
  possible range, whose width is in the metadata.

Resources that a profile does not have: there is one node. The cores are CPU time / wall time,
rounded up, the least that was used. The memory is `ASSUMED_MEMORY_BYTES`, or the used memory if
that is more. The workload is the shape of the plan, never a text.

Refused, each with one reason independent of the values: no run to its end, no wall time, no
operators, operators without a name, commands alone, more operators or rows than a plan may have,
anything that is not a number where one is expected.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any

import orjson

from fedperf_client.sources import RowCount, RowCounts, SkippedRecord
from fedperf_client.sources.duckdb.operators import (
    CTE,
    CTE_SCAN,
    EXPLAINED,
    INVALID,
    PASSING,
    Above,
    InvalidProfileError,
    ProfileNode,
    ProfileSchema,
    RowRange,
    count_of,
    is_join,
    limited_rows,
    node_of,
    number_of,
    rows_read,
    schema_of,
    to_scan,
    value_at,
    whole_count,
)
from fedperf_client.sources.duckdb.query_keys import OperatorKey, place_of, statement_key
from fedperf_client.sources.opener import SourcePlace, exceeds_json_memory
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_RUNTIME_SECONDS,
    SOURCE_KINDS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)

_MAX_NODES = 2 * MAX_OPERATORS  # most nodes of a profile, with those that give no operator
_MOST_JOINED = 4  # most inputs of a join

# Operators that return every row that they read.
_KEEPS_ROWS = frozenset(
    {
        OperatorKind.MAP,
        OperatorKind.SORT,
        OperatorKind.WINDOW,
        OperatorKind.UNION,
        OperatorKind.SINK,
    }
)

_DYNAMIC = "Dynamic Filters"  # note of a scan
_TOO_MANY = f"more than {MAX_OPERATORS} operators"
_UNFINISHED = "the query did not run to its end"
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
    """The operators of a workflow, made of the tree of a profile from the leaves on.

    Operators come before those that read them. A shared operator occurs once. A missing sink at the
    end is added. An operator that keeps its rows and has no figures takes them from its inputs.
    """

    schema: ProfileSchema  # of the profile
    row_counts: RowCounts  # row counts of tables, of all sources
    operators: list[Operator] = field(default_factory=list)  # so far, inputs first
    # For each operator, whether its rows were counted or follow from counted ones.
    are_known: list[bool] = field(default_factory=list)
    is_complete: bool = True  # whether every operator had its figures
    seconds: float = 0.0  # sum over all operators
    # Of each of `operators`, over all threads; None for one that the profile does not have.
    operator_seconds: list[float | None] = field(default_factory=list)
    columns: int = 0  # of all sources
    # Row counts of scans of whole tables or files.
    counts: list[RowCount] = field(default_factory=list)
    keys: list[OperatorKey] = field(default_factory=list)  # of each of `operators`
    # Tables and files of all scans. The files are those of the text where scans do not name them.
    places: set[str] = field(default_factory=set)
    files: Collection[str] = ()  # that the query reads, if known from elsewhere
    are_places_known: bool = True
    _least_rows: float = 0.0
    _most_rows: float = 0.0
    _is_idle: bool = True
    _nodes: int = 0
    _shared: dict[str, int] = field(default_factory=dict)
    _read_again: set[int] = field(default_factory=set)
    _reduced: set[int] = field(default_factory=set)  # operators that a join filtered as they ran

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
        """Return the workflow of all operators."""
        if not self.operators:
            raise InvalidProfileError("no operators")
        if all(each.kind is OperatorKind.COMMAND for each in self.operators):
            raise InvalidProfileError("no query: commands alone")
        if self._is_idle:
            raise InvalidProfileError(_UNFINISHED)
        columns = min(self.columns, MAX_ITERATIONS)
        return Workflow(tuple(self.operators), SourceStatistics(columns=columns))

    def stored_keys(self) -> tuple[str, ...]:
        """Return `ExecutionMetadata.operator_keys`; none if all are unknown."""
        keys = tuple(
            ""
            if place in self._reduced or any(self.keys[e].rows == key.rows for e in operator.inputs)
            else key.rows
            for place, (operator, key) in enumerate(zip(self.operators, self.keys, strict=True))
        )
        return keys if any(keys) else ()

    def statement(self, text: str) -> str:
        """Return the key of the query with this text, see `query_keys`."""
        return statement_key(text, self.places) if self.are_places_known else ""

    @property
    def rows_within(self) -> float:
        """Return the factor, at least 1, within which the rows of all sources together are."""
        return math.sqrt(max(self._most_rows, 1.0) / max(self._least_rows, 1.0))

    def _read_tree(self, top: object) -> int | None:
        """Add a tree; return the position of its last operator, or None if it has none."""
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
                parent = visits[-1]
                if position is not None:
                    parent.inputs.append(position)
                    if parent.node.name == CTE and len(parent.inputs) == 1:
                        self._shared[parent.node.note("Table Index")] = position

    def _visit(self, content: object, above: Above) -> _Visit:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise InvalidProfileError(_TOO_MANY)
        node = node_of(content, self.schema)
        if node.name == INVALID:
            raise InvalidProfileError(_UNFINISHED)
        self.seconds += node.seconds
        self._is_idle &= node.is_idle
        joined = node.children if is_join(node) and len(node.children) <= _MOST_JOINED else ()
        inputs = [node_of(each, self.schema) for each in joined]
        waiting = list[tuple[object, Above]]()
        for number, child in enumerate(node.children):
            others = inputs[:number] + inputs[number + 1 :]
            waiting.append((child, above.through(node, [each for each in others if not each.rows])))
        return _Visit(node, above, iter(waiting))

    def _add_node(self, node: ProfileNode, inputs: list[int], above: Above) -> int | None:
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
            return self._add_following(node.kind, inputs, node=node)
        return self._add_counted(node, node.kind, inputs)

    def _add_source(self, node: ProfileNode, above: Above) -> int:
        self.columns += node.columns
        read = self._rows_of_source(node, above)
        self._least_rows += read.low
        self._most_rows += read.high
        is_filtered = "Filters" in node.notes
        key = OperatorKey.of_source(node, self._place(node))
        operator = Operator(
            node.kind,
            OperatorClass.RELATIONAL,
            output_rows=limited_rows(read.rows),
            row_bytes=self._row_bytes(node),
            complexity=Complexity.LINEAR if node.code_steps else Complexity.NONE,
            code_steps=node.code_steps,
        )
        seconds = None if is_filtered else node.seconds
        source = self._append(operator, key, is_known=read.is_known, seconds=seconds)
        return self._add_counted(node, OperatorKind.FILTER, [source]) if is_filtered else source

    def _place(self, node: ProfileNode) -> str:
        """Return the name of what a scan reads, and remember it; empty if it is unknown."""
        names = place_of(node.notes)
        if not names and node.kind is OperatorKind.FILE_SOURCE:
            names = set(self.files)
            self.are_places_known &= bool(names)
        self.places |= names
        return "\n".join(sorted(names))

    def _rows_of_source(self, node: ProfileNode, above: Above) -> RowRange:
        rows = node.rows or 0.0
        scan = to_scan(node, above, self.schema)
        if scan is None:  # neither DuckDB's own table nor columnar files
            self.is_complete &= node.rows is not None
            is_known = node.rows is not None and "Filters" not in node.notes
            most = rows if is_known else max(rows, 5.0 * node.estimate)
            return RowRange(rows, most, is_known)
        if node.is_idle and node.estimate and not above.may_idle:
            raise InvalidProfileError(_UNFINISHED)
        count = whole_count(scan)
        self.counts += [] if count is None else [count]
        return rows_read(scan, self.row_counts)

    def _add_counted(self, node: ProfileNode, kind: OperatorKind, inputs: Sequence[int]) -> int:
        """Add an operator with the node's own figures."""
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
        key = OperatorKey.of(node, [self.keys[each] for each in inputs])
        if _DYNAMIC in node.notes:
            self._reduced.add(len(self.operators))
        return self._append(operator, key, is_known=node.rows is not None, seconds=node.seconds)

    def _add_following(
        self, kind: OperatorKind, inputs: Sequence[int], *, node: ProfileNode | None = None
    ) -> int:
        """Add an operator with the rows of its inputs together; `node` if the profile has it."""
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
        is_known = bool(inputs) and all(self.are_known[each] for each in inputs)
        keys = [self.keys[each] for each in inputs]
        if node is None:
            return self._append(operator, keys[0] if keys else OperatorKey(), is_known=is_known)
        key = OperatorKey.of(node, keys)
        return self._append(operator, key, is_known=is_known, seconds=node.seconds)

    def _row_bytes(self, node: ProfileNode) -> float:
        self.is_complete &= node.size is not None
        return min((node.size or 0.0) / node.rows, MAX_ROW_BYTES) if node.rows else 0.0

    def _append(
        self, operator: Operator, key: OperatorKey, *, is_known: bool, seconds: float | None = None
    ) -> int:
        if len(self.operators) == MAX_OPERATORS:
            raise InvalidProfileError(_TOO_MANY)
        self.operators.append(operator)
        self.are_known.append(is_known)
        self.operator_seconds.append(seconds)
        self.keys.append(key)
        return len(self.operators) - 1


ASSUMED_MEMORY_BYTES = 16 * 2**30
MAX_CORES = 1024


def workload_of(workflow: Workflow) -> str:
    """Return the workload of a query: the shape of its plan."""
    return f"duckdb/{fingerprint(workflow)[:16]}"


def counts_in(content: object) -> list[RowCount]:
    """Return the row counts of whole tables and files in a profile; errors as `execution_of`."""
    return _tree_of(content, lambda _: ())[0].counts


def execution_of(
    content: object,
    *,
    execution_id: str,
    finished_at: datetime,
    counted: RowCounts = lambda _: (),
) -> Execution:
    """Return the execution of a profile, parsed as JSON; `counted` are counts of all profiles.

    Raises:
        InvalidInputError: see the module.
    """
    tree, wall, content = _tree_of(content, counted)
    schema, workflow = tree.schema, tree.workflow()
    cpu = number_of(value_at(content, schema.cpu), "the CPU time")
    measured = Measurement(
        runtime_seconds=wall,
        cpu_seconds=tree.seconds if cpu is None else cpu,
        peak_memory_bytes=count_of(value_at(content, schema.memory), "memory"),
        read_bytes=count_of(value_at(content, schema.read_bytes), "bytes read"),
        written_bytes=count_of(value_at(content, schema.written_bytes), "bytes written"),
    )
    busy = min(measured.cpu_seconds / measured.runtime_seconds, MAX_CORES)
    memory = max(ASSUMED_MEMORY_BYTES, measured.peak_memory_bytes)
    return Execution(
        execution_id=execution_id,
        workload=workload_of(workflow),
        plan=Plan.on_one_platform(workflow, Platform.DUCKDB),
        cluster=ClusterConfig(nodes=1, cores=max(1, math.ceil(busy)), memory_bytes=memory),
        status=ExecutionStatus.OK,
        measurement=measured,
        finished_at=finished_at,
        origin=ExecutionMetadata(
            source=schema.source,
            rows_known=sum(tree.are_known) / len(tree.are_known),
            remarks=() if tree.is_complete else (ExecutionWarning.INCOMPLETE,),
            operator_seconds=tuple(tree.operator_seconds) if tree.seconds else (),
            rows_within=tree.rows_within,
            statement=tree.statement(str(value_at(content, schema.text) or "")),
            operator_keys=tree.stored_keys(),
        ),
    )


def _tree_of(
    content: object, counted: RowCounts
) -> tuple[OperatorTree, float, Mapping[str, object]]:
    """Return the operators of a profile, its wall time, and the profile as a mapping."""
    if not isinstance(content, dict):
        raise InvalidProfileError("no profile: not an object")
    schema = schema_of(content)
    wall = number_of(value_at(content, schema.wall), "the wall time")
    tops = content.get(schema.top)
    if not (wall is not None and 0 < wall <= MAX_RUNTIME_SECONDS):
        first = tops[0] if isinstance(tops, list) and tops else None
        if isinstance(first, dict) and EXPLAINED in (first.get(key) for key in schema.kind):
            raise InvalidProfileError(
                "EXPLAIN ANALYZE of 1.1 to 1.4 has no run time: set profiling_output instead"
            )
        raise InvalidProfileError(f"no wall time between 0 and {MAX_RUNTIME_SECONDS:g} seconds")
    tree = OperatorTree(schema, counted)
    tree.read(tops)
    return tree, wall, content


MAX_PROFILE_BYTES = 8 * 2**20

_SNIFFED_BYTES = 64 * 2**10
_FIRST_KEY = re.compile(rb'\s*\{\s*"[a-z_]+"\s*:')
# Keys that occur together near the start of a profile: of 2.x, 1.x (two), before 1.1.
_MARKS = (
    (b'"operator"', b'"intermediate_rows"'),
    (b'"operator_type"', b'"children"'),
    (b'"rows_returned"', b'"result_set_size"'),
    (b'"Query"', b'"extra-info"'),
)


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file of profiles as a `CountingSource`."""

    path: SourcePlace

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every profile once, in file order; see `Source.read`."""
        counted: dict[str, set[RowCount]] = {}
        for each in self.counts():
            counted.setdefault(each.place, set()).add(each)
        yield from self.read_with_counts(lambda place: counted.get(place, ()))

    def read_with_counts(self, counted: RowCounts) -> Iterator[Execution | SkippedRecord]:
        """Yield the same with the row counts of all sources; see `CountingSource`."""
        for name, record, finished_at in self._records():
            content = _content(name, record)
            if not isinstance(content, SkippedRecord):
                identity = hashlib.sha256(record.strip()).hexdigest()[:32]
                try:
                    content = execution_of(
                        content, execution_id=identity, finished_at=finished_at, counted=counted
                    )
                except InvalidInputError as error:
                    content = SkippedRecord(name, str(error))
            yield content

    def counts(self) -> Iterator[RowCount]:
        """Yield the row counts of all profiles; see `CountingSource`."""
        for name, record, _ in self._records():
            content = _content(name, record)
            if not isinstance(content, SkippedRecord):
                with suppress(InvalidInputError):  # `read` reports it
                    yield from counts_in(content)

    def _records(self) -> Iterator[tuple[str, bytes, datetime]]:
        try:
            with self.path.open("rb") as stream:
                seconds = self.path.stat().st_mtime_ns / 1e9
                try:
                    finished_at = datetime.fromtimestamp(seconds, UTC)
                except (OverflowError, ValueError) as error:
                    raise InvalidInputError(
                        f"{self.path} was modified at no possible time: {seconds!r}"
                    ) from error
                for name, record in _records(stream):
                    yield name, record, finished_at
        except FileNotFoundError as error:
            raise InvalidInputError(f"there is no profile {self.path}") from error
        except OSError as error:
            raise StorageError(f"cannot read the profile {self.path}: {error.strerror}") from error


def open_profile(path: SourcePlace) -> ProfileFile | None:
    """Recognize a file of profiles by its first bytes; see `OpenSource`."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        start = stream.read(_SNIFFED_BYTES)
    if _FIRST_KEY.match(start) is None:
        return None
    is_profile = any(all(mark in start for mark in marks) for marks in _MARKS)
    return ProfileFile(path) if is_profile else None


def _records(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every record; of one that is too long, enough bytes to show that."""
    number = 0
    while line := stream.readline(MAX_PROFILE_BYTES + 1):
        number += 1
        if line.strip() == b"{":  # one profile over many lines
            yield "profile", line + stream.read(MAX_PROFILE_BYTES + 1 - len(line))
            return
        if line.strip():
            yield f"line {number}", line.rstrip(b"\n")
        while len(line) > MAX_PROFILE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_PROFILE_BYTES + 1)


def _content(name: str, record: bytes) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON of a record, or why it is skipped."""
    if len(record) > MAX_PROFILE_BYTES:
        return SkippedRecord(name, f"longer than {MAX_PROFILE_BYTES // 2**20} MiB")
    if exceeds_json_memory(record):
        return SkippedRecord(name, "more values than are read")
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:
        return SkippedRecord(name, "no JSON, or cut off, or nested too deeply")
