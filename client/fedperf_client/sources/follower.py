"""Follow sources: whatever is new or has changed is read again.

A source may change all the time, such as the log of a job that runs for months. It is read again
only when what its last reading took is a small share of the time since. A source that cannot be
read hides no other one: it is named after all others were read, once until it changes. What no
kind of source reads, or what holds nothing yet, is only named where it was asked for by name. What
was read is remembered in the store, so that another daemon does not begin from the start.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import NothingToReadError
from fedperf_client.sources.ingestion import IngestionCounts, take_in
from fedperf_client.sources.kinds import UnknownSourceError, places
from fedperf_shared.errors import InvalidInputError

READING_SHARE = 0.05
"""Of the time since a source was read that reading it again may take."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as it was last read.

    Attributes:
        modified: latest modification of its files, nanoseconds.
        size: bytes of its files.
        next_at: moment on the timer before which it is not read again.
    """

    modified: int
    size: int
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceCheckResult:
    """What one look brought.

    Attributes:
        taken: from all sources that were read.
        seen: every source as it was last read.
        problems: what could not be read, and why.
    """

    taken: IngestionCounts
    seen: dict[Path, SourceState]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FollowTask:
    """One look at sources, to be done where it holds up nobody; can be pickled.

    Attributes:
        store: the organization's database of executions.
        paths: files and directories to follow.
        seen: of the look before.
    """

    store: Path
    paths: tuple[Path, ...]
    seen: dict[Path, SourceState]

    def __call__(self) -> SourceCheckResult:
        """Take in what is new or changed; errors as `follow`."""
        with ExecutionStore.open(self.store) as store:
            return follow(self.paths, self.seen, store)


def follow(
    paths: Iterable[Path],
    seen: dict[Path, SourceState],
    store: ExecutionStore,
    *,
    timer: Callable[[], float] = time.monotonic,
) -> SourceCheckResult:
    """Take in every source under `paths` that is new or has changed since `seen`.

    Raises:
        StorageError: the store cannot be written.
    """
    before_this = {path: SourceState(*stamp) for path, stamp in store.sources().items()}
    taken, now_seen, problems = IngestionCounts(), before_this | seen, list[str]()
    for path, is_named in places(paths, problems):
        found = _look_at(path)
        before = now_seen.get(path)
        if found is None or (before is not None and _is_as_read(found, before, timer())):
            continue
        start = timer()
        try:
            taken += take_in(path, store)
            store.source_was_read(path, found.modified, found.size)
        except (UnknownSourceError, NothingToReadError) as error:
            problems += [str(error)] if is_named else []
        except InvalidInputError as error:
            problems.append(str(error))
        end = timer()
        next_at = end + (end - start) / READING_SHARE
        now_seen[path] = SourceState(found.modified, found.size, next_at)
    return SourceCheckResult(taken, now_seen, tuple(problems))


def _is_as_read(found: SourceState, before: SourceState, now: float) -> bool:
    same = (found.modified, found.size) == (before.modified, before.size)
    return same or now < before.next_at


def _look_at(path: Path) -> SourceState | None:
    """Its files as they are now; None where they have gone since they were listed."""
    try:
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        stats = [each.stat() for each in files]
    except OSError:
        return None
    return SourceState(max(each.st_mtime_ns for each in stats), sum(each.st_size for each in stats))
