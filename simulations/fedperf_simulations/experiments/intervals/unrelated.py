"""Unrelated work: one workload that shares neither tables nor application with the query.

Four homes predict workloads that they never ran, before and after 1, 24 or 240 runs of one more
workload came in: a campaign of commands, a job of an engine without queries, a query of the same
engine. The rows give the change of medians and widths. Measured times of the queries are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.prediction import Floats
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.data.datasets import (
    CAMPAIGNS,
    DUCKDB_SESSIONS,
    SPARK_SESSIONS,
    measured_executions,
    measured_files,
)
from fedperf_simulations.experiments.intervals.figures import (
    SITUATION,
    Cases,
    EvaluationPart,
    most_target,
    shipped_model,
    where,
    with_pretrained_model,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

QUERIES, QUICK_QUERIES = 50, 10
DRAWS, QUICK_DRAWS = 3, 1
RUNS = (1, 24, 240)
NOISE_SD = 0.1
"""Standard deviation of repeats of the added workload, log seconds."""

COMMANDS, OTHER_ENGINE, SAME_ENGINE = "commands", "another engine", "the same engine"
ADDED = (COMMANDS, OTHER_ENGINE, SAME_ENGINE)

MOVED, MOST_MOVED, WIDER, MORE_RUNS = "moved, p95", "moved, most", "wider, most", "240 against 24"
LIMITS: Mapping[str, float] = {MOVED: 0.05, MOST_MOVED: 0.15, WIDER: 0.2, MORE_RUNS: 0.05}
"""Shares by which medians may move and intervals grow."""

NOTES = (
    "unrelated work: the pretrained model was trained on these executions; the rows measure "
    "the change of predictions, not their accuracy",
)


@dataclass(frozen=True, slots=True)
class _Home:
    """Executions of a home by the engine that they ran on."""

    spark: int = 0
    duckdb: int = 0
    measured: int = 0


HOMES: Mapping[str, _Home] = {
    "80 Spark queries": _Home(spark=80),
    "100 DuckDB profiles": _Home(duckdb=100),
    "10 of both": _Home(spark=5, duckdb=5),
    "300 of the measured set": _Home(measured=300),
}


def all_cases(settings: Settings) -> list[Row]:
    """Return a row per home, kind of work, draw, number of runs and query."""
    tasks = list(product(HOMES, ADDED))
    cells = computed(partial(_cell, settings), tasks, "homes", jobs=settings.jobs)
    return [row for rows in cells for row in rows]


def _files(_: Path | None) -> list[Path]:
    read = (None, SPARK_SESSIONS, DUCKDB_SESSIONS, CAMPAIGNS)
    return [each for of in read for each in measured_files(of)]


def _cell(settings: Settings, task: tuple[str, str]) -> Cases:
    key = f"unrelated-{'-'.join(task).replace(' ', '-')}"
    return settings.cases(key, partial(_cases, settings, *task))


def _cases(settings: Settings, home: str, kind: str) -> list[Row]:
    rows: list[Row] = []
    most_queries = QUICK_QUERIES if settings.quick else QUERIES
    for draw in range(QUICK_DRAWS if settings.quick else DRAWS):
        rng = np.random.default_rng([settings.seed, draw, list(HOMES).index(home)])
        own, queries, rest = _divided(HOMES[home], most_queries, rng)
        inputs = [PlanOnCluster(each.plan, each.cluster) for each in queries]
        before = _predictions(own, inputs)
        added = _added(kind, own, rest, rng)
        medians: dict[int, Floats] = {}
        for runs in RUNS:
            noise = NOISE_SD * rng.standard_normal(runs)
            medians[runs], widths = _predictions([*own, *_repeated(added, noise, own)], inputs)
            apart = np.abs(medians[runs] - before[0])
            again = np.abs(medians[runs] - medians[RUNS[1]]) if runs == RUNS[-1] else apart * 0
            changes = zip(
                apart.tolist(), (widths - before[1]).tolist(), again.tolist(), strict=True
            )
            about: Row = {"home": home, "added": kind, "draw": draw, "runs": runs}
            rows += [
                {**about, "moved": shift, "wider": wider, "again": more}
                for shift, wider, more in changes
            ]
    return rows


def _predictions(
    executions: Sequence[Execution], inputs: Sequence[PlanOnCluster]
) -> tuple[Floats, Floats]:
    """Return log medians, and logs of the log widths."""
    training = sorted(executions, key=lambda each: each.finished_at)
    predictions = with_pretrained_model(History.from_executions(training), inputs, shipped_model())
    widths = np.log([each.upper_seconds / each.lower_seconds for each in predictions])
    return np.log([each.median_seconds for each in predictions]), np.log(widths)


def _divided(
    home: _Home, queries: int, rng: np.random.Generator
) -> tuple[list[Execution], list[Execution], list[Execution]]:
    """Own executions, queries and all others. No workload is in two of them."""
    counts = {SPARK_SESSIONS: home.spark, DUCKDB_SESSIONS: home.duckdb, None: home.measured}
    parts: tuple[list[Execution], list[Execution], list[Execution]] = ([], [], [])
    for folder, count in counts.items():
        there = [each for each in measured_executions(folder) if each.is_ok] if count else []
        names = list(dict.fromkeys(each.workload for each in there))
        place = dict(zip(rng.permutation(names).tolist(), range(len(names)), strict=True))
        there.sort(key=lambda each: place[each.workload])
        share = queries // sum(each > 0 for each in counts.values())
        for part, most in zip(parts, (count, share, len(there)), strict=True):
            taken = there[:most]
            last = {each.workload for each in taken}
            there = [each for each in there[most:] if each.workload not in last]
            part.extend(taken)
    return parts


def _added(
    kind: str, own: Sequence[Execution], rest: Sequence[Execution], rng: np.random.Generator
) -> list[Execution]:
    """The executions that are repeated. Those of a campaign differ in size and cores."""
    if kind == COMMANDS:
        return list(executions_of(measured_files(CAMPAIGNS)[-1]))
    if kind == SAME_ENGINE:
        return [rest[int(rng.integers(len(rest)))]]
    there = {platform for each in own for platform in each.plan.platforms}
    folder = SPARK_SESSIONS if Platform.SPARK not in there else None
    others = (each for each in measured_executions(folder) if each.is_ok)
    pool = [each for each in others if not there & set(each.plan.platforms)]
    return [pool[int(rng.integers(len(pool)))]]


def _repeated(
    added: Sequence[Execution], noise: Floats, own: Sequence[Execution]
) -> Iterator[Execution]:
    """Yield a run per noise value, all of one workload, after the last own run."""
    last = max(each.finished_at for each in own)
    for place, more in enumerate(noise.tolist()):
        each = added[place % len(added)]
        if each.measurement is not None:
            took = each.measurement.runtime_seconds * float(np.exp(more))
            yield replace(
                each,
                execution_id=f"added-{place}",
                workload="added",
                measurement=replace(each.measurement, runtime_seconds=took),
                finished_at=last + timedelta(hours=place + 1),
            )


def rows_of(cases: Cases) -> list[Row]:
    """Return a row per home and kind of added work, over all numbers of runs, and one per kind."""
    rows: list[Row] = []
    for home, kind in product((*HOMES, "all"), ADDED):
        selection = (
            where(cases, added=kind) if home == "all" else where(cases, added=kind, home=home)
        )
        shift, wider, again = (
            np.expm1([number(each[name]) for each in selection])
            for name in ("moved", "wider", "again")
        )
        rows.append(
            {
                SITUATION: f"unrelated work of {kind}, a home of {home}",
                "asked": len(selection),
                MOVED: float(np.quantile(shift, 0.95)),
                MOST_MOVED: float(shift.max()),
                WIDER: float(wider.max()),
                MORE_RUNS: float(again.max()),
            }
        )
    return rows


def targets_of(_: Cases, rows: Sequence[Row]) -> list[Target]:
    """Return the limits for each kind of work, over all homes."""
    targets = []
    for kind in ADDED:
        situation = f"unrelated work of {kind}, a home of all"
        [row] = where(rows, situation=situation)
        targets += [most_target(f"{situation}: {name}", row, name, m) for name, m in LIMITS.items()]
    return targets


PART = EvaluationPart("unrelated work", _files, all_cases, rows_of, targets_of, NOTES)
