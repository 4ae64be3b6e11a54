"""Sources of executions: the interface of a source, and the registry of installed kinds.

A kind of source is a function that opens a place, registered as an entry point of the group
`fedperf.sources` (`OpenSource`). What it returns is a `Source`, which yields executions and, for
each record that gave none, a `SkippedRecord` with the reason. fedperf registers its own kinds in
the same way as other packages do. Kinds are tried in the order of their names.

A kind that cannot be loaded, or that fails, is reported by name. It affects only the source that
it was tried on.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.addresses import Address, parse_place
from fedperf_shared.runtime.extras import missing_extra

if TYPE_CHECKING:
    from fedperf_client.sources.opener import SourcePlace

GROUP = "fedperf.sources"

_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that gave no execution; local text, never released."""

    record: str  # name of the record, such as "row 7" or "query 12"
    reason: str  # what is wrong with it; equal for records with the same problem

    def __str__(self) -> str:
        return f"{self.record}: {self.reason}"


class RowCount(NamedTuple):
    """The rows of a table or of files, counted by one run."""

    place: str  # digest of the name
    announced: int  # rows that the engine estimated before reading
    counted: int  # rows that reading all of it gave
    parts: int = 0  # row groups, or threads, that it was read in


# Returns the stored counts of a table or of files, by the digest of its name.
RowCounts = Callable[[str], Collection[RowCount]]


class Source(Protocol):
    """A container of executions, such as an event log."""

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every record once, in the order of the source.

        Raises:
            InvalidInputError: it is not a file of this kind.
            StorageError: it cannot be read at all.

        Any other exception affects this source only, and is reported with the name of its kind.
        """
        ...


@runtime_checkable
class CountingSource(Source, Protocol):
    """A source in which some records count rows that other records only estimate."""

    def counts(self) -> Iterator[RowCount]:
        """Yield the row counts of its records; errors as `read`."""
        ...

    def read_with_counts(self, counts: RowCounts) -> Iterator[Execution | SkippedRecord]:
        """Read with the row counts of all sources, including its own; errors as `read`."""
        ...


class OpenSource(Protocol):
    """A kind of source: the function that an entry point of `fedperf.sources` names."""

    def __call__(self, place: "SourcePlace", /) -> Source | None:
        """Return the source at `place`, a file or directory; None if it is of another kind.

        The place is a `pathlib.Path`, or an object of another storage that has the same methods,
        as far as `SourcePlace` names them.

        Only names and the first bytes are read.

        Raises:
            NothingToReadError: the first bytes show that there is nothing to read. Other kinds
                are tried then.
            OSError: names or first bytes cannot be read.
        """
        ...


class NothingToReadError(InvalidInputError):
    """Raised when a file holds no record of any kind: it is empty, damaged or cut off.

    It may still be written.
    """


class IncompleteError(NothingToReadError):
    """Raised when an object was written so recently that more may follow."""


class UnknownSourceError(InvalidInputError):
    """Raised when no kind of source reads a file or directory."""

    def __init__(self, path: "SourcePlace", kinds: Iterable[str]) -> None:
        super().__init__(f"{path}: not of a kind that can be read ({', '.join(kinds)})")


class NothingFoundError(InvalidInputError):
    """Raised when nothing below the given paths can be read."""

    def __init__(self, paths: Iterable[Path | Address], reasons: Sequence[str]) -> None:
        some = list(reasons[:_MOST_REASONS])
        if len(reasons) > len(some):
            some.append(f"{len(reasons) - len(some)} more")
        super().__init__(
            f"{', '.join(map(str, paths))}: nothing there can be read: "
            f"{'; '.join(some) or 'there is no file, or no finished application'}"
        )


class BrokenKindError(InvalidInputError):
    """Raised when a kind of source that another package registered does not work."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            f"the source kind {name!r} does not work ({type(error).__name__}: {error}); "
            "update or remove the package that registers it"
        )
        self.name = name


def open_source(path: "SourcePlace") -> Source:
    """Open the source at `path` with the first kind that reads it.

    Raises:
        UnknownSourceError: no kind reads it.
        NothingToReadError: it is empty, or damaged from its beginning on, or it may still be
            written (`IncompleteError`).
        BrokenKindError: a kind that was tried failed.
        InvalidInputError: it does not exist, or cannot be read.
    """
    return _open(path)[1]


def read_source(
    path: "SourcePlace", counts: RowCounts | None = None, *, source: Source | None = None
) -> Iterator[Execution | SkippedRecord]:
    """Yield every record of the source at `path`; see `Source.read`.

    `counts` are row counts of this and other sources; by default, those of this source. `source` is
    opened already; by default, the first kind that reads `path` opens it.

    Raises:
        InvalidInputError: as `open_source`, or it cannot be read to its end, also where its kind
            fails. Records before that are valid.
    """
    name, source = _open(path) if source is None else (type(source).__name__, source)
    with _named_errors(path, name):
        if counts is not None and isinstance(source, CountingSource):
            records = source.read_with_counts(counts)
        else:
            records = source.read()
        for record in records:
            if not isinstance(record, Execution | SkippedRecord):
                raise TypeError(f"it gave a {type(record).__name__}")
            yield record


def counts_in_source(path: "SourcePlace") -> Iterator[RowCount]:
    """Yield the row counts of the source at `path`, if its kind counts; errors as `read_source`."""
    name, source = _open(path)
    if isinstance(source, CountingSource):
        with _named_errors(path, name):
            yield from source.counts()


