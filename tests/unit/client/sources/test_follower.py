"""Following sources: what is new is taken in once, and one bad source hides no other."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources.history_file import write_history
from fedperf_client.sources.ingestion import IngestionCounts, SourceCheckResult, SourceState, follow
from fedperf_shared.errors import StorageError
from tests.unit.client.executions import make_execution


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def stored(store: Path) -> int:
    with ExecutionStore.open(store) as opened:
        return opened.counts().executions


@pytest.fixture
def jobs_directory(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def jobs(path: Path, *numbers: int) -> Path:
    write_history(path, [make_execution(number) for number in numbers])
    return path


def taken(executions: int, new: int) -> IngestionCounts:
    return IngestionCounts(executions, new, 3 * executions, 3 * executions)


class Looks:
    """Looks at the same paths, hours apart."""

    def __init__(self, store: Path, *paths: Path) -> None:
        self.seen: dict[Path, SourceState] = {}
        self._store, self._paths = store, paths
        self._hours = count(step=3600)

    def look(self, timer: Callable[[], float] | None = None) -> SourceCheckResult:
        def now() -> float:
            return float(next(self._hours))

        # Two moments around one reading are an hour apart, looks much longer.
        for _ in range(100):
            now()
        found = follow(self._paths, self.seen, self._store, timer=timer or now)
        self.seen = found.states
        return found


def test_a_directory_is_followed_and_only_what_changed_is_read(
    jobs_directory: Path, store: Path
) -> None:
    looks = Looks(store, jobs_directory)
    jobs(jobs_directory / "a.parquet", 1, 2)
    (jobs_directory / "notes.txt").write_text("not mine")
    first = looks.look()
    assert (first.taken, first.problems) == (taken(2, 2), ())
    assert looks.look().taken == IngestionCounts()
    jobs(jobs_directory / "b.parquet", 2, 3)
    assert looks.look().taken == taken(2, 1)
    jobs(jobs_directory / "a.parquet", 1, 2, 4)
    assert looks.look().taken == taken(3, 1)
    assert stored(store) == 4


def test_another_daemon_does_not_begin_from_the_start(jobs_directory: Path, store: Path) -> None:
    jobs(jobs_directory / "a.parquet", 1, 2)
    (jobs_directory / "b.parquet").write_text("no Parquet")
    assert Looks(store, jobs_directory).look().taken == taken(2, 2)
    again = Looks(store, jobs_directory).look()
    assert again.taken == IngestionCounts()
    assert len(again.problems) == 1
    jobs(jobs_directory / "a.parquet", 1, 2, 3)
    assert Looks(store, jobs_directory).look().taken == taken(3, 1)


def test_a_source_that_changes_all_the_time_is_read_a_small_share_of_the_time(
    jobs_directory: Path, store: Path
) -> None:
    moments = [0.0, 10.0]  # reading takes ten seconds
    looks = Looks(store, jobs_directory)
    jobs(jobs_directory / "a.parquet", 1)
    assert looks.look(iter(moments).__next__).taken == taken(1, 1)
    jobs(jobs_directory / "a.parquet", 1, 2)
    assert looks.look(lambda: 209.0).taken == IngestionCounts()
    assert looks.look(lambda: 211.0).taken == taken(2, 1)


def test_a_bad_file_is_named_once_and_hides_no_other(jobs_directory: Path, store: Path) -> None:
    looks = Looks(store, jobs_directory)
    (jobs_directory / "a.parquet").write_text("no Parquet")
    (jobs_directory / "b.parquet").write_text("neither")
    jobs(jobs_directory / "c.parquet", 1)
    first, second = looks.look().problems
    assert "a.parquet" in first
    assert "b.parquet" in second
    assert stored(store) == 1
    assert looks.look().problems == ()
    jobs(jobs_directory / "a.parquet", 2)
    assert looks.look().taken.new == 1


def test_a_path_that_is_not_there_hides_no_other(tmp_path: Path, store: Path) -> None:
    there = jobs(tmp_path / "jobs.parquet", 1)
    (problem,) = Looks(store, tmp_path / "missing", there).look().problems
    assert "missing: no such file" in problem
    assert stored(store) == 1


def test_what_nobody_reads_is_named_where_it_was_asked_for(tmp_path: Path, store: Path) -> None:
    (tmp_path / "notes.txt").write_text("not mine")
    (tmp_path / "logs").mkdir()
    new = tmp_path / "logs" / "app.inprogress"
    new.write_bytes(b"")
    assert Looks(store, tmp_path / "logs").look().problems == ()
    (problem,) = Looks(store, new).look().problems
    assert "app.inprogress: empty" in problem
    (problem,) = Looks(store, tmp_path / "notes.txt").look().problems
    assert "not of a kind that can be read" in problem
    assert "Spark event log" in problem


def test_a_file_that_could_not_be_stored_is_read_again(tmp_path: Path, store: Path) -> None:
    looks = Looks(store, jobs(tmp_path / "jobs.parquet", 1))
    refuse = "BEFORE INSERT ON execution BEGIN SELECT raise(ABORT, 'no room'); END"
    with ExecutionStore.open(store) as opened:
        opened._connection.execute(f"CREATE TRIGGER refuse {refuse}")
        with pytest.raises(StorageError):
            looks.look()
        opened._connection.execute("DROP TRIGGER refuse")
    assert looks.look().taken.new == 1


def test_more_than_a_batch_is_taken_in(tmp_path: Path, store: Path) -> None:
    file = jobs(tmp_path / "jobs.parquet", *range(1001))
    assert Looks(store, file).look().taken == taken(1001, 1001)
