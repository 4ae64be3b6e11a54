"""Ingestion of sources into the store: `ingest` reads given sources, `follow` those that changed.

Ingesting a source twice is harmless, because the store recognizes executions by their ids. A
source that cannot be read affects no other source. Memory does not grow with a source: executions
are stored in small batches, and skipped records are counted by at most `MAX_REASONS` reasons.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from itertools import islice
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import (
    IncompleteError,
    NothingToReadError,
    RowCount,
    SkippedRecord,
    Source,
    UnknownSourceError,
    counts_in_source,
    find_sources,
    read_source,
)
from fedperf_client.sources.history_server import Application
from fedperf_client.sources.opener import SourcePlace
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.addresses import Address

# Different reasons that are reported of one source; all others are counted together.
MAX_REASONS = 50

LONGEST_REASON = 300
OTHER_REASONS = "other reasons"

READING_SHARE = 0.05  # share of the time since a source was read that reading it again may take
LISTING_SECONDS = 300.0  # least time between two lists of one address
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

    path: SourcePlace  # of the source
    taken: IngestionCounts = field(default_factory=IngestionCounts)  # zero if it was refused
    refused: str = ""  # why it could not be read to its end; otherwise empty


def total(outcomes: Sequence[IngestionOutcome]) -> IngestionCounts:
    """Return the sum of the counts of all outcomes."""
    return reduce(add, (each.taken for each in outcomes), IngestionCounts())


def ingest(
    paths: Sequence[SourcePlace],
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
        readable: list[SourcePlace] = []
        with ExecutionStore.open(scratch or store) as opened:
            for path in paths:
                try:
                    # The logs of a History Server count no rows, and opening one downloads it.
                    if path not in sources and not isinstance(path, Application):
                        opened.add_row_counts(counts_in_source(path))
                except UnknownSourceError as error:
                    yield IngestionOutcome(path, refused=str(error))
                    continue
                except InvalidInputError:  # reported when it is read
                    pass
                readable.append(path)
        read = partial(_outcome, store=store, scratch=scratch, encoder=encoder, sources=sources)
        is_alone = jobs == 1 or len(readable) < 2  # noqa: PLR2004 (one source needs no process)
        yield from map(read, readable) if is_alone else _in_processes(read, readable, jobs)


def ingest_source(
    path: SourcePlace,
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
    file = str(path.absolute() if isinstance(path, Path) else path)
    file = os.fsencode(file).decode(errors="replace")
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
    read: Callable[[SourcePlace], IngestionOutcome], paths: Sequence[SourcePlace], jobs: int
) -> Iterator[IngestionOutcome]:
    # Reading without other processes needs none of these modules.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    spawn = multiprocessing.get_context("spawn")
    lost: list[SourcePlace] = []
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
    path: SourcePlace,
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
                source=sources.get(path) if isinstance(path, Path) else None,
            )
            if scratch is None and not isinstance(path, Path):
                state = path.stat()
                opened.source_was_read(str(path), state.st_mtime_ns, state.st_size)
            return IngestionOutcome(path, counts)
        except InvalidInputError as error:
            return IngestionOutcome(path, refused=str(error))


def unchanged(places: Iterable[SourcePlace], store: Path) -> set[SourcePlace]:
    """Return the places on other machines that have not changed since they were stored.

    Local files are cheap to read again, so none of them is in the result.

    Raises:
        StorageError: the store cannot be read.
    """
    elsewhere = [each for each in places if not isinstance(each, Path)]
    if not elsewhere:
        return set()
    with ExecutionStore.open(store) as opened:
        stored = opened.sources()
    states = ((each, each.stat()) for each in elsewhere)
    return {
        place
        for place, state in states
        if stored.get(str(place)) == (state.st_mtime_ns, state.st_size)
    }


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source when it was last read, or of an address when it was last listed."""

    modified: int  # latest modification of its files, nanoseconds
    size: int  # bytes of its files
    next_at: float = 0.0  # earliest time on the timer at which it is read again
    problems: tuple[str, ...] = ()  # of listing an address


@dataclass(frozen=True, slots=True)
class SourceCheckResult:
    """The result of one call of `follow`."""

    taken: IngestionCounts  # counts of all sources that were read
    states: dict[str, SourceState]  # by path or address, when it was last read
    problems: tuple[str, ...]  # which sources could not be read, and why


def follow(
    paths: Iterable[Path | Address],
    states: dict[str, SourceState],
    store: Path,
    *,
    timer: Callable[[], float] = time.monotonic,
) -> SourceCheckResult:
    """Ingest every source under `paths` that is new or has changed since `states`.

    A source may change all the time, such as the log of a running job. It is read again only
    when reading takes at most `READING_SHARE` of the time since. States are stored, so that a
    restarted daemon goes on. A source that cannot be read is a problem once until it changes.
    Files of unknown kinds, and empty ones, are problems only where they were named explicitly.
    Addresses are listed every `LISTING_SECONDS`, because stores charge for it.

    Raises:
        StorageError: the store cannot be written.
    """
    counts, problems = IngestionCounts(), list[str]()
    with ExecutionStore.open(store) as opened:
        stored = {path: SourceState(*state) for path, state in opened.sources().items()}
        states = stored | states
        for place, is_named in _listed(paths, states, problems, timer):
            path, state = str(place), state_of(place)
            before = states.get(path)
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
                counts += ingest_source(place, opened)
                opened.source_was_read(path, state.modified, state.size)
            except IncompleteError:  # read when it is older
                continue
            except (UnknownSourceError, NothingToReadError) as error:
                problems += [str(error)] if is_named else []
            except InvalidInputError as error:
                problems.append(str(error))
            end = timer()
            states[path] = replace(state, next_at=end + (end - start) / READING_SHARE)
    return SourceCheckResult(counts, states, tuple(problems))


def _listed(
    paths: Iterable[Path | Address],
    states: dict[str, SourceState],
    problems: list[str],
    timer: Callable[[], float],
) -> Iterator[tuple[SourcePlace, bool]]:
    """Yield what `find_sources` does, without addresses that were listed a moment ago."""
    for path in paths:
        key = f"listed {path}"
        if isinstance(path, Path):
            yield from find_sources([path], problems)
        elif key in states and timer() < states[key].next_at:
            problems += states[key].problems
        else:
            own: list[str] = []
            yield from find_sources([path], own)
            problems += own
            states[key] = SourceState(0, 0, timer() + LISTING_SECONDS, tuple(own))


def state_of(place: SourcePlace) -> SourceState | None:
    """Return the present state of a source; None if its files were deleted since listing."""
    try:
        files: list[SourcePlace] = [place]
        if isinstance(place, Path) and place.is_dir():
            files += place.rglob("*")
        stats = [each.stat() for each in files]
    except OSError:
        return None
    return SourceState(max(each.st_mtime_ns for each in stats), sum(each.st_size for each in stats))
