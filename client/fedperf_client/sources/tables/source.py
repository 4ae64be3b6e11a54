"""Tables of past runs as a `Source`: a row is an execution of one COMMAND operator.

Its workload is the job, its cluster the nodes, cores and memory of the row, its input the rows of
the operator, or its bytes those that it read. What is not in the row is one node, one core for each
node and `MEMORY_PER_CORE`. Columns that describe the job are stored with the execution
(`ExecutionMetadata.columns`) and are asked for by `fedperf predict JOB --at`.

An id follows from the cells, so a table that is read again, in another form or with more rows,
stores no run twice. Rows that are equal in everything are repeats if the table has no times of day
and no ids; otherwise the second is a copy and is skipped. A changed mapping changes no id: the runs
that are stored already have to be deleted first (`stored_otherwise`).
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path

import orjson

from fedperf_client.home.execution_record import columns_from_text
from fedperf_client.home.store import ExecutionStore, UnknownExecutionError
from fedperf_client.sources import NothingToReadError, SkippedRecord
from fedperf_client.sources.opener import SourcePlace
from fedperf_client.sources.tables.columns import (
    DESCRIBING,
    LONGEST_WORD,
    SAMPLE,
    ColumnsError,
    ColumnUse,
    Role,
    TableColumns,
    TableMapping,
    is_missing,
    parse_moment,
    to_number,
    to_seconds,
    to_size,
    understand,
)
from fedperf_client.sources.tables.presets import DOCUMENTS, Preset, preset_of
from fedperf_client.sources.tables.rows import (
    Cell,
    Row,
    read_document,
    read_rows,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    JobColumn,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ROWS,
    MAX_RUNTIME_SECONDS,
    MIN_RUNTIME_SECONDS,
    RESERVED_PLATFORMS,
    OperatorClass,
    OperatorKind,
    Platform,
)

MEMORY_PER_CORE = 4 * 2**30
LONGEST_JOB = 200
_MOST_UNITS = 1_000_000  # nodes or cores
_YEARS = range(1971, 2200)

_STATUSES = {
    **dict.fromkeys(
        (
            *("ok", "success", "successful", "succeeded", "finished", "done", "completed"),
            *("complete", "passed", "true", "0", "0.0"),
        ),
        ExecutionStatus.OK,
    ),
    **dict.fromkeys(
        (
            "failed",
            "fail",
            "failure",
            "error",
            "errored",
            "aborted",
            "incident",
            "false",
            "crashed",
        ),
        ExecutionStatus.FAILED,
    ),
    **dict.fromkeys(
        ("timeout", "timed_out", "timedout", "killed", "cancelled", "canceled", "stopped"),
        ExecutionStatus.TIMEOUT,
    ),
    **dict.fromkeys(("oom", "out_of_memory", "outofmemory"), ExecutionStatus.OUT_OF_MEMORY),
}


class UnknownTableError(NothingToReadError):
    """Raised for a table of no known form, whose columns neither names nor a user tell."""


@dataclass(frozen=True)
class TableSource:
    """A table of past runs in a file. Its form is found once."""

    path: SourcePlace
    mapping: TableMapping = field(default_factory=TableMapping)
    is_named: bool = False  # whether a user said that it is a table of runs

    @property
    def columns(self) -> TableColumns:
        """How its columns are understood, by its first rows; errors as `read`."""
        return self._form[1]

    @property
    def preset(self) -> Preset | None:
        """The preset whose form it has; errors as `read`."""
        return self._form[0]

    @cached_property
    def _form(self) -> tuple[Preset | None, TableColumns]:
        preset, columns, _ = self._opened()
        return preset, columns

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every row once; see `Source.read`."""
        preset, columns, rows = self._opened()
        reader = _RowReader(self.path, preset, columns)
        for number, row in enumerate(rows, 1):
            try:
                yield reader.execution(row, number)
            except _SkippedRowError as error:
                yield SkippedRecord(f"row {number}", str(error))

    def _opened(self) -> tuple[Preset | None, TableColumns, Iterator[Row]]:
        """Return the preset, the columns and the rows of the file."""
        document = read_document(self.path)
        expanded = (each(document) for each in DOCUMENTS if document is not None)
        rows = next((each for each in expanded if each is not None), None)
        if rows is None:
            rows = read_rows(self.path, document)
        sample = list(islice(rows, SAMPLE))
        if not sample:
            raise NothingToReadError(f"{self.path}: a table without rows")
        preset = preset_of(sample[0])
        rows = chain(sample, rows)
        if preset is not None and preset.gather is not None:
            sample = list(preset.gather(rows))
            rows = iter(sample)
        mapping, job = self.mapping, self.path.name.split(".")[0]
        prepared = sample
        if preset is not None:
            mapping = preset.mapping.model_copy(update=mapping.model_dump(exclude_unset=True))
            job = preset.job_of(self.path)
            runs = (preset.prepare(row) for row in sample)
            prepared = [row for row in runs if not isinstance(row, str)]
            if not prepared:
                raise NothingToReadError(f"{self.path}: none of its rows is a run")
            mapping = _present(mapping, prepared, self.mapping)
        is_named = self.is_named or preset is not None
        try:
            columns = understand(prepared, mapping, default_job=job, is_named=is_named)
        except ColumnsError as error:
            if is_named:
                raise InvalidInputError(f"{self.path}: {error}") from error
            raise UnknownTableError(f"{self.path}: {error}") from error
        return preset, columns, rows


