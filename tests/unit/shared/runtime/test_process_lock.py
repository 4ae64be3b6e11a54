"""Tests of the process lock: one holder at a time, released when the holder dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import InUseError, is_locked, process_lock

HOLD = """
import pathlib, sys, time
from fedperf_shared.runtime.process import process_lock
with process_lock(pathlib.Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_process_lock_in_use_refuses_second_holder_and_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        process_lock(path, "the home x"),
        pytest.raises(InUseError, match=f"the home x is in use by process {os.getpid()}; end"),
        process_lock(path, "the home x"),
    ):
        pytest.fail("nothing runs beside it")
    with process_lock(path, "the home x"):
        assert path.stat().st_mode & 0o077 == 0


def test_process_lock_is_released_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InUseError, match=f"process {holder.pid}"),
            process_lock(path, "it"),
        ):
            pytest.fail("another process holds it")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with process_lock(path, "it"):
        pass


def test_process_lock_at_unwritable_path_raises_storage_error(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="cannot write"),
        process_lock(tmp_path / "nowhere" / "lock", "it"),
    ):
        pytest.fail("there is no lock")


def test_is_locked_reports_a_held_lock_without_acquiring_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_locked(path)
    assert not path.exists()
    with process_lock(path, "a"):
        assert is_locked(path)
        assert is_locked(path)
    assert not is_locked(path)
    with process_lock(path, "a"):
        pass
