"""Measures the cost of a data directory of a given size: filling it, fitting to it, and predicting.

Usage: python -m fedperf_simulations.experiments.store.measurement EXECUTIONS NEW [SEED]

The program prints JSON. CPU seconds are user and system time of all processes of a command, startup
and imports included; megabytes are the peak of the largest. Generating the executions is not
counted. A warm prediction is one query to a fitted predictor. The query is a new workload, a stored
workload on other cores, or a repetition.

The executions are made up, so that a store can have any size. A workload is a random workflow on
one platform, run with another size each time. Run times follow its size and cores, a level of its
own, and chance. Everything follows from the seed and the number of the execution.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np
import orjson

from fedperf_client.home.config import Home, write_private
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import home_encoder
from fedperf_client.prediction.ensemble.predictor import PersonalizedEnsemble
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.serving.predictor_cache import load_or_fit
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    Measurement,
    PlanOnCluster,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

PER_WORKLOAD = 10
OPERATORS = (6, 22)
"""The fewest and the most of a workflow, 14 on average."""

PLATFORMS = (Platform.SPARK, Platform.SPARK, Platform.DUCKDB, Platform.POLARS)
CORES = (4, 8, 16, 32)
KINDS = (
    (OperatorKind.TABLE_SOURCE, OperatorKind.FILE_SOURCE),
    (OperatorKind.FILTER, OperatorKind.MAP, OperatorKind.AGGREGATE, OperatorKind.SORT),
    (OperatorKind.JOIN, OperatorKind.UNION),
)
"""Kinds of operators by number of parents."""

REACH = 4
"""An operator reads one of the last so many."""

LOG_ROWS = (7.0, 15.0)
LEVEL_SD, CHANCE_SD = 0.5, 0.1
"""Standard deviations of workloads and of executions, log seconds."""

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
APART = timedelta(seconds=20)


def made_up(seed: int, begin: int, end: int) -> Iterator[Execution]:
    """The executions of these numbers. Ten in a row share a workload, in any order of time."""
    for workload in range(begin // PER_WORKLOAD, -(-end // PER_WORKLOAD)):
        rng = np.random.default_rng([seed, workload])
        for number, execution in enumerate(_of_workload(rng, workload)):
            if begin <= workload * PER_WORKLOAD + number < end:
                yield execution


def _of_workload(rng: np.random.Generator, workload: int) -> Iterator[Execution]:
    operators = _operators(rng)
    platforms = (PLATFORMS[int(rng.integers(len(PLATFORMS)))],) * len(operators)
    cores = CORES[int(rng.integers(len(CORES)))]
    cluster = ClusterConfig(1, cores, cores * 4 * 2**30)
    level = rng.normal(-9.0, LEVEL_SD)
    for number in range(PER_WORKLOAD):
        factor = float(np.exp(rng.normal(0.0, 0.5)))
        sized = tuple(replace(each, output_rows=each.output_rows * factor) for each in operators)
        plan = Plan(Workflow(sized), platforms)
        work = sum(each.output_rows for each in sized) / cores**0.7
        seconds = float(np.exp(level + 0.8 * np.log1p(work) + rng.normal(0.0, CHANCE_SD)))
        place = workload * PER_WORKLOAD + number
        yield Execution(
            execution_id=f"made-up-{place:08d}",
            workload=f"workload-{workload:07d}",
            plan=plan,
            cluster=cluster,
            status=ExecutionStatus.OK,
            measurement=Measurement(seconds, seconds * cores),
            finished_at=BEGIN + place * APART,
        )


def _operators(rng: np.random.Generator) -> list[Operator]:
    """Return operators of a query-like workflow: sources, unary and binary operators."""
    count = int(rng.integers(OPERATORS[0], OPERATORS[1] + 1))
    placed: list[Operator] = []
    for position in range(count):
        near = list(range(max(position - REACH, 0), position))
        parents = min(int(rng.choice(3, p=(0.2, 0.6, 0.2))), len(near))
        inputs = tuple(rng.choice(near, parents, replace=False).tolist()) if parents else ()
        kinds = KINDS[len(inputs)]
        placed.append(
            Operator(
                kinds[int(rng.integers(len(kinds)))],
                OperatorClass.RELATIONAL,
                inputs,
                float(np.exp(rng.uniform(*LOG_ROWS))),
                float(rng.integers(8, 200)),
            )
        )
    return placed


WARM_QUERIES = 200
OTHER_CORES = 12
"""A number of cores without executions, between numbers with executions."""

_BATCH = 100
_MEGABYTE = 1024
"""Kilobytes, the kernel's unit of peaks."""


