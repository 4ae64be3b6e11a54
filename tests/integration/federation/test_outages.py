"""`fedperf-server run` with a database that is locked, full, or fails at every call."""

import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_server.app.process import system_clock
from fedperf_server.config import ServerConfig
from fedperf_server.membership.authority import KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import SignedRelease
from tests.integration.federation.small_federation import (
    Organization,
    admit,
    calendar,
    constant,
    full_schedule,
    new_server,
    node,
)
from tests.integration.federation.test_crashes import process

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(240)]

LOCKED_SECONDS, FAILING_SECONDS = 28, 60
DISK_BYTES = 8 << 20


def later() -> ReleaseCalendar:
    """Return a calendar that begins in an hour, so that no round interferes."""
    start = system_clock().replace(microsecond=0) + timedelta(hours=1)
    return calendar(start=start)


def served(directory: Path, table: ReleaseCalendar) -> ServerConfig:
    """Return the configuration of a directory that `fedperf-server run` can serve."""
    return new_server(directory, table, model_format=GgfnFormat())


@contextmanager
def serving(config: ServerConfig, marker: Path) -> Iterator[list[str]]:
    """Yield the output lines of a server that must still run at the end.

    Its database calls fail while `marker` exists.
    """
    lines: list[str] = []
    with process("server_process", str(config.directory), str(marker)) as running:
        assert running.stdout is not None
        stream = running.stdout
        threading.Thread(target=lambda: lines.extend(stream), daemon=True).start()
        wait_for(lines, "serving")
        yield lines
        assert running.poll() is None
    assert sum("failing" in line for line in lines) == 1
    assert sum("works again" in line for line in lines) == 1


def wait_for(lines: list[str], part: str) -> None:
    """Wait until a line contains this text. The test's time limit bounds the wait."""
    while not any(part in line for line in lines):
        time.sleep(0.1)


def test_server_survives_database_locked_for_long(tmp_path: Path) -> None:
    config = served(tmp_path / "server", later())
    with serving(config, tmp_path / "never") as lines:
        other = sqlite3.connect(config.directory / "coordinator.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_SECONDS)
        other.execute("ROLLBACK")
        other.close()
        wait_for(lines, "works again")


def test_round_closes_with_received_reply_after_a_minute_of_database_errors(
    tmp_path: Path,
) -> None:
    """The other organization never replies, so the round is open when the database fails.

    Neither organization sends a report. The server logs this once the database works again.
    """
    table = calendar(replies=50.0)
    config = served(tmp_path / "server", table)
    marker, answered = tmp_path / "failing", threading.Event()

    def answer(organization: Organization, request: TrainRequest) -> SignedRelease:
        answered.set()
        return constant(0.0)(organization, request)

    database = Database(config.database_url)
    operator = Enrollment(database, KeyRing(config.directory), config, clock=system_clock)
    with serving(config, marker) as lines:
        one, _ = (
            admit(tmp_path, operator.add_organization(name).url, name, full_schedule(table))
            for name in ("one", "two")
        )
        with node(one, answer):
            assert answered.wait(30)
            time.sleep(2)
            marker.touch()
            time.sleep(FAILING_SECONDS)
            marker.unlink()
            wait_for(lines, "works again")
            wait_for(lines, "round closed")
        for name in ("one", "two"):
            wait_for(lines, f"organization={name} slot=report-0-0")
    database.close()
    (closed,) = (line for line in lines if "round closed" in line)
    assert "replies='1 of 2'" in closed
    assert "refused={'missing': 1}" in closed
    assert sum("report missing" in line for line in lines) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a mounted file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", place],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_server_survives_full_disk_and_closes_its_round_afterwards(
    small_disk: Path,
) -> None:
    start = system_clock().replace(microsecond=0) + timedelta(seconds=20)
    config = served(small_disk / "server", calendar(start=start, replies=25.0))
    with serving(config, small_disk / "never") as lines:
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        wait_for(lines, "failing")
        time.sleep(5)
        filler.unlink()
        wait_for(lines, "round closed")
    assert "full" in next(line for line in lines if "failing" in line)
    assert "outcome=no_quorum" in next(line for line in lines if "round closed" in line)
