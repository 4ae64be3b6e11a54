"""Ingestion of sources into the store: `ingest` reads given sources, `follow` those that changed.

Ingesting a source twice is harmless, because the store recognizes executions by their ids. A
source that cannot be read affects no other source. Memory does not grow with a source: executions
are stored in small batches, and skipped records are counted by at most `MAX_REASONS` reasons.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from itertools import islice
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import (
    NothingToReadError,
    RowCount,
    SkippedRecord,
    Source,
    UnknownSourceError,
    counts_in_source,
    find_sources,
    read_source,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

# Different reasons that are reported of one source; all others are counted together.
MAX_REASONS = 50

LONGEST_REASON = 300
OTHER_REASONS = "other reasons"

READING_SHARE = 0.05  # share of the time since a source was read that reading it again may take
_BATCH = 100
_BATCH_OF_TABLES = 2000  # rows, which are small and not encoded


@dataclass(frozen=True, slots=True)
class IngestionCounts:
    """The result of reading one source, or several."""

    executions: int = 0  # executions in it
    new: int = 0  # executions that were not in the store before
    operators: int = 0  # operators of all plans
    known_operators: int = 0  # operators whose rows were counted or follow from counted ones
    skipped: Counter[str] = field(default_factory=Counter)  # records without one, by reason
    failed: int = 0  # executions that did not end well

    def __add__(self, other: "IngestionCounts") -> "IngestionCounts":
        names = (each.name for each in fields(self))
        return IngestionCounts(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class IngestionOutcome:
    """The outcome of one source."""

    path: Path  # of the source
    taken: IngestionCounts = field(default_factory=IngestionCounts)  # zero if it was refused
    refused: str = ""  # why it could not be read to its end; otherwise empty


def total(outcomes: Sequence[IngestionOutcome]) -> IngestionCounts:
    """Return the sum of the counts of all outcomes."""
    return reduce(add, (each.taken for each in outcomes), IngestionCounts())


def ingest(
    paths: Sequence[Path],
    store: Path,
    *,
    jobs: int = 1,
    dry_run: bool = False,
    encoder: Encoder | None = None,
    sources: Mapping[Path, Source] | None = None,
) -> Iterator[IngestionOutcome]:
    """Ingest the source at every path; yield the outcome of each when it is done.

    Args:
        paths: of one source each, see `find_sources`.
        store: the organization's database of executions.
        jobs: processes that read at the same time, one source each.
        dry_run: read, but store nothing.
        encoder: see `ExecutionStore.add`.
        sources: those of the paths that are opened already.

    Raises:
        StorageError: the store cannot be written.
    """
    sources = sources or {}
    with ExitStack() as stack:
        scratch = None
        if dry_run:  # takes the new executions, so that copies count once
            directory = stack.enter_context(TemporaryDirectory(dir=store.parent))
            scratch = Path(directory) / "executions.sqlite"
        # The row counts of all sources come first, so that the order of reading does not matter.
        with ExecutionStore.open(scratch or store) as opened:
            for path in paths:
                if path in sources:
                    continue
                with suppress(InvalidInputError):  # reported when it is read
                    opened.add_row_counts(counts_in_source(path))
        read = partial(_outcome, store=store, scratch=scratch, encoder=encoder, sources=sources)
        is_alone = jobs == 1 or len(paths) < 2  # noqa: PLR2004 (one source needs no process)
        yield from map(read, paths) if is_alone else _in_processes(read, paths, jobs)


def ingest_source(
    path: Path,
    store: ExecutionStore,
    *,
    scratch: ExecutionStore | None = None,
    encoder: Encoder | None = None,
    is_counted: bool = False,
    source: Source | None = None,
) -> IngestionCounts:
    """Ingest the source at `path`, which becomes the file of executions that name none.

    Args:
        path: of one source.
        store: the organization's executions.
        scratch: store for new executions instead of `store`.
        encoder: see `ExecutionStore.add`.
        is_counted: whether the row counts of the source are stored already.
        source: the source, if it is opened already.

    Raises:
        InvalidInputError: it cannot be read to its end; batches before that stay stored.
        StorageError: the store cannot be written.
    """
    stores = [store] if scratch is None else [store, scratch]
    if not is_counted:
        stores[-1].add_row_counts(counts_in_source(path))
    file = os.fsencode(path.absolute()).decode(errors="replace")
    counts, skipped = IngestionCounts(), Counter[str]()

    def row_counts(place: str) -> list[RowCount]:
        return [RowCount(*row) for each in stores for row in each.row_counts(place)]

    def executions() -> Iterator[Execution]:
        for record in read_source(path, row_counts, source=source):
            if isinstance(record, SkippedRecord):
                reason = record.reason[:LONGEST_REASON]
                is_listed = reason in skipped or len(skipped) < MAX_REASONS
                skipped[reason if is_listed else OTHER_REASONS] += 1
            else:
                yield record if record.origin.file else _in_file(record, file)

    remaining = executions()
    size = _BATCH if source is None else _BATCH_OF_TABLES
    while batch := list(islice(remaining, size)):
        operators = [len(each.plan.workflow.operators) for each in batch]
        rows_known = (round(e.origin.rows_known * n) for e, n in zip(batch, operators, strict=True))
        counts += IngestionCounts(
            executions=len(batch),
            new=store.add(batch, encoder) if scratch is None else scratch.add(store.missing(batch)),
            operators=sum(operators),
            known_operators=sum(rows_known),
            failed=sum(not each.is_ok for each in batch),
        )
    return counts + IngestionCounts(skipped=skipped)


def _in_file(execution: Execution, file: str) -> Execution:
    return replace(execution, origin=replace(execution.origin, file=file))


def _in_processes(
    read: Callable[[Path], IngestionOutcome], paths: Sequence[Path], jobs: int
) -> Iterator[IngestionOutcome]:
    # Reading without other processes needs none of these modules.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    spawn = multiprocessing.get_context("spawn")
    lost: list[Path] = []
    with ProcessPoolExecutor(min(jobs, len(paths)), spawn) as pool:
        running = {pool.submit(read, path): path for path in paths}
        for future in as_completed(running):
            try:
                yield future.result()
            except BrokenProcessPool:
                lost.append(running[future])
    # One source broke the pool for all. Reading them one by one shows which.
    while lost:
        with ProcessPoolExecutor(1, spawn) as pool:
            try:
                while lost:
                    path = lost.pop(0)
                    yield pool.submit(read, path).result()
            except BrokenProcessPool:
                yield IngestionOutcome(path, refused=f"{path}: the process that read it was lost")


def _outcome(
    path: Path,
    *,
    store: Path,
    scratch: Path | None,
    encoder: Encoder | None,
    sources: Mapping[Path, Source],
) -> IngestionOutcome:
    with ExitStack() as stack:
        opened = stack.enter_context(ExecutionStore.open(store))
        other = None if scratch is None else stack.enter_context(ExecutionStore.open(scratch))
        try:
            counts = ingest_source(
                path,
                opened,
                scratch=other,
                encoder=encoder,
                is_counted=True,
                source=sources.get(path),
            )
            return IngestionOutcome(path, counts)
        except InvalidInputError as error:
            return IngestionOutcome(path, refused=str(error))


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source when it was last read."""

    modified: int  # latest modification of its files, nanoseconds
    size: int  # bytes of its files
    next_at: float = 0.0  # earliest time on the timer at which it is read again


