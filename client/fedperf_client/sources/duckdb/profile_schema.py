"""The fields of a DuckDB profile, by family of versions, and checked reading of their values.

A value that is missing is None or 0. A value that is there is a finite number of at least 0.

Refused: anything else where a number belongs, negative or infinite numbers, counts that are more
than there can be. The reason never holds a value.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from fedperf_shared.errors import InvalidInputError

_MAX_COUNT = 2**53

_Path = tuple[str, ...]


class InvalidProfileError(InvalidInputError):
    """Not the profile of a query."""


@dataclass(frozen=True, slots=True)
class ProfileSchema:
    """Where a family of versions writes what; empty where it does not."""

    source: str
    top: str
    kind: _Path
    rows: str
    size: str
    timing: str
    wall: _Path
    cpu: _Path
    memory: _Path
    read: _Path
    written: _Path
    scanned: str
    row_groups: str
    all_row_groups: str
    counts_scanned_rows: bool


_SINCE_2 = ProfileSchema(
    source="duckdb 2.x",
    top="operator",
    kind=("type",),
    rows="intermediate_rows",
    size="intermediate_size_bytes",
    timing="timing",
    wall=("query", "total_time"),
    cpu=("query", "cpu_time"),
    memory=("system", "peak_buffer_memory"),
    read=("io", "total_bytes_read"),
    written=("io", "total_bytes_written"),
    scanned="rows_scanned",
    row_groups="row_groups_scanned",
    all_row_groups="total_row_groups_to_scan",
    counts_scanned_rows=True,
)
_SINCE_1_1 = ProfileSchema(
    source="duckdb 1.x",
    top="children",
    kind=("operator_type", "operator_name"),
    rows="operator_cardinality",
    size="result_set_size",
    timing="operator_timing",
    wall=("latency",),
    cpu=("cpu_time",),
    memory=("system_peak_buffer_memory",),
    read=("total_bytes_read",),
    written=("total_bytes_written",),
    scanned="operator_rows_scanned",
    row_groups="",
    all_row_groups="",
    counts_scanned_rows=False,
)
_BEFORE_1_1 = ProfileSchema(
    source="duckdb 1.0 or older",
    top="children",
    kind=("name",),
    rows="cardinality",
    size="",
    timing="timing",
    wall=("timing",),
    cpu=(),
    memory=(),
    read=(),
    written=(),
    scanned="",
    row_groups="",
    all_row_groups="",
    counts_scanned_rows=False,
)


def schema_of(content: Mapping[str, object]) -> ProfileSchema:
    """The schema that a profile is written in."""
    if isinstance(content.get("operator"), list):
        return _SINCE_2
    if "extra-info" in content or "timings" in content:
        return _BEFORE_1_1
    return _SINCE_1_1


def value_at(content: Mapping[str, object], path: _Path) -> object:
    """What stands at the path; None where nothing does."""
    found: object = content if path else None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def number_of(value: object, what: str) -> float | None:
    """The value as a number; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidProfileError(f"{what}: not a number")
    if not 0 <= value <= sys.float_info.max:
        raise InvalidProfileError(f"{what}: negative or not finite")
    return float(value)


def count_of(value: object, what: str) -> int:
    """The value as a whole number; 0 where there is none."""
    number = number_of(value, what) or 0.0
    if not number <= _MAX_COUNT:
        raise InvalidProfileError(f"{what}: more than there can be")
    return int(number)
