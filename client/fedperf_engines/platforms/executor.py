"""Run a program with one platform per step.

Steps of one platform that follow each other stay lazy inside their engine; rows
are materialized only where the platform switches (handed over as an Arrow table),
where several steps read one result (computed once), and at a sink. Each
materialization is one `SegmentTiming`, so every step belongs to exactly one.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedperf_engines.platforms.engine import (
    Engine,
    UnsupportedOperationError,
    open_engine,
    supports,
)
from fedperf_engines.platforms.operations import (
    ColumnType,
    InvalidProgramError,
    ReadParquet,
    Schema,
    Sink,
    column_names,
)
from fedperf_engines.platforms.program import Program
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    import pyarrow as pa


class DatasetMissingError(InvalidInputError):
    """A program reads a data set that the data directory does not have."""

    def __init__(self, dataset: str, path: Path) -> None:
        super().__init__(f"data set {dataset!r} is missing: no file {path}")
        self.dataset = dataset


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    """Wall time of the steps that one engine ran together, up to a materialization."""

    platform: Platform  # of these steps
    steps: tuple[int, ...]  # their positions, ascending; the last one's rows were materialized
    seconds: float  # monotonic wall time; a hand-over counts for the segment that reads it


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of a run."""

    tables: tuple["pa.Table", ...]  # one per sink, in the order of the steps
    segment_timings: tuple[SegmentTiming, ...]  # in the order in which they ended
    # Monotonic wall time from the first step to the last result, with the engines open already.
    seconds: float

    @property
    def table(self) -> "pa.Table":
        """Return the result of the first sink."""
        return self.tables[0]


def dataset_path(data_directory: Path, dataset: str) -> Path:
    """Return the path of a data set."""
    return data_directory / f"{dataset}.parquet"


def plan_segments(program: Program, platforms: Sequence[Platform]) -> Mapping[int, tuple[int, ...]]:
    """Return the steps that run together, by the step whose rows are materialized."""
    segments: dict[int, tuple[int, ...]] = {}
    lazy: dict[int, tuple[int, ...]] = {}
    for position, step in enumerate(program.steps):
        behind = [lazy.pop(parent) for parent in step.inputs if parent in lazy]
        steps = tuple(sorted({position, *(each for steps in behind for each in steps)}))
        consumers = program.consumers[position]
        is_read_here = [platforms[each] is platforms[position] for each in consumers]
        (lazy if is_read_here == [True] else segments)[position] = steps
    return segments


def require_runnable(
    program: Program, platforms: Sequence[Platform], *, data_directory: Path
) -> None:
    """Refuse a plan that could not run, before any engine is opened.

    Raises:
        InvalidProgramError: not one platform per step.
        UnsupportedOperationError: a platform cannot run its step.
        DatasetMissingError: a data set is not there.
    """
    if len(platforms) != len(program.steps):
        raise InvalidProgramError(
            f"{len(program.steps)} steps need as many platforms, got {len(platforms)}"
        )
    for step, platform in zip(program.steps, platforms, strict=True):
        if not supports(step.operation, platform):
            raise UnsupportedOperationError(step.operation.type, platform)
    for dataset in program.datasets:
        path = dataset_path(data_directory, dataset)
        if not path.is_file():
            raise DatasetMissingError(dataset, path)


def run_plan(
    program: Program,
    platforms: Sequence[Platform],
    *,
    data_directory: Path,
    threads: int,
    memory_bytes: int | None = None,
) -> RunResult:
    """Run every step on its platform; errors as `require_runnable`, and the engines' own.

    Opening the engines is not part of any segment; `threads` and `memory_bytes` as there.
    """
    require_runnable(program, platforms, data_directory=data_directory)
    with ExitStack() as stack:
        engines = {
            platform: open_engine(platform, threads=threads, memory_bytes=memory_bytes)
            for platform in dict.fromkeys(platforms)
        }
        for engine in engines.values():
            stack.callback(engine.close)
        segments = plan_segments(program, platforms)
        run = _Run(program, tuple(platforms), segments, engines, data_directory)
        started = time.perf_counter()
        for position in range(len(program.steps)):
            run.execute(position)
        seconds = time.perf_counter() - started
        tables = tuple(run.tables[position] for position in program.sinks)
        return RunResult(tables, tuple(run.timings), seconds)


