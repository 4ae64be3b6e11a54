"""The closed vocabulary of workflows: kinds and classes of operators, platforms, public limits.

Numbers are positions in feature vectors and on the wire: they are never changed
or reused. A new kind or platform takes a reserved slot, so that no tensor changes its shape.
"""

from enum import IntEnum, unique

from fedperf_shared.errors import InvalidInputError

MAX_OPERATORS = 512  # the store refuses plans with more operators
MAX_ROWS = 1e12
MAX_ROW_BYTES = 1e6
MAX_ITERATIONS = 10_000
MAX_RUNTIME_SECONDS = 1e6
# Public bounds: values outside are clamped before they reach a model or a release.
MIN_RUNTIME_SECONDS = 1e-4


@unique
class OperatorKind(IntEnum):
    """The operation of an operator, on any engine."""

    FILE_SOURCE = 0
    TABLE_SOURCE = 1
    MAP = 2
    FILTER = 3
    FLATMAP = 4
    AGGREGATE = 5
    GLOBAL_AGGREGATE = 6
    DISTINCT = 7
    SORT = 8
    TOPK = 9
    JOIN = 10
    CROSS = 11
    UNION = 12
    SAMPLE = 13
    GRAPH_ITERATE = 14
    ML_TRAIN = 15
    ML_PREDICT = 16
    SINK = 17
    EXCHANGE = 18
    WINDOW = 19
    COMMAND = 20
    OTHER = 21
    RESERVED_1 = 22
    RESERVED_2 = 23


@unique
class OperatorClass(IntEnum):
    """The kind of analysis that an operator belongs to."""

    RELATIONAL = 0
    TEXT = 1
    GRAPH = 2
    ML = 3


@unique
class Platform(IntEnum):
    """An engine that an operator can run on. `SKLEARN` is scikit-learn with scipy."""

    DUCKDB = 0
    POLARS = 1
    PANDAS = 2
    SKLEARN = 3
    SPARK = 4
    FLINK = 5
    RESERVED_1 = 6
    RESERVED_2 = 7
    OTHER = 8
    UNASSIGNED = 9


NAMED_PLATFORMS = tuple(platform for platform in Platform if platform < Platform.OTHER)


def platform_of(name: str) -> Platform:
    """Return the platform of that name, in any case.

    Raises:
        InvalidInputError: the name is unknown. The message lists all names.
    """
    names = {each.name.lower(): each for each in Platform if not each.name.startswith("RESERVED")}
    if name.lower() not in names:
        listed = ", ".join(each for each in names if names[each] is not Platform.UNASSIGNED)
        raise InvalidInputError(f"unknown platform {name!r}; expected one of {listed}")
    return names[name.lower()]


@unique
class Complexity(IntEnum):
    """The growth of an operator's user-code work with its input."""

    NONE = 0
    LOGARITHMIC = 1
    LINEAR = 2
    SUPER_LINEAR = 3


# Code steps of a source that parses a row of text (CSV, JSON). Every engine reads text more slowly
# than columns.
PARSES_TEXT = 31

RUNS_PYTHON = 1023  # code steps of an operator that sends its rows to a Python interpreter
SOURCE_KINDS = frozenset({OperatorKind.FILE_SOURCE, OperatorKind.TABLE_SOURCE})
RESERVED_KINDS = frozenset({OperatorKind.RESERVED_1, OperatorKind.RESERVED_2})
RESERVED_PLATFORMS = frozenset({Platform.RESERVED_1, Platform.RESERVED_2})
ORDERING_KINDS = frozenset({OperatorKind.SORT, OperatorKind.TOPK, OperatorKind.WINDOW})
