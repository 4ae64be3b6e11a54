"""A database that is locked, full, or fails at every call: the coordinator's process goes on."""

import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_server.app.process import system_clock
from fedperf_shared.releases.period import Timetable
from tests.integration.federation.test_crashes import process
from tests.integration.federation.worlds import new_server, timetable

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(240)]

LOCKED_SECONDS, FAILING_SECONDS = 28, 60
DISK_BYTES = 4 << 20


def later() -> Timetable:
    """A calendar that begins in an hour: no round is in the way."""
    start = system_clock().replace(microsecond=0) + timedelta(hours=1)
    return timetable(start=start)


def hear(running: object, lines: list[str]) -> threading.Thread:
    """Collect what the process prints, beside the test."""
    stream = running.stdout  # type: ignore[attr-defined]
    listening = threading.Thread(target=lambda: lines.extend(stream), daemon=True)
    listening.start()
    return listening


def wait_for(lines: list[str], part: str) -> None:
    """Until a line says so; the test's time limit ends a wait in vain."""
    while not any(part in line for line in lines):
        time.sleep(0.1)


def test_a_coordinator_survives_a_database_that_is_locked_for_long(tmp_path: Path) -> None:
    config = new_server(tmp_path / "server", later())
    lines: list[str] = []
    with process("coordinator_process", str(config.directory)) as running:
        hear(running, lines)
        wait_for(lines, "serving")
        other = sqlite3.connect(config.directory / "coordinator.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_SECONDS)
        other.execute("ROLLBACK")
        other.close()
        wait_for(lines, "works again")
        assert running.poll() is None
    assert sum("failing" in line for line in lines) == 1
    assert sum("works again" in line for line in lines) == 1


def test_a_coordinator_survives_a_minute_in_which_every_call_of_the_database_fails(
    tmp_path: Path,
) -> None:
    config = new_server(tmp_path / "server", later())
    lines: list[str] = []
    marker = tmp_path / "failing"
    with process("failing_coordinator", str(config.directory), str(marker)) as running:
        hear(running, lines)
        wait_for(lines, "serving")
        marker.touch()
        time.sleep(FAILING_SECONDS)
        marker.unlink()
        wait_for(lines, "works again")
        assert running.poll() is None
    assert sum("failing" in line for line in lines) == 1
    assert sum("works again" in line for line in lines) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
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


def test_a_coordinator_survives_a_full_disk_and_closes_its_round_when_there_is_room(
    small_disk: Path,
) -> None:
    start = system_clock().replace(microsecond=0) + timedelta(seconds=20)
    config = new_server(small_disk / "server", timetable(start=start, replies=40.0))
    lines: list[str] = []
    with process("coordinator_process", str(config.directory)) as running:
        hear(running, lines)
        wait_for(lines, "serving")
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        wait_for(lines, "failing")
        time.sleep(5)
        assert running.poll() is None
        filler.unlink()
        wait_for(lines, "round 1 no_quorum")
    assert sum("failing" in line for line in lines) == 1
    assert "full" in next(line for line in lines if "failing" in line)
    assert sum("works again" in line for line in lines) == 1
