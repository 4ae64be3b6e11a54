"""Settings in TOML files: read as a model, with all problems in one error.

Pydantic finds the problems. Its locations name branches of unions, and its messages types of
Python. Here a location is the keys in the file, and a message describes the allowed values. For an
unknown key, the message suggests a similar one.
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
# By the key of a list: the title of an entry, from its position and contents.
Titles = Mapping[str, Callable[[int, object], str]]

LONGEST_VALUE = 40  # characters of a wrong value that a message repeats
_ABSENT = object()

_TABLE = "a table of keys"
# Description of the allowed values, by the type of pydantic's error.
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

_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CONTAINERS = frozenset({"tuple_type", "list_type", "model_type", "dict_type", "dataclass_type"})
_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_not_found": "needs a type",
    "union_tag_invalid": "has the unknown type {tag!r}; expected one of {expected_tags}",
}


def load_model(
    path: Path, model: type[M], *, absent: str = "", new_names: Mapping[str, str] | None = None
) -> M:
    """Read a TOML file as a model.

    Args:
        path: the file.
        model: the model.
        absent: advice if the file is missing.
        new_names: present names of renamed keys.

    Raises:
        ConfigurationError: the file is missing, not TOML, or wrong. All problems are listed.
    """
    content = rename_keys(read_settings(path, absent=absent), new_names or {}, name=str(path))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise WrongSettingsError(str(path), problems_of(error, model, content)) from error


def problems_of(
    error: ValidationError, model: type, content: object, titles: Titles | None = None
) -> list[str]:
    """Return the problems of `content` as sentences, each once.

    Args:
        error: the error of pydantic.
        model: a model of pydantic, or a dataclass that pydantic reads.
        content: the content of the file.
        titles: titles of entries of lists; their positions by default.
    """
    by_place: dict[Place, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False):
        by_place.setdefault(_place(each, content), []).append(each)
    problems = []
    for place, errors in by_place.items():
        has_inner = any(other != place == other[: len(place)] for other in by_place)
        if has_inner and all(each["type"] in _CONTAINERS for each in errors):
            continue  # another branch of a union fits better
        problems.append(f"{_named(place, content, titles or {})}: {_message(errors, model)}")
    return list(dict.fromkeys(problems))


def _place(error: ErrorDetails, content: object) -> Place:
    """Return the keys of the file that lead to an error, without branches of unions."""
    place: list[int | str] = []
    at = content
    for part in error["loc"]:
        inside = _in(at, part)
        if inside is not _ABSENT:
            at = inside
            place.append(part)
    return (*place, error["loc"][-1]) if error["type"] == "missing" else tuple(place)


def _message(errors: Sequence[ErrorDetails], model: type) -> str:
    first = errors[0]
    if first["type"] in _UNKNOWN:
        return _unknown_key(first["loc"], model)
    if all(each["type"] in _KINDS for each in errors):
        kinds = [_KINDS[each["type"]].format(**each.get("ctx", {})) for each in errors]
        *others, last = dict.fromkeys(kinds)
        expected = f"{', '.join(others)} or {last}" if others else last
        value, text = first["input"], repr(first["input"])
        is_short = isinstance(value, str | int | float) and len(text) <= LONGEST_VALUE
        return f"must be {expected}" + (f", got {text}" if is_short else "")
    if sentence := _SENTENCES.get(first["type"]):
        return sentence.format(**first.get("ctx", {}))
    return first["msg"].removeprefix("Value error, ")


def _named(place: Place, content: object, titles: Titles) -> str:
    """Format a place for people: titles of entries, then keys."""
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
    """Return the message for the unknown key at the end of `place`."""
    tables = [model]
    for part in place[:-1]:
        tagged = [each for each in tables if part in get_args(_keys_of(each).get("type"))]
        inner_tables = [
            inner for table in tables for inner in _tables_in(_keys_of(table).get(str(part)))
        ]
        tables = tagged or inner_tables or tables  # a position, or a name that people chose
    keys = list(dict.fromkeys(name for table in tables for name in _keys_of(table)))
    return unknown_key(str(place[-1]), keys)


def _keys_of(table: type) -> dict[str, object]:
    """Return the keys of a table with their types."""
    if is_dataclass(table):
        return {each.name: each.type for each in fields(table)}
    if issubclass(table, BaseModel):
        return {each.alias or name: each.annotation for name, each in table.model_fields.items()}
    return {}


def _tables_in(annotation: object) -> Iterator[type]:
    if isinstance(annotation, type) and _keys_of(annotation):
        yield annotation
    for each in get_args(annotation):
        yield from _tables_in(each)


class WrongSettingsError(ConfigurationError):
    """Raised for settings that are missing, unknown or wrong."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        super().__init__(f"{name}: {'; '.join(problems)}")
        self.problems = tuple(problems)


def unknown_key(key: str, keys: Collection[str]) -> str:
    """Return the message for an unknown key, with the most similar key of any table."""
    by_end = {each.rpartition(".")[2]: each for each in keys}
    near = get_close_matches(key.rpartition(".")[2], by_end, n=1)
    meant = f'did you mean "{by_end[near[0]]}"?' if near else f"expected one of {', '.join(keys)}"
    return f"unknown key; {meant}"


def rename_keys(
    table: Mapping[str, object], new_names: Mapping[str, str], *, name: str
) -> dict[str, object]:
    """Return `table` with old keys renamed, and warn once about each.

    If the new key is present as well, the old one stays and is reported as unknown.

    Args:
        table: the content of the file.
        new_names: new keys by old key.
        name: name of the file, for the warning.
    """
    old = [key for key in table if key in new_names and new_names[key] not in table]
    for key in old:
        _warn_renamed(name, key, new_names[key])
    return {new_names[key] if key in old else key: value for key, value in table.items()}


@cache
def _warn_renamed(name: str, old: str, new: str) -> None:
    print(f'warning: {name}: the key "{old}" is now "{new}"; rename it', file=sys.stderr)


def read_settings(path: Path, *, name: str | None = None, absent: str = "") -> dict[str, object]:
    """Return the content of a TOML file.

    Args:
        path: the file.
        name: its name in messages; its path by default.
        absent: advice if it is missing.

    Raises:
        ConfigurationError: the file is missing, unreadable, or not TOML.
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
