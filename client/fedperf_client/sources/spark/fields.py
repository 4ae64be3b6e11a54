"""Typed access to the values of an event. What Spark wrote is checked, not trusted."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fedperf_shared.errors import InvalidInputError

Event = Mapping[str, object]

MIB = 2**20

_LATEST_MILLISECONDS = 4_102_444_800_000  # the year 2100

_SIZE = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"k": 2**10, "m": MIB, "g": 2**30, "t": 2**40}

_LONGEST_TEXT, _LONGEST_LINE = 2000, 400


class MalformedEventError(InvalidInputError):
    """Raised when a value of an event is missing, or has another type or range."""

    def __init__(self, name: str) -> None:
        super().__init__(f"an event holds no usable {name!r}")
        self.name = name


def integer(event: Event, name: str) -> int:
    """Return a whole number, also if it is written as text."""
    value = event.get(name)
    if type(value) is str and value.isascii() and value.isdecimal():
        value = int(value[:20])
    if type(value) is int and -(2**63) < value < 2**63:  # no bool
        return value
    raise MalformedEventError(name)


def count(event: Event, name: str) -> int:
    """Return a number that is not negative; 0 if it is missing, as in logs of older versions."""
    value = integer(event, name) if name in event else 0
    if value < 0:
        raise MalformedEventError(name)
    return value


def text(event: Event, name: str) -> str:
    """Return a text."""
    value = event.get(name)
    if isinstance(value, str):
        return value
    raise MalformedEventError(name)


def words(event: Event, name: str) -> str:
    """Return a text; empty if it is missing."""
    value = event.get(name)
    return value if isinstance(value, str) else ""


def line(event: Event, name: str) -> str:
    """Return the first line of a text, cut where it is long; empty if it is missing."""
    first = words(event, name)[:_LONGEST_TEXT].strip().partition("\n")[0]
    return first.partition("<br")[0].strip()[:_LONGEST_LINE]  # Spark writes HTML


def mapping(event: Event, name: str) -> Event:
    """Return a JSON object."""
    value = event.get(name)
    if isinstance(value, dict):
        return value
    raise MalformedEventError(name)


def part(event: Event, name: str) -> Event:
    """Return a JSON object; empty if it is missing."""
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def sequence(event: Event, name: str) -> Sequence[object]:
    """Return a JSON array; empty if it is missing."""
    value = event.get(name, [])
    if isinstance(value, list):
        return value
    raise MalformedEventError(name)


def objects(event: Event, name: str) -> list[Event]:
    """Return the JSON objects of an array; empty if it is missing."""
    return [each for each in sequence(event, name) if isinstance(each, dict)]


def milliseconds(event: Event, name: str) -> int:
    """Return a timestamp, in milliseconds since 1970."""
    value = integer(event, name)
    if 0 <= value <= _LATEST_MILLISECONDS:
        return value
    raise MalformedEventError(name)


def moment(at: int) -> datetime:
    """Return a timestamp that `milliseconds` returned as a datetime."""
    return datetime.fromtimestamp(at / 1000, UTC)


def size_bytes(value: object, *, unit: int = MIB) -> int:
    """Return the bytes of a size as Spark writes it, "8g" or "512m"; 0 if it is no size.

    Args:
        value: of a setting.
        unit: bytes of a number without a unit.
    """
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) * _UNITS.get(match[2].lower(), unit) if match else 0
