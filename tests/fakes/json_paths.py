"""Enumeration and replacement of the parts of a JSON value."""

import copy
from collections.abc import Iterator

Place = tuple[object, ...]


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """Yield the path of every part of a JSON value, the root included."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def at(value: object, place: Place) -> object:
    """Return the part at this path."""
    for key in place:
        value = value[key]  # type: ignore[index]
    return value


def replaced(value: list[dict[str, object]], place: Place, new: object) -> list[dict[str, object]]:
    """Return a copy with `new` at this path."""
    changed = copy.deepcopy(value)
    at(changed, place[:-1])[place[-1]] = new  # type: ignore[index]
    return changed
