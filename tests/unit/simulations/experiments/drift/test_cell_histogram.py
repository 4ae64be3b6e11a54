"""Tests of private rows of a table. tests/statistical covers the scale of their noise."""

import math

import numpy as np
import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.data.public_table import Columns, PublicTable
from fedperf_simulations.experiments.drift.rehearsal_methods import BINS, CellHistogram, release

COLUMNS = Columns((3, 2), 2)
ALMOST_NO_NOISE = 1e4


def table(count: int) -> PublicTable:
    return COLUMNS.random(count, np.random.default_rng(count))


def released(some: PublicTable, epsilon: float = ALMOST_NO_NOISE) -> CellHistogram:
    return release(some, COLUMNS, epsilon=epsilon, rng=np.random.default_rng(3))


def test_cell_histogram_changes_by_one_cell_and_one_bin_per_column_per_record() -> None:
    some = table(200)
    before, after = released(some.at(np.arange(199))), released(some)
    assert np.abs(after.cells - before.cells).sum() == 1
    np.testing.assert_array_equal(np.abs(after.bins - before.bins).sum(axis=(1, 2)), [1, 1])


def test_cell_histogram_rows_reproduce_counts_and_bins() -> None:
    some = table(4_000)
    histogram = released(some)
    rows = histogram.rows(np.random.default_rng(4))
    assert len(rows) == histogram.count == len(some)
    again = released(rows)
    np.testing.assert_array_equal(again.cells, histogram.cells)
    assert np.abs(rows.numbers).max() <= 1
    drawn, counted = (each.bins.sum(axis=1) / len(some) for each in (again, histogram))
    np.testing.assert_allclose(drawn, counted, atol=0.02)


def test_cell_histogram_has_bins_for_values_at_the_bounds() -> None:
    edges = PublicTable(np.zeros((2, 2), dtype=np.int64), np.array([[-1.0, -1.0], [1.0, 1.0]]))
    bins = released(edges).bins[0, 0]
    assert (bins[0], bins[BINS - 1], bins.sum()) == (1, 1, 2)


def test_cell_histogram_draws_numbers_from_the_bins_of_their_cell() -> None:
    codes = np.repeat(np.array([[0, 0], [2, 1]]), 500, axis=0)
    numbers = np.repeat(np.array([[-0.9, 0.9], [0.9, -0.9]]), 500, axis=0)
    rows = released(PublicTable(codes, numbers)).rows(np.random.default_rng(5))
    first = rows.codes[:, 0] == 0
    assert rows.numbers[first, 0].max() < -0.8
    assert rows.numbers[~first, 0].min() > 0.8


def test_cell_histogram_without_bins_draws_numbers_uniformly() -> None:
    nothing = CellHistogram(
        COLUMNS, np.full(COLUMNS.cells, 500), np.zeros((2, COLUMNS.cells, BINS), dtype=np.int64)
    )
    numbers = nothing.rows(np.random.default_rng(6)).numbers
    assert abs(float(numbers.mean())) < 0.05
    assert float(numbers.std()) == pytest.approx(1 / math.sqrt(3), rel=0.05)


def test_cell_histogram_of_empty_table_can_be_released() -> None:
    nothing = table(0)
    assert 0 <= released(nothing, epsilon=0.5).count < 100
    assert len(released(nothing).rows(np.random.default_rng(7))) == 0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_cell_histogram_with_invalid_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigurationError, match="epsilon"):
        released(table(10), epsilon)
