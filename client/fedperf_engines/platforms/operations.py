"""The operations that a program is made of, one frozen dataclass each.

An operation is an operator together with the parameters that never leave the organization:
data set, columns, literals. It has a kind in the public vocabulary, and derives the schema
of its output from those of its inputs, so what does not fit is refused with
`InvalidProgramError` before any engine starts.

The meaning is the same on every engine, and no engine is imported here. There are no
missing values. Rows have no order unless an operation defines one, and where an order decides
which rows survive (`TopK`, `Window`) ties are broken by the other columns, ascending.
Computed columns are float64, sums of integers are int64. Operations on graphs, points and
texts have a fixed number of rounds or one pass and a start that is public, so that engines
agree for any order of rows. A trained model is a table like any other, and the operation
that applies it takes it as its second input.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import MAX_ITERATIONS, OperatorClass, OperatorKind


class InvalidProgramError(InvalidInputError):
    """A program is not well formed; the message names the step or the operation."""


@unique
class ColumnType(StrEnum):
    """Type of a column: int64, float64 or UTF-8 text."""

    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"


class ProgramPart:
    """Base of everything in a program's JSON. Unknown keys and wrong types are refused."""

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
        """Return whether it can be computed with."""
        return self.type is not ColumnType.TEXT


Schema = tuple[Column, ...]


def column_names(schema: Schema) -> tuple[str, ...]:
    """Column names in order."""
    return tuple(column.name for column in schema)


def find_column(schema: Schema, name: str) -> Column:
    """Return the column of that name, or InvalidProgramError."""
    for column in schema:
        if column.name == name:
            return column
    raise InvalidProgramError(
        f"no column {name!r} among {', '.join(column_names(schema)) or 'none'}"
    )


def numeric_column(schema: Schema, name: str) -> Column:
    """Return the integer or float column of that name, or InvalidProgramError."""
    column = find_column(schema, name)
    if not column.numeric:
        raise InvalidProgramError(f"column {name!r} is text, a number is needed")
    return column


def require_numeric(schema: Schema, names: Iterable[str]) -> None:
    """InvalidProgramError unless all these columns are there and can be computed with."""
    for name in names:
        numeric_column(schema, name)


def text_column(schema: Schema, name: str, reader: str) -> Column:
    """Return the text column of that name for the operation `reader`, or InvalidProgramError."""
    column = find_column(schema, name)
    if column.numeric:
        raise InvalidProgramError(f"{reader} reads text, {name!r} is {column.type}")
    return column


def with_columns(schema: Schema, names: tuple[str, ...]) -> Schema:
    """Return the schema itself when it has all these columns, else InvalidProgramError."""
    for name in names:
        find_column(schema, name)
    return schema


def unique_names(schema: Schema) -> Schema:
    """Return the schema itself when it has columns and no name twice, else InvalidProgramError."""
    names = column_names(schema)
    if not names:
        raise InvalidProgramError("a result needs at least one column")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidProgramError(f"column {twice!r} would appear twice")
    return schema


@unique
class Comparison(StrEnum):
    """The comparison of a column with a literal, in a filter."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """Return the comparison in Python, also of frames' columns."""
        return _FUNCTIONS[self]


@unique
class ArithmeticOperator(StrEnum):
    """One arithmetic step; all compute in float64."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """Return the step in Python, also of frames' columns."""
        return _FUNCTIONS[self]


# Comparisons and arithmetic in Python, also of frames' columns.
_FUNCTIONS: Mapping[Comparison | ArithmeticOperator, Callable[[Any, Any], Any]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    ArithmeticOperator.ADD: operator.add,
    ArithmeticOperator.SUBTRACT: operator.sub,
    ArithmeticOperator.MULTIPLY: operator.mul,
}


