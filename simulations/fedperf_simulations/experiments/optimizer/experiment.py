"""Benchmark: the time to choose platforms, and the regret of each rule of pruning.

Time is processor time on one thread, end to end (`measurement`), over the number of operators; it
equals wall time on an idle machine. There are two baselines: the published figure, and the
published search with one call of the model after the other, in the same run.

Regret is the cost of a rule's plan above that of the cheapest plan that any search found. Among the
searches is a sweep that drops no state, whose first half shares nothing with that of the exact
search.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
import orjson
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.enumeration import BEAM_PLANS, SearchResult, beam, cheapest_plans
from fedperf_engines.trials.profiler import THREAD_VARIABLES
from fedperf_simulations.baselines.search import (
    PruningRule,
    exhaustive_search,
    pruned_search,
)
from fedperf_simulations.experiments.optimizer.measurement import (
    BEAM,
    DELAYED_GREEDY,
    FRONTIER,
    GREEDY,
    ONE_BY_ONE,
    TimingTask,
    WayCost,
    knotty_costs,
    random_costs,
    random_workflow,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value

BEAMS, EVERY_STATE = (8, 32, BEAM_PLANS), 10**9

ROUNDING = 1e-12
"""Relative. Sums of the same numbers in another order differ by less."""

MOST_COMPARED_OPERATORS, BEST = 7, 12
"""Most operators of workflows for brute force, and the number of compared plans."""

Search = Callable[[AdditiveCosts], SearchResult]

SEARCHES: Mapping[str, Search] = {
    "greedy": partial(pruned_search, rule=PruningRule.GREEDY),
    "tail platform": partial(pruned_search, rule=PruningRule.TAIL),
    "delayed greedy, last two": partial(pruned_search, rule=PruningRule.DELAYED_GREEDY),
    "open frontier without start-ups": partial(pruned_search, rule=PruningRule.OPEN_FRONTIER),
    FRONTIER: partial(cheapest_plans, count=1),
    **{f"beam of {plans}": partial(beam, count=1, plans=plans) for plans in BEAMS},
    "every state kept": partial(beam, count=1, plans=EVERY_STATE),
}


def regrets(
    rng: np.random.Generator, operators: int, platforms: int, *, workflows: int
) -> dict[str, dict[str, float]]:
    """Figures by name of the search: how often optimal, regrets, candidates, milliseconds."""
    names = list(SEARCHES)
    seconds, candidates, took = (np.empty((workflows, len(names))) for _ in range(3))
    for trial in range(workflows):
        costs = random_costs(rng, random_workflow(rng, operators), platforms)
        for place in rng.permutation(len(names)).tolist():
            before = time.process_time()
            result = SEARCHES[names[place]](costs)
            took[trial, place] = time.process_time() - before
            seconds[trial, place] = result.seconds[0]
            candidates[trial, place] = result.candidates
    lost = seconds / seconds.min(axis=1, keepdims=True) - 1
    lost[lost < ROUNDING] = 0
    return {
        name: {
            "median_ms": 1e3 * float(np.median(took[:, place])),
            "best_ms": 1e3 * float(took[:, place].min()),
            "optimal": float((lost[:, place] == 0).mean()),
            "mean_regret": float(lost[:, place].mean()),
            "max_regret": float(lost[:, place].max()),
            "candidates": float(candidates[:, place].mean()),
        }
        for place, name in enumerate(names)
    }


def equal_to_brute_force(
    rng: np.random.Generator, platforms: int, *, workflows: int, search: Search | None = None
) -> int:
    """Return the number of small workflows whose best plan and `BEST` least costs are right.

    Args:
        rng: draws them, of all sizes and with up to that many platforms.
        platforms: most of them.
        workflows: how many.
        search: for `BEST` plans; the exact one by default.
    """
    tested_search = search or partial(cheapest_plans, count=BEST)
    equal = 0
    for _ in range(workflows):
        workflow = random_workflow(rng, int(rng.integers(1, MOST_COMPARED_OPERATORS + 1)))
        costs = knotty_costs(rng, workflow, int(rng.integers(1, platforms + 1)))
        equal += _is_right(tested_search(costs), exhaustive_search(costs, BEST))
    return equal


def _is_right(result: SearchResult, every: SearchResult) -> bool:
    plans = np.unique(result.plans, axis=0)
    return len(plans) == len(result.plans) and _same(result.seconds, every.seconds)


def _same(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=ROUNDING, atol=0))


MOST_MS, MOST_WIDE_MS = 30.0, 300.0
PUBLISHED_MS, PUBLISHED_OPERATORS = 3000.0, 25

OPERATORS, QUICK_OPERATORS = (5, 10, 15, 20, 25, 30, 40, 50), (5, 25)
ONE_BY_ONE_OPERATORS, QUICK_ONE_BY_ONE_OPERATORS = (10, 25), (5,)
PLATFORMS = 3
WIDE_OPERATORS, WIDE_PLATFORMS, WIDTH = 50, 5, 3
WORKFLOWS, QUICK_WORKFLOWS = 6, 1
REPEATS, QUICK_REPEATS = 7, 2
REGRET_WORKFLOWS, QUICK_REGRET_WORKFLOWS = 300, 10
COMPARED, QUICK_COMPARED = 1000, 20

CHOICE, SEARCH, BRUTE_FORCE = "choice", "search", "brute force"
BY = " x "
CHART = "optimization_time.svg"
LABELS = {
    ONE_BY_ONE: "published way, one question after the other",
    FRONTIER: "exact (frontier)",
    BEAM: "beam",
    DELAYED_GREEDY: "delayed greedy",
    GREEDY: "greedy",
}


class OptimizerBenchmark:
    """The benchmark."""

    name = "optimizer"
    claim = "platforms of 25 operators are chosen in 30 ms on one core; published: in 3 s"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Rows of times, of rules with their regrets, and one about brute force.

        `candidates` are plans that the model scored. In a search alone they are prefixes or cells
        of tables.
        """
        tasks = track(_tasks(settings), "choosing", console=Console(stderr=True))
        times = [row for task in tasks for row in _times(settings, task)]
        rows = [
            *times,
            *_regrets(settings),
            settings.cell("compared", partial(_compared, settings)),
        ]
        chart = settings.out / CHART
        chart.write_text(optimization_time(times))
        return ExperimentOutcome(rows, targets_of(rows), plots=[chart])


