"""Table layouts: encoding of executions that have columns instead of plans."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedperf_campaigns.tables.layout import (
    InvalidTableError,
    TableColumn,
    TableLayout,
)
from fedperf_simulations.experiments.profiling_models import median_of_repeats
from tests.unit.client.prediction.jobs import grid, layout, samples


def test_table_layout_encodes_numbers_as_logs_categories_and_inverse_scale() -> None:
    features = samples().features
    assert features.shape == (60, 5)
    np.testing.assert_allclose(features[0], [np.log(2), 0.5, np.log(1000), 0.0, 1.0])
    assert (layout().scale_feature, layout().size_feature) == (0, 2)


def test_table_layout_scales_columns_with_zeros_by_their_largest_value() -> None:
    table = {**grid(), "share": [0.0, 0.5] * 30}
    found = TableLayout.of(table, scale="nodes", size="megabytes")
    assert not found.columns[-1].logged
    np.testing.assert_array_equal(found.samples(table).features[:2, -1], [0.0, 1.0])


def test_table_layout_encodes_unseen_category_as_zeros() -> None:
    asked = layout().samples({"nodes": [4], "megabytes": [900], "machine": ["new"]})
    np.testing.assert_array_equal(asked.features[0, 3:], [0.0, 0.0])


@pytest.mark.parametrize(
    ("column", "values", "complaint"),
    [
        ("nodes", [0.0], "'nodes' holds positive numbers, got 0"),
        ("nodes", [float("nan")], "positive numbers, got nan"),
        ("megabytes", [float("inf")], "positive numbers, got inf"),
        ("megabytes", ["many"], "'megabytes' holds numbers"),
    ],
)
def test_table_layout_with_invalid_number_names_the_column(
    column: str, values: Sequence[float | str], complaint: str
) -> None:
    table: dict[str, Sequence[float | str]] = {
        "nodes": [2.0],
        "megabytes": [900.0],
        "machine": ["slow"],
    }
    with pytest.raises(InvalidTableError, match=complaint):
        layout().samples({**table, column: values})


def test_table_layout_with_missing_columns_names_them() -> None:
    with pytest.raises(InvalidTableError, match="lacks the columns megabytes, machine"):
        layout().samples({"nodes": [2.0]})


def test_table_layout_requires_positive_scale_and_size_columns() -> None:
    with pytest.raises(InvalidTableError, match="'memory'"):
        TableLayout.of(grid(), scale="nodes", size="memory")
    with pytest.raises(InvalidTableError, match="'machine'"):
        TableLayout.of(grid(), scale="machine", size="megabytes")
    with pytest.raises(InvalidTableError, match="inverted"):
        TableColumn("share", inverted=True)


def test_median_of_repeats_keeps_order_of_first_appearance() -> None:
    found = samples()
    rows = np.array([5, 3, 5, 3, 5, 9])
    seconds = np.array([1.0, 4.0, 2.0, 6.0, 9.0, 7.0])
    kept, medians = median_of_repeats(found.take(rows), seconds)
    np.testing.assert_array_equal(kept.features, found.features[[5, 3, 9]])
    np.testing.assert_array_equal(medians, [2.0, 5.0, 7.0])
