"""Presets: tables of known tools, recognised by their columns.

A preset needs its columns to be there and says what they mean. What it prepares of a row are names
of jobs and numbers that follow from several cells. A query of a warehouse belongs to the job of all
queries with the same text without constants: by the hash of the warehouse where there is one, else
by a digest of the text. The text itself is not stored.

The forms of query histories are those of the documentation of BigQuery, Snowflake, Databricks and
Trino; they were not tried against the services.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fedperf_client.sources.opener import SourcePlace
from fedperf_client.sources.tables.columns import TableMapping, to_number
from fedperf_client.sources.tables.rows import Row

_NOT_A_RUN = "a warm-up, or a part of the job"


def _stem(path: SourcePlace) -> str:
    return path.name.split(".")[0] or path.name


def _unchanged(row: Row) -> Row | str:
    return row


@dataclass(frozen=True, slots=True)
class Preset:
    """The table of one tool."""

    name: str
    requires: frozenset[str]  # its columns that tell it, in lower case
    mapping: TableMapping = field(default_factory=TableMapping)
    # Returns a row as `mapping` expects it, or why it is no run.
    prepare: Callable[[Row], Row | str] = _unchanged
    # Returns the runs of a file of which not every row is one.
    gather: Callable[[Iterator[Row]], Iterable[Row]] | None = None
    job_of: Callable[[SourcePlace], str] = _stem  # the job of a file whose rows name none
    columns_cell: str = ""  # the cell that holds the columns of a run as JSON
    keeps_ids: bool = False  # whether its ids are those of executions


# --- fedperf's own exports ---------------------------------------------------------------------

_FORMULA = re.compile(r"'[=+\-@\t\r]")


def _of_export(row: Row) -> Row:
    """Undo the quotes by which `fedperf runs export` protects spreadsheets."""
    return {
        name: cell[1:] if isinstance(cell, str) and _FORMULA.match(cell) else cell
        for name, cell in row.items()
    }


def _of_trials(row: Row) -> Row | str:
    names = list(row)
    is_whole = row.get("component") == "(whole)" and row.get("status") != "skipped"
    if not is_whole or str(row.get("is_warmup")).lower() == "true":
        return _NOT_A_RUN
    columns = names[names.index("configuration") + 1 : names.index("component")]
    others = ("started", "ended", "status", "wall_seconds", "cpu_seconds")
    return {name: row[name] for name in (*columns, *others)}


def _campaign_of(path: SourcePlace) -> str:
    return path.absolute().parent.name if isinstance(path, Path) else Path(path.name).stem


# --- measurements of others --------------------------------------------------------------------


def _of_probe(row: Row) -> Row:
    program = PurePosixPath(str(row["darshan_app"]))
    return row | {"job": program.name, "node_kind": program.parent.name}


def _of_polars(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the one run of `LazyFrame.profile()`, whose rows are operators, in microseconds."""
    ends = [number for each in rows if (number := to_number(each.get("end"))) is not None]
    yield {"time": max(ends, default=None)}


def benchmark_rows(document: object) -> Iterator[Row] | None:
    """Return the tries of a result of ClickBench, whose first try finds the cache cold."""
    if not isinstance(document, dict) or not {"system", "result"} <= document.keys():
        return None
    results = document["result"]
    if not isinstance(results, list) or not all(isinstance(each, list) for each in results):
        return None
    names = ("system", "machine", "cluster_size", "data_size", "date")
    whole = {name: document[name] for name in names if isinstance(document.get(name), str | int)}
    return (
        {
            **whole,
            "job": f"{document['system']} q{number}",
            "cache": "hot" if place else "cold",
            "try": float(place + 1),
            "seconds": seconds,
        }
        for number, tries in enumerate(results, 1)
        for place, seconds in enumerate(tries)
    )


def explained_rows(document: object) -> Iterator[Row] | None:
    """Return the run of `EXPLAIN (ANALYZE, FORMAT JSON)` of PostgreSQL."""
    if not (isinstance(document, list) and len(document) == 1 and isinstance(document[0], dict)):
        return None
    explained = document[0]
    if not {"Plan", "Execution Time"} <= explained.keys():
        return None
    return iter([{"explained_ms": explained["Execution Time"]}])


DOCUMENTS: Sequence[Callable[[object], Iterator[Row] | None]] = (benchmark_rows, explained_rows)


# --- query histories of warehouses -------------------------------------------------------------

_CONSTANT = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b")
_REMARK = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# Machines of a warehouse of Snowflake by its size: each size is twice the one before.
_WAREHOUSES = {
    name: 2.0**power
    for power, name in enumerate(
        ("xsmall", "small", "medium", "large", "xlarge", "2xlarge", "3xlarge", "4xlarge", "5xlarge")
    )
}


def text_digest(text: str) -> str:
    """Return a digest of an SQL text without constants, remarks and spacing."""
    plain = " ".join(_CONSTANT.sub("?", _REMARK.sub(" ", text)).lower().split())
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def _query(row: Row, *, hashes: Sequence[str], text: str) -> str | None:
    """Return the job of a query; None if the row names none."""
    for name in hashes:
        if row.get(name) not in (None, ""):
            return str(row[name])
    return text_digest(str(row[text])) if row.get(text) else None


def _lower(row: Row) -> Row:
    return {name.lower(): cell for name, cell in row.items()}


