"""Tests of plan gradients: they equal autograd and are bitwise independent of other plans."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from fedperf_shared.model.plan_gradients import (
    LINEARIZED_ARRAYS,
    LINEARIZED_WEIGHTS,
    exact_product,
    grid,
    one_thread,
    plan_gradients,
)
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS, OperatorClass, OperatorKind, Platform
from fedperf_simulations.model.ggfn import GGFN, collate
from tests.fakes.linearized_queries import to_weights
from tests.fakes.plans import ONE_CORE

GENERATOR = torch.Generator().manual_seed(3)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def rows(count: int, width: int) -> torch.Tensor:
    """Return numbers of very different magnitudes."""
    numbers = torch.randn(count, width, generator=GENERATOR)
    return numbers * 10.0 ** (torch.rand(count, width, generator=GENERATOR) * 12 - 6)


def branches(length: int, source_rows: float) -> Plan:
    """Return a plan whose operators each read an operator half as far from the source."""
    kinds = (OperatorKind.FILTER, OperatorKind.SORT, OperatorKind.SINK)
    operators = [Operator(OperatorKind.FILE_SOURCE, OperatorClass.RELATIONAL, (), source_rows, 40)]
    for place in range(1, length):
        kind, inputs = kinds[place % len(kinds)], (place // 2,)
        operators.append(Operator(kind, OperatorClass.RELATIONAL, inputs, source_rows / place, 40))
    workflow = Workflow(tuple(operators), SourceStatistics(columns=6))
    return Plan.on_one_platform(workflow, PLATFORMS[length % len(PLATFORMS)])


@pytest.fixture(scope="module")
def model() -> GGFN:
    return GGFN(seed=3, dropout=0.0).eval()


@pytest.fixture(scope="module")
def graphs() -> list[Features]:
    """Return more plans than one pass holds, of many lengths and in no order."""
    lengths = [1 + 7 * place % 24 for place in range(70)]
    return [featurize(branches(length, 10.0 * length**2), ONE_CORE) for length in lengths]


def test_grid_rounds_a_row_to_22_bits_of_its_largest_number() -> None:
    numbers = rows(50, 128)
    rounded = grid(numbers)
    largest = numbers.abs().amax(1, keepdim=True).double()
    assert bool(((rounded - numbers.double()).abs() <= largest * 2.0**-22).all())
    steps = rounded / (2.0 ** (torch.frexp(largest)[1] - 22).double())
    assert torch.equal(steps, steps.round())
    assert bool((steps.abs() <= 2**22).all())


def test_exact_product_of_longest_rows_is_exact_before_one_rounding() -> None:
    left, right = rows(3, MAX_OPERATORS), rows(2, MAX_OPERATORS)
    left[2], right[1] = 1.0, 1.0
    product = exact_product(left, right)
    assert float(grid(left)[2, 0]) == 1.0
    for row in range(3):
        for column in range(2):
            pairs = zip(grid(left)[row].tolist(), grid(right)[column].tolist(), strict=True)
            exact = sum((Fraction(one) * Fraction(other) for one, other in pairs), Fraction())
            assert float(product[row, column]) == float(torch.tensor(float(exact)).float())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17, 64, 101])
def test_exact_product_row_is_independent_of_other_rows(count: int) -> None:
    left, right = rows(count, 384), rows(128, 384)
    together = exact_product(left, right)
    for place in range(count):
        assert torch.equal(exact_product(left[place : place + 1], right)[0], together[place])


@pytest.mark.parametrize(
    "value", [float("inf"), float("-inf"), float("nan"), 3e38, 2.0**127, -2e37]
)
def test_grid_row_with_too_large_a_number_becomes_nan_and_changes_no_other(value: float) -> None:
    """The grid of such a row would not fit in float32 and keep too many bits to be exact."""
    numbers = rows(3, 64)
    changed = numbers.clone()
    changed[1, 7] = value
    assert bool(grid(changed)[1].isnan().all())
    assert torch.equal(grid(changed)[[0, 2]], grid(numbers)[[0, 2]])


def test_one_thread_restores_the_number_of_torch_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with one_thread():
            inside = torch.get_num_threads()
        assert (inside, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_plan_gradients_equal_single_plan_autograd(model: GGFN, graphs: list[Features]) -> None:
    outputs, gradients = plan_gradients(to_weights(model), graphs)
    weights = [model.get_parameter(name) for name in LINEARIZED_ARRAYS]
    for place in range(0, len(graphs), 5):
        output = model(collate([graphs[place]])).sum()
        parts = torch.autograd.grad(output, weights)
        expected = torch.cat([part.flatten() for part in parts])
        assert float(outputs[place]) == pytest.approx(float(output.detach()), abs=1e-5)
        assert (gradients[place] - expected).norm() <= 1e-5 * expected.norm()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.slow
def test_plan_gradients_are_bitwise_independent_of_other_plans_and_order(
    model: GGFN, graphs: list[Features]
) -> None:
    outputs, gradients = plan_gradients(to_weights(model), graphs)
    backwards = plan_gradients(to_weights(model), graphs[::-1])
    assert torch.equal(backwards[0].flip(0), outputs)
    assert torch.equal(backwards[1].flip(0), gradients)
    for place in range(len(graphs)):
        output, gradient = plan_gradients(to_weights(model), [graphs[place]])
        assert torch.equal(output[0], outputs[place])
        assert torch.equal(gradient[0], gradients[place])


def test_plan_gradients_nonfinite_for_one_plan_change_no_other(graphs: list[Features]) -> None:
    """A crafted model overflows for the plans of one platform alone."""
    spark = featurize(Plan.on_one_platform(branches(9, 1e3).workflow, Platform.SPARK), ONE_CORE)
    column = int(
        (spark.operators.any(0) & ~np.any([g.operators.any(0) for g in graphs], 0)).argmax()
    )
    assert spark.operators[:, column].all()
    crafted = GGFN(seed=3, dropout=0.0).eval()
    with torch.no_grad():
        crafted.get_parameter("attention.0.lin.weight")[:, column] = 1.2e30
    outputs, gradients = plan_gradients(to_weights(crafted), graphs[:3])
    among = plan_gradients(to_weights(crafted), [*graphs[:2], spark, graphs[2]])
    assert bool(among[1][2].isnan().any())
    assert torch.equal(among[0][[0, 1, 3]], outputs)
    assert torch.equal(among[1][[0, 1, 3]], gradients)


@pytest.mark.slow
def test_plan_gradients_of_plan_with_the_most_operators_are_finite(model: GGFN) -> None:
    plan = featurize(branches(MAX_OPERATORS, 1e6), ONE_CORE)
    assert bool(plan_gradients(to_weights(model), [plan])[1].isfinite().all())


def test_plan_gradients_of_no_plans_are_empty(model: GGFN) -> None:
    outputs, gradients = plan_gradients(to_weights(model), [])
    assert outputs.shape == (0,)
    assert gradients.shape == (0, LINEARIZED_WEIGHTS)
