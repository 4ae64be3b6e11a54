"""The grid of a campaign: columns with their values, and the configurations that are allowed.

A configuration is one value per column; configurations are numbered in the order of the
columns as written, the last one fastest, and only those that meet every constraint count.
So a number means the same configuration as long as the campaign's meaning is the same.

Refused: columns of mixed types, numbers that are not finite, a size or a parallelism that
is not positive, grids of more than `MAX_CONFIGURATIONS` before constraints, and grids
that the constraints leave empty.
"""

import itertools
import keyword
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

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

from fedperf_campaigns.campaign.expressions import (
    Constraint,
    InvalidGridConstraintError,
    Value,
)

MAX_CONFIGURATIONS = 100_000
"""Of the whole grid, before constraints."""

MAX_COLUMNS = 32
MAX_CONSTRAINTS = 32
LONGEST_WORD = 200
LARGEST_NUMBER = 1e15
"""Numbers up to here are exact as floats too."""

NO_SIZE, NO_PARALLELISM = "(no size)", "(no parallelism)"
"""Columns of ones that stand in a table for what a campaign does not have; no name of a column."""

TRIAL_DIRECTORY = "trial_directory"
"""Stands beside the columns' names where a component is told a configuration."""

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
"""No column has such a name: they stand beside the columns in a campaign's results."""

Configuration = Mapping[str, Value]
Number = StrictInt | StrictFloat
Word = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_WORD)]


class Range(BaseModel):
    """Numbers from `start` to `stop`, both included: by `step`, or doubling."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        """All numbers, ascending; whole where start and step are, else to 15 digits.

        So the third of 0.1, 0.2, ... is 0.3 as a constraint and a command mean it, and not
        0.30000000000000004.
        """
        if self.step is None:
            doubled = itertools.accumulate(itertools.repeat(2), operator.mul, initial=self.start)
            return tuple(itertools.takewhile(lambda each: each <= self.stop, doubled))
        count = math.floor((self.stop - self.start) / self.step * (1 + 1e-12)) + 1
        return tuple(_to_15_digits(self.start + n * self.step) for n in range(count))


Column = (
    Range
    | Annotated[
        tuple[StrictBool | StrictInt | StrictFloat | Word, ...],
        Field(min_length=1, max_length=MAX_CONFIGURATIONS),
    ]
)


class GridSettings(BaseModel):
    """The table `[grid]`; a job may have neither a size nor a parallelism that varies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: StrictStr | None = None
    parallelism: StrictStr | None = None
    columns: Annotated[dict[StrictStr, Column], Field(min_length=1, max_length=MAX_COLUMNS)]
    constraints: Annotated[tuple[StrictStr, ...], Field(max_length=MAX_CONSTRAINTS)] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """The allowed configurations of a campaign; made by `grid_of`.

    Attributes:
        columns: values of every column, before constraints.
        size: name of the column of input sizes; None without one.
        parallelism: name of the column of parallel units; None without one.
        configurations: those that meet every constraint, by their number.
        ruled_out: how many configurations do not.
        constraints: that rule them out.
    """

    columns: Mapping[str, tuple[Value, ...]]
    size: str | None
    parallelism: str | None
    configurations: tuple[Configuration, ...]
    ruled_out: int
    constraints: tuple[Constraint, ...] = ()

    def broken_constraint(self, configuration: Configuration) -> str | None:
        """The first constraint that any configuration breaks, as it is written; None if none.

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
        found = {name: [_cell(each[name]) for each in rows] for name in self.columns}
        return {**found, **{name: ones for name in self._roles if name not in found}}

    @property
    def size_column(self) -> str:
        """The column of sizes in `table`."""
        return self.size or NO_SIZE

    @property
    def parallelism_column(self) -> str:
        """The column of parallel units in `table`."""
        return self.parallelism or NO_PARALLELISM

    @property
    def _roles(self) -> tuple[str, str]:
        return self.size_column, self.parallelism_column

    @property
    def drawn(self) -> tuple[str | None, str | None]:
        """Column that run times are drawn over, and that with a line for each of its values."""
        if self.parallelism is None or self.parallelism in self.fixed:
            return self.size, self.parallelism
        return self.parallelism, self.size

    @property
    def fixed(self) -> frozenset[str]:
        """Columns that have one value in all configurations."""
        rows = self.configurations
        return frozenset(n for n in self.columns if len({each[n] for each in rows}) == 1)

    @property
    def further(self) -> tuple[str, ...]:
        """Columns beside size and parallelism."""
        return tuple(name for name in self.columns if name not in (self.size, self.parallelism))


def grid_of(settings: GridSettings, problems: list[str]) -> Grid | None:
    """The grid that the settings mean; None, with what is wrong in `problems`."""
    before = len(problems)
    columns = {name: _values(name, each, problems) for name, each in settings.columns.items()}
    for role in ("size", "parallelism"):
        if (name := getattr(settings, role)) is not None:
            _check_role(role, name, columns, problems)
    if settings.size is not None and settings.size == settings.parallelism:
        problems.append("grid.parallelism: is the column of sizes already")
    if (count := math.prod(map(len, columns.values()))) > MAX_CONFIGURATIONS:
        problems.append(
            f"grid.columns: give {count} configurations, at most {MAX_CONFIGURATIONS} are allowed"
        )
    constraints = _constraints(settings.constraints, columns, problems)
    if len(problems) > before:
        return None
    names = list(columns)
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product(*columns.values())]
    allowed = _allowed(rows, constraints, problems)
    if allowed is None:
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


def _check_role(
    role: str, name: str, columns: Mapping[str, tuple[Value, ...]], problems: list[str]
) -> None:
    if name not in columns:
        problems.append(f"grid.{role}: no column {name!r} in grid.columns")
    elif not all(_is_positive(value) for value in columns[name]):
        problems.append(f"grid.columns.{name}: the column of {role} holds numbers above 0")


def _is_positive(value: Value) -> bool:
    return not isinstance(value, bool | str) and value > 0


def _constraints(
    texts: Sequence[str], columns: Mapping[str, object], problems: list[str]
) -> list[Constraint]:
    found = []
    for text in texts:
        try:
            found.append(Constraint.parse(text, columns))
        except InvalidGridConstraintError as error:
            problems.append(f"grid.constraints: {error}")
    return found


def _allowed(
    rows: Sequence[Configuration], constraints: Sequence[Constraint], problems: list[str]
) -> tuple[Configuration, ...] | None:
    try:
        allowed = tuple(row for row in rows if all(each.holds(row) for each in constraints))
    except InvalidGridConstraintError as error:
        problems.append(f"grid.constraints: {error}")
        return None
    if not allowed:
        problems.append("grid.constraints: no configuration meets all of them")
        return None
    return allowed


def _to_15_digits(value: float) -> int | float:
    return value if isinstance(value, int) else float(f"{value:.15g}")


def _cell(value: Value) -> float | str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else float(value)
