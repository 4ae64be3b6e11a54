"""The workloads of the measured set, which are drawn, and the plans that they run on.

Everything is a function of `MeasuringSettings`, above all of its seed, so that every program can be
made again from the settings that a log begins with. No two workloads have one name, and every plan
can run here. Refused: settings that cannot be met, and more workloads than there are shapes for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedperf_engines.platforms.engine import (
    EMBEDDED_PLATFORMS,
    ENGINES,
    installed_platforms,
    supports,
)
from fedperf_engines.platforms.program import Program
from fedperf_engines.workloads.data import SCALES
from fedperf_engines.workloads.families import (
    Family,
    draw_platforms,
    draw_program,
    single_platforms,
    workload_name,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from fedperf_simulations.corpus.measured_log import MeasurementTask, Role
from fedperf_simulations.corpus.resource_cap import Cap

_SPECIALIST_KINDS = frozenset(
    {OperatorKind.GRAPH_ITERATE, OperatorKind.ML_TRAIN, OperatorKind.ML_PREDICT}
)

MOST_DRAWN_ROWS = 10_000_000
"""Largest inputs of the sets that were measured first. Larger inputs are a set of their own."""

_REDRAWS = 200

# Embeddings came after the shipped set was measured; its draws are a function of the seed.
_FAMILY_CHANCES = {
    Family.WORD_COUNT: 0.05,
    Family.PAGERANK: 0.14,
    Family.CREDIT: 0.17,
    Family.TPCH: 0.2,
    Family.RELATIONAL: 0.44,
}


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """The settings of the draw and of its measurement.

    Attributes:
        seed: of everything that is drawn.
        workloads: distinct programs, each run once on its drawn plan.
        comparisons: of these, how many are also run on every platform for comparison.
        two_threads_share: share of workloads run with two threads instead of one.
        most_rows: size of the largest input.
        least_rows: that of the smallest.
        small_weight: a size is drawn with a chance proportional to size ** -small_weight,
            so 0 draws its logarithm evenly.
        timeout_seconds: of one trial.
        disturbed_cores: interference from which a trial is run again.
        repeats: how often it is run again at most.
        platform: on which every workload runs alone, of those that can; None draws platforms.
        among: platforms that drawn plans have no other than; empty: any.
        cap: which all runs are under, see `capped`; None: the whole machine.
    """

    seed: int
    workloads: int = 6_600
    comparisons: int = 500
    two_threads_share: float = 0.15
    most_rows: int = MOST_DRAWN_ROWS
    least_rows: int = SCALES[0]
    small_weight: float = 0.4
    timeout_seconds: float = 60.0
    disturbed_cores: float = 0.3
    repeats: int = 2
    platform: Platform | None = None
    among: tuple[Platform, ...] = ()
    cap: Cap | None = None

    def __post_init__(self) -> None:
        if not (self.workloads > 0 and 0 <= self.comparisons <= self.workloads):
            raise ConfigurationError(
                f"comparisons must be at most workloads, got {self.comparisons} of {self.workloads}"
            )
        if not 0 <= self.two_threads_share <= 1:
            raise ConfigurationError(
                f"two_threads_share must be in [0, 1], got {self.two_threads_share!r}"
            )
        require_scale(self.most_rows)
        if not self.least_rows <= self.most_rows:
            raise ConfigurationError(
                f"least_rows must be at most {self.most_rows}, got {self.least_rows!r}"
            )
        if not 0 <= self.small_weight < math.inf:
            raise ConfigurationError(f"small_weight must be at least 0, got {self.small_weight!r}")

    def tasks(self) -> tuple[MeasurementTask, ...]:
        """Return all runs, a function of the settings. No two workloads have the same name."""
        compared = set(
            np.random.default_rng([self.seed, 0])
            .choice(self.workloads, self.comparisons, replace=False)
            .tolist()
        )
        names: set[str] = set()
        tasks: list[MeasurementTask] = []
        for number in range(self.workloads):
            task = _draw(self, number, names)
            names.add(task.workload)
            tasks.append(task)
            if number in compared:
                tasks.extend(_comparisons(task))
        return tuple(tasks)


def require_scale(most_rows: int) -> None:
    """Refuse a size that data sets do not come in."""
    if most_rows not in SCALES:
        raise ConfigurationError(
            f"most_rows must be one of {', '.join(map(str, SCALES))}, got {most_rows!r}"
        )


def comparison_plans(program: Program) -> tuple[tuple[Platform, ...], ...]:
    """Every embedded platform alone, and each with scikit-learn for the iterative operators."""
    steps, platforms = len(program.steps), installed_platforms(EMBEDDED_PLATFORMS)
    plans = [(p,) * steps for p in platforms if p in single_platforms(program)]
    for platform in platforms:
        mixed = tuple(
            Platform.SKLEARN
            if step.operation.kind in _SPECIALIST_KINDS
            and supports(step.operation, Platform.SKLEARN)
            else platform
            for step in program.steps
        )
        runs = all(supports(s.operation, p) for s, p in zip(program.steps, mixed, strict=True))
        if runs and mixed not in plans:
            plans.append(mixed)
    return tuple(plans)


def _draw(settings: MeasuringSettings, number: int, taken: set[str]) -> MeasurementTask:
    rng = np.random.default_rng([settings.seed, 2, number])
    threads = 2 if rng.random() < settings.two_threads_share else 1
    family = _draw_family(rng)
    for redraw in range(_REDRAWS):
        if redraw > _REDRAWS // 4:
            family = Family.RELATIONAL  # the family that drew first has no more shapes to give
        rows = _draw_rows(rng, settings)
        program = draw_program(family, rng=rng, rows=rows)
        name = workload_name(program)
        if name in taken or settings.platform not in {None, *single_platforms(program, ENGINES)}:
            continue
        platforms = (
            draw_platforms(program, rng=rng)
            if settings.platform is None
            else (settings.platform,) * len(program.steps)
        )
        if settings.among and not {*platforms} <= {*settings.among}:
            continue
        memory = settings.cap.memory_bytes if settings.cap else None
        return MeasurementTask(
            task_id=f"{number:05d}",
            role=Role.DRAWN,
            family=family,
            workload=name,
            rows=rows,
            program=program,
            platforms=platforms,
            threads=threads,
            memory_bytes=memory,
        )
    raise ConfigurationError(
        f"no new workload in {_REDRAWS} draws after {number}; ask for fewer workloads"
    )


def _draw_family(rng: np.random.Generator) -> Family:
    chances = list(_FAMILY_CHANCES.values())
    return list(_FAMILY_CHANCES)[int(rng.choice(len(chances), p=chances))]


def _draw_rows(rng: np.random.Generator, settings: MeasuringSettings) -> int:
    scales = [each for each in SCALES if settings.least_rows <= each <= settings.most_rows]
    chances = np.array(scales, dtype=np.float64) ** -settings.small_weight
    return scales[int(rng.choice(len(scales), p=chances / chances.sum()))]


def _comparisons(task: MeasurementTask) -> Iterator[MeasurementTask]:
    for letter, plan in zip("abcdefghijklm", comparison_plans(task.program), strict=False):
        if plan != task.platforms:
            yield MeasurementTask(
                f"{task.task_id}{letter}",
                Role.COMPARISON,
                task.family,
                task.workload,
                task.rows,
                task.program,
                plan,
                task.threads,
                task.memory_bytes,
            )
