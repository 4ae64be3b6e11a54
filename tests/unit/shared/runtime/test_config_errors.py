"""Tests of configuration problems: each is reported with its key in the user's file."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fedperf_shared.runtime.settings_file import problems_of


class Span(BaseModel):
    model_config = ConfigDict(extra="forbid")

    start: int
    stop: Annotated[int, Field(ge=1)] = 9


class Job(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    values: Span | tuple[bool | int, ...] = ()
    way: Literal["fast", "slow"] = "fast"
    parts: tuple[Span, ...] = ()


def told(**content: object) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Job.model_validate(content, strict=True)
    titles = {"parts": lambda number, _: f"part {number + 1}"}
    return problems_of(refused.value, Job, content, titles)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "name: is missing"),
        ({"name": 3}, "name: must be a text, got 3"),
        ({"name": "x" * 3, "nam": 1}, 'nam: unknown key; did you mean "name"?'),
        ({"name": "a", "zzz": 1}, "zzz: unknown key; expected one of name, values, way, parts"),
        ({"name": "a", "way": "best"}, "way: must be 'fast' or 'slow', got 'best'"),
        ({"name": "a", "values": {"start": 1, "stopp": 2}},
         'values.stopp: unknown key; did you mean "stop"?'),
        ({"name": "a", "values": {}}, "values.start: is missing"),
        ({"name": "a", "values": 5}, "values: must be a table of keys or a list, got 5"),
        ({"name": "a", "values": ["x"]}, "values.0: must be true or false or a whole number, "
         "got 'x'"),
        ({"name": "a", "parts": [{"start": 1}, {"start": "many" * 20, "stop": 1}]},
         "part 2: start: must be a whole number"),
        ({"name": "a", "parts": ({"start": 1, "stop": 0},)},
         "part 1: stop: must be at least 1, got 0"),
        ({"name": "a", "parts": ("x",)}, "part 1: must be a table of keys, got 'x'"),
    ],
)  # fmt: skip
def test_validation_problem_is_reported_with_its_key(content: dict[str, object], says: str) -> None:
    if isinstance(content.get("parts"), list):
        content = content | {"parts": tuple(content["parts"])}  # type: ignore[arg-type]
    if isinstance(content.get("values"), list):
        content = content | {"values": tuple(content["values"])}  # type: ignore[arg-type]
    assert told(**content) == [says]


def test_validation_problem_of_a_non_table_is_reported_for_the_file() -> None:
    with pytest.raises(ValidationError) as refused:
        Job.model_validate([])
    assert problems_of(refused.value, Job, []) == ["the file: must be a table of keys"]


@dataclass(frozen=True, slots=True)
class Cut:
    __pydantic_config__ = ConfigDict(extra="forbid")

    column: str
    type: Literal["cut"] = "cut"


@dataclass(frozen=True, slots=True)
class Sum:
    __pydantic_config__ = ConfigDict(extra="forbid")

    columns: tuple[str, ...]
    type: Literal["sum"] = "sum"


@dataclass(frozen=True, slots=True)
class Step:
    operation: Annotated[Cut | Sum, Field(discriminator="type")]


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ({"type": "sum", "columns": [], "colum": 1},
         'operation.colum: unknown key; did you mean "columns"?'),
        ({"type": "cut", "column": "a", "columns": 1},
         'operation.columns: unknown key; did you mean "column"?'),
        ({"type": "sun"}, "operation: has the unknown type 'sun'; expected one of 'cut', 'sum'"),
        ({}, "operation: needs a type"),
    ],
)  # fmt: skip
def test_validation_problems_of_a_union_use_keys_of_the_named_type(
    operation: dict[str, object], says: str
) -> None:
    content = {"operation": operation}
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Step).validate_python(content)
    [found] = problems_of(refused.value, Step, content)
    assert found.startswith(says)
