"""The measurement: every task of a design is really run on this machine, and logged.

Tasks come from a `MeasurementDesign`, such as `workload_draws.MeasuringSettings`, and are a
function of it, so that they need not be stored. Results are appended to a log as they come
(`measured_log`), so a killed command continues where it stopped. Refused: a log of another design.

All data is generated before the first trial. Trials that other processes disturbed are
run again after all others, at most twice; the least disturbed run counts.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedperf_client.workers.machine import available_memory_bytes, cluster_config
from fedperf_engines.trials.profiler import (
    WORKER_COMMAND,
    Profiler,
    Trial,
    TrialLimits,
    UncountableProgramError,
    WorkerPool,
)
from fedperf_engines.workloads.data import prepare
from fedperf_shared.execution import ClusterConfig, ExecutionStatus
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.measured_log import (
    MeasuredLog,
    MeasurementTask,
    MeasuringSummary,
    Record,
    append,
    record_of,
    summarize,
)
from fedperf_simulations.corpus.resource_cap import Cap, joining

ENOUGH_SECONDS = {1: 10.0, 2: 2.0}
"""After so many runs of a task that together took so long it is not run again."""

_BLOCK = 150
"""Workloads of a block are sorted by their engines, so that few children are started."""


class MeasurementDesign(Protocol):
    """The design of a measurement: a frozen dataclass, which the log begins with."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int:
        """The seed of the order of the runs."""

    @property
    def timeout_seconds(self) -> float:
        """The timeout of one trial."""

    @property
    def disturbed_cores(self) -> float:
        """Interference from which a trial is run again."""

    @property
    def repeats(self) -> int:
        """The largest number of times that a disturbed trial is run again."""

    @property
    def cap(self) -> Cap | None:
        """Which all runs are under."""

    def tasks(self) -> tuple[MeasurementTask, ...]:
        """Return all runs, a function of the design alone."""


