"""Operations on tables, from the scan of a data set to the result: what a query is made of.

There are no missing values. Rows have no order unless an operation says so, and where an
order decides which rows survive (`TopK`, `Window`) ties are broken by the other columns,
ascending. The meaning is the same on every engine.

Refused: unknown columns, wrong types, names given twice, literals that are not finite,
operations without the keys or aggregations that they need.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedperf_client.platforms.operations.columns import (
    Column,
    ColumnType,
    InvalidProgramError,
    Schema,
    column_of,
    numeric_column,
    unique_names,
    with_columns,
)
from fedperf_client.platforms.operations.expressions import (
    Aggregation,
    Comparison,
    ComputedColumn,
    Order,
    WindowFunction,
)
from fedperf_client.platforms.operations.operation import Operation
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind


@dataclass(frozen=True, slots=True)
class ReadParquet(Operation):
    """Read columns of a data set: the file or directory `dataset`.parquet of the data directory."""

    kind: ClassVar[OperatorKind] = OperatorKind.FILE_SOURCE
    arity: ClassVar[int] = 0

    dataset: str
    columns: Schema
    type: Literal["read_parquet"] = "read_parquet"

    def __post_init__(self) -> None:
        if not self.dataset.replace("-", "_").isidentifier():
            raise InvalidProgramError(f"a data set needs a plain name, got {self.dataset!r}")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The columns read."""
        del inputs
        return unique_names(self.columns)


@dataclass(frozen=True, slots=True)
class Project(Operation):
    """Keep columns and add computed ones."""

    kind: ClassVar[OperatorKind] = OperatorKind.MAP

    keep: tuple[str, ...]
    computed: tuple[ComputedColumn, ...] = ()
    type: Literal["project"] = "project"

    @property
    def code_steps(self) -> int:
        """Arithmetic steps of all computed columns."""
        return sum(len(each.steps) for each in self.computed)

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Kept columns, then computed ones."""
        (schema,) = inputs
        for each in self.computed:
            numeric_column(schema, each.column)
            for step in each.steps:
                if isinstance(step.operand, str):
                    numeric_column(schema, step.operand)
        kept = tuple(column_of(schema, name) for name in self.keep)
        added = tuple(Column(each.name, ColumnType.FLOAT) for each in self.computed)
        return unique_names(kept + added)


@dataclass(frozen=True, slots=True)
class Filter(Operation):
    """Keep the rows where `column comparison literal` holds."""

    kind: ClassVar[OperatorKind] = OperatorKind.FILTER

    column: str
    comparison: Comparison
    literal: str | int | float
    type: Literal["filter"] = "filter"

    def __post_init__(self) -> None:
        if not isinstance(self.literal, str) and not math.isfinite(self.literal):
            raise InvalidProgramError(f"filter on {self.column!r} with {self.literal!r}")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The input's columns."""
        (schema,) = inputs
        column = column_of(schema, self.column)
        if column.numeric == isinstance(self.literal, str):
            raise InvalidProgramError(
                f"filter compares the {column.type} column {self.column!r} with {self.literal!r}"
            )
        return schema


@dataclass(frozen=True, slots=True)
class Join(Operation):
    """Inner join on one key; the right key is dropped, other right columns get the suffix."""

    kind: ClassVar[OperatorKind] = OperatorKind.JOIN
    arity: ClassVar[int] = 2

    left_key: str
    right_key: str
    right_suffix: str = ""
    type: Literal["join"] = "join"

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Left columns, then right columns without the key."""
        left, right = inputs
        keys = column_of(left, self.left_key), column_of(right, self.right_key)
        if any(key.type is ColumnType.FLOAT for key in keys) or keys[0].type is not keys[1].type:
            raise InvalidProgramError(
                f"join on {keys[0].type} {self.left_key!r} and {keys[1].type} {self.right_key!r}: "
                "both keys must be integer or both text"
            )
        added = tuple(
            Column(column.name + self.right_suffix, column.type)
            for column in right
            if column.name != self.right_key
        )
        return unique_names(left + added)


@dataclass(frozen=True, slots=True)
class Aggregate(Operation):
    """Group by keys and aggregate."""

    kind: ClassVar[OperatorKind] = OperatorKind.AGGREGATE

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    type: Literal["aggregate"] = "aggregate"

    def __post_init__(self) -> None:
        if not self.keys or not self.aggregations:
            raise InvalidProgramError("an aggregate needs at least one key and one aggregation")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Keys, then aggregations."""
        (schema,) = inputs
        keys = tuple(column_of(schema, key) for key in self.keys)
        return unique_names(keys + tuple(each.output(schema) for each in self.aggregations))


