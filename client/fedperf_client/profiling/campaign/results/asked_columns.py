"""The values of a campaign's columns that `--at` asks about, and how they are written.

Every combination of the values is asked about. Refused: unknown columns, columns without a value,
words that the grid does not hold, parts of a parallel unit where the grid counts whole ones.
"""

import itertools
import math
from collections.abc import Sequence

from fedperf_client.prediction.answers.reconfiguration import BYTES
from fedperf_client.prediction.answers.what_if import MOST_ASKED
from fedperf_client.profiling.campaign.expressions import Value
from fedperf_client.profiling.campaign.grid import Configuration, Grid
from fedperf_client.text.asked_values import number_of, values_by_name
from fedperf_shared.errors import InvalidInputError


class InvalidColumnsError(InvalidInputError):
    """Columns that a campaign is asked about are not its own, or have no such value."""


def configurations_asked(grid: Grid, settings: Sequence[str]) -> list[Configuration]:
    """The configurations that `--at` asks about: every combination of the values.

    Args:
        grid: of the campaign.
        settings: each like `rows=3200000,workers=1,2,4`.

    Raises:
        InvalidColumnsError: a column is unknown, missing, named twice, or has no such value.
    """
    words = values_by_name(settings)
    if unknown := [name for name in words if name not in grid.columns]:
        there = ", ".join(grid.columns)
        raise InvalidColumnsError(f"there is no column {unknown[0]!r}; there are {there}")
    columns: dict[str, tuple[Value, ...]] = {}
    for name, known in grid.columns.items():
        if name in words:
            values = tuple(_value(name, word, known) for word in dict.fromkeys(words[name]))
            if name == grid.parallelism:
                _require_whole(name, values, known)
            columns[name] = values
        elif len(known) == 1:
            columns[name] = known
        else:
            raise InvalidColumnsError(
                f"column {name} has several values, name one or more: --at {name}={_choices(known)}"
            )
    if (count := math.prod(map(len, columns.values()))) > MOST_ASKED:
        raise InvalidColumnsError(f"{count} combinations are asked about, at most {MOST_ASKED} are")
    rows = itertools.product(*columns.values())
    return [dict(zip(columns, row, strict=True)) for row in rows]


def value_text(value: Value) -> str:
    """A value for people."""
    return value_word(value) if isinstance(value, bool | str) else f"{value:,.15g}"


def value_word(value: Value) -> str:
    """A value as `--at` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.15g}"


def _value(name: str, word: str, known: Sequence[Value]) -> Value:
    if isinstance(known[0], bool | str):
        by_word = {value_word(each): each for each in known}
        if word not in by_word:
            raise InvalidColumnsError(f"column {name} holds {_choices(known)}; got {word[:80]!r}")
        return by_word[word]
    value = number_of(word, is_bytes=name == BYTES)
    if value is None:
        raise InvalidColumnsError(f"column {name} holds numbers; got {word[:80]!r}")
    return int(value) if value.is_integer() else value


def _require_whole(name: str, values: Sequence[Value], known: Sequence[Value]) -> None:
    """Refuse parts of a parallel unit, where the grid has whole ones."""
    if all(float(each).is_integer() for each in known):
        for each in values:
            if not float(each).is_integer():
                raise InvalidColumnsError(
                    f"column {name} counts whole units; got {value_text(each)}"
                )


def _choices(values: Sequence[Value]) -> str:
    shown = ",".join(value_word(each) for each in values[:8])
    return shown + (",..." if len(values) > 8 else "")  # noqa: PLR2004 (as many as shown)
