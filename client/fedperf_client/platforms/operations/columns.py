"""Columns and schemas: what a table is called and typed before any engine starts.

A schema is an ordered tuple of columns. The functions look a column up by its name or check
a whole schema; each gives its answer or raises `InvalidProgramError` with the name.

Refused: names that are no identifiers, columns that are not there, text where a number is
needed, a result without columns or with a name twice.
"""

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import ClassVar

from pydantic import ConfigDict

from fedperf_shared.errors import InvalidInputError


class InvalidProgramError(InvalidInputError):
    """A program is not well formed; the message names the step or the operation."""


@unique
class ColumnType(StrEnum):
    """Type of a column: int64, float64 or UTF-8 text."""

    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"


class ProgramPart:
    """What stands in a program's JSON: unknown keys and wrong types are refused there."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Column(ProgramPart):
    """A named, typed column."""

    name: str
    type: ColumnType

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InvalidProgramError(f"a column needs an identifier as name, got {self.name!r}")

    @property
    def numeric(self) -> bool:
        """Whether it can be computed with."""
        return self.type is not ColumnType.TEXT


Schema = tuple[Column, ...]


def names_of(schema: Schema) -> tuple[str, ...]:
    """Column names in order."""
    return tuple(column.name for column in schema)


def column_of(schema: Schema, name: str) -> Column:
    """The column of that name, or InvalidProgramError."""
    for column in schema:
        if column.name == name:
            return column
    raise InvalidProgramError(f"no column {name!r} among {', '.join(names_of(schema)) or 'none'}")


def numeric_column(schema: Schema, name: str) -> Column:
    """The integer or float column of that name, or InvalidProgramError."""
    column = column_of(schema, name)
    if not column.numeric:
        raise InvalidProgramError(f"column {name!r} is text, a number is needed")
    return column


def with_columns(schema: Schema, names: tuple[str, ...]) -> Schema:
    """The schema itself when it has all these columns, else InvalidProgramError."""
    for name in names:
        column_of(schema, name)
    return schema


def unique_names(schema: Schema) -> Schema:
    """The schema itself when it has columns and no name twice, else InvalidProgramError."""
    names = names_of(schema)
    if not names:
        raise InvalidProgramError("a result needs at least one column")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidProgramError(f"column {twice!r} would appear twice")
    return schema
