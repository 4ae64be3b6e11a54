"""The grid of a campaign: columns with their values, constraints, and allowed configurations.

A configuration is one value per column. Configurations are numbered in the order of the columns as
written, the last one fastest, and only those that meet every constraint count. So a number means
the same configuration as long as the campaign's meaning is the same.

A constraint is a condition on the columns, like `workers <= 8 or rows > 10`. It may hold
comparisons, `and`, `or`, `not`, arithmetic with + - * / // %, numbers, words and names of columns.
`ast` parses the text, and Python never runs it. Everything else is refused by name, as are texts
that are too long or too deep, so that a hostile constraint costs little time and memory.

Refused are columns of mixed types, numbers that are not finite, a size or a parallelism that is not
positive, grids of more than `MAX_CONFIGURATIONS` before constraints, and grids without an allowed
configuration.
"""

import ast
import itertools
import keyword
import math
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from fedperf_shared.errors import InvalidInputError

MAX_LENGTH = 1000
MAX_DEPTH = 40

Value = float | str | bool  # what a column holds; whole numbers count as `float` here

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_Value = Callable[[Mapping[str, Value]], Value]


class InvalidGridConstraintError(InvalidInputError):
    """A constraint is no condition on the columns, or has no value for a configuration."""

    def __init__(self, text: str, problem: str) -> None:
        excerpt = text if len(text) <= MAX_LENGTH else text[:40] + "..."
        super().__init__(f"constraint {excerpt!r}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that every configuration of a campaign meets; made by `parse`."""

    text: str
    _value: _Value

    @classmethod
    def parse(cls, text: str, names: Collection[str]) -> "Constraint":
        """Parse a condition on the columns `names`.

        Raises:
            InvalidGridConstraintError: the text is not such a condition.
        """
        if len(text) > MAX_LENGTH:
            raise InvalidGridConstraintError(
                text, f"has {len(text)} characters, at most {MAX_LENGTH} are read"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd but harmless spellings
                tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = getattr(error, "msg", "") or str(error) or "too deep"
            raise InvalidGridConstraintError(text, f"cannot be read: {problem}") from None
        try:
            return cls(text, _evaluator(tree, names, depth=1))
        except _NotAllowedError as problem:
            raise InvalidGridConstraintError(text, str(problem)) from None

    def holds(self, configuration: Mapping[str, Value]) -> bool:
        """Return whether a configuration meets it.

        Raises:
            InvalidGridConstraintError: it divides by zero, compares words with numbers, or is
                no condition for this configuration.
        """
        try:
            value = self._value(configuration)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InvalidGridConstraintError(self.text, f"has no value: {error}") from error
        if not isinstance(value, bool):
            raise InvalidGridConstraintError(self.text, f"is not true or false but {value!r}")
        return value


def value_text(value: Value) -> str:
    """Return a value for people."""
    return value_word(value) if isinstance(value, bool | str) else f"{value:,.15g}"


def value_word(value: Value) -> str:
    """Return a value in the syntax of `--at`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.15g}"


class _NotAllowedError(Exception):
    """An expression that no condition may hold."""


def _evaluator(node: ast.expr, names: Collection[str], *, depth: int) -> _Value:  # noqa: PLR0911 (one per kind)
    """Compile an expression to a function of the configuration."""
    if depth > MAX_DEPTH:
        raise _NotAllowedError(f"is nested more than {MAX_DEPTH} deep")

    def inner(part: ast.expr) -> _Value:
        return _evaluator(part, names, depth=depth + 1)

    match node:
        case ast.Name(id=name) if name in names:
            return operator.itemgetter(name)
        case ast.Name(id=name):
            raise _NotAllowedError(f"no column {name!r}; there are {', '.join(sorted(names))}")
        case ast.Constant(value=bool() | int() | float() | str() as value):
            constant: Value = value
            return lambda row: constant
        case ast.Constant(value=value):
            raise _NotAllowedError(f"holds {value!r}, which no column can")
        case ast.BoolOp():
            holds = all if isinstance(node.op, ast.And) else any
            parts = [inner(each) for each in node.values]
            return lambda row: holds(_condition(part(row)) for part in parts)
        case ast.UnaryOp(op=ast.Not()):
            operand = inner(node.operand)
            return lambda row: not _condition(operand(row))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            operand, sign = inner(node.operand), -1 if isinstance(node.op, ast.USub) else 1
            return lambda row: sign * _number(operand(row))
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            compute, left, right = _ARITHMETIC[type(node.op)], inner(node.left), inner(node.right)
            return lambda row: compute(_number(left(row)), _number(right(row)))
        case ast.Compare() if all(type(each) in _COMPARISONS for each in node.ops):
            compare = [_COMPARISONS[type(each)] for each in node.ops]
            sides = [inner(each) for each in (node.left, *node.comparators)]
            return lambda row: _compared(compare, (side(row) for side in sides))
    kind = type(getattr(node, "op", node)).__name__
    raise _NotAllowedError(f"{kind} is not allowed, only conditions and arithmetic on columns")


def _compared(compare: Sequence[Callable[[Any, Any], bool]], values: Iterator[Value]) -> bool:
    left = next(values)
    for holds, right in zip(compare, values, strict=False):
        if isinstance(left, str) != isinstance(right, str):
            raise TypeError(f"{left!r} and {right!r} cannot be compared")
        if isinstance(left, str) and holds not in (operator.eq, operator.ne):
            raise TypeError("words are only equal or not")
        if not holds(left, right):
            return False
        left = right
    return True


def _condition(value: Value) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _number(value: Value) -> float:
    if isinstance(value, bool | str):
        raise TypeError(f"{value!r} is no number")
    return value


MAX_CONFIGURATIONS = 100_000  # of the whole grid, before constraints
MAX_COLUMNS = 32
MAX_CONSTRAINTS = 32
LONGEST_WORD = 200
LARGEST_NUMBER = 1e15  # numbers up to here are exact as floats too
# Columns of ones that stand in a table for what a campaign does not have; no name of a column.
NO_SIZE, NO_PARALLELISM = "(no size)", "(no parallelism)"

# The name of the trial's directory in templates of components, in addition to the columns.
TRIAL_DIRECTORY = "trial_directory"

# Names that no column may have, as results have such columns.
RESERVED_NAMES = frozenset(
    {
        TRIAL_DIRECTORY,
        *("configuration", "component", "repetition", "attempt", "session", "position"),
        *("is_warmup", "is_cold", "started", "ended", "status", "reason", "wall_seconds"),
        *("startup_seconds", "cpu_seconds", "peak_bytes", "read_bytes", "written_bytes"),
        *("context_switches", "queue_seconds", "compute_seconds", "foreign_cores"),
        *("stolen_cores", "load_before", "load_after", "repeats", "median_seconds"),
        *("fastest_seconds", "slowest_seconds", "noise"),
    }
)

Configuration = Mapping[str, Value]
Number = StrictInt | StrictFloat
Word = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_WORD)]


class SettingsTable(BaseModel):
    """Base of the tables of a campaign file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(SettingsTable):
    """Numbers from `start` to `stop`, both included: by `step`, or doubling."""

    start: Number
    stop: Number
    step: Number | None = None
    doubling: StrictBool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.step is None) == (not self.doubling):
            raise ValueError("a range has either a step or doubling = true")
        numbers = [self.start, self.stop] + ([] if self.step is None else [self.step])
        if not all(-LARGEST_NUMBER <= each <= LARGEST_NUMBER for each in numbers):
            raise ValueError(f"numbers are finite and at most {LARGEST_NUMBER:g}")
        if not self.start <= self.stop:
            raise ValueError(f"start {self.start} is above stop {self.stop}")
        if self.doubling and not self.start > 0:
            raise ValueError(f"doubling needs a start above 0, got {self.start}")
        if self.step is not None and not (
            self.step > 0 and (self.stop - self.start) / self.step < MAX_CONFIGURATIONS
        ):
            raise ValueError(
                f"step must be above 0 and give at most {MAX_CONFIGURATIONS} values, "
                f"got {self.step}"
            )
        return self

    def values(self) -> tuple[int | float, ...]:
        """Return all numbers, ascending; whole where start and step are, else to 15 digits.

        So the third of 0.1, 0.2, ... is 0.3 as a constraint and a command mean it, and not
        0.30000000000000004.
        """
        if self.step is None:
            doubled = itertools.accumulate(itertools.repeat(2), operator.mul, initial=self.start)
            return tuple(itertools.takewhile(lambda each: each <= self.stop, doubled))
        count = math.floor((self.stop - self.start) / self.step * (1 + 1e-12)) + 1
        return tuple(
            value if isinstance(value, int) else float(f"{value:.15g}")
            for value in (self.start + n * self.step for n in range(count))
        )


Column = (
    Range
    | Annotated[
        tuple[StrictBool | StrictInt | StrictFloat | Word, ...],
        Field(min_length=1, max_length=MAX_CONFIGURATIONS),
    ]
)


class GridSettings(SettingsTable):
    """The table `[grid]`; a job may have neither a size nor a parallelism that varies."""

    size: StrictStr | None = None
    parallelism: StrictStr | None = None
    columns: Annotated[dict[StrictStr, Column], Field(min_length=1, max_length=MAX_COLUMNS)]
    constraints: Annotated[tuple[StrictStr, ...], Field(max_length=MAX_CONSTRAINTS)] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """The allowed configurations of a campaign; made by `build_grid`."""

    columns: Mapping[str, tuple[Value, ...]]  # values of every column, before constraints
    size: str | None  # name of the column of input sizes; None without one
    parallelism: str | None  # name of the column of parallel units; None without one
    configurations: tuple[Configuration, ...]  # those that meet every constraint, by their number
    ruled_out: int  # how many configurations do not
    constraints: tuple[Constraint, ...] = ()  # that rule them out

    def broken_constraint(self, configuration: Configuration) -> str | None:
        """Return the first constraint that a configuration breaks, as it is written.

        Raises:
            InvalidGridConstraintError: one has no value for it.
        """
        return next((each.text for each in self.constraints if not each.holds(configuration)), None)

    def table(
        self, configurations: Sequence[Configuration] | None = None
    ) -> dict[str, list[float | str]]:
        """Configurations as columns of a table; all that are allowed by default.

        Booleans are words there. `size_column` and `parallelism_column` are always there.
        """
        rows = self.configurations if configurations is None else configurations
        ones: list[float | str] = [1.0] * len(rows)
        cells: dict[str, list[float | str]] = {
            name: [
                value_word(each[name]) if isinstance(each[name], bool | str) else float(each[name])
                for each in rows
            ]
            for name in self.columns
        }
        added = (self.size_column, self.parallelism_column)
        return cells | {name: ones for name in added if name not in cells}

    @property
    def size_column(self) -> str:
        """Return the column of sizes in `table`."""
        return self.size or NO_SIZE

    @property
    def parallelism_column(self) -> str:
        """Return the column of parallel units in `table`."""
        return self.parallelism or NO_PARALLELISM

    @property
    def plot_columns(self) -> tuple[str | None, str | None]:
        """Return the column of the x axis, and the one with a line for each of its values."""
        if self.parallelism is None or self.parallelism in self.fixed:
            return self.size, self.parallelism
        return self.parallelism, self.size

    @property
    def fixed(self) -> frozenset[str]:
        """Return columns that have one value in all configurations."""
        rows = self.configurations
        return frozenset(n for n in self.columns if len({each[n] for each in rows}) == 1)

    @property
    def further(self) -> tuple[str, ...]:
        """Return the columns other than size and parallelism."""
        return tuple(name for name in self.columns if name not in (self.size, self.parallelism))


def build_grid(settings: GridSettings, problems: list[str]) -> Grid | None:
    """Build the grid of the settings, or return None and add to `problems`."""
    before = len(problems)
    columns = {name: _values(name, each, problems) for name, each in settings.columns.items()}
    for role, name in (("size", settings.size), ("parallelism", settings.parallelism)):
        if name is None:
            continue
        if name not in columns:
            problems.append(f"grid.{role}: no column {name!r} in grid.columns")
        elif any(isinstance(value, bool | str) or not value > 0 for value in columns[name]):
            problems.append(f"grid.columns.{name}: the column of {role} holds numbers above 0")
    if settings.size is not None and settings.size == settings.parallelism:
        problems.append("grid.parallelism: is the column of sizes already")
    if (count := math.prod(map(len, columns.values()))) > MAX_CONFIGURATIONS:
        problems.append(
            f"grid.columns: give {count} configurations, at most {MAX_CONFIGURATIONS} are allowed"
        )
    constraints = []
    for text in settings.constraints:
        try:
            constraints.append(Constraint.parse(text, columns))
        except InvalidGridConstraintError as error:
            problems.append(f"grid.constraints: {error}")
    if len(problems) > before:
        return None
    rows = [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]
    allowed = _allowed(rows, constraints, problems)
    if not allowed:
        return None
    ruled_out = len(rows) - len(allowed)
    return Grid(
        columns, settings.size, settings.parallelism, allowed, ruled_out, tuple(constraints)
    )


def _values(name: str, column: Column, problems: list[str]) -> tuple[Value, ...]:
    key = f"grid.columns.{name}"
    if not name.isidentifier() or keyword.iskeyword(name) or len(name) > LONGEST_WORD:
        problems.append(f"{key}: a column's name is a word of letters, digits and _")
    if name in RESERVED_NAMES:
        problems.append(f"{key}: this name is taken")
    values = column.values() if isinstance(column, Range) else column
    kinds = {
        "words" if isinstance(v, str) else "booleans" if isinstance(v, bool) else "numbers"
        for v in values
    }
    if len(kinds) > 1:
        problems.append(f"{key}: holds {' and '.join(sorted(kinds))}, one kind is allowed")
    numbers = [v for v in values if not isinstance(v, str)]
    if not all(-LARGEST_NUMBER <= each <= LARGEST_NUMBER for each in numbers):
        problems.append(f"{key}: numbers are finite and at most {LARGEST_NUMBER:g}")
    if len(set(values)) < len(values):
        problems.append(f"{key}: holds a value twice")
    return values


def _allowed(
    rows: Sequence[Configuration], constraints: Sequence[Constraint], problems: list[str]
) -> tuple[Configuration, ...]:
    """Return the configurations that meet the constraints; none where there is a problem."""
    try:
        allowed = tuple(row for row in rows if all(each.holds(row) for each in constraints))
    except InvalidGridConstraintError as error:
        problems.append(f"grid.constraints: {error}")
        return ()
    if not allowed:
        problems.append("grid.constraints: no configuration meets all of them")
    return allowed