def _of_bigquery(row: Row) -> Row | str:
    row = _lower(row)
    hashes = ("query_info.query_hashes.normalized_literals",)
    failed = row.get("error_result.reason") or row.get("error_result")
    return row | {
        "job": _query(row, hashes=hashes, text="query"),
        "status": "failed" if failed else str(row.get("state", "done")),
    }


def _of_snowflake(row: Row) -> Row | str:
    row = _lower(row)
    size = re.sub(r"[^a-z0-9]", "", str(row.get("warehouse_size") or "").lower())
    if size not in _WAREHOUSES:
        return "ran on no warehouse"
    hashes = ("query_parameterized_hash", "query_hash")
    job = _query(row, hashes=hashes, text="query_text")
    return row | {"job": job, "warehouse_machines": _WAREHOUSES[size]}


def _of_databricks(row: Row) -> Row | str:
    row = _lower(row)
    hashes = ("query_source.job_info.job_id", "query_source.dashboard_id")
    return row | {"job": _query(row, hashes=hashes, text="statement_text")}


def _of_trino(row: Row) -> Row | str:
    return row | {"job": _query(row, hashes=(), text="metadata.query")}


# --- the table of presets ----------------------------------------------------------------------

PRESETS: Sequence[Preset] = (
    Preset(
        "runs exported by fedperf",
        frozenset({"id", "workload", "runtime_seconds", "finished_at", "rows_known"}),
        TableMapping(
            job="workload",
            time="runtime_seconds:s",
            nodes="nodes",
            cores="cores",
            status="status",
            memory="memory_bytes:bytes",
            machine="node_type",
            finished="finished_at",
            id="id",
            cpu="cpu_seconds:s",
            columns=(),
        ),
        _of_export,
        columns_cell="columns",
        keeps_ids=True,
    ),
    Preset(
        "trials of fedperf profile",
        frozenset({"configuration", "component", "repetition", "wall_seconds", "is_warmup"}),
        TableMapping(
            time="wall_seconds:s",
            started="started",
            finished="ended",
            status="status",
            cpu="cpu_seconds:s",
        ),
        _of_trials,
        job_of=_campaign_of,
    ),
    Preset(
        "C3O", frozenset({"machine_type", "gross_runtime"}), TableMapping(time="gross_runtime:s")
    ),
    Preset(
        "TOKIO-ABC",
        frozenset({"darshan_app", "darshan_nprocs", "darshan_walltime", "darshan_start_time"}),
        TableMapping(
            job="job",
            time="darshan_walltime:s",
            cores="darshan_nprocs",
            input_size="darshan_total_gibs_posix:GiB",
            started="darshan_start_time",
            columns=("_file_system", "node_kind"),
        ),
        _of_probe,
    ),
    Preset(
        "Polars profile",
        frozenset({"node", "start", "end"}),
        TableMapping(time="time:us", columns=()),
        gather=_of_polars,
    ),
    Preset(
        "ClickBench",
        frozenset({"job", "system", "cache", "try", "seconds"}),
        TableMapping(
            job="job",
            time="seconds:s",
            nodes="cluster_size",
            machine="machine",
            engine="system",
            input_size="data_size:bytes",
            finished="date",
            columns=("cache",),
        ),
    ),
    Preset(
        "EXPLAIN ANALYZE of PostgreSQL",
        frozenset({"explained_ms"}),
        TableMapping(time="explained_ms:ms", columns=()),
    ),
    Preset(
        "BigQuery jobs",
        frozenset({"job_id", "creation_time", "start_time", "end_time", "total_bytes_processed"}),
        TableMapping(
            job="job",
            started="start_time",
            finished="end_time",
            status="status",
            id="job_id",
            input_size="total_bytes_processed:bytes",
            columns=("cache_hit", "reservation_id"),
        ),
        _of_bigquery,
    ),
    Preset(
        "Snowflake query history",
        frozenset({"query_id", "warehouse_size", "execution_time", "bytes_scanned"}),
        TableMapping(
            job="job",
            time="execution_time:ms",
            started="start_time",
            finished="end_time",
            status="execution_status",
            id="query_id",
            nodes="warehouse_machines",
            input_size="bytes_scanned:bytes",
            columns=(),
        ),
        _of_snowflake,
    ),
    Preset(
        "Databricks query history",
        frozenset({"statement_id", "execution_status", "total_duration_ms", "read_bytes"}),
        TableMapping(
            job="job",
            time="total_duration_ms:ms",
            started="start_time",
            finished="end_time",
            status="execution_status",
            id="statement_id",
            input_size="read_bytes:bytes",
            columns=("compute.warehouse_id", "from_result_cache"),
        ),
        _of_databricks,
    ),
    Preset(
        "Trino query events",
        frozenset({"metadata.queryid", "metadata.query", "metadata.querystate", "createtime"}),
        TableMapping(
            job="job",
            started="executionStartTime",
            finished="endTime",
            status="metadata.queryState",
            id="metadata.queryId",
            input_size="statistics.physicalInputBytes:bytes",
            columns=(),
        ),
        _of_trino,
    ),
)


def preset_of(row: Mapping[str, object]) -> Preset | None:
    """Return the preset of a table with the columns of this row, None for an unknown table."""
    names = {name.lower() for name in row}
    return next((each for each in PRESETS if each.requires <= names), None)
