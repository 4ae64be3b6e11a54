"""Durations, bytes, counts and timestamps as people read and write them.

`--at` takes numbers with a suffix: thousands (k, M, G, T), bytes (kB, MB, GB, TB) or binary bytes
(KiB, MiB, GiB, TiB). Timestamps are in UTC.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.filesize import decimal

from fedperf_shared.errors import InvalidInputError


def day(timestamp: datetime) -> str:
    """Format the day for a sentence: 2 December 2026."""
    at = timestamp.astimezone(UTC)
    return f"{at.day} {at:%B %Y}"


def minute(timestamp: datetime) -> str:
    """Format a timestamp for a sentence, to the minute: 2 December 2026, 00:00 UTC."""
    return f"{day(timestamp)}, {timestamp.astimezone(UTC):%H:%M} UTC"


def table_minute(timestamp: datetime) -> str:
    """Format a timestamp for a table whose heading or help names UTC: 2026-12-02 00:00."""
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M}"


# Seconds of each unit of a duration.
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_text(seconds: float) -> str:
    """Format a duration in the largest unit that it contains more than twice."""
    for unit, name in (("d", "d"), ("h", "h"), ("m", "min")):
        if seconds >= 2 * UNITS[unit]:
            return f"{seconds / UNITS[unit]:.1f} {name}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def counted(number: int, thing: str) -> str:
    """Format a number of things, whose plural ends with s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size_text(count: float) -> str:
    """Format a number of bytes."""
    return decimal(round(count))


_SI = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(?:([kKMGTP]?)(B)?|([KMGTP])iB)"
)


class InvalidValueError(InvalidInputError):
    """A value of `--at` is not valid."""


def values_by_name(settings: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts of the values by name. Commas separate values and names.

    Raises:
        InvalidValueError: a value has no name, or a name is given twice.
    """
    values: dict[str, list[str]] = {}
    for setting in settings:
        name = ""
        for part in setting.split(","):
            head, is_named, tail = part.partition("=")
            if is_named:
                name = head.strip()
                if name in values:
                    raise InvalidValueError(
                        f"--at: {name!r} is given twice; list all of its values once"
                    )
                values[name] = []
            elif not name:
                raise InvalidValueError(
                    f"--at: {part[:80]!r} has no name; write values as rows=1000,workers=1,2,4"
                )
            values[name].append((tail if is_named else head).strip())
    return values


def parse_number(word: str, *, is_bytes: bool = False) -> float | None:
    """Parse a number such as 5e6, 10k or 3M, and with bytes 10GB or 1GiB; None if it is invalid."""
    match = _NUMBER.fullmatch(word)
    if match is None:
        return None
    digits, thousands, of_bytes, binary = match.groups()
    if (of_bytes or binary) and not is_bytes:
        return None
    times = 1024.0 ** ("KMGTP".index(binary) + 1) if binary else _SI[thousands.lower()]
    value = float(digits) * times
    return value if math.isfinite(value) else None