def targets_of(rows: Sequence[Row]) -> list[Target]:
    """Return the targets, from the rows alone."""
    choice = _exact(rows, CHOICE, _size(PUBLISHED_OPERATORS, PLATFORMS))
    wide = _exact(rows, CHOICE, _size(WIDE_OPERATORS, WIDE_PLATFORMS))
    search, compared = _exact(rows, SEARCH), _exact(rows, BRUTE_FORCE)
    workflows = number(compared.get("workflows"))
    return [
        Target(
            f"workflows with best plan and {BEST} least costs as by brute force",
            workflows,
            workflows * number(compared.get("optimal")),
            at_most=False,
        ),
        Target("25 operators x 3 platforms: median ms", MOST_MS, number(choice.get("median_ms"))),
        Target("25 operators x 3 platforms: best ms", MOST_MS, number(choice.get("best_ms"))),
        Target(
            f"50 operators x 5 platforms, {WIDTH} open at once: median ms",
            MOST_WIDE_MS,
            number(wide.get("median_ms")),
        ),
        Target("exact search: largest regret", 0.0, number(search.get("max_regret"))),
    ]


def optimization_time(times: Iterable[Row]) -> str:
    """Return the chart of times over operators, those on `PLATFORMS`, with the published figure."""
    by_method: dict[Value, dict[int, float]] = {}
    for row in times:
        operators, _, platforms = str(row["size"]).partition(BY)
        if int(platforms) == PLATFORMS:
            by_method.setdefault(row["method"], {})[int(operators)] = number(row.get("median_ms"))
    ends = [min(by_method[FRONTIER]), PUBLISHED_OPERATORS]
    published = f"published: less than 3 s up to {PUBLISHED_OPERATORS} operators"
    lines = [
        Line(published, ends, [PUBLISHED_MS, PUBLISHED_MS], dashed=True),
        *(
            Line(LABELS[name], list(by_method[name]), list(by_method[name].values()))
            for name in LABELS
        ),
    ]
    up = "milliseconds on one core, median"
    return lines_chart(lines, f"operators, {PLATFORMS} platforms", up, is_log=True)


