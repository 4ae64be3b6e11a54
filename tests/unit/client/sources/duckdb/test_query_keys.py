"""Keys of statements and operators."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.duckdb.operators import node_of, schema_of
from fedperf_client.sources.duckdb.query_keys import (
    MAX_TEXT,
    OperatorKey,
    files_in,
    names_in,
    statement_key,
)
from tests.fakes.duckdb_profiles import Json, node_2

QUERY = "SELECT a, sum(b) FROM t WHERE c < 0.5 AND d IN ('x', 'y') GROUP BY a LIMIT 3"
TABLES = ("db.main.t",)


def template(text: str, tables: tuple[str, ...] = TABLES) -> str:
    return statement_key(text, tables).partition("/")[0]


@pytest.mark.parametrize(
    "text",
    [
        QUERY.lower(),
        f"  {QUERY} ;\n-- the end",
        QUERY.replace(" ", "\n  "),
        QUERY.replace("FROM", "/* of ; 'it */ FROM"),
        QUERY.replace(" t ", ' "T" '),
        f"EXPLAIN ANALYZE {QUERY}",
        f"explain (analyze, format json) {QUERY}",
    ],
)
def test_statement_key_ignores_case_spaces_and_comments(text: str) -> None:
    assert statement_key(text, TABLES) == statement_key(QUERY, TABLES)


@pytest.mark.parametrize(
    "text",
    [
        QUERY.replace("0.5", "7"),
        QUERY.replace("0.5", "1e-3"),
        QUERY.replace("'x', 'y'", "'it''s'"),
        QUERY.replace("'x', 'y'", "'z', 'x', $$y$$, 4"),
        QUERY.replace("LIMIT 3", "LIMIT 100"),
    ],
)
def test_statement_key_with_other_constants_shares_its_first_part_alone(text: str) -> None:
    assert template(text) == template(QUERY)
    assert statement_key(text, TABLES) != statement_key(QUERY, TABLES)


@pytest.mark.parametrize(
    "text", [QUERY.replace("a", "e", 1), QUERY.replace("<", ">"), QUERY.replace(" AND ", " OR ")]
)
def test_statement_key_of_another_text_or_table_differs(text: str) -> None:
    assert template(text) != template(QUERY)
    assert template(QUERY, ("db.main.u",)) != template(QUERY)


@given(st.text(alphabet=st.sampled_from("'\"$/*-;() a1.eE\n?"), max_size=60))
def test_statement_key_of_any_text_has_two_digests_or_is_empty(text: str) -> None:
    key = statement_key(text, TABLES)
    assert key == "" or [len(each) for each in key.split("/")] == [16, 16]
    assert statement_key(f" {text}", TABLES) == key
    files_in(text), names_in(text)


@pytest.mark.parametrize("part", ["'", '"', "$$", "/*", "--", "(", "1e", "''", "$a$", "read_x("])
def test_statement_key_of_hostile_text_takes_linear_time(part: str) -> None:
    text = part * (MAX_TEXT // len(part))
    start = time.process_time()
    statement_key(text, TABLES)
    files_in(text)
    assert time.process_time() - start < 5
    assert statement_key(text + "x" * len(part) * 2, TABLES) == ""


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("select * from 'a.parquet' where name = 'b.csv'", {"a.parquet"}),
        (
            "from read_parquet(['a', 'it''s'], union_by_name = 'c') join 'd*.csv'",
            {"a", "it's", "d*.csv"},
        ),
        ("select lower('x') from t", set()),
    ],
)
def test_files_in_text_are_those_that_it_reads(text: str, files: set[str]) -> None:
    assert files_in(text) == files


def key_of(kind: str, notes: Json, *inputs: OperatorKey) -> OperatorKey:
    content = node_2(kind, 1, notes=notes)
    return OperatorKey.of(node_of(content, schema_of({"operator": []})), inputs)


A, B = OperatorKey("a", "a1"), OperatorKey("b", "b1")


def test_join_key_does_not_depend_on_the_hashed_side() -> None:
    inner: Json = {"Join Type": "INNER", "Conditions": "x = y"}
    swapped: Json = {"Join Type": "INNER", "Conditions": "y = x"}
    assert key_of("HASH_JOIN", inner, A, B).rows == key_of("HASH_JOIN", swapped, B, A).rows
    left: Json = {"Join Type": "LEFT", "Conditions": "x = y"}
    right: Json = {"Join Type": "RIGHT", "Conditions": "y = x"}
    assert key_of("HASH_JOIN", left, A, B).rows == key_of("HASH_JOIN", right, B, A).rows
    assert key_of("HASH_JOIN", left, A, B).rows != key_of("HASH_JOIN", left, B, A).rows


def test_operator_key_keeps_constants_and_ignores_estimates_and_dynamic_filters() -> None:
    one: Json = {"Filters": "(x < 5)", "Estimated Cardinality": "7"}
    two: Json = {"Filters": ["(x < 5)", "optional: y"], "Dynamic Filters": "x IN PRF(x)"}
    assert key_of("TABLE_SCAN", one, A).rows == key_of("TABLE_SCAN", two, A).rows != ""
    assert key_of("TABLE_SCAN", {"Filters": "(x < 6)"}, A).rows != key_of("TABLE_SCAN", one, A).rows
    assert key_of("LIMIT", {"Limit": "5"}, A).rows != key_of("LIMIT", {"Limit": "50"}, A).rows


def test_operator_key_by_position_depends_on_columns_of_its_input() -> None:
    other = OperatorKey("a", "a2")
    by_position: Json = {"Groups": "#0", "Aggregates": "sum(#1)"}
    assert key_of("HASH_GROUP_BY", by_position, A) != key_of("HASH_GROUP_BY", by_position, other)
    by_name: Json = {"Expression": "(x < 5)"}
    assert key_of("FILTER", by_name, A).rows == key_of("FILTER", by_name, other).rows


def test_operator_key_above_an_unknown_input_is_unknown() -> None:
    assert key_of("HASH_JOIN", {"Join Type": "INNER"}, A, OperatorKey()) == OperatorKey()
