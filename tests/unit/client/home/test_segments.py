"""Encoded columns of executions: stored once, matched to executions, deleted with them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.home import segments
from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.execution import Execution
from tests.unit.client.executions import make_execution


class Counted:
    """An encoder of runtimes of even-numbered executions. It counts the executions it receives."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, executions: Sequence[Execution]) -> dict[str, NDArray[Any]]:
        self.seen += len(executions)
        numbers = [int(each.execution_id.split("-")[1]) for each in executions]
        told = [place for place, number in enumerate(numbers) if number % 2 == 0]
        values = np.array([numbers[place] for place in told], np.int64)
        wide = np.repeat(values[:, None], 3, axis=1).astype(np.float32)
        return {"number": np.array(told, np.int64), "value": values, "features": wide}


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExecutionStore]:
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        yield store


def some(*numbers: int) -> list[Execution]:
    return [make_execution(number) for number in numbers]


def values(store: ExecutionStore, encoder: Encoder) -> list[int]:
    """Return the values of all columns. Wide columns must belong to the same executions."""
    found = store.columns(encoder)
    if len(found["number"]):
        wide = store.features(encoder, found["number"])
        assert np.array_equal(wide, np.repeat(found["value"][:, None], 3, axis=1))
    stored = store.numbered(found["number"].tolist())
    assert [each.execution_id for each in stored] == [f"execution-{n}" for n in found["value"]]
    told: list[int] = found["value"].tolist()
    return told


def test_store_encodes_each_execution_once(store: ExecutionStore, counted: Counted) -> None:
    encoder = Encoder(b"one", counted)
    store.add(some(0, 1), encoder)
    store.add(some(2, 3, 4))
    store.add(some(4, 5, 6), encoder)
    assert counted.seen == 4
    assert values(store, encoder) == [0, 2, 4, 6]
    assert values(store, encoder) == [0, 2, 4, 6]
    assert counted.seen == 7


def test_columns_with_keep_false_stores_no_encoding(
    store: ExecutionStore, counted: Counted
) -> None:
    encoder = Encoder(b"one", counted)
    store.add(some(0, 2), encoder)
    store.add(some(4))
    for _ in range(2):
        assert store.columns(encoder, keep=False)["value"].tolist() == [0, 2, 4]
    assert counted.seen == 4


def test_store_opened_unchanged_encodes_missing_executions_without_storing(
    store: ExecutionStore, counted: Counted, tmp_path: Path
) -> None:
    encoder = Encoder(b"one", counted)
    store.add(some(0, 2), encoder)
    store.add(some(4, 6))
    with ExecutionStore.open_unchanged(tmp_path / "executions.sqlite") as reader:
        for _ in range(2):
            assert values(reader, encoder) == [0, 2, 4, 6]
    other = Encoder(b"other", counted)
    with ExecutionStore.open_unchanged(tmp_path / "executions.sqlite") as reader:
        assert values(reader, other) == [0, 2, 4, 6]
    assert store.columns(encoder, keep=False)["value"].tolist() == [0, 2, 4, 6]


def test_add_with_failing_encoder_stores_no_execution(store: ExecutionStore) -> None:
    def refuse(executions: Sequence[Execution]) -> dict[str, NDArray[Any]]:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.add(some(0), Encoder(b"one", refuse))
    assert store.ids() == ()


def test_changed_encoder_version_encodes_all_executions_again(
    store: ExecutionStore, counted: Counted
) -> None:
    store.add(some(0, 2), Encoder(b"one", counted))
    assert values(store, Encoder(b"two", counted)) == [0, 2]
    assert counted.seen == 4


def test_deleted_executions_lose_their_encoding_and_new_ones_are_encoded(
    store: ExecutionStore, counted: Counted
) -> None:
    encoder = Encoder(b"one", counted)
    store.add(some(0, 2, 4, 6), encoder)
    store.delete(["execution-2", "execution-6"])
    assert values(store, encoder) == [0, 4]
    store.add(some(8))
    assert values(store, encoder) == [0, 4, 8]
    store.delete(["execution-0", "execution-4", "execution-8"])
    assert values(store, encoder) == []


def test_small_segments_are_merged(
    store: ExecutionStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 4)
    encoder = Encoder(b"one", counted)
    for number in range(0, 30, 2):
        store.add(some(number), encoder)
    count = store._connection.execute("SELECT count(*) FROM segment").fetchone()[0]
    assert count < 8
    assert values(store, encoder) == list(range(0, 30, 2))
