"""Measures the time to choose platforms, in a program of its own with one thread.

Usage: python -m fedperf_simulations.experiments.optimizer.measurement TASK

TASK is a `TimingTask` as JSON. The program prints JSON too: per way to choose a list of [processor
seconds, plans scored].

Choosing is all that a caller waits for: additive costs by the head that ships, the search,
features, one batched prediction of the public pretrained model. All ways take turns on each
workflow, in random order.

Workflows and additive costs are random. Operators read what was placed shortly before them, so that
a workflow looks like a query: branches that join, some outputs that several read, several sources
and sinks. Costs are log-normal. Everything follows from the generator that is passed in.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import Prediction, PredictLog, StudentT
from fedperf_engines.optimizer.additive_surrogate import AdditiveSurrogate
from fedperf_engines.optimizer.costs import AdditiveCosts, Constraints
from fedperf_engines.optimizer.enumeration import (
    Search,
    beam,
    cheapest_plans,
    choose,
    frontiers,
    narrow_order,
)
from fedperf_engines.optimizer.surrogate_store import shipped_surrogate
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.baselines.search import (
    EXHAUSTIVE_LIMIT,
    PruningRule,
    exhaustive_search,
    pruned_search,
    published_search,
)

PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN, Platform.SPARK)

PARENTS = (0.15, 0.6, 0.25)
"""Probabilities that an operator reads none, one and two others."""

REACH = 6
"""An operator reads one of the last so many."""

KINDS: Sequence[tuple[OperatorKind, ...]] = (
    (OperatorKind.TABLE_SOURCE, OperatorKind.FILE_SOURCE),
    (OperatorKind.FILTER, OperatorKind.MAP, OperatorKind.AGGREGATE, OperatorKind.SORT),
    (OperatorKind.JOIN, OperatorKind.UNION),
)
"""Kinds of operators by number of parents."""

LOG_ROWS = (3.0, 15.0)
ROW_BYTES = (8, 200)

TRANSFER_CENTER, STARTUP_CENTER = -0.5, 0.5
"""Logs relative to 0 for an operator. The standard deviation of all of them is 1."""


WARM, WHOLE_NUMBERS, FORBIDDEN = 0.3, 1 / 3, 0.2
"""Shares where costs are knotty: of platforms, of workflows, of operators on a platform."""


def random_workflow(rng: np.random.Generator, operators: int) -> Workflow:
    """Return a workflow of so many operators."""
    placed: list[Operator] = []
    for position in range(operators):
        count = int(rng.choice(len(PARENTS), p=PARENTS))
        near = np.arange(max(position - REACH, 0), position)
        inputs = rng.choice(near, min(count, len(near)), replace=False).tolist()
        kinds = KINDS[len(inputs)]
        placed.append(
            Operator(
                kinds[int(rng.integers(len(kinds)))],
                OperatorClass.RELATIONAL,
                tuple(inputs),
                float(np.exp(rng.uniform(*LOG_ROWS))),
                float(rng.integers(*ROW_BYTES)),
            )
        )
    return Workflow(tuple(placed))


def width(workflow: Workflow, order: Sequence[int]) -> int:
    """Return how many operators are open at once, at most."""
    return max(len(each) for each in frontiers(workflow, order))


def random_workflow_of_width(
    rng: np.random.Generator, operators: int, platforms: int, *, open_at_once: int
) -> Workflow:
    """Return one of which a search has exactly so many operators open at once, at the widest."""
    while True:
        workflow = random_workflow(rng, operators)
        if width(workflow, narrow_order(workflow, platforms)) == open_at_once:
            return workflow


def random_costs(rng: np.random.Generator, of: Workflow, platforms: int) -> AdditiveCosts:
    """Log-normal seconds. Every platform can run everything and has startup costs."""
    operators, edges = len(of.operators), len(of.edges)
    transfers = rng.lognormal(TRANSFER_CENTER, 1.0, (edges, platforms, platforms))
    transfers[:, np.arange(platforms), np.arange(platforms)] = 0
    return AdditiveCosts(
        of,
        PLATFORMS[:platforms],
        rng.lognormal(size=(operators, platforms)),
        transfers,
        rng.lognormal(STARTUP_CENTER, 1.0, platforms),
    )


def knotty_costs(rng: np.random.Generator, of: Workflow, platforms: int) -> AdditiveCosts:
    """Return `random_costs` with forbidden operators, warm platforms and many tied plans."""
    costs = random_costs(rng, of, platforms)
    operators = len(of.operators)
    seconds, transfers = costs.operator_seconds, costs.transfer_seconds
    startups = costs.startup_seconds * (rng.random(platforms) >= WARM)
    if rng.random() < WHOLE_NUMBERS:
        seconds, transfers, startups = np.ceil(seconds), np.floor(transfers), np.floor(startups)
    forbidden = rng.random((operators, platforms)) < FORBIDDEN
    forbidden[np.arange(operators), rng.integers(0, platforms, operators)] = False
    seconds = np.where(forbidden, np.inf, seconds)
    return AdditiveCosts(of, costs.platforms, seconds, transfers, startups)


ONE_BY_ONE = "one_by_one"
"""The published way, in addition to the names of `SEARCHES`."""

FRONTIER, BEAM, DELAYED_GREEDY, GREEDY = "frontier", "beam", "delayed_greedy", "greedy"
SEARCHES: Mapping[str, Search] = {
    FRONTIER: cheapest_plans,
    BEAM: beam,
    DELAYED_GREEDY: lambda costs, count: pruned_search(costs, PruningRule.DELAYED_GREEDY, count),
    GREEDY: lambda costs, count: pruned_search(costs, PruningRule.GREEDY, count),
}

CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=2**33)

WayCost = tuple[float, int]
"""Processor seconds, plans scored."""

TrainingMode = Callable[[Workflow], int]
"""Choose platforms and return the number of plans that the model scored."""


@dataclass(frozen=True, slots=True)
class TimingTask:
    """The sizes of one measurement of times.

    Attributes:
        operators: of every workflow.
        platforms: to choose from.
        workflows: how many.
        repeats: how often each way is taken on each, after one warm-up.
        seed: of workflows and turns.
        one_by_one: whether the published way is taken too.
        width: operators open at once; None for as it comes.
    """

    operators: int
    platforms: int
    workflows: int
    repeats: int
    seed: int
    one_by_one: bool = False
    width: int | None = None


def measure(task: TimingTask) -> Mapping[str, Sequence[WayCost]]:
    """Return every way's times, over all workflows and repeats, in one order for all."""
    rng = np.random.default_rng([task.seed, task.operators, task.platforms])
    ways = _ways(task, shipped_surrogate())
    taken: dict[str, list[WayCost]] = {name: [] for name in ways}
    for _ in range(task.workflows):
        workflow = _drawn(task, rng)
        for repeat in range(1 + task.repeats):
            for name in rng.permutation(list(ways)).tolist():
                cost = _taken(ways[name], workflow)
                if repeat > 0:
                    taken[name].append(cost)
    return taken


