"""Facts: one description that yields values for programs and texts for people."""

import json

import pytest

from fedperf_client.formatting.facts import (
    Fact,
    for_people,
    for_programs,
    show_table,
    texts_of,
    values_of,
    without_empty,
)

ROW = [
    for_people("", "->"),
    Fact("nodes", 2, "nodes"),
    Fact("p50_seconds", 5400.0, "P50"),
    Fact("lower_seconds", 0.5),
    Fact("memory_bytes", 2_000_000, "memory"),
    Fact("holds", True, "deadline", "holds"),
]


def test_values_of_returns_values_by_name_in_order() -> None:
    assert list(values_of(ROW).items()) == [
        ("nodes", 2),
        ("p50_seconds", 5400.0),
        ("lower_seconds", 0.5),
        ("memory_bytes", 2_000_000),
        ("holds", True),
    ]


def test_texts_of_formats_values_in_the_unit_of_their_name() -> None:
    assert texts_of(ROW) == {
        "": "->",
        "nodes": 2,
        "P50": "90.0 min",
        "memory": "2.0 MB",
        "deadline": "holds",
    }
    assert texts_of([Fact("cpu_seconds", None, "cpu")]) == {"cpu": None}


def test_for_programs_keeps_all_values_and_no_texts() -> None:
    assert values_of(for_programs(ROW)) == values_of(ROW)
    assert texts_of(for_programs(ROW)) == {}


def test_without_empty_drops_texts_of_columns_empty_in_every_row() -> None:
    def rows(*texts: str) -> list[list[Fact]]:
        return [[Fact("cores", 1, "cores"), Fact("kept", each, "kept", each)] for each in texts]

    assert [texts_of(each) for each in without_empty(rows("", ""))] == [{"cores": 1}] * 2
    assert [values_of(each) for each in without_empty(rows("", ""))] == [
        {"cores": 1, "kept": ""}
    ] * 2
    assert [texts_of(each)["kept"] for each in without_empty(rows("", "x"))] == ["", "x"]


def test_show_table_prints_json_rows_or_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([ROW], json=True)
    assert json.loads(capsys.readouterr().out)["rows"] == [values_of(ROW)]
    show_table([ROW], json=False)
    shown = capsys.readouterr().out
    assert "P50" in shown
    assert "90.0 min" in shown
    assert "lower" not in shown
    show_table([], json=False, empty="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"
