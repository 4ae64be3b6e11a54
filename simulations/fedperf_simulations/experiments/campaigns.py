"""Experiment: the number of configurations that a campaign runs until it predicts the others well.

Public jobs are grids of configurations with published run times. The product's sampler chooses one
configuration after the other from three quarters of a job's configurations; the product's ensemble
for tables is evaluated on the last quarter. Every seed has a quarter of its own, the same for all
strategies. The rows also give the cost (seconds x machines), the number at which the rule with a
target of 5 % and a patience of 3 would have stopped, and the error there.

The sampler's constants were chosen on sgd, kmeans and pagerank with other seeds. Of sort and grep
one quick run had been seen, and nothing was changed after it. The figure is the first number of
configurations from which the mean error over seeds stays below 5 % up to 50. Active campaigns on
sort and grep are judged at every number up to 30 and at every fifth beyond, space-filling and the
rest at every fifth.

A replayed campaign starts without measurements. The product's sampler chooses one configuration
after the other of a job's grid. At some numbers of configurations the ensemble is fitted to the
measurements so far and evaluated on configurations that are not in the grid. One configuration is
one run here: its median of five repeats.

The overhead of a trial has two parts, seconds added and slowdown. Each part is far smaller than the
difference between one run and the next on a shared machine. So bare and profiled runs of a whole
job show nothing. Therefore:

- `added_seconds`: wall seconds that starting, watching and noticing the end add to a job that only
  waits, bare and as a trial, interleaved. A waiting job takes the same time on a slow machine.
- `slowdown`: the share by which a computing job gets slower while it is watched. One job counts
  what it gets done; in every other window its process tree is sampled as that of a trial. Windows
  change so quickly that the machine's own changes of speed hit both kinds alike.
"""

