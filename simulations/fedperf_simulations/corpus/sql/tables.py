"""Generated tables that SQL is measured on: a function of schema, rows and storage.

The definitions lie in `texts/SCHEMA_tables.sql` and are carried out by DuckDB once; files
appear whole or not at all, so that a killed generation leaves nothing that looks finished.
Refused: rows that a storage would need too much room or time for.

The held-out queries are texts that were committed before anything of them was measured. No model
may see them or their executions; see the notes in the texts.
"""

import shutil
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path

from fedperf_shared.errors import ConfigurationError

TEXTS = Path(__file__).with_name("texts")

_NAME = "-- name: "
_NOISE = "CREATE TEMP MACRO noise(i, salt) AS hash(i * 128 + salt)"


@unique
class Storage(StrEnum):
    """The format of tables on the disk."""

    PARQUET = "parquet"
    PARTS = "parts"
    """Parquet in many files for a table."""

    NATIVE = "native"
    """A database of DuckDB."""

    CSV = "csv"
    JSON = "json"


MOST_ROWS = {Storage.PARTS: 5_000_000, Storage.CSV: 5_000_000, Storage.JSON: 1_000_000}
"""Rows of the largest table in a storage. Others have no limit."""

_COPIES = {
    Storage.PARQUET: "'.parquet' (FORMAT parquet)",
    Storage.PARTS: "'' (FORMAT parquet, FILE_SIZE_BYTES '2MB')",
    Storage.CSV: "'.csv' (FORMAT csv, HEADER)",
    Storage.JSON: "'.json' (FORMAT json)",
}
"""Suffix of the files, and the option of DuckDB."""


@dataclass(frozen=True, slots=True, order=True)
class TableSet:
    """All tables of a schema at one size in one storage.

    Attributes:
        schema: `tpch`, `telemetry` or `shop`.
        rows: of the largest table, about.
        storage: how they lie there.
    """

    schema: str
    rows: int
    storage: Storage

    def __post_init__(self) -> None:
        most = MOST_ROWS.get(self.storage, self.rows)
        if not 0 < self.rows <= most:
            raise ConfigurationError(
                f"tables in {self.storage} have 1 to {most} rows, got {self.rows!r}"
            )

    @property
    def name(self) -> str:
        """Also that of the file or directory."""
        return f"{self.schema}_{self.rows}_{self.storage}"

    @property
    def tables(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(texts(f"{self.schema}_tables"))

    def path(self, table: str, directory: Path) -> Path:
        """Return the path of a table that is no part of a database."""
        return directory / self.name / (table + _COPIES[self.storage].split("'")[1])


def texts(file: str) -> dict[str, str]:
    """Return the statements of a file of SQL by their names, in its order."""
    content = (TEXTS / f"{file}.sql").read_text(encoding="utf-8")
    named = (part.partition("\n") for part in content.split(_NAME)[1:])
    return {name.strip(): text.strip().removesuffix(";") for name, _, text in named}


def prepare_tables(tables: TableSet, directory: Path) -> Path:
    """Write the tables that the directory lacks. Where they lie."""
    import duckdb

    path = directory / tables.name
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.unlink(missing_ok=True)
    is_database = tables.storage is Storage.NATIVE
    if not is_database:
        unfinished.mkdir()
    with duckdb.connect(str(unfinished) if is_database else ":memory:") as connection:
        connection.execute(_NOISE)
        for name, text in texts(f"{tables.schema}_tables").items():
            select = text.replace("{rows}", str(tables.rows))
            if is_database:
                connection.execute(f"CREATE TABLE {name} AS {select}")
                continue
            ending = _COPIES[tables.storage]
            connection.execute(f"COPY ({select}) TO '{unfinished}/{name}{ending[1:]}")
    unfinished.replace(path)
    return path


_FILES = {"judged_tpch": "tpch", "judged_orders": "tpch", "judged_telemetry": "telemetry"}
"""The schema that the queries of each file read."""


@dataclass(frozen=True, slots=True)
class HeldOutQuery:
    """One query.

    Attributes:
        family: the name that its executions carry as their workload.
        schema: of the tables that it reads.
        text: SQL that DuckDB and Spark run alike.
    """

    family: str
    schema: str
    text: str


def held_out_queries() -> tuple[HeldOutQuery, ...]:
    """Return all 62, in the order of the texts."""
    return tuple(
        HeldOutQuery(f"{file.replace('_', '/')}/{name}", schema, text)
        for file, schema in _FILES.items()
        for name, text in texts(file).items()
    )
