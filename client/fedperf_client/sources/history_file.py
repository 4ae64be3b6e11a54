"""fedperf's own history file: Parquet, one row per execution, plans as bytes.

Invariant: what `write_history` wrote, `HistoryFile` reads back as equal executions.
Every row is judged for itself; a file without the columns is refused as a whole.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedperf_client.sources import SkippedRecord
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.wire.codec import decode_plan, encode_plan

if TYPE_CHECKING:
    import pyarrow

COLUMNS = {
    "execution_id": "text",
    "workload": "text",
    "plan": "plan",
    "nodes": "int32",
    "cores": "int32",
    "memory_bytes": "int64",
    "machine_speed": "double",
    "status": "category",
    "runtime_seconds": "double",
    "cpu_seconds": "double",
    "peak_memory_bytes": "int64",
    "read_bytes": "int64",
    "written_bytes": "int64",
    "finished_at": "moment",
}
"""Columns that every history has, with their types."""

NAME_COLUMNS = ("application", "application_id", "record", "description", "file", "failure")
SECONDS_COLUMN = "operator_seconds"
_ALL_COLUMNS = COLUMNS | {
    "source": "category",
    "node_type": "category",
    "architecture": "category",
    "rows_known": "double",
    "remarks": "category",
    "queries_before": "int32",
    "startup_seconds": "double",
    "rows_within": "double",
    "tasks": "int64",
    **dict.fromkeys(NAME_COLUMNS, "category"),
    SECONDS_COLUMN: "seconds",
}
"""All columns in their order; those that are not in `COLUMNS` may be lacking."""

_CLUSTER = ("nodes", "cores", "memory_bytes", "machine_speed", "queries_before")
_MEASURED = (
    "runtime_seconds",
    "cpu_seconds",
    "peak_memory_bytes",
    "read_bytes",
    "written_bytes",
    "startup_seconds",
)

Made = TypeVar("Made")

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
        there = [name for name in file.schema_arrow.names if name in _ALL_COLUMNS]
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
    values: dict[str, Any] = {
        name: _checked(name, row[name])
        for name in _ALL_COLUMNS
        if name in row and not (name in _MEASURED and row["runtime_seconds"] is None)
    }
    values["remarks"] = tuple(map(ExecutionWarning, values.get("remarks", "").split()))
    is_measured = "runtime_seconds" in values
    return Execution(
        execution_id=values["execution_id"],
        workload=values["workload"],
        plan=values["plan"],
        cluster=_made(ClusterConfig, _CLUSTER, values),
        status=_status(values["status"]),
        measurement=_made(Measurement, _MEASURED, values) if is_measured else None,
        finished_at=values["finished_at"],
        origin=_made(
            ExecutionMetadata, _ALL_COLUMNS.keys() - {*COLUMNS, *_CLUSTER, *_MEASURED}, values
        ),
    )


def _made(kind: Callable[..., Made], names: Iterable[str], values: Mapping[str, Any]) -> Made:
    """The object that has these values; those that are lacking are its defaults."""
    return kind(**{name: values[name] for name in names if name in values})


def _checked(name: str, value: object) -> object:
    """The value of a column, refused where it is not of the column's type."""
    match _ALL_COLUMNS[name], value:
        case "plan", bytes():
            return decode_plan(value)
        case "text", str() if value:
            return value
        case ("int32" | "int64", int()) | ("category", str()):
            return value
        case "double", int() | float() if math.isfinite(value):
            return float(value)
        case "moment", datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case "seconds", list() | None:
            return tuple(value or ())
        case kind, _:
            raise InvalidInputError(f"{name} must be {_WANTED[kind]}, got {value!r}")


_WANTED = {
    "plan": "bytes",
    "text": "a text that is not empty",
    "int32": "a whole number",
    "int64": "a whole number",
    "double": "a finite number",
    "category": "a text",
    "moment": "a moment with a time zone",
    "seconds": "a list",
}


def _status(name: str) -> ExecutionStatus:
    found = {status.name.lower(): status for status in ExecutionStatus}.get(name)
    if found is None:
        raise InvalidInputError(f"status {name!r} is unknown")
    return found


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "plan": pa.binary(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "category": pa.dictionary(pa.int32(), pa.string()),
        "moment": pa.timestamp("us", tz="UTC"),
        "seconds": pa.list_(pa.float64()),
    }
    return pa.schema([(name, types[kind]) for name, kind in _ALL_COLUMNS.items()])


def _to_row(execution: Execution) -> dict[str, object]:
    cluster, measured, origin = execution.cluster, execution.measurement, execution.origin
    return {
        **{name: getattr(origin, name, None) for name in _ALL_COLUMNS},
        **{name: getattr(cluster, name) for name in _CLUSTER},
        **{name: getattr(measured, name, None) for name in _MEASURED},
        "execution_id": execution.execution_id,
        "workload": execution.workload,
        "plan": encode_plan(execution.plan),
        "status": execution.status.name.lower(),
        "startup_seconds": 0.0 if measured is None else measured.startup_seconds,
        "finished_at": execution.finished_at.astimezone(UTC),
        "remarks": " ".join(origin.remarks),
    }
