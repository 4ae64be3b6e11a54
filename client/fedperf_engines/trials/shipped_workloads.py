"""Profile workloads that ship with fedperf: executions for an organization that has none yet.

What runs is drawn from a seed, so the same command on two machines measures the same
jobs. Every execution is stored as soon as it is there, failed ones too.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from fedperf_client.home.store import ExecutionStore
from fedperf_client.workers.machine import available_memory_bytes, cluster_config
from fedperf_engines.platforms.program import Program
from fedperf_engines.trials.profiler import (
    Profiler,
    TrialLimits,
    UncountableProgramError,
    WorkerKey,
    WorkerPool,
)
from fedperf_engines.workloads.data import SCALES, prepare
from fedperf_engines.workloads.families import Family, draw_platforms, draw_program, workload_name
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform

TIMEOUT_SECONDS = 60.0
_MEMORY_SHARE = 0.7
_CHILDREN = 16  # there are 15 sets of four engines; each set has a child of its own


def profile_shipped(
    store: ExecutionStore,
    *,
    data_directory: Path,
    count: int,
    families: Sequence[str],
    max_rows: int,
    threads: int,
    seed: int,
    clock: Callable[[], datetime],
    on_progress: Callable[[], None],
) -> dict[str, int]:
    """Run `count` drawn programs on drawn platforms; executions by status.

    Raises:
        InvalidInputError: a family does not exist, or `max_rows` is below the smallest data set.
    """
    runs = list(draw(count, families=families, max_rows=max_rows, seed=seed))
    runs.sort(
        key=lambda run: tuple(sorted(set(run[1])))
    )  # children start rarely when runs of the same engines follow
    prepare(sorted({name for program, _ in runs for name in program.datasets}), data_directory)
    cluster = cluster_config(threads)
    limits = TrialLimits(TIMEOUT_SECONDS, int(available_memory_bytes() * _MEMORY_SHARE))
    statuses: Counter[str] = Counter()
    with WorkerPool(max_workers=_CHILDREN) as pool:
        pool.warm(
            [WorkerKey(frozenset(), 1), *(WorkerKey(frozenset(run[1]), threads) for run in runs)]
        )
        profiler = Profiler(
            pool,
            data_directory=data_directory,
            limits=limits,
            clock=clock,
            new_id=lambda: uuid.uuid4().hex,
        )
        for program, platforms in runs:
            try:
                execution = profiler.profile(
                    program, platforms, cluster, workload=workload_name(program)
                )
            except UncountableProgramError:
                statuses["uncountable"] += 1
            else:
                store.add([execution])
                statuses[execution.status.name.lower()] += 1
            on_progress()
    return dict(statuses)


def draw(
    count: int, *, families: Sequence[str], max_rows: int, seed: int
) -> Iterator[tuple[Program, tuple[Platform, ...]]]:
    """Yield programs with platforms, a function of the arguments; errors as `profile_shipped`."""
    candidates = [_family(name) for name in families] or list(Family)
    scales = [scale for scale in SCALES if scale <= max_rows]
    if not scales:
        raise InvalidInputError(f"max rows must be at least {SCALES[0]}, got {max_rows}")
    rng = np.random.default_rng([seed, 7])
    for _ in range(count):
        family = candidates[int(rng.integers(len(candidates)))]
        program = draw_program(family, rng=rng, rows=scales[int(rng.integers(len(scales)))])
        yield program, draw_platforms(program, rng=rng)


def _family(name: str) -> Family:
    try:
        return Family(name)
    except ValueError:
        raise InvalidInputError(f"no family {name!r}; known are {', '.join(Family)}") from None
