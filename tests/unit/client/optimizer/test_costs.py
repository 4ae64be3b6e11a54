from dataclasses import replace

import numpy as np
import pytest

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.optimizer.additive_workflows import (
    chain,
    random_costs,
    random_world,
    seconds_of,
    workflow,
)

DUCKDB, POLARS, SPARK = Platform.DUCKDB, Platform.POLARS, Platform.SPARK


def two_platforms() -> AdditiveCosts:
    """Return costs of a source that a join reads twice. Polars has a start-up time."""
    return AdditiveCosts(
        workflow((), (0, 0)),
        (DUCKDB, POLARS),
        np.array([[1.0, 2.0], [4.0, np.inf]]),
        np.array([[[0.0, 0.1], [0.25, 0.0]], [[0.0, 0.1], [0.5, 0.0]]]),
        np.array([0.0, 16.0]),
    )


def test_plan_cost_sums_operators_edges_and_startups() -> None:
    costs = two_platforms()
    assert costs.total((DUCKDB, DUCKDB)) == 5.0
    assert costs.total((POLARS, DUCKDB)) == 2 + 4 + 0.25 + 0.5 + 16
    assert costs.total((DUCKDB, POLARS)) == np.inf


def test_totals_match_reference_implementation() -> None:
    for seed in range(30):
        costs = random_world(seed)
        plan = np.random.default_rng(seed).integers(
            0, len(costs.platforms), len(costs.workflow.operators)
        )
        expected = pytest.approx(seconds_of(costs, tuple(plan.tolist())))
        assert costs.totals(plan[None])[0] == expected
        assert costs.total(costs.assignment(plan)) == expected


def test_costs_within_some_platforms_equal_those_of_all() -> None:
    rng = np.random.default_rng(3)
    costs = random_costs(rng, workflow((), (0, 0), (1,)), 4, forbidden=0.0)
    chosen = (costs.platforms[3], costs.platforms[1])
    allowed = np.array([[True, True], [False, True], [True, True]])
    within = costs.within(chosen, allowed)
    assert within.platforms == chosen
    assert (within.allowed == allowed).all()
    for plan in ((0, 1, 0), (1, 1, 1)):
        assignment = tuple(chosen[column] for column in plan)
        assert within.total(assignment) == pytest.approx(costs.total(assignment))


def test_costs_within_unknown_platform_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="no costs are known of spark"):
        two_platforms().within((DUCKDB, SPARK), np.ones((2, 2), np.bool_))


def test_operator_with_infinite_cost_everywhere_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"operator 1 \(JOIN\) runs nowhere"):
        two_platforms().within((POLARS,), np.ones((2, 1), np.bool_))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operator_seconds": np.ones((3, 2))}, r"operator seconds have the shape \(3, 2\)"),
        ({"operator_seconds": np.array([[1, np.nan], [1, 1]])}, "numbers from 0 on"),
        ({"transfer_seconds": np.ones((1, 2, 2))}, "shape"),
        ({"transfer_seconds": np.ones((2, 2, 2))}, "0 on the diagonal"),
        ({"transfer_seconds": np.full((2, 2, 2), -1.0)}, "numbers from 0 on"),
        ({"startup_seconds": np.array([0, np.inf])}, "start-up seconds are finite"),
        ({"startup_seconds": np.array([0, -1.0])}, "numbers from 0 on"),
        ({"platforms": (DUCKDB, DUCKDB)}, "each once"),
        ({"workflow": chain(2)}, "transfer seconds have the shape"),
    ],
)
def test_costs_with_invalid_shape_or_values_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        replace(two_platforms(), **changes)  # type: ignore[arg-type]
