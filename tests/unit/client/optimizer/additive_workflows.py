"""Random workflows with additive costs, and their optimal plans by brute force."""

from itertools import product

import numpy as np

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

KINDS = {0: OperatorKind.TABLE_SOURCE, 1: OperatorKind.MAP, 2: OperatorKind.JOIN}
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN, Platform.SPARK)


def workflow(*inputs: tuple[int, ...]) -> Workflow:
    return Workflow(
        tuple(
            Operator(KINDS.get(len(i), OperatorKind.UNION), OperatorClass.RELATIONAL, i, 100.0, 8.0)
            for i in inputs
        )
    )


def chain(length: int) -> Workflow:
    return workflow((), *[(n,) for n in range(length - 1)])


def random_workflow(rng: np.random.Generator, length: int) -> Workflow:
    """Return a random workflow with several sources and sinks, in arbitrary order.

    Some operators read one parent twice.
    """
    inputs: list[list[int]] = []
    for position in range(length):
        parents = 0 if position == 0 else int(rng.choice(4, p=[0.15, 0.45, 0.3, 0.1]))
        inputs.append(rng.integers(0, max(position, 1), parents).tolist())
    place = rng.permutation(length).tolist()
    written: list[tuple[int, ...]] = [()] * length
    for position, parents_of in enumerate(inputs):
        written[place[position]] = tuple(place[parent] for parent in parents_of)
    return workflow(*written)


def random_costs(
    rng: np.random.Generator, of: Workflow, platforms: int, *, forbidden: float = 0.2
) -> AdditiveCosts:
    """Return random costs with forbidden cells and warm platforms.

    One third of them are whole numbers, which leads to many ties.
    """
    operators, edges = len(of.operators), len(of.edges)
    seconds = rng.lognormal(size=(operators, platforms))
    transfers = rng.lognormal(-0.5, 1.0, (edges, platforms, platforms))
    startups = rng.lognormal(0.5, 1.0, platforms) * (rng.random(platforms) < 0.7)
    if rng.random() < 1 / 3:
        seconds, transfers, startups = np.ceil(seconds), np.floor(transfers), np.floor(startups)
    forbid = rng.random((operators, platforms)) < forbidden
    forbid[np.arange(operators), rng.integers(0, platforms, operators)] = False
    transfers[:, np.arange(platforms), np.arange(platforms)] = 0
    return AdditiveCosts(
        of, PLATFORMS[:platforms], np.where(forbid, np.inf, seconds), transfers, startups
    )


def random_world(seed: int) -> AdditiveCosts:
    rng = np.random.default_rng(seed)
    platforms = int(rng.integers(1, 4))
    return random_costs(rng, random_workflow(rng, int(rng.integers(1, 7))), platforms)


def seconds_of(costs: AdditiveCosts, plan: tuple[int, ...]) -> float:
    """Compute the cost of a plan term by term from its definition."""
    total = sum(float(costs.operator_seconds[o, p]) for o, p in enumerate(plan))
    for number, (parent, child) in enumerate(costs.workflow.edges):
        total += float(costs.transfer_seconds[number, plan[parent], plan[child]])
    return total + sum(float(costs.startup_seconds[p]) for p in set(plan))


def brute_force(costs: AdditiveCosts) -> list[float]:
    """Return the seconds of every allowed plan in ascending order."""
    plans = product(range(len(costs.platforms)), repeat=len(costs.workflow.operators))
    every = (seconds_of(costs, plan) for plan in plans)
    return sorted(seconds for seconds in every if seconds < np.inf)
