"""Tests of followed sources: new content is stored once, and a bad source blocks no other."""

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
    """Repeated checks of the same paths, hours apart."""

    def __init__(self, store: Path, *paths: Path) -> None:
        self.seen: dict[str, SourceState] = {}
        self._store, self._paths = store, paths
        self._hours = count(step=3600)

    def look(self, timer: Callable[[], float] | None = None) -> SourceCheckResult:
        def now() -> float:
            return float(next(self._hours))

        # Timestamps around one read are an hour apart, checks much more.
        for _ in range(100):
            now()
        found = follow(self._paths, self.seen, self._store, timer=timer or now)
        self.seen = found.states
        return found


def test_follow_reads_only_new_or_changed_files_of_a_directory(
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


def test_follow_after_restart_reads_only_changed_files(jobs_directory: Path, store: Path) -> None:
    jobs(jobs_directory / "a.parquet", 1, 2)
    (jobs_directory / "b.parquet").write_text("no Parquet")
    assert Looks(store, jobs_directory).look().taken == taken(2, 2)
    again = Looks(store, jobs_directory).look()
    assert again.taken == IngestionCounts()
    assert len(again.problems) == 1
    jobs(jobs_directory / "a.parquet", 1, 2, 3)
    assert Looks(store, jobs_directory).look().taken == taken(3, 1)


def test_follow_limits_share_of_time_spent_on_a_changing_source(
    jobs_directory: Path, store: Path
) -> None:
    moments = [0.0, 10.0]  # reading takes ten seconds
    looks = Looks(store, jobs_directory)
    jobs(jobs_directory / "a.parquet", 1)
    assert looks.look(iter(moments).__next__).taken == taken(1, 1)
    jobs(jobs_directory / "a.parquet", 1, 2)
    assert looks.look(lambda: 209.0).taken == IngestionCounts()
    assert looks.look(lambda: 211.0).taken == taken(2, 1)


def test_follow_reports_an_invalid_file_once_and_reads_others(
    jobs_directory: Path, store: Path
) -> None:
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


def test_follow_reports_a_missing_path_and_reads_others(tmp_path: Path, store: Path) -> None:
    there = jobs(tmp_path / "jobs.parquet", 1)
    (problem,) = Looks(store, tmp_path / "missing", there).look().problems
    assert "missing: no such file" in problem
    assert stored(store) == 1


def test_follow_reports_unreadable_files_only_if_named_explicitly(
    tmp_path: Path, store: Path
) -> None:
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


def test_follow_reads_a_file_again_after_a_storage_error(tmp_path: Path, store: Path) -> None:
    looks = Looks(store, jobs(tmp_path / "jobs.parquet", 1))
    refuse = "BEFORE INSERT ON execution BEGIN SELECT raise(ABORT, 'no room'); END"
    with ExecutionStore.open(store) as opened:
        opened._connection.execute(f"CREATE TRIGGER refuse {refuse}")
        with pytest.raises(StorageError):
            looks.look()
        opened._connection.execute("DROP TRIGGER refuse")
    assert looks.look().taken.new == 1


def test_follow_stores_more_than_one_batch(tmp_path: Path, store: Path) -> None:
    file = jobs(tmp_path / "jobs.parquet", *range(1001))
    assert Looks(store, file).look().taken == taken(1001, 1001)
