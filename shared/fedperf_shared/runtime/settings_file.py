"""Settings that people write: a TOML file that is read whole, every problem named at once.

What the keys mean is the business of whoever reads them. Refused: a file that is missing,
cannot be read or is not TOML, and any problem that the reader finds.

Pydantic finds problems. Its places name branches of unions, and its messages the types of Python;
here a place is the keys as they stand in the file, and a message says what the value must be. An
unknown key comes with the one that may be meant.
"""

import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedperf_shared.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)
Place = tuple[int | str, ...]
Titles = Mapping[str, Callable[[int, object], str]]
"""For a list by its key: what an entry is called, from its position and its contents."""

LONGEST_VALUE = 40

_ABSENT = object()

_TABLE = "a table of keys"
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("model_type", "dict_type", "dataclass_type"), _TABLE),
    "finite_number": "a finite number",
    "string_type": "a text",
    "path_type": "a path",
    "datetime_type": "a date and time",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "enum": "{expected}",
    "literal_error": "{expected}",
}
"""After "must be", by the type of an error of pydantic."""

_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CONTAINERS = frozenset({"tuple_type", "list_type", "model_type", "dict_type", "dataclass_type"})
_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_not_found": "has no type, which says what it is",
    "union_tag_invalid": "has the unknown type {tag!r}; known are {expected_tags}",
}


def load_model(
    path: Path, model: type[M], *, absent: str = "", new_names: Mapping[str, str] | None = None
) -> M:
    """Read a TOML file as a model.

    Args:
        path: of the file.
        model: of what stands in it.
        absent: what to do where there is no file.
        new_names: the present name of each key of the file that had another one.

    Raises:
        ConfigurationError: not there, not TOML, or wrong; every problem is named.
    """
    content = rename_keys(read_settings(path, absent=absent), new_names or {}, name=str(path))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise WrongSettingsError(str(path), problems_of(error, model, content)) from error


def problems_of(
    error: ValidationError, model: type, content: object, titles: Titles | None = None
) -> list[str]:
    """The problems of `content`, which should be a `model`, each with its key, each once.

    Args:
        error: that pydantic raised.
        model: a model of pydantic, or a dataclass that it reads.
        content: as it was read from the file.
        titles: what entries of lists are called; their position by default.
    """
    by_place: dict[Place, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False):
        by_place.setdefault(_place(each, content), []).append(each)
    places = list(by_place)
    found = [
        _problem(place, each, model, content, titles or {})
        for place, each in by_place.items()
        if not (_is_of_containers(each) and any(_is_inside(other, place) for other in places))
    ]
    return list(dict.fromkeys(found))


def _place(error: ErrorDetails, content: object) -> Place:
    """The keys of the file on the way to what is wrong, without branches of unions."""
    place: list[int | str] = []
    at = content
    for part in error["loc"]:
        inside = _in(at, part)
        if inside is not _ABSENT:
            at = inside
            place.append(part)
    return (*place, error["loc"][-1]) if error["type"] == "missing" else tuple(place)


def _is_of_containers(errors: Sequence[ErrorDetails]) -> bool:
    return all(each["type"] in _CONTAINERS for each in errors)


def _is_inside(place: Place, outer: Place) -> bool:
    return len(place) > len(outer) and place[: len(outer)] == outer


def _problem(
    place: Place, errors: Sequence[ErrorDetails], model: type, content: object, titles: Titles
) -> str:
    first = errors[0]
    if first["type"] in _UNKNOWN:
        message = _unknown_key(first["loc"], model)
    elif all(each["type"] in _KINDS for each in errors):
        message = f"must be {_alternatives([_kind(each) for each in errors])}{_got(first['input'])}"
    else:
        sentence = _SENTENCES.get(first["type"])
        message = sentence.format(**first.get("ctx", {})) if sentence else _message(first)
    return f"{_named(place, content, titles)}: {message}"


def _kind(error: ErrorDetails) -> str:
    return _KINDS[error["type"]].format(**error.get("ctx", {}))


def _alternatives(kinds: Sequence[str]) -> str:
    *others, last = dict.fromkeys(kinds)
    return f"{', '.join(others)} or {last}" if others else last


