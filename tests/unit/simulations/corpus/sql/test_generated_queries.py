from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from fedperf_simulations.corpus.sql.generated_queries import SCHEMA, GeneratedQuery, drawn_query
from fedperf_simulations.corpus.sql.tables import Storage, TableSet, prepare_tables

DRAWN = [drawn_query(number, seed=1) for number in range(300)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = prepare_tables(TableSet(SCHEMA, 3_000, Storage.NATIVE), tmp_path_factory.mktemp("data"))
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


def test_generated_query_is_deterministic_in_number_and_seed() -> None:
    assert [drawn_query(number, seed=1) for number in range(300)] == DRAWN
    other = [drawn_query(number, seed=2).text for number in range(300)]
    assert len({each.text for each in DRAWN} & set(other)) < 10


def test_generated_queries_have_21_kinds_and_few_duplicates() -> None:
    kinds = [each.family.split("/")[1] for each in DRAWN]
    assert len(set(kinds)) == 21
    assert max(kinds.count(kind) for kind in kinds) < 40
    assert len({each.text for each in DRAWN}) > 290
    assert all(each.cost > 0 and each.share > 0 for each in DRAWN)


@pytest.mark.slow
def test_generated_queries_all_run_and_most_return_rows(shop: duckdb.DuckDBPyConnection) -> None:
    rows = [len(shop.execute(each.text).fetchall()) for each in DRAWN]
    assert sum(count > 0 for count in rows) > 250


@pytest.mark.slow
def test_generated_queries_with_many_rows_are_marked(shop: duckdb.DuckDBPyConnection) -> None:
    few = [each for each in DRAWN if not each.has_many_rows and "LIMIT" not in each.text]
    assert max(len(shop.execute(each.text).fetchall()) for each in few) < 5_000
    assert 30 < len([each for each in DRAWN if each.has_many_rows]) < 150


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_generated_queries_parse_as_duckdb_and_spark_sql(dialect: str) -> None:
    sqlglot = pytest.importorskip("sqlglot")
    for each in DRAWN:
        assert sqlglot.parse_one(each.text, dialect=dialect) is not None


def test_generated_query_family_contains_schema_kind_and_number() -> None:
    query: GeneratedQuery = DRAWN[7]
    schema, kind, number = query.family.split("/")
    assert (schema, number) == (SCHEMA, "0007")
    assert Path(kind).name == kind
