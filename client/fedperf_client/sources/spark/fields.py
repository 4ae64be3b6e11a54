"""Values of an event by name and type: what Spark wrote is checked, not trusted."""

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
    """An event lacks a value, or holds one of another type or size."""

    def __init__(self, name: str) -> None:
        super().__init__(f"an event holds no usable {name!r}")
        self.name = name


def integer(event: Event, name: str) -> int:
    """A whole number, also where it is written as text."""
    value = event.get(name)
    if type(value) is str and value.isascii() and value.isdecimal():
        value = int(value[:20])
    if type(value) is int and -(2**63) < value < 2**63:  # no bool
        return value
    raise MalformedEventError(name)


def count(event: Event, name: str) -> int:
    """A whole number that is not negative; 0 where it is missing, as in logs of older versions."""
    value = integer(event, name) if name in event else 0
    if value < 0:
        raise MalformedEventError(name)
    return value


def text(event: Event, name: str) -> str:
    """A text."""
    value = event.get(name)
    if isinstance(value, str):
        return value
    raise MalformedEventError(name)


def words(event: Event, name: str) -> str:
    """A text; empty where there is none."""
    value = event.get(name)
    return value if isinstance(value, str) else ""


def line(event: Event, name: str) -> str:
    """The first line of a text, cut where it is long; empty where there is none."""
    first = words(event, name)[:_LONGEST_TEXT].strip().partition("\n")[0]
    return first.partition("<br")[0].strip()[:_LONGEST_LINE]  # Spark writes for a page


def mapping(event: Event, name: str) -> Event:
    """A JSON object."""
    value = event.get(name)
    if isinstance(value, dict):
        return value
    raise MalformedEventError(name)


def part(event: Event, name: str) -> Event:
    """A JSON object; empty where there is none."""
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def sequence(event: Event, name: str) -> Sequence[object]:
    """A JSON array; empty where there is none."""
    value = event.get(name, [])
    if isinstance(value, list):
        return value
    raise MalformedEventError(name)


def objects(event: Event, name: str) -> list[Event]:
    """The JSON objects of an array; empty where there is none."""
    return [each for each in sequence(event, name) if isinstance(each, dict)]


def milliseconds(event: Event, name: str) -> int:
    """A moment, in milliseconds since 1970."""
    value = integer(event, name)
    if 0 <= value <= _LATEST_MILLISECONDS:
        return value
    raise MalformedEventError(name)


def moment(at: int) -> datetime:
    """A moment that `milliseconds` gave."""
    return datetime.fromtimestamp(at / 1000, UTC)


def size_bytes(value: object, *, unit: int = MIB) -> int:
    """The bytes of a size as Spark writes it, "8g" or "512m"; 0 where it is none.

    Args:
        value: of a setting.
        unit: bytes of a number without one.
    """
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    return int(found[1]) * _UNITS.get(found[2].lower(), unit) if found else 0
