"""fedperf's own history file: Parquet, one row per execution, plans as bytes.

Invariant: what `write_history` wrote, `HistoryFile` reads back as equal executions.
Every row is judged for itself; a file without the columns is refused as a whole.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.sources import SkippedRecord
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    Measurement,
    Origin,
    Remark,
)
from fedperf_shared.wire.codec import decode_plan, encode_plan

if TYPE_CHECKING:
    import pyarrow

COLUMNS = (
    "execution_id",
    "workload",
    "plan",
    "nodes",
    "cores",
    "memory_bytes",
    "machine_speed",
    "status",
    "runtime_seconds",
    "cpu_seconds",
    "peak_memory_bytes",
    "read_bytes",
    "written_bytes",
    "finished_at",
)
ORIGIN_COLUMNS = ("source", "node_type", "architecture", "rows_known", "remarks")
START_COLUMNS = ("queries_before", "startup_seconds")
NAME_COLUMNS = ("application", "application_id", "record", "description", "file", "failure")
SIZE_COLUMNS = ("rows_within", "tasks")
SECONDS_COLUMN = "operator_seconds"
"""Columns from `ORIGIN_COLUMNS` on may be lacking."""

_MAGIC = b"PAR1"
_BATCH_ROWS = 1024
_ROW_GROUP_ROWS = 20_000
_PAGE_BYTES = 8 * 1024**2
"""Large pages: similar plans compress together."""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A history file as a source."""

    path: Path

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every row once, in file order; see `Source.read`."""
        position = 0
        for batch in _batches(self.path):
            for row in batch.to_pylist():
                yield _judged(row, position)
                position += 1


def open_history(path: Path) -> HistoryFile | None:
    """The history file at `path`, known by its name or first bytes; see `OpenSource`."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        is_parquet = stream.read(len(_MAGIC)) == _MAGIC
    return HistoryFile(path) if is_parquet or path.suffix == ".parquet" else None


