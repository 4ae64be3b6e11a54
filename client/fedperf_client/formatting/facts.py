"""Facts that a command prints. Each is described once, for programs and for people.

The name of a fact ends with its unit, as `runtime_seconds` does. People read the value in that
unit, unless the fact has a text of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fedperf_client.formatting.durations import duration_text
from fedperf_client.formatting.numbers import size_text
from fedperf_shared.runtime.command_line import show_rows

_TEXT_OF_UNIT: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {"seconds": duration_text, "bytes": size_text}
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact.

    Attributes:
        name: its key for programs; None where only people are told.
        value: for programs.
        heading: what people call it; None where only programs are told.
        text: the value for people; None for that of its unit.
    """

    name: str | None
    value: object = None
    heading: str | None = None
    text: object = None

    @property
    def shown(self) -> object:
        """The value for people."""
        if self.text is not None:
            return self.text
        in_words = _TEXT_OF_UNIT.get((self.name or "").rpartition("_")[2])
        if in_words is None or isinstance(self.value, bool):
            return self.value
        return in_words(self.value) if isinstance(self.value, int | float) else self.value


def for_people(heading: str, text: object) -> Fact:
    """A fact that programs find elsewhere, or need not know."""
    return Fact(None, None, heading, text)


def for_programs(facts: Sequence[Fact]) -> list[Fact]:
    """The facts without their columns for people."""
    return [Fact(each.name, each.value) for each in facts if each.name is not None]


def without_empty(rows: Sequence[Sequence[Fact]]) -> list[list[Fact]]:
    """The rows without columns for people in which every text is empty."""
    told = {each.heading for row in rows for each in row if each.shown != ""}
    empty = {each.heading for row in rows for each in row} - told
    return [
        [Fact(each.name, each.value) if each.heading in empty else each for each in row]
        for row in rows
    ]


def values_of(facts: Sequence[Fact]) -> dict[str, object]:
    """The facts for programs, by name."""
    return {each.name: each.value for each in facts if each.name is not None}


def texts_of(facts: Sequence[Fact]) -> dict[str, object]:
    """The facts for people, by heading."""
    return {each.heading: each.shown for each in facts if each.heading is not None}


def show_table(
    rows: Sequence[Sequence[Fact]], *, json: bool, empty: str = "", spare: Collection[str] = ()
) -> None:
    """Print a row of facts for each thing; the rest is as for `show_rows`."""
    of_row = values_of if json else texts_of
    show_rows([of_row(each) for each in rows], json=json, empty=empty, spare=spare)