@unique
class AggregateFunction(StrEnum):
    """The function of an aggregation over a group."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


@unique
class WindowFunction(StrEnum):
    """The function of a window for every row of a partition, in its order."""

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
        """Return the column that it adds; InvalidProgramError for sums and means of a text."""
        if self.function is AggregateFunction.COUNT:
            return Column(self.name, ColumnType.INTEGER)
        column = find_column(schema, self.column)
        if self.function in {AggregateFunction.MIN, AggregateFunction.MAX}:
            return Column(self.name, column.type)
        numeric_column(schema, self.column)
        is_mean = self.function is AggregateFunction.MEAN
        return Column(self.name, ColumnType.FLOAT if is_mean else column.type)


@dataclass(frozen=True, slots=True)
class Order(ProgramPart):
    """One key of an ordering."""

    column: str
    descending: bool = False


def total_order(by: tuple[Order, ...], ties: Iterable[str] = ()) -> tuple[list[str], list[bool]]:
    """Return columns to order by, and which of them descend; `ties` follow, ascending."""
    named = [order.column for order in by]
    rest = [tie for tie in ties if tie not in named]
    return [*named, *rest], [*(order.descending for order in by), *(False for _ in rest)]


class Operation(ProgramPart):
    """Base of all operations: kind and class in the public vocabulary, and number of inputs."""

    __slots__ = ()

    kind: ClassVar[OperatorKind]
    operator_class: ClassVar[OperatorClass]
    arity: ClassVar[int]

    def __init_subclass__(
        cls,
        *,
        kind: OperatorKind | None = None,
        operator_class: OperatorClass = OperatorClass.RELATIONAL,
        arity: int = 1,
    ) -> None:
        if kind is not None:  # a dataclass with slots is made twice, at last without arguments
            cls.kind, cls.operator_class, cls.arity = kind, operator_class, arity


@dataclass(frozen=True, slots=True)
class ReadParquet(Operation, kind=OperatorKind.FILE_SOURCE, arity=0):
    """Read columns of a data set: the file or directory `dataset`.parquet of the data directory."""

    dataset: str
    columns: Schema
    type: Literal["read_parquet"] = "read_parquet"

    def __post_init__(self) -> None:
        if not self.dataset.replace("-", "_").isidentifier():
            raise InvalidProgramError(f"a data set needs a plain name, got {self.dataset!r}")


@dataclass(frozen=True, slots=True)
class Project(Operation, kind=OperatorKind.MAP):
    """Keep columns and add computed ones."""

    keep: tuple[str, ...]
    computed: tuple[ComputedColumn, ...] = ()
    type: Literal["project"] = "project"


@dataclass(frozen=True, slots=True)
class Filter(Operation, kind=OperatorKind.FILTER):
    """Keep the rows where `column comparison literal` holds."""

    column: str
    comparison: Comparison
    literal: str | int | float
    type: Literal["filter"] = "filter"

    def __post_init__(self) -> None:
        if not isinstance(self.literal, str) and not math.isfinite(self.literal):
            raise InvalidProgramError(f"filter on {self.column!r} with {self.literal!r}")


@dataclass(frozen=True, slots=True)
class Join(Operation, kind=OperatorKind.JOIN, arity=2):
    """Inner join on one key; the right key is dropped, other right columns get the suffix."""

    left_key: str
    right_key: str
    right_suffix: str = ""
    type: Literal["join"] = "join"

    def added(self, right: Iterable[str]) -> dict[str, str]:
        """Return the right columns that the result has, and their names there."""
        return {name: name + self.right_suffix for name in right if name != self.right_key}


@dataclass(frozen=True, slots=True)
class Aggregate(Operation, kind=OperatorKind.AGGREGATE):
    """Group by keys and aggregate."""

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    type: Literal["aggregate"] = "aggregate"

    def __post_init__(self) -> None:
        if not self.keys or not self.aggregations:
            raise InvalidProgramError("an aggregate needs at least one key and one aggregation")


@dataclass(frozen=True, slots=True)
class GlobalAggregate(Operation, kind=OperatorKind.GLOBAL_AGGREGATE):
    """Aggregate all rows to one row; no row where the input has none."""

    aggregations: tuple[Aggregation, ...]
    type: Literal["global_aggregate"] = "global_aggregate"

    def __post_init__(self) -> None:
        if not self.aggregations:
            raise InvalidProgramError("a global aggregate needs at least one aggregation")


@dataclass(frozen=True, slots=True)
class Distinct(Operation, kind=OperatorKind.DISTINCT):
    """The distinct combinations of some columns; other columns are dropped."""

    columns: tuple[str, ...]
    type: Literal["distinct"] = "distinct"


@dataclass(frozen=True, slots=True)
class Sort(Operation, kind=OperatorKind.SORT):
    """Order all rows; the order among ties is undefined."""

    by: tuple[Order, ...]
    type: Literal["sort"] = "sort"

    def __post_init__(self) -> None:
        if not self.by:
            raise InvalidProgramError("a sort needs at least one key")


@dataclass(frozen=True, slots=True)
class TopK(Operation, kind=OperatorKind.TOPK):
    """The first `count` rows in an order; ties go by the other columns, ascending."""

    by: tuple[Order, ...]
    count: int
    type: Literal["top_k"] = "top_k"

    def __post_init__(self) -> None:
        if not self.by or not self.count >= 1:
            raise InvalidProgramError(f"top-k needs a key and a count >= 1, got {self.count!r}")


@dataclass(frozen=True, slots=True)
class Union(Operation, kind=OperatorKind.UNION, arity=2):
    """All rows of two inputs with the same columns, duplicates kept."""

    type: Literal["union"] = "union"


@dataclass(frozen=True, slots=True)
class Window(Operation, kind=OperatorKind.WINDOW):
    """Number the rows of each partition in an order, or sum up a column along it.

    The order is made total by the other columns, ascending. The frame goes from the
    partition's first row to the current one.
    """

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


@dataclass(frozen=True, slots=True)
class Tokenize(Operation, kind=OperatorKind.FLATMAP, operator_class=OperatorClass.TEXT):
    """Split a text at blanks: one row per word, one column `name`; empty words are dropped."""

    column: str
    name: str = "word"
    type: Literal["tokenize"] = "tokenize"


@dataclass(frozen=True, slots=True)
class Sink(Operation, kind=OperatorKind.SINK):
    """Materialize its input as an Arrow table: a result of the program."""

    type: Literal["sink"] = "sink"


MAX_CLUSTERS = 64
MAX_DIMENSIONS = 16
MAX_WORD_WINDOW = 8
# Of the index vectors of `Embed`; a prime, and so is the multiplier of its factors.
INDEX_MODULUS = 1_000_003

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


@dataclass(frozen=True, slots=True)
class PageRank(Operation, kind=OperatorKind.GRAPH_ITERATE, operator_class=OperatorClass.GRAPH):
    """Rank the nodes of a directed graph given as edges: columns `node`, `rank`.

    Starts at 1/n; every round rank(v) = (1 - damping)/n + damping * sum of
    rank(u)/outdegree(u) over edges u -> v. Repeated edges count repeatedly; rank
    that reaches a node without outgoing edges is dropped, so ranks add up to at most 1.
    """

    source: str
    target: str
    iterations: int = 10
    damping: float = 0.85
    type: Literal["page_rank"] = "page_rank"

    def __post_init__(self) -> None:
        _require_rounds("page rank", self.iterations)
        if not 0 < self.damping < 1:
            raise InvalidProgramError(f"damping must be between 0 and 1, got {self.damping!r}")


@dataclass(frozen=True, slots=True)
class KMeans(Operation, kind=OperatorKind.ML_TRAIN, operator_class=OperatorClass.ML):
    """Lloyd's algorithm for a fixed number of rounds; one row per center: `cluster` and columns.

    Public start: center j lies at `starting_fractions` of the columns' ranges, so all
    engines agree for any order of rows. A center without rows stays where it is.
    """

    columns: tuple[str, ...]
    clusters: int
    iterations: int
    type: Literal["k_means"] = "k_means"

    def __post_init__(self) -> None:
        _require_rounds("k-means", self.iterations)
        if not self.columns or not 1 <= self.clusters <= MAX_CLUSTERS:
            raise InvalidProgramError(
                f"k-means needs columns and 1 to {MAX_CLUSTERS} clusters, got {self.clusters!r}"
            )

    def starting_fractions(self) -> tuple[tuple[float, ...], ...]:
        """For every center and column where it starts between minimum (0) and maximum (1).

        A Kronecker sequence: spread out, and irrational so that no row of a grid is
        equally far from two centers, which engines would round differently.
        """
        return tuple(
            tuple(
                math.modf((center + 1) * math.sqrt(_PRIMES[axis % len(_PRIMES)]))[0]
                for axis in range(len(self.columns))
            )
            for center in range(self.clusters)
        )


@dataclass(frozen=True, slots=True)
class KMeansAssign(
    Operation, kind=OperatorKind.ML_PREDICT, operator_class=OperatorClass.ML, arity=2
):
    """Add to each row of the first input its nearest center of the second (a `KMeans` result)."""

    columns: tuple[str, ...]
    name: str = "cluster"
    type: Literal["k_means_assign"] = "k_means_assign"


def model_columns(features: tuple[str, ...]) -> tuple[str, ...]:
    """Return columns of a trained `LinearRegression`."""
    return (*(f"coefficient_{name}" for name in features), "intercept")


@dataclass(frozen=True, slots=True)
class LinearRegression(Operation, kind=OperatorKind.ML_TRAIN, operator_class=OperatorClass.ML):
    """Ridge regression with an intercept that is not penalized; one row of coefficients.

    Minimizes squared errors + `penalty` * squared coefficients. The penalty makes the
    solution unique, so that different solvers agree. Columns: `coefficient_<feature>`, `intercept`.
    """

    features: tuple[str, ...]
    target: str
    penalty: float = 1.0
    type: Literal["linear_regression"] = "linear_regression"

    def __post_init__(self) -> None:
        if not self.features or not 0 < self.penalty < math.inf:
            raise InvalidProgramError(
                f"a regression needs features and a positive penalty, got {self.penalty!r}"
            )


@dataclass(frozen=True, slots=True)
class LinearPredict(
    Operation, kind=OperatorKind.ML_PREDICT, operator_class=OperatorClass.ML, arity=2
):
    """Add to each row of the first input the prediction of a `LinearRegression` result."""

    features: tuple[str, ...]
    name: str = "prediction"
    type: Literal["linear_predict"] = "linear_predict"


@dataclass(frozen=True, slots=True)
class Embed(Operation, kind=OperatorKind.ML_TRAIN, operator_class=OperatorClass.TEXT):
    """Give every word of a text a vector that adds up the words around it: random indexing.

    Distinct words have ranks r from 1 on, in the order of their bytes. The index vector of a word
    has the components f * r % `INDEX_MODULUS` % 3 - 1, each with one of the `factors` f. A word's
    embedding is the sum of the index vectors of all words at most `window` places before or behind
    it in the same text, over all its occurrences; empty words have no place. Sums of whole
    numbers, so that all engines agree exactly. Columns: `name`, `e0`, `e1`, ...

    Source: Sahlgren, An introduction to random indexing, 2005.
    """

    column: str
    dimensions: int = 8
    window: int = 2
    name: str = "word"
    type: Literal["embed"] = "embed"

    def __post_init__(self) -> None:
        fits = 1 <= self.dimensions <= MAX_DIMENSIONS and 1 <= self.window <= MAX_WORD_WINDOW
        if not fits:
            raise InvalidProgramError(
                f"an embedding has 1 to {MAX_DIMENSIONS} dimensions and a window of 1 to "
                f"{MAX_WORD_WINDOW}, got {self.dimensions!r} and {self.window!r}"
            )

    @property
    def vector_names(self) -> tuple[str, ...]:
        """Return names of the vector's columns."""
        return tuple(f"e{axis}" for axis in range(self.dimensions))

    @property
    def factors(self) -> tuple[int, ...]:
        """Return the factors of the index vectors, one per dimension."""
        return tuple(pow(48_271, axis + 1, INDEX_MODULUS) for axis in range(self.dimensions))