@dataclass(frozen=True, slots=True)
class SourceCheckResult:
    """The result of one call of `follow`."""

    taken: IngestionCounts  # counts of all sources that were read
    states: dict[Path, SourceState]  # the state of every source when it was last read
    problems: tuple[str, ...]  # which sources could not be read, and why


def follow(
    paths: Iterable[Path],
    states: dict[Path, SourceState],
    store: Path,
    *,
    timer: Callable[[], float] = time.monotonic,
) -> SourceCheckResult:
    """Ingest every source under `paths` that is new or has changed since `states`.

    A source may change all the time, such as the log of a running job. It is read again only
    when reading takes at most `READING_SHARE` of the time since. States are stored, so that a
    restarted daemon goes on. A source that cannot be read is a problem once until it changes.
    Files of unknown kinds, and empty ones, are problems only where they were named explicitly.

    Raises:
        StorageError: the store cannot be written.
    """
    counts, problems = IngestionCounts(), list[str]()
    with ExecutionStore.open(store) as opened:
        stored = {path: SourceState(*state) for path, state in opened.sources().items()}
        states = stored | states
        for path, is_named in find_sources(paths, problems):
            state, before = _state_of(path), states.get(path)
            if state is None:
                continue
            is_unchanged = before is not None and (
                (before.modified, before.size) == (state.modified, state.size)
                or timer() < before.next_at
            )
            if is_unchanged:
                continue
            start = timer()
            try:
                counts += ingest_source(path, opened)
                opened.source_was_read(path, state.modified, state.size)
            except (UnknownSourceError, NothingToReadError) as error:
                problems += [str(error)] if is_named else []
            except InvalidInputError as error:
                problems.append(str(error))
            end = timer()
            states[path] = replace(state, next_at=end + (end - start) / READING_SHARE)
    return SourceCheckResult(counts, states, tuple(problems))


def _state_of(path: Path) -> SourceState | None:
    """Return the present state of a source; None if its files were deleted since listing."""
    try:
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        stats = [each.stat() for each in files]
    except OSError:
        return None
    return SourceState(max(each.st_mtime_ns for each in stats), sum(each.st_size for each in stats))