import math
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.campaign.definition import CHOOSING, Component, RunSettings, Strategy
from fedperf_campaigns.campaign.sampling import GridSampler, SamplingGrid
from fedperf_campaigns.campaign.trial_runner import TICK_SECONDS, TrialRunner
from fedperf_campaigns.tables.layout import TableLayout
from fedperf_campaigns.tables.learners import table_learners
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_client.workers.child_process import ProcessTree
from fedperf_shared.errors import FedperfError
from fedperf_simulations.baselines.table_mixture import mixed_for
from fedperf_simulations.data.c3o import (
    MOST_TRAINING_MEGABYTES,
    NODES,
    SIZE,
    Executions,
    ScenarioParts,
    files,
    medians,
    of_job,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.side_by_side import computed

HELD_OUT = 0.25
"""Share of a job's configurations that is held out."""

TARGET, PATIENCE = 0.05, 3
"""Parameters of the rule that stops a campaign."""

WHERE_STOPPED = " where stopped"
"""Suffix in the names of a cell, instead of a number of configurations."""

NOTHING_FAILED: frozenset[int] = frozenset()


def divided(data: Path | None, job: str, rng: np.random.Generator) -> ScenarioParts:
    """Return the grid of a job, and its held-out configurations.

    Raises:
        MissingDataError: there is no folder, or the job's file is not in it.
    """
    configurations = medians(of_job(data, job))
    count = len(configurations.seconds)
    is_query = np.zeros(count, np.bool_)
    is_query[rng.permutation(count)[: round(HELD_OUT * count)]] = True
    return ScenarioParts(configurations.where(~is_query), configurations.where(is_query))


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedCampaign:
    """The measured configurations of a campaign, one after the other.

    Attributes:
        rows: of the grid, in the order of measuring.
        stopped_at: how many there were when the rule would have stopped; None where it did not.
        slowest_step: CPU seconds of the longest choice, without the first, which imports.
    """

    rows: tuple[int, ...]
    stopped_at: int | None
    slowest_step: float

    @classmethod
    def over(
        cls, grid: Executions, strategy: Strategy, *, target: float | None, most: int, seed: int
    ) -> Self:
        """Run until `most` configurations are measured, regardless of the rule.

        Args:
            grid: with what each configuration takes.
            strategy: by which they are chosen.
            target: share, of the rule that would have stopped it; None to ignore the rule.
            most: configurations.
            seed: of the sampler.
        """
        stopping = _sampler(grid, strategy, target=target, most=most, seed=seed)
        measured, steps = _measured(stopping, grid, {})
        stopped_at = len(measured) if len(measured) < min(most, len(grid.seconds)) else None
        going_on = _sampler(grid, strategy, target=None, most=most, seed=seed)
        measured, more = _measured(going_on, grid, measured)
        return cls(tuple(measured), stopped_at, max((*steps[1:], *more), default=0.0))


def campaign_errors(
    parts: ScenarioParts, campaign: ReplayedCampaign, numbers: Collection[int]
) -> Row:
    """Errors and costs of a campaign, by name and number of configurations.

    MAPE is in percent; a cost is the sum of seconds x machines of what was measured.
    """
    layout = TableLayout.of(parts.training.table, scale=NODES, size=SIZE)
    machines = np.array(parts.training.table[NODES], dtype=np.float64)
    row: dict[str, float | None] = {
        "stopped at": campaign.stopped_at,
        "slowest step": round(campaign.slowest_step, 3),
    }
    counts = {f" {each}": each for each in numbers if each <= len(campaign.rows)}
    if campaign.stopped_at is not None:
        counts |= {WHERE_STOPPED: campaign.stopped_at}
    for name, count in counts.items():
        rows = np.array(campaign.rows[:count], np.int64)
        row[f"mape{name}"] = _error(parts, layout, rows)
        row[f"cost{name}"] = float(parts.training.seconds[rows] @ machines[rows])
    return row


def _sampler(
    grid: Executions, strategy: Strategy, *, target: float | None, most: int, seed: int
) -> GridSampler:
    return GridSampler(
        SamplingGrid.of(grid.table, scale=NODES, size=SIZE),
        strategy,
        target_mape=target,
        patience=PATIENCE,
        max_configurations=most,
        seed=seed,
    )


def _measured(
    choosing: GridSampler, grid: Executions, before: Mapping[int, float]
) -> tuple[dict[int, float], list[float]]:
    """Return what was measured when it stops, and the CPU seconds of each step."""
    measured, steps = dict(before), list[float]()
    while True:
        begun = time.process_time()
        row = choosing.next(measured, NOTHING_FAILED)
        steps.append(time.process_time() - begun)
        if row is None:
            return measured, steps
        measured[row] = float(grid.seconds[row])


def _error(parts: ScenarioParts, layout: TableLayout, rows: NDArray[np.int64]) -> float:
    """MAPE in percent on the held-out configurations, trained on those rows of the grid."""
    samples, queries = (layout.samples(each.table) for each in (parts.training, parts.held_out))
    along = (layout.scale_feature, layout.size_feature)
    places, query_rows = (
        ScaleAndSize(*(each.features[:, place] for place in along))
        for each in (samples.take(rows), queries)
    )
    log_seconds = np.log(parts.training.seconds[rows])
    training = TrainingSet(samples.take(rows), log_seconds, places, np.arange(len(rows)))
    # Folds that leave single configurations out: the held-out ones were drawn like the grid.
    _, fitted = mixed_for(QueryRegime.SEEN, query_rows, training, table_learners(layout))
    return 100 * float(np.mean(np.abs(np.exp(fitted(queries)) / parts.held_out.seconds - 1)))


def stays_below(limit: float, errors: Mapping[int, float]) -> int | None:
    """The first number from which on all errors are below `limit`. None where there is none."""
    above = [number for number, error in errors.items() if not error < limit]
    return min((each for each in errors if each > max(above, default=-1)), default=None)


def mean_over(cells: Sequence[Row], what: str, numbers: Iterable[int]) -> dict[int, Floats]:
    """Values of `what`, [seeds], for the numbers that every cell has."""
    return {
        number: np.array([cell[f"{what} {number}"] for cell in cells], dtype=np.float64)
        for number in numbers
        if all(f"{what} {number}" in cell for cell in cells)
    }


WINDOW_SECONDS = 2 * TICK_SECONDS

_MAD_TO_DEVIATION = 1.4826
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, of normal values."""

_WAIT = "import time; time.sleep({seconds})"
_COUNT = """
import sys, time
from array import array
moments = array("d")
end = time.monotonic() + {seconds}
while not moments or moments[-1] < end:
    n = 0
    while n < 10000: n += 1
    moments.append(time.monotonic())
moments.tofile(sys.stdout.buffer)
"""


class TrialFailedError(FedperfError):
    """A trial of the overhead measurement did not end well."""


def added_seconds(seconds: float, trials: int) -> float:
    """Return median wall seconds that a trial adds to a job that waits for `seconds`.

    Args:
        seconds: to wait for.
        trials: pairs of a bare run and a trial, at least 1.

    Raises:
        TrialFailedError: a trial failed.
    """
    command = (sys.executable, "-S", "-c", _WAIT.format(seconds=seconds))
    added = []
    with tempfile.TemporaryDirectory() as directory:
        runner = TrialRunner(Path(directory), Path(directory) / "trials", stop=threading.Event())
        for pair in range(trials):
            if pair % 2:
                bare, profiled = _bare(command), _profiled(runner, command)
            else:
                profiled, bare = _profiled(runner, command), _bare(command)
            added.append(profiled - bare)
    return statistics.median(added)


def slowdown(seconds: float) -> tuple[float, float]:
    """The share by which a computing job is slower while it is watched, and its standard error.

    Args:
        seconds: of the job, at least 4 windows.
    """
    command = (sys.executable, "-S", "-c", _COUNT.format(seconds=seconds))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        windows: list[tuple[float, float]] = []
        tree = ProcessTree(process.pid)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            while time.monotonic() < start + WINDOW_SECONDS:
                if len(windows) % 2:
                    tree.sample()
                time.sleep(TICK_SECONDS)
            windows.append((start, time.monotonic()))
        printed, _ = process.communicate()
    moments = np.array(array("d", printed))
    speeds = [_speed(moments, *window) for window in windows[1:]]  # the first includes the startup
    # Windows 1, 3, 5, ... are watched: of two neighbours, by what share is that one slower? Where
    # the machine gave the job no time at all, the share is undefined.
    slower = np.array(
        [
            other / one - 1 if number % 2 == 0 else one / other - 1
            for number, (one, other) in enumerate(pairwise(speeds))
            if min(one, other) > 0
        ]
    )
    middle = float(np.median(slower))
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(slower - middle)))
    return middle, _MEDIAN_ERROR * spread / math.sqrt(len(slower))


def _speed(
    moments: "np.ndarray[tuple[int], np.dtype[np.float64]]", start: float, end: float
) -> float:
    return float(np.searchsorted(moments, end) - np.searchsorted(moments, start)) / (end - start)


def _bare(command: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _profiled(runner: TrialRunner, command: tuple[str, ...]) -> float:
    component = Component(name="job", command=command)
    limits = RunSettings(timeout_seconds=600)
    outcome = runner.run((component,), {}, limits=limits, token=secrets.token_hex())
    if outcome.wall_seconds is None or not outcome.status.is_data:
        raise TrialFailedError(f"a trial ended {outcome.status.value}: {outcome.reason}")
    return outcome.wall_seconds


MOST = 50
FEWEST = 5
EVERY_FIFTH = tuple(range(FEWEST, MOST + 1, 5))
EVERY = tuple(sorted({*range(FEWEST, 31), *EVERY_FIFTH}))

SEEDS, DEVELOPMENT_SEEDS, QUICK_SEEDS = 10, 3, 1
QUICK_NUMBERS, QUICK_MOST = (5, 8, 12), 12

COMPARED = (Strategy.RANDOM, Strategy.ACTIVE)

ENOUGH = 5.0
"""Percent."""

MOST_CONFIGURATIONS: Mapping[str, int] = {"sort": 25, "grep": 20}
"""Until the error of active sampling stays below `ENOUGH`."""

OVERHEAD_SECONDS, OVERHEAD_TRIALS, WATCHED_SECONDS, MOST_OVERHEAD = 1.0, 15, 60.0, 2.0
"""A job's length, pairs of it alone and as a trial, a watched job's length. Percent."""

STAYS, RATIO, OVERHEAD = "stays below 5 % from", "active / random", "overhead, %"

CHART = "campaigns-{job}.svg"


@dataclass(frozen=True, slots=True)
class CampaignTask:
    """One campaign."""

    job: str
    strategy: Strategy
    seed: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of configurations at which it is judged."""
        is_precise = self.job in MOST_CONFIGURATIONS and self.strategy in COMPARED
        return EVERY if is_precise else EVERY_FIFTH


NOTES = (
    "the sampler's constants were chosen on sgd, kmeans and pagerank with other seeds; of sort and "
    "grep one quick run had been seen",
)


class Campaigns:
    """The experiment."""

    name = "campaigns"
    claim = "chosen one after the other, 25 configurations of sort and 20 of grep are enough"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Rows per job, strategy and number, then figures per job. A cell per campaign."""
        used = self.public_files(settings.data)
        tasks = _tasks(quick=settings.quick)
        cells: dict[str, dict[Strategy, list[Row]]] = {}
        each_cell = computed(partial(_cell, settings), tasks, "campaigns", jobs=settings.jobs)
        for task, cell in zip(tasks, each_cell, strict=True):
            cells.setdefault(task.job, {}).setdefault(task.strategy, []).append(cell)
        rows: list[Row] = []
        for job, by_strategy in cells.items():
            for strategy, each in by_strategy.items():
                rows += _rows(job, strategy, each)
        for job, by_strategy in cells.items():
            rows += _figures(job, by_strategy)
        if not settings.quick:  # what the profiler adds to a job of a second
            rows += [settings.cell("added", _added), settings.cell("slowdown", _slowdown)]
        plots = [_chart(settings.out, job, cells[job]) for job in MOST_CONFIGURATIONS]
        cases = [
            {"job": job, "strategy": strategy.value, "seed": seed, **cell}
            for job, by_strategy in cells.items()
            for strategy, each in by_strategy.items()
            for seed, cell in enumerate(each)
        ]
        return ExperimentOutcome(rows, _targets(rows), used, plots, cases, NOTES)

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the C3O jobs."""
        return files(data)


def _tasks(*, quick: bool) -> list[CampaignTask]:
    """Return what the targets need comes first."""
    jobs = list(MOST_CONFIGURATIONS)
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    tasks = [CampaignTask(job, way, seed) for seed in seeds for job in jobs for way in COMPARED]
    tasks += [CampaignTask(job, Strategy.SPACE_FILLING, seed) for job in jobs for seed in seeds]
    if not quick:
        others = [job for job in MOST_TRAINING_MEGABYTES if job not in jobs]
        few = range(DEVELOPMENT_SEEDS)
        tasks += [
            CampaignTask(job, way, seed) for job in others for way in CHOOSING for seed in few
        ]
    return tasks


def _cell(settings: Settings, task: CampaignTask) -> Row:
    key = f"{task.job}-{task.strategy}-{task.seed}"
    return settings.cell(key, partial(_ran, settings, task))


def _ran(settings: Settings, task: CampaignTask) -> Row:
    place = list(MOST_TRAINING_MEGABYTES).index(task.job)
    parts = divided(
        settings.data, task.job, np.random.default_rng([settings.seed, task.seed, place])
    )
    most, numbers = (QUICK_MOST, QUICK_NUMBERS) if settings.quick else (MOST, task.numbers)
    target = TARGET if task.strategy is Strategy.ACTIVE else None
    campaign = ReplayedCampaign.over(
        parts.training, task.strategy, target=target, most=most, seed=task.seed
    )
    return campaign_errors(parts, campaign, numbers)


def _rows(job: str, strategy: Strategy, cells: Sequence[Row]) -> Iterator[Row]:
    errors, costs = (mean_over(cells, what, EVERY) for what in ("mape", "cost"))
    for count, each in errors.items():
        yield {
            "job": job,
            "what": "error",
            "strategy": strategy.value,
            "configurations": count,
            "mape": round(float(each.mean()), 2),
            "spread": round(float(each.std()), 2),
            "machine seconds": round(float(costs[count].mean())),
        }


def _figures(job: str, cells: Mapping[Strategy, Sequence[Row]]) -> Iterator[Row]:
    """Yield what a job's rows come to."""
    enough = {each: _enough(job, each, job_cases) for each, job_cases in cells.items()}
    yield from enough.values()
    active, random = enough[Strategy.ACTIVE], enough[Strategy.RANDOM]
    ratios = {
        key: _ratio(active[key], random[key]) for key in ("configurations", "machine seconds")
    }
    yield {"job": job, "what": RATIO, **ratios}
    yield _stopped(job, cells[Strategy.ACTIVE])
    slowest = max(number(each["slowest step"]) for each in cells[Strategy.ACTIVE])
    yield {"job": job, "what": "slowest choice, CPU seconds", "value": slowest}


def _enough(job: str, strategy: Strategy, cells: Sequence[Row]) -> Row:
    errors, costs = (
        {number: float(each.mean()) for number, each in mean_over(cells, what, EVERY).items()}
        for what in ("mape", "cost")
    )
    first = stays_below(ENOUGH, errors)
    row = {"job": job, "what": STAYS, "strategy": strategy.value}
    if first is None:
        return {**row, "configurations": None, "machine seconds": None}
    return {
        **row,
        "configurations": first,
        "mape": round(errors[first], 2),
        "machine seconds": round(costs[first]),
    }


def _stopped(job: str, cells: Sequence[Row]) -> Row:
    """Return where the rule stopped active campaigns, the mean over those that it stopped."""
    stops = [cell for cell in cells if cell["stopped at"] is not None]
    there = [number(cell[f"mape{WHERE_STOPPED}"]) for cell in stops]
    return {
        "job": job,
        "what": f"stopped by the rule, {len(stops)} of {len(cells)}",
        "strategy": Strategy.ACTIVE.value,
        "configurations": _mean([number(cell["stopped at"]) for cell in stops]),
        "mape": _mean(there),
        "spread": round(float(np.std(there)), 2) if there else None,
        "machine seconds": _mean([number(cell[f"cost{WHERE_STOPPED}"]) for cell in stops]),
    }


def _added() -> Row:
    added = added_seconds(OVERHEAD_SECONDS, OVERHEAD_TRIALS)
    percent = round(100 * added / OVERHEAD_SECONDS, 2)
    return {"job": "one that waits a second", "what": OVERHEAD, "value": percent}


def _slowdown() -> Row:
    slower, error = slowdown(WATCHED_SECONDS)
    return {
        "job": "one that computes, while it is watched",
        "what": OVERHEAD,
        "value": round(100 * slower, 2),
        "spread": round(100 * error, 2),
    }


def _targets(rows: Sequence[Row]) -> list[Target]:
    staying = [row for row in rows if row["what"] == STAYS]
    active = {row["job"]: row for row in staying if row["strategy"] == Strategy.ACTIVE.value}
    named = "configurations until the mean error stays below 5 %"
    targets = [
        Target(f"{job}: {named}", most, number(active[job]["configurations"]))
        for job, most in MOST_CONFIGURATIONS.items()
    ]
    overheads = [number(row["value"]) for row in rows if row["what"] == OVERHEAD]
    if overheads:
        what = "profiler: both parts of the overhead of a second, %"
        targets.append(Target(what, MOST_OVERHEAD, sum(overheads)))
    return targets


def _chart(out: Path, job: str, cells: Mapping[Strategy, Sequence[Row]]) -> Path:
    lines = []
    for strategy in (Strategy.RANDOM, Strategy.SPACE_FILLING, Strategy.ACTIVE):
        errors = mean_over(cells[strategy], "mape", EVERY)
        lines.append(
            Line(
                f"{job}, {strategy.value.replace('_', ' ')}",
                list(errors),
                [float(each.mean()) for each in errors.values()],
                dashed=strategy is Strategy.SPACE_FILLING,
                spread=[float(each.std() / math.sqrt(len(each))) for each in errors.values()],
            )
        )
    path = out / CHART.format(job=job)
    path.parent.mkdir(parents=True, exist_ok=True)
    up = "mean error on configurations held out, MAPE %"
    path.write_text(lines_chart(lines, "configurations measured", up, is_log=True))
    return path


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 2) if values else None


def _ratio(one: Value, other: Value) -> float | None:
    ratio = number(one) / number(other)
    return round(ratio, 2) if math.isfinite(ratio) else None


EXPERIMENT = Campaigns()