def measured(size: int, new: int, seed: int = 0) -> dict[str, float]:
    """Return the figures of one home, by name.

    Args:
        size: executions of the first training.
        new: executions that are added then.
        seed: of the executions.
    """
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        home.create("")
        figures = {"ingest_ms": 1e3 * _fill(home, made_up(seed, 0, size)) / size}
        figures |= _command("first_predict", home, *_newest(home))
        _fill(home, made_up(seed, size, size + new))
        figures["store_bytes"] = home.store.stat().st_size / (size + new)
        figures |= _command("predict", home, *_newest(home))
        figures |= _command("second_predict", home, *_newest(home))
        figures |= _command("drift", home, "drift")
        figures |= _command("gain", home, "evaluate")
        figures |= _warm(home, seed, size + new)
    return figures


def _fill(home: Home, executions: Iterator[Execution]) -> float:
    """Take them in. CPU seconds."""
    taken, encoder = 0.0, home_encoder()
    encoder.encode([])  # reads the pretrained model once
    with ExecutionStore.open(home.store) as store:
        while batch := list(islice(executions, _BATCH)):
            before = time.process_time()
            store.add(batch, encoder)
            taken += time.process_time() - before
    return taken


def _newest(home: Home) -> tuple[str, ...]:
    """Return a query for the newest job, on other cores."""
    with ExecutionStore.open(home.store) as store:
        [newest] = store.newest(1)
    return "predict", "--execution", newest.execution_id, "--cores", "4,8,12"


def _command(name: str, home: Home, *arguments: str) -> dict[str, float]:
    program = (sys.executable, "-c", "from fedperf_client.cli import main; main()")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [*program, "--home", str(home.directory), *arguments, "--json"],
        stdout=subprocess.DEVNULL,
        env=os.environ,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"fedperf {' '.join(arguments)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {f"{name}_cpu_seconds": seconds, f"{name}_megabytes": used.ru_maxrss / _MEGABYTE}


def _warm(home: Home, seed: int, stored: int) -> dict[str, float]:
    """CPU milliseconds of one query, the medians."""
    with ExecutionStore.open(home.store) as store:
        ensemble = load_or_fit(home.predictor, store, FetchedModels(home.models))
    executions = made_up(seed, max(0, stored - WARM_QUERIES * PER_WORKLOAD), stored)
    queries = [_query(each, OTHER_CORES) for each in islice(executions, 0, None, PER_WORKLOAD)]
    unseen = made_up(seed, stored, stored + WARM_QUERIES)
    new = [_query(each, each.cluster.cores) for each in unseen]
    _query_ms(ensemble.predictor, new[:1])
    ensemble.save(write_private)
    return {
        "warm_ms": _query_ms(ensemble.predictor, new[1:]),
        "warm_known_ms": _query_ms(ensemble.predictor, queries),
        "warm_again_ms": _query_ms(ensemble.predictor, queries),
    }


def _query(execution: Execution, cores: int) -> PlanOnCluster:
    return PlanOnCluster(execution.plan, replace(execution.cluster, cores=cores))


def _query_ms(predictor: PersonalizedEnsemble, queries: Sequence[PlanOnCluster]) -> float:
    """CPU milliseconds of each, the median."""
    taken = []
    for each in queries:
        same = PlanOnCluster(each.plan, each.cluster)  # without computed features
        before = time.process_time()
        predictor.predict([same])
        taken.append(time.process_time() - before)
    return 1e3 * float(np.median(taken))


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:]]
    sys.stdout.buffer.write(orjson.dumps(measured(*sizes), option=orjson.OPT_INDENT_2))
