"""Executions as rows of one public table, the only form of executions for table tools.

The schema is a constant of this file: the columns, their types and their bounds. It is never
detected from data, so it contains nothing private. A row holds enums and numbers only, no names. A
row outside of the schema raises an error. Run times and rows outside of the public bounds are
clamped to them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.releases.basis import PLATFORM_GROUPS, SIZE_BOUNDS, Cell, cell_of
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import (
    MAX_OPERATORS,
    MAX_ROWS,
    MAX_RUNTIME_SECONDS,
    MIN_RUNTIME_SECONDS,
    OperatorClass,
    Platform,
)

TABLE = "executions"

CELL_COLUMNS = ("platform", "operator_class", "size")
CLUSTER_COLUMNS = ("nodes", "cores", "memory_bytes", "machine_speed")
NUMERICAL_COLUMNS = ("operators", "sources", "log_source_rows", "log_seconds")
COLUMNS = CELL_COLUMNS + CLUSTER_COLUMNS + NUMERICAL_COLUMNS

# The schema in the form that SDV and SDMetrics read (`Metadata.load_from_dict`).
METADATA = {
    "tables": {
        TABLE: {
            "columns": {
                column: {"sdtype": "numerical" if column in NUMERICAL_COLUMNS else "categorical"}
                for column in COLUMNS
            }
        }
    }
}

# Least and largest `log_seconds`.
RUNTIME_BOUNDS = (math.log(MIN_RUNTIME_SECONDS), math.log(MAX_RUNTIME_SECONDS))

_SIZE_EDGES = (1.0, *SIZE_BOUNDS, MAX_ROWS)

Record = dict[str, str | int | float]  # a row by the names of its columns


class InvalidTableRowError(InvalidInputError):
    """Raised for a row outside of the public schema."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One execution without its plan's shape."""

    cell: Cell  # main platform, most special operator class and size group of its plan
    cluster: ClusterConfig  # the resources it had
    operators: int  # operators of its plan
    sources: int  # operators of its plan without inputs
    log_source_rows: float  # natural log of the rows of all sources, within the size group
    log_seconds: float  # natural log of wall seconds

    def __post_init__(self) -> None:
        if self.cell.platform not in PLATFORM_GROUPS or not 0 <= self.cell.size <= len(SIZE_BOUNDS):
            raise InvalidTableRowError(f"{self.cell} is no cell of the public basis")
        if not 1 <= self.sources <= self.operators <= MAX_OPERATORS:
            raise InvalidTableRowError(
                f"{self.sources} sources of {self.operators} operators; there must be at least one "
                f"and at most {MAX_OPERATORS} operators"
            )
        for name, (low, high) in (
            ("log_source_rows", size_bounds(self.cell.size)),
            ("log_seconds", RUNTIME_BOUNDS),
        ):
            if not low <= getattr(self, name) <= high:
                raise InvalidTableRowError(
                    f"{name} must be in [{low:.4g}, {high:.4g}], got {getattr(self, name)!r}"
                )

    @classmethod
    def of(cls, plan: Plan, cluster: ClusterConfig, log_seconds: float) -> Self:
        """Return the row of an execution of `plan`. A run time outside of the bounds is clamped.

        Raises:
            InvalidTableRowError: the run time is not a number.
        """
        cell, operators = cell_of(plan), plan.workflow.operators
        sources = [operator for operator in operators if not operator.inputs]
        rows = sum(operator.output_rows for operator in sources)
        return cls(
            cell,
            cluster,
            len(operators),
            len(sources),
            _clamped(math.log(max(rows, 1.0)), size_bounds(cell.size)),
            _clamped(log_seconds, RUNTIME_BOUNDS),
        )

    @classmethod
    def from_record(cls, record: Mapping[str, str | int | float]) -> Self:
        """Return the row of a record of `as_record` or of a table tool, clamped as in `of`.

        Raises:
            InvalidInputError: a column is missing, or the schema does not allow its value.
        """
        try:
            size = int(record["size"])
            cell = Cell(
                Platform[str(record["platform"]).upper()],
                OperatorClass[str(record["operator_class"]).upper()],
                size,
            )
            cluster = ClusterConfig(
                int(record["nodes"]),
                int(record["cores"]),
                int(record["memory_bytes"]),
                float(record["machine_speed"]),
            )
            return cls(
                cell,
                cluster,
                int(record["operators"]),
                int(record["sources"]),
                _clamped(float(record["log_source_rows"]), size_bounds(size)),
                _clamped(float(record["log_seconds"]), RUNTIME_BOUNDS),
            )
        except (KeyError, ValueError, OverflowError) as error:
            raise InvalidTableRowError(f"not a row of the public table: {error!r}") from error

    def as_record(self) -> Record:
        """Return the row by the names of its columns, in their order."""
        return {
            "platform": self.cell.platform.name.lower(),
            "operator_class": self.cell.operator_class.name.lower(),
            "size": self.cell.size,
            **{name: getattr(self.cluster, name) for name in CLUSTER_COLUMNS},
            "operators": self.operators,
            "sources": self.sources,
            "log_source_rows": self.log_source_rows,
            "log_seconds": self.log_seconds,
        }


def size_bounds(size: int) -> tuple[float, float]:
    """Return the least and largest `log_source_rows` of a size group.

    Raises:
        InvalidTableRowError: there is no such group.
    """
    if not 0 <= size <= len(SIZE_BOUNDS):
        raise InvalidTableRowError(f"size must be 0 to {len(SIZE_BOUNDS)}, got {size!r}")
    return math.log(_SIZE_EDGES[size]), math.log(_SIZE_EDGES[size + 1])


def _clamped(value: float, bounds: tuple[float, float]) -> float:
    """Return the nearest value within the bounds. NaN stays NaN, and the row refuses it."""
    low, high = bounds
    return low if value < low else high if value > high else value
