"""The kinds of sources that are installed, and where in a directory there are any.

A kind is an entry point of the group `fedperf.sources`: fedperf's own are registered the
same way as those of other packages. The kinds are asked one after the other, by name,
whether something is theirs. One that cannot be loaded, or fails when it is asked or while it
reads, is named; it costs what it was asked for, and hides nothing else.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.sources import (
    Counted,
    CountingSource,
    NothingToReadError,
    OpenSource,
    SkippedRecord,
    Source,
)
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution

GROUP = "fedperf.sources"

_REASONS_TOLD = 3

_ADDRESS = re.compile(r"(?:^|/)([a-z][a-z0-9+.-]+):/+(.+)", re.IGNORECASE)


class UnknownSourceError(InvalidInputError):
    """Something lies there, and no kind of source reads it."""

    def __init__(self, path: Path, kinds: Iterable[str]) -> None:
        super().__init__(f"{path}: not of a kind that can be read ({', '.join(kinds)})")
        self.path = path


class NothingFoundError(InvalidInputError):
    """Below what was named lies nothing that can be read."""

    def __init__(self, paths: Iterable[Path], reasons: Sequence[str]) -> None:
        told = list(reasons[:_REASONS_TOLD])
        if len(reasons) > len(told):
            told.append(f"{len(reasons) - len(told)} more")
        super().__init__(
            f"{', '.join(map(str, paths))}: nothing there can be read: "
            f"{'; '.join(told) or 'there is no file'}"
        )


_COPY = (
    "copy the logs to this machine first, such as with {}, or mount them, and name the directory"
)
_DOWNLOAD = (
    "a Spark History Server gives the logs of an application as a zip, which is read: "
    "curl -o logs.zip {}/api/v1/applications/{}/logs"
)
_TOOLS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "aws s3 sync"),
    "gs": "gcloud storage rsync",
    "hdfs": "hdfs dfs -get",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azcopy copy"),
    "dbfs": "databricks fs cp -r",
}
_SERVER = re.compile(r"(https?:/+[^/?#]*)(?:.*/(?:history|applications)/([\w.-]+))?", re.IGNORECASE)


def _history_server(address: str) -> tuple[str, str]:
    """The server of an address, and the id of the application that it shows."""
    found = _SERVER.match(address)
    return (found[1], found[2] or "ID") if found else (address, "ID")


def _remote(address: str) -> InvalidInputError:
    """The error where an address elsewhere was named in place of a path."""
    scheme = address.partition(":")[0].lower()
    if scheme in ("http", "https"):
        advice = _DOWNLOAD.format(*_history_server(address))
    else:
        advice = _COPY.format(_TOOLS.get(scheme, "the tools of that store"))
    return InvalidInputError(f"{address}: addresses are not read; {advice}")


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
        NothingToReadError: it is empty, or damaged from its beginning on.
        BrokenKindError: the kind that was asked for fails.
        InvalidInputError: it is not there, or cannot be read.
    """
    return _known(path)[1]


def read_source(path: Path, counted: Counted | None = None) -> Iterator[Execution | SkippedRecord]:
    """Every record of the source at `path`, of whatever kind; see `Source.read`.

    Args:
        path: of one source.
        counted: what it and others counted; without, what it counted itself.

    Raises:
        InvalidInputError: as `open_source`, or it cannot be read to its end, also where the kind
            that took it fails; what came before holds.
    """
    name, source = _known(path)
    with _named_errors(path, name):
        if counted is not None and isinstance(source, CountingSource):
            yield from map(_checked, source.read_beside(counted))
        else:
            yield from map(_checked, source.read())


def counts_in_source(path: Path) -> Iterator[RowCount]:
    """What the source at `path` counted, if its kind does; errors as `read_source`."""
    name, source = _known(path)
    if isinstance(source, CountingSource):
        with _named_errors(path, name):
            yield from source.counts()


