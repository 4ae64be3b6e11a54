"""Sources of executions: the interface of a source, and the registry of installed kinds.

A kind of source is a function that opens a path, registered as an entry point of the group
`fedperf.sources` (`OpenSource`). What it returns is a `Source`, which yields executions and, for
each record that gave none, a `SkippedRecord` with the reason. fedperf registers its own kinds in
the same way as other packages do. Kinds are tried in the order of their names.

A kind that cannot be loaded, or that fails, is reported by name. It affects only the source that
it was tried on.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.extras import missing_extra

GROUP = "fedperf.sources"

_MOST_REASONS = 3
_ADDRESS = re.compile(r"(?:^|/)([a-z][a-z0-9+.-]+):/+(.+)", re.IGNORECASE)
_SERVER = re.compile(r"(https?:/+[^/?#]*)(?:.*/(?:history|applications)/([\w.-]+))?", re.IGNORECASE)
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

    def __call__(self, path: Path, /) -> Source | None:
        """Return the source at `path`, a file or directory; None if it is of another kind.

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


class UnknownSourceError(InvalidInputError):
    """Raised when no kind of source reads a file or directory."""

    def __init__(self, path: Path, kinds: Iterable[str]) -> None:
        super().__init__(f"{path}: not of a kind that can be read ({', '.join(kinds)})")
        self.path = path


class NothingFoundError(InvalidInputError):
    """Raised when nothing below the given paths can be read."""

    def __init__(self, paths: Iterable[Path], reasons: Sequence[str]) -> None:
        some = list(reasons[:_MOST_REASONS])
        if len(reasons) > len(some):
            some.append(f"{len(reasons) - len(some)} more")
        super().__init__(
            f"{', '.join(map(str, paths))}: nothing there can be read: "
            f"{'; '.join(some) or 'there is no file'}"
        )


class BrokenKindError(InvalidInputError):
    """Raised when a kind of source that another package registered does not work."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            f"the source kind {name!r} does not work ({type(error).__name__}: {error}); "
            "update or remove the package that registers it"
        )
        self.name = name


def open_source(path: Path) -> Source:
    """Open the source at `path` with the first kind that reads it.

    Raises:
        UnknownSourceError: no kind reads it.
        NothingToReadError: it is empty, or damaged from its beginning on.
        BrokenKindError: a kind that was tried failed.
        InvalidInputError: it does not exist, or cannot be read.
    """
    return _open(path)[1]


def read_source(
    path: Path, counts: RowCounts | None = None, *, source: Source | None = None
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


def counts_in_source(path: Path) -> Iterator[RowCount]:
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
    path = Path(text)
    if _ADDRESS.match(text) and not os.path.lexists(path):
        raise _remote(text)
    return path


def find_sources(paths: Iterable[Path], problems: list[str]) -> Iterator[tuple[Path, bool]]:
    """Yield every path below `paths` that may be a source, and whether it was named explicitly.

    Each path comes once, those of a directory sorted. A directory that a kind reads as a whole is
    one path. Any other directory is searched, without hidden files and without following links
    to directories. Paths that do not exist or cannot be read are skipped, and the reason is
    added to `problems`.
    """
    places: set[Path] = set()
    for path in paths:
        waiting = [path]  # the next one last
        while waiting:
            place = waiting.pop()
            try:
                entries = _entries(place, is_named=place == path)
            except InvalidInputError as error:
                problems.append(str(error))
                continue
            if entries is not None:
                waiting += reversed(entries)
            elif place not in places:
                places.add(place)
                yield place, place == path


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


def _open(path: Path) -> tuple[str, Source]:
    """Return the name of the kind that reads `path`, and the source; errors as `open_source`."""
    nothing: NothingToReadError | None = None
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
            return name, source
    raise nothing or UnknownSourceError(path, (name for name, _ in _kinds()))


@contextmanager
def _named_errors(path: Path, kind: str) -> Iterator[None]:
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


def _raise_missing_extra(path: Path, error: Exception) -> None:
    """Raise an error that names the extra which a kind needs; do nothing for other errors."""
    missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
    if missing is not None:
        raise InvalidInputError(f"{path}: {missing}") from error


def _entries(path: Path, *, is_named: bool) -> list[Path] | None:
    """Return the entries of a directory to search, sorted; None for a file or one source."""
    try:
        if not path.is_dir():
            # A listed file may have been deleted since; opening it will fail.
            if is_named and not path.exists():
                if match := _ADDRESS.search(str(path)):  # a path keeps only one slash
                    raise _remote(f"{match[1]}://{match[2]}")
                raise InvalidInputError(f"{path}: no such file or directory")
            return None
        with suppress(UnknownSourceError):
            _open(path)
            return None
        return [
            Path(entry.path)
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name)
            if not entry.name.startswith(".")
            and (entry.is_dir(follow_symlinks=False) or entry.is_file())
        ]
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}") from error


def _remote(address: str) -> InvalidInputError:
    """Return the error for an address of another machine in place of a path."""
    scheme = address.partition(":")[0].lower()
    if scheme in ("http", "https"):
        match = _SERVER.match(address)
        advice = _DOWNLOAD.format(*((match[1], match[2] or "ID") if match else (address, "ID")))
    else:
        advice = _COPY.format(_TOOLS.get(scheme, "the tools of that store"))
    return InvalidInputError(f"{address}: addresses are not read; {advice}")
