"""Tests of cells: every plan has one cell, and a contribution has norm at most 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.releases.basis import ALL_CELLS, CELLS, cell_of, contribution
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform
from tests.fakes.plans import diamond, plans


def test_residual_cells_are_numbered_without_gaps() -> None:
    assert [cell.index for cell in ALL_CELLS] == list(range(CELLS))


@given(plans())
def test_cell_of_any_plan_is_within_range(plan: Plan) -> None:
    assert 0 <= cell_of(plan).index < CELLS


def test_cell_of_plan_follows_platform_operator_class_and_size() -> None:
    cell = cell_of(diamond(Platform.POLARS, rows=200_000))
    assert (cell.platform, cell.operator_class, cell.size) == (
        Platform.POLARS,
        OperatorClass.RELATIONAL,
        2,
    )
    assert cell_of(diamond(Platform.FLINK)).platform is Platform.OTHER


@given(
    st.lists(
        st.tuples(st.integers(0, CELLS - 1), st.floats(allow_nan=True, allow_infinity=True)),
        min_size=1,
        max_size=20,
    ),
    st.floats(0.1, 5),
)
def test_contribution_of_any_workload_has_norm_at_most_one(
    executions: list[tuple[int, float]], clip: float
) -> None:
    cells, residuals = zip(*executions, strict=True)
    vector = contribution(np.array(cells), np.array(residuals), clip)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) <= 1 + 1e-12


def test_contribution_is_independent_of_the_number_of_runs() -> None:
    once = contribution(np.array([3]), np.array([0.5]), 1.0)
    often = contribution(np.full(50, 3), np.full(50, 0.5), 1.0)
    assert often == pytest.approx(once)
    assert once[3] == pytest.approx(1 / np.sqrt(2))
    assert once[CELLS + 3] == pytest.approx(0.5 / np.sqrt(2))


@pytest.mark.parametrize("residual", [np.inf, -np.inf, np.nan])
def test_contribution_counts_nonfinite_residual_as_zero(residual: float) -> None:
    broken = contribution(np.array([3, 5]), np.array([residual, 0.5]), 1.0)
    none = contribution(np.array([3, 5]), np.array([0.0, 0.5]), 1.0)
    np.testing.assert_array_equal(broken, none)
