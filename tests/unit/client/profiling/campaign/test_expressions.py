"""Constraint expressions: conditions on columns. All other syntax is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_campaigns.campaign.grid import (
    MAX_DEPTH,
    MAX_LENGTH,
    Constraint,
    InvalidGridConstraintError,
    Value,
)

NAMES = ("rows", "workers", "platform", "cached")
ROW: dict[str, Value] = {"rows": 1000, "workers": 8, "platform": "spark", "cached": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers <= 8 or rows >= 5000", True),
        ("workers < 8 or rows >= 5000", False),
        ("not workers == 8", False),
        ("100 < rows <= 1000", True),
        ("100 < rows < 1000", False),
        ("rows / workers == 125", True),
        ("rows // 300 == 3 and rows % 300 == 100", True),
        ("-workers + 9 * 2 - +1 == 9", True),
        ("platform == 'spark' and cached", True),
        ("platform != 'spark'", False),
        ("platform == 'a' == 'b'", False),
        ("cached == True", True),
        ("workers > 0 or 1 / 0 > 0", True),
        ("rows != rows", False),
    ],
)
def test_constraint_evaluates_conditions(text: str, expected: bool) -> None:
    assert Constraint.parse(text, NAMES).holds(ROW) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "rows.real > 1",
        "rows[0] == 1",
        "rows ** 9 ** 9 ** 9 > 1",
        "1 << 999999999 > 0",
        "(lambda: True)()",
        "[x for x in (1,)]",
        "f'{rows}' == '1'",
        "rows if cached else workers",
        "(rows := 1) == 1",
        "rows in (1, 2)",
        "rows is 1",
        "~rows == 1",
        "1j == 1",
        "b'x' == 'x'",
        "... == 1",
        "*rows",
        "await rows",
        "columns > 1",
        "rows >",
        "rows > 1; rows < 2",
        "import os",
        "",
        "(" * 300 + "rows" + ")" * 300,
        "-" * 900 + "rows > 1",
        "rows" + "+1" * MAX_DEPTH + " > 0",
        "rows > " + "1" * MAX_LENGTH,
        "\0",
        "\ud800 > 1",
    ],
)
def test_constraint_with_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(InvalidGridConstraintError):
        Constraint.parse(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "rows / (workers - 8) > 1",
        "rows % 0 == 1",
        "platform > 'a'",
        "platform < 3",
        "platform == 3",
        "'x' * 1000000000 == 'x'",
        "platform + 'x' == 'sparkx'",
        "cached + 1 == 2",
        "rows",
        "rows and workers",
        "not rows",
        "-platform == 1",
        "1" + "0" * 400 + " * 1.5 > 0",
    ],
)
def test_constraint_without_boolean_value_raises_error_with_its_text(text: str) -> None:
    constraint = Constraint.parse(text, NAMES)
    with pytest.raises(InvalidGridConstraintError) as refused:
        constraint.holds(ROW)
    assert text[:20] in str(refused.value)


def test_constraint_comparison_chain_stops_at_first_false_comparison() -> None:
    assert not Constraint.parse("rows < 0 < 1 / (workers - 8)", NAMES).holds(ROW)


def test_constraint_with_unknown_column_lists_known_columns() -> None:
    with pytest.raises(InvalidGridConstraintError, match=r"no column 'wrokers'.*rows, workers"):
        Constraint.parse("wrokers < 3", NAMES)


PIECES = st.sampled_from(
    [
        *("rows", "workers", "platform", "cached", "1", "2.5", "'spark'", "True", "1e308", "0"),
        *("+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", "and", "or", "not", "in"),
        *("(", ")", "[", "]", ",", ".", ":", "lambda", "if", "else", "~", "<<", "=", "'", "\\"),
    ]
)


@given(st.lists(PIECES, max_size=40).map(" ".join) | st.text(max_size=200))
def test_constraint_of_any_text_gives_bool_or_constraint_error(text: str) -> None:
    try:
        held = Constraint.parse(text, NAMES).holds(ROW)
    except InvalidGridConstraintError:
        return
    assert isinstance(held, bool)