@dataclass(frozen=True, slots=True)
class GlobalAggregate(Operation):
    """Aggregate all rows to one row; no row where the input has none."""

    kind: ClassVar[OperatorKind] = OperatorKind.GLOBAL_AGGREGATE

    aggregations: tuple[Aggregation, ...]
    type: Literal["global_aggregate"] = "global_aggregate"

    def __post_init__(self) -> None:
        if not self.aggregations:
            raise InvalidProgramError("a global aggregate needs at least one aggregation")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The aggregations."""
        (schema,) = inputs
        return unique_names(tuple(each.output(schema) for each in self.aggregations))


@dataclass(frozen=True, slots=True)
class Distinct(Operation):
    """The distinct combinations of some columns; other columns are dropped."""

    kind: ClassVar[OperatorKind] = OperatorKind.DISTINCT

    columns: tuple[str, ...]
    type: Literal["distinct"] = "distinct"

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The named columns."""
        (schema,) = inputs
        return unique_names(tuple(column_of(schema, name) for name in self.columns))


@dataclass(frozen=True, slots=True)
class Sort(Operation):
    """Order all rows; the order among ties is left open."""

    kind: ClassVar[OperatorKind] = OperatorKind.SORT

    by: tuple[Order, ...]
    type: Literal["sort"] = "sort"

    def __post_init__(self) -> None:
        if not self.by:
            raise InvalidProgramError("a sort needs at least one key")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The input's columns."""
        return with_columns(inputs[0], tuple(order.column for order in self.by))


@dataclass(frozen=True, slots=True)
class TopK(Operation):
    """The first `count` rows in an order; ties go by the other columns, ascending."""

    kind: ClassVar[OperatorKind] = OperatorKind.TOPK

    by: tuple[Order, ...]
    count: int
    type: Literal["top_k"] = "top_k"

    def __post_init__(self) -> None:
        if not self.by or not self.count >= 1:
            raise InvalidProgramError(f"top-k needs a key and a count >= 1, got {self.count!r}")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The input's columns."""
        return with_columns(inputs[0], tuple(order.column for order in self.by))


@dataclass(frozen=True, slots=True)
class Union(Operation):
    """All rows of two inputs with the same columns, duplicates kept."""

    kind: ClassVar[OperatorKind] = OperatorKind.UNION
    arity: ClassVar[int] = 2

    type: Literal["union"] = "union"

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The columns that both inputs have."""
        left, right = inputs
        if left != right:
            raise InvalidProgramError("a union needs two inputs with the same columns in one order")
        return left


@dataclass(frozen=True, slots=True)
class Window(Operation):
    """Number the rows of each partition in an order, or sum up a column along it.

    The order is made total by the other columns, ascending. The frame goes from the
    partition's first row to the current one.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.WINDOW

    function: WindowFunction
    partition: tuple[str, ...]
    by: tuple[Order, ...]
    name: str
    column: str = ""
    type: Literal["window"] = "window"

    def __post_init__(self) -> None:
        if not self.partition or not self.by:
            raise InvalidProgramError("a window needs a partition and an order")
        if (self.function is WindowFunction.ROW_NUMBER) != (self.column == ""):
            raise InvalidProgramError("row_number takes no column, a running sum takes one")

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The input's columns, then the new one."""
        (schema,) = inputs
        with_columns(schema, self.partition + tuple(order.column for order in self.by))
        added = ColumnType.INTEGER
        if self.function is WindowFunction.RUNNING_SUM:
            added = numeric_column(schema, self.column).type
        return unique_names((*schema, Column(self.name, added)))


@dataclass(frozen=True, slots=True)
class Tokenize(Operation):
    """Split a text at blanks: one row per word, one column `name`; empty words are dropped."""

    kind: ClassVar[OperatorKind] = OperatorKind.FLATMAP
    operator_class: ClassVar[OperatorClass] = OperatorClass.TEXT

    column: str
    name: str = "word"
    type: Literal["tokenize"] = "tokenize"

    @property
    def code_steps(self) -> int:
        """Split and filter."""
        return 2

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The words."""
        column = column_of(inputs[0], self.column)
        if column.numeric:
            raise InvalidProgramError(f"tokenize reads text, {self.column!r} is {column.type}")
        return (Column(self.name, ColumnType.TEXT),)


@dataclass(frozen=True, slots=True)
class Sink(Operation):
    """Materialize its input as an Arrow table: a result of the program."""

    kind: ClassVar[OperatorKind] = OperatorKind.SINK

    type: Literal["sink"] = "sink"

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The input's columns."""
        return inputs[0]