@contextmanager
def _named_errors(path: Path, name: str) -> Iterator[None]:
    """Errors of reading a source become those that `read_source` names."""
    try:
        yield
    except InvalidInputError:
        raise
    except StorageError as error:
        raise InvalidInputError(str(error)) from error
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # a package that is not ours
        raise InvalidInputError(
            f"{path}: the source kind {name!r} failed to read it "
            f"({type(error).__name__}: {error}); update or remove the package that registers it"
        ) from error


def local_path(text: str) -> Path:
    """The path that a text names.

    Raises:
        InvalidInputError: it is an address elsewhere, and nothing lies there by that name.
    """
    path = Path(text)
    if _ADDRESS.match(text) and not os.path.lexists(path):
        raise _remote(text)
    return path


def places(paths: Iterable[Path], problems: list[str]) -> Iterator[tuple[Path, bool]]:
    """Every place under the paths that may hold a source, and whether it was asked for by name.

    Each comes once, those of a directory sorted. A directory that a kind reads as a whole is
    one place; any other is looked through, without hidden files and without following links
    to directories. What is not there or cannot be read hides no other; why is added to
    `problems`.
    """
    seen: set[Path] = set()
    for path in paths:
        waiting = [path]  # the next one last
        while waiting:
            place = waiting.pop()
            try:
                inside = _inside(place, is_named=place == path)
            except InvalidInputError as error:
                problems.append(str(error))
                continue
            if inside is not None:
                waiting += reversed(inside)
            elif place not in seen:
                seen.add(place)
                yield place, place == path


def _inside(path: Path, *, is_named: bool) -> list[Path] | None:
    """What is to be looked through in a directory, sorted; None for a place of its own."""
    try:
        if not path.is_dir():
            # What was only listed may have gone since; whoever opens it will see.
            if is_named and not path.exists():
                if found := _ADDRESS.search(str(path)):  # of a path only one slash is left
                    raise _remote(f"{found[1]}://{found[2]}")
                raise InvalidInputError(f"{path}: no such file or directory")
            return None
        if _opened(path) is not None:
            return None
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        return [
            Path(entry.path)
            for entry in entries
            if not entry.name.startswith(".")
            and (entry.is_dir(follow_symlinks=False) or entry.is_file())
        ]
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}") from error


def installed_kinds() -> dict[str, BrokenKindError | None]:
    """Every kind that is installed, sorted, and what is wrong with it where it does not load."""
    return {name: kind if isinstance(kind, BrokenKindError) else None for name, kind in _loaded()}


def _loaded() -> Iterator[tuple[str, OpenSource | BrokenKindError]]:
    """Names and openers of the kinds, or why there is no opener."""
    for entry_point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            yield entry_point.name, entry_point.load()
        except Exception as error:  # a package that is not ours
            yield entry_point.name, BrokenKindError(entry_point.name, error)


@cache
def _kinds() -> tuple[tuple[str, OpenSource | BrokenKindError], ...]:
    """All kinds, loaded once."""
    return tuple(_loaded())


def _checked(found: object) -> Execution | SkippedRecord:
    if isinstance(found, Execution | SkippedRecord):
        return found
    raise TypeError(f"it gave a {type(found).__name__}")


def _known(path: Path) -> tuple[str, Source]:
    found = _opened(path)
    if found is None:
        raise UnknownSourceError(path, (name for name, _ in _kinds()))
    return found


def _opened(path: Path) -> tuple[str, Source] | None:
    """The name of the kind that reads what lies there, and the source; None where none does."""
    nothing: NothingToReadError | None = None
    for name, open_kind in _kinds():
        if isinstance(open_kind, BrokenKindError):
            raise open_kind.with_traceback(None)
        try:
            found = open_kind(path)
        except NothingToReadError as error:
            nothing = error
            continue
        except OSError as error:
            raise InvalidInputError(f"{path}: {error.strerror or error}") from error
        except InvalidInputError:
            raise
        except Exception as error:  # a package that is not ours
            raise BrokenKindError(name, error) from error
        if found is not None:
            return name, found
    if nothing is not None:
        raise nothing
    return None
