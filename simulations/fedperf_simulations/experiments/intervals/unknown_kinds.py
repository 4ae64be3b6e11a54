"""An unknown kind: homes that predict a platform that they never ran.

Eight homes hold own executions of other platforms: Spark sessions, profiles of DuckDB, jobs of
Polars and pandas, a campaign of 40 runs, and a mixture. Each predicts 50 executions of one
platform, with its own executions and with the pretrained model alone. Runs of other kinds must not
make the pretrained model's predictions worse. Homes and queries are of the project's own
measurements. Queries on Spark are of the judged session, as the pretrained model has seen all
others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedperf_client.prediction.encoding import History
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH, queries_with
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.sql.session_set import session_of
from fedperf_simulations.data.datasets import (
    CAMPAIGNS,
    DUCKDB_SESSIONS,
    HELD_OUT_SESSIONS,
    SPARK_SESSIONS,
    measured_executions,
    measured_files,
)
from fedperf_simulations.experiments.intervals.figures import (
    INFORMATION,
    NOTHING,
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    ends,
    exponentials,
    figures,
    labels,
    least_target,
    log_q,
    most_target,
    shipped_model,
    where,
    with_pretrained_model,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

QUERIES, QUICK_QUERIES = 50, 10
DRAWS, QUICK_DRAWS = 3, 1
"""Draws of each home and its queries."""

PRETRAINED_ALONE, TIMES = "the start alone", "times the start"
MOST_TIMES, LEAST_COVERED = 1.10, 0.85

Item = TypeVar("Item")

HOLD = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
UNSEEN = (WorkloadPart.VALIDATION, WorkloadPart.TEST)
"""The parts whose jobs homes hold, and parts that the pretrained model was not trained on."""

CAMPAIGN_FILE, CAMPAIGN_RUNS = "nightly_again", 40


@dataclass(frozen=True, slots=True)
class HomeKind:
    """The contents of a home, and its queries.

    Attributes:
        query_platform: the platform that it never ran.
        sessions: of Spark.
        profiles: of queries on DuckDB.
        jobs: executions of other platforms.
        campaign: whether it holds the campaign.
    """

    query_platform: Platform
    sessions: int = 0
    profiles: int = 0
    jobs: Mapping[Platform, int] | None = None
    campaign: bool = False


HOMES: Mapping[str, HomeKind] = {
    "3 Spark logs": HomeKind(Platform.POLARS, sessions=3),
    "30 Spark logs": HomeKind(Platform.DUCKDB, sessions=30),
    "12 DuckDB profiles": HomeKind(Platform.POLARS, profiles=12),
    "100 DuckDB profiles": HomeKind(Platform.PANDAS, profiles=100),
    "12 Polars jobs": HomeKind(Platform.DUCKDB, jobs={Platform.POLARS: 12}),
    "12 pandas jobs": HomeKind(Platform.SPARK, jobs={Platform.PANDAS: 12}),
    "a campaign of 40 runs": HomeKind(Platform.POLARS, campaign=True),
    "a mixture": HomeKind(
        Platform.PANDAS,
        sessions=3,
        profiles=12,
        jobs={Platform.POLARS: 12},
        campaign=True,
    ),
}

NOTES = (
    "unknown kinds: queries are of parts of the measured set that the pretrained model was not "
    "trained on, those on Spark of the judged session",
)


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


@cache
def _spark() -> tuple[Execution, ...]:
    return tuple(each for each in measured_executions(SPARK_SESSIONS) if each.is_ok)


@cache
def _profiles() -> tuple[Execution, ...]:
    return tuple(each for each in measured_executions(DUCKDB_SESSIONS) if each.is_ok)


@cache
def _held_out_on_spark() -> tuple[Execution, ...]:
    there = measured_executions(HELD_OUT_SESSIONS)
    return tuple(each for each in there if _is_on(each, Platform.SPARK))


def all_cases(settings: Settings) -> list[Row]:
    """Return a row per home, draw, execution, predictor and information."""
    _files(settings.data)
    cells = computed(partial(_cell, settings), list(HOMES), "homes", jobs=settings.jobs)
    return [row for rows in cells for row in rows]


def _files(_: Path | None) -> list[Path]:
    read = (None, SPARK_SESSIONS, DUCKDB_SESSIONS, HELD_OUT_SESSIONS, CAMPAIGNS)
    return [each for of in read for each in measured_files(of)]


def _cell(settings: Settings, name: str) -> Cases:
    key = f"unknown-kind-{name.replace(' ', '-')}"
    return settings.cases(key, partial(_cases, settings, name))


def _cases(settings: Settings, name: str) -> list[Row]:
    rows: list[Row] = []
    pretrained, most = shipped_model(), QUICK_QUERIES if settings.quick else QUERIES
    for draw in range(QUICK_DRAWS if settings.quick else DRAWS):
        rng = np.random.default_rng([settings.seed, draw, list(HOMES).index(name)])
        held = list(_held(HOMES[name], rng))
        queries = some(_platform_executions(HOMES[name].query_platform), most, rng)
        plans = [PlanOnCluster(each.plan, each.cluster) for each in queries]
        for information in BOTH:
            inputs = queries_with(plans, information)
            homes = {OURS: History.from_executions(held), PRETRAINED_ALONE: NOTHING}
            for who, home in homes.items():
                predictions = with_pretrained_model(home, inputs, pretrained, seed=settings.seed)
                rows += [
                    PredictionLabel(situation(name), who, each.workload, information).predicted(
                        each.runtime_seconds, prediction, draw=draw
                    )
                    for each, prediction in zip(queries, predictions, strict=True)
                ]
    return rows


def situation(name: str) -> str:
    """Return the situation: the contents of a home, and its query platform."""
    return f"a home of {name}, asked about {HOMES[name].query_platform.name.lower()}"


def _held(home: HomeKind, rng: np.random.Generator) -> Iterator[Execution]:
    """Executions of a home, in the order of the sets that they come from."""
    if home.sessions:
        names = list(dict.fromkeys(session_of(each) for each in _spark()))
        sessions = set(some(names, home.sessions, rng))
        yield from (each for each in _spark() if session_of(each) in sessions)
    yield from some(_profiles(), home.profiles, rng) if home.profiles else ()
    for platform, count in (home.jobs or {}).items():
        there = [each for part in HOLD for each in _parts()[part] if _is_on(each, platform)]
        yield from some(there, count, rng)
    if home.campaign:
        [path] = [each for each in measured_files(CAMPAIGNS) if each.stem == CAMPAIGN_FILE]
        yield from sorted(executions_of(path), key=lambda each: each.finished_at)[:CAMPAIGN_RUNS]


def _platform_executions(platform: Platform) -> list[Execution]:
    if platform is Platform.SPARK:
        return list(_held_out_on_spark())
    there = (each for part in UNSEEN for each in _parts()[part])
    return [each for each in there if _is_on(each, platform)]


def _is_on(execution: Execution, platform: Platform) -> bool:
    return execution.is_ok and set(execution.plan.platforms) == {platform}


def some(of: Sequence[Item], count: int, rng: np.random.Generator) -> list[Item]:
    """Random `count` of them, or all, in their order."""
    return [of[place] for place in np.sort(rng.permutation(len(of))[:count]).tolist()]


def rows_of(cases: Cases) -> list[Row]:
    """Figures of each home and information, and ours over the pretrained model's own."""
    rows = []
    for (of, name, information), group in by(cases, SITUATION, PREDICTOR, INFORMATION).items():
        row = figures(group)
        if name == OURS:
            pretrained = where(
                cases, situation=of, predictor=PRETRAINED_ALONE, information=information
            )
            change = PairedComparison.by_groups(
                log_q(group), log_q(pretrained), groups=labels(group)
            )
            ours, public = (float(np.median(log_q(each))) for each in (group, pretrained))
            row = {
                **row,
                TIMES: float(np.exp(ours - public)),
                "mean, times": float(np.exp(change.mean)),
            }
            row = {**row, **ends("mean, times", exponentials(change.interval))}
        rows.append(row)
    return rows


def targets_of(_: Cases, rows: Sequence[Row]) -> list[Target]:
    """Return the targets for each home, with the rows that a run counted."""
    targets = []
    for name in HOMES:
        of = situation(name)
        [row] = where(rows, situation=of, predictor=OURS, information=ACTUAL)
        what = f"{of}: median q-error over the start's own"
        targets.append(most_target(what, row, TIMES, MOST_TIMES))
        targets.append(least_target(f"{of}: covered", row, "covered", LEAST_COVERED))
    return targets


PART = EvaluationPart("unknown kinds", _files, all_cases, rows_of, targets_of, NOTES)