def stored_otherwise(source: TableSource, store: ExecutionStore) -> str | None:
    """Return why a table cannot be stored: the same rows are, as other runs; None if they are not.

    The first row decides. Ids of an export are those of executions, which may hold more.
    """
    if source.preset is not None and source.preset.keeps_ids:
        return None
    first = next((each for each in source.read() if isinstance(each, Execution)), None)
    if first is None:
        return None
    try:
        stored = store.find(first.execution_id)
    except UnknownExecutionError:
        return None
    as_stored = replace(first.origin, file=stored.origin.file, record=stored.origin.record)
    is_dated = {Role.STARTED, Role.FINISHED} & source.columns.by_role.keys()
    again = replace(
        first, origin=as_stored, finished_at=first.finished_at if is_dated else stored.finished_at
    )
    if again == stored:
        return None
    return (
        f"{source.path}: its rows are stored already, with other columns or units: "
        f"{stored.runtime_seconds:.6g} s of job {stored.workload} is now "
        f"{first.runtime_seconds:.6g} s of job {first.workload}. Delete the stored runs first: "
        f"fedperf runs delete --workload '{stored.workload}' --yes"
    )


def _present(mapping: TableMapping, rows: Iterable[Row], own: TableMapping) -> TableMapping:
    """Return the mapping of a preset without the columns that this table does not have."""
    names = {name.lower() for row in rows for name in row}
    keys = own.model_dump(exclude_unset=True)
    for role, text in mapping.model_dump(exclude_none=True).items():
        if isinstance(text, str) and role not in keys:
            if {text.lower(), text.rpartition(":")[0].lower()} & names:
                keys[role] = text
        elif isinstance(text, tuple):
            keys[role] = tuple(each for each in text if each.lower() in names)
        elif role == "day_first":
            keys[role] = text
    return TableMapping(**keys)


class _SkippedRowError(Exception):
    """Raised for a row that gives no execution."""