@dataclass(slots=True)
class _Run:
    program: Program
    platforms: tuple[Platform, ...]
    segments: Mapping[int, tuple[int, ...]]
    engines: Mapping[Platform, Engine[Any]]
    data_directory: Path
    frames: dict[tuple[int, Platform], Any] = field(default_factory=dict)
    tables: dict[int, "pa.Table"] = field(default_factory=dict)
    timings: list[SegmentTiming] = field(default_factory=list)
    # Seconds behind a lazy result that no segment has counted yet.
    pending: dict[int, float] = field(default_factory=dict)

    def execute(self, position: int) -> None:
        """Apply one step, and materialize its rows where the plan needs them."""
        started = time.perf_counter()
        frame = self._apply(position)
        inputs = self.program.steps[position].inputs
        self._materialize(position, frame)
        behind = [self.pending.pop(parent, 0.0) for parent in inputs]
        seconds = time.perf_counter() - started + sum(behind)
        if position in self.segments:
            steps = self.segments[position]
            self.timings.append(SegmentTiming(self.platforms[position], steps, seconds))
        else:
            self.pending[position] = seconds
        self._forget(position)

    def _apply(self, position: int) -> Any:  # noqa: ANN401 - a frame of any engine
        step, platform = self.program.steps[position], self.platforms[position]
        engine = self.engines[platform]
        if isinstance(step.operation, ReadParquet):
            path = dataset_path(self.data_directory, step.operation.dataset)
            return engine.read(path, column_names(step.operation.columns))
        inputs = [self._frame(parent, platform) for parent in step.inputs]
        return (
            inputs[0] if isinstance(step.operation, Sink) else engine.apply(step.operation, inputs)
        )

    def _frame(self, parent: int, platform: Platform) -> Any:  # noqa: ANN401 - as above
        key = parent, platform
        if key not in self.frames:
            self.frames[key] = self.engines[platform].load(self.tables[parent])
        return self.frames[key]

    def _materialize(self, position: int, frame: Any) -> None:  # noqa: ANN401 - as above
        platform = self.platforms[position]
        engine = self.engines[platform]
        consumers = self.program.consumers[position]
        at_home = [c for c in consumers if self.platforms[c] is platform]
        if len(consumers) > 1 and at_home:
            frame = engine.keep(frame)
        if len(at_home) < max(len(consumers), 1):
            schema = self.program.schemas()[position]
            self.tables[position] = conform(engine.collect(frame), schema)
        self.frames[position, platform] = frame

    def _forget(self, position: int) -> None:
        """Drop what no later step reads, so that a long plan does not hold every table."""
        for parent in self.program.steps[position].inputs:
            if max(self.program.consumers[parent]) <= position:
                self.tables.pop(parent, None)
                for platform in self.engines:
                    self.frames.pop((parent, platform), None)


def arrow_schema(schema: Schema) -> "pa.Schema":
    """Return the Arrow schema of a program's columns."""
    import pyarrow as pa

    types = {
        ColumnType.INTEGER: pa.int64(),
        ColumnType.FLOAT: pa.float64(),
        ColumnType.TEXT: pa.large_string(),
    }
    return pa.schema([(column.name, types[column.type]) for column in schema])


def conform(table: "pa.Table", schema: Schema) -> "pa.Table":
    """Cast a table to exactly these columns; pyarrow.ArrowInvalid if a value is lost.

    Engines have types of their own: text views, unsigned counts, huge integers.
    """
    return table.select(list(column_names(schema))).cast(arrow_schema(schema))
