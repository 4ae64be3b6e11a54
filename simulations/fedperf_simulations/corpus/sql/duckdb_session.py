"""The process of one DuckDB session: `python -m ...duckdb_session DIRECTORY DATA`.

Every run's JSON profile is kept, one a line, as `fedperf ingest` reads them; a query that DuckDB
computes from statistics alone has none.
"""

import sys
import tempfile
from pathlib import Path

import duckdb
import orjson

from fedperf_client.workers.machine import machine_speed
from fedperf_simulations.corpus.sql.sessions import (
    Outcome,
    SessionRecord,
    SqlSession,
    SqlStep,
    read_session,
    records_of,
    write_record,
)
from fedperf_simulations.corpus.sql.tables import Storage, TableSet

PROFILES = "profiles"
"""Directory with one profile for each run."""

_VIEWS = {
    Storage.PARQUET: "read_parquet('{}')",
    Storage.PARTS: "read_parquet('{}/*.parquet')",
    Storage.CSV: "read_csv('{}')",
    Storage.JSON: "read_json('{}')",
}
_COPIES = {Outcome.PARQUET: "(FORMAT parquet)", Outcome.CSV: "(FORMAT csv)"}


def profile_path(directory: Path, position: int, run: int) -> Path:
    """Return the path of the profile of a run of a step."""
    return directory / PROFILES / f"{position:03d}-{run}.json"


def run_session(directory: Path, data: Path) -> None:
    """Carry out the session of a directory, on tables that are there."""
    session = read_session(directory)
    speed = machine_speed()
    (directory / PROFILES).mkdir()
    with tempfile.TemporaryDirectory() as scratch, _connected(session, data, scratch) as connection:

        def take(position: int, step: SqlStep, run: int) -> None:
            path = profile_path(directory, position, run)
            # Whatever runs while profiles are written overwrites the last one.
            connection.execute("PRAGMA disable_profiling")
            connection.execute(f"USE {_place(step.tables)}")
            connection.execute("SET enable_profiling = 'json'")
            connection.execute(f"SET profiling_output = '{path}'")
            connection.execute(_statement(step, scratch)).fetchall()
            if path.exists():  # without the indentation
                path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes())))

        records = tuple(records_of(session, take, connection.interrupt))
        connection.execute("PRAGMA disable_profiling")
    write_record(SessionRecord(speed, records), directory)


def _connected(session: SqlSession, data: Path, scratch: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={
            "threads": session.threads,
            "memory_limit": f"{session.memory_bytes}B",
            "temp_directory": scratch,
        }
    )
    for tables in session.tables:
        place = _place(tables)
        if tables.storage is Storage.NATIVE:
            connection.execute(f"ATTACH '{data / tables.name}' AS {place} (READ_ONLY)")
            continue
        connection.execute(f"ATTACH ':memory:' AS {place}")
        for table in tables.tables:
            source = _VIEWS[tables.storage].format(tables.path(table, data))
            connection.execute(f"CREATE VIEW {place}.{table} AS FROM {source}")
    return connection


def _place(tables: TableSet) -> str:
    return f"on_{tables.name}"


def _statement(step: SqlStep, scratch: str) -> str:
    if step.outcome in _COPIES:
        return f"COPY ({step.text}) TO '{scratch}/out' {_COPIES[step.outcome]}"
    if step.outcome is Outcome.TABLE:
        return f"CREATE OR REPLACE TEMP TABLE result_of_step AS {step.text}"
    return step.text


if __name__ == "__main__":
    run_session(*map(Path, sys.argv[1:]))
