"""What either side keeps is for its owner alone, whatever the umask was and is."""

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
def test_a_database_is_its_owners_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    make(path)
    assert mode(path) == 0o600


@pytest.mark.parametrize("make", FILES)
def test_a_database_is_private_from_the_moment_it_is_made(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_file, database):
        monkeypatch.setattr(module, "close_to_others", lambda _: None)
    path = tmp_path / "file.sqlite"
    make(path)
    assert mode(path) == 0o600


def test_what_sqlite_left_beside_a_coordinators_database_is_closed_to_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.sqlite"
    a_coordinators_database(path)
    with closing(sqlite3.connect(path)) as other:  # keeps what is beside the file in place
        other.execute("CREATE TABLE theirs (number)")
        beside = [path.with_name(f"{path.name}-{each}") for each in ("wal", "shm")]
        for each in (path, *beside):
            each.chmod(0o666)
        a_coordinators_database(path)
        assert [mode(each) for each in (path, *beside)] == [0o600] * 3


@pytest.mark.parametrize("make", FILES)
def test_a_database_that_was_open_to_others_is_closed_to_them(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "file.sqlite"
    make(path)
    path.chmod(0o644)
    make(path)
    assert mode(path) == 0o600


def test_a_file_of_somebody_else_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (number)")
    path.chmod(0o644)
    with pytest.raises(StorageError):
        an_execution_store(path)
    assert mode(path) == 0o644


def test_the_servers_file_of_settings_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "fedperf-server.toml").touch()
    now = datetime(2027, 1, 1, tzinfo=UTC)
    path = write_config(ServerConfig(tmp_path, "localhost", default_calendar(now)))
    assert mode(path) == 0o600
