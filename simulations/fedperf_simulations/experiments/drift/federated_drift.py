"""Part `ggfn` of the experiment on drift: forgetting by GGFN in a federated year at epsilon 1.

Ten organizations run the segments of `drifting_platforms`. Every segment is a regime of the
calendar. They begin with a model trained on the first segment's platforms, like the public model,
from held-out workloads. All ways of learning have the same organizations, schedule and noise;
`federated_year` lists what is real about a year. Each workload is in one segment, so that own
history is what "cumulative" is with the noise of the schedule; the reference is cumulative without
noise. A row is a mean over seeds, each of which deals, trains the first model and draws noise anew.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_shared.model.metrics import q_error, relative_errors
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes, default_calendar
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.corpus.organizations import (
    SEGMENTS,
    DriftSplit,
    MeasuredTimes,
    WorkloadSplit,
    deal,
    first_segment,
    first_windows,
    private_segments,
)
from fedperf_simulations.data.datasets import CAPPED, measured_files
from fedperf_simulations.experiments.drift.continual import MAE, MAPE, Q50
from fedperf_simulations.experiments.drift.table import (
    CUMULATIVE,
    DECIMALS,
    NAIVE,
    DriftTable,
    cell_of,
)
from fedperf_simulations.federation.federated_year import (
    FederatedYear,
    FederationFixture,
    TrainingMode,
)
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed
from fedperf_simulations.model.fit import fit, predict
from fedperf_simulations.model.ggfn import GGFN, load_model, save_model

Floats = NDArray[np.float64]

PART, SPREAD = "ggfn", "ggfn, standard deviation over seeds"
BY_SEGMENT = "ggfn by segment"

SEEDS, HANDS = 3, WorkloadSplit()
QUICK_SEEDS, QUICK_HANDS, QUICK_ANCHORS, QUICK_TRAINING = 1, WorkloadSplit(2, 12, 15, 10), 20, 60

BASE_MODEL_EPOCHS, QUICK_BASE_MODEL_EPOCHS = 30, 1
"""Passes of the initial model over its training data."""

BY_VERDICTS = "naive, by verdicts"
OWN, TAUGHT = "own history", "synthetic + teacher"
PRODUCT = "own history, synthetic + teacher"

WAYS: Mapping[str, TrainingMode] = {
    NAIVE: TrainingMode(own_history=False, rehearses=False, is_evaluated=False),
    BY_VERDICTS: TrainingMode(own_history=False, rehearses=False),
    OWN: TrainingMode(own_history=True, rehearses=False),
    TAUGHT: TrainingMode(own_history=False, rehearses=True),
    PRODUCT: TrainingMode(own_history=True, rehearses=True),
    CUMULATIVE: TrainingMode(own_history=True, rehearses=False, private=False),
}
"""`PRODUCT` is what a coordinator does by default. Naive retraining, as published, has no verdicts.

