"""Operations on graphs, points and texts: ranks, clusters, regressions, word vectors.

Each has a fixed number of rounds or one pass and a start that is public, so that engines
agree whatever the order of rows. A trained model is a table like any other, and the
operation that applies it takes it as its second input.

Refused: columns of other types, rounds, clusters, dimensions or windows out of bounds,
penalties and damping that are not positive.
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
)
from fedperf_client.platforms.operations.operation import Operation
from fedperf_shared.workflow.vocabulary import MAX_ITERATIONS, OperatorClass, OperatorKind

MAX_CLUSTERS = 64
MAX_DIMENSIONS = 16
MAX_WORD_WINDOW = 8
INDEX_MODULUS = 1_000_003
"""Of the index vectors of `Embed`; a prime, and so is the multiplier of its factors."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


@dataclass(frozen=True, slots=True)
class PageRank(Operation):
    """Rank the nodes of a directed graph given as edges: columns `node`, `rank`.

    Starts at 1/n; every round rank(v) = (1 - damping)/n + damping * sum of
    rank(u)/outdegree(u) over edges u -> v. Repeated edges count repeatedly; rank
    that reaches a node without outgoing edges is dropped, so ranks add up to at most 1.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.GRAPH_ITERATE
    operator_class: ClassVar[OperatorClass] = OperatorClass.GRAPH

    source: str
    target: str
    iterations: int = 10
    damping: float = 0.85
    type: Literal["page_rank"] = "page_rank"

    def __post_init__(self) -> None:
        _require_rounds("page rank", self.iterations)
        if not 0 < self.damping < 1:
            raise InvalidProgramError(f"damping must be between 0 and 1, got {self.damping!r}")

    @property
    def code_steps(self) -> int:
        """Divide, multiply, add."""
        return 3

    @property
    def rounds(self) -> int:
        """Power iterations."""
        return self.iterations

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Node and rank."""
        for name in (self.source, self.target):
            if column_of(inputs[0], name).type is not ColumnType.INTEGER:
                raise InvalidProgramError(f"page rank needs integer nodes, {name!r} is not")
        return (Column("node", ColumnType.INTEGER), Column("rank", ColumnType.FLOAT))


@dataclass(frozen=True, slots=True)
class KMeans(Operation):
    """Lloyd's algorithm for a fixed number of rounds; one row per center: `cluster` and columns.

    Public start: center j lies at `starting_fractions` of the columns' ranges, so all
    engines agree whatever the order of rows. A center without rows stays where it is.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.ML_TRAIN
    operator_class: ClassVar[OperatorClass] = OperatorClass.ML

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

    @property
    def code_steps(self) -> int:
        """Differences of one row to all centers."""
        return self.clusters * len(self.columns)

    @property
    def rounds(self) -> int:
        """Lloyd rounds."""
        return self.iterations

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Cluster number and the center's coordinates."""
        for name in self.columns:
            numeric_column(inputs[0], name)
        coordinates = tuple(Column(name, ColumnType.FLOAT) for name in self.columns)
        return unique_names((Column("cluster", ColumnType.INTEGER), *coordinates))

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
class KMeansAssign(Operation):
    """Add to each row of the first input its nearest center of the second (a `KMeans` result)."""

    kind: ClassVar[OperatorKind] = OperatorKind.ML_PREDICT
    operator_class: ClassVar[OperatorClass] = OperatorClass.ML
    arity: ClassVar[int] = 2

    columns: tuple[str, ...]
    name: str = "cluster"
    type: Literal["k_means_assign"] = "k_means_assign"

    @property
    def code_steps(self) -> int:
        """Differences to one center; their number is the second input's rows."""
        return len(self.columns)

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The rows' columns, then the cluster."""
        rows, centers = inputs
        for name in self.columns:
            numeric_column(rows, name)
            numeric_column(centers, name)
        column_of(centers, "cluster")
        return unique_names((*rows, Column(self.name, ColumnType.INTEGER)))


