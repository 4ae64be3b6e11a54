"""DuckDB profiles: what a query did, written by DuckDB as JSON.

A file holds one profile, as `profiling_output` writes it, or one profile a line (JSON
lines), as a program collects them. It is known by its first bytes, never by its name.
Profiles of 2.x, of 1.1 to 1.5 and of the versions before are read; see `plan`.

Invariants: an execution's id is a digest of its profile's bytes, so that reading a profile
again, also from a copy or from a file that has grown, adds nothing; what was counted later
does not change it. A profile names no time, so the moment of the execution is the
modification of its file. No text of a profile gets into an execution.

Skipped, with its reason: a profile of more than 8 MiB, one that would take too much memory,
one that is cut off, and whatever `plan` refuses.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import orjson

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.sources import Counted, SkippedRecord
from fedperf_client.sources.duckdb.plan import counts_in, execution_of
from fedperf_client.sources.json_memory import takes_too_much
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution

MAX_PROFILE_BYTES = 8 * 2**20

_SNIFFED_BYTES = 64 * 2**10
_FIRST_KEY = re.compile(rb'\s*\{\s*"[a-z_]+"\s*:')
_MARKS = (
    (b'"operator"', b'"intermediate_rows"'),
    (b'"operator_type"', b'"children"'),
    (b'"rows_returned"', b'"result_set_size"'),
    (b'"Query"', b'"extra-info"'),
)
"""Keys that stand together near the start of a profile: of 2.x, 1.x (two), before 1.1."""


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file of profiles as a source."""

    path: Path

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every profile once, in file order; see `Source.read`."""
        counted: dict[str, set[RowCount]] = {}
        for each in self.counts():
            counted.setdefault(each.place, set()).add(each)
        yield from self.read_beside(lambda place: counted.get(place, ()))

    def read_beside(self, counted: Counted) -> Iterator[Execution | SkippedRecord]:
        """The same beside what was counted elsewhere; see `CountingSource`."""
        for name, record, finished_at in self._records():
            yield _judged(name, record, finished_at, counted)

    def counts(self) -> Iterator[RowCount]:
        """What the scans of all profiles counted; see `CountingSource`."""
        for name, record, _ in self._records():
            content = _content(name, record)
            if not isinstance(content, SkippedRecord):
                with suppress(InvalidInputError):  # `read` tells of it
                    yield from counts_in(content)

    def _records(self) -> Iterator[tuple[str, bytes, datetime]]:
        try:
            with self.path.open("rb") as stream:
                finished_at = self._modified()
                for name, record in _records(stream):
                    yield name, record, finished_at
        except FileNotFoundError as error:
            raise InvalidInputError(f"there is no profile {self.path}") from error
        except OSError as error:
            raise StorageError(f"cannot read the profile {self.path}: {error.strerror}") from error

    def _modified(self) -> datetime:
        seconds = self.path.stat().st_mtime
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError) as error:
            raise InvalidInputError(
                f"{self.path} was modified at no possible time: {seconds!r}"
            ) from error


def open_profile(path: Path) -> ProfileFile | None:
    """The file of profiles at `path`, known by its first bytes; see `OpenSource`."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        start = stream.read(_SNIFFED_BYTES)
    if _FIRST_KEY.match(start) is None:
        return None
    is_profile = any(all(mark in start for mark in marks) for marks in _MARKS)
    return ProfileFile(path) if is_profile else None


def _records(stream: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every record; of one that is too long, as many as show that."""
    number = 0
    while line := stream.readline(MAX_PROFILE_BYTES + 1):
        number += 1
        if line.strip() == b"{":  # printed over many lines: the whole file is one profile
            yield "profile", line + stream.read(MAX_PROFILE_BYTES + 1 - len(line))
            return
        if line.strip():
            yield f"line {number}", line.rstrip(b"\n")
        while len(line) > MAX_PROFILE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_PROFILE_BYTES + 1)


def _judged(
    name: str, record: bytes, finished_at: datetime, counted: Counted
) -> Execution | SkippedRecord:
    content = _content(name, record)
    if isinstance(content, SkippedRecord):
        return content
    execution_id = hashlib.sha256(record.strip()).hexdigest()[:32]
    try:
        return execution_of(
            content, execution_id=execution_id, finished_at=finished_at, counted=counted
        )
    except InvalidInputError as error:
        return SkippedRecord(name, str(error))


def _content(name: str, record: bytes) -> object:
    """What JSON gives of a record; why it is skipped where it gives nothing."""
    if len(record) > MAX_PROFILE_BYTES:
        return SkippedRecord(name, f"longer than {MAX_PROFILE_BYTES // 2**20} MiB")
    if takes_too_much(record):
        return SkippedRecord(name, "more values than are read")
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:
        return SkippedRecord(name, "no JSON, or cut off, or nested too deeply")
