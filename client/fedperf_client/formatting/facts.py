"""A fact is described once, and printed in a table, on a line of its own or as JSON.

The name of a fact ends with its unit, such as `runtime_seconds` or `finished_at`. Its text for
people follows from that unit, unless the fact has a text of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from fedperf_shared.runtime.command_line import show, show_rows
from fedperf_shared.runtime.quantities import duration_text, size_text, table_minute

_FORMATS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {"seconds": duration_text, "bytes": size_text, "epsilon": "{:.4g}".format}
)
_LONGEST_LIST = 4


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact."""

    name: str | None  # its key in JSON, None if JSON leaves it out
    value: object = None  # its value in JSON
    heading: str | None = None  # its heading for people, None if only JSON has it
    text: object = None  # its value for people, None for that of its unit

    @property
    def entry(self) -> object:
        """Return the value for people."""
        value = self.value if self.text is None else self.text
        if isinstance(value, datetime):
            return table_minute(value)
        if isinstance(value, list):
            more = f"; and {len(value) - _LONGEST_LIST} more (--json)"
            parts = "; ".join(str(each) for each in value[:_LONGEST_LIST])
            return parts + (more if len(value) > _LONGEST_LIST else "")
        if self.text is None and isinstance(value, int | float) and not isinstance(value, bool):
            unit_format = _FORMATS.get((self.name or "").rpartition("_")[2])
            return value if unit_format is None else unit_format(value)
        return value


def for_people(heading: str, text: object) -> Fact:
    """Return a fact that JSON leaves out."""
    return Fact(None, None, heading, text)


def for_programs(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts of JSON, without headings."""
    return [Fact(each.name, each.value) for each in facts if each.name is not None]


def named_facts(
    values: Mapping[str, object], *, columns: Collection[str] | None = None
) -> list[Fact]:
    """Return a fact for each value, with its name as heading.

    Args:
        values: by name.
        columns: names of the facts for people; all by default.
    """
    return [
        Fact(
            name,
            value,
            None
            if columns is not None and name not in columns
            else f"{name} (UTC)"
            if name.endswith("_at")
            else name,
        )
        for name, value in values.items()
    ]


def without_empty(rows: Sequence[Sequence[Fact]]) -> list[list[Fact]]:
    """Return the rows without the headings whose text is empty in every row."""
    used = {each.heading for row in rows for each in row if each.entry not in (None, "", [])}
    return [
        [each if each.heading in used else Fact(each.name, each.value) for each in row]
        for row in rows
    ]


def values_of(facts: Sequence[Fact]) -> dict[str, object]:
    """Return the values of JSON by name."""
    return {each.name: each.value for each in facts if each.name is not None}


def texts_of(facts: Sequence[Fact]) -> dict[str, object]:
    """Return the texts for people by heading."""
    return {each.heading: each.entry for each in facts if each.heading is not None}


def show_facts(facts: Sequence[Fact], *, json: bool) -> None:
    """Print facts, for people one on a line without those that are empty."""
    show(values_of(facts) if json else texts_of(*without_empty([facts])), json=json)


def show_table(
    rows: Sequence[Sequence[Fact]], *, json: bool, empty: str = "", spare: Collection[str] = ()
) -> None:
    """Print a row of facts for each thing. `empty` and `spare` are as for `show_rows`."""
    to_row = values_of if json else texts_of
    show_rows([to_row(each) for each in rows], json=json, empty=empty, spare=spare)
