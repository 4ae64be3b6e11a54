"""Expressions over columns, as parts of operations: comparisons, arithmetic, aggregations, orders.

Each is one frozen value. It holds names of columns and literals, which never leave the
organization. Computed columns are float64, sums of integers are int64.

Refused: numbers that are not finite, a count of a column, any other aggregation of none, sums and
means of text.
"""

import math
from dataclasses import dataclass
from enum import StrEnum, unique

from fedperf_client.platforms.operations.columns import (
    Column,
    ColumnType,
    InvalidProgramError,
    ProgramPart,
    Schema,
    column_of,
    numeric_column,
)


@unique
class Comparison(StrEnum):
    """The comparison of a column with a literal, in a filter."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@unique
class ArithmeticOperator(StrEnum):
    """One arithmetic step; all compute in float64."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"


@unique
class AggregateFunction(StrEnum):
    """What an aggregation computes of a group."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


@unique
class WindowFunction(StrEnum):
    """What a window computes for every row of a partition, in its order."""

    ROW_NUMBER = "row_number"
    RUNNING_SUM = "running_sum"


@dataclass(frozen=True, slots=True)
class Arithmetic(ProgramPart):
    """One step of a computed column: apply `operator` with a column or a number."""

    operator: ArithmeticOperator
    operand: str | float

    def __post_init__(self) -> None:
        if not isinstance(self.operand, str) and not math.isfinite(self.operand):
            raise InvalidProgramError(f"arithmetic with the number {self.operand!r}")


@dataclass(frozen=True, slots=True)
class ComputedColumn(ProgramPart):
    """A new float column: start with `column`, apply the steps from left to right."""

    name: str
    column: str
    steps: tuple[Arithmetic, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregation(ProgramPart):
    """A new column `name` = `function` of `column` over a group; COUNT takes no column."""

    function: AggregateFunction
    name: str
    column: str = ""

    def __post_init__(self) -> None:
        if (self.function is AggregateFunction.COUNT) != (self.column == ""):
            raise InvalidProgramError(
                f"aggregation {self.name!r}: count takes no column, every other function one"
            )

    def output(self, schema: Schema) -> Column:
        """The column that it adds; refuses a text column for sums and means."""
        if self.function is AggregateFunction.COUNT:
            return Column(self.name, ColumnType.INTEGER)
        column = column_of(schema, self.column)
        if self.function in {AggregateFunction.MIN, AggregateFunction.MAX}:
            return Column(self.name, column.type)
        numeric_column(schema, self.column)
        if self.function is AggregateFunction.MEAN:
            return Column(self.name, ColumnType.FLOAT)
        return Column(self.name, column.type)


@dataclass(frozen=True, slots=True)
class Order(ProgramPart):
    """One key of an ordering."""

    column: str
    descending: bool = False
