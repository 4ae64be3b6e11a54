"""The comparison set: jobs of all classes, each measured on several assignments of platforms.

The measured set (`measuring`) has one plan of most of its workloads; by this set it can be
judged which plan of a workload is the fastest. Its tasks, all a function of the seed:

- compared: drawn workloads of every family, each on every embedded platform alone, with
  scikit-learn for what iterates, and on a few mixed plans. Sizes are drawn even in their logarithm,
  so that a decade of small jobs costs no more than its share and large ones are not rare. Some run
  under a memory cap that engines are configured with, some on Spark as well where it is installed.
- series: programs of every family at every size, for charts and for labels between sizes.
- exhaustive: programs short enough that every assignment can be run; a sink runs where its
  input does, for it hands on what is there.

The training set is more compared workloads and exhaustive programs (`TRAINING_PROGRAMS`), to learn
from and never to judge by.

Plans of the first two run several times in a row (`RUNS`): the first run of a plan in a
child often takes a third longer than the next.

The `*_settings` functions return the settings that follow from the options of `fedperf-sim
measure`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.platforms.engine import installed_platforms, supporting
from fedperf_engines.platforms.operations import (
    Aggregate,
    AnyOperation,
    KMeans,
    KMeansAssign,
    ReadParquet,
    Sink,
)
from fedperf_engines.platforms.program import Program, Step
from fedperf_engines.workloads.data import SCALES
from fedperf_engines.workloads.families import (
    Draft,
    Family,
    between,
    count,
    draw_platforms,
    draw_program,
    mean,
    workload_name,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.workflow.vocabulary import Platform, platform_of
from fedperf_simulations.corpus.measured_log import MeasurementTask, Role
from fedperf_simulations.corpus.resource_cap import CAPPED_PLATFORMS, CAPPED_WORKLOADS, Cap
from fedperf_simulations.corpus.workload_draws import (
    MOST_DRAWN_ROWS,
    MeasuringSettings,
    comparison_plans,
    require_scale,
)

MOST_ROWS = {
    Family.WORD_COUNT: 10_000_000,
    Family.EMBEDDINGS: 3_000_000,
    Family.PAGERANK: 3_000_000,
    Family.CREDIT: 10_000_000,
    Family.TPCH: 10_000_000,
    Family.RELATIONAL: 10_000_000,
}
"""Beyond these the slowest platform takes minutes."""

MEMORY_CAPS = (1 << 30, 2 << 30)
CAPPED_FROM = 1_000_000
"""Rows from which a cap can matter."""

SPARK_FROM = 100_000
RUNS = {Role.COMPARISON: 3, Role.SERIES: 3, Role.EXHAUSTIVE: 1}
"""Runs of every plan. Long plans have fewer (`measurement.ENOUGH_SECONDS`)."""

TRAINING_PROGRAMS = 6
"""Exhaustive programs of each family among the training set."""

MOST_ASSIGNMENTS = 243
FEWEST_ASSIGNMENTS = 27
EXHAUSTIVE_ROWS = (300_000, 1_000_000)
_REDRAWS = 1_000
_FAMILIES = tuple(Family)


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """The settings of the draw and of its measurement.

    Attributes:
        seed: of everything that is drawn.
        workloads: compared workloads.
        mixed: mixed plans of each.
        capped_share: of those large enough, how many run under a memory cap.
        spark_share: of those large enough, how many run on Spark as well.
        series: programs per family that run at every size.
        exhaustive: programs per family that run on every assignment.
        most_rows: size of the largest input.
        timeout_seconds: of one trial.
        disturbed_cores: interference from which a trial is run again; trials have a core of
            their own, so that one busy core elsewhere is none.
        repeats: how often it is run again at most.
    """

    seed: int
    workloads: int = 324
    mixed: int = 3
    capped_share: float = 0.2
    spark_share: float = 0.1
    series: int = 2
    exhaustive: int = 4
    most_rows: int = MOST_DRAWN_ROWS
    timeout_seconds: float = 60.0
    disturbed_cores: float = 1.2
    repeats: int = 1
    cap: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not (self.workloads > 0 and min(self.mixed, self.series, self.exhaustive) >= 0):
            raise ConfigurationError("a comparison set needs workloads, and no negative numbers")
        for name in ("capped_share", "spark_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(f"{name} must be in [0, 1], got {getattr(self, name)!r}")
        require_scale(self.most_rows)

    def tasks(self) -> tuple[MeasurementTask, ...]:
        """Return all runs. No two workloads have the same name."""
        names: set[str] = set()
        return (
            *self._compared(names),
            *self._series(names),
            *self._exhaustive(names),
        )

    def _compared(self, names: set[str]) -> Iterator[MeasurementTask]:
        for number in range(self.workloads):
            rng = np.random.default_rng([self.seed, 0, number])
            family = _FAMILIES[number % len(_FAMILIES)]
            scales = [scale for scale in SCALES if scale <= min(MOST_ROWS[family], self.most_rows)]
            job = _new_job(family, rng, scales, names)
            cap = None
            if job.rows >= CAPPED_FROM and rng.random() < self.capped_share:
                cap = MEMORY_CAPS[int(rng.integers(len(MEMORY_CAPS)))]
            plans = [*comparison_plans(job.program), *_mixed(job.program, rng, self.mixed)]
            on_spark = job.rows >= SPARK_FROM and rng.random() < self.spark_share
            if on_spark and Platform.SPARK in installed_platforms():
                plans.append((Platform.SPARK,) * len(job.program.steps))
            yield from job.tasks(f"c{number:04d}", Role.COMPARISON, plans, memory_bytes=cap)

    def _series(self, names: set[str]) -> Iterator[MeasurementTask]:
        scales = [scale for scale in SCALES if scale <= self.most_rows]
        for place, number in product(range(len(_FAMILIES)), range(self.series)):
            rng = np.random.default_rng([self.seed, 1, place, number])
            first = _new_job(_FAMILIES[place], rng, scales[:1], names)
            for size, rows in enumerate(scales):
                job = first.at(rows)
                plans = comparison_plans(job.program)
                yield from job.tasks(f"s{place}{number}{size}", Role.SERIES, plans)

    def _exhaustive(self, names: set[str]) -> Iterator[MeasurementTask]:
        scales = [each for each in EXHAUSTIVE_ROWS if each <= self.most_rows] or SCALES[:1]
        for place, number in product(range(len(_FAMILIES)), range(self.exhaustive)):
            rng = np.random.default_rng([self.seed, 2, place, number])
            job = _new_job(_FAMILIES[place], rng, scales, names, is_short=True)
            plans = list(assignments(job.program))
            yield from job.tasks(f"x{place}{number}", Role.EXHAUSTIVE, plans)


def assignments(program: Program) -> Iterator[Assignment]:
    """Every assignment of the embedded platforms in which a sink runs where its input does."""
    free = [position for position, step in enumerate(program.steps) if not _is_sink(step)]
    able = [supporting(program.steps[position].operation) for position in free]
    for platforms in product(*able):
        placed = dict(zip(free, platforms, strict=True))
        yield tuple(
            placed[step.inputs[0] if _is_sink(step) else position]
            for position, step in enumerate(program.steps)
        )


def rescaled(program: Program, rows: int) -> Program:
    """Return the same program on data sets of another scale."""
    return Program(tuple(replace(s, operation=_at(s.operation, rows)) for s in program.steps))


def _at(operation: AnyOperation, rows: int) -> AnyOperation:
    if not isinstance(operation, ReadParquet):
        return operation
    return replace(operation, dataset=f"{operation.dataset.rpartition('_')[0]}_{rows}")


@dataclass(frozen=True, slots=True)
class _Job:
    """A drawn program, where it comes from, and on how many rows it runs."""

    family: Family
    program: Program
    rows: int

    def at(self, rows: int) -> "_Job":
        return _Job(self.family, rescaled(self.program, rows), rows)

    def tasks(
        self,
        name: str,
        role: Role,
        plans: Iterable[Assignment],
        *,
        memory_bytes: int | None = None,
    ) -> Iterator[MeasurementTask]:
        workload = workload_name(self.program)
        for number, plan in enumerate(dict.fromkeys(plans)):
            yield MeasurementTask(
                f"{name}-{number}", role, self.family, workload, self.rows, self.program, plan,
                threads=1, memory_bytes=memory_bytes, runs=RUNS[role],
            )  # fmt: skip


def _new_job(
    family: Family,
    rng: np.random.Generator,
    scales: Sequence[int],
    names: set[str],
    *,
    is_short: bool = False,
) -> _Job:
    """A job that is not in `names`, and is then."""
    for _ in range(_REDRAWS):
        rows = scales[int(rng.integers(len(scales)))]
        draw = _short_clustering if is_short and family is Family.CREDIT else draw_program
        program = draw(family, rng=rng, rows=rows)
        able = [supporting(step.operation) for step in program.steps if not _is_sink(step)]
        few = FEWEST_ASSIGNMENTS <= math.prod(map(len, able)) <= MOST_ASSIGNMENTS
        if workload_name(program) not in names and (few or not is_short):
            names.add(workload_name(program))
            return _Job(family, program, rows)
    raise ConfigurationError(
        f"no new {family} workload in {_REDRAWS} draws; ask for fewer workloads"
    )


def _short_clustering(family: Family, *, rng: np.random.Generator, rows: int) -> Program:
    """Return what a credit analysis does at its end, on records alone. Whole ones are too long."""
    del family
    columns = ("balance", "days_late")
    records = Draft(rows).read("records", *columns)
    centers = records.then(KMeans(columns, between(rng, 2, 12), between(rng, 3, 15)))
    labelled = records.then(KMeansAssign(columns), centers)
    figures = (count("records"), mean("balance", "mean_balance"))
    return labelled.then(Aggregate(("cluster",), figures)).finish()


def _mixed(program: Program, rng: np.random.Generator, count: int) -> list[Assignment]:
    """Random plans with more than one platform."""
    assignments: list[Assignment] = []
    for _ in range(_REDRAWS):
        if len(assignments) == count:
            break
        plan = draw_platforms(program, rng=rng)
        if len(set(plan)) > 1 and plan not in assignments:
            assignments.append(plan)
    return assignments


def _is_sink(step: Step) -> bool:
    return isinstance(step.operation, Sink)


LARGE_WORKLOADS = 400
_LARGE_ROWS = (3_000_000, SCALES[-1])
"""Most runs take 0.3 to 60 seconds."""


def measuring_settings(
    seed: int, workloads: int | None, platform: str | None, *, quick: bool
) -> MeasuringSettings:
    """Settings of the measured set, or of one platform's alone."""
    alone = platform_of(platform) if platform else None
    full = MeasuringSettings(seed)
    count = workloads or (40 if quick else full.workloads)
    compared = 0 if alone else min(full.comparisons, count // 10)
    most_rows = 100_000 if quick else full.most_rows
    return MeasuringSettings(seed, count, comparisons=compared, most_rows=most_rows, platform=alone)


def capped_settings(
    seed: int, workloads: int | None, cap: Cap, *, quick: bool
) -> MeasuringSettings:
    """Settings under a cap: less than a core per thread. A busy core elsewhere disturbs nothing."""
    settings = measuring_settings(
        seed, workloads or (None if quick else CAPPED_WORKLOADS), None, quick=quick
    )
    return replace(
        settings,
        comparisons=0,
        two_threads_share=0.0,
        disturbed_cores=1.2,
        among=CAPPED_PLATFORMS,
        cap=cap,
    )


def comparison_settings(seed: int, workloads: int | None, *, quick: bool) -> ComparisonSettings:
    """Settings of the comparison set: many plans of each workload."""
    full = ComparisonSettings(seed)
    if not quick:
        return ComparisonSettings(seed, workloads or full.workloads)
    return ComparisonSettings(
        seed, workloads or 12, series=1, exhaustive=1, most_rows=10_000, mixed=1
    )


def training_settings(seed: int, workloads: int | None, *, quick: bool) -> ComparisonSettings:
    """Settings of the training set: no series, and the next seed, so that workloads are others."""
    settings = comparison_settings(seed + 1, workloads, quick=quick)
    return replace(settings, series=0, exhaustive=1 if quick else TRAINING_PROGRAMS)


def large_settings(seed: int, workloads: int | None, *, quick: bool) -> MeasuringSettings:
    """Settings of inputs hundreds of times as large. Each plan runs once, or twice if disturbed."""
    settings = measuring_settings(seed, workloads or LARGE_WORKLOADS, None, quick=quick)
    least, most = _LARGE_ROWS
    return replace(
        settings,
        comparisons=0,
        least_rows=settings.most_rows if quick else least,
        most_rows=settings.most_rows if quick else most,
        small_weight=0.2,
        timeout_seconds=120.0,
        repeats=1,
        among=(Platform.DUCKDB, Platform.POLARS, Platform.PANDAS),
    )
