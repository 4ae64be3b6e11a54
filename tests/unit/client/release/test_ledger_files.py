"""Tests of the files beside the ledger: they survive a loss of power."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedperf_client.release.ledger_files import (
    ConfirmedRelease,
    confirmed_path,
    counter_path,
    read_counter,
    write_confirmed,
    write_counter,
)
from fedperf_shared.errors import StorageError


def steps_to_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, int]]:
    """Record every sync and replacement as operation, path and file size in bytes."""
    steps: list[tuple[str, Path, int]] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(("sync", path, path.stat().st_size if path.is_file() else 0))
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        steps.append(("replace", target, source.stat().st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    return steps


@pytest.mark.parametrize(
    ("path_of", "write"),
    [
        (counter_path, lambda ledger: write_counter(ledger, "identity", 3)),
        (
            confirmed_path,
            lambda ledger: write_confirmed(
                ledger, ConfirmedRelease(b"i" * 32, b"s" * 32, 1, b"signed")
            ),
        ),
    ],
)
def test_ledger_files_are_synced_before_replacement_and_directory_after(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path_of: Callable[[Path], Path],
    write: Callable[[Path], None],
) -> None:
    steps = steps_to_disk(monkeypatch)
    write(tmp_path / "ledger")
    path = path_of(tmp_path / "ledger")
    size = path.stat().st_size
    new = path.with_name(path.name + ".new")
    assert steps == [("sync", new, size), ("replace", path, size), ("sync", tmp_path, 0)]


@pytest.mark.parametrize("damage", [lambda text: f"x{text}", lambda text: f"{text} 4"])
def test_damaged_counter_file_is_refused(tmp_path: Path, damage: Callable[[str], str]) -> None:
    write_counter(tmp_path / "ledger", "identity", 3)
    assert read_counter(tmp_path / "ledger") == ("identity", 3)
    path = counter_path(tmp_path / "ledger")
    path.write_text(damage(path.read_text()))
    with pytest.raises(StorageError, match="damaged"):
        read_counter(tmp_path / "ledger")
