from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fedperf_client.sources import SkippedRecord, Source
from fedperf_client.sources.history_file import (
    COLUMNS,
    NAME_COLUMNS,
    SECONDS_COLUMN,
    HistoryFile,
    to_table,
    write_history,
    write_table,
)
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution, ExecutionMetadata, ExecutionStatus
from tests.fakes.history_metadata import read_metadata
from tests.unit.client.executions import executions, make_execution


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(history=st.lists(executions(), max_size=5))
def test_history_file_round_trip_preserves_executions(
    tmp_path: Path, history: list[Execution]
) -> None:
    path = tmp_path / "history.parquet"
    write_history(path, history)
    source: Source = HistoryFile(path)
    assert list(source.read()) == history


ORIGIN_COLUMNS = ["source", "node_type", "architecture", "rows_known", "remarks"]
NAMES = [*NAME_COLUMNS, SECONDS_COLUMN]


@pytest.mark.parametrize("lacking", [NAMES, [*ORIGIN_COLUMNS, *NAMES]])
def test_history_file_without_origin_or_name_columns_is_read(
    tmp_path: Path, lacking: list[str]
) -> None:
    write_history(tmp_path / "new", [make_execution(n) for n in range(3)])
    table = parquet.read_table(tmp_path / "new").drop_columns(lacking)
    parquet.write_table(table, tmp_path / "old")
    assert list(HistoryFile(tmp_path / "old").read()) == [make_execution(n) for n in range(3)]


def test_unnamed_table_contains_no_names(tmp_path: Path) -> None:
    named = replace(
        make_execution(), origin=ExecutionMetadata("spark 4", application="secret", file="secret")
    )
    write_table(tmp_path / "h", to_table([named], named=False))
    (found,) = HistoryFile(tmp_path / "h").read()
    assert isinstance(found, Execution)
    assert (found.origin.source, found.origin.application) == ("spark 4", "")


@pytest.mark.slow
def test_history_file_preserves_order_of_many_executions(tmp_path: Path) -> None:
    history = [make_execution(n) for n in range(2500)]
    write_history(tmp_path / "h", history)
    assert list(HistoryFile(tmp_path / "h").read()) == history


def test_history_file_stores_metadata(tmp_path: Path) -> None:
    write_history(tmp_path / "h", [make_execution()], metadata={"seed": "7", "machine": "x"})
    assert read_metadata(tmp_path / "h") == {"seed": "7", "machine": "x"}


def _with(tmp_path: Path, column: str, values: pa.Array) -> Path:
    path = tmp_path / "history.parquet"
    write_history(path, [make_execution(n) for n in range(len(values))])
    table = parquet.read_table(path)
    position = table.schema.get_field_index(column)
    parquet.write_table(table.set_column(position, column, values), path)
    return path


@pytest.mark.parametrize(
    ("column", "bad", "type_", "said"),
    [
        ("plan", b"\xff\xff", pa.binary(), "not a valid plan"),
        ("plan", None, pa.binary(), "plan must be bytes"),
        ("status", "great", pa.string(), "status 'great' is unknown"),
        ("runtime_seconds", float("nan"), pa.float64(), "runtime_seconds"),
        ("runtime_seconds", -1.0, pa.float64(), "runtime_seconds"),
        ("runtime_seconds", None, pa.float64(), "ok without a measurement"),
        ("cpu_seconds", float("inf"), pa.float64(), "cpu_seconds"),
        ("nodes", 0, pa.int32(), "nodes"),
        ("cores", None, pa.int32(), "cores"),
        ("workload", "", pa.string(), "workload"),
        ("execution_id", None, pa.string(), "execution_id"),
        ("finished_at", None, pa.timestamp("us", tz="UTC"), "finished_at"),
        ("finished_at", 0, pa.timestamp("us"), "time zone"),
        ("rows_known", 1.5, pa.float64(), "rows_known"),
        ("remarks", "great", pa.string(), "great"),
    ],
)
def test_history_file_skips_an_invalid_row_with_a_reason(
    tmp_path: Path, column: str, bad: object, type_: pa.DataType, said: str
) -> None:
    good = parquet_column(tmp_path, column, 3, type_)
    path = _with(tmp_path, column, pa.array([good[0], bad, good[2]], type_))
    found = list(HistoryFile(path).read())
    assert isinstance(found[1], SkippedRecord)
    assert found[1].record == "row 1"
    assert said in found[1].reason
    if not (column == "finished_at" and bad == 0):
        assert found[0] == make_execution(0)
        assert found[2] == make_execution(2)


def parquet_column(tmp_path: Path, column: str, rows: int, type_: pa.DataType) -> list[object]:
    write_history(tmp_path / "good", [make_execution(n) for n in range(rows)])
    values: list[object] = parquet.read_table(tmp_path / "good").column(column).to_pylist()
    if type_ == pa.timestamp("us"):
        return [value.replace(tzinfo=None) for value in values if isinstance(value, datetime)]
    return values


def test_history_file_without_parquet_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(b"PAR1 but nothing behind it")
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        list(HistoryFile(tmp_path / "h").read())


def test_truncated_history_file_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "h", [make_execution(n) for n in range(100)])
    content = (tmp_path / "h").read_bytes()
    (tmp_path / "h").write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        list(HistoryFile(tmp_path / "h").read())


def test_history_file_with_corrupt_pages_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "h", [make_execution(n) for n in range(1000)])
    content = bytearray((tmp_path / "h").read_bytes())
    content[4:2000] = b"\xa5" * 1996
    (tmp_path / "h").write_bytes(content)
    with pytest.raises((InvalidInputError, StorageError)):
        list(HistoryFile(tmp_path / "h").read())


def test_history_file_without_required_columns_names_them(tmp_path: Path) -> None:
    parquet.write_table(pa.table({name: [1] for name in list(COLUMNS)[:-2]}), tmp_path / "h")
    with pytest.raises(InvalidInputError, match="lacks the columns written_bytes, finished_at"):
        list(HistoryFile(tmp_path / "h").read())


def test_missing_history_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no history file"):
        list(HistoryFile(tmp_path / "nothing").read())


def test_history_write_into_missing_directory_fails_and_creates_no_file(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    write_history(path, [make_execution()])
    old = path.read_bytes()
    (tmp_path / "history.parquet.partial").symlink_to("/dev/full")  # no room left
    with pytest.raises(StorageError, match="cannot write the history"):
        write_history(path, [make_execution(1)])
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_history_file_stores_failed_executions_without_measurement(tmp_path: Path) -> None:
    lost = make_execution(1, status=ExecutionStatus.OUT_OF_MEMORY, measurement=None)
    write_history(tmp_path / "h", [lost])
    assert list(HistoryFile(tmp_path / "h").read()) == [lost]