def _got(value: object) -> str:
    """Return the wrong value for a message, unless it is long."""
    text = repr(value)
    is_short = isinstance(value, str | int | float) and len(text) <= LONGEST_VALUE
    return f", got {text}" if is_short else ""


def _message(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Value error, ")


def _named(place: Place, content: object, titles: Titles) -> str:
    """The place for people: titles of entries, then the keys inside."""
    named: list[str] = []
    at = content
    for before, part in zip((None, *place), place, strict=False):
        at = _in(at, part)
        if isinstance(part, int) and before in titles:
            named = [*named[:-1], f"{titles[str(before)](part, at)}:"]
        else:
            named.append(str(part))
    words = ".".join(named).replace(":.", ": ").removesuffix(":")
    return words or "the file"


def _in(container: object, key: int | str) -> object:
    """Return the entry at that key or position, or `_ABSENT`."""
    if isinstance(container, Mapping):
        return container.get(key, _ABSENT)
    if isinstance(container, list | tuple) and isinstance(key, int) and key < len(container):
        return container[key]
    return _ABSENT


def _unknown_key(place: Place, model: type) -> str:
    """Suggest a known key for the one at the end of `place`."""
    tables = [model]
    for part in place[:-1]:
        of_type = [each for each in tables if part in _tags_of(each)]
        inner_tables = [
            inner
            for table in tables
            for name, annotation in _keys_of(table).items()
            if part == name
            for inner in _tables_in(annotation)
        ]
        tables = of_type or inner_tables or tables  # a position, or a name that people gave
    known = list(dict.fromkeys(name for table in tables for name in _keys_of(table)))
    return unknown_key(str(place[-1]), known)


def _keys_of(table: type) -> dict[str, object]:
    """The keys of a table, with what each holds."""
    if is_dataclass(table):
        return {each.name: each.type for each in fields(table)}
    if issubclass(table, BaseModel):
        return {each.alias or name: each.annotation for name, each in table.model_fields.items()}
    return {}


def _tags_of(table: type) -> tuple[object, ...]:
    """The words by which a table is chosen among others."""
    return get_args(_keys_of(table).get("type"))


def _tables_in(annotation: object) -> Iterator[type]:
    if isinstance(annotation, type) and _keys_of(annotation):
        yield annotation
    for each in get_args(annotation):
        yield from _tables_in(each)


class WrongSettingsError(ConfigurationError):
    """A file holds settings that are missing, unknown or wrong."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        super().__init__(f"{name}: {'; '.join(problems)}")
        self.problems = tuple(problems)


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message for an unknown key, with the nearest known key of any table."""
    by_end = {each.rpartition(".")[2]: each for each in known}
    near = get_close_matches(key.rpartition(".")[2], by_end, n=1)
    meant = f'did you mean "{by_end[near[0]]}"?' if near else f"known are {', '.join(known)}"
    return f"unknown key; {meant}"


def rename_keys(
    table: Mapping[str, object], new_names: Mapping[str, str], *, name: str
) -> dict[str, object]:
    """Return `table` with old keys renamed, and warn once about each.

    An old key beside its new one stays, so that it is reported as unknown.

    Args:
        table: as it was read from the file.
        new_names: by old key.
        name: of the file, for the warning.
    """
    old = [key for key in table if key in new_names and new_names[key] not in table]
    for key in old:
        _warn_renamed(name, key, new_names[key])
    return {new_names[key] if key in old else key: value for key, value in table.items()}


@cache
def _warn_renamed(name: str, old: str, new: str) -> None:
    print(f'warning: {name}: the key "{old}" is now "{new}"; rename it', file=sys.stderr)


def read_settings(path: Path, *, name: str | None = None, absent: str = "") -> dict[str, object]:
    """The table in a TOML file.

    Args:
        path: of the file.
        name: of the file in messages; its path by default.
        absent: what to do where there is no file.

    Raises:
        ConfigurationError: no such file, unreadable, or not TOML; the message says where.
    """
    name = name or str(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not TOML: {error}") from error
    except OSError as error:
        if absent and isinstance(error, FileNotFoundError):
            raise ConfigurationError(f"{name} does not exist; {absent}") from None
        raise ConfigurationError(f"{name} cannot be read: {error.strerror}") from error