All others come into force by the product's.
"""

FORGOTTEN = 1.1
"""Ratio of the final to the best error from which naive retraining forgot a segment."""

LEAST_FACTOR = 2.0
MOST_WORSE = 20.0


def table_of(settings: Settings) -> DriftTable:
    """Return the errors of all ways. Every way and seed has a cell."""
    seeds = range(QUICK_SEEDS if settings.quick else SEEDS)
    tasks = [(method, seed) for seed in seeds for method in WAYS]
    compute = partial(_cell, settings)
    return DriftTable.of(list(computed(compute, tasks, "federated years", jobs=settings.jobs)))


def rows(table: DriftTable) -> list[Row]:
    """Means, standard deviations, and every segment by itself."""
    planned = _planned(quick=False)
    spent = {True: (planned.epsilon, planned.replace_one_epsilon), False: (None, None)}
    means: list[Row] = [
        {
            "part": PART,
            "method": method,
            "epsilon": spent[way.private][0],
            "replace one": spent[way.private][1],
            **table.means(method),
        }
        for method, way in WAYS.items()
    ]
    spreads: list[Row] = [
        {"part": SPREAD, "method": method, **table.spreads(method)} for method in WAYS
    ]
    segments = [_by_segment(table, method, place) for place in range(3) for method in WAYS]
    return [*means, *spreads, *segments]


def targets(table: Sequence[Row]) -> list[Target]:
    """Return the targets of the product's default, from `rows`."""
    mine, naive = (_of_method(table, method) for method in (PRODUCT, NAIVE))
    forgotten = [name for name, row in naive.items() if row["final"] > FORGOTTEN * row["best"]]
    factors = [naive[name]["final"] / mine[name]["final"] for name in forgotten]
    together = [sum(rows[name]["final"] for name in forgotten) for rows in (naive, mine)]
    what = f"GGFN at epsilon 1, segments that naive forgets ({', '.join(forgotten) or 'none'})"
    return [
        Target(
            f"{what}: times better than naive",
            LEAST_FACTOR,
            together[0] / together[1] if forgotten else np.nan,
            at_most=False,
        ),
        Target(
            f"{what}: times better than naive, the least of them",
            LEAST_FACTOR,
            min(factors, default=np.nan),
            at_most=False,
        ),
        Target(
            "GGFN at epsilon 1: percent worse than cumulative, worst segment",
            MOST_WORSE,
            max((row["vs cumulative, %"] for row in mine.values()), default=np.nan),
        ),
    ]