@dataclass(frozen=True, slots=True)
class LinearRegression(Operation):
    """Ridge regression with an intercept that is not penalized; one row of coefficients.

    Minimizes squared errors + `penalty` * squared coefficients. The penalty makes the
    answer unique, so that different solvers agree. Columns: `coefficient_<feature>`, `intercept`.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.ML_TRAIN
    operator_class: ClassVar[OperatorClass] = OperatorClass.ML

    features: tuple[str, ...]
    target: str
    penalty: float = 1.0
    type: Literal["linear_regression"] = "linear_regression"

    def __post_init__(self) -> None:
        if not self.features or not 0 < self.penalty < math.inf:
            raise InvalidProgramError(
                f"a regression needs features and a positive penalty, got {self.penalty!r}"
            )

    @property
    def code_steps(self) -> int:
        """Products of features that are summed per row."""
        return (len(self.features) + 1) ** 2

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Coefficients in the order of the features, then the intercept."""
        for name in (*self.features, self.target):
            numeric_column(inputs[0], name)
        names = [*(f"coefficient_{name}" for name in self.features), "intercept"]
        return unique_names(tuple(Column(name, ColumnType.FLOAT) for name in names))


@dataclass(frozen=True, slots=True)
class LinearPredict(Operation):
    """Add to each row of the first input the prediction of a `LinearRegression` result."""

    kind: ClassVar[OperatorKind] = OperatorKind.ML_PREDICT
    operator_class: ClassVar[OperatorClass] = OperatorClass.ML
    arity: ClassVar[int] = 2

    features: tuple[str, ...]
    name: str = "prediction"
    type: Literal["linear_predict"] = "linear_predict"

    @property
    def code_steps(self) -> int:
        """One product per feature."""
        return len(self.features)

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The rows' columns, then the prediction."""
        rows, model = inputs
        for name in self.features:
            numeric_column(rows, name)
            numeric_column(model, f"coefficient_{name}")
        numeric_column(model, "intercept")
        return unique_names((*rows, Column(self.name, ColumnType.FLOAT)))


@dataclass(frozen=True, slots=True)
class Embed(Operation):
    """Give every word of a text a vector that adds up the words around it: random indexing.

    Distinct words have ranks r from 1 on, in the order of their bytes. The index vector of a word
    has the components f * r % `INDEX_MODULUS` % 3 - 1, each with one of the `factors` f. A word's
    embedding is the sum of the index vectors of all words at most `window` places before or behind
    it in the same text, over all its occurrences; empty words have no place. Sums of whole
    numbers, so that all engines agree exactly. Columns: `name`, `e0`, `e1`, ...

    Source: Sahlgren, An introduction to random indexing, 2005.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.ML_TRAIN
    operator_class: ClassVar[OperatorClass] = OperatorClass.TEXT

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
    def code_steps(self) -> int:
        """Additions per word."""
        return 2 * self.window * self.dimensions

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """The word and its vector."""
        column = column_of(inputs[0], self.column)
        if column.numeric:
            raise InvalidProgramError(f"embed reads text, {self.column!r} is {column.type}")
        vector = tuple(Column(name, ColumnType.FLOAT) for name in self.vector_names)
        return unique_names((Column(self.name, ColumnType.TEXT), *vector))

    @property
    def vector_names(self) -> tuple[str, ...]:
        """Names of the vector's columns."""
        return tuple(f"e{axis}" for axis in range(self.dimensions))

    @property
    def factors(self) -> tuple[int, ...]:
        """Of the index vectors, one per dimension."""
        return tuple(pow(48_271, axis + 1, INDEX_MODULUS) for axis in range(self.dimensions))


def _require_rounds(what: str, iterations: int) -> None:
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise InvalidProgramError(f"{what} takes 1 to {MAX_ITERATIONS} rounds, got {iterations!r}")
