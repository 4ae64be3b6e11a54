"""The kinds of sources that are installed, and where in a directory there are any.

A kind is an entry point of the group `fedperf.sources`: fedperf's own are registered the
same way as those of other packages. The kinds are asked one after the other, by name,
whether something is theirs. One that cannot be loaded, or fails when it is asked, is named
and hides no other.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from fedperf_client.sources import OpenSource, Source
from fedperf_shared.errors import InvalidInputError

GROUP = "fedperf.sources"


class UnknownSourceError(InvalidInputError):
    """Something lies there, and no kind of source reads it."""

    def __init__(self, path: Path, kinds: Iterable[str]) -> None:
        super().__init__(f"{path}: not of a kind that can be read ({', '.join(kinds)})")
        self.path = path


class BrokenKindError(InvalidInputError):
    """A kind of source that another package registered does not work."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            f"the source kind {name!r} does not work ({type(error).__name__}: {error}); "
            "update or remove the package that registers it"
        )
        self.name = name


def open_source(path: Path) -> Source:
    """The source at `path`, of whatever kind.

    Raises:
        UnknownSourceError: no kind reads it.
        BrokenKindError: the kind that was asked for fails.
        InvalidInputError: it is not there, or cannot be read.
    """
    found = _opened(path)
    if found is None:
        raise UnknownSourceError(path, (name for name, _ in _kinds()))
    return found


def places(paths: Iterable[Path], problems: list[str]) -> Iterator[tuple[Path, bool]]:
    """Every place under the paths once, and whether it was asked for by name.

    A path that is not there hides no other; why is added to `problems`.
    """
    seen: set[Path] = set()
    for path in paths:
        try:
            for place in sources_under(path):
                if place not in seen:
                    seen.add(place)
                    yield place, place == path
        except InvalidInputError as error:
            problems.append(str(error))


def sources_under(path: Path) -> Iterator[Path]:
    """The places under `path` that may hold a source each, sorted.

    A directory that a kind reads as a whole is one place; any other is looked through,
    without hidden files and without following links to directories.

    Raises:
        InvalidInputError: there is no such path, or it cannot be read.
    """
    if not path.is_dir():
        if not path.exists():
            raise InvalidInputError(f"{path}: no such file or directory")
        yield path
        return
    if _opened(path) is not None:
        yield path
        return
    try:
        inside = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from error
    for entry in inside:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from sources_under(Path(entry.path))
        elif entry.is_file():
            yield Path(entry.path)


def installed_kinds() -> dict[str, BrokenKindError | None]:
    """Every kind that is installed, sorted, and what is wrong with it where it does not load."""
    found: dict[str, BrokenKindError | None] = {}
    for entry_point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found[entry_point.name] = None
        try:
            entry_point.load()
        except Exception as error:
            found[entry_point.name] = BrokenKindError(entry_point.name, error)
    return found


def _opened(path: Path) -> Source | None:
    for name, open_kind in _kinds():
        try:
            found = open_kind(path)
        except OSError as error:
            raise InvalidInputError(f"{path}: {error.strerror or error}") from error
        except InvalidInputError:
            raise
        except Exception as error:  # a package that is not ours
            raise BrokenKindError(name, error) from error
        if found is not None:
            return found
    return None


@cache
def _kinds() -> tuple[tuple[str, OpenSource], ...]:
    """Names and openers of the kinds."""
    found: list[tuple[str, OpenSource]] = []
    for entry_point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            found.append((entry_point.name, entry_point.load()))
        except Exception as error:  # a package that is not ours
            found.append((entry_point.name, _failing(entry_point.name, error)))
    return tuple(found)


def _failing(name: str, reason: Exception) -> OpenSource:
    def fail(path: Path, /) -> Source | None:
        del path
        raise BrokenKindError(name, reason)

    return fail