def _drawn(task: TimingTask, rng: np.random.Generator) -> Workflow:
    if task.width is None:
        return random_workflow(rng, task.operators)
    return random_workflow_of_width(rng, task.operators, task.platforms, open_at_once=task.width)


def _ways(task: TimingTask, head: AdditiveSurrogate) -> dict[str, TrainingMode]:
    searches = dict(SEARCHES)
    if task.platforms**task.operators <= EXHAUSTIVE_LIMIT:
        searches["exhaustive"] = lambda costs, _: exhaustive_search(costs, EXHAUSTIVE_LIMIT)
    model = predictor(load_pretrained_model())
    ways: dict[str, TrainingMode] = {
        name: partial(_chosen, task, head, model, search=search)
        for name, search in searches.items()
    }
    if task.one_by_one:
        ways[ONE_BY_ONE] = partial(_chosen_one_by_one, task, head, model)
    return ways


def _chosen(
    task: TimingTask,
    head: AdditiveSurrogate,
    model: PredictLog,
    workflow: Workflow,
    *,
    search: Search,
) -> int:
    platforms = PLATFORMS[: task.platforms]

    def predict(queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [Prediction(each, StudentT.within()) for each in model(queries).tolist()]

    costs = head.costs(workflow, CLUSTER, platforms)
    choice = choose(workflow, CLUSTER, Constraints(platforms), predict, costs=costs, search=search)
    return choice.plans_scored


def _chosen_one_by_one(
    task: TimingTask, head: AdditiveSurrogate, model: PredictLog, workflow: Workflow
) -> int:
    costs = head.costs(workflow, CLUSTER, PLATFORMS[: task.platforms])
    return published_search(costs, CLUSTER, model)[1]


def _taken(way: TrainingMode, workflow: Workflow) -> WayCost:
    before = time.process_time()
    plans = way(workflow)
    return time.process_time() - before, plans


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure(TimingTask(**orjson.loads(sys.argv[1])))))
