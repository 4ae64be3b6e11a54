"""Tests of file permissions: stored files belong to their owner only, under any umask."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_campaigns.campaign.journal import Journal
from fedperf_client.home import sqlite_file
from fedperf_client.home.store import ExecutionStore
from fedperf_server.config import ServerConfig, write_config
from fedperf_server.state import database
from fedperf_server.state.database import Database
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.period import default_calendar


@pytest.fixture(autouse=True, params=[0o000, 0o022])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def an_execution_store(path: Path) -> None:
    with ExecutionStore.open(path):
        for each in (path, *path.parent.glob(f"{path.name}-*")):
            assert mode(each) == 0o600


def a_journal(path: Path) -> None:
    with Journal.open(path, "campaign"):
        pass


def a_coordinators_database(path: Path) -> None:
    opened = Database(f"sqlite:///{path}")
    with opened.transaction():
        pass
    opened.close()


FILES: list[Callable[[Path], None]] = [an_execution_store, a_journal, a_coordinators_database]


@pytest.mark.parametrize("make", FILES)
def test_database_file_is_readable_by_its_owner_only(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "file.sqlite"
    make(path)
    assert mode(path) == 0o600


@pytest.mark.parametrize("make", FILES)
def test_database_file_is_created_private_without_a_later_chmod(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_file, database):
        monkeypatch.setattr(module, "close_to_others", lambda _: None)
    path = tmp_path / "file.sqlite"
    make(path)
    assert mode(path) == 0o600


def test_database_side_files_of_sqlite_are_made_private_on_opening(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.sqlite"
    a_coordinators_database(path)
    with closing(sqlite3.connect(path)) as other:  # keeps the WAL and SHM files in place
        other.execute("CREATE TABLE theirs (number)")
        beside = [path.with_name(f"{path.name}-{each}") for each in ("wal", "shm")]
        for each in (path, *beside):
            each.chmod(0o666)
        a_coordinators_database(path)
        assert [mode(each) for each in (path, *beside)] == [0o600] * 3


@pytest.mark.parametrize("make", FILES)
def test_database_file_with_open_permissions_is_made_private_on_opening(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "file.sqlite"
    make(path)
    path.chmod(0o644)
    make(path)
    assert mode(path) == 0o600


def test_foreign_database_file_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE theirs (number)")
    path.chmod(0o644)
    with pytest.raises(StorageError):
        an_execution_store(path)
    assert mode(path) == 0o644


def test_server_config_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "fedperf-server.toml").touch()
    now = datetime(2027, 1, 1, tzinfo=UTC)
    path = write_config(ServerConfig(tmp_path, "localhost", default_calendar(now)))
    assert mode(path) == 0o600
