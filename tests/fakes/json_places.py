"""Every place in a JSON value, and the value with another one in a place."""

import copy
from collections.abc import Iterator

Place = tuple[object, ...]


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """Every place in a JSON value, itself included."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def at(value: object, place: Place) -> object:
    """What lies there."""
    for key in place:
        value = value[key]  # type: ignore[index]
    return value


def replaced(value: list[dict[str, object]], place: Place, new: object) -> list[dict[str, object]]:
    """A copy with `new` in that place."""
    changed = copy.deepcopy(value)
    at(changed, place[:-1])[place[-1]] = new  # type: ignore[index]
    return changed
