"""Benchmark: the cost of a home that grows from 1,000 to 1,000,000 executions.

The cost is that of ingestion, of training and of prediction. Executions are made up, ten of a
workload, 14 operators on average, all of other sizes. Predictors are trained on a home of a size
for the first time. Then 1,000 new executions are added, and `predict`, `drift` and `gain` run, each
as a program of its own. Every size is a cell, so that a run of hours goes on where it was
interrupted.
"""

import os
import subprocess
import sys
from functools import partial

import orjson

from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (200,)
NEW, QUICK_NEW = 1_000, 50

MOST_INGEST_MS = 0.7
MOST_WARM_MS = 1.0
MOST_CPU_SECONDS = {
    100_000: {"predict": 5.0, "drift": 10.0, "gain": 60.0},
    1_000_000: {"predict": 20.0, "drift": 60.0, "gain": 300.0},
}
MOST_MEGABYTES = {100_000: 500.0, 1_000_000: 1000.0}
FIRST_TIME = 3.0
"""Times as much may learning for the first time take."""


class StoreBenchmark:
    """The benchmark."""

    name = "store"
    claim = "an answer after 1,000 new executions takes 5 CPU seconds at 100,000, 20 at 1,000,000"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return a row per size."""
        sizes, new = (QUICK_SIZES, QUICK_NEW) if settings.quick else (SIZES, NEW)
        rows = [
            settings.cell(f"home-{size}", partial(_measured, size, new, settings.seed))
            for size in sizes
        ]
        return ExperimentOutcome(rows, [each for row in rows for each in _targets(row)], cases=rows)


def _measured(size: int, new: int, seed: int) -> Row:
    """Measure in a process of its own, so that no other size counts."""
    command = [sys.executable, "-m", "fedperf_simulations.experiments.store.measurement"]
    numbers = [str(size), str(new), str(seed)]
    result = subprocess.run(
        [*command, *numbers], check=True, stdout=subprocess.PIPE, env=os.environ
    )
    return {"executions": size, "new": new, **orjson.loads(result.stdout)}


def _targets(row: Row) -> list[Target]:
    """Return what was promised of a home of that size."""
    size = int(str(row["executions"]))

    def value(name: str) -> float:
        return float(str(row[name]))

    of = f"{size:,} executions: "
    targets = [
        Target(f"{of}CPU ms to take one in", MOST_INGEST_MS, value("ingest_ms")),
        Target(f"{of}CPU ms of a warm answer, new workload", MOST_WARM_MS, value("warm_ms")),
        Target(f"{of}CPU ms of a warm answer, new cores", MOST_WARM_MS, value("warm_known_ms")),
        Target(f"{of}CPU ms of the same answer again", MOST_WARM_MS, value("warm_again_ms")),
    ]
    for count, most in MOST_CPU_SECONDS.get(size, {}).items():
        targets += [
            Target(f"{of}CPU s of {count}", most, value(f"{count}_cpu_seconds")),
            Target(f"{of}MB of {count}", MOST_MEGABYTES[size], value(f"{count}_megabytes")),
        ]
        if count == "predict":
            first = value("first_predict_cpu_seconds")
            targets.append(Target(f"{of}CPU s of {count}, first time", FIRST_TIME * most, first))
    return targets


EXPERIMENT = StoreBenchmark()
