import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from fedperf_simulations.corpus.sql.generated_queries import SCHEMA, drawn_query
from fedperf_simulations.corpus.sql.tables import (
    HeldOutQuery,
    Storage,
    TableSet,
    held_out_queries,
    prepare_tables,
)

ROWS = 5_000
JUDGED = held_out_queries()


def normalized(text: str) -> str:
    """Return the query without literals, layout and capitals."""
    return re.sub(r"\s+", " ", re.sub(r"'[^']*'|\b\d+(\.\d+)?\b", "?", text)).strip().lower()


@pytest.fixture(scope="module")
def connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[duckdb.DuckDBPyConnection]:
    data = tmp_path_factory.mktemp("data")
    with duckdb.connect() as connection:
        for schema in {each.schema for each in JUDGED}:
            path = prepare_tables(TableSet(schema, ROWS, Storage.NATIVE), data)
            connection.execute(f"attach '{path}' as {schema} (read_only)")
        yield connection


@pytest.mark.parametrize("query", JUDGED, ids=lambda query: query.family)
def test_held_out_query_runs_on_its_schema(
    connection: duckdb.DuckDBPyConnection, query: HeldOutQuery
) -> None:
    connection.execute(f"use {query.schema}")
    assert connection.execute(query.text).description


def test_held_out_queries_are_22_tpch_like_and_20_per_other_schema() -> None:
    files = [each.family.rpartition("/")[0] for each in JUDGED]
    assert [files.count(name) for name in dict.fromkeys(files)] == [22, 20, 20]
    assert len({each.family for each in JUDGED}) == len({each.text for each in JUDGED}) == 62


def test_held_out_queries_and_tables_never_occur_in_generated_queries() -> None:
    drawn = [drawn_query(number, seed=1) for number in range(2_000)]
    assert not {normalized(each.text) for each in JUDGED} & {
        normalized(each.text) for each in drawn
    }
    judged_tables = {
        table
        for schema in {each.schema for each in JUDGED}
        for table in TableSet(schema, ROWS, Storage.NATIVE).tables
    }
    words = {word for each in drawn for word in re.findall(r"\w+", each.text)}
    assert not judged_tables & words
    assert SCHEMA not in {each.schema for each in JUDGED}


def test_held_out_query_texts_are_contained_in_the_sql_files() -> None:
    texts = Path(__file__).parents[5] / "simulations/fedperf_simulations/corpus/sql/texts"
    held = "".join(path.read_text(encoding="utf-8") for path in texts.glob("judged_*.sql"))
    assert all(each.text in held for each in JUDGED)