def plotted(out: Path, table: DriftTable) -> list[Path]:
    """Return a chart per segment: its error over the windows of the year, a line per method."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, name in enumerate(SEGMENTS):
        lines = [_line(table, method, place) for method in WAYS]
        chart = lines_chart(lines, f"windows of the year; error on {name}", "MAE (log)")
        path = out / f"drift_ggfn_{name.replace(' ', '_')}.svg"
        path.write_text(chart, encoding="utf-8")
        paths.append(path)
    return paths


def data_files() -> list[Path]:
    """The files that are read."""
    return [*measured_files(), *measured_files(CAPPED), *measured_files("polars")]


def _cell(settings: Settings, task: tuple[str, int]) -> Row:
    method, seed = task
    key = f"ggfn-{method}-{seed}".replace(",", "").replace(" ", "-")
    return settings.cell(key, lambda: _lived(settings, method, seed))


def _lived(settings: Settings, method: str, seed: int) -> Row:
    """Errors at the ends of the regimes, and on each segment (MAE) after each window."""
    world, split = _world(settings, seed)
    year = FederatedYear(world, WAYS[method], seed=[settings.seed, seed, 1])
    window_errors = [
        [errors_on(model, queries) for queries in split.held_out] for model in year.models()
    ]
    period = world.calendar.period
    last = [*[each - 1 for each in first_windows(period.windows)[1:]], period.windows - 1]
    squares = {
        name: np.array([[[each[name] for each in window_errors[window]] for window in last]])
        for name in (MAE, MAPE, Q50)
    }
    by_window = {
        f"{method}|{_window_key(place, window)}|0": each[MAE]
        for window, errors in enumerate(window_errors)
        for place, each in enumerate(errors)
    }
    return {**cell_of({method: squares}), **by_window}


def errors_on(model: GGFN, queries: MeasuredTimes) -> dict[str, float]:
    """Errors of log seconds, and of seconds in percent and as median q-error."""
    log_predictions = predict(model, queries.graphs)
    seconds = np.exp(log_predictions)
    return {
        MAE: float(np.abs(log_predictions - queries.log_seconds).mean()),
        MAPE: float(100 * relative_errors(seconds, queries.seconds).mean()),
        Q50: float(np.median(q_error(seconds, queries.seconds))),
    }


def _world(settings: Settings, seed: int) -> tuple[FederationFixture, DriftSplit]:
    planned = _planned(quick=settings.quick)
    hands = QUICK_HANDS if settings.quick else HANDS
    period = planned.schedule.calendar.period
    deal_seed = int(np.random.default_rng([settings.seed, seed, 0]).integers(2**31))
    split = deal(_segments(), hands, period, seed=deal_seed)
    plans = load_public_plans()
    return (
        FederationFixture(
            _start(settings, split, deal_seed),
            plans[: QUICK_ANCHORS if settings.quick else None],
            anchors_of(plans)[: QUICK_ANCHORS if settings.quick else None],
            planned,
            split.organizations,
        ),
        split,
    )


def _start(settings: Settings, split: DriftSplit, seed: int) -> GGFN:
    """Return the initial model of the year. It is trained once and stored with the cells."""
    cache_path = settings.models / f"start-{seed}.safetensors"
    if not cache_path.is_file():
        training = first_segment(split)
        if settings.quick:
            training = training.of(np.arange(QUICK_TRAINING))
        epochs = QUICK_BASE_MODEL_EPOCHS if settings.quick else BASE_MODEL_EPOCHS
        model = GGFN(seed=seed)
        fit(model, training.graphs, training.log_seconds, epochs=epochs, seed=seed)
        cache_path.parent.mkdir(parents=True, exist_ok=True)
        save_model(cache_path, model, model_version=1)
    return load_model(cache_path)


@cache
def _segments() -> tuple[tuple[LabelledGraph, ...], ...]:
    return private_segments()


@cache
def _planned(*, quick: bool) -> PlannedSchedule:
    """Return what a large organization with the default policy plans on the default calendar."""
    policy = Policy(
        size_class=SizeClass.LARGE,
        nominal_workloads=len(SEGMENTS) * HANDS.workloads,
        workloads_per_window=HANDS.workloads,
    )
    start = datetime(2027, 1, 4, tzinfo=UTC)
    return plan_schedule(policy, _short_calendar(start) if quick else default_calendar(start))


def _short_calendar(start: datetime) -> ReleaseCalendar:
    """Four windows with a round each, and one more where a regime begins."""
    day = timedelta(days=1)
    times = [SlotTimes(first * day, (first + 1) * day) for first in (1, 2, 3, 4)]
    return ReleaseCalendar(
        Period(start, timedelta(days=7), 4),
        report_slots=tuple(times[:2]),
        model_slots=(times[2],),
        extra_slots=(times[3],),
        extra_windows=1,
    )


def _by_segment(table: DriftTable, method: str, place: int) -> Row:
    """Return one way on one segment. Ratios are of means over seeds."""
    mine = _finals(table, method, place)
    means = [float(each.mean()) for each in _over_windows(table, method, place)]
    first = first_windows(len(means))[place]
    compared = {
        "final": mine.mean(),
        "sd over seeds": mine.std(),
        "best": min(means[first:]),
        "before": means[first - 1] if place else np.nan,
        "x naive": _finals(table, NAIVE, place).mean() / mine.mean(),
        "vs cumulative, %": 100 * (mine.mean() / _finals(table, CUMULATIVE, place).mean() - 1),
    }
    rounded = {
        name: round(float(value), DECIMALS) if np.isfinite(value) else None
        for name, value in compared.items()
    }
    return {"part": BY_SEGMENT, "segment": SEGMENTS[place], "method": method, **rounded}


def _finals(table: DriftTable, method: str, place: int) -> Floats:
    return _over_windows(table, method, place)[-1]


def _over_windows(table: DriftTable, method: str, place: int) -> list[Floats]:
    """After each window, the error on a segment by seed."""
    mine = table.scores[method]
    windows = sum(key.startswith(f"on {place} after") for key in mine)
    return [mine[_window_key(place, window)] for window in range(windows)]


def _window_key(place: int, window: int) -> str:
    return f"on {place} after {window}"


def _line(table: DriftTable, method: str, place: int) -> Line:
    window_errors = _over_windows(table, method, place)
    return Line(
        method,
        range(1, len(window_errors) + 1),
        [float(each.mean()) for each in window_errors],
        method in {NAIVE, CUMULATIVE},
        spread=[float(each.std() / np.sqrt(len(each))) for each in window_errors],
    )


def _of_method(table: Sequence[Row], method: str) -> dict[str, dict[str, float]]:
    """Return the figures of one way by segment."""
    return {
        str(row["segment"]): {
            name: value for name, value in row.items() if isinstance(value, int | float)
        }
        for row in table
        if row["part"] == BY_SEGMENT and row["method"] == method
    }
