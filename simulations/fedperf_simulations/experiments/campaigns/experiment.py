"""Experiment: the number of configurations that a campaign runs until it predicts the others well.

Public jobs stand as grids (`replay`). The product's sampler chooses one configuration after the
other from three quarters of a job's configurations; the product's mix for tables is judged on the
last quarter. Every seed has a quarter of its own, the same for all strategies. Beside the errors
stand the cost (seconds x machines), where the rule with a target of 5 % and a patience of 3 would
have stopped, and the error there.

The sampler's constants were chosen on sgd, kmeans and pagerank with other seeds. Of sort and grep
one quick run had been seen, and nothing was changed after it. The figure is the first number of
configurations from which the mean error over seeds stays below 5 % up to 50. Active campaigns on
sort and grep are judged at every number up to 30 and at every fifth beyond, space-filling and the
rest at every fifth.

Rows for the profiler's overhead: see `fedperf_simulations.experiments.campaigns.overhead`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_campaigns.campaign.definition import CHOOSING, Strategy
from fedperf_simulations.data.c3o_scenarios import MOST_MEGABYTES_KNOWN, files
from fedperf_simulations.experiments.campaigns.overhead import added_seconds, slowdown
from fedperf_simulations.experiments.campaigns.replay import (
    TARGET,
    WHERE_STOPPED,
    ReplayedCampaign,
    divided,
    judged,
    mean_over,
    stays_below,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.side_by_side import computed

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
"""A job's length, pairs of it alone and as a trial, a watched job's length; percent."""

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
        """Rows per job, strategy and number, then figures per job; a cell per campaign."""
        used = self.public_files(settings.data)
        tasks = _tasks(quick=settings.quick)
        cells: dict[str, dict[Strategy, list[Row]]] = {}
        each_cell = computed(partial(_cell, settings), tasks, "campaigns", jobs=settings.jobs)
        for task, cell in zip(tasks, each_cell, strict=True):
            cells.setdefault(task.job, {}).setdefault(task.strategy, []).append(cell)
        rows: list[Row] = []
        for job, found in cells.items():
            for strategy, each in found.items():
                rows += _rows(job, strategy, each)
        for job, found in cells.items():
            rows += _figures(job, found)
        rows += _overheads(settings)
        plots = [_chart(settings.out, job, cells[job]) for job in MOST_CONFIGURATIONS]
        cases = [
            {"job": job, "strategy": strategy.value, "seed": seed, **cell}
            for job, found in cells.items()
            for strategy, each in found.items()
            for seed, cell in enumerate(each)
        ]
        return ExperimentOutcome(rows, _targets(rows), used, plots, cases, NOTES)

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the C3O jobs."""
        return files(data)


def _tasks(*, quick: bool) -> list[CampaignTask]:
    """What the targets need comes first."""
    jobs = list(MOST_CONFIGURATIONS)
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    tasks = [CampaignTask(job, way, seed) for seed in seeds for job in jobs for way in COMPARED]
    tasks += [CampaignTask(job, Strategy.SPACE_FILLING, seed) for job in jobs for seed in seeds]
    if not quick:
        others = [job for job in MOST_MEGABYTES_KNOWN if job not in jobs]
        few = range(DEVELOPMENT_SEEDS)
        tasks += [
            CampaignTask(job, way, seed) for job in others for way in CHOOSING for seed in few
        ]
    return tasks


def _cell(settings: Settings, task: CampaignTask) -> Row:
    key = f"{task.job}-{task.strategy}-{task.seed}"
    return settings.cell(key, partial(_ran, settings, task))


def _ran(settings: Settings, task: CampaignTask) -> Row:
    place = list(MOST_MEGABYTES_KNOWN).index(task.job)
    parts = divided(
        settings.data, task.job, np.random.default_rng([settings.seed, task.seed, place])
    )
    most, numbers = (QUICK_MOST, QUICK_NUMBERS) if settings.quick else (MOST, task.numbers)
    target = TARGET if task.strategy is Strategy.ACTIVE else None
    campaign = ReplayedCampaign.over(
        parts.known, task.strategy, target=target, most=most, seed=task.seed
    )
    return judged(parts, campaign, numbers)


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
    """What a job's rows come to."""
    enough = {each: _enough(job, each, found) for each, found in cells.items()}
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
    """Where the rule stopped active campaigns, the mean over those that it stopped."""
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


def _overheads(settings: Settings) -> list[Row]:
    """What the profiler adds to a job of a second; none in a quick run."""
    if settings.quick:
        return []
    return [
        settings.cell("added", _added),
        settings.cell("slowdown", _slowdown),
    ]


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
    active = {row["job"]: row for row in rows if row["what"] == STAYS and _is_active(row)}
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


def _is_active(row: Row) -> bool:
    return row["strategy"] == Strategy.ACTIVE.value


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