def _require_rounds(what: str, iterations: int) -> None:
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise InvalidProgramError(f"{what} takes 1 to {MAX_ITERATIONS} rounds, got {iterations!r}")


AnyOperation = Annotated[
    ReadParquet
    | Project
    | Filter
    | Join
    | Aggregate
    | GlobalAggregate
    | Distinct
    | Sort
    | TopK
    | Union
    | Window
    | Tokenize
    | PageRank
    | KMeans
    | KMeansAssign
    | LinearRegression
    | LinearPredict
    | Embed
    | Sink,
    Field(discriminator="type"),
]
OPERATIONS: tuple[type[Operation], ...] = get_args(get_args(AnyOperation)[0])


def output_schema(operation: AnyOperation, inputs: tuple[Schema, ...]) -> Schema:  # noqa: PLR0911, PLR0912 (one case per operation)
    """Return the columns of the result.

    Raises:
        InvalidProgramError: the inputs do not fit the operation.
    """
    first = inputs[0] if inputs else ()
    match operation:
        case ReadParquet(columns=columns):
            return unique_names(columns)
        case Project(keep=keep, computed=computed):
            for each in computed:
                operands = (step.operand for step in each.steps)
                named = (operand for operand in operands if isinstance(operand, str))
                require_numeric(first, (each.column, *named))
            key_columns = tuple(find_column(first, name) for name in keep)
            return unique_names(
                key_columns + tuple(Column(each.name, ColumnType.FLOAT) for each in computed)
            )
        case Filter(column=name, literal=literal):
            column = find_column(first, name)
            if column.numeric == isinstance(literal, str):
                raise InvalidProgramError(
                    f"filter compares the {column.type} column {name!r} with {literal!r}"
                )
        case Join(left_key=left_key, right_key=right_key):
            left, right = find_column(first, left_key), find_column(inputs[1], right_key)
            if ColumnType.FLOAT in (left.type, right.type) or left.type is not right.type:
                raise InvalidProgramError(
                    f"join on {left.type} {left_key!r} and {right.type} {right_key!r}: "
                    "both keys must be integer or both text"
                )
            added = operation.added(column_names(inputs[1]))
            types = (column.type for column in inputs[1] if column.name in added)
            return unique_names(first + tuple(map(Column, added.values(), types)))
        case Aggregate(keys=keys, aggregations=aggregations):
            columns = tuple(find_column(first, key) for key in keys)
            return unique_names(columns + tuple(each.output(first) for each in aggregations))
        case GlobalAggregate(aggregations=aggregations):
            return unique_names(tuple(each.output(first) for each in aggregations))
        case Distinct(columns=names):
            return unique_names(tuple(find_column(first, name) for name in names))
        case Sort(by=by) | TopK(by=by):
            return with_columns(first, tuple(order.column for order in by))
        case Union():
            if first != inputs[1]:
                raise InvalidProgramError(
                    "a union needs two inputs with the same columns in one order"
                )
        case Window(partition=partition, by=by, name=name):
            with_columns(first, partition + tuple(order.column for order in by))
            kind = ColumnType.INTEGER
            if operation.function is WindowFunction.RUNNING_SUM:
                kind = numeric_column(first, operation.column).type
            return unique_names((*first, Column(name, kind)))
        case Tokenize(column=text, name=name):
            text_column(first, text, "tokenize")
            return (Column(name, ColumnType.TEXT),)
        case PageRank(source=source, target=target):
            for name in (source, target):
                if find_column(first, name).type is not ColumnType.INTEGER:
                    raise InvalidProgramError(f"page rank needs integer nodes, {name!r} is not")
            return (Column("node", ColumnType.INTEGER), Column("rank", ColumnType.FLOAT))
        case KMeans(columns=names):
            require_numeric(first, names)
            return unique_names((Column("cluster", ColumnType.INTEGER), *_floats(names)))
        case KMeansAssign(columns=names, name=name):
            require_numeric(first, names)
            require_numeric(inputs[1], names)
            find_column(inputs[1], "cluster")
            return unique_names((*first, Column(name, ColumnType.INTEGER)))
        case LinearRegression(features=features, target=target):
            require_numeric(first, (*features, target))
            return unique_names(_floats(model_columns(features)))
        case LinearPredict(features=features, name=name):
            require_numeric(first, features)
            require_numeric(inputs[1], model_columns(features))
            return unique_names((*first, Column(name, ColumnType.FLOAT)))
        case Embed(column=text, name=name):
            text_column(first, text, "embed")
            return unique_names((Column(name, ColumnType.TEXT), *_floats(operation.vector_names)))
    return first


def code_steps(operation: AnyOperation) -> int:  # noqa: PLR0911 (one case per operation)
    """Return the elementary steps of the user code inside, per row; 0 where there is none."""
    match operation:
        case Project(computed=computed):
            return sum(len(each.steps) for each in computed)
        case Tokenize():
            return 2  # split and filter
        case PageRank():
            return 3  # divide, multiply, add
        case KMeans(clusters=clusters, columns=columns):
            return clusters * len(columns)
        case KMeansAssign(columns=columns):
            return len(columns)  # to one center; their number is the second input's rows
        case LinearRegression(features=features):
            return (len(features) + 1) ** 2  # products that are summed
        case LinearPredict(features=features):
            return len(features)
        case Embed(window=window, dimensions=dimensions):
            return 2 * window * dimensions
    return 0


def _floats(names: Iterable[str]) -> Schema:
    return tuple(Column(name, ColumnType.FLOAT) for name in names)
