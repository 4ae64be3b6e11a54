"""Follow files and directories of executions: whatever is new or has changed is read again.

Reading a file twice is harmless, because the store knows executions by their ids. A
file that is no history hides no other one: it is named after all others were read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.sources import Skipped
from fedperf_client.sources.history_file import HistoryFile
from fedperf_client.store import ExecutionStore
from fedperf_shared.errors import InvalidInputError

if TYPE_CHECKING:
    from fedperf_shared.execution import Execution

_BATCH = 500

Stamp = tuple[int, int]
"""Modification time in nanoseconds and size of a file, as it was last read."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one look at sources brought: executions seen, new ones, and why rows were skipped."""

    seen: int = 0
    new: int = 0
    skipped: tuple[Skipped, ...] = ()

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(self.seen + other.seen, self.new + other.new, self.skipped + other.skipped)

    def reasons(self) -> dict[str, int]:
        """How many rows were skipped, by reason."""
        return dict(Counter(each.reason for each in self.skipped))


def follow(paths: Iterable[Path], seen: dict[Path, Stamp], store: ExecutionStore) -> Taken:
    """Take in every history file that is new or changed since `seen`, which is kept up to date.

    Raises:
        InvalidInputError: a path does not exist, or files are no histories; all others were
            taken in before. A file is named once, until it changes.
        StorageError: the store cannot be written.
    """
    total = Taken()
    problems: list[str] = []
    for path in paths:
        try:
            for file in history_files([path]):
                total += _take_in(file, seen, store, problems)
        except InvalidInputError as error:
            problems.append(str(error))
    if problems:
        raise InvalidInputError("; ".join(problems))
    return total


def ingest(path: Path, store: ExecutionStore) -> Taken:
    """Take in one history file; errors as `follow`."""
    seen = new = 0
    skipped: list[Skipped] = []
    batch: list[Execution] = []
    for row in HistoryFile(path).read():
        if isinstance(row, Skipped):
            skipped.append(row)
            continue
        seen += 1
        batch.append(row)
        if len(batch) >= _BATCH:
            new += store.add(batch)
            batch.clear()
    return Taken(seen, new + store.add(batch), tuple(skipped))


def history_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves and all history files in the directories, sorted.

    Raises:
        InvalidInputError: a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.parquet"))
        elif path.exists():
            yield path
        else:
            raise InvalidInputError(f"{path}: no such file or directory")


def _take_in(
    path: Path, seen: dict[Path, Stamp], store: ExecutionStore, problems: list[str]
) -> Taken:
    """Take in one file if it changed; what is wrong with it goes to `problems`."""
    try:
        found = path.stat()
    except OSError:  # gone since it was listed
        return Taken()
    stamp = (found.st_mtime_ns, found.st_size)
    if seen.get(path) == stamp:
        return Taken()
    taken = Taken()
    try:
        taken = ingest(path, store)
    except InvalidInputError as error:
        problems.append(str(error))
    seen[path] = stamp
    return taken
