"""Cells: finished parts of an experiment, kept in files that record their dependencies.

A file holds rows, a digest of the code, data and libraries that they depend on, and a digest
of its content. Of other code or data, or edited, it is computed again; where cells are only
read, it is refused, as is one that is not there.
"""

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import orjson

from fedperf_shared.errors import InvalidInputError

Value = str | int | float | bool | None
Row = Mapping[str, Value]


def number(value: Value) -> float:
    """Return a figure of a row. NaN where it is none: JSON has no infinity."""
    return float(value) if isinstance(value, int | float) else math.nan


class UnfitCellError(InvalidInputError):
    """A kept cell is missing, edited, or of other code or data."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cell {path.stem}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class KeptCell:
    """One finished part.

    Attributes:
        rows: what was found, as JSON gives it back: what is no number is None.
        dependencies: digest of what it depends on.
        digest: of rows and dependencies.
    """

    rows: Sequence[Row]
    dependencies: str
    digest: str

    @classmethod
    def of(cls, rows: Sequence[Row], dependencies: str) -> Self:
        """Return a cell of rows that were computed."""
        stored = orjson.loads(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY))
        return cls(stored, dependencies, _digest(stored, dependencies))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the cell in a file.

        Raises:
            UnfitCellError: there is none, or its content is not what was written.
        """
        try:
            content = orjson.loads(path.read_bytes())
            cell = cls(content["rows"], content["dependencies"], content["digest"])
        except FileNotFoundError as error:
            raise UnfitCellError(path, "missing") from error
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise UnfitCellError(path, "no cell of this version") from error
        if _digest(cell.rows, cell.dependencies) != cell.digest:
            raise UnfitCellError(path, "edited: its content is not what was written")
        return cell

    def write(self, path: Path) -> None:
        """Keep it there."""
        content = {"dependencies": self.dependencies, "digest": self.digest, "rows": self.rows}
        write_json(path, content)


def fit_cell(path: Path, dependencies: str) -> KeptCell:
    """The cell that is kept there.

    Raises:
        UnfitCellError: it is missing, edited, or of other code or data.
    """
    cell = KeptCell.read(path)
    if cell.dependencies != dependencies:
        raise UnfitCellError(path, "of other code, data or versions")
    return cell


def kept_or_computed(
    path: Path, dependencies: str, compute: Callable[[], Sequence[Row]]
) -> KeptCell:
    """Return the stored cell where it fits, else the computed one. One line gives the reason."""
    try:
        return fit_cell(path, dependencies)
    except UnfitCellError as error:
        if path.exists():
            print(f"{error}; computed again", file=sys.stderr)
    cell = KeptCell.of(compute(), dependencies)
    cell.write(path)
    return cell


def write_json(path: Path, content: object) -> None:
    """Write `content` as JSON. A reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    scratch.write_bytes(orjson.dumps(content, option=options))
    scratch.replace(path)


def _digest(rows: Sequence[Row], dependencies: str) -> str:
    content = orjson.dumps([dependencies, rows], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()
