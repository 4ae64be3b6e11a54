"""Tests of tables whose lists and bounds are public."""

import numpy as np
import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.data.public_table import Columns, PublicTable, code_of, scaled

COLUMNS = Columns((3, 2), 1)


def test_public_table_encodes_categories_one_hot_and_keeps_numbers() -> None:
    table = PublicTable(np.array([[2, 0], [0, 1]]), np.array([[0.5], [-1.0]]))
    np.testing.assert_array_equal(
        COLUMNS.encoded(table), [[0, 0, 1, 1, 0, 0.5], [1, 0, 0, 0, 1, -1.0]]
    )
    assert COLUMNS.encoded(table).shape[1] == COLUMNS.inputs


def test_public_table_cells_enumerate_category_combinations() -> None:
    cells = np.arange(COLUMNS.cells)
    table = COLUMNS.of_cells(cells, np.zeros((len(cells), 1)))
    assert len({tuple(each) for each in table.codes.tolist()}) == COLUMNS.cells == 6
    np.testing.assert_array_equal(COLUMNS.cell_of(table), cells)


def test_public_table_random_rows_cover_cells_and_bounds() -> None:
    table = COLUMNS.random(3_000, np.random.default_rng(1))
    counts = np.bincount(COLUMNS.cell_of(table), minlength=6)
    assert counts.min() > 400
    assert -1 <= table.numbers.min() < -0.99 < 0.99 < table.numbers.max() <= 1


def test_scaled_clips_to_bounds_and_refuses_missing_values() -> None:
    np.testing.assert_allclose(
        scaled(np.array([-5.0, 0.0, 5.0, 10.0, 99.0]), 0, 10), [-1, -1, 0, 1, 1]
    )
    with pytest.raises(InvalidInputError, match="missing"):
        scaled(np.array([1.0, np.nan]), 0, 10)


def test_category_code_outside_public_list_is_refused() -> None:
    np.testing.assert_array_equal(code_of("job", ["sort", "grep"], ["grep", "sort"]), [1, 0])
    with pytest.raises(InvalidInputError, match="job 'joe' is not in its public list: grep, sort"):
        code_of("job", ["grep", "joe"], ["grep", "sort"])
