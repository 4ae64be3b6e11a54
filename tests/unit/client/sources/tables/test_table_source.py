"""Tables of past runs as a source: forms of files, columns, units, dates, ids and presets."""

import csv
import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.home.execution_record import columns_from_text, columns_to_text
from fedperf_client.sources import NothingToReadError, SkippedRecord, UnknownSourceError
from fedperf_client.sources.tables import open_table
from fedperf_client.sources.tables.columns import (
    ColumnUse,
    Role,
    TableMapping,
    parse_moment,
    to_number,
    to_seconds,
    to_size,
)
from fedperf_client.sources.tables.presets import text_digest
from fedperf_client.sources.tables.source import TableSource, UnknownTableError
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionMetadata, ExecutionStatus, JobColumn
from fedperf_shared.wire.codec import encode_plan

CASES = Path(__file__).parent / "query_histories"
"""Tables in the documented forms of services, written by hand: not recorded from the services."""

RUNS = """job,nodes,cores,input_gb,seconds
nightly,4,16,120,610
nightly,8,32,120,340
"""


def write(directory: Path, text: str, name: str = "runs.csv") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def table(directory: Path, text: str, **mapping: object) -> TableSource:
    return TableSource(write(directory, text), TableMapping(**mapping), is_named=True)  # type: ignore[arg-type]


def executions(source: TableSource) -> list[Execution]:
    return [each for each in source.read() if isinstance(each, Execution)]


def reasons(source: TableSource) -> list[str]:
    return [each.reason for each in source.read() if isinstance(each, SkippedRecord)]


def refusal(source: TableSource) -> str:
    with pytest.raises(InvalidInputError) as caught:
        list(source.read())
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_row_of_table_becomes_execution_with_cluster_input_and_columns(tmp_path: Path) -> None:
    first, second = executions(table(tmp_path, RUNS))
    assert first.workload == second.workload == "nightly"
    assert (first.cluster.nodes, first.cluster.cores, first.runtime_seconds) == (4, 16, 610.0)
    assert first.measurement is not None
    assert first.measurement.read_bytes == 120_000_000_000
    assert first.origin.columns == (
        JobColumn("nodes", 4.0, "nodes"),
        JobColumn("cores", 16.0, "cores"),
        JobColumn("input_gb", 120.0, "input_size"),
    )
    assert first.execution_id != second.execution_id


def test_row_with_input_rows_becomes_operator_of_known_rows(tmp_path: Path) -> None:
    [run] = executions(table(tmp_path, "job,rows,seconds\na,5e6,3\n"))
    assert run.plan.workflow.operators[0].output_rows == 5e6
    assert run.origin.rows_known == 1.0


