"""The process of one Spark session: `python -m ...spark_session DIRECTORY DATA`.

Spark runs in local mode with the session's heap, so that small memory spills, and writes its own
event log, rolling and compressed, as clusters do. Tables that are read from text have the types
that Parquet has. Queries begin when all tables are registered.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedperf_client.workers.machine import machine_speed
from fedperf_simulations.corpus.sql.sessions import (
    FILE_OF_ENTRIES,
    Outcome,
    SessionRecord,
    SqlSession,
    SqlStep,
    read_session,
    records_of,
    write_record,
)
from fedperf_simulations.corpus.sql.tables import Storage, TableSet, prepare_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

EVENTS = "events"
"""Directory of the event log."""

_SOURCES = {
    Storage.PARQUET: "parquet",
    Storage.PARTS: "parquet",
    Storage.CSV: "csv",
    Storage.JSON: "json",
}


def run_session(directory: Path, data: Path) -> None:
    """Carry out the session of a directory, on tables that are there."""
    session = read_session(directory)
    speed = machine_speed()
    events = directory / EVENTS
    events.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        spark = _started(session, events, scratch)
        types = {each: _types(spark, each, data) for each in {t.schema for t in session.tables}}
        for tables in session.tables:
            _create_tables(spark, tables, data, types[tables.schema])
        _register_functions(spark)

        def take(position: int, step: SqlStep, run: int) -> None:
            del position, run
            spark.catalog.setCurrentDatabase(step.tables.name)
            text = step.text.replace(FILE_OF_ENTRIES, str(step.tables.path("entries", data)))
            _carry_out(spark.sql(text), step.outcome, Path(scratch) / "out")

        records = tuple(
            records_of(
                session,
                take,
                spark.sparkContext.cancelAllJobs,
                is_alive=lambda: _answers(spark),
            )
        )
        if _answers(spark):
            spark.stop()
    write_record(SessionRecord(speed, records), directory)


def _started(session: SqlSession, events: Path, scratch: str) -> "SparkSession":
    from pyspark.sql import SparkSession

    # Without it Spark looks up the name of this host, which may take long or fail.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{session.threads}]").appName("shop queries")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": f"{session.memory_bytes >> 20}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.resolve().as_uri(),
        "spark.eventLog.compress": "true",
        "spark.local.dir": scratch,
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **session.settings,
    }
    return builder.config(map=settings).getOrCreate()


def _types(spark: "SparkSession", schema: str, data: Path) -> "Mapping[str, StructType]":
    """Return the columns of each table, as the smallest Parquet has them."""
    smallest = TableSet(schema, 1_000, Storage.PARQUET)
    prepare_tables(smallest, data)
    return {
        table: spark.read.parquet(str(smallest.path(table, data))).schema
        for table in smallest.tables
    }


def _create_tables(
    spark: "SparkSession", tables: TableSet, data: Path, types: "Mapping[str, StructType]"
) -> None:
    spark.sql(f"CREATE DATABASE {tables.name}")
    for table, columns in types.items():
        spark.catalog.createTable(
            f"{tables.name}.{table}",
            path=str(tables.path(table, data)),
            source=_SOURCES[tables.storage],
            schema=columns,
            **({"header": "true"} if tables.storage is Storage.CSV else {}),
        )


def _register_functions(spark: "SparkSession") -> None:
    """Register the functions of texts: `label_of` takes single rows, `net_of` takes batches."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def label_of(number: int | None) -> str:
        return "odd" if number is not None and number % 2 else "even"

    # Spark reads these annotations, and supports no parameters of them.
    def net_of(first: pd.Series, second: pd.Series) -> pd.Series:
        return first * (1 - second)

    spark.udf.register("label_of", label_of)
    spark.udf.register("net_of", cast("Any", pandas_udf)(net_of, "double"))


def _carry_out(rows: "DataFrame", outcome: Outcome, out: Path) -> None:
    if outcome in (Outcome.COLLECT, Outcome.COMMAND):
        rows.collect()
    elif outcome is Outcome.DISCARD:
        rows.write.format("noop").mode("overwrite").save()
    elif outcome is Outcome.PANDAS:
        rows.groupBy("g").applyInPandas(_spread_of, "g bigint, spread double").collect()
    else:
        rows.write.format(str(outcome)).mode("overwrite").save(str(out))
        shutil.rmtree(out)


def _spread_of(group: "pd.DataFrame") -> "pd.DataFrame":
    return group.groupby("g").agg(spread=("v", "std")).reset_index()


def _answers(spark: Any) -> bool:  # noqa: ANN401 - Py4J has no types
    """Return whether the JVM lives: one that ran out of memory may have ended."""
    try:
        spark.sparkContext.defaultParallelism  # noqa: B018 - reading it calls Spark
    except Exception:  # any error of Py4J without a listener
        return False
    return True


if __name__ == "__main__":
    run_session(*map(Path, sys.argv[1:]))