def write_history(
    path: Path, executions: Iterable[Execution], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the executions to `path`, replacing a file that is there; see `write_table`."""
    write_table(path, to_table(executions), metadata=metadata)


def executions_of(path: Path) -> "Iterator[Execution]":
    """The executions of a history file that must be whole.

    Raises:
        InvalidInputError: not a history, or a row of it cannot be read.
    """
    for row in HistoryFile(path).read():
        if isinstance(row, SkippedRecord):
            raise InvalidInputError(f"{path}: {row}")
        yield row


def to_table(executions: Iterable[Execution], *, named: bool = True) -> "pyarrow.Table":
    """The executions as a table with the columns of a history, in this order.

    Args:
        executions: in the order of the rows.
        named: with the columns by which people know an execution; without, a table can be
            published.
    """
    import pyarrow as pa

    table = pa.Table.from_pylist([_to_row(each) for each in executions], schema=_schema())
    return table if named else table.drop_columns([*NAME_COLUMNS, SECONDS_COLUMN])


def write_table(
    path: Path,
    table: "pyarrow.Table",
    *,
    metadata: Mapping[str, str] | None = None,
    compression_level: int = 9,
) -> None:
    """Write a table of executions (Parquet, zstd); the file appears whole or not at all.

    Args:
        path: where to write; a file that is there is replaced.
        table: as `to_table` makes it; more columns are kept and ignored when read.
        metadata: provenance, stored as key-value metadata of the file.
        compression_level: level of zstd.

    Raises:
        StorageError: the file cannot be written.
    """
    from pyarrow import parquet

    partial = path.with_name(f"{path.name}.partial")
    try:
        parquet.write_table(
            table.replace_schema_metadata(dict(metadata or {})),
            partial,
            compression="zstd",
            compression_level=compression_level,
            row_group_size=_ROW_GROUP_ROWS,
            data_page_size=_PAGE_BYTES,
        )
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StorageError(
            f"cannot write the history {path}: {error}; check that the directory exists, "
            "is writable and has room"
        ) from error


def read_metadata(path: Path) -> dict[str, str]:
    """The provenance that `write_history` stored in the file.

    Raises:
        InvalidInputError, StorageError: as `HistoryFile.read`.
    """
    from pyarrow import parquet

    with _file_errors(path):
        found = parquet.read_schema(path).metadata or {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in found.items()
        if key != b"ARROW:schema"
    }


def _batches(path: Path) -> "Iterator[pyarrow.RecordBatch]":
    from pyarrow import parquet

    with _file_errors(path):
        file = parquet.ParquetFile(path)
    with file:
        missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise InvalidInputError(
                f"{path} is not a history of fedperf: it lacks the columns {', '.join(missing)}"
            )
        known = (*COLUMNS, *ORIGIN_COLUMNS, *START_COLUMNS, *SIZE_COLUMNS, *NAME_COLUMNS)
        wanted = {*known, SECONDS_COLUMN}
        there = [name for name in file.schema_arrow.names if name in wanted]
        batches = file.iter_batches(_BATCH_ROWS, columns=there)
        while True:
            with _file_errors(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no history file {path}") from error
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(f"{path} is not a readable Parquet file: {error}") from error
    except OSError as error:
        raise StorageError(f"cannot read the history {path}: {error}") from error


def _judged(row: Mapping[str, object], position: int) -> Execution | SkippedRecord:
    try:
        return _from_row(row)
    except (InvalidInputError, ValueError, TypeError, OverflowError) as error:
        return SkippedRecord(f"row {position}", str(error))


def _from_row(row: Mapping[str, object]) -> Execution:
    plan = row["plan"]
    if not isinstance(plan, bytes):
        raise InvalidInputError(f"plan must be bytes, got {type(plan).__name__}")
    return Execution(
        execution_id=_text(row, "execution_id"),
        workload=_text(row, "workload"),
        plan=decode_plan(plan),
        cluster=ClusterConfig(
            _integer(row, "nodes"),
            _integer(row, "cores"),
            _integer(row, "memory_bytes"),
            _number(row, "machine_speed"),
            _integer(row, "queries_before") if "queries_before" in row else 0,
        ),
        status=_status(row),
        measurement=_measurement(row),
        finished_at=_moment(row),
        origin=_origin(row),
    )


def _origin(row: Mapping[str, object]) -> Origin:
    if row.keys().isdisjoint(ORIGIN_COLUMNS):
        return Origin()
    source, node_type, architecture, remarks = (
        _words(row, name) for name in ("source", "node_type", "architecture", "remarks")
    )
    return Origin(
        source,
        node_type,
        architecture,
        rows_known=_number(row, "rows_known"),
        remarks=tuple(map(Remark, remarks.split())),
        operator_seconds=_seconds(row.get(SECONDS_COLUMN)),
        rows_within=_number(row, "rows_within") if "rows_within" in row else 1.0,
        tasks=_integer(row, "tasks") if "tasks" in row else 0,
        **{name: _words(row, name) for name in NAME_COLUMNS if name in row},
    )


def _seconds(value: object) -> tuple[float | None, ...]:
    if not (value is None or isinstance(value, list)):
        raise InvalidInputError(f"{SECONDS_COLUMN} must be a list, got {value!r}")
    return tuple(value or ())


def _measurement(row: Mapping[str, object]) -> Measurement | None:
    if row["runtime_seconds"] is None:
        return None
    return Measurement(
        runtime_seconds=_number(row, "runtime_seconds"),
        cpu_seconds=_number(row, "cpu_seconds"),
        peak_memory_bytes=_integer(row, "peak_memory_bytes"),
        read_bytes=_integer(row, "read_bytes"),
        written_bytes=_integer(row, "written_bytes"),
        startup_seconds=_number(row, "startup_seconds") if "startup_seconds" in row else 0.0,
    )


def _status(row: Mapping[str, object]) -> ExecutionStatus:
    name = _text(row, "status")
    found = {status.name.lower(): status for status in ExecutionStatus}.get(name)
    if found is None:
        raise InvalidInputError(f"status {name!r} is unknown")
    return found


def _moment(row: Mapping[str, object]) -> datetime:
    value = row["finished_at"]
    if not isinstance(value, datetime):
        raise InvalidInputError(f"finished_at must be a moment, got {value!r}")
    if value.tzinfo is None:
        raise InvalidInputError("finished_at has no time zone")
    return value.astimezone(UTC)


def _text(row: Mapping[str, object], name: str) -> str:
    value = row[name]
    if not (isinstance(value, str) and value):
        raise InvalidInputError(f"{name} must be a text that is not empty, got {value!r}")
    return value


def _words(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a text, got {value!r}")
    return value


def _integer(row: Mapping[str, object], name: str) -> int:
    value = row[name]
    if not isinstance(value, int):
        raise InvalidInputError(f"{name} must be a whole number, got {value!r}")
    return value


def _number(row: Mapping[str, object], name: str) -> float:
    value = row[name]
    if not (isinstance(value, int | float) and math.isfinite(value)):
        raise InvalidInputError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("execution_id", pa.string()),
            ("workload", pa.string()),
            ("plan", pa.binary()),
            ("nodes", pa.int32()),
            ("cores", pa.int32()),
            ("memory_bytes", pa.int64()),
            ("machine_speed", pa.float64()),
            ("status", name),
            ("runtime_seconds", pa.float64()),
            ("cpu_seconds", pa.float64()),
            ("peak_memory_bytes", pa.int64()),
            ("read_bytes", pa.int64()),
            ("written_bytes", pa.int64()),
            ("finished_at", pa.timestamp("us", tz="UTC")),
            ("source", name),
            ("node_type", name),
            ("architecture", name),
            ("rows_known", pa.float64()),
            ("remarks", name),
            ("queries_before", pa.int32()),
            ("startup_seconds", pa.float64()),
            ("rows_within", pa.float64()),
            ("tasks", pa.int64()),
            *((each, name) for each in NAME_COLUMNS),
            (SECONDS_COLUMN, pa.list_(pa.float64())),
        ]
    )


def _to_row(execution: Execution) -> dict[str, object]:
    cluster, measured, origin = execution.cluster, execution.measurement, execution.origin
    return {
        "execution_id": execution.execution_id,
        "workload": execution.workload,
        "plan": encode_plan(execution.plan),
        "nodes": cluster.nodes,
        "cores": cluster.cores,
        "memory_bytes": cluster.memory_bytes,
        "machine_speed": cluster.machine_speed,
        "status": execution.status.name.lower(),
        "runtime_seconds": None if measured is None else measured.runtime_seconds,
        "cpu_seconds": None if measured is None else measured.cpu_seconds,
        "peak_memory_bytes": None if measured is None else measured.peak_memory_bytes,
        "read_bytes": None if measured is None else measured.read_bytes,
        "written_bytes": None if measured is None else measured.written_bytes,
        "finished_at": execution.finished_at.astimezone(UTC),
        "source": origin.source,
        "node_type": origin.node_type,
        "architecture": origin.architecture,
        "rows_known": origin.rows_known,
        "remarks": " ".join(origin.remarks),
        "queries_before": cluster.queries_before,
        "startup_seconds": 0.0 if measured is None else measured.startup_seconds,
        **{name: getattr(origin, name) for name in (*SIZE_COLUMNS, *NAME_COLUMNS)},
        SECONDS_COLUMN: origin.operator_seconds,
    }
