from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedperf_engines.platforms.executor import conform, dataset_path
from fedperf_engines.platforms.operations import column_names
from fedperf_engines.workloads.data import SCALES, TABLES, prepare, read
from fedperf_shared.errors import InvalidInputError

UNIQUE_KEYS = {
    "applications": "application",
    "customers": "customer",
    "orders": "order_id",
    "parts": "part",
    "events": "event",
    "hot_events": "event",
    "items": "item_key",
    "groups": "group_key",
}
FOREIGN_KEYS = [
    ("records", "application_of", "applications", "application"),
    ("orders", "order_customer", "customers", "customer"),
    ("lines", "line_order", "orders", "order_id"),
    ("lines", "line_part", "parts", "part"),
    ("hot_events", "item", "items", "item_key"),
    ("offers", "offer_item", "items", "item_key"),
    ("events", "group_id", "groups", "group_key"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    prepare([f"{table}_3000" for table in TABLES], path)
    return path


def column(directory: Path, table: str, name: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    values: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        pq.read_table(dataset_path(directory, f"{table}_3000")).column(name).to_numpy()
    )
    return values


@pytest.mark.parametrize("table", TABLES)
def test_dataset_has_declared_columns_without_missing_values(table: str, directory: Path) -> None:
    found = pq.read_table(dataset_path(directory, f"{table}_3000"))
    schema = read(table, 3_000).columns
    assert found.column_names == list(column_names(schema))
    assert conform(found, schema).num_rows > 0
    assert all(each.null_count == 0 for each in found.columns)


@pytest.mark.parametrize(("table", "key"), UNIQUE_KEYS.items())
def test_dataset_dimension_keys_are_unique(table: str, key: str, directory: Path) -> None:
    values = column(directory, table, key)
    assert len(np.unique(values)) == len(values)


@pytest.mark.parametrize(("table", "key", "other", "other_key"), FOREIGN_KEYS)
def test_dataset_foreign_keys_reference_existing_rows(
    table: str, key: str, other: str, other_key: str, directory: Path
) -> None:
    assert np.isin(column(directory, table, key), column(directory, other, other_key)).all()


def test_dataset_has_exactly_two_offers_per_item(directory: Path) -> None:
    _, counts = np.unique(column(directory, "offers", "offer_item"), return_counts=True)
    assert set(counts) == {2}


def test_dataset_hot_events_have_a_more_frequent_key_than_events(directory: Path) -> None:
    def top(table: str) -> int:
        return int(np.unique(column(directory, table, "item"), return_counts=True)[1].max())

    assert top("hot_events") > 5 * top("events")


@pytest.mark.parametrize("table", ["prose", "chat"])
def test_text_dataset_has_words_of_its_scale_and_a_skewed_distribution(
    table: str, directory: Path
) -> None:
    lines = pq.read_table(dataset_path(directory, f"{table}_3000")).column("line").to_pylist()
    words = " ".join(lines).split(" ")
    counts = np.sort(np.unique(words, return_counts=True)[1])[::-1]
    assert len(words) == 3_000
    assert counts[0] > 10 * counts[100]


def test_dataset_is_determined_by_its_name(directory: Path, tmp_path: Path) -> None:
    (again,) = prepare(["records_3000"], tmp_path)
    assert pq.read_table(again).equals(pq.read_table(dataset_path(directory, "records_3000")))
    (other,) = prepare(["records_1000"], tmp_path)
    head = pq.read_table(again).slice(0, 1000)
    assert not pq.read_table(other).equals(head)


def test_dataset_is_written_once_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    (path,) = prepare(["web_1000"], tmp_path)
    written = path.stat().st_mtime_ns
    assert prepare(["web_1000", "web_1000"], tmp_path) == (path, path)
    assert path.stat().st_mtime_ns == written
    assert [each.name for each in tmp_path.iterdir()] == ["web_1000.parquet"]


@pytest.mark.parametrize("dataset", ["web", "web_", "web_1001", "web_-1", "nothing_1000", "_1000"])
def test_dataset_with_unknown_name_is_refused_and_not_written(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=dataset):
        prepare([dataset], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_dataset_scales_increase_from_thousand_to_thirty_million_rows() -> None:
    assert (SCALES[0], SCALES[-1]) == (10**3, 3 * 10**7)
    assert list(SCALES) == sorted(set(SCALES))