def _tasks(settings: Settings) -> list[TimingTask]:
    """The last one is on more platforms."""
    quick, seed = settings.quick, settings.seed
    sizes = QUICK_OPERATORS if quick else OPERATORS
    slow = QUICK_ONE_BY_ONE_OPERATORS if quick else ONE_BY_ONE_OPERATORS
    workflows, repeats = (QUICK_WORKFLOWS, QUICK_REPEATS) if quick else (WORKFLOWS, REPEATS)
    return [
        *(TimingTask(size, PLATFORMS, workflows, repeats, seed, size in slow) for size in sizes),
        TimingTask(WIDE_OPERATORS, WIDE_PLATFORMS, workflows, repeats, seed, width=WIDTH),
    ]


def _times(settings: Settings, task: TimingTask) -> Sequence[Row]:
    """Return a row per way to choose."""
    size = _size(task.operators, task.platforms)
    cell = settings.cell(
        f"choice-{task.operators}-{task.platforms}", lambda: _flat(_summed_up(_measured(task)))
    )
    about: Row = {"what": CHOICE, "size": size, "workflows": task.workflows}
    rows: list[dict[str, Value]] = [{**about, "method": name, **row} for name, row in _rows(cell)]
    if size == _size(PUBLISHED_OPERATORS, PLATFORMS):
        for row in rows:
            row["3 s / this"] = round(PUBLISHED_MS / number(row.get("median_ms")))
    return rows


def _measured(task: TimingTask) -> Mapping[str, Sequence[WayCost]]:
    """Measure in a process of its own with one thread."""
    command = [sys.executable, "-m", "fedperf_simulations.experiments.optimizer.measurement"]
    result = subprocess.run(
        [*command, orjson.dumps(asdict(task)).decode()],
        check=True,
        capture_output=True,
        env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")},
    )
    costs: Mapping[str, Sequence[WayCost]] = orjson.loads(result.stdout)
    return costs


def _summed_up(measured: Mapping[str, Sequence[WayCost]]) -> dict[str, dict[str, float]]:
    """Return medians. For interleaved measurements, it is the median of the ratios."""
    seconds = {name: np.array(taken)[:, 0] for name, taken in measured.items()}
    rows = {
        name: {
            "median_ms": 1e3 * float(np.median(seconds[name])),
            "best_ms": 1e3 * float(seconds[name].min()),
            "candidates": float(np.median([plans for _, plans in taken])),
        }
        for name, taken in measured.items()
    }
    if ONE_BY_ONE in seconds:
        for name, row in rows.items():
            row["one by one / this"] = float(np.median(seconds[ONE_BY_ONE] / seconds[name]))
    return rows


def _regrets(settings: Settings) -> list[Row]:
    workflows = QUICK_REGRET_WORKFLOWS if settings.quick else REGRET_WORKFLOWS

    def compute() -> Row:
        rng = np.random.default_rng([settings.seed, workflows])
        return _flat(regrets(rng, PUBLISHED_OPERATORS, PLATFORMS, workflows=workflows))

    about: Row = {
        "what": SEARCH,
        "size": _size(PUBLISHED_OPERATORS, PLATFORMS),
        "workflows": workflows,
    }
    rows = _rows(settings.cell("regrets", compute))
    return [{**about, "method": name, **row} for name, row in rows]


def _compared(settings: Settings) -> Row:
    workflows = QUICK_COMPARED if settings.quick else COMPARED
    rng = np.random.default_rng([settings.seed, workflows])
    return {
        "what": BRUTE_FORCE,
        "method": FRONTIER,
        "workflows": workflows,
        "optimal": equal_to_brute_force(rng, PLATFORMS, workflows=workflows) / workflows,
    }


def _flat(rows: Mapping[str, Mapping[str, float]]) -> Row:
    """Rows by name as one, the way a cell is kept. Four digits are enough for a table."""
    return {
        f"{name}: {what}": float(f"{value:.4g}")
        for name, row in rows.items()
        for what, value in row.items()
    }


def _rows(flat: Row) -> list[tuple[str, dict[str, Value]]]:
    """Return what `_flat` was made of."""
    rows: dict[str, dict[str, Value]] = {}
    for key, value in flat.items():
        name, _, what = key.partition(": ")
        rows.setdefault(name, {})[what] = value
    return list(rows.items())


def _exact(rows: Iterable[Row], what: str, size: str | None = None) -> Row:
    """Return the row of the exact search."""
    filters = {"what": what, "method": FRONTIER} | ({"size": size} if size else {})
    return next(row for row in rows if filters.items() <= row.items())


def _size(operators: int, platforms: int) -> str:
    return f"{operators}{BY}{platforms}"


EXPERIMENT = OptimizerBenchmark()
