"""Follow files and directories of executions: whatever is new or has changed is read again.

Reading a file twice is harmless, because the store knows executions by their ids.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedperf_client.sources import Skipped
from fedperf_client.sources.history_file import HistoryFile
from fedperf_client.store import ExecutionStore
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Taken:
    """What one look at sources brought: executions seen, new ones, and why rows were skipped."""

    seen: int = 0
    new: int = 0
    skipped: tuple[Skipped, ...] = ()


def follow(paths: Iterable[Path], seen: dict[Path, float], store: ExecutionStore) -> Taken:
    """Take in every history file that is new or changed since `seen`, which is kept up to date.

    Raises:
        InvalidInputError: a path does not exist, or a file is no history.
        StorageError: the store cannot be written.
    """
    total = Taken()
    for path in history_files(paths):
        changed_at = path.stat().st_mtime
        if seen.get(path) != changed_at:
            taken = ingest(path, store)
            total = Taken(
                total.seen + taken.seen, total.new + taken.new, total.skipped + taken.skipped
            )
            seen[path] = changed_at
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
