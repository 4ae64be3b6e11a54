"""A thousand organizations learn together for a year, on one machine.

One in ten is large (2,500 workloads, reports and model updates), the others are small (800,
reports). All draw their workloads from one pool of measured plans and run them in every window of
the default calendar, which runs in memory: the product's coordinator, participants, gates, ledgers,
receipts and controllers (`federation.memory_federation`).

Values that several members share are computed once: a plan's contribution to a model or a query,
the directions of a query, the two schedules, and the files of fetched models. So the members' time
is less than theirs together; the coordinator's is its own. Seconds and CPU minutes are of the
processor, in one thread; minutes are wall time, on a machine with any load.

The year has no use for several processes, rounds do: one row lives three of them twice, in memory
and with `flwr run` on Flower's simulation engine, and compares the candidates bit by bit.

The year begins with the limited pretrained model, which was trained on the public part of the
measured set alone. Errors are medians of the version in force on held-out plans.

What more organizations would cost is projected: a line through what the sizes took (`_on_line`).
One row checks that, of the largest size from the smaller ones. `docs/scale.md` reads the rows.
"""

import resource
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import numpy as np

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_memory.histories import HistoryCompute, SharedContributions
from fedperf_memory.memory_federation import (
    HOST,
    Clock,
    Federation,
    NewMember,
    Side,
    directory_in_memory,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.state import registry
from fedperf_shared.model.architecture import weights_of
from fedperf_shared.model.metrics import q_error
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.releases.release import ReleaseKind, SizeClass
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import WorkloadPart, one_per_workload, split
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.federation.federated_year import promoted_model
from fedperf_simulations.federation.flower_app import EngineTraining, engine_candidates
from fedperf_simulations.federation.linearized_training import MeasuredHistory
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.model.fit import predict

TENTH, WHOLE = 100, 1000
SIZES, QUICK_SIZES = (10, TENTH, WHOLE), (10,)
LARGE_SHARE = 10
"""One of so many is large."""

LARGE, SMALL, POOL, HELD_OUT = 2500, 800, 4000, 300
QUICK_SHARE, QUICK_WINDOWS, QUICK_ROUNDS = 25, 2, 1
"""A quick run has one of so many workloads and anchors, so many windows, and rounds in each."""

ON_ENGINE, QUICK_ON_ENGINE = 100, 2
"""Members of the rounds on Flower's engine."""
ENGINE_WORKLOADS, QUICK_PLANS = 200, 40

PROJECTED = (10_000, 100_000)
MEASURED = "measured"
ENGINE = "rounds on Flower's engine"
DIFFER = "candidates that differ from those in memory"
BYTES = "bytes per organization"
COORDINATOR = "coordinator, CPU s"
PER_ORGANIZATION = "coordinator, CPU s per organization"
PEAK, DATABASE = "peak GB", "coordinator's database, GB"
LINES = (COORDINATOR, PEAK, DATABASE)
"""Figures that are projected by a line."""

MOST_MINUTES, MOST_GIGABYTES, MOST_GROWTH = 60.0, 6.0, 1.2
START = datetime(2027, 1, 4, tzinfo=UTC)
NOT_IN_THE_POOL = (WorkloadPart.PUBLIC, WorkloadPart.VALIDATION, WorkloadPart.TEST)


class Scale:
    """The experiment."""

    name = "scale"
    claim = "a thousand organizations for a year: the coordinator's work grows as they do"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per size, each a cell."""
        sizes = QUICK_SIZES if settings.quick else SIZES
        engine = settings.cell("engine", partial(_rounds_on_engine, settings))
        rows = [settings.cell(f"year-{size}", partial(_year, settings, size)) for size in sizes]
        files = [*measured_files(), *measured_files("polars")]
        same = Target(f"{DIFFER}, {engine['organizations']} members", 0.0, number(engine[DIFFER]))
        return ExperimentOutcome(
            [*rows, *_projections(rows), engine], [*_targets(rows), same], files
        )


@dataclass(frozen=True, slots=True)
class _Workloads:
    """The pool of the organizations, and held-out queries."""

    pool: Sequence[LabelledGraph]
    queries: Sequence[LabelledGraph]


@cache
def _workloads(seed: int) -> _Workloads:
    parts = split(measured_executions())
    executions = [e for part in WorkloadPart if part not in NOT_IN_THE_POOL for e in parts[part]]
    names = {each.workload for part in NOT_IN_THE_POOL for each in parts[part]}
    polars = [e for e in measured_executions("polars") if e.workload not in names]
    labelled = label_executions(
        one_per_workload(each for each in (*executions, *polars) if each.is_ok)
    )
    order = np.random.default_rng([seed, 0]).permutation(len(labelled))[: POOL + HELD_OUT].tolist()
    sample = [labelled[place] for place in order]
    return _Workloads(sample[HELD_OUT:], sample[:HELD_OUT])


@cache
def _planned(size_class: SizeClass, workloads: int, *, quick: bool) -> PlannedSchedule:
    policy = Policy(
        size_class=size_class, nominal_workloads=workloads, workloads_per_window=workloads
    )
    table = default_calendar(START)
    if quick:
        table = replace(
            table,
            period=replace(table.period, windows=QUICK_WINDOWS),
            model_slots=table.model_slots[:QUICK_ROUNDS],
            extra_slots=(),
            extra_windows=0,
        )
    return plan_schedule(policy, table)


def _year(settings: Settings, size: int) -> Row:
    began, used = time.monotonic(), time.process_time()
    clock, shared = Clock(START), SharedContributions()
    anchors = anchors_of(load_public_plans())[:: QUICK_SHARE if settings.quick else 1]
    task = replace(
        ggfn_task(),
        pretrained=weights_of(load_limited_model().arrays),
        strategy=LinearizedAvg([featurize(each.plan, each.cluster) for each in anchors]),
    )
    with directory_in_memory() as place:
        new_participants = [
            replace(
                _new_participant(settings, number, shared, clock, place / "models"), anchors=anchors
            )
            for number in range(size)
        ]
        table = new_participants[0].schedule.calendar
        config = ServerConfig(place / "coordinator", HOST, table)
        with memory_federation(config, task, new_participants, clock=clock) as federation:
            before = _error(federation, settings.seed)
            federation.live(table.period.end)
            return {
                "organizations": size,
                "figures": MEASURED,
                "windows": table.period.windows,
                **_released(federation),
                "median q-error at the start": before,
                "median q-error at the end": _error(federation, settings.seed),
                **_cost(federation, size),
                "minutes": (time.monotonic() - began) / 60,
                "CPU minutes": (time.process_time() - used) / 60,
                PEAK: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
                DATABASE: _gigabytes(config.directory),
                "members' files, GB": _gigabytes(place) - _gigabytes(config.directory),
            }


def _new_participant(
    settings: Settings, number: int, shared: SharedContributions, clock: Clock, models: Path
) -> NewMember:
    is_large, quick = number % LARGE_SHARE == 0, settings.quick
    workloads = (LARGE if is_large else SMALL) // (QUICK_SHARE if quick else 1)
    pool = _workloads(settings.seed).pool
    rng = np.random.default_rng([settings.seed, 1, number])
    mine = [pool[place] for place in rng.permutation(len(pool))[:workloads].tolist()]
    declared = LARGE if is_large else SMALL
    planned = _planned(SizeClass.LARGE if is_large else SizeClass.SMALL, declared, quick=quick)
    return NewMember(
        f"organization-{number}",
        planned.budget,
        planned.schedule,
        noise_of([settings.seed, 2], number),
        HistoryCompute(MeasuredHistory(tuple(mine)), shared, clock),
        models=models,
    )


def _rounds_on_engine(settings: Settings) -> Row:
    """Raises EngineError where Ray is not installed, or the engine came to nothing."""
    members = QUICK_ON_ENGINE if settings.quick else ON_ENGINE
    workloads = ENGINE_WORKLOADS // (QUICK_SHARE if settings.quick else 1)
    plans = QUICK_PLANS if settings.quick else 0
    what = EngineTraining(workloads=workloads, plans=plans, seed=settings.seed)
    began = time.monotonic()
    expected = what.training().candidates([what.history(number) for number in range(members)])
    lived_in_memory = time.monotonic()
    place = settings.out / f"engine-{settings.variant}"
    shutil.rmtree(place, ignore_errors=True)
    candidates = engine_candidates(what, members=members, place=place)
    pairs = zip(candidates, expected, strict=True)
    return {
        "organizations": members,
        "figures": ENGINE,
        "rounds": len(candidates),
        DIFFER: sum(not all(map(np.array_equal, one, other)) for one, other in pairs),
        "minutes": (time.monotonic() - lived_in_memory) / 60,
        "minutes in memory": (lived_in_memory - began) / 60,
    }


def _released(federation: Federation) -> Row:
    """Return what left the organizations, in means over them."""
    entries = [each.ledger.entries() for each in federation.members]
    size, end = len(entries), federation.config.calendar.period.end
    reports = sum(e.key.kind is ReleaseKind.RESIDUAL_REPORT for own in entries for e in own)
    return {
        "reports": reports / size,
        "updates": sum(map(len, entries)) / size - reports / size,
        "most epsilon": max(each.ledger.spent(end) for each in federation.members[:LARGE_SHARE]),
        BYTES: sum(e.payload_bytes for own in entries for e in own) / size,
        "promoted": _versions(federation),
    }


def _versions(federation: Federation) -> int:
    with federation.database.transaction() as session:
        return sum(each.promoted for each in registry.versions(session))


def _cost(federation: Federation, size: int) -> Row:
    seconds = federation.meter.seconds
    return {
        COORDINATOR: seconds[Side.COORDINATOR],
        PER_ORGANIZATION: seconds[Side.COORDINATOR] / size,
        "members, CPU s per organization": seconds[Side.MEMBERS] / size,
    }


def _gigabytes(directory: Path) -> float:
    """Return the size of all files below it."""
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file()) / 2**30


def _error(federation: Federation, seed: int) -> float:
    """Return the median q-error of the version in force on held-out plans."""
    queries = _workloads(seed).queries
    predictions = np.exp(predict(promoted_model(federation), [each.graph for each in queries]))
    return float(np.median(q_error(predictions, np.exp([each.log_seconds for each in queries]))))


def _targets(rows: Sequence[Row]) -> list[Target]:
    by_organizations = {row["organizations"]: row for row in rows}
    if WHOLE not in by_organizations:
        return []
    whole, tenth = by_organizations[WHOLE], by_organizations[TENTH]
    growth = number(whole[PER_ORGANIZATION]) / number(tenth[PER_ORGANIZATION])
    return [
        Target("a year of 1,000 organizations: minutes", MOST_MINUTES, number(whole["minutes"])),
        Target("... peak GB", MOST_GIGABYTES, number(whole[PEAK])),
        Target("coordinator's CPU per organization, 1,000 against 100", MOST_GROWTH, growth),
    ]


def _projections(rows: Sequence[Row]) -> list[Row]:
    """Project more organizations, and the largest size from the smaller ones."""
    if len(rows) <= 2:  # noqa: PLR2004  a line, and a size to check it by
        return []
    largest = int(number(rows[-1]["organizations"]))
    return [_projected(rows[:-1], largest), *(_projected(rows, size) for size in PROJECTED)]


def _projected(rows: Sequence[Row], size: int) -> Row:
    """Project `size` organizations along lines through `rows`. Bytes are per organization."""
    sizes = [number(row["organizations"]) for row in rows]
    projections = {
        name: _on_line(sizes, [number(row[name]) for row in rows], size) for name in LINES
    }
    return {
        "organizations": size,
        "figures": "projected from " + ", ".join(f"{each:,.0f}" for each in sizes),
        BYTES: number(rows[-1][BYTES]),
        **projections,
        PER_ORGANIZATION: projections[COORDINATOR] / size,
    }


def _on_line(sizes: Sequence[float], values: Sequence[float], size: int) -> float:
    """Return the value at `size` of the line that misses `values` least, relative to them."""
    slope, fixed = np.polyfit(sizes, values, 1, w=1 / np.array(values))
    return float(fixed + slope * size)


EXPERIMENT = Scale()
