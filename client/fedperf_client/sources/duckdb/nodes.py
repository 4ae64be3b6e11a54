"""The operators of a profile as it has them, with the figures of its schema checked.

Refused: operators that are no objects or have no name, more of their rows than a plan may have.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedperf_client.sources.duckdb.operators import KINDS
from fedperf_client.sources.duckdb.profile_schema import (
    InvalidProfileError,
    ProfileSchema,
    number_of,
)
from fedperf_shared.workflow.vocabulary import MAX_ROWS, PARSES_TEXT, OperatorKind

_TEXT = re.compile(r"(?:READ_)?(?:CSV|JSON|NDJSON|TEXT)")
_DIGITS = 15
_FILE_NOTES = ("Filename(s)", "Total Files Read", "Scanning Files")


@dataclass(frozen=True, slots=True)
class ProfileNode:
    """An operator as the profile has it; None where it does not say.

    Attributes:
        name: in capitals.
        rows: that came out.
        size: bytes of these rows.
        seconds: spent in it, over all threads.
        scanned: rows that it read from a table or files, or announced, see `scans`.
        row_groups: of these that it read.
        all_row_groups: of these that there are.
        label: as people read it.
        is_idle: whether it had time and rows to tell, and they are all 0.
        notes: texts and lists of texts; only some of their keys are looked at.
        children: what it reads from, still as JSON.
    """

    name: str
    rows: float | None
    size: float | None
    seconds: float
    scanned: float | None
    row_groups: float | None
    all_row_groups: float | None
    label: str
    is_idle: bool
    notes: Mapping[str, object]
    children: Sequence[object]

    @property
    def kind(self) -> OperatorKind:
        """What it does."""
        kind = KINDS.get(self.name, OperatorKind.OTHER)
        if kind is OperatorKind.TABLE_SOURCE and any(each in self.notes for each in _FILE_NOTES):
            return OperatorKind.FILE_SOURCE
        is_file = KINDS.get(self.function) is OperatorKind.FILE_SOURCE
        return OperatorKind.FILE_SOURCE if kind is OperatorKind.TABLE_SOURCE and is_file else kind

    @property
    def code_steps(self) -> int:
        """Of a source that parses text."""
        return PARSES_TEXT if _TEXT.match(self.function or self.name) else 0

    @property
    def columns(self) -> int:
        """That it takes from a table or file."""
        names = self.notes.get("Projections")
        return len(names) if isinstance(names, list) else int(bool(names))

    @property
    def function(self) -> str:
        """The function that scans, in capitals; empty for tables of DuckDB's own."""
        return _plain(self.note("Function"))

    @property
    def filters(self) -> tuple[str, ...]:
        """That it applies to what it scans."""
        filters = self.notes.get("Filters", ())
        return tuple(map(str, filters)) if isinstance(filters, list | tuple) else (str(filters),)

    @property
    def estimate(self) -> int:
        """Rows that were expected before it ran; 0 where nothing tells."""
        text = self.note("Estimated Cardinality")
        return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0

    def note(self, key: str) -> str:
        """The text of a note, empty where there is none."""
        value = self.notes.get(key)
        return value if isinstance(value, str) else ""


def node_of(content: object, schema: ProfileSchema) -> ProfileNode:
    """The operator that a part of a profile describes, without what it reads from."""
    if not isinstance(content, dict):
        raise InvalidProfileError("an operator is not an object")
    name = next((content[key] for key in schema.kind if content.get(key)), None)
    if not isinstance(name, str):
        raise InvalidProfileError("an operator without a name")
    notes, children = content.get("extra_info"), content.get("children", [])
    if not isinstance(children, list):
        raise InvalidProfileError("an operator's children are no list")
    rows = number_of(content.get(schema.rows), "rows")
    seconds = number_of(content.get(schema.timing), "the time of an operator")
    scanned = number_of(content.get(schema.scanned), "scanned rows")
    label = content.get("operator_name")
    return ProfileNode(
        name=_plain(name),
        rows=None if rows is None else limited_rows(rows),
        size=number_of(content.get(schema.size), "bytes"),
        seconds=seconds or 0.0,
        scanned=scanned,
        row_groups=number_of(content.get(schema.row_groups), "row groups"),
        all_row_groups=number_of(content.get(schema.all_row_groups), "row groups"),
        label=label if isinstance(label, str) else "",
        is_idle=seconds == 0 and rows == 0 and not scanned,
        notes=notes if isinstance(notes, dict) else {},
        children=children,
    )


def limited_rows(rows: float) -> float:
    """The rows, refused where they are more than a plan may have."""
    if not rows <= MAX_ROWS:
        raise InvalidProfileError(f"more than {MAX_ROWS:g} rows")
    return rows


def _plain(name: str) -> str:
    return name.strip().upper()
