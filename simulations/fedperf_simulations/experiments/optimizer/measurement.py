"""The time to choose platforms, in a program of its own that is started with one thread.

Usage: python -m fedperf_simulations.experiments.optimizer.measurement TASK

TASK is a `TimingTask` as JSON. The program prints JSON too: per way to choose a list of [processor
seconds, plans scored].

Choosing is all that a caller waits for: additive costs by the head that ships, the search,
features, one batched answer of the public start. All ways take turns on each workflow, in random
order.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import Prediction, PredictLog
from fedperf_engines.optimizer.additive_surrogate import AdditiveSurrogate
from fedperf_engines.optimizer.enumeration import Search, beam, cheapest_plans, choose
from fedperf_engines.optimizer.surrogate_store import shipped_surrogate
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.workflow.graph import Workflow
from fedperf_simulations.baselines.pruned_search import (
    EXHAUSTIVE_LIMIT,
    PruningRule,
    exhaustive_search,
    pruned_search,
)
from fedperf_simulations.baselines.published_search import published_search
from fedperf_simulations.experiments.optimizer.random_workflows import (
    PLATFORMS,
    random_workflow,
    random_workflow_of_width,
)

ONE_BY_ONE = "one_by_one"
"""The published way, beside the names of `SEARCHES`."""

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
"""Chooses; says how many plans the model was asked about."""


@dataclass(frozen=True, slots=True)
class TimingTask:
    """The sizes of one measurement of times.

    Attributes:
        operators: of every workflow.
        platforms: to choose from.
        workflows: how many.
        repeats: how often each way is taken on each, beside once to warm up.
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
    """Every way's times, over all workflows and repeats, in one order for all."""
    rng = np.random.default_rng([task.seed, task.operators, task.platforms])
    ways = _ways(task, shipped_surrogate())
    taken: dict[str, list[WayCost]] = {name: [] for name in ways}
    for _ in range(task.workflows):
        workflow = _drawn(task, rng)
        for repeat in range(1 + task.repeats):
            for name in rng.permutation(list(ways)).tolist():
                found = _taken(ways[name], workflow)
                if repeat > 0:
                    taken[name].append(found)
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

    def predict(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [Prediction(s, s / 2, 2 * s) for s in np.exp(model(questions)).tolist()]

    costs = head.costs(workflow, CLUSTER, platforms)
    choice = choose(workflow, CLUSTER, platforms, predict, costs=costs, search=search)
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
