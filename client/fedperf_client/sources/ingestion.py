"""Take what sources hold into the store, several sources at a time.

Taking in the same source twice is harmless, because the store knows executions by their
ids. A source that cannot be read hides no other one. Memory does not grow with a source:
executions are stored in small batches, and of what was skipped the reasons are counted, up
to `MAX_REASONS` different ones.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

from fedperf_client.home.counted_rows import RowCount
from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.kinds import counts_in_source, read_source
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

MAX_REASONS = 50
"""Different reasons that are told of one source; the others are counted together."""

LONGEST_REASON = 300
OTHER_REASONS = "other reasons"

_BATCH = 100


@dataclass(frozen=True, slots=True)
class IngestionCounts:
    """What reading one source, or several, brought.

    Attributes:
        executions: that were found.
        new: of them not in the store before.
        operators: of all their plans.
        known_operators: of them with rows that were counted or follow from counted ones.
        skipped: records that gave no execution, by reason.
        failed: executions that did not end well.
    """

    executions: int = 0
    new: int = 0
    operators: int = 0
    known_operators: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0

    def __add__(self, other: "IngestionCounts") -> "IngestionCounts":
        return IngestionCounts(
            self.executions + other.executions,
            self.new + other.new,
            self.operators + other.operators,
            self.known_operators + other.known_operators,
            dict(Counter(self.skipped) + Counter(other.skipped)),
            self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class IngestionOutcome:
    """What came of one source.

    Attributes:
        path: where it lies.
        taken: what it brought; not counted where it was refused.
        refused: why it could not be read to its end, empty otherwise.
    """

    path: Path
    taken: IngestionCounts = field(default_factory=IngestionCounts)
    refused: str = ""


def total(outcomes: Sequence[IngestionOutcome]) -> IngestionCounts:
    """What all of them brought together."""
    return reduce(add, (each.taken for each in outcomes), IngestionCounts())


def ingest(
    paths: Sequence[Path],
    store: Path,
    *,
    jobs: int = 1,
    dry_run: bool = False,
    encoder: Encoder | None = None,
) -> Iterator[IngestionOutcome]:
    """Take in the source at every path; each is told when it is done.

    Args:
        paths: of one source each, see `kinds.places`.
        store: the organization's database of executions.
        jobs: processes that read at the same time, one source each.
        dry_run: read, but store nothing.
        encoder: of what is learnt from executions; without, whoever learns encodes them.

    Raises:
        StorageError: the store cannot be written.
    """
    with ExitStack() as stack:
        scratch = None
        if dry_run:  # what would be new lies here meanwhile, so that copies count once
            directory = stack.enter_context(TemporaryDirectory(dir=store.parent))
            scratch = Path(directory) / "executions.sqlite"
        _count(paths, scratch or store)
        read = partial(_outcome, store=store, scratch=scratch, encoder=encoder)
        is_alone = jobs == 1 or len(paths) < 2  # noqa: PLR2004 (one source needs no process)
        yield from map(read, paths) if is_alone else _in_processes(read, paths, jobs)


def take_in(
    path: Path,
    store: ExecutionStore,
    *,
    scratch: ExecutionStore | None = None,
    encoder: Encoder | None = None,
    is_counted: bool = False,
) -> IngestionCounts:
    """Take in the source at `path`; executions that name no file are from there.

    Args:
        path: of one source.
        store: the organization's executions.
        scratch: takes what would be new in place of the store.
        encoder: as of `ExecutionStore.add`.
        is_counted: whether what the source counted is stored already.

    Raises:
        InvalidInputError: it cannot be read to its end; what was stored before stays.
        StorageError: the store cannot be written.
    """
    homes = [store] if scratch is None else [store, scratch]
    if not is_counted:
        homes[-1].counted_rows.add(counts_in_source(path))

    def counted(place: str) -> list[RowCount]:
        return [count for home in homes for count in home.counted_rows.of(place)]

    batch: list[Execution] = []
    skipped: Counter[str] = Counter()
    taken = IngestionCounts()
    for found in read_source(path, counted):
        if isinstance(found, SkippedRecord):
            reason = found.reason[:LONGEST_REASON]
            is_told = reason in skipped or len(skipped) < MAX_REASONS
            skipped[reason if is_told else OTHER_REASONS] += 1
            continue
        # A path is text also where its bytes are none.
        place = found.origin.file or os.fsencode(path.absolute()).decode(errors="replace")
        batch.append(replace(found, origin=replace(found.origin, file=place)))
        if len(batch) >= _BATCH:
            taken += _stored(batch, store, scratch, encoder)
            batch.clear()
    return taken + _stored(batch, store, scratch, encoder) + IngestionCounts(skipped=skipped)


def _count(paths: Sequence[Path], store: Path) -> None:
    """Store what all sources counted, so that none depends on which is read before it."""
    with ExecutionStore.open(store) as opened:
        for path in paths:
            with suppress(InvalidInputError):  # who reads it tells of it
                opened.counted_rows.add(counts_in_source(path))


def _in_processes(
    read: Callable[[Path], IngestionOutcome], paths: Sequence[Path], jobs: int
) -> Iterator[IngestionOutcome]:
    # Whoever reads without other processes does without these modules.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    spawn = multiprocessing.get_context("spawn")
    lost: list[Path] = []
    with ProcessPoolExecutor(min(jobs, len(paths)), spawn) as pool:
        reading = {pool.submit(read, path): path for path in paths}
        for done in as_completed(reading):
            try:
                yield done.result()
            except BrokenProcessPool:
                lost.append(reading[done])
    # Most of what was lost with a process is without fault: alone it shows whose fault that was.
    while lost:
        with ProcessPoolExecutor(1, spawn) as pool:
            try:
                while lost:
                    path = lost.pop(0)
                    yield pool.submit(read, path).result()
            except BrokenProcessPool:
                yield IngestionOutcome(path, refused=f"{path}: the process that read it was lost")


def _outcome(
    path: Path, *, store: Path, scratch: Path | None, encoder: Encoder | None
) -> IngestionOutcome:
    with ExitStack() as stack:
        opened = stack.enter_context(ExecutionStore.open(store))
        aside = None if scratch is None else stack.enter_context(ExecutionStore.open(scratch))
        try:
            taken = take_in(path, opened, scratch=aside, encoder=encoder, is_counted=True)
            return IngestionOutcome(path, taken)
        except InvalidInputError as error:
            return IngestionOutcome(path, refused=str(error))


def _stored(
    batch: Sequence[Execution],
    store: ExecutionStore,
    scratch: ExecutionStore | None,
    encoder: Encoder | None,
) -> IngestionCounts:
    operators = [len(each.plan.workflow.operators) for each in batch]
    known = [round(each.origin.rows_known * n) for each, n in zip(batch, operators, strict=True)]
    new = store.add(batch, encoder) if scratch is None else scratch.add(store.missing(batch))
    failed = sum(not each.is_ok for each in batch)
    return IngestionCounts(len(batch), new, sum(operators), sum(known), failed=failed)