def local_path(text: str) -> Path:
    """Return the path that a text names.

    Raises:
        InvalidInputError: it is an address of another machine, and no local file has that name.
    """
    place = parse_place(text)
    if not isinstance(place, Path):
        raise InvalidInputError(f"{place}: only local files are read here; copy it first")
    return place


def find_sources(
    paths: Iterable[Path | Address], problems: list[str]
) -> "Iterator[tuple[SourcePlace, bool]]":
    """Yield every place below `paths` that may be a source, and whether it was named explicitly.

    Each place comes once, those of a directory sorted. A directory that a kind reads as a whole is
    one place. Any other directory is searched, without hidden files and without following links
    to directories. Paths that do not exist or cannot be read are skipped, and the reason is
    added to `problems`.
    """
    places: set[SourcePlace] = set()
    for path in paths:
        named: Sequence[SourcePlace] = [path] if isinstance(path, Path) else []
        waiting = [*named]  # the next one last
        if isinstance(path, Address):
            try:
                listed, is_one = list_address(path)
            except InvalidInputError as error:
                problems.append(str(error))
                continue
            waiting, named = [*reversed(listed)], listed if is_one else ()
        while waiting:
            place = waiting.pop()
            is_named = place in named
            try:
                entries = _entries(place, is_named=is_named)
            except InvalidInputError as error:
                problems.append(str(error))
                continue
            if entries is not None:
                waiting += reversed(entries)
            elif place not in places:
                places.add(place)
                yield place, is_named


def list_address(address: Address) -> "tuple[Sequence[SourcePlace], bool]":
    """Return the places at an address, and whether it names one of them rather than a list.

    Raises:
        InvalidInputError: it cannot be reached, refuses, or has nothing of that name.
        ModuleNotFoundError: the extra that connects to it is not installed.
    """
    if address.kind == "http":
        from fedperf_client.sources.history_server import list_applications

        return list_applications(address)
    from fedperf_client.sources.object_store import find_object

    return [find_object(address)], True


def require_complete(place: "SourcePlace") -> None:
    """Refuse an object, or a folder with one, that may still be written.

    Raises:
        IncompleteError: it was written less than a minute ago.
    """
    if getattr(place, "may_be_incomplete", False):
        raise IncompleteError(
            f"{place}: written less than a minute ago, so more may follow; call again in a minute"
        )


def installed_kinds() -> dict[str, BrokenKindError | None]:
    """Return the names of all installed kinds, sorted, each with the error of loading it."""
    return {name: kind if isinstance(kind, BrokenKindError) else None for name, kind in _kinds()}


@cache
def _kinds() -> tuple[tuple[str, OpenSource | BrokenKindError], ...]:
    kinds: list[tuple[str, OpenSource | BrokenKindError]] = []
    for entry_point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            kinds.append((entry_point.name, entry_point.load()))
        except Exception as error:  # a package that is not ours
            kinds.append((entry_point.name, BrokenKindError(entry_point.name, error)))
    return tuple(kinds)


def _open(path: "SourcePlace") -> tuple[str, Source]:
    """Return the name of the kind that reads `path`, and the source; errors as `open_source`."""
    nothing: NothingToReadError | None = None
    if path.is_file():
        require_complete(path)
    for name, open_kind in _kinds():
        if isinstance(open_kind, BrokenKindError):
            raise open_kind.with_traceback(None)
        try:
            source = open_kind(path)
        except NothingToReadError as error:
            nothing = error
            continue
        except OSError as error:
            raise InvalidInputError(f"{path}: {error.strerror or error}") from error
        except InvalidInputError:
            raise
        except Exception as error:  # a package that is not ours
            _raise_missing_extra(path, error)
            raise BrokenKindError(name, error) from error
        if source is not None:
            require_complete(path)
            return name, source
    raise nothing or UnknownSourceError(path, (name for name, _ in _kinds()))


@contextmanager
def _named_errors(path: "SourcePlace", kind: str) -> Iterator[None]:
    """Turn errors of reading a source into the error that `read_source` raises."""
    try:
        yield
    except InvalidInputError:
        raise
    except StorageError as error:
        raise InvalidInputError(str(error)) from error
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # a package that is not ours
        _raise_missing_extra(path, error)
        raise InvalidInputError(
            f"{path}: the source kind {kind!r} failed to read it "
            f"({type(error).__name__}: {error}); update or remove the package that registers it"
        ) from error


def _raise_missing_extra(path: "SourcePlace", error: Exception) -> None:
    """Raise an error that names the extra which a kind needs; do nothing for other errors."""
    missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
    if missing is not None:
        raise InvalidInputError(f"{path}: {missing}") from error


def _entries(place: "SourcePlace", *, is_named: bool) -> "Sequence[SourcePlace] | None":
    """Return the entries of a directory to search, sorted; None for a file or one source."""
    try:
        if not place.is_dir():
            # A listed file may have been deleted since; opening it will fail.
            if is_named and isinstance(place, Path) and not place.exists():
                raise InvalidInputError(f"{place}: no such file or directory")
            return None
        try:
            _open(place)
        except IncompleteError:  # told when it is read
            return None
        except UnknownSourceError:
            pass
        else:
            return None
        if not isinstance(place, Path):
            entries = [each for each in place.iterdir() if not each.name.startswith(".")]
            return sorted(entries, key=lambda each: each.name)
        return [
            Path(entry.path)
            for entry in sorted(os.scandir(place), key=lambda entry: entry.name)
            if not entry.name.startswith(".")
            and (entry.is_dir(follow_symlinks=False) or entry.is_file())
        ]
    except OSError as error:
        raise InvalidInputError(f"{place}: {error.strerror or error}") from error
