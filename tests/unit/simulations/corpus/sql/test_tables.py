from pathlib import Path

import duckdb
import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.corpus.sql.tables import MOST_ROWS, Storage, TableSet, prepare_tables

SOURCES = {
    Storage.PARQUET: "read_parquet('{}')",
    Storage.PARTS: "read_parquet('{}/*.parquet')",
    Storage.CSV: "read_csv('{}')",
    Storage.JSON: "read_json('{}')",
}


def figures(tables: TableSet, data: Path) -> list[tuple[object, ...]]:
    path = prepare_tables(tables, data)
    with duckdb.connect() as connection:
        if tables.storage is Storage.NATIVE:
            connection.execute(f"attach '{path}' as shop (read_only)")
            source = "shop.entries"
        else:
            source = SOURCES[tables.storage].format(tables.path("entries", data))
        found = connection.sql(f"from {source}")
        return found.aggregate(
            "count(*), sum(pieces), min(sent_on)::date, count(sent_on), max(note)"
        ).fetchall()


@pytest.mark.slow
def test_generated_tables_have_the_same_rows_in_every_storage(tmp_path: Path) -> None:
    held = [figures(TableSet("shop", 2_000, storage), tmp_path) for storage in Storage]
    assert held == [held[0]] * len(Storage)
    assert str(held[0]).startswith("[(2000, ")


def test_prepare_tables_writes_once_and_replaces_unfinished_output(tmp_path: Path) -> None:
    tables = TableSet("telemetry", 1_000, Storage.PARQUET)
    cut_off = tmp_path / f"{tables.name}.unfinished"
    cut_off.mkdir()
    (cut_off / "readings.parquet").write_bytes(b"PAR1")
    path = prepare_tables(tables, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert {file.stem for file in before} == set(tables.tables)
    assert not cut_off.exists()
    prepare_tables(tables, tmp_path)
    assert {file: file.stat().st_mtime_ns for file in path.iterdir()} == before


@pytest.mark.parametrize("storage", MOST_ROWS)
def test_table_set_with_too_many_rows_for_its_storage_is_refused(storage: Storage) -> None:
    most = MOST_ROWS[storage]
    assert TableSet("shop", most, storage).rows == most
    with pytest.raises(ConfigurationError, match=str(most)):
        TableSet("shop", most + 1, storage)


def test_generated_table_columns_of_one_row_are_uncorrelated(tmp_path: Path) -> None:
    data = prepare_tables(TableSet("shop", 50_000, Storage.NATIVE), tmp_path)
    with duckdb.connect(str(data), read_only=True) as connection:
        correlation = connection.execute(
            "select corr(pieces, price), corr(price, rebate), corr(pieces, product_id) from entries"
        ).fetchall()[0]
        pairs = connection.execute(
            "select count(distinct (pieces, (price * 100)::bigint % 16)) from entries"
        ).fetchall()[0][0]
    assert all(abs(each) < 0.02 for each in correlation)
    assert pairs == 12 * 16
