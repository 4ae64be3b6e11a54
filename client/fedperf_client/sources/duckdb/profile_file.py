"""DuckDB profiles: what a query did, written by DuckDB as JSON.

A file holds one profile, as `profiling_output` writes it, or one profile a line (JSON
lines), as a program collects them. It is known by its first bytes, never by its name.
Profiles of 2.x, of 1.1 to 1.5 and of the versions before are read; see `execution_of`.

Invariants: an execution's id is a digest of its profile's bytes, so that reading a profile
again, also from a copy or from a file that has grown, adds nothing; what was counted later
does not change it. A profile names no time, so the moment of the execution is the
modification of its file. No text of a profile gets into an execution.

Skipped, with its reason: a profile of more than 8 MiB, one that would take too much memory,
one that is cut off, and whatever `execution_of` refuses.

All versions give the same plan for the same work:

- what collects the result is a sink at the end, also where the version does not print it;
- what `WITH ... AS MATERIALIZED` computes once is one operator that several read;
- a scan that filters is a source and a filter behind it. The source's rows are those that it
  looked at (see `scans`); where they are not decided they count as not known, and stand in the
  middle of what is possible, whose width is in the origin.

Resources that a profile does not name: the nodes are one; the cores are CPU time / wall time,
rounded up, what at least was used; the memory is `ASSUMED_MEMORY_BYTES`, or what was used where
that is more. The workload is the shape of the plan, never a text.

Refused, each with one reason whatever the values: no run to its end, no wall time, no operators,
operators without a name, commands alone, more operators or rows than a plan may have, anything that
is no number where one belongs.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import orjson

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.sources import Counted, SkippedRecord
from fedperf_client.sources.duckdb.nodes import (
    EXPLAINED,
    InvalidProfileError,
    count_of,
    number_of,
    schema_of,
    value_at,
)
from fedperf_client.sources.duckdb.tree import OperatorTree
from fedperf_client.sources.json_memory import exceeds_json_memory
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

ASSUMED_MEMORY_BYTES = 16 * 2**30
MAX_CORES = 1024


def _nothing_counted(place: str) -> Collection[RowCount]:
    del place
    return ()


def counts_in(content: object) -> list[RowCount]:
    """What the scans of a profile counted of whole tables and files; errors as `execution_of`."""
    return _tree_of(content, _nothing_counted)[0].counts


def execution_of(
    content: object,
    *,
    execution_id: str,
    finished_at: datetime,
    counted: Counted = _nothing_counted,
) -> Execution:
    """The execution that a profile tells of.

    Args:
        content: of the profile, as JSON gives it.
        execution_id: for the execution.
        finished_at: when it ended, with time zone.
        counted: what other profiles counted.

    Raises:
        InvalidInputError: see the module.
    """
    tree, wall, content = _tree_of(content, counted)
    schema, workflow = tree.schema, tree.workflow()
    cpu = number_of(value_at(content, schema.cpu), "the CPU time")
    measured = Measurement(
        runtime_seconds=wall,
        cpu_seconds=tree.seconds if cpu is None else cpu,
        peak_memory_bytes=count_of(value_at(content, schema.memory), "memory"),
        read_bytes=count_of(value_at(content, schema.read), "bytes read"),
        written_bytes=count_of(value_at(content, schema.written), "bytes written"),
    )
    return Execution(
        execution_id=execution_id,
        workload=f"duckdb/{fingerprint(workflow)[:16]}",
        plan=Plan.on_one_platform(workflow, Platform.DUCKDB),
        cluster=_cluster(measured),
        status=ExecutionStatus.OK,
        measurement=measured,
        finished_at=finished_at,
        origin=ExecutionMetadata(
            source=schema.source,
            rows_known=sum(tree.known) / len(tree.known),
            remarks=() if tree.is_complete else (ExecutionWarning.INCOMPLETE,),
            operator_seconds=tuple(tree.operator_seconds) if tree.seconds else (),
            rows_within=tree.rows_within,
        ),
    )


def _tree_of(content: object, counted: Counted) -> tuple[OperatorTree, float, Mapping[str, object]]:
    """The operators of a profile, its wall time, and the profile as what it was found to be."""
    if not isinstance(content, dict):
        raise InvalidProfileError("no profile: not an object")
    schema = schema_of(content)
    wall = number_of(value_at(content, schema.wall), "the wall time")
    tops = content.get(schema.top)
    if not (wall is not None and 0 < wall <= MAX_RUNTIME_SECONDS):
        first = tops[0] if isinstance(tops, list) and tops else None
        if isinstance(first, dict) and EXPLAINED in (first.get(key) for key in schema.kind):
            raise InvalidProfileError(
                "EXPLAIN ANALYZE of 1.1 to 1.4 has no run time: set profiling_output instead"
            )
        raise InvalidProfileError(f"no wall time between 0 and {MAX_RUNTIME_SECONDS:g} seconds")
    tree = OperatorTree(schema, counted)
    tree.read(tops)
    return tree, wall, content


def _cluster(measured: Measurement) -> ClusterConfig:
    busy = min(measured.cpu_seconds / measured.runtime_seconds, MAX_CORES)
    memory = max(ASSUMED_MEMORY_BYTES, measured.peak_memory_bytes)
    return ClusterConfig(nodes=1, cores=max(1, math.ceil(busy)), memory_bytes=memory)


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
    if exceeds_json_memory(record):
        return SkippedRecord(name, "more values than are read")
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:
        return SkippedRecord(name, "no JSON, or cut off, or nested too deeply")