def run_order(tasks: Sequence[MeasurementTask], seed: int) -> tuple[MeasurementTask, ...]:
    """Workloads in a random order (so that time of day means nothing), sorted in blocks.

    The runs of one workload stay in one block: they are compared with each other, and
    its rows are counted once. Within a block tasks are sorted by their engines.
    """
    workloads = sorted({task.workload for task in tasks})
    shuffled = np.random.default_rng([seed, 1]).permutation(len(workloads)).tolist()
    block = {workloads[position]: place // _BLOCK for place, position in enumerate(shuffled)}
    place = {workloads[position]: place for place, position in enumerate(shuffled)}
    return tuple(sorted(tasks, key=lambda t: (block[t.workload], _engines(t), place[t.workload])))


def measure(
    design: MeasurementDesign,
    *,
    log: Path,
    data_directory: Path,
    clock: Callable[[], datetime],
    pool: WorkerPool | None = None,
    console: Console | None = None,
    at_most: int | None = None,
) -> MeasuringSummary:
    """Run every task that the log lacks and append its result. Safe to kill and repeat.

    Args:
        design: what to measure; a log of another one is refused.
        log: JSON lines, created where there is none.
        data_directory: where generated data is kept.
        clock: moments with time zone, for `finished_at`.
        pool: children to use; by default a pool that pins trials to cores.
        console: where progress is shown; none: the standard error.
        at_most: stop after so many tasks.

    Raises:
        ConfigurationError: the log belongs to another design.
        StorageError: the log cannot be read or written.
    """
    tasks = run_order(design.tasks(), design.seed)
    lines = MeasuredLog(log, asdict(design))
    remaining = math.inf if at_most is None else at_most
    # Before this process leaves the core of the trials: the other one may be busy.
    clusters = _clusters(tasks, design.cap)
    with (
        _progress(console) as progress,
        one_core_for_trials() as cores,
        _children_command(design.cap) as command,
        pool or WorkerPool(command=command, cores=cores, max_workers=16) as children,
    ):
        profiler = Profiler(
            children,
            data_directory=data_directory,
            limits=TrialLimits(design.timeout_seconds, available_memory_bytes() * 7 // 10),
            clock=clock,
            new_id=lambda: "unused",
        )
        for _ in range(1 + design.repeats):
            waiting = lines.waiting(
                tasks, disturbed_cores=design.disturbed_cores, repeats=design.repeats
            )
            waiting = waiting[: int(min(remaining, len(waiting)))]
            if not waiting:
                break
            remaining -= len(waiting)
            _generate(waiting, data_directory, progress)
            _measure_all(waiting, profiler, lines, clock, progress, clusters=clusters)
    return summarize(log, len(tasks))


def _children_command(cap: Cap | None) -> AbstractContextManager[tuple[str, ...]]:
    return nullcontext(WORKER_COMMAND) if cap is None else joining(cap, WORKER_COMMAND)


def _clusters(tasks: Sequence[MeasurementTask], cap: Cap | None) -> Mapping[int, ClusterConfig]:
    """Return what runs with so many threads have."""
    clusters = {threads: cluster_config(threads) for threads in {each.threads for each in tasks}}
    if cap is None:
        return clusters
    return {threads: cap.of(each) for threads, each in clusters.items()}


def _measure_all(
    tasks: Sequence[MeasurementTask],
    profiler: Profiler,
    lines: MeasuredLog,
    clock: Callable[[], datetime],
    progress: Progress,
    *,
    clusters: Mapping[int, ClusterConfig],
) -> None:
    bar = progress.add_task("measuring", total=len(tasks))
    with lines.appending() as file:
        for task in tasks:
            append(file, _run(task, profiler, clusters[task.threads], clock))
            progress.advance(bar)


def _engines(task: MeasurementTask) -> tuple[int, tuple[Platform, ...]]:
    return task.threads, tuple(sorted(set(task.platforms)))


def _generate(tasks: Sequence[MeasurementTask], data_directory: Path, progress: Progress) -> None:
    datasets = sorted({name for task in tasks for name in task.program.datasets})
    bar = progress.add_task("generating data", total=len(datasets))
    for dataset in datasets:
        prepare([dataset], data_directory)
        progress.advance(bar)


@contextmanager
def one_core_for_trials() -> Iterator[tuple[int, ...]]:
    """Keep this process off the last core, where trials with one thread run."""
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores - {max(cores)})
    try:
        yield tuple(sorted(cores))
    finally:
        os.sched_setaffinity(0, cores)


def _run(
    task: MeasurementTask, profiler: Profiler, cluster: ClusterConfig, clock: Callable[[], datetime]
) -> Record:
    try:
        workflow = profiler.workflow(task.program)
    except UncountableProgramError as error:
        return record_of(task, cluster, None, None, clock(), reason=str(error))

    def once() -> Trial:
        return profiler.trial(
            task.program, task.platforms, threads=task.threads, memory_bytes=task.memory_bytes
        )

    trial, run_seconds = in_a_row(once, at_most=task.runs)
    if task.memory_bytes is not None:
        cluster = replace(cluster, memory_bytes=task.memory_bytes)
    return record_of(task, cluster, workflow, trial, clock(), run_seconds=run_seconds)


def in_a_row(once: Callable[[], Trial], *, at_most: int) -> tuple[Trial, list[float]]:
    """Run a task until it ran often or long enough (`ENOUGH_SECONDS`).

    Returns:
        The run that counts: one that failed, after which there is no other, else the median,
        of two the shorter; and the seconds of all that ended well, in their order.
    """
    runs: list[tuple[float, Trial]] = []
    while len(runs) < at_most and not _is_enough([seconds for seconds, _ in runs]):
        trial = once()
        if trial.status is not ExecutionStatus.OK or trial.measurement is None:
            return trial, [seconds for seconds, _ in runs]
        runs.append((trial.measurement.runtime_seconds, trial))
    ordered = sorted(runs, key=lambda run: run[0])
    return ordered[(len(runs) - 1) // 2][1], [seconds for seconds, _ in runs]


def _is_enough(seconds: Sequence[float]) -> bool:
    return sum(seconds) >= ENOUGH_SECONDS.get(len(seconds), math.inf)


def _progress(console: Console | None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
    )
