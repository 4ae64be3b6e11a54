"""Tests of source kinds of other packages: they are used, and their failures are isolated."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedperf_client import cli, sources
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.history_file import write_history
from fedperf_client.sources.ingestion import (
    LONGEST_REASON,
    MAX_REASONS,
    follow,
    ingest,
    ingest_source,
)
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import Execution
from tests.unit.client.data_directories import made_home
from tests.unit.client.executions import make_execution
from tests.unit.shared.console_programs import run

Found = Execution | SkippedRecord


class ForeignLog:
    """Source of another package that yields one execution and then fails."""

    def __init__(self, failure: Callable[[], object]) -> None:
        self._failure = failure

    def read(self) -> Iterator[Found]:
        yield make_execution(7)
        found = self._failure()
        if not isinstance(found, list):
            yield found  # type: ignore[misc]
            return
        yield from found


class ForeignKind:
    """Source kind that such a package registers."""

    failure: Callable[[], object] = list

    def __call__(self, path: Path) -> ForeignLog | None:
        return ForeignLog(self.failure) if path.suffix == ".flink" else None


open_foreign = ForeignKind()


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForeignKind]:
    entries = (
        EntryPoint("flink log", f"{__name__}:open_foreign", sources.GROUP),
        EntryPoint("history", "fedperf_client.sources.history_file:open_history", sources.GROUP),
    )
    monkeypatch.setattr(sources, "entry_points", lambda group: entries)
    sources._kinds.cache_clear()
    yield open_foreign
    monkeypatch.undo()
    sources._kinds.cache_clear()
    open_foreign.failure = list


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExecutionStore]:
    with ExecutionStore.open(tmp_path / "store.sqlite") as store:
        yield store


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_home(tmp_path_factory.mktemp("home")).directory


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Return a log of the foreign kind and a history that is read after it."""
    (tmp_path / "a.flink").write_text("anything")
    write_history(tmp_path / "b.parquet", [make_execution(1)])
    return [tmp_path / "a.flink", tmp_path / "b.parquet"]


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


FAILURES = {
    "a bug": (failing(KeyError("slots")), "'flink log' failed to read it (KeyError: 'slots')"),
    "the disk": (failing(OSError(5, "Input/output error")), "Input/output error"),
    "storage": (failing(StorageError("it is gone")), "it is gone"),
    "junk": (lambda: 3, "'flink log' failed to read it (TypeError: it gave a int)"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failing_source_kind_refuses_only_its_own_source(
    foreign: ForeignKind, paths: list[Path], tmp_path: Path, name: str
) -> None:
    foreign.failure, told = FAILURES[name]
    bad, good = ingest(paths, tmp_path / "other.sqlite")
    assert told in bad.refused
    assert "\n" not in bad.refused
    assert (good.refused, good.taken.new) == ("", 1)


@pytest.mark.parametrize("name", FAILURES)
def test_failing_source_kind_is_reported_once_by_follow_and_others_are_read(
    foreign: ForeignKind, paths: list[Path], tmp_path: Path, name: str
) -> None:
    foreign.failure, told = FAILURES[name]
    looked = follow(paths, {}, tmp_path / "store.sqlite")
    (problem,) = looked.problems
    assert told in problem
    assert looked.taken.new == 1
    again = follow(paths, looked.states, tmp_path / "store.sqlite")
    assert again.problems == ()  # reported once per change


def test_source_without_read_method_is_refused_by_name(
    foreign: ForeignKind, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del foreign
    monkeypatch.delattr(ForeignLog, "read")
    bad, good = ingest(paths, tmp_path / "other.sqlite")
    assert "a.flink: the source kind 'flink log' failed to read it (AttributeError" in bad.refused
    assert good.taken.new == 1


def test_skip_reasons_are_limited_in_number_and_length(
    foreign: ForeignKind, paths: list[Path], store: ExecutionStore
) -> None:
    foreign.failure = lambda: [SkippedRecord("row", f"{each} " * 1000) for each in range(10_000)]
    skipped = ingest_source(paths[0], store).skipped
    assert sum(skipped.values()) == 10_000
    assert len(skipped) == MAX_REASONS + 1
    assert max(map(len, skipped)) == LONGEST_REASON


def test_find_sources_lists_each_file_once_sorted_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a", "c", ".hidden/x", "b/.x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "again").symlink_to(tmp_path / "b")
    problems: list[str] = []
    found = list(sources.find_sources([tmp_path / "c", tmp_path], problems))
    shown = [(str(place).removeprefix(f"{tmp_path}/"), named) for place, named in found]
    assert shown == [("c", True), ("a", False), ("b/1", False), ("b/2", False)]
    assert problems == []


def test_find_sources_reports_unreadable_directory_and_lists_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/x", "b/x", "c/x"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    scandir = os.scandir

    def scanned(path: Path) -> object:
        if path == tmp_path / "b":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    problems: list[str] = []
    found = [place for place, _ in sources.find_sources([tmp_path], problems)]
    assert found == [tmp_path / "a" / "x", tmp_path / "c" / "x"]
    assert problems == [f"{tmp_path / 'b'}: Permission denied"]


def test_find_sources_with_too_long_name_reports_one_problem(tmp_path: Path) -> None:
    problems: list[str] = []
    assert list(sources.find_sources([tmp_path / ("x" * 5000)], problems)) == []
    assert "too long" in problems[0]


@pytest.mark.slow
def test_find_sources_walks_directories_deeper_than_recursion_limit(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(sys.getrecursionlimit() + 50):
        deep /= "d"
        deep.mkdir()
    problems: list[str] = []
    assert list(sources.find_sources([tmp_path], problems)) == []
    assert problems == []
    while deep != tmp_path:  # too deep for pytest's cleanup
        deep.rmdir()
        deep = deep.parent


@pytest.mark.parametrize("command", ["ingest", "diagnose", "advise"])
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("hdfs:///logs", "hdfs:///logs: hdfs:// addresses are not read; .* hdfs dfs -get"),
        ("wasbs://c@store/logs", "wasbs://c@store/logs: .* azcopy copy"),
        ("ftp://host/logs", "the tools of that store"),
        (
            "s3://b/x?profile=me",
            r"x\?\*\*\*: an unknown option; allowed are endpoint_override",
        ),
        ("http://:18080/", "expected http://HOST:18080"),
        ("abfs://logs/x", "no account; expected abfss://CONTAINER@ACCOUNT"),
    ],
)
def test_command_with_an_address_that_is_not_read_says_what_to_do(
    home: Path, command: str, address: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    ended = run(cli.main, "--home", home, command, address)
    assert ended.code == 3
    assert re.search(told, ended.complaint())


def test_local_path_accepts_existing_path_that_looks_like_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "logs").mkdir(parents=True)
    assert sources.local_path("s3://logs") == Path("s3:/logs")
    assert sources.local_path("C:logs") == Path("C:logs")


def test_find_sources_reads_directory_that_looks_like_an_address(tmp_path: Path) -> None:
    (tmp_path / "s3:" / "logs").mkdir(parents=True)
    (tmp_path / "s3:" / "logs" / "file").write_text("hello")
    problems: list[str] = []
    found = [place for place, _ in sources.find_sources([tmp_path / "s3:" / "logs"], problems)]
    assert (found, problems) == ([tmp_path / "s3:" / "logs" / "file"], [])
