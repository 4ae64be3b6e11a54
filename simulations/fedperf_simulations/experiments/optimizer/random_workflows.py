"""Random workflows and additive costs, to measure searches with.

Operators read what was placed shortly before them, so that a workflow looks like a query:
branches that join, some outputs that several read, several sources and sinks. Costs are
log-normal. Everything follows from the generator that is passed in.
"""

from collections.abc import Sequence

import numpy as np

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.enumeration import narrow_order, width
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN, Platform.SPARK)

PARENTS = (0.15, 0.6, 0.25)
"""How often an operator reads none, one and two others."""

REACH = 6
"""An operator reads one of the last so many."""

KINDS: Sequence[tuple[OperatorKind, ...]] = (
    (OperatorKind.TABLE_SOURCE, OperatorKind.FILE_SOURCE),
    (OperatorKind.FILTER, OperatorKind.MAP, OperatorKind.AGGREGATE, OperatorKind.SORT),
    (OperatorKind.JOIN, OperatorKind.UNION),
)
"""By number of parents."""

LOG_ROWS = (3.0, 15.0)
ROW_BYTES = (8, 200)

TRANSFER_CENTER, STARTUP_CENTER = -0.5, 0.5
"""Logs, beside 0 for an operator; the spread of all of them is 1."""


WARM, WHOLE_NUMBERS, FORBIDDEN = 0.3, 1 / 3, 0.2
"""Shares where costs are knotty: of platforms, of workflows, of operators on a platform."""


def random_workflow(rng: np.random.Generator, operators: int) -> Workflow:
    """A workflow of so many operators."""
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


def random_workflow_of_width(
    rng: np.random.Generator, operators: int, platforms: int, *, open_at_once: int
) -> Workflow:
    """One of which a search has exactly so many operators open at once, at the widest."""
    while True:
        drawn = random_workflow(rng, operators)
        if width(drawn, narrow_order(drawn, platforms)) == open_at_once:
            return drawn


def random_costs(rng: np.random.Generator, of: Workflow, platforms: int) -> AdditiveCosts:
    """Log-normal seconds; every platform can run everything and costs something to start."""
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
    """As `random_costs` with forbidden operators, warm platforms, and many plans that tie."""
    drawn = random_costs(rng, of, platforms)
    operators = len(of.operators)
    seconds, transfers = drawn.operator_seconds, drawn.transfer_seconds
    startups = drawn.startup_seconds * (rng.random(platforms) >= WARM)
    if rng.random() < WHOLE_NUMBERS:
        seconds, transfers, startups = np.ceil(seconds), np.floor(transfers), np.floor(startups)
    forbidden = rng.random((operators, platforms)) < FORBIDDEN
    forbidden[np.arange(operators), rng.integers(0, platforms, operators)] = False
    seconds = np.where(forbidden, np.inf, seconds)
    return AdditiveCosts(of, drawn.platforms, seconds, transfers, startups)
