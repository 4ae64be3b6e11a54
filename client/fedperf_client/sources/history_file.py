"""History files of fedperf: Parquet, one row per execution, plans as bytes.

Invariant: `HistoryFile` reads executions that equal those that `write_history` wrote. A row that
cannot be read is skipped. A file without the required columns is refused.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.home.execution_record import MEASUREMENT, from_record, to_record
from fedperf_client.sources import SkippedRecord
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution, ExecutionStatus

if TYPE_CHECKING:
    import pyarrow

    from fedperf_client.sources.opener import SourcePlace

# Required columns with their types.
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

NAME_COLUMNS = (
    *("application", "application_id", "record", "description", "file", "failure"),
    *("statement", "operator_keys", "columns"),
)
SECONDS_COLUMN = "operator_seconds"
# All columns in their order; those that are not in `COLUMNS` are optional.
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

_MAGIC = b"PAR1"
_BATCH_ROWS = 1024
_ROW_GROUP_ROWS = 20_000
_PAGE_BYTES = 8 * 1024**2  # large pages: similar plans compress together


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A history file as a `Source`."""

    path: "SourcePlace"

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every row once, in file order; see `Source.read`."""
        from pyarrow import parquet

        with contextlib.ExitStack() as stack:
            with _file_errors(self.path):
                is_local = isinstance(self.path, Path)
                place = self.path if is_local else stack.enter_context(self.path.open("rb"))
                file = stack.enter_context(parquet.ParquetFile(place))
            names, position = file.schema_arrow.names, 0
            if missing := [name for name in COLUMNS if name not in names]:
                raise InvalidInputError(
                    f"{self.path} is not a history of fedperf: it lacks the columns "
                    f"{', '.join(missing)}"
                )
            columns = [name for name in names if name in _ALL_COLUMNS]
            batches = file.iter_batches(_BATCH_ROWS, columns=columns)
            while True:
                with _file_errors(self.path):
                    batch = next(batches, None)
                if batch is None:
                    return
                for row in batch.to_pylist():
                    yield _read_row(row, position)
                    position += 1


def open_history(path: "SourcePlace") -> HistoryFile | None:
    """Recognize a history file by its name or first bytes; see `OpenSource`."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        is_parquet = stream.read(len(_MAGIC)) == _MAGIC
    if not (is_parquet or path.name.endswith(".parquet")):
        return None
    return HistoryFile(path) if _may_be_history(path) else None


def _may_be_history(path: "SourcePlace") -> bool:
    """Return whether a Parquet file has the columns of a history, or cannot be read."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as stream:
            names = parquet.read_schema(stream).names
    except (pa.ArrowException, ValueError, OSError):
        return True
    return all(name in names for name in COLUMNS)


def write_history(
    path: Path, executions: Iterable[Execution], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the executions to `path`, replacing an existing file; see `write_table`."""
    write_table(path, to_table(executions), metadata=metadata)


def executions_of(path: Path) -> "Iterator[Execution]":
    """Yield the executions of a history file, every row of which must be readable.

    Raises:
        InvalidInputError: it is not a history file, or a row cannot be read.
    """
    for row in HistoryFile(path).read():
        if isinstance(row, SkippedRecord):
            raise InvalidInputError(f"{path}: {row}")
        yield row


def to_table(executions: Iterable[Execution], *, named: bool = True) -> "pyarrow.Table":
    """Return executions as a table with the columns of a history file.

    Args:
        executions: in the order of the rows.
        named: include the columns that identify an execution to people. Tables to be published
            must not have them.
    """
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
    rows = [
        to_record(each)
        | {"status": each.status.name.lower(), "finished_at": each.finished_at.astimezone(UTC)}
        for each in executions
    ]
    schema = pa.schema([(name, types[kind]) for name, kind in _ALL_COLUMNS.items()])
    table = pa.Table.from_pylist(rows, schema=schema)
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
        path: of the file, which is replaced if it exists.
        table: made by `to_table`; further columns are written and ignored when read.
        metadata: provenance, stored as key-value metadata of the file.
        compression_level: of zstd.

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


@contextlib.contextmanager
def _file_errors(path: "SourcePlace") -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no history file {path}") from error
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(f"{path} is not a readable Parquet file: {error}") from error
    except OSError as error:
        raise StorageError(f"cannot read the history {path}: {error}") from error


def _read_row(row: Mapping[str, object], position: int) -> Execution | SkippedRecord:
    try:
        is_measured = row["runtime_seconds"] is not None
        record = {
            name: _checked(name, row[name])
            for name in _ALL_COLUMNS
            if name in row and (is_measured or name not in MEASUREMENT)
        }
        return from_record({**record, "status": ExecutionStatus[str(record["status"]).upper()]})
    except KeyError:
        return SkippedRecord(f"row {position}", f"status {row['status']!r} is unknown")
    except (InvalidInputError, ValueError, TypeError, OverflowError) as error:
        return SkippedRecord(f"row {position}", str(error))


def _checked(name: str, value: object) -> object:
    """Return the value of a column, or raise if it does not have the column's type."""
    match _ALL_COLUMNS[name], value:
        case ("plan", bytes()) | ("category", str()):
            return value
        case "text", str() if value:
            return value
        case (("int32" | "int64"), int()):
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