class _RowReader:
    """Turns rows into executions; knows the rows before."""

    def __init__(self, path: SourcePlace, preset: Preset | None, columns: TableColumns) -> None:
        self._preset, self._columns, self._uses = preset, columns, columns.by_role
        place = os.fsencode(path.absolute()) if isinstance(path, Path) else str(path).encode()
        self._file = place.decode(errors="replace")
        self._modified = datetime.fromtimestamp(path.stat().st_mtime_ns / 1e9, UTC)
        self._seen: Counter[bytes] = Counter()
        self._source = f"table ({preset.name})" if preset else "table"
        self._moments = [
            self._uses[r].name for r in (Role.STARTED, Role.FINISHED) if r in self._uses
        ]
        self._is_distinct = bool(self._moments) or Role.ID in self._uses

    def execution(self, row: Row, number: int) -> Execution:
        if self._preset is not None:
            prepared = self._preset.prepare(row)
            if isinstance(prepared, str):
                raise _SkippedRowError(prepared)
            row = prepared
        job = self._text(row, Role.JOB) if Role.JOB in self._uses else self._columns.job_name
        if not job:
            raise _SkippedRowError("names no job")
        status = self._status(row)
        finished, seconds = self._times(row, status)
        cluster = self._cluster(row)
        rows, read_bytes = self._input(row)
        execution_id = self._id(row)
        cpu = self._uses.get(Role.CPU)
        cpu_seconds = None if cpu is None else to_seconds(cpu, row.get(cpu.name))
        measurement = None
        if seconds is not None:
            measurement = Measurement(
                seconds, cpu_seconds=max(cpu_seconds or 0.0, 0.0), read_bytes=read_bytes
            )
        return Execution(
            execution_id,
            job[:LONGEST_JOB],
            _plan(rows, self._platform(row)),
            cluster,
            status,
            measurement,
            finished,
            ExecutionMetadata(
                source=self._source,
                node_type=self._text(row, Role.MACHINE),
                rows_known=float(self._columns.size_is_rows),
                record=f"row {number}",
                file=self._file,
                columns=self._job_columns(row),
            ),
        )

    def _cell(self, row: Row, role: Role) -> Cell:
        use = self._uses.get(role)
        cell = None if use is None else row.get(use.name)
        return None if is_missing(cell) else cell

    def _text(self, row: Row, role: Role) -> str:
        cell = self._cell(row, role)
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        return "" if cell is None else str(cell).strip()[:LONGEST_JOB]

    def _status(self, row: Row) -> ExecutionStatus:
        text = self._text(row, Role.STATUS).lower().replace(" ", "_").replace("-", "_")
        if not text:
            return ExecutionStatus.OK
        if text not in _STATUSES:
            raise _SkippedRowError(f"status {text[:40]!r} is no end of a run")
        return _STATUSES[text]

    def _times(self, row: Row, status: ExecutionStatus) -> tuple[datetime, float | None]:
        """Return when a row ended, and its seconds; None where a run that failed has none."""
        day_first = self._columns.day_first
        moments = {}
        for role in (Role.STARTED, Role.FINISHED):
            cell = self._cell(row, role)
            moments[role] = moment = parse_moment(cell, day_first)
            if cell is not None and (moment is None or moment.year not in _YEARS):
                name = self._uses[role].name
                raise _SkippedRowError(f"column {name!r} holds no date, such as {str(cell)[:40]!r}")
        started, finished = moments[Role.STARTED], moments[Role.FINISHED]
        time = self._uses.get(Role.TIME)
        seconds = None
        if time is not None:
            cell = self._cell(row, Role.TIME)
            seconds = to_seconds(time, cell)
            if seconds is None and cell is not None:
                raise _SkippedRowError(
                    f"column {time.name!r} holds no time, such as {str(cell)[:40]!r}"
                )
        elif started is not None and finished is not None:
            seconds = (finished - started).total_seconds()
        if seconds is None and status is ExecutionStatus.OK:
            raise _SkippedRowError("has no time")
        if seconds is not None and not seconds > 0:
            raise _SkippedRowError("its time is not above 0")
        if seconds is not None and not seconds <= MAX_RUNTIME_SECONDS:
            unit = "" if time is None else f"; if it is in ms, write {time.name}:ms"
            raise _SkippedRowError(f"its time is above {MAX_RUNTIME_SECONDS:,.0f} s{unit}")
        if finished is None and started is not None:
            finished = started + timedelta(seconds=seconds or 0.0)
        seconds = None if seconds is None else max(seconds, MIN_RUNTIME_SECONDS)
        return finished or self._modified, seconds

    def _count(self, row: Row, role: Role) -> int | None:
        cell = self._cell(row, role)
        if cell is None:
            return None
        number = to_number(cell)
        if number is None or not 1 <= number <= _MOST_UNITS:
            raise _SkippedRowError(f"{role} must be from 1 to {_MOST_UNITS:,}")
        return int(number)

    def _cluster(self, row: Row) -> ClusterConfig:
        nodes = self._count(row, Role.NODES) or 1
        cores = max(self._count(row, Role.CORES) or nodes, nodes)
        memory, use = None, self._uses.get(Role.MEMORY)
        if use is not None:
            memory = to_size(use, self._cell(row, Role.MEMORY))
        is_memory = memory is not None and 1 <= memory < 2**62
        return _cluster_of(nodes, cores, int(memory or 0) if is_memory else MEMORY_PER_CORE * cores)

    def _input(self, row: Row) -> tuple[float, int]:
        """Return the rows of the input, and the bytes where it is in bytes."""
        use = self._uses.get(Role.SIZE)
        size = None if use is None else to_size(use, self._cell(row, Role.SIZE))
        if size is None or not 0 <= size < 2**62:
            return 0.0, 0
        return (min(size, MAX_ROWS), 0) if self._columns.size_is_rows else (0.0, int(size))

    def _platform(self, row: Row) -> Platform:
        name = self._text(row, Role.ENGINE).upper()
        platform = Platform.__members__.get(name, Platform.OTHER)
        return Platform.OTHER if platform in RESERVED_PLATFORMS else platform

    def _job_columns(self, row: Row) -> tuple[JobColumn, ...]:
        if self._preset is not None and self._preset.columns_cell:
            text = row.get(self._preset.columns_cell)
            if isinstance(text, str) and text:
                try:
                    return columns_from_text(text)
                except InvalidInputError as error:
                    raise _SkippedRowError(str(error)) from error
        columns = []
        for use in self._columns.configuration:
            value = _value(use, row.get(use.name))
            if value is not None:
                role = use.role.value if use.role in DESCRIBING else ""
                columns.append(JobColumn(use.name, value, role))
        return tuple(columns)

    def _id(self, row: Row) -> str:
        """Return the id of a row, which no other row has.

        Raises:
            _SkippedRowError: an equal row came before.
        """
        own = self._text(row, Role.ID)
        if own and self._preset is not None and self._preset.keeps_ids:
            content: object = own
        elif own:
            content = ["id", own]
        else:
            cells = ((name, self._canonical(name, row[name])) for name in sorted(row))
            content = [(name, cell) for name, cell in cells if cell is not None]
        digest = hashlib.sha256(orjson.dumps(content)).digest()
        before = self._seen[digest[:16]]
        self._seen[digest[:16]] += 1
        if before and self._is_distinct:
            raise _SkippedRowError("a row with the same id or the same cells came before")
        if isinstance(content, str):
            return own
        if before:
            digest = hashlib.sha256(digest + before.to_bytes(8, "big")).digest()
        return digest.hex()[:32]

    def _canonical(self, name: str, cell: Cell) -> object:
        """Return a cell in the form that it has in every form of file."""
        if name in self._moments and not is_missing(cell):
            moment = parse_moment(cell, self._columns.day_first)
            return str(cell) if moment is None else moment.astimezone(UTC).isoformat()
        return _canonical_cell(cell)


def _value(use: ColumnUse, cell: Cell) -> float | str | None:
    """Return the value of a column that describes the job; None where the row has none."""
    if is_missing(cell):
        return None
    if use.role is Role.SIZE:
        size = to_size(use, cell)
        return None if size is None else size / use.factor
    number = to_number(cell)
    if number is not None and use.role is not Role.MACHINE:
        return number
    text = str(cell).strip()[:LONGEST_WORD]
    return text.lower() if isinstance(cell, bool) else text


@lru_cache(maxsize=8192, typed=True)
def _canonical_cell(cell: Cell) -> str | float | None:
    if is_missing(cell):
        return None
    number = to_number(cell)
    return str(cell).strip().lower() if number is None else number


@lru_cache(maxsize=4096)
def _plan(rows: float, platform: Platform) -> Plan:
    operator = Operator(OperatorKind.COMMAND, OperatorClass.RELATIONAL, (), output_rows=rows)
    return Plan(Workflow((operator,)), (platform,))


@lru_cache(maxsize=4096)
def _cluster_of(nodes: int, cores: int, memory_bytes: int) -> ClusterConfig:
    return ClusterConfig(nodes, cores, memory_bytes)
