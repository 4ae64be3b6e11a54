"""Following histories: what is new is taken in once, and one bad file hides no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedperf_client.sources.following import Stamp, Taken, follow
from fedperf_client.sources.history_file import write_history
from fedperf_client.store import ExecutionStore
from fedperf_shared.errors import InvalidInputError, StorageError
from tests.unit.client.executions import make_execution


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExecutionStore]:
    with ExecutionStore.open(tmp_path / "store.sqlite") as store:
        yield store


def jobs(path: Path, *numbers: int) -> Path:
    write_history(path, [make_execution(number) for number in numbers])
    return path


def test_a_directory_is_followed_and_only_what_changed_is_read(
    tmp_path: Path, store: ExecutionStore
) -> None:
    seen: dict[Path, Stamp] = {}
    jobs(tmp_path / "a.parquet", 1, 2)
    (tmp_path / "notes.txt").write_text("not mine")
    assert follow([tmp_path], seen, store) == Taken(seen=2, new=2)
    assert follow([tmp_path], seen, store) == Taken()
    jobs(tmp_path / "b.parquet", 2, 3)
    assert follow([tmp_path], seen, store) == Taken(seen=2, new=1)
    jobs(tmp_path / "a.parquet", 1, 2, 4)
    assert follow([tmp_path], seen, store) == Taken(seen=3, new=1)
    assert store.counts().executions == 4


def test_a_bad_file_is_named_once_and_hides_no_other(tmp_path: Path, store: ExecutionStore) -> None:
    seen: dict[Path, Stamp] = {}
    (tmp_path / "a.parquet").write_text("no Parquet")
    (tmp_path / "b.parquet").write_text("neither")
    jobs(tmp_path / "c.parquet", 1)
    with pytest.raises(InvalidInputError, match=r"a\.parquet.*b\.parquet"):
        follow([tmp_path], seen, store)
    assert store.counts().executions == 1
    assert follow([tmp_path], seen, store) == Taken()
    jobs(tmp_path / "a.parquet", 2)
    assert follow([tmp_path], seen, store).new == 1


def test_a_path_that_is_not_there_hides_no_other(tmp_path: Path, store: ExecutionStore) -> None:
    there = jobs(tmp_path / "jobs.parquet", 1)
    with pytest.raises(InvalidInputError, match="missing: no such file"):
        follow([tmp_path / "missing", there], {}, store)
    assert store.counts().executions == 1


def test_a_file_that_could_not_be_stored_is_read_again(tmp_path: Path) -> None:
    seen: dict[Path, Stamp] = {}
    file = jobs(tmp_path / "jobs.parquet", 1)
    store = ExecutionStore.open(tmp_path / "store.sqlite")
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError):
        follow([file], seen, store)
    store._connection.execute("PRAGMA query_only = OFF")
    assert follow([file], seen, store).new == 1
    store.close()


def test_more_than_a_batch_is_taken_in(tmp_path: Path, store: ExecutionStore) -> None:
    file = jobs(tmp_path / "jobs.parquet", *range(1001))
    assert follow([file], {}, store) == Taken(seen=1001, new=1001)