FORMS = {
    "runs.tsv": lambda rows: "\n".join("\t".join(map(str, each)) for each in rows),
    "runs.csv": lambda rows: "\n".join(";".join(map(str, each)) for each in rows),
    "runs.jsonl": lambda rows: "\n".join(
        json.dumps(dict(zip(rows[0], each, strict=True))) for each in rows[1:]
    ),
    "runs.json": lambda rows: json.dumps(
        [dict(zip(rows[0], each, strict=True)) for each in rows[1:]]
    ),
    "columns.json": lambda rows: json.dumps(
        dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    ),
    "nested.json": lambda rows: json.dumps(
        {"schema": 1, "rows": [dict(zip(rows[0], each, strict=True)) for each in rows[1:]]}
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_same_table_in_other_forms_gives_same_runs_and_ids(tmp_path: Path, name: str) -> None:
    usual = executions(table(tmp_path, RUNS))
    rows = [
        [int(cell) if cell.isdigit() else cell for cell in row]
        for row in csv.reader(io.StringIO(RUNS))
    ]
    path = write(tmp_path, FORMS[name](rows), f"other-{name}")
    found = executions(TableSource(path, is_named=True))
    assert [e.execution_id for e in found] == [e.execution_id for e in usual]
    assert [e.origin.columns for e in found] == [e.origin.columns for e in usual]


def test_packed_and_parquet_tables_give_same_ids(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    usual = [e.execution_id for e in executions(table(tmp_path, RUNS))]
    packed = tmp_path / "runs.csv.gz"
    packed.write_bytes(gzip.compress(RUNS.encode()))
    columns = {
        "job": ["nightly", "nightly"],
        "nodes": [4, 8],
        "cores": [16, 32],
        "input_gb": [120.0, 120.0],
        "seconds": [610, 340],
    }
    parquet.write_table(pa.table(columns), tmp_path / "runs.parquet")
    for path in (packed, tmp_path / "runs.parquet"):
        source = open_table(path)
        assert source is not None
        assert [e.execution_id for e in executions(source)] == usual


def test_more_rows_keep_the_ids_of_earlier_ones(tmp_path: Path) -> None:
    before = executions(table(tmp_path, RUNS))
    after = executions(table(tmp_path, RUNS + "nightly,8,32,120,340\n"))
    assert [e.execution_id for e in after[:2]] == [e.execution_id for e in before]
    assert len({e.execution_id for e in after}) == 3  # an equal row without a time is a repeat


def test_equal_rows_with_time_of_day_or_id_count_once(tmp_path: Path) -> None:
    dated = "job,started,seconds\na,2026-01-01,3\na,2026-01-01,3\n"
    assert len(executions(table(tmp_path, dated))) == 1
    assert reasons(table(tmp_path, dated)) == [
        "a row with the same id or the same cells came before"
    ]
    named = "job,run_id,seconds\na,7,3\na,7,4\n"
    assert len(executions(table(tmp_path, named))) == 1


@pytest.mark.parametrize(
    ("column", "cell", "seconds"),
    [
        ("seconds", "3.5", 3.5),
        ("elapsed_ms", "3500", 3.5),
        ("Duration (min)", "2", 120.0),
        ("runtime", "1:02:03", 3723.0),
        ("runtime", "12m", 720.0),
        ("runtime", "PT1M2S", 62.0),
        ("gross_runtime", "1,200.5", 1200.5),
    ],
)
def test_times_are_read_in_their_unit(
    tmp_path: Path, column: str, cell: str, seconds: float
) -> None:
    [run] = executions(table(tmp_path, f'job\t{column}\na\t"{cell}"\n'))
    assert run.runtime_seconds == pytest.approx(seconds)


def test_unit_after_column_counts_more_than_its_name(tmp_path: Path) -> None:
    [run] = executions(table(tmp_path, "job,took\na,1500\n", time="took:ms"))
    assert run.runtime_seconds == 1.5
    columns = table(tmp_path, "job,took\na,1500\n", time="took").columns
    assert columns.by_role[Role.TIME].is_assumed


@pytest.mark.parametrize(
    ("text", "mapping", "words"),
    [
        (RUNS, {"time": "secs"}, ("time: there is no column 'secs'", "seconds")),
        (RUNS, {"time": "seconds:parsecs"}, ("unit 'parsecs' is unknown", "ms")),
        (RUNS, {"time": "job"}, ("column 'job' holds no numbers, such as 'nightly'",)),
        ("a,b\n1,2\n", {}, ("--time COLUMN", "a, b")),
        ("a,a\n1,2\n", {}, ("the column 'a' is there twice",)),
        ("job,seconds\na,1,2,3\n", {}, ("line 2 has 4 cells",)),
        ("job,seconds\n", {}, ("a table without rows",)),
        ("job,date,seconds\na,3/4/2026,1\n", {}, ("3/4/2026", "day_first", "--mapping")),
        (
            "job,start,end,runtime\na,2026-01-01T00:00:00,2026-01-01T00:00:05,5000\n",
            {},
            ("about 1000 times", "write runtime:ms"),
        ),
    ],
)
def test_table_that_cannot_be_understood_is_refused_in_one_line(
    tmp_path: Path, text: str, mapping: dict[str, object], words: tuple[str, ...]
) -> None:
    message = refusal(table(tmp_path, text, **mapping))
    for each in words:
        assert each in message


def test_rows_that_are_no_runs_are_skipped_with_reason(tmp_path: Path) -> None:
    text = "job,seconds,status\na,,ok\na,-1,ok\na,x,ok\n,1,ok\na,2e9,ok\na,1,pending\na,1,ok\n"
    source = table(tmp_path, text)
    assert len(executions(source)) == 1
    assert reasons(source) == [
        "has no time",
        "its time is not above 0",
        "column 'seconds' holds no time, such as 'x'",
        "names no job",
        "its time is above 1,000,000 s; if it is in ms, write seconds:ms",
        "status 'pending' is no end of a run",
    ]


def test_status_words_become_statuses(tmp_path: Path) -> None:
    text = "job,seconds,status\na,1,SUCCEEDED\na,1,Failed\na,1,timed out\na,1,OOM\n"
    assert [e.status for e in executions(table(tmp_path, text))] == [
        ExecutionStatus.OK,
        ExecutionStatus.FAILED,
        ExecutionStatus.TIMEOUT,
        ExecutionStatus.OUT_OF_MEMORY,
    ]


@pytest.mark.parametrize(
    ("cell", "day_first"),
    [
        ("2026-04-03T06:00:00Z", None),
        ("2026-04-03 08:00:00+02:00", None),
        ("2026-04-03 06:00:00 UTC", None),
        ("1775196000", None),
        (1775196000000, None),
        ("03/04/2026 06:00", True),
        ("4/3/2026 6:00 AM", False),
        ("3.4.2026 06:00", None),
        ("3 Apr 2026 06:00", None),
        (datetime(2026, 4, 3, 6), None),  # noqa: DTZ001 (of a Parquet file without zones)
    ],
)
def test_moments_of_many_forms_are_equal(
    cell: str | int | datetime, day_first: bool | None
) -> None:
    assert parse_moment(cell, day_first) == datetime(2026, 4, 3, 6, tzinfo=UTC)


def test_dates_show_by_their_values_that_days_come_first(tmp_path: Path) -> None:
    text = "job,date,seconds\na,3/4/2026,1\na,24/4/2026,1\n"
    assert [e.finished_at.day for e in executions(table(tmp_path, text))] == [3, 24]


def test_times_follow_from_start_and_end(tmp_path: Path) -> None:
    text = "job,started_at,ended_at\na,2026-01-01T00:00:00,2026-01-01T00:01:30\n"
    [run] = executions(table(tmp_path, text))
    assert run.runtime_seconds == 90.0
    assert run.finished_at == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_results_ids_and_free_texts_do_not_describe_the_job(tmp_path: Path) -> None:
    head = "job,seconds,workers,format,throughput,trace_id,comment,k"
    rows = [f"a,{n},2,{'csv' if n % 2 else 'orc'},{n},{n}x,text {n},7" for n in range(1, 60)]
    source = table(tmp_path, "\n".join((head, *rows)))
    assert [use.name for use in source.columns.configuration] == ["workers", "format", "k"]


def test_table_of_unknown_columns_is_left_to_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(UnknownTableError, match=r"--job COLUMN --time COLUMN\. It has a, b"):
        open_table(write(tmp_path, "a,b\n1,2\n"))
    assert issubclass(UnknownTableError, NothingToReadError)
    assert not issubclass(UnknownTableError, UnknownSourceError)
    assert open_table(write(tmp_path, RUNS, "runs.log")) is None


def test_texts_of_table_reach_only_local_fields(tmp_path: Path) -> None:
    head, canary = "job,machine_type,format,status,seconds", "canary-7f3a9"
    [run] = executions(table(tmp_path, f"{head}\n{canary},{canary},{canary},ok,3\n"))
    assert canary.encode() not in encode_plan(run.plan)
    bare = replace(run, execution_id="x", workload="w", origin=ExecutionMetadata())
    assert canary not in repr(bare)
    assert {each.value for each in run.origin.columns} == {canary}


HISTORIES = {
    "bigquery.json": ("BigQuery jobs", "f1e2d3", 12.5, 1_500_000_000),
    "snowflake.csv": ("Snowflake query history", "9a8b7c", 8.25, 2_000_000_000),
    "databricks.json": ("Databricks query history", text_digest("select ?"), 4.2, 700_000),
    "trino.jsonl": ("Trino query events", text_digest("SELECT 7"), 2.0, 123_456),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_query_history_in_documented_form_is_recognized(name: str) -> None:
    form, job, seconds, read_bytes = HISTORIES[name]
    source = open_table(CASES / name)
    assert source is not None
    assert source.preset is not None
    assert source.preset.name == form
    first, second = executions(source)
    assert (first.workload, first.runtime_seconds) == (job, seconds)
    assert first.measurement is not None
    assert first.measurement.read_bytes == read_bytes
    assert second.status is ExecutionStatus.FAILED
    stored = orjson.dumps([repr(first), repr(second)]).lower()
    assert b"select" not in stored


def test_query_texts_that_differ_in_constants_are_one_job() -> None:
    assert text_digest("SELECT * FROM t WHERE a = 7 -- x") == text_digest(
        "select *\nfrom T where a = 'it''s'"
    )
    assert text_digest("SELECT a FROM t") != text_digest("SELECT a FROM u")


def test_polars_profile_is_one_run_of_its_file(tmp_path: Path) -> None:
    text = "node,start,end\noptimization,0,5\nscan,5,900\n"
    [run] = executions(TableSource(write(tmp_path, text, "daily.csv")))
    assert run.workload == "daily"
    assert run.runtime_seconds == pytest.approx(0.0009)


def test_benchmark_result_gives_a_job_for_every_query(tmp_path: Path) -> None:
    document = {
        "system": "DuckDB", "date": "2026-05-11", "machine": "c6a.4xlarge", "cluster_size": 1,
        "data_size": 20_000_000_000, "result": [[0.03, 0.01], [0.1, None]],
    }  # fmt: skip
    source = TableSource(write(tmp_path, json.dumps(document), "results.json"))
    assert [(e.workload, e.runtime_seconds) for e in executions(source)] == [
        ("DuckDB q1", 0.03),
        ("DuckDB q1", 0.01),
        ("DuckDB q2", 0.1),
    ]
    assert reasons(source) == ["has no time"]


words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12)


@given(words)
def test_parsers_of_cells_return_a_finite_value_or_none(text: str) -> None:
    use = ColumnUse("x", Role.TIME, "s", 1.0)
    for value in (to_number(text), to_seconds(use, text), to_size(use, text)):
        assert value is None or abs(value) < float("inf")
    for day_first in (True, False, None):
        moment = parse_moment(text, day_first)
        assert moment is None or moment.tzinfo is not None


@given(st.floats(-1e15, 1e15))
def test_number_is_read_as_it_was_written(number: float) -> None:
    assert to_number(repr(number)) == number
    assert to_number(f"{number:,.6f}") == pytest.approx(number, abs=1e-5, rel=1e-9)


columns = st.lists(
    st.builds(JobColumn, st.text(min_size=1), st.text() | st.floats(-1e9, 1e9), st.text()),
    unique_by=lambda each: each.name,
).map(tuple)


@given(columns)
def test_columns_as_text_are_read_back(values: tuple[JobColumn, ...]) -> None:
    assert columns_from_text(columns_to_text(values)) == values


@pytest.mark.parametrize("text", ["{", "[1]", '[["a", null, ""]]', '[["a", true, ""]]'])
def test_columns_from_wrong_text_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        columns_from_text(text)


def test_execution_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    [first, _] = executions(table(tmp_path, RUNS))
    with pytest.raises(InvalidInputError, match="distinct names"):
        replace(first.origin, columns=(JobColumn("a", 1.0), JobColumn("a", 2.0)))
